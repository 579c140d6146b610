package main

import (
	"bufio"
	"os"
	"regexp"
	"strings"
	"testing"
)

// onATerminal runs a command on a terminal and returns what is shown.
func onATerminal(t *testing.T, args []string, environ ...string) (text string, code int) {
	t.Helper()
	// No command writes this. What is still on its way to a terminal that is
	// closed may be lost, so the terminal is read until then.
	const end = '\x1c'
	shown, terminal := pseudoTerminal(t, 200, 50)
	defer func() { _ = terminal.Close() }()
	read := make(chan string)
	go func() { // ends with what is written last
		all, _ := bufio.NewReader(shown).ReadString(end)
		read <- strings.TrimSuffix(all, string(end))
	}()
	code = runWeir(args, terminal, terminal, environ...)
	if _, err := terminal.WriteString(string(end)); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(<-read, "\r\n", "\n"), code
}

// TestZ23MistakesOnATerminal holds what mistakes look like where there are
// colours.
func TestZ23MistakesOnATerminal(t *testing.T) {
	mistakesAt(t, "client-on-a-terminal", nil, places(t), func(t *testing.T, args []string) (string, int) {
		text, code := onATerminal(t, args, "TERM=xterm")
		return timeless(strings.ReplaceAll(text, "\x1b", "ESC")), code
	})
}

// TestZ23Colour shows colours on terminals that have them, and to users who did
// not decline them; whatever a server says does not steer the terminal.
func TestZ23Colour(t *testing.T) {
	where := places(t)
	const plain = "plan://logo   logo   Of the plan.\nplan://notes  notes  Of the plan.\n"
	const bold = "\x1b[1mplan://logo\x1b[0m   logo   Of the plan.\n\x1b[1mplan://notes\x1b[0m  notes  Of the plan.\n"
	for _, test := range []struct {
		line, want string
		environ    []string
	}{
		{"weir resources $PLAN", bold, []string{"TERM=xterm"}},
		{"weir resources $PLAN", bold, []string{"TERM=xterm", "NO_COLOR="}},
		{"weir resources $PLAN", plain, []string{"TERM=xterm", "NO_COLOR=1"}},
		{"weir resources $PLAN", plain, []string{"TERM=dumb"}},
		{"weir resources $PLAN", plain, nil},
		{"weir read $PLAN plan://notes", "one[31m\ntwo\n", []string{"TERM=xterm"}},
		{"weir read $PLAN plan://logo", "\x1b[2m[image/png, 8 bytes: -o FILE saves it]\x1b[0m\n", []string{"TERM=xterm"}},
		{"weir prompt $PLAN review who=Ada", "\x1b[1muser:\x1b[0m Review it as Ada[2J would.\n\x1b[1massistant:\x1b[0m [image, image/png, 5 bytes]\n", []string{"TERM=xterm"}},
	} {
		if text, code := onATerminal(t, at(where, test.line), test.environ...); code != 0 || text != test.want {
			t.Errorf("%s with %q: exit code %d, %q; want %q", test.line, test.environ, code, text, test.want)
		}
	}
}

// A terminal for standard output alone colours nothing on standard error.
func TestZ23ColourOfEachStream(t *testing.T) {
	_, terminal := pseudoTerminal(t, 80, 24)
	defer func() { _ = terminal.Close() }()
	file, err := os.Create(t.TempDir() + "/err")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	runWeir([]string{"call"}, terminal, file, "TERM=xterm")
	text, err := os.ReadFile(file.Name())
	if err != nil || !strings.HasPrefix(string(text), "weir call: name a tool") {
		t.Errorf("%q, %v", text, err)
	}
}

// TestMistakesOnATerminal: what mistakes are answered with elsewhere is the same on a
// terminal, but for colours.
func TestMistakesOnATerminal(t *testing.T) {
	if *update {
		return // the texts are written where there is no terminal
	}
	colours := regexp.MustCompile("\x1b\\[[0-9;]*m")
	for folder, given := range map[string]map[string]string{"plain": nil, "plugin": faultyModules(), "policies": nil, "validate": nil, "words": nil, "workflows": nil} {
		mistakesAt(t, folder, given, nil, func(t *testing.T, args []string) (string, int) {
			text, code := onATerminal(t, args, "TERM=xterm")
			return colours.ReplaceAllString(text, ""), code
		})
	}
}
