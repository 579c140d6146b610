package scripting_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weir-edge/weir/scripting"
)

// readmeTools are the tools of README.md.
func readmeTools() tools {
	answer := func(text string) func(context.Context, *scripting.Call) scripting.Answer {
		return func(context.Context, *scripting.Call) scripting.Answer { return scripting.Answer{Value: []byte(text)} }
	}
	return tools{
		"search": answer(`{"items":[{"number":1,"open":true},{"number":2,"open":false},{"number":3,"open":true}],"total":3}`),
		"fetch": func(_ context.Context, c *scripting.Call) scripting.Answer {
			var named struct{ ID any }
			if len(c.Positional) > 0 {
				_ = json.Unmarshal(c.Positional[0], &named.ID)
			} else {
				_ = json.Unmarshal(c.Arguments, &named)
			}
			return scripting.Answer{Value: fmt.Appendf(nil, `{"title":"title %v"}`, named.ID)}
		},
		"create-issue": answer(`{"number":7}`),
		"odd":          answer(strings.Repeat("[", 101) + strings.Repeat("]", 101)),
		"broken": func(context.Context, *scripting.Call) scripting.Answer {
			return scripting.Answer{Error: &scripting.Fault{Message: `tool "broken": it is broken`, Code: 500}}
		},
		"slow": usual()["hang"],
	}
}

// TestReadme runs every script of README.md, and compares what comes of it with what it says.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	try := func(t *testing.T, script string) *scripting.Outcome {
		ts := readmeTools()
		p, err := scripting.Compile("script.star", script, ts.scope())
		if err != nil {
			return &scripting.Outcome{Error: err.(*scripting.Error)}
		}
		o, err := scripting.Execute(t.Context(), &scripting.Run{Program: p, Call: ts.call})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	blocks := regexp.MustCompile("(?s)```starlark\n(.*?)```\n```json\n(.*?)\n```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != strings.Count(string(text), "```starlark") || len(blocks) < 5 {
		t.Fatalf("%d scripts with a value", len(blocks))
	}
	for _, b := range blocks {
		if got := told(try(t, b[1])); got != b[2] {
			t.Errorf("%s\n got %s\nwant %s", b[1], got, b[2])
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `(.*)` \\| `(.*)` \\|$").FindAllStringSubmatch(string(text), -1)
	if len(rows) < 35 {
		t.Fatalf("%d errors", len(rows))
	}
	for _, row := range rows {
		synctest.Test(t, func(t *testing.T) {
			if o := try(t, row[1]); o.Error == nil || o.Error.Message != row[2] {
				t.Errorf("%s\n got %s\nwant %s", row[1], told(o), row[2])
			}
		})
	}
}
