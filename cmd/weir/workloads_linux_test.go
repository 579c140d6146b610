package main

import (
	"bufio"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/workload"
)

// managedOnATerminal runs a command before a manager, on a terminal, and returns what is shown.
func managedOnATerminal(t *testing.T, m workload.Manager, args ...string) (text string, code int) {
	t.Helper()
	const end = '\x1c' // as in onATerminal
	shown, terminal := pseudoTerminal(t, 60, 50)
	defer func() { _ = terminal.Close() }()
	read := make(chan string)
	go func() { // ends with what is written last
		all, _ := bufio.NewReader(shown).ReadString(end)
		read <- strings.TrimSuffix(all, string(end))
	}()
	a := &app{in: strings.NewReader(""), out: terminal, err: terminal, environ: []string{"TERM=xterm", "WEIR_HOME=" + t.TempDir()}, exit: func(int) {}}
	a.managed = func(context.Context, bool) (workload.Manager, error) { return m, nil }
	code = a.run(args)
	if _, err := terminal.WriteString(string(end)); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(<-read, "\r\n", "\n"), code
}

// TestWorkloadsDoNotSteerTheTerminal (K20): escapes in what a server wrote, or a manager says of it,
// are not shown; the colours are those of Weir.
func TestWorkloadsDoNotSteerTheTerminal(t *testing.T) {
	for _, args := range [][]string{{"logs", "files"}, {"status", "broken"}, {"list", "-a"}, {"status", "files"}} {
		text, code := managedOnATerminal(t, newFakeManager(), args...)
		for _, ours := range []string{"\x1b[1m", "\x1b[2m", "\x1b[31mfailure:", "\x1b[32m", "\x1b[0m"} {
			text = strings.ReplaceAll(text, ours, "")
		}
		if code != exitOK || strings.ContainsAny(text, "\x1b\x07") {
			t.Errorf("%s: %d, %q", args, code, text)
		}
	}
}

// slowManager takes its time to start, until it was seen to.
type slowManager struct {
	*fakeManager
	told chan struct{}
}

func (m slowManager) Restart(ctx context.Context, name string, wait time.Duration, told func(workload.Event)) error {
	told(workload.Event{Text: "waits for the first answer of a server with a description that is too long for a line"})
	<-m.told
	return m.fakeManager.Restart(ctx, name, wait, told)
}

// TestSpinner: on a terminal the step that is waited for is one line with the seconds, which is
// cut to the terminal and taken away at the end.
func TestSpinner(t *testing.T) {
	m := slowManager{newFakeManager(), make(chan struct{})}
	time.AfterFunc(1500*time.Millisecond, func() { close(m.told) })
	text, code := managedOnATerminal(t, m, "restart", "files")
	if code != exitOK || !strings.HasSuffix(text, "\r\x1b[Kfiles: running at http://127.0.0.1:20001/mcp\n") {
		t.Fatalf("%d, %q", code, text)
	}
	lines := strings.Split(text, "\r\x1b[K")
	if first := lines[1]; !strings.HasPrefix(first, "| files: waits for the first answer") || !strings.HasSuffix(first, " (0 s)") || len(first) != 59 {
		t.Errorf("%q", first)
	}
	if last := lines[len(lines)-2]; strings.ContainsAny(last, "\x1b\n") {
		t.Errorf("%q", last)
	}
	if len(lines) < 4 {
		t.Errorf("it is written %d times", len(lines))
	}
}
