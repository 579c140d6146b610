package starlark_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// lines is a log that keeps what is written.
type lines struct{ all *[]string }

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l lines) WithGroup(string) slog.Handler            { return l }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	*l.all = append(*l.all, strings.ToLower(r.Level.String())+": "+r.Message)
	return nil
}

// store is one that keeps texts, and fails for the key broken.
type store struct {
	edge.Store
	values map[string][]byte
}

func (s store) Get(_ context.Context, key string) ([]byte, error) {
	if strings.HasSuffix(key, "broken") {
		return nil, fmt.Errorf("it is broken")
	}
	return s.values[key], nil
}

func (s store) Put(_ context.Context, key string, value []byte, ttl time.Duration) error {
	s.values[key] = value
	return nil
}

func (s store) Update(_ context.Context, key string, ttl time.Duration, change func([]byte) ([]byte, error)) error {
	value, err := change(s.values[key])
	s.values[key] = value
	return err
}

// host is a binding that grants everything, and what was asked of it.
func host(said *[]string) wasm.Binding {
	note := func(format string, args ...any) { *said = append(*said, fmt.Sprintf(format, args...)) }
	return wasm.Binding{
		Grants: []string{abi.GrantRandom, abi.GrantKV, abi.GrantMetrics, abi.GrantKeys, abi.GrantHTTP, abi.GrantTools, abi.GrantEvents},
		Log:    slog.New(lines{said}), Store: store{values: map[string][]byte{}}, Keys: map[string]edge.Secret{"k": "secret"},
		Metric: func(name string, gauge bool, delta int64) { note("metric %s %v %d", name, gauge, delta) },
		Emit: func(_ context.Context, hook abi.Hook, name string, data []byte) int64 {
			note("event %v %s %s", hook, name, data)
			return 0
		},
		Fetch: func(_ context.Context, record []byte) ([]byte, int64) {
			r := abi.Reader{B: record}
			text := ""
			for r.Next() {
				text += fmt.Sprintf(" %d:%s%d", r.Num, r.Data, r.Uint)
			}
			note("fetch%s", text)
			if strings.Contains(text, "nowhere") {
				return nil, abi.ErrName
			}
			if strings.Contains(text, "large") {
				return make([]byte, 1<<20+1), 0
			}
			answer := abi.AppendUint(nil, abi.FetchedStatus, 201)
			answer = abi.AppendBytes(answer, abi.FetchedHeader, abi.AppendString(abi.AppendString(nil, abi.HeaderName, "x-a"), abi.HeaderValue, "1"))
			return abi.AppendString(answer, abi.FetchedBody, "body"), 0
		},
		Tool: func(_ context.Context, record []byte) ([]byte, int64) {
			r := abi.Reader{B: record}
			text := ""
			for r.Next() {
				text += " " + string(r.Data)
			}
			note("tool%s", text)
			if strings.Contains(text, "bad") {
				return abi.AppendString(nil, abi.ToolError, `{"code":-32602,"message":"no such\nargument"}`), 0
			}
			return abi.AppendString(nil, abi.ToolResult, `{"content":[{"type":"text","text":"it"}],"isError":false}`), 0
		},
	}
}

// TestHostFunctions calls each function of the host.
func TestHostFunctions(t *testing.T) {
	const sum = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
	for _, one := range []struct{ expr, want, said string }{
		{`debug("d")`, `None`, `debug: d`},
		{`[info("i"), warn("w"), error("e")]`, `[None, None, None]`, `info: i|warn: w|error: e`},
		{`print("p", 1, sep = "-")`, `None`, `info: p-1`},
		{`info("x" * 5000)`, `None`, `info: ` + strings.Repeat("x", 4096)},
		{`log_level()`, `0`, ``},
		{`[len(range(1000000)[::3]), "abc"[::-1], [1, 2, 3][::-2]]`, `[333334, "cba", [3, 1]]`, ``},
		{`now_millis() > 1700000000000`, `True`, ``},
		{`monotonic() <= monotonic()`, `True`, ``},
		{`[len(random(16)), random(8) != random(8), random(0)]`, `[32, True, ""]`, ``},
		{`attempt(lambda: random(4097))["error"]["message"]`, `"random: above the limit"`, ``},
		{`sha256("foo")`, `"` + sum + `"`, ``},
		{`sha256(b"foo")`, `"` + sum + `"`, ``},
		{`hmac("k", "foo")`, `"773ba44693c7553d6ee20f61ea5d2757a9a4f4a44d2841ae4e95b52e4cd62db4"`, ``},
		{`attempt(lambda: hmac("other", "foo"))["error"]`, `{"message": "hmac: not found", "tool": None, "code": -1, "data": None}`, ``},
		{`[kv_get("a"), kv_set("a", "v", 1000), kv_get("a"), kv_set("b", b"\x00", 1000)]`, `[None, None, "v", None]`, ``},
		{`[kv_add("n", 2, 1000), kv_add(key = "n", n = 3, ttl_ms = 1000)]`, `[2, 5]`, ``},
		{`kv_add("most", 9223372036854775807, 1000) + kv_add("most", 1, 1000)`, `18446744073709551614`, ``},
		{`[attempt(lambda: f())["error"]["message"] for f in (lambda: kv_get("broken"), lambda: kv_get(""), lambda: kv_get("x" * 257), lambda: kv_set("a", "v", 0), lambda: kv_set("a", "x" * 65537, 9), lambda: kv_add("a", -1, 9), lambda: kv_add("a", 1, 86400001))]`,
			`["kv_get: not available", "kv_get: bad argument", "kv_get: bad argument", "kv_set: bad argument", "kv_set: above the limit", "kv_add: bad argument", "kv_add: bad argument"]`, ``},
		{`[len([1 for i in range(1010) if attempt(lambda: kv_get("a"))["ok"]]), attempt(lambda: kv_add("a", 1, 9))["error"]["code"]]`, `[1000, -3]`, ``},
		{`[count("c"), count("c", 5), gauge("g", -3)]`, `[None, None, None]`, `metric c false 1|metric c false 5|metric g true -3`},
		{`attempt(lambda: count("Not a name"))["error"]["code"]`, `-4`, ``},
		{`emit("happened", {"n": [1]})`, `None`, `event on_call_request happened {"n":[1]}`},
		{`emit("happened")`, `None`, `event on_call_request happened `},
		{`[attempt(lambda: emit("a b"))["error"]["code"], attempt(lambda: emit("a", "x" * 5000))["error"]["code"]]`, `[-4, -3]`, ``},
		{`[(a.status, a.headers, a.body) for a in [fetch("http://h/", method = "PUT", headers = {"x": "y"}, body = "b", timeout_ms = 5)]]`, `[(201, {"x-a": "1"}, "body")]`,
			"fetch 1:PUT0 2:http://h/0 3:\n\x01x\x12\x01y0 4:b0 5:5"},
		{`attempt(lambda: fetch("http://nowhere/"))["error"]`, `{"message": "fetch: no such host", "tool": None, "code": -8, "data": None}`, `fetch 2:http://nowhere/0 4:0`},
		{`attempt(lambda: fetch("http://large/"))["error"]["code"]`, `-3`, `fetch 2:http://large/0 4:0`},
		{`attempt(lambda: fetch("http://h/", body = "x" * 262144))["error"]["code"]`, `-3`, ``},
		{`call_tool("t", {"a": 1})["content"][0]["text"]`, `"it"`, `tool t {"a":1}`},
		{`attempt(lambda: call_tool("bad"))["error"]`, `{"message": "tool \"bad\": no such argument", "tool": "bad", "code": -32602, "data": None}`, `tool bad {}`},
		{`len([1 for i in range(20) if attempt(lambda: call_tool("t"))["ok"]])`, `16`, strings.Repeat("|tool t {}", 16)[1:]},
		{`[P.match("a1"), P.match("ab"), P.find("a1b22é3"), P.replace("a1b22", "#"), P.replace("none", "#")]`, `[True, False, [(1, 2), (3, 5), (7, 8)], "a#b#", "none"]`, ``},
		{`json.encode({"a": math.floor(2.5)})`, `"{\"a\":2}"`, ``},
	} {
		var said []string
		g := open(t, host(&said), "P = pattern('[0-9]+')\nsubscribe('on_call_request', blocking = True)\ndef on_call_request(c):\n    return log_field('v', repr("+one.expr+"))")
		if got, err := ask(t, g, abi.OnCallRequest, &abi.Input{}); err != nil || got != "log_field name=v text="+one.want {
			t.Errorf("%s: %q, %v; want %s", one.expr, got, err, one.want)
		}
		if got := strings.Join(said, "|"); got != one.said {
			t.Errorf("%s: said %q, want %q", one.expr, got, one.said)
		}
	}
}

// slowStore answers when nobody waits any more.
type slowStore struct{ edge.Store }

func (slowStore) Get(ctx context.Context, _ string) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestStoreWait: one call waits for the store for so long in all.
func TestStoreWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		b := host(&said)
		b.Store = slowStore{}
		g := open(t, b, "def on_call_request(c):\n    return log_field('v', repr([attempt(lambda: kv_get('a'))['error']['code'] for i in range(10)]))")
		for range 2 { // each call has its own
			began := time.Now()
			got, err := ask(t, g, abi.OnCallRequest, &abi.Input{})
			if want := "log_field name=v text=[" + strings.Repeat(", -5", 10)[2:] + "]"; err != nil || got != want {
				t.Errorf("%q, %v; want %s", got, err, want)
			}
			if took := time.Since(began); took != wasm.StoreWait {
				t.Errorf("waited %v", took)
			}
		}
	})
}

// TestGrants: what is not granted keeps a program from starting, or, where it does without,
// is denied.
func TestGrants(t *testing.T) {
	for call, grant := range map[string]string{
		`random(1)`: "random", `hmac("k", "x")`: "keys", `kv_get("k")`: "kv", `kv_set("k", "v", 1)`: "kv", `kv_add("k", 1, 1)`: "kv", `count("c")`: "metrics",
		`gauge("g", 1)`: "metrics", `fetch("u")`: "http", `call_tool("t")`: "tools", `emit("e")`: "events",
	} {
		text := "subscribe('on_call_request', blocking = True)\ndef on_call_request(c):\n    return log_field('v', attempt(lambda: " + call + ")['error']['message'])"
		name, _, _ := strings.Cut(call, "(")
		if _, err := tryOpen(wasm.Binding{}, text); err == nil || err.Error() != fmt.Sprintf("guest \"f\": it calls %s, which needs the grant %q", name, grant) {
			t.Errorf("%s: %v", call, err)
		}
		g := open(t, wasm.Binding{Optional: []string{grant}}, text)
		if got, err := ask(t, g, abi.OnCallRequest, &abi.Input{}); err != nil || got != "log_field name=v text="+name+": not granted" {
			t.Errorf("%s: %q, %v", call, got, err)
		}
	}
}

// TestWaits: a function waits for others only where its subscription says so, and on_event
// emits nothing.
func TestWaits(t *testing.T) {
	var said []string
	for text, want := range map[string]string{
		"def on_call_request(c):\n    return fetch('http://h/').body":                       "f.star:2:17: fetch: it waits for others, which the subscription to on_call_request does not say: subscribe with blocking=True",
		"def on_upstream_request(c):\n    return fetch('http://h/')":                        "f.star:2:17: fetch: nothing waits for others at on_upstream_request: call it at another hook, such as on_call_request",
		"def on_call_request(c):\n    return call_tool('t')":                                "call_tool: it waits for others",
		"def on_event(c):\n    return emit('e')":                                            "emit: not granted",
		"def on_call_request(c):\n    return hmac('other', 'x')":                            "hmac: not found",
		"def on_call_request(c):\n    return fail('so', 1)":                                 "f.star:2:16: fail: so 1",
		"def on_call_request(c):\n    return P.match('a')\nP = pattern('a')":                "it returned bool",
		"def on_call_request(c):\n    return pattern('a')":                                  "pattern: only while the text runs for the first time",
		"def on_call_request(c):\n    return config_schema({})":                             "config_schema: only while the text runs for the first time",
		"def on_call_request(c):\n    return attempt(lambda: {}['x'])['error']":             `key "x" not in dict`,
		"def on_call_request(c):\n    c.tool = 'x'":                                         "can't assign to .tool field of input",
		"N = []\ndef on_call_request(c):\n    N.append(c.tool)":                             "f.star:3:13: append: cannot append to frozen list",
		"N = {}\ndef on_call_request(c):\n    N[c.tool] = 1":                                "cannot insert into frozen hash table",
		"def on_call_request(c):\n    config['n'] = 1":                                      "cannot insert into frozen hash table",
		"def f(c):\n    return f(c)\ndef on_call_request(c):\n    return f(c)":              "function f called recursively",
		"def on_call_request(c):\n    return json.decode('[' * 200000)":                     "json.decode: deeper than 100",
		"def on_call_request(c):\n    return int('9' * 100000)":                             "int: a text of more than 4096 digits",
		"def on_call_request(c):\n    return respond({'x': 'y' * 1048577})":                 "larger than 1048576 bytes",
		"def on_call_request(c):\n    return [set_arg('/a', 'y' * 600000)] * 3":             "an answer of more than 1048576 bytes, which is its limit",
		"def on_call_request(c):\n    return [hide(0)] * 70000":                             "more than 65536 operations",
		"def on_call_request(c):\n    a = []\n    a.append(a)\n    return set_arg('/a', a)": "deeper than 100",
	} {
		b := host(&said)
		b.Limits.Timeout = 10 * time.Second
		hook := abi.OnCallRequest
		switch {
		case strings.Contains(text, "on_event"):
			hook = abi.OnEvent
		case strings.Contains(text, "on_upstream_request"):
			hook = abi.OnUpstreamRequest
		}
		g, err := tryOpen(b, text)
		if err == nil {
			_, err = ask(t, g, hook, &abi.Input{Tool: []byte("t")})
			g.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
