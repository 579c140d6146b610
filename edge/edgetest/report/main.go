// Command report reads the output of `go test -json` and says what a person
// wants to know of it: each package as it ends, what failed with all that it
// printed, and at the end what was skipped and why.
//
//	go test -json ./... | go run ./edge/edgetest/report
//
// It exits with 1 when a test or a build failed, or when no test ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is one line of the output (cmd/test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

type tally struct {
	passed, failed int
	skipped        map[string][]string // reason to tests
	output         map[string]*strings.Builder
}

func main() {
	t := tally{skipped: map[string][]string{}, output: map[string]*strings.Builder{}}
	if err := t.read(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	if !t.close(os.Stdout) {
		os.Exit(1)
	}
}

func (t *tally) read(r io.Reader, w io.Writer) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 1<<20), 64<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Fprintln(w, in.Text()) // a line of the go command itself
			continue
		}
		t.take(e, w)
	}
	return in.Err()
}

func (t *tally) take(e event, w io.Writer) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		b := t.output[key]
		if b == nil {
			b = &strings.Builder{}
			t.output[key] = b
		}
		b.WriteString(e.Output)
	case "build-output":
		fmt.Fprint(w, e.Output)
	case "build-fail":
		t.failed++
	case "pass", "fail", "skip":
		t.end(e, key, w)
	}
}

func (t *tally) end(e event, key string, w io.Writer) {
	text := ""
	if b := t.output[key]; b != nil {
		text = b.String()
		delete(t.output, key)
	}
	if e.Test == "" {
		if e.Action != "skip" { // a package without tests says nothing
			fmt.Fprintf(w, "%-4s %s  %.1fs\n", e.Action, e.Package, e.Elapsed)
		}
		if e.Action == "fail" {
			t.cutShort(e.Package, w)
			fmt.Fprint(w, text)
			if e.FailedBuild == "" && !strings.Contains(text, "FAIL") {
				t.failed++
			}
		}
		return
	}
	switch e.Action {
	case "pass":
		t.passed++
	case "fail":
		t.failed++
		fmt.Fprintf(w, "FAIL %s %s\n%s", e.Package, e.Test, text)
	case "skip":
		reason := reasonOf(text)
		t.skipped[reason] = append(t.skipped[reason], e.Test)
	}
}

// cutShort prints what the tests of a package had printed that were running when it ended: by a
// crash, or an exit.
func (t *tally) cutShort(name string, w io.Writer) {
	for _, key := range slices.Sorted(maps.Keys(t.output)) {
		if test, of := strings.CutPrefix(key, name+" "); of {
			t.failed++
			fmt.Fprintf(w, "FAIL %s %s\n%s", name, test, t.output[key])
			delete(t.output, key)
		}
	}
}

// reasonOf finds what a test gave as its reason to skip.
func reasonOf(output string) string {
	reason := "no reason given"
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "===") || strings.HasPrefix(line, "---") {
			continue
		}
		if _, after, ok := strings.Cut(line, ".go:"); ok {
			if _, text, ok := strings.Cut(after, ": "); ok {
				line = text
			}
		}
		reason = line
	}
	return reason
}

// close prints the end and reports whether all is well.
func (t *tally) close(w io.Writer) bool {
	reasons := make([]string, 0, len(t.skipped))
	n := 0
	for reason, tests := range t.skipped {
		reasons = append(reasons, reason)
		n += len(tests)
	}
	slices.Sort(reasons)
	for _, reason := range reasons {
		tests := t.skipped[reason]
		shown := tests
		if len(shown) > 4 {
			shown = shown[:4]
		}
		fmt.Fprintf(w, "skipped %d: %s (%s%s)\n", len(tests), reason, strings.Join(shown, ", "), more(len(tests)-len(shown)))
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, n)
	return t.failed == 0 && t.passed > 0
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}
