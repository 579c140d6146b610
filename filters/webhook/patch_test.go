package webhook_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/webhook"
)

// What patches do to a message, and what a client reads of those that cannot be
// made. A webhook that may be ignored has its message go on as it was.
func TestPatches(t *testing.T) {
	const (
		malformed = "Internal Server Error: -32603: Malformed patch from webhook"
		invalid   = "Internal Server Error: -32603: Invalid patch from webhook"
		scope     = "Internal Server Error: -32603: Patch must be scoped to mcp_request"
		failed    = "Internal Server Error: -32603: Failed to apply patch from webhook"
		kind      = "Internal Server Error: -32603: Unsupported patch type from webhook"
		args      = "/mcp_request/params/arguments"
	)
	ops := func(ops string) string { return patch(ops) }
	for _, c := range []struct{ what, answer, want, message string }{
		{"nothing", ops(`[]`), "passed", call},
		{"no patch at all", yes, "passed", call},
		{"null", ops(`null`), "passed", call},
		{"a patch of no type", `{"allowed":true,"patch":[{"op":"remove","path":"` + args + `"}]}`, "passed", call},
		{"another type", `{"allowed":true,"patch_type":"merge_patch","patch":{}}`, kind, ""},
		{"a refusal with a patch", `{"allowed":false,"patch_type":"json_patch","patch":[]}`, "denied: Request denied by webhook policy", ""},

		{"add", ops(`[{"op":"add","path":"` + args + `/x","value":{"a":[1,2]}}]`), "passed", strings.Replace(call, `&"}}}`, `&","x":{"a":[1,2]}}}}`, 1)},
		{"replace", ops(`[{"op":"replace","path":"` + args + `/env","value":"dev"}]`), "passed", strings.Replace(call, `"prod"`, `"dev"`, 1)},
		{"remove", ops(`[{"op":"remove","path":"` + args + `/env"}]`), "passed", strings.Replace(call, `"env":"prod",`, "", 1)},
		{"copy", ops(`[{"op":"copy","from":"` + args + `/n","path":"` + args + `/m"}]`), "passed", strings.Replace(call, `&"}}}`, `&","m":12345678901234567890}}}`, 1)},
		{"move", ops(`[{"op":"move","from":"` + args + `/env","path":"` + args + `/to"}]`), "passed", strings.Replace(strings.Replace(call, `"env":"prod",`, "", 1), `&"}}}`, `&","to":"prod"}}}`, 1)},
		{"a test that holds", ops(`[{"op":"test","path":"` + args + `/env","value":"prod"}]`), "passed", call},
		{"a large number", ops(`[{"op":"replace","path":"` + args + `/n","value":98765432109876543210.5e3}]`), "passed", strings.Replace(call, `12345678901234567890`, `98765432109876543210.5e3`, 1)},
		{"an escaped name", ops(`[{"op":"add","path":"` + args + `/a~1b~0c","value":1}]`), "passed", strings.Replace(call, `&"}}}`, `&","a/b~c":1}}}`, 1)},

		{"a test that does not", ops(`[{"op":"test","path":"` + args + `/env","value":"dev"}]`), failed, ""},
		{"a test after a change", ops(`[{"op":"remove","path":"` + args + `/env"},{"op":"test","path":"` + args + `/n","value":1}]`), failed, ""},
		{"what is not there", ops(`[{"op":"remove","path":"` + args + `/none"}]`), failed, ""},
		{"below what is not there", ops(`[{"op":"add","path":"` + args + `/none/x","value":1}]`), failed, ""},
		{"replacing nothing", ops(`[{"op":"replace","path":"` + args + `/none","value":1}]`), failed, ""},
		{"an index below zero", ops(`[{"op":"add","path":"` + args + `/l","value":[1]},{"op":"remove","path":"` + args + `/l/-1"}]`), failed, ""},
		{"an index far away", ops(`[{"op":"add","path":"` + args + `/l","value":[1]},{"op":"add","path":"` + args + `/l/999999999","value":1}]`), failed, ""},

		{"text", ops(`"x"`), malformed, ""},
		{"an object", ops(`{"op":"remove","path":"` + args + `"}`), malformed, ""},
		{"a list of texts", ops(`["x"]`), malformed, ""},
		{"an unknown operation", ops(`[{"op":"merge","path":"` + args + `"}]`), invalid, ""},
		{"an operation in capitals", ops(`[{"OP":"remove","path":"` + args + `"}]`), invalid, ""},
		{"no path", ops(`[{"op":"remove"}]`), invalid, ""},
		{"a path that is a number", ops(`[{"op":"remove","path":1}]`), invalid, ""},
		{"no value", ops(`[{"op":"add","path":"` + args + `/x"}]`), invalid, ""},
		{"no from", ops(`[{"op":"move","path":"` + args + `/x"}]`), invalid, ""},
		{"too many", ops(`[` + strings.Repeat(`{"op":"remove","path":"`+args+`/x"},`, 128) + `{"op":"remove","path":"` + args + `/x"}]`), invalid, ""},

		{"the whole", ops(`[{"op":"replace","path":"","value":{}}]`), scope, ""},
		{"the root", ops(`[{"op":"replace","path":"/mcp_request","value":{}}]`), scope, ""},
		{"beside it", ops(`[{"op":"add","path":"/principal","value":{}}]`), scope, ""},
		{"one that begins like it", ops(`[{"op":"add","path":"/mcp_request2/x","value":{}}]`), scope, ""},
		{"an escape", ops(`[{"op":"add","path":"/principal\u002fsub","value":{}}]`), scope, ""},
		{"from beside it", ops(`[{"op":"copy","from":"/principal/sub","path":"` + args + `/x"}]`), scope, ""},
		{"from the whole", ops(`[{"op":"copy","from":"","path":"` + args + `/x"}]`), scope, ""},

		{"growth", ops(`[{"op":"add","path":"` + args + `/a","value":"` + strings.Repeat("x", 1000) + `"}` + strings.Repeat(`,{"op":"copy","from":"`+args+`","path":"`+args+`/b"}`, 100) + `]`), failed, ""},
	} {
		h := newHook(t, says(200, c.answer))
		for _, policy := range []v1beta1.FailurePolicy{v1beta1.FailClosed, v1beta1.FailIgnore} {
			want, message := c.want, c.message
			if policy == v1beta1.FailIgnore && strings.HasPrefix(want, "Internal") {
				want, message = "passed", call
			}
			s := newStage(t, mutating(spec("m", h.URL, policy)), nil)
			x := exchange(t, call)
			if got := s.outcome(t, x); got != want {
				t.Errorf("%s, %s: %s, want %s", c.what, policy, got, want)
			}
			if want == "passed" && string(x.Request.Raw) != message {
				t.Errorf("%s, %s: %.1000s\nwant %.1000s", c.what, policy, x.Request.Raw, message)
			}
		}
	}
}

// A message that is not changed keeps every byte of its space, too.
func TestSpaceStays(t *testing.T) {
	const spaced = "{\n \"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"tools/call\", \"params\": {\"name\": \"a\"} }\n"
	for _, ops := range []string{`[]`, `[{"op":"test","path":"/mcp_request/params/name","value":"a"}]`} {
		if after, err := webhook.Apply([]byte(ops), []byte(spaced)); err != nil || string(after) != spaced {
			t.Errorf("%s: %q, %v", ops, after, err)
		}
	}
}

// Whatever a patch holds, what comes of it is JSON or an error, and one without
// operations changes nothing.
func FuzzPatch(f *testing.F) {
	for _, op := range []string{"add", "replace", "remove", "test", "move", "copy"} {
		f.Add(`[{"op":"`+op+`","path":"/mcp_request/params/arguments/env","from":"/mcp_request/params/name","value":1}]`, `{"name":"a","arguments":{"env":[1,{"x":1e400}]}}`)
	}
	f.Add(`[{"op":"add","path":"/mcp_request/params/","value":{"a":null}},{"op":"test","path":"/mcp_request/params/","value":null}]`, `{"":null}`)
	f.Add(`[ ]`, `{ "a" : 1 }`)
	f.Add(`[{"op":"copy","from":"/mcp_request/params/l/0","path":"/mcp_request/params/l/-"}]`, `{"l":[{}]}`)
	f.Fuzz(func(t *testing.T, ops, params string) {
		text := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + params + `}`
		if _, err := mcp.Decode([]byte(text)); err != nil || mcp.Valid([]byte(ops)) != nil {
			return
		}
		after, err := webhook.Apply(bytes.TrimSpace([]byte(ops)), []byte(text))
		switch {
		case err != nil:
			if after != nil || strings.Contains(err.Error(), "panic") {
				t.Errorf("%s: %s, %v", ops, after, err)
			}
		case after == nil || mcp.Valid(after) != nil:
			t.Errorf("%s: %s is not JSON", ops, after)
		case string(after) != text && len(mcp.Elements([]byte(ops))) == 0:
			t.Errorf("%s changed %s to %s", ops, text, after)
		}
	})
}

func BenchmarkChange(b *testing.B) {
	h := newHook(b, says(200, patch(`[{"op":"replace","path":"/mcp_request/params/arguments/env","value":"dev"}]`)))
	s := newStage(b, mutating(spec("m", h.URL, v1beta1.FailClosed)), nil)
	b.ReportAllocs()
	for b.Loop() {
		if got := s.outcome(b, exchange(b, call)); got != "passed" {
			b.Fatal(got)
		}
	}
}
