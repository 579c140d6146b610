package plugin

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestZ37Grown: the longest string of an input is said again and again, and all else
// stays.
func TestZ37Grown(t *testing.T) {
	for _, c := range []struct {
		in, want string
		longest  int
	}{
		{`{"content":[{"type":"text","text":"abcdé"},{"n":1.50}]}`, `{"content":[{"text":"abcdé abc","type":"text"},{"n":1.50}]}`, 6},
		{`{"a":"x","b":["y","zz"]}`, `{"a":"x","b":["y","zz zz zz z"]}`, 2},
		{`"long text here"`, `"long text "`, 14},
		{`{"n":1,"t":[true,null,""]}`, `{"n":1,"t":[true,null,""]}`, 0},
		{``, ``, 0},
	} {
		in := Input{Result: json.RawMessage(c.in), Tool: "x"}
		if got := in.longest(); got != c.longest {
			t.Errorf("%s: the longest has %d bytes, want %d", c.in, got, c.longest)
		}
		if got := in.grown(10); string(got.Result) != c.want || got.Tool != "x" || string(in.Result) != c.in {
			t.Errorf("%s: %s, want %s", c.in, got.Result, c.want)
		}
	}
	in := Input{Arguments: json.RawMessage(`{"q":"é"}`)}
	if got := in.grown(1000); len(got.Arguments) < 1000 || len(got.Arguments) > 1010 || strings.Contains(string(got.Arguments), "\ufffd") {
		t.Errorf("%d bytes: %.40s", len(got.Arguments), got.Arguments)
	}
}
