package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/edgetest"
)

// pseudoTerminal is a terminal of so many columns and lines, and what is shown
// on it.
func pseudoTerminal(t *testing.T, columns, lines uint16) (shown, terminal *os.File) {
	t.Helper()
	shown, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	edgetest.Need(t, err == nil, fmt.Sprintf("there are no pseudo terminals: %v", err))
	t.Cleanup(func() { _ = shown.Close() })
	number, err := unix.IoctlGetInt(int(shown.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(shown.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(shown.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns})
	}
	if err == nil {
		terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return shown, terminal
}

// On a terminal each look takes the place of the one before, lines are cut to
// its width, and the cursor is there again in the end.
func TestWatchStatusOnATerminal(t *testing.T) {
	shown, terminal := pseudoTerminal(t, 60, 24)
	edge := httptest.NewServer(http.HandlerFunc(adminDoor))
	defer edge.Close()
	cmd := exec.CommandContext(t.Context(), "weir", "status", "--watch", "--interval", "100ms", "--admin", edge.Listener.Addr().String())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = terminal, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(shown)
	var before string
	for range 3 {
		var bytes []byte
		for !strings.HasSuffix(string(bytes), "\x1b[J") {
			c, err := r.ReadByte()
			if err != nil {
				t.Fatalf("%q, %v", bytes, err)
			}
			bytes = append(bytes, c)
		}
		text := string(bytes)
		if before != "" && !strings.HasPrefix(text, "\x1b[H") {
			t.Errorf("a frame begins with %.20q", text)
		}
		if before == "" && !strings.HasPrefix(text, "\x1b[2J\x1b[?25l\x1b[H") {
			t.Errorf("the screen begins with %.20q", text)
		}
		for line := range strings.SplitSeq(text, "\r\n") {
			if line = strings.NewReplacer("\r", "", "\x1b[H", "", "\x1b[K", "", "\x1b[J", "", "\x1b[2J", "", "\x1b[?25l", "").Replace(line); len([]rune(line)) > 59 {
				t.Errorf("a line of %d columns: %q", len([]rune(line)), line)
			}
		}
		if !strings.Contains(text, "a: Degraded") || !strings.Contains(text, "…\x1b[K") {
			t.Errorf("no status, or no line that was cut: %q", text)
		}
		before = text
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(r) // ends with EIO: nobody has the terminal any longer
	if err := cmd.Wait(); err != nil || !strings.HasSuffix(string(rest), "\x1b[?25h") {
		t.Errorf("ends with %q, %v", rest, err)
	}
}
