package scripting_test

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/scriptingtest"
)

// TestDiffer compares the engine in process with the plain interpreter, on programs made by
// chance: value, prints, error, its line, and steps.
func TestDiffer(t *testing.T) {
	n := uint64(100)
	if text := os.Getenv("WEIR_PROGRAMS"); text != "" { // 5000, before a release
		n, _ = strconv.ParseUint(text, 10, 32)
	}
	values, failures, bounded := 0, 0, 0
	for seed := range n {
		text := scriptingtest.Generate(seed)
		want := scriptingtest.Plain(text, 100_000)
		p, err := scripting.Compile("script.star", text, scripting.Scope{})
		if err != nil {
			if want.Error == "" {
				t.Errorf("seed %d: %v\n%s", seed, err, text)
			}
			continue // no program for either
		}
		o, err := scripting.Execute(t.Context(), &scripting.Run{Program: p, Call: usual().call})
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.Logs { // what is printed is text here
			want.Logs[i] = strings.ToValidUTF8(want.Logs[i], "\ufffd")
		}
		want.Error = strings.TrimPrefix(want.Error, "Starlark computation cancelled: ")
		if want.Error == "too many steps" {
			want.Error += " (100000)"
		}
		differs := func() {
			if o.Error == nil && o.Steps != want.Steps || o.Dropped == 0 && !slices.Equal(o.Logs, want.Logs) {
				t.Errorf("seed %d: steps %d, want %d; logs %q, want %q; error %v, want %s\n%s", seed, o.Steps, want.Steps, o.Logs, want.Logs, o.Error, want.Error, text)
			}
		}
		if o.Error != nil {
			failures++
			if strings.HasPrefix(o.Error.Message, "a key or a side of a comparison") || strings.HasPrefix(o.Error.Message, "a value of more than") ||
				o.Error.Message == "too many steps (100000)" && want.Error == "" { // it counts what one step goes through, too
				bounded++ // of the engine in process alone
				continue
			}
			differs()
			if scripting.Clean(want.Error) != o.Error.Message && want.Value == "" || want.Line != 0 && want.Line != o.Error.Line {
				t.Errorf("seed %d: error %v, want %d: %s\n%s", seed, o.Error, want.Line, want.Error, text)
			}
			continue
		}
		differs()
		values++
		var got, plain any
		_ = json.Unmarshal(o.Value, &got)
		_ = json.Unmarshal([]byte(want.Value), &plain)
		if !reflect.DeepEqual(got, plain) {
			t.Errorf("seed %d: %s, want %s %s\n%s", seed, o.Value, want.Value, want.Error, text)
		}
	}
	t.Logf("%d values, %d errors, %d of them by bounds", values, failures, bounded)
	if bounded > int(n)/500+1 {
		t.Errorf("%d programs of %d were too large to compare", bounded, n)
	}
	if values < int(n)/2 {
		t.Errorf("only %d of %d programs had a value", values, n)
	}
}
