//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// An edge outlives the readers of its log and of its audit records, which are on standard error
// and standard output: calls go on, and it drains when it is told to.
func TestOutlivesItsReaders(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	addr := edgetest.FreeAddress(t)
	manifest := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(manifest, []byte(edgetest.Manifest(back, "audit: {enabled: true}")), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "weir", "serve", "-c", manifest, "--listen", addr, "--admin-listen", "", "--log-level", "debug")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	records, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	for lines := bufio.NewScanner(log); lines.Scan() && !strings.Contains(lines.Text(), `"serving"`); {
	}
	client := edgetest.NewClient(t, "http://"+addr)
	call := func(n int) {
		t.Helper()
		if m := client.Modern(fmt.Sprint(n), "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error != nil {
			t.Errorf("call %d: %+v", n, m.Error)
		}
	}
	call(1)
	if line, err := bufio.NewReader(records).ReadString('\n'); err != nil || !strings.Contains(line, "tools/call") {
		t.Fatalf("no record: %q, %v", line, err)
	}
	if err := errors.Join(records.Close(), log.Close()); err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		call(2 + n)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestOutlivesAReaderThatStalls: whoever holds the log of an edge and reads none of it (a terminal
// after Ctrl-S, a pager) holds up no call and no signal: the first has it drain, a second one ends it.
func TestOutlivesAReaderThatStalls(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	entered := make(chan struct{}, 1)
	addr := edgetest.FreeAddress(t)
	manifest := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(manifest, []byte(edgetest.Manifest(back)), 0o600); err != nil {
		t.Fatal(err)
	}
	held, log, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	defer log.Close()
	for err == nil { // until it is full
		if err = log.SetWriteDeadline(time.Now().Add(time.Millisecond)); err == nil {
			_, err = log.Write(make([]byte, 512))
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "weir", "serve", "-c", manifest, "--listen", addr, "--admin-listen", "", "--log-level", "debug")
	cmd.Env, cmd.Stderr = []string{"PATH=" + os.Getenv("PATH")}, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ready := func() bool {
		r, err := http.Get("http://" + addr + "/readyz")
		if err == nil {
			r.Body.Close()
		}
		return err == nil && r.StatusCode == 200
	}
	edgetest.Until(t, "the edge to serve", ready)
	client := edgetest.NewClient(t, "http://"+addr)
	for n := range 20 {
		if m := client.Modern(fmt.Sprint(n), "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error != nil {
			t.Errorf("call %d: %+v", n, m.Error)
		}
	}
	back.Always("tools/call", func(c *edgetest.Call) {
		entered <- struct{}{}
		c.Wait(nil)
	})
	go func() { _, _ = client.TryModern("21", "tools/call", edgetest.CallParams("echo", "{}")) }()
	edgetest.Receive(t, entered, "the call that keeps it draining")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "the edge to drain", func() bool { return !ready() })
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var code *exec.ExitError
	if err := edgetest.Receive(t, ended, "the end"); !errors.As(err, &code) || code.ExitCode() != 128+15 || time.Since(began) > 10*time.Second {
		t.Errorf("it ended with %v after %v", err, time.Since(began))
	}
}
