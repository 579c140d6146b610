package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/sandbox"
)

// The scripts are what somebody does with workloads of theirs, through a manager of their own
// in a process of its own.
func TestWorkloadsOfAUser(t *testing.T) {
	var missing *sandbox.HelperError
	_, err := sandbox.Helper(t.TempDir())
	edgetest.Need(t, !errors.As(err, &missing), fmt.Sprint(err))
	weir, err := exec.LookPath("weir") // of these tests
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/user",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "fill": fill},
		Setup: func(e *testscript.Env) error {
			home, err := os.MkdirTemp("", "weir-user-") // the path of a socket may not be long
			if err != nil {
				return err
			}
			e.Setenv("WEIR_HOME", home)
			e.Setenv("HOME", home)
			e.Setenv("WORD", "a b\nc")
			e.Defer(func() {
				down := exec.Command(weir, "down")
				down.Env = e.Vars
				said, err := down.CombinedOutput()
				if err != nil {
					t.Errorf("weir down: %v: %s", err, said)
				}
				if err := os.RemoveAll(home); err != nil {
					t.Error(err)
				}
			})
			return nil
		},
	})
}
