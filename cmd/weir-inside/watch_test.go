//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestWatch has a command started again when it fails, later each time, and no more when it
// ends in order.
func TestWatch(t *testing.T) {
	helper, _ := programs(t)
	log := filepath.Join(t.TempDir(), "log")
	// It fails three times, is killed once, and ends in order.
	script := `date +%s%N >>"$1"; n=$(wc -l <"$1"); [ "$n" -lt 4 ] && exit 3; [ "$n" -eq 4 ] && kill -9 $$; exit 0`
	cmd := exec.Command(helper, "watch", "/bin/sh", "-c", script, "sh", log)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var at []int64
	for line := range strings.Lines(string(text)) {
		n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, n)
	}
	if len(at) != 5 {
		t.Fatalf("it was started %d times, want 5", len(at))
	}
	for i, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond} {
		if got := time.Duration(at[i+1] - at[i]); got < want || got > want+2*time.Second {
			t.Errorf("pause %d: %v, want %v", i, got, want)
		}
	}
}

// TestWatchIsSmall holds the watcher to its memory, and to doing nothing while it waits.
func TestWatchIsSmall(t *testing.T) {
	helper := filepath.Join(t.TempDir(), "weir-inside")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", helper, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(helper)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 3<<20 {
		t.Errorf("the helper has %d bytes, and the limit is 3 MiB", info.Size())
	}
	cmd := exec.Command(helper, "watch", "/bin/sh", "-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.1; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	// Nothing is to happen. The kernel may count a tick that falls into a wake-up of the
	// runtime, so one quiet time of several is asked for.
	used := 0
	for range 4 {
		before := ticks(t, cmd.Process.Pid)
		time.Sleep(2 * time.Second)
		if used = ticks(t, cmd.Process.Pid) - before; used == 0 {
			break
		}
	}
	if used != 0 {
		t.Errorf("the watcher used the processor: %d ticks in 2 s", used)
	}
	if kib := rss(t, cmd.Process.Pid); kib > 4<<10 {
		t.Errorf("the watcher has %d KiB in memory, and the limit is 4 MiB", kib)
	} else {
		t.Logf("the watcher has %d KiB in memory, the file %d bytes", kib, info.Size())
	}
	// SIGTERM goes to the command, and the watcher ends with it.
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("the watcher ended with %d, want 7", code)
	}
}

// ticks are those of the processor that a process has used.
func ticks(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	user, _ := strconv.Atoi(string(fields[11]))
	system, _ := strconv.Atoi(string(fields[12]))
	return user + system
}

// rss is what a process has in memory, in KiB.
func rss(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
