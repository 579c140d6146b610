package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/sandbox"
)

// TestWorkloadOfAnUnprivilegedUser: somebody without any rights, who was never on this machine,
// has a manager, and a workload in a sandbox by bubblewrap, of which nobody is left at the end.
func TestWorkloadOfAnUnprivilegedUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	var missing *sandbox.HelperError
	_, err := sandbox.Helper(t.TempDir())
	edgetest.Need(t, !errors.As(err, &missing), fmt.Sprint(err))
	for _, program := range []string{"bwrap", "su"} {
		_, err := exec.LookPath(program)
		edgetest.Need(t, err == nil, fmt.Sprint(err))
	}

	// 1. The programs, where that user can read them, and a home.
	dir, err := os.MkdirTemp("", "weir-nobody-") // the path of a socket may not be long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	home := filepath.Join(dir, "home")
	const nobody = 65534
	for _, err := range []error{os.Chmod(dir, 0o755), os.Mkdir(home, 0o700), os.Chown(home, nobody, nobody)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"weir", "small-server"} {
		path, err := exec.LookPath(name) // of these tests
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	// 2. What the user types.
	ask := func(line string) string {
		t.Helper()
		cmd := exec.Command("su", "-s", "/bin/sh", "nobody", "-c", "cd / && "+filepath.Join(dir, "weir")+" "+line)
		cmd.Env = []string{"WEIR_HOME=" + home, "HOME=" + home, "PATH=" + os.Getenv("PATH")}
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("weir %s: %v: %s", line, err, said)
		}
		return string(said)
	}
	defer ask("down")
	ask("run --name mine --sandbox bwrap -- " + filepath.Join(dir, "small-server"))
	if said := ask("list"); !strings.Contains(said, " bwrap ") || !strings.Contains(said, " running ") {
		t.Errorf("the list is\n%s", said)
	}
	// Its ids are its user's, and no file of another is there.
	if said := ask("call -w mine look file=/etc/shadow"); strings.Contains(said, "root:") {
		t.Errorf("it sees %s", said)
	}

	// What its server has made read-only goes with it, such as a module cache of Go.
	mod := filepath.Join(home, "state", "workloads", "mine", "home", "mod")
	for _, step := range []func() error{
		func() error { return os.Mkdir(mod, 0o700) },
		func() error { return os.WriteFile(filepath.Join(mod, "file"), nil, 0o400) },
		func() error { return os.Chown(mod, nobody, nobody) },
		func() error { return os.Chmod(mod, 0o555) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	ask("rm mine")
	if left, _ := filepath.Glob(filepath.Join(home, "state", "gone", "*", "home")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
