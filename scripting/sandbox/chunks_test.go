package sandbox

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/need"
	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/scriptingtest"
	"github.com/weir-edge/weir/scripting/scriptingtest/language"
)

// TestChunks runs the interpreter's own test files in the sandbox, by a build of its guest
// that has `assert` and `freeze` in place of their load. Each chunk ends as it says itself.
func TestChunks(t *testing.T) {
	need.Of(t, !testing.Short(), "a module is built without -short")
	m := built(t, "./guest", "chunks")
	e := newEngine(Options{CPU: time.Minute, Timeout: 5 * time.Minute}, func() (module, error) { return m, nil })
	t.Cleanup(e.Close)
	if err := e.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"assert.eq(1, 2)", "assert.true(False)", "assert.fails(lambda: 1, 'x')", "assert.fails(lambda: 1 // 0, 'x')", "assert.contains([], 1)", "assert.lt(2, 1)", "assert.ne(1, 1)"} {
		if told, _ := play(t, e, text); len(told) != 1 {
			t.Errorf("%s told %q", text, told)
		}
	}
	chunks := scriptingtest.Chunks(t)
	if len(chunks) < 60 {
		t.Fatalf("only %d chunks", len(chunks))
	}
	excepted, fine, failed := 0, 0, 0
	for _, c := range chunks {
		if reason := c.Except(); reason != "" {
			t.Logf("%s: not run: %s", c.Name(), reason)
			excepted++
			continue
		}
		if chunk(t, e, c) {
			fine++
		} else {
			failed++
		}
	}
	t.Logf("%d chunks: %d without an error, %d with one, %d not run", len(chunks), fine, failed, excepted)
	if excepted*20 > len(chunks) {
		t.Errorf("%d of %d chunks are not run", excepted, len(chunks))
	}
}

// chunk runs one chunk, compares its error with the expected one, and returns whether it
// ended without.
func chunk(t *testing.T, e *Engine, c *scriptingtest.Chunk) bool {
	told, failure := play(t, e, c.Text)
	for _, text := range told {
		t.Errorf("%s: %s", c.Name(), text)
	}
	switch {
	case failure == nil && (len(c.Want) > 0 || c.Refused != ""):
		t.Errorf("%s: no error, want %v %s", c.Name(), c.Want, c.Refused)
	case failure != nil:
		want := c.Want[failure.Line]
		if c.Refused != "" {
			want = regexp.MustCompile(c.Refused)
		}
		if want == nil || !want.MatchString(failure.Message) {
			t.Errorf("%s: %+v, want %v", c.Name(), failure, want)
		}
	}
	return failure == nil
}

// play runs a text with the values of package language, and returns what `assert` told and
// the error.
func play(t *testing.T, e *Engine, text string) (told []string, failure *scripting.Error) {
	p, err := scripting.Compile("script.star", text, scripting.Scope{Extra: language.Names()})
	if err != nil {
		return nil, err.(*scripting.Error)
	}
	r := &scripting.Run{Program: p, Call: tools{}.call, Limits: scripting.Limits{Steps: 50_000_000, CPU: time.Minute, Timeout: 5 * time.Minute}}
	out, err := e.Run(t.Context(), "me", r)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range out.Logs {
		if found, ok := strings.CutPrefix(line, "assert: "); ok {
			told = append(told, found+" "+strings.Join(out.Logs, "\n"))
		}
	}
	return told, out.Error
}
