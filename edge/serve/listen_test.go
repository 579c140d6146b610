package serve_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// A client that does not read what it listens to holds up nobody: neither the
// others nor what hears the backends.
func TestListenerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
	offers(a, "echo")
	offers(b, "echo")
	a.Always("resources/list", func(c *edgetest.Call) { c.Result(`{"resources":[{"uri":"test://a","name":"r"}]}`) })
	a.Always("resources/subscribe", func(c *edgetest.Call) { c.Result("{}") })
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"a": a, "b": b}, bestEffort))
	f := &front{Edge: e, client: e.NewClient()}
	// A backend that is met only later changes the list of tools, which is news.
	edgetest.Until(t, "the tools of both", func() bool { return len(listed(t, f.callerOf(t, edgetest.Modern, ""))) == 2 })
	const want = `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["test://a"]}}`

	body, header := edgetest.ModernRequest("1", "subscriptions/listen", want, edgetest.Meta())
	deaf := e.Dial()
	lines := ""
	for i := 0; i < len(header); i += 2 {
		lines += header[i] + ": " + header[i+1] + "\r\n"
	}
	deaf.Write(fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n%s\r\n%s", e.Addr(), len(body), lines, body))
	a.Await("resources/subscribe", 1)
	reader := f.callerOf(t, edgetest.Modern, "").request(t, "2", "subscriptions/listen", want)
	if m := reader.NextMessage(); edgetest.Member(string(m.Params), "notifications", "resourceSubscriptions") != `["test://a"]` {
		t.Fatalf("%+v", m)
	}
	legacy := f.callerOf(t, edgetest.Legacy, "")
	listed(t, legacy) // nobody is told of changes to what nobody has seen
	stream := legacy.session.Listen()
	own := a.Session(a.Requests("resources/subscribe")[0].Session)
	push := func(text string) {
		t.Helper()
		edgetest.Until(t, "the edge's own stream", own.Listening)
		own.Push(text)
	}
	longest := time.Duration(0)
	for i := range 600 { // more than all the buffers on the way to the deaf one hold
		began := time.Now()
		push(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a","n":%d,"x":"%s"}}`, i, strings.Repeat("x", 15<<10)))
		if m := reader.NextMessage(); edgetest.Member(string(m.Params), "n") != fmt.Sprint(i) {
			t.Fatalf("update %d: %.100s", i, m.Params)
		}
		longest = max(longest, time.Since(began))
	}
	if longest > edgetest.Patience/4 {
		t.Errorf("the others waited %s for one update", longest)
	}
	offers(a, "echo", "fresh")
	push(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	for who, r := range map[string]*edgetest.Response{"modern": reader, "legacy": stream} {
		if m := r.NextMessage(); m.Method != "notifications/tools/list_changed" {
			t.Errorf("%s: %.100s", who, m.Method)
		}
	}
	// News that is too long to wait in whole comes as the URI alone.
	push(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a","x":"` + strings.Repeat("x", 17<<10) + `"}}`)
	if m := reader.NextMessage(); edgetest.Member(string(m.Params), "uri") != `"test://a"` || edgetest.Member(string(m.Params), "x") != "" {
		t.Errorf("%.100s", m.Params)
	}
}

// Those who only listen take no room from calls.
func TestListenersTakeNoRoom(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxInflight = 1 }))
	listen := f.client.Modern("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
	listen.NextMessage() // the acknowledgement
	if r := f.NewClient().Modern("2", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != 200 {
		t.Errorf("a call beside a listener: status %d: %s", r.Status, r.Body)
	}
	listen.Close()
	edgetest.Until(t, "room", func() bool { return f.Serve.Inflight() == 0 })
}
