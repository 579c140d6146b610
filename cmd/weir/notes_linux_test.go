package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/workload"
)

// notes are the lines of standard error that are notes of a command.
func notes(said, command string) (all []string) {
	for line := range strings.Lines(said) {
		if note, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "weir "+command+": note: "); is {
			all = append(all, note)
		}
	}
	return all
}

// TestWhatIsNotHeldIsTold: who runs or starts a server is told, in a line on standard error, what
// its sandbox does not hold and how to get that. Programs read it in `weir inspect`.
func TestWhatIsNotHeldIsTold(t *testing.T) {
	h := newHousehold(t)
	h.env = slices.DeleteFunc(h.env, func(v string) bool { return strings.HasPrefix(v, "PATH=") })
	h.env = append(h.env, "PATH="+t.TempDir()) // without bubblewrap
	h.managed()
	const off = "off: sandbox none (--sandbox off): nothing is held, the server can do what its user can: run it without --sandbox off to have it held"
	profile := h.write("hosts.json", `{"name": "hosts", "network": {"outbound": {"allow_host": ["api.example.com"], "allow_port": [443]}}}`)
	for _, c := range []struct {
		name  string
		flags []string
		says  []string
	}{
		{"off", []string{"--sandbox", "off"}, []string{off}},
		{"hosts", []string{"--permission-profile", profile, "--cpus", "0.5"}, []string{"hosts: sandbox ", "bubblewrap is not in PATH", "not held: what its profile names", ": install bubblewrap ("}},
	} {
		_, said, code := h.weir(append(append([]string{"run", "--name", c.name}, c.flags...), "--", small(t))...)
		told := notes(said, "run")
		if kept := h.listed(c.name).Notes; code != 0 || len(told) == 0 || !slices.Equal(told, kept) {
			t.Errorf("%s: exit code %d, %swhat is kept is %q", c.name, code, said, kept)
		}
		for _, part := range c.says {
			if strings.Count(said, part) != 1 {
				t.Errorf("%s: %s%q is not there once", c.name, said, part)
			}
		}
	}
	h.must("stop", "off")
	for _, command := range []string{"start", "restart"} {
		if _, said, code := h.weir(command, "off"); code != 0 || !slices.Equal(notes(said, command), []string{off}) {
			t.Errorf("%s: exit code %d, %s", command, code, said)
		}
	}
	out, said, code := h.weir("run", "--replace", "--name", "off", "--sandbox", "off", "--format", "json", "--", small(t))
	if code != 0 || !json.Valid([]byte(out)) || strings.Contains(said, "note") {
		t.Errorf("JSON: exit code %d, %s%s", code, out, said)
	}
}

// noting tells of a note and of a warning while it restarts something.
type noting struct{ *fakeManager }

func (m noting) Restart(ctx context.Context, name string, wait time.Duration, told func(workload.Event)) error {
	for _, text := range []string{"starting files", "files: note: files: nothing\x1b[2J is held", "files: warning: it is not certain", "files: stderr: note: none", "waiting"} {
		told(workload.Event{Text: text})
	}
	return m.fakeManager.Restart(ctx, name, wait, told)
}

// TestNotesStayOnATerminal: the step that is waited for does not take the place of a note.
func TestNotesStayOnATerminal(t *testing.T) {
	text, code := managedOnATerminal(t, noting{newFakeManager()}, "restart", "files")
	var whole []string
	for line := range strings.Lines(text) {
		whole = append(whole, strings.TrimSpace(line[strings.LastIndex(line, "\r\x1b[K")+1:]))
	}
	want := []string{"\x1b[K\x1b[2mweir restart: note: \x1b[0mfiles: nothing[2J is held", "\x1b[Kfiles: warning: it is not certain", "\x1b[Kfiles: running at http://127.0.0.1:20001/mcp"}
	if code != exitOK || !slices.Equal(whole, want) {
		t.Errorf("%d, %q, want %q", code, whole, want)
	}
}
