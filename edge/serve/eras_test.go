package serve_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// every is a method with params and the result that a legacy server gives.
var every = []struct {
	method, params, result string
	cacheable              bool
}{
	{"tools/call", `{"name":"echo","arguments":{"a":1}}`, `{"content":[{"type":"text","text":"hi"}],"isError":false}`, false},
	{"tools/list", `{"cursor":""}`, `{"tools":[{"name":"echo","inputSchema":{"type":"object","x-own":1}}],"nextCursor":""}`, true},
	{"tools/list", ``, `{"tools":[]}`, true},
	{"prompts/list", ``, `{"prompts":[{"name":"p"}],"nextCursor":"é=="}`, true},
	{"prompts/get", `{"name":"p","arguments":{"x":"y"}}`, `{"messages":[]}`, false},
	{"resources/list", `{"cursor":"é=="}`, `{"resources":[{"uri":"a:b","name":"n"}]}`, true},
	{"resources/templates/list", `{}`, `{"resourceTemplates":[]}`, true},
	{"resources/read", `{"uri":"file:///ä b"}`, `{"contents":[{"uri":"file:///ä b","text":"t"}]}`, true},
	{"completion/complete", `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"},"context":{}}`, `{"completion":{"values":["x"]}}`, false},
	{"vendor/method", `{"any":["thing"]}`, `{"other":1}`, false},
}

// Every method that both eras have works for every client with every backend.
func TestEveryMethodInEveryCell(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		for i, one := range every {
			added := `"resultType":"complete",`
			if one.cacheable {
				added += `"ttlMs":0,"cacheScope":"private",`
			}
			sent := one.result
			if f.back.Era == edgetest.Modern {
				sent = `{` + added + one.result[1:]
			}
			f.back.Once(one.method, func(c *edgetest.Call) { c.Result(sent) })
			r := c.request(t, fmt.Sprint(i), one.method, one.params)
			want := one.result
			if c.era() == edgetest.Modern {
				want = `{` + added + one.result[1:]
			}
			if got := r.Result(); r.Status != 200 || got != want {
				t.Errorf("%s: status %d: %s, want %s", one.method, r.Status, got, want)
			}
			if got := string(r.Message().ID); got != fmt.Sprint(i) {
				t.Errorf("%s: id %s", one.method, got)
			}
			last := f.back.Requests(one.method)
			params := last[len(last)-1].Message.Params
			if c.era() == f.back.Era && c.era() == edgetest.Legacy && string(params) != one.params {
				t.Errorf("%s: params %s", one.method, params)
			}
			if one.params != "" {
				same(t, one.method, without(members(t, string(params)), "_meta"), members(t, one.params))
			}
		}
	})
}

// Errors of the backend reach the client in the words of its own era.
func TestErrorsInEveryCell(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		for _, one := range []struct {
			name           string
			status         int // of a modern backend's answer
			code           int
			data           string
			legacy, modern int // code for the client
			under          int // status for a modern client
			only           string
		}{
			{"unknown tool", 400, -32602, `{"name":"x"}`, -32602, -32602, 400, ""},
			{"unknown resource, legacy", 200, -32002, `{"uri":"a:b"}`, -32002, -32602, 400, "legacy"},
			{"unknown resource, modern", 400, -32602, `{"uri":"a:b"}`, -32602, -32602, 400, "modern"},
			{"internal", 200, -32603, `[1.0]`, -32603, -32603, 200, ""},
			{"own code", 200, 12345, `"é"`, 12345, 12345, 200, ""},
			{"lacking capability", 400, -32021, `{"requiredCapabilities":{"sampling":{}}}`, -32600, -32021, 400, "modern"},
		} {
			if one.only != "" && (one.only == "modern") != (f.back.Era == edgetest.Modern) {
				continue
			}
			status := one.status
			if f.back.Era != edgetest.Modern {
				status = 200
			}
			f.back.Once("tools/call", func(c *edgetest.Call) {
				c.JSON(status, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"né","data":%s,"x":1}}`, c.ID(), one.code, one.data))
				if f.back.Era == edgetest.SSE {
					c.Event(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"né","data":%s,"x":1}}`, c.ID(), one.code, one.data))
				}
			})
			r := c.call(t, `"e"`, "{}")
			code, under := one.legacy, 200
			if c.era() == edgetest.Modern {
				code, under = one.modern, one.under
			}
			m := fails(t, r, under, code, `"e"`)
			if m.Error.Message != "né" || string(m.Error.Data) != one.data || !strings.Contains(string(r.Answer()), `"x":1`) {
				t.Errorf("%s: %s", one.name, r.Answer())
			}
		}
	})
}

// A legacy backend that refuses with HTTP 400 and names no id means the
// request all the same.
func TestErrorsWithoutAnID(t *testing.T) {
	t.Parallel()
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		f := newFront(t, edgetest.Legacy)
		c := f.callerOf(t, client, "")
		for _, text := range []string{`{"jsonrpc":"2.0","id":null,"error":{"code":7,"message":"seven"}}`, `{"jsonrpc":"2.0","error":{"code":7,"message":"seven"}}`} {
			f.back.Once("tools/call", func(c *edgetest.Call) { c.JSON(200, text) })
			fails(t, c.call(t, `"e"`, "{}"), 200, 7, `"e"`)
			f.back.Once("tools/call", func(c *edgetest.Call) { c.Whole(text) })
			fails(t, c.call(t, `"e"`, "{}"), 200, 7, `"e"`)
			f.back.Once("tools/call", func(c *edgetest.Call) { c.JSON(400, text) })
			m := edgetest.Parse(t, c.call(t, `"e"`, "{}").Answer())
			if m.Error == nil || m.Error.Code != 7 || string(m.ID) != `"e"` {
				t.Errorf("%s, %s: %+v", client, text, m)
			}
		}
	}
}

// What is no answer to the request is a fault of the backend.
func TestNonsenseOfTheBackend(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	m := newFront(t, edgetest.Modern)
	l, n := f.callerOf(t, edgetest.Legacy, ""), m.callerOf(t, edgetest.Modern, "")
	for _, c := range []struct {
		name   string
		script edgetest.Script
	}{
		{"no JSON", func(c *edgetest.Call) { c.JSON(200, `hello`) }},
		{"cut JSON", func(c *edgetest.Call) { c.JSON(200, `{"jsonrpc":"2.0","id":1,"result":{`) }},
		{"duplicate names", func(c *edgetest.Call) { c.JSON(200, `{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`) }},
		{"empty body", func(c *edgetest.Call) { c.JSON(200, ``) }},
		{"accepted", func(c *edgetest.Call) { c.Accept() }},
		{"another id", func(c *edgetest.Call) { c.JSON(200, `{"jsonrpc":"2.0","id":2,"result":{}}`) }},
		{"id of another type", func(c *edgetest.Call) { c.JSON(200, `{"jsonrpc":"2.0","id":"1","result":{}}`) }},
		{"no id", func(c *edgetest.Call) { c.JSON(200, `{"jsonrpc":"2.0","result":{}}`) }},
		{"a request", func(c *edgetest.Call) { c.JSON(200, `{"jsonrpc":"2.0","id":1,"method":"ping"}`) }},
		{"another version of JSON-RPC", func(c *edgetest.Call) { c.JSON(200, `{"jsonrpc":"1.0","id":1,"result":{}}`) }},
		{"HTML", func(c *edgetest.Call) { c.Text(200, "text/html", `<html></html>`) }},
		{"a stream with garbage", func(c *edgetest.Call) { c.Raw("data: hello\n\n") }},
		{"a stream without an answer", func(c *edgetest.Call) { c.Raw("data: {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}\n\n") }},
		{"an empty stream", func(c *edgetest.Call) { c.Raw(":\n\n") }},
		{"half an event", func(c *edgetest.Call) { c.Raw("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n") }},
		{"a body shorter than it says", func(c *edgetest.Call) {
			c.Bytes("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}")
		}},
		{"a broken chunk", func(c *edgetest.Call) {
			c.Bytes("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}")
		}},
		{"no HTTP", func(c *edgetest.Call) { c.Bytes("hello\r\n\r\n") }},
		{"an endless header", func(c *edgetest.Call) {
			c.Bytes("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n")
		}},
		{"a redirect", func(c *edgetest.Call) { c.Header().Set("Location", "/other"); c.Text(307, "", "") }},
	} {
		f.back.Once("tools/call", c.script)
		m.back.Once("tools/call", c.script)
		t.Run(c.name, func(t *testing.T) {
			fails(t, l.call(t, "1", "{}"), 200, 502, "1")
			fails(t, n.call(t, "1", "{}"), 502, 502, "1")
		})
	}
	for _, one := range []*front{f, m} {
		if got := one.back.Count("tools/call"); got != 20 {
			t.Errorf("%d calls for 20", got)
		}
	}
	if r := l.call(t, "1", "{}"); r.Status != 200 || r.Message().Error != nil {
		t.Errorf("afterwards: %s", r.Answer())
	}
}

// Progress goes to the client under the token that it chose, whatever the
// backend knows it as.
func TestProgressInEveryCell(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		f.back.Always("tools/call", func(c *edgetest.Call) {
			c.Progress(1)
			c.Progress(2)
			c.Notify("notifications/progress", `{"progressToken":"nobody's","progress":9}`)
			c.Result(`{"resultType":"complete","content":[]}`)
		})
		for _, token := range []string{`"tok\u0065n"`, `7`, `9007199254740993`, `""`} {
			all := c.call(t, "1", "{}", `"progressToken":`+token).Rest()
			if len(all) != 3 {
				t.Fatalf("%d events: %s", len(all), all)
			}
			for i, e := range all[:2] {
				if want := fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, token, i+1); string(edgetest.Parse(t, e.Data).Params) != want {
					t.Errorf("%s, want %s", e.Data, want)
				}
			}
			if m := edgetest.Parse(t, all[2].Data); m.Result == nil || string(m.ID) != "1" {
				t.Errorf("last %s", all[2].Data)
			}
		}
		// Nobody asked for it: nothing comes before the answer.
		f.back.Always("tools/call", func(c *edgetest.Call) {
			c.Notify("notifications/progress", `{"progressToken":"x","progress":1}`)
			c.Result(`{"resultType":"complete","content":[]}`)
		})
		if r := c.call(t, "2", "{}"); c.era() == edgetest.Modern && r.Stream() {
			t.Errorf("a stream: %s", r.Rest())
		}
	})
}

// A client that takes no stream gets the answer alone.
func TestClientThatTakesNoStream(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		f.back.Always("tools/call", func(c *edgetest.Call) {
			c.Progress(1)
			c.Result(`{"resultType":"complete","content":[]}`)
		})
		body, head := c.message("1", "tools/call", edgetest.CallParams("echo", "{}"), `"progressToken":1`)
		for _, accept := range []string{"application/json", "*/*", "", "application/json, text/event-stream;q=0", "application/json,text/event-stream; charset=utf-8 ; Q=0.000", "Text/*;q=0,*/*"} {
			r := c.Post(body, append(head, "Accept", accept)...)
			if r.Status != 200 || r.Stream() || r.Message().Error != nil {
				t.Errorf("Accept %q: status %d, stream %t: %s", accept, r.Status, r.Stream(), r.Body)
			}
		}
		for _, accept := range []string{"text/event-stream", "text/event-stream;q=0.001", "application/json;q=0, TEXT/event-stream ;q=1, */*"} {
			if all := c.Post(body, append(head, "Accept", accept)...).Rest(); len(all) != 2 {
				t.Errorf("Accept %q: %d events", accept, len(all))
			}
		}
		f.back.Always("tools/call", func(c *edgetest.Call) { c.Result(`{"content":[]}`) })
		r := c.Post(body, append(head, "Accept", "application/json;q=0.0, text/event-stream")...)
		if all := r.Rest(); len(all) != 1 || edgetest.Parse(t, all[0].Data).Result == nil {
			t.Errorf("stream alone: %s", all)
		}
	})
}

// A server that says of a tool, a prompt or a resource that it is not found, with the code of an
// unknown method, is heard by every client: 404 says to a modern one that the method is unknown.
// What a modern server says as JSON keeps its status.
func TestNotFoundInEveryCell(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		unknown := 200
		if c.era() == edgetest.Modern {
			unknown = 404
		}
		for i, one := range []struct {
			method, params string
			want           int
		}{
			{"tools/call", edgetest.CallParams("gone", "{}"), 200}, {"prompts/get", `{"name":"gone"}`, 200}, {"resources/read", `{"uri":"a:gone"}`, 200},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"gone"},"argument":{"name":"a","value":"v"}}`, unknown}, {"vendor/method", `{}`, unknown},
		} {
			f.back.Always(one.method, func(c *edgetest.Call) {
				c.Notify("notifications/message", `{"level":"info","data":1}`)
				c.Error(200, -32601, "not found")
			})
			id := fmt.Sprint(i)
			fails(t, c.request(t, id, one.method, one.params), one.want, -32601, id)
			if f.back.Era != edgetest.Modern || c.era() != edgetest.Modern {
				continue
			}
			for _, status := range []int{200, 400, 404} {
				f.back.Always(one.method, func(c *edgetest.Call) { c.Error(status, -32601, "not found") })
				id := fmt.Sprintf("%d%d", status, i)
				fails(t, c.request(t, id, one.method, one.params), status, -32601, id)
			}
		}
	})
}

// Log messages reach the clients that asked for them, and no others.
func TestLoggingInEveryCell(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		f.back.Always("tools/call", func(c *edgetest.Call) {
			c.Notify("notifications/message", `{"level":"info","data":{"n":1.0}}`)
			c.Result(`{"resultType":"complete","content":[]}`)
		})
		level := `"` + edgetest.LogLevel + `":"warning"`
		var asked *edgetest.Response
		if c.session != nil { // of the legacy era, in which a server sends what it likes until it hears a level
			if all := c.call(t, "0", "{}").Rest(); len(all) != 2 {
				t.Errorf("without a level: %d events: %s", len(all), all)
			}
			if got := edgetest.Member(string(f.back.Requests("tools/call")[0].Message.Params), "_meta", edgetest.LogLevel); f.back.Era == edgetest.Modern && got != `"info"` {
				t.Errorf("without a level the backend was told %q", got)
			}
			if got := c.request(t, "1", "logging/setLevel", `{"level":"warning"}`).Result(); got != "{}" {
				t.Errorf("logging/setLevel: %s", got)
			}
			asked = c.call(t, "2", "{}")
		} else {
			if r := c.call(t, "1", "{}"); r.Stream() {
				t.Errorf("nobody asked: %s", r.Rest())
			}
			asked = c.call(t, "2", "{}", level)
		}
		all := asked.Rest()
		if len(all) != 2 || string(edgetest.Parse(t, all[0].Data).Params) != `{"level":"info","data":{"n":1.0}}` {
			t.Errorf("asked: %d events: %s", len(all), all)
		}
		calls := f.back.Requests("tools/call")
		last := string(calls[len(calls)-1].Message.Params)
		got := edgetest.Member(last, "_meta", edgetest.LogLevel)
		if f.back.Era == edgetest.Modern {
			if got != `"warning"` {
				t.Errorf("the backend was told the level %q", got)
			}
			return
		}
		if sets := f.back.Requests("logging/setLevel"); got != "" || len(sets) != 1 || edgetest.Member(string(sets[0].Message.Params), "level") != `"warning"` ||
			sets[0].Session != calls[len(calls)-1].Session {
			t.Errorf("_meta level %q, %d times logging/setLevel", got, len(sets))
		}
	})
}

// A server that has no logging is not asked to log.
func TestLoggingThatTheServerLacks(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Capabilities = `{"tools":{}}` })
	e := edgetest.Start(t, edgetest.Manifest(back))
	r := e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), `"`+edgetest.LogLevel+`":"debug"`)
	if r.Message().Error != nil || back.Count("logging/setLevel") != 0 {
		t.Errorf("%s; logging/setLevel %d times", r.Answer(), back.Count("logging/setLevel"))
	}
	none := edgetest.NewServer(t, edgetest.Modern, func(s *edgetest.Server) { s.Capabilities = `{"tools":{}}` })
	edgetest.Start(t, edgetest.Manifest(none)).NewClient().Initialize("").Call("1", "echo", "{}").Result()
	if got := edgetest.Member(string(none.Await("tools/call", 1).Message.Params), "_meta", edgetest.LogLevel); got != "" {
		t.Errorf("the backend was told the level %s", got)
	}
}

// A legacy client cancels with a notification; a modern one by leaving. The
// backend learns of it in the way of its own era.
func TestCancellationInEveryCell(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		entered, gone := make(chan string, 1), make(chan struct{}, 1)
		f.back.Always("tools/call", func(c *edgetest.Call) {
			entered <- c.ID()
			c.Progress(1)
			if !c.Wait(nil) {
				gone <- struct{}{}
			}
		})
		got := make(chan *edgetest.Response, 1)
		go func() {
			r, _ := c.try(`"c1"`, "tools/call", edgetest.CallParams("echo", "{}"), `"progressToken":1`)
			got <- r
		}()
		id := edgetest.Receive(t, entered, "the call")
		r := edgetest.Receive(t, got, "the stream")
		if r == nil {
			t.Fatal("no answer")
		}
		if m := r.NextMessage(); m.Method != "notifications/progress" {
			t.Fatalf("%+v", m)
		}
		if c.session != nil {
			c.session.Notify("notifications/cancelled", `{"requestId":"c1","reason":"enough"}`)
			if all := r.Rest(); len(all) != 0 {
				t.Errorf("an answer to a call that was cancelled: %s", all)
			}
		} else {
			r.Close()
		}
		if f.back.Era == edgetest.Modern {
			edgetest.Receive(t, gone, "the end of the request")
			return
		}
		n := f.back.Await("notifications/cancelled", 1)
		if edgetest.Member(string(n.Message.Params), "requestId") != id {
			t.Errorf("cancelled %s, the call was %s", n.Message.Params, id)
		}
		if calls := f.back.Requests("tools/call"); n.Session != calls[0].Session {
			t.Errorf("cancelled in session %s, the call was in %s", n.Session, calls[0].Session)
		}
	})
}

// A legacy client that loses its connection has not cancelled anything
// (2025-11-25, basic/transports).
func TestLegacyClientThatLeavesCancelsNothing(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, "")
	entered, leave, done := make(chan struct{}, 1), make(chan struct{}), make(chan bool, 1)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		entered <- struct{}{}
		done <- c.Wait(leave)
		c.Result(`{"content":[]}`)
	})
	r := c.call(t, "1", "{}", `"progressToken":1`)
	edgetest.Receive(t, entered, "the call")
	r.Close()
	if got := c.request(t, "2", "ping", "").Status; got != 200 {
		t.Fatalf("status %d", got)
	}
	close(leave)
	if !edgetest.Receive(t, done, "the end of the call") || f.back.Count("notifications/cancelled") != 0 {
		t.Error("the call was cancelled")
	}
}

// A modern client that leaves before anything was answered cancels as well.
func TestModernClientThatLeavesEarly(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era)
			entered, gone := make(chan struct{}, 1), make(chan struct{}, 1)
			f.back.Always("tools/call", func(c *edgetest.Call) {
				entered <- struct{}{}
				if !c.Wait(nil) {
					gone <- struct{}{}
				}
			})
			raw := f.Dial()
			body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
			raw.Write("POST /mcp HTTP/1.1\r\nHost: " + f.Addr() + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" +
				head[0] + ": " + head[1] + "\r\n" + head[2] + ": " + head[3] + "\r\n" + head[4] + ": " + head[5] + "\r\n" +
				fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
			edgetest.Receive(t, entered, "the call")
			raw.Close()
			if era == edgetest.Modern {
				edgetest.Receive(t, gone, "the end of the request")
			} else {
				n := f.back.Await("notifications/cancelled", 1)
				if why := edgetest.Member(string(n.Message.Params), "reason"); why != `"its client has left"` {
					t.Errorf("the reason is %s", why)
				}
			}
		})
	}
}

// A modern client hears on a request's stream of that request alone: what a
// server tells everybody is not for it (2026-07-28,
// basic/transports/streamable-http).
func TestModernClientHearsOfItsCallAlone(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era)
			f.back.Always("tools/call", func(c *edgetest.Call) {
				c.Notify("notifications/tools/list_changed", "")
				c.Notify("notifications/resources/updated", `{"uri":"a:b"}`)
				c.Result(`{"content":[]}`)
			})
			if r := f.callerOf(t, edgetest.Modern, "").call(t, "1", "{}"); r.Stream() {
				t.Errorf("%s", r.Rest())
			}
		})
	}
}

// What the edge says of itself: the backend's capabilities and instructions
// under the edge's name, in the words of the client's era.
func TestIntroductionInEveryCell(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			extra := map[edgetest.Era]string{edgetest.Modern: "extensions"}[era]
			if extra == "" {
				extra = "tasks"
			}
			caps := `{"tools":{"listChanged":true,"x":1.0},"` + extra + `":{"list":{}},"vendor":{}}`
			back := edgetest.NewServer(t, era, func(s *edgetest.Server) {
				s.Capabilities, s.Instructions = caps, "Use \"it\" well. é"
			})
			e := edgetest.Start(t, edgetest.Manifest(back, "metadata: {a: b}"))
			c := e.NewClient()
			common := `{"tools":{"listChanged":true,"x":1.0},"vendor":{}}`
			legacy, modern := caps, common
			if era == edgetest.Modern {
				legacy, modern = common, caps
			}
			for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
				want := `{"protocolVersion":"` + version + `","capabilities":` + legacy + `,"serverInfo":{"name":"edgetest","version":"devel"},"instructions":"Use \"it\" well. é"}`
				if got := c.InitializeAs(version, "").Result; got != want {
					t.Errorf("%s\nwant %s", got, want)
				}
			}
			// A revision that the edge does not have is answered by its newest with sessions.
			for _, version := range []string{"2020-01-01", "2026-07-28", "what"} {
				if got := edgetest.Member(c.InitializeAs(version, "").Result, "protocolVersion"); got != `"2025-11-25"` {
					t.Errorf("%s is answered by %s", version, got)
				}
			}
			want := `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":` + modern +
				`,"instructions":"Use \"it\" well. é","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"edgetest","version":"devel"}}}`
			if got := c.Modern("1", "server/discover", "").Result(); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		})
	}
}
