package main

import (
	"strings"
	"testing"

	weir "github.com/weir-edge/weir/sdk"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/sdk/weirtest"
)

// TestOthers has the example ask others in an ordinary test.
func TestOthers(t *testing.T) {
	g := weirtest.Start(t, weirtest.Setup{
		Grants: []string{"random", "kv", "metrics", "keys", "http", "tools", "events"}, Keys: map[string]string{},
	})
	says := func(tool, text string) string {
		t.Helper()
		ops := g.Ask(abi.OnCallRequest, weirtest.Input{Tool: tool, Arguments: `{"text":` + string(weir.Text(text)) + `}`})
		if len(ops) != 1 {
			t.Fatalf("%s: %v", tool, ops)
		}
		return weir.Parse([]byte(ops[0].Raw)).At("/content/0/text").Text()
	}
	if got := says("fetch", "?") + says("tool", "look"); got != "error: not availableerror: not available" {
		t.Errorf("nobody answers: %q", got)
	}
	var asked weir.Outbound
	g.Host.Fetch = func(q weir.Outbound) (weir.Inbound, error) {
		if asked = q; q.Method == "GET" {
			return weir.Inbound{}, weir.ErrDenied
		}
		return weir.Inbound{Status: 200, Headers: [][2]string{{"x-kind", "verdict"}}, Body: []byte(strings.Repeat("x", 3000))}, nil
	}
	g.Host.Tools = func(name, arguments string) (weir.JSON, weir.JSON, error) {
		if name == "broken" {
			return "", `{"message":"it is broken"}`, nil
		}
		return weir.TextResult(name + " " + arguments), "", nil
	}
	if got := says("fetch", "a question"); got != "200 verdict "+strings.Repeat("x", 3000) {
		t.Errorf("a large answer: %.40q", got)
	}
	if asked.URL != "https://api.example/judge?x=1" || asked.Body != "a question" || len(asked.Headers) != 1 || asked.Millis != 2000 {
		t.Errorf("it asked %+v", asked)
	}
	for _, one := range [][3]string{
		{"fetch elsewhere", "", "error: not granted"},
		{"tool", "look", `look {"deep":true}`},
		{"tool", "broken", "failed: it is broken"},
		{"emit", "an é", ""},
		{"emit badly", "", "error: bad argument"},
	} {
		if got := says(one[0], one[1]); got != one[2] {
			t.Errorf("%s %s: %q, want %q", one[0], one[1], got, one[2])
		}
	}
	if len(g.Host.Events) != 1 || g.Host.Events[0] != `seen: {"text":"an é"}` {
		t.Errorf("it told of %q", g.Host.Events)
	}
}
