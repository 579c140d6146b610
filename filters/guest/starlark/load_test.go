package starlark_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/filters/guest/starlark"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

const passes = "\ndef on_call_request(c):\n    return None\n"

// TestLoad: each mistake of a text is told with its place, before anything is asked.
func TestLoad(t *testing.T) {
	for _, one := range []struct{ text, want string }{
		{"", `f.star: it subscribes to nothing: define a function that is named as a hook, such as on_call_request`},
		{"x = 1", `it subscribes to nothing`},
		{"def on_call_requst(c):\n    pass", `f.star:1:5: there is no hook on_call_requst (did you mean on_call_request?), and nothing calls the function`},
		{"def on_anything_at_all(c):\n    pass", `f.star:1:5: there is no hook on_anything_at_all, and nothing calls the function: the hooks are on_http_request, authenticate`},
		{"def on_event(c):\n    return c.evnt", `f.star:2:14: the input has no field evnt (did you mean event?)`},
		{"def on_event(c):\n    deny(403)", `f.star:2:5: deny makes an operation, which is lost here: return it`},
		{"def on_event(c):\n    if c.event:\n        set_arg('/a', 1)", `f.star:3:9: set_arg makes an operation`},
		{"def on_event():\n    pass", `f.star:1:5: on_event takes one value, the input: def on_event(c):`},
		{"def on_event(c, d):\n    pass", `f.star:1:5: on_event takes one value`},
		{"def on_event(c, *, d):\n    pass", `f.star:1:5: on_event takes one value`},
		{"on_event = 3", `f.star: on_event is int, not a function`},
		{"def on_event(c):\n    return frob(1)", `f.star:2:12: undefined: frob`},
		{"def on_event(c):\n    return list_tools()", `f.star:2:12: undefined: list_tools`},
		{"def on_event(c):\n    return parallel([])", `f.star:2:12: undefined: parallel`},
		{"def on_event(c):\n  return (", `f.star:2:11: got newline, want primary expression`},
		{"load('x', 'y')", `f.star:1:1: load is not available`},
		{"return 1", `f.star:1:1: return statement not within a function`},
		{"x = 1\nx = 2" + passes, `f.star:2:1: cannot reassign global x declared at f.star:1:1`},
		{"x = 1 // 0" + passes, `f.star:1:7: floored division by zero`},
		{"x = deny(404, 5)" + passes, `f.star:1:9: deny: text: got int, want str`},
		{"kv_get('k')" + passes, `f.star:1:7: kv_get: not while the text runs for the first time: call it in a function for a hook`},
		{"x = now_millis()" + passes, `now_millis: not while the text runs`},
		{"config['a'] = 1" + passes, `f.star:1:7: cannot insert into frozen hash table`},
		{"config_schema({'required': ['a']})" + passes, `f.star:1:14: config_schema: refused {"required":["a"]}`},
		{"x = [0] * 100000000" + passes, `f.star:1:9: a value of more than 1000000 elements`},
		{"x = [[i] * 1000 for i in range(100000)]" + passes, `needs more than 64 MiB`},
		{"while True:\n    pass" + passes, `too many steps (10000000)`},
		{"def f(n):\n    return f(n)\nf(1)" + passes, `function f called recursively`},
		{"subscribe('on_call')" + passes, `f.star:1:10: subscribe: there is no hook "on_call"`},
		{"subscribe('on_call_requests')" + passes, `(did you mean on_call_request?)`},
		{"subscribe('on_event')" + passes, `f.star:1:10: subscribe: there is no function on_event`},
		{"subscribe('on_call_request', tool=['a'])" + passes, `subscribe: unexpected keyword argument "tool" (did you mean tools?)`},
		{"subscribe('on_call_request', tools='a')" + passes, `subscribe: tools: got string, want a list of str`},
		{"subscribe('on_call_request', tools=[1])" + passes, `subscribe: tools: got int in the list, want str`},
		{"subscribe('on_call_request', fields=['tol'])" + passes, `subscribe: fields: the input has no tol (did you mean tool?)`},
		{"subscribe('on_call_request', pointers=['a'])" + passes, `subscribe: "a" is no JSON pointer`},
		{"subscribe('on_call_request', varies_by='all')" + passes, `subscribe: varies_by: "all" is none of tenant, groups and subject`},
		{"subscribe('on_call_request', cache_ms=5)" + passes, `subscribe: answers of on_call_request are not kept`},
		{"subscribe('on_call_request', cache_ms=-5)" + passes, `subscribe: inline_limit and cache_ms are numbers of 0 or more`},
		{"subscribe('on_call_request', hold=True)" + passes, `on_call_request is not asked about answers`},
		{"subscribe('on_http_request', blocking=True)\ndef on_http_request(c):\n    pass", `on_http_request is no hook at which anything may be waited for`},
		{"for i in range(300):\n    subscribe('on_call_request')" + passes, `subscribe: more than 256 subscriptions`},
		{"pattern('(')" + passes, "f.star:1:8: pattern: error parsing regexp: missing closing ): `(`"},
		{"for i in range(65):\n    pattern('a')" + passes, `pattern: more than 64 patterns`},
		{"\x00", `f.star:1:1: a NUL character`},
		{"\xff", `f.star:1:1: the text is not UTF-8`},
		{strings.Repeat("#", 64<<10+1), `f.star: longer than 65536 bytes`},
	} {
		g, err := tryOpenWith(one.text, func(schema []byte) error { return fmt.Errorf("refused %s", schema) })
		if err == nil {
			g.Close()
		}
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%.60q: %v; want %q", one.text, err, one.want)
		}
		var faults starlark.Faults
		if err != nil && !errors.As(err, &faults) {
			t.Errorf("%.60q: %T", one.text, err)
		}
	}
}

// TestLoadTellsAll: what can be seen without running is told at once.
func TestLoadTellsAll(t *testing.T) {
	_, err := tryOpen(wasm.Binding{}, "def on_evnt(c):\n    pass\ndef on_event(c):\n    deny(403)\n    return c.tols\ndef on_message(a, b):\n    return unknown")
	if err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("got %v", err)
	}
}

// TestHelpers: a function may have any name when something calls it, and a hook may be made
// in other ways than by def.
func TestHelpers(t *testing.T) {
	for _, text := range []string{
		"def on_call_requst(c):\n    return None\ndef on_call_request(c):\n    return on_call_requst(c)",
		"def helper(c):\n    return None\non_call_request = helper",
		"on_call_request = lambda c: None",
		"if config.get('a'):\n    def on_call_request(c):\n        return None\nelse:\n    on_event = lambda c: None",
		"def on_call_request(c, more = None):\n    return None",
		"def on_call_request(*args):\n    return None",
	} {
		if g, err := tryOpen(wasm.Binding{}, text); err != nil {
			if !strings.Contains(err.Error(), "takes one value") || !strings.Contains(text, "*args") {
				t.Errorf("%q: %v", text, err)
			}
		} else {
			g.Close()
		}
	}
}

// TestSubscriptions: a subscription has what the text says, and a function without one is
// asked about everything.
func TestSubscriptions(t *testing.T) {
	g := open(t, wasm.Binding{}, `
subscribe("outgoing_auth", backends = ["b*"], varies_by = "groups", cache_ms = 60000)
subscribe("on_call_response", hold = True)
subscribe("on_call_request", tools = ["a", "b*"], pointers = ["/x", ""], headers = ["X-A"], fields = ["tool", "args"], blocking = True, inline_limit = 100)
subscribe("on_call_request", tools = ("c",), claims = ["/d"])

def on_question(c):
    return None
def on_call_response(c):
    return None
def outgoing_auth(c):
    return None
def on_call_request(c):
    return None
def on_message(c):
    return deny(403, c.method)
`)
	want := []wasm.Subscription{
		{Hook: abi.OnCallRequest, Tools: []string{"a", "b*"}, Pointers: []string{"/x", ""}, Headers: []string{"x-a"}, Fields: 1<<abi.CallTool | 1<<abi.CallArguments, Blocking: true, InlineLimit: 100},
		{Hook: abi.OnCallRequest, Tools: []string{"c"}, Claims: []string{"/d"}},
		{Hook: abi.OutgoingAuth, Backends: []string{"b*"}, VariesBy: abi.VariesByGroups, Cache: time.Minute},
		{Hook: abi.OnCallResponse, Hold: true},
		{Hook: abi.OnMessage},
		{Hook: abi.OnQuestion},
	}
	if got := g.Subscriptions(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestConfig: the configuration is there, frozen, and held to the schema that the text declares.
func TestConfig(t *testing.T) {
	g := open(t, wasm.Binding{Config: []byte(`{"groups":["a"],"most":3}`)}, `
MOST = config["most"] * 2
def on_message(c):
    return log_field("v", repr((config, MOST)))
`)
	if got, err := ask(t, g, abi.OnMessage, &abi.Input{}); err != nil || got != `log_field name=v text=({"groups": ["a"], "most": 3}, 6)` {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := tryOpenWith("config_schema({})"+passes, func([]byte) error { return errors.New("no") })
	var faults starlark.Faults
	if !errors.As(err, &faults) || !faults[0].Config {
		t.Errorf("got %v", err)
	}
	g, err = tryOpenWith("config_schema({'type': 'object'})"+passes, func([]byte) error { return nil })
	if err != nil || string(g.Schema()) != `{"type":"object"}` {
		t.Errorf("got %v", err)
	}
}
