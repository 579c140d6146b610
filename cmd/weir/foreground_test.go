package main

import (
	"bufio"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/workload"
)

// A workload in the foreground ends when its server is not started again, as it did. That one
// is tried again later is told, each time.
func TestForegroundGoesOn(t *testing.T) {
	ill := workload.Look{State: workload.Failed, Reason: "ends again and again, last: exit 5", Ended: "exit 5"}
	for ended, want := range map[string]string{"exit 0": "", "exit 5": "fx has ended: exit 5"} {
		looks := []workload.Look{{State: workload.Running}, ill, ill, {State: workload.Unhealthy, Reason: "restarting, ended: exit 5"}, ill, {State: workload.Failed, Over: true, Reason: "ended: " + ended, Ended: ended}}
		look := func() (workload.Look, bool) {
			now := looks[0]
			looks = looks[1:]
			return now, true
		}
		var told []string
		err := watchEnd(t.Context(), look, "fx", make(chan error), func(e workload.Event) { told = append(told, e.Text) })
		var e *workload.Error
		if (want == "") != (err == nil) || want != "" && (!errors.As(err, &e) || e.Code != workload.CodeStart || e.Message != want) {
			t.Errorf("%s: %v", ended, err)
		}
		again := "fx is error: ends again and again, last: exit 5; it is tried again every minute"
		if len(looks) > 0 || !slices.Equal(told, []string{again, again}) {
			t.Errorf("%s: told %q, and %d looks are left", ended, told, len(looks))
		}
	}
	broken := make(chan error, 1)
	broken <- errors.New("the door is broken")
	running := func() (workload.Look, bool) { return workload.Look{State: workload.Running}, true }
	ended := make(chan error, 1)
	go func() { ended <- watchEnd(t.Context(), running, "fx", broken, nil) }()
	if err := edgetest.Receive(t, ended, "the end"); err == nil || err.Error() != "the door is broken" {
		t.Errorf("%v", err)
	}
}

// The same command has the same name and address again after it was killed, and after its
// terminal was closed, which ends it in order.
func TestForegroundComesBack(t *testing.T) {
	h := newHousehold(t)
	small, err := exec.LookPath("small-server")
	if err != nil {
		t.Fatal(err)
	}
	first := ""
	for _, named := range [][]string{nil, {"--name", "small-server"}} {
		for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGHUP, syscall.SIGKILL} {
			cmd := exec.CommandContext(t.Context(), "weir", slices.Concat([]string{"run", "-f"}, named, []string{"--", small, "one"})...)
			var said lockedBuffer
			cmd.Env, cmd.Dir, cmd.Stderr = h.env, h.home, &said
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			url, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				_ = cmd.Wait()
				t.Fatalf("%v: %s", err, said.String())
			}
			if first == "" {
				first = url
			}
			if url != first {
				t.Errorf("%v: at %s, and before at %s", named, url, first)
			}
			if err := cmd.Process.Signal(end); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); (err == nil) != (end == syscall.SIGHUP) {
				t.Errorf("after %s: %v, %s", end, err, said.String())
			}
			left, err := filepath.Glob(filepath.Join(h.home, "weir", "*", "workloads", "*"))
			if err != nil || (len(left) == 0) != (end == syscall.SIGHUP) {
				t.Errorf("after %s there is %v, %v", end, left, err)
			}
			if out, _, code := h.weir("list", "-a"); code != 0 || strings.Contains(out, "small-server") {
				t.Errorf("list: exit code %d, %s", code, out)
			}
		}
	}
}
