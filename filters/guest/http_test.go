package guest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestHTTPRequest has programs change the header lines of requests before
// anything is known of who sends them: what backends and later programs see is
// what they made of it, for POST, GET and DELETE.
func TestHTTPRequest(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		first := filter{name: "first", rules: []string{
			"sub|on_http_request|header=x-a,x-c",
			"on_http_request|*|set_header|x-tenant|of-$header:x-a",
			"on_http_request|*|del_header|x-debug",
			"on_http_request|*|set_header|x-b|$method$path",
			`on_http_request|*|set_attr|seen|"$path"`,
		}}
		second := filter{name: "second", rules: []string{
			"sub|on_http_request|header=x-b,x-tenant",
			"on_http_request|header:x-tenant~of-evil|deny|1|not you",
			"sub|on_call_request|header=x-b,x-a",
			`on_call_request|*|set_arg|/seen|"$header:x-a $header:x-b"`,
		}}
		back := edgetest.NewServer(t, of)
		e := start(t, manifest(t, backs{"back": back}, []filter{first, second}, "passthroughHeaders: [X-Tenant, X-Debug, X-B]"))
		c := newClient(e, era)
		got := text(t, c.call(t, "echo", "{}", "X-A", "one", "X-Debug", "1", "X_Debug", "2", "X-Tenant", "acme", "X-B", "mine"))
		if seen := edgetest.Member(got, "seen"); seen != `"one POST/mcp"` {
			t.Errorf("the next program saw %s", seen)
		}
		h := back.Await("tools/call", 1).Header
		if h.Get("X-Tenant") != "of-one" || h.Get("X-B") != "POST/mcp" || h.Get("X-Debug") != "" || h.Get("X_debug") != "" || len(h.Values("X-Tenant")) != 1 {
			t.Errorf("the backend got %v", h)
		}
		r := c.call(t, "echo", "{}", "X-A", "evil")
		if r.Status != 401 || !strings.Contains(string(r.Body), "not you") || back.Count("tools/call") != 1 {
			t.Errorf("denied: %d %s", r.Status, r.Body)
		}
		if era == edgetest.Modern {
			return
		}
		if r := c.Do("GET", "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", c.Session.ID, "X-A", "evil"); r.Status != 401 {
			t.Errorf("a stream: %d %s", r.Status, r.Body)
		}
		if r := c.Do("DELETE", "/mcp", "", "Mcp-Session-Id", c.Session.ID, "X-A", "evil"); r.Status != 401 {
			t.Errorf("the end of a session: %d %s", r.Status, r.Body)
		}
		if text(t, c.call(t, "echo", "{}")); c.Session.Delete().Status != 200 {
			t.Error("the session does not end")
		}
	})
}

// TestHTTPRequestAnswers has a program answer requests of anybody, also where
// clients have to prove who they are.
func TestHTTPRequestAnswers(t *testing.T) {
	t.Parallel()
	back, m := edgetest.NewServer(t, edgetest.Modern), edgetest.NewMint(t, "weir")
	f := filter{name: "f", rules: []string{
		"sub|on_http_request|header=x-a",
		`on_http_request|header:x-a=now|respond|{"content":[{"type":"text","text":"at hand"}]}`,
		"on_http_request|header:x-a=invalid|deny|2|no such thing",
		"on_http_request|header:x-a=slow|deny|3|later",
		"on_http_request|header:x-a=gone|deny|4|not here",
	}}
	c := newClient(guarded(t, m, manifest(t, backs{"back": back}, []filter{f})), edgetest.Modern)
	if r := c.call(t, "echo", "{}"); r.Status != 401 {
		t.Fatalf("a stranger: %d %s", r.Status, r.Body)
	}
	if got := text(t, c.call(t, "echo", "{}", "X-A", "now")); got != "at hand" {
		t.Errorf("the answer: %s", got)
	}
	if r := c.Do("GET", "/mcp", "", "X-A", "now"); r.Status != 200 || string(r.Body) != `{"content":[{"type":"text","text":"at hand"}]}` || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("without a message: %d %s", r.Status, r.Body)
	}
	if r := c.Post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "X-A", "now"); r.Status != 202 || len(r.Body) > 0 {
		t.Errorf("a notification: %d %s", r.Status, r.Body)
	}
	for word, status := range map[string]int{"invalid": 400, "slow": 429, "gone": 400} {
		if r := c.call(t, "echo", "{}", "X-A", word); r.Status != status {
			t.Errorf("%s: %d %s", word, r.Status, r.Body)
		}
	}
	if r := c.Do("OPTIONS", "/mcp", "", "X-A", "slow"); r.Status != 204 {
		t.Errorf("what a browser asks beforehand: %d", r.Status)
	}
	if n := back.Count("tools/call"); n != 0 {
		t.Errorf("%d calls went out", n)
	}
}

// TestHTTPResponse has programs change the header lines of every kind of answer,
// in the reverse order.
func TestHTTPResponse(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	first := filter{name: "first", rules: []string{
		"sub|on_http_response|header=x-a",
		"on_http_response|*|set_header|x-seen|$status $method $path $header:x-a",
		"on_http_response|*|del_header|x-second",
		"on_http_response|status=503|set_header|retry-after|77",
	}}
	second := filter{name: "second", rules: []string{
		"on_http_response|*|set_header|x-seen|by the second",
		"on_http_response|*|set_header|x-second|2",
		"on_http_response|*|set_header|x-both|2",
	}}
	e := start(t, manifest(t, backs{"back": back}, []filter{first, second}))
	looks := func(what string, r *edgetest.Response, want string) {
		t.Helper()
		if h := r.Header; h.Get("X-Seen") != want || h.Get("X-Second") != "" || h.Get("X-Both") != "2" || len(h.Values("X-Both")) != 1 {
			t.Errorf("%s: %v, want %q", what, h, want)
		}
	}
	modern, legacy := newClient(e, edgetest.Modern), newClient(e, edgetest.Legacy)
	looks("an answer", modern.call(t, "echo", "{}", "X-A", "one"), "200 POST /mcp one")
	looks("an error", modern.request(t, "nothing/such", ""), "404 POST /mcp")
	large := strings.Repeat("x", 40<<10)
	if r := modern.call(t, "echo", `{"text":"`+large+`"}`); !strings.Contains(string(r.Body), large) {
		t.Error("a large answer is not whole")
	} else {
		looks("a large answer", r, "200 POST /mcp")
	}
	looks("what is refused", legacy.Do("POST", "/mcp?x=1", "{}", "Content-Type", "text/plain"), "415 POST /mcp")
	looks("a stream", legacy.Session.Listen(), "200 GET /mcp")
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Notify("notifications/message", `{"level":"error","data":"early"}`)
		c.Result(`{"content":[]}`)
	})
	r := legacy.call(t, "echo", "{}")
	if r.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the answer is no stream: %v", r.Header)
	}
	looks("a call that streams", r, "200 POST /mcp")
	looks("the end of a session", legacy.Do("DELETE", "/mcp", "", "Mcp-Session-Id", legacy.Session.ID), "200 DELETE /mcp")
	old := e.NewClient().Do("GET", "/sse", "", "Accept", "text/event-stream")
	looks("the older transport", old, "200 GET /sse")
}

// TestW08HTTPHooks holds what programs may do to header lines: no line break gets
// into one, none that frames a message, says who sends it, holds a credential or is
// the edge's own is touched, and there is a bound to how many they may be. Whoever
// tries has failed, and nothing of it is done.
func TestW08HTTPHooks(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	for hook, names := range map[string][]string{
		"on_http_request": {"Host", "Content-Length", "Transfer-Encoding", "Connection", "TE", "Mcp-Session-Id", "MCP_Session_Id", "Mcp-Method", "Content-Type", "Accept",
			"Authorization", "Cookie", "Proxy-Authorization", "X-Forwarded-For", "Forwarded", "Origin", "Last-Event-ID", "bad name", "x:y"},
		"on_http_response": {"Content-Length", "Transfer-Encoding", "Connection", "Mcp-Session-Id", "Content-Type", "Authorization", "Set-Cookie", "Set_Cookie", "WWW-Authenticate",
			"Access-Control-Allow-Origin", "Access_Control_Allow_Origin", "Vary", "Cache-Control", "Location", "Allow", "bad name"},
	} {
		var rules []string
		sub := "sub|" + hook + "|header=x-a"
		for _, name := range names {
			rules = append(rules, hook+"|header:x-a=set "+name+"|set_header|x-first|1", hook+"|header:x-a=set "+name+"|set_header|"+name+"|evil", hook+"|header:x-a=del "+name+"|del_header|"+name)
		}
		rules = append(rules, sub, hook+"|header:x-a=nameless|set_header||evil",
			hook+"|header:x-a=many|set_headers|100000|x-|1", hook+"|header:x-a=more|set_headers|65|x-|1", hook+"|header:x-a=most|set_headers|64|x-|1",
			hook+"|header:x-a=long|set_header|x-long|"+strings.Repeat("x", 8<<10+1), hook+"|header:x-a=heavy|set_headers|5|x-|"+strings.Repeat("x", 8<<10),
			hook+"|header:x-a=smuggle|smuggle|x-b|a", hook+"|header:x-a=trap|trap", hook+"|header:x-a=bad|bad", hook+"|header:x-a=rename|hide",
		)
		for _, mode := range []string{"deny", "continue"} {
			e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules, more: "onError: " + mode}}))
			c := newClient(e, edgetest.Modern)
			ok := func(word string) {
				t.Helper()
				if r := c.call(t, "echo", "{}", "X-A", word); r.Status != 200 {
					t.Errorf("%s, %s, %s: %d %s", hook, mode, word, r.Status, r.Body)
				}
			}
			bad := func(word string) {
				t.Helper()
				ok("most") // a success in between keeps it asked
				r := c.call(t, "echo", "{}", "X-A", word)
				if want := map[string]int{"deny": 503, "continue": 200}[mode]; r.Status != want {
					t.Errorf("%s, %s, %q: %d %s, want %d", hook, mode, word, r.Status, r.Body, want)
				}
				if h := r.Header; h.Get("X-Smuggled")+h.Get("X-First")+h.Get("X-0")+h.Get("X-B")+h.Get("X-Long") != "" || strings.Contains(fmt.Sprint(h), "evil") {
					t.Errorf("%s, %s, %q: something was done: %v", hook, mode, word, h)
				}
			}
			for _, word := range []string{"nameless", "many", "more", "long", "heavy", "smuggle", "trap", "bad", "rename"} {
				bad(word)
			}
			for _, name := range names {
				bad("set " + name)
				bad("del " + name)
			}
		}
	}
	for _, r := range back.Requests("tools/call") {
		if strings.Contains(fmt.Sprint(r.Header), "evil") || r.Header.Get("X-Smuggled") != "" {
			t.Errorf("a backend got %v", r.Header)
		}
	}
}

// TestHTTPResponseFails has a program fail on answers of every kind: by onError they
// are 503 or go out as they are, and a call that would have streamed is answered whole.
func TestHTTPResponseFails(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Notify("notifications/message", `{"level":"error","data":"early"}`)
		c.Result(`{"content":[]}`)
	})
	rules := []string{
		"sub|on_http_response|header=x-a", "on_http_response|header:x-a=trap|trap",
		"on_http_response|header:x-a=trap|set_header|x-b|1",
	}
	for mode, status := range map[string]int{"onError: deny": 503, "onError: continue": 200, "mode: observe": 200} {
		e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules, more: mode}}))
		c := newClient(e, edgetest.Legacy)
		for what, do := range map[string]func() *edgetest.Response{
			"a call":           func() *edgetest.Response { return c.call(t, "echo", "{}", "X-A", "trap") },
			"a call that ends": func() *edgetest.Response { return c.request(t, "ping", "", "X-A", "trap") },
			"a stream": func() *edgetest.Response {
				return e.NewClient().Do("GET", "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", c.Session.ID, "X-A", "trap")
			},
		} {
			if r := do(); r.Status != status || r.Header.Get("X-B") != "" || status == 503 && !strings.Contains(string(r.Body), "not available") {
				t.Errorf("%s: %s: %d %v %s", mode, what, r.Status, r.Header, r.Body)
			}
			c.request(t, "ping", "") // which works, so that the program goes on being asked
		}
	}
}

// TestHTTPHooksOlder asks programs about the older transport, too.
func TestHTTPHooksOlder(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	f := filter{name: "f", rules: []string{
		"sub|on_http_request|header=x-a",
		"on_http_request|header:x-a=no|deny|0|not by $path",
		`on_http_request|header:x-a=now|respond|{"at":"hand"}`,
		"on_http_response|*|set_header|x-seen|$status $path",
	}}
	e := start(t, manifest(t, backs{"back": back}, []filter{f}))
	c := e.NewClient()
	if r := c.Do("GET", "/sse", "", "Accept", "text/event-stream", "X-A", "no"); r.Status != 403 || !strings.Contains(string(r.Body), "not by /sse") || r.Header.Get("X-Seen") != "403 /sse" {
		t.Errorf("the stream: %d %s %v", r.Status, r.Body, r.Header)
	}
	post := func(word string) *edgetest.Response {
		return c.Do("POST", "/messages?sessionId=x", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Content-Type", "application/json", "X-A", word)
	}
	if r := post("no"); r.Status != 403 || !strings.Contains(string(r.Body), "not by /messages") {
		t.Errorf("a message: %d %s", r.Status, r.Body)
	}
	if r := post("now"); r.Status != 200 || string(r.Body) != `{"at":"hand"}` || r.Header.Get("X-Seen") != "200 /messages" {
		t.Errorf("a message that is answered: %d %s", r.Status, r.Body)
	}
	if r := post(""); r.Status != 404 {
		t.Errorf("a message of no session: %d %s", r.Status, r.Body)
	}
	old := e.NewClient().OpenSSE()
	if old == nil {
		t.Fatal("the older transport does not work")
	}
}

// TestZ38OneHeaderOfTwoFilters has two filters set one header: the last counts, and
// the log says so once for these two, and not where they agree or one alone sets it.
func TestZ38OneHeaderOfTwoFilters(t *testing.T) {
	t.Parallel()
	const note = "two filters set one header, and the last one counts"
	for _, hook := range []string{"on_call_request", "on_upstream_request", "on_http_request", "on_http_response"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Modern)
			set := func(lines ...string) (rules []string) {
				for _, line := range lines {
					rules = append(rules, hook+"|*|set_header|"+line)
				}
				return rules
			}
			one := filter{name: "one", rules: set("x-team|a", "x-same|s", "x-own|1", "x-own|2")}
			two := filter{name: "two", rules: set("X-Team|b", "x-same|s", "x-other|o")}
			e := start(t, manifest(t, backs{"back": back}, []filter{one, two}))
			for range 3 {
				if r := newClient(e, edgetest.Modern).call(t, "echo", "{}"); r.Status != 200 {
					t.Fatalf("status %d", r.Status)
				}
			}
			if n := strings.Count(e.Log(), note); n != 1 {
				t.Errorf("%d notes: %s", n, e.Log())
			}
			first, last := "one", "two"
			if hook == "on_http_response" { // which is in the reverse order
				first, last = last, first
			}
			if !strings.Contains(e.Log(), "hook="+hook) || !strings.Contains(e.Log(), "first="+first+" last="+last) || !strings.Contains(strings.ToLower(e.Log()), "header=x-team") {
				t.Errorf("the note: %s", e.Log())
			}
		})
	}
}

// TestHTTPRequestOfAnOlderClient: a program may change the lines of a GET /sse as of any request.
func TestHTTPRequestOfAnOlderClient(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	f := filter{name: "f", rules: []string{"sub|on_http_request|header=x-a", "on_http_request|*|set_header|x-b|one"}}
	start(t, manifest(t, backs{"back": back}, []filter{f})).NewClient().OpenSSE().Initialize("")
}

// TestMirroredArguments: a program that changes an argument which a header mirrors has the header
// changed, too, and the call passes.
func TestMirroredArguments(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era, func(s *edgetest.Server) {
				s.Tools = `[{"name":"echo","inputSchema":{"type":"object","properties":{"env":{"type":"string","x-mcp-header":"Env"}}}}]`
			})
			if era == edgetest.Modern {
				back.Always("tools/call", func(c *edgetest.Call) {
					if in := c.Request.Header.Get("Mcp-Param-Env"); `"`+in+`"` != edgetest.Member(string(c.Message.Params), "arguments", "env") {
						c.Error(400, -32020, "header Mcp-Param-Env does not match the body")
						return
					}
					c.Result(`{"resultType":"complete","content":[{"type":"text","text":"done"}]}`)
				})
			}
			f := filter{name: "f", rules: []string{`on_call_request|*|set_arg|/env|"dev"`}}
			c := newClient(start(t, manifest(t, backs{"back": back}, []filter{f})), edgetest.Modern)
			c.Modern("1", "tools/list", "{}").Result() // from where the edge knows the header, too
			if r := c.call(t, "echo", `{"env":"prod"}`, "Mcp-Param-Env", "prod"); r.Status != 200 {
				t.Errorf("status %d: %s", r.Status, r.Body)
			}
			if got := edgetest.Member(string(back.Requests("tools/call")[back.Count("tools/call")-1].Message.Params), "arguments", "env"); got != `"dev"` {
				t.Errorf("the argument is %s", got)
			}
		})
	}
}
