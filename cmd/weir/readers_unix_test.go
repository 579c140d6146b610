//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
