//go:build unix

package serve_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/serve"
)

// TestItem01ElicitationThroughTheOtherReplica: what a backend asks a legacy
// client on the stream of one edge is answered through another.
func TestItem01ElicitationThroughTheOtherReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	p.back.Always("tools/call", func(c *edgetest.Call) {
		m := c.Ask(`"q"`, "elicitation/create", `{"message":"Who?","requestedSchema":{"type":"object"}}`)
		if m.Error != nil {
			c.Result(`{"content":[],"failed":true}`)
			return
		}
		c.Result(`{"content":[],"said":` + string(m.Result) + `}`)
	})
	here := p.a.callerOf(t, edgetest.Legacy, asks)
	there := here.at(p.b)
	for _, fails := range []bool{false, true} {
		stream := here.call(t, "1", "{}")
		q := stream.NextMessage()
		if q.Method != "elicitation/create" {
			t.Fatalf("%+v", q)
		}
		want := `"said":{"action":"accept"}`
		if fails {
			there.session.ReplyError(q.ID, `{"code":-1,"message":"no"}`)
			want = `"failed":true`
		} else {
			there.session.Reply(q.ID, `{"action":"accept"}`)
		}
		if m := stream.NextMessage(); !strings.Contains(string(m.Result), want) {
			t.Errorf("%s", m.Result)
		}
	}
	if n := p.back.Count("tools/call"); n != 2 {
		t.Errorf("%d calls", n)
	}
	// An answer to what nobody asked goes nowhere, and makes no box.
	there.session.Reply([]byte(`"0123456789abcdef.1"`), `{}`)
	there.session.Reply([]byte(`"../x.1"`), `{}`)
	if boxes := p.redis.Do("--raw", "keys", "weir:box:*0123456789abcdef*"); boxes != "" {
		t.Errorf("boxes: %s", boxes)
	}
}

// TestItem01CancelThroughTheOtherReplica: a legacy client withdraws a call
// through another edge than the one that serves it.
func TestItem01CancelThroughTheOtherReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	p.back.Always("tools/call", func(c *edgetest.Call) { c.Wait(nil) })
	here := p.a.callerOf(t, edgetest.Legacy, "")
	there := here.at(p.b)
	go func() { _, _ = here.try(`"slow"`, "tools/call", edgetest.CallParams("echo", "{}")) }()
	p.back.Await("tools/call", 1)
	there.session.Notify("notifications/cancelled", `{"requestId":"slow","reason":"enough"}`)
	got := p.back.Await("notifications/cancelled", 1)
	if edgetest.Member(string(got.Message.Params), "reason") == "" {
		t.Errorf("%s", got.Body)
	}
}

// TestItem01RetryAtTheOtherReplica: a modern client comes back with its answer
// to another edge than the one that holds its call; the call goes on, and what
// it says meanwhile arrives.
func TestItem01RetryAtTheOtherReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	p.back.Always("tools/call", func(c *edgetest.Call) {
		one := c.Ask(`"q"`, "roots/list", "")
		c.Progress(1)
		two := c.Ask(`"r"`, "roots/list", "")
		c.Result(`{"content":[],"one":` + string(one.Result) + `,"two":` + string(two.Result) + `}`)
	})
	here := p.a.callerOf(t, edgetest.Modern, "")
	there := here.at(p.b)
	first := inputRequired(t, here.call(t, "1", "{}", edgetest.Capabilities(asks), `"progressToken":"first"`))
	body, head := there.message("2", "tools/call", `{"name":"echo","arguments":{},"inputResponses":{"`+first.key(t)+`":{"roots":[1]}},"requestState":`+quote(first.RequestState)+`}`,
		edgetest.Capabilities(asks), `"progressToken":"p"`)
	stream := there.Post(body, head...)
	if n := stream.NextMessage(); n.Method != "notifications/progress" || edgetest.Member(string(n.Params), "progressToken") != `"p"` {
		t.Errorf("%+v", n)
	}
	second := inputRequired(t, stream)
	// Its third round comes to a third edge.
	third := p.edge(t)
	r := retry(here.at(third), "3", `{}`, `{"`+second.key(t)+`":{"roots":[2]}}`, second.RequestState)
	if m := r.Message(); !strings.Contains(string(m.Result), `"one":{"roots":[1]},"two":{"roots":[2]}`) || string(m.ID) != "3" || r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Answer())
	}
	// A state is used once, wherever it comes.
	for _, f := range []*front{p.a, p.b, third} {
		fails(t, retry(here.at(f), "4", `{}`, `{}`, second.RequestState), 400, -32602, "4")
	}
	if n := p.back.Count("tools/call"); n != 1 {
		t.Errorf("%d calls", n)
	}
	if n := len(p.back.Requests("initialize")); n > 4 {
		t.Errorf("%d sessions with the backend", n)
	}
}

// TestItem01LeavingTheOtherReplica: a modern client that leaves the edge through
// which it came back ends its call at the edge that holds it.
func TestItem01LeavingTheOtherReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	p.back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask(`"q"`, "roots/list", "")
		c.Progress(1)
		c.Wait(nil)
	})
	here := p.a.callerOf(t, edgetest.Modern, "")
	first := inputRequired(t, here.call(t, "1", "{}", edgetest.Capabilities(asks), `"progressToken":"first"`))
	body, head := here.message("2", "tools/call", `{"name":"echo","arguments":{},"inputResponses":{"`+first.key(t)+`":{"roots":[1]}},"requestState":`+quote(first.RequestState)+`}`,
		edgetest.Capabilities(asks), `"progressToken":"p"`)
	stream := here.at(p.b).Post(body, head...)
	stream.Next()
	stream.Close()
	p.back.Await("notifications/cancelled", 1)
}

// TestItem01HolderGone: a call whose edge is gone has failed, and is not run
// again.
func TestItem01HolderGone(t *testing.T) {
	t.Parallel()
	brief := edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = time.Millisecond })
	p := &pair{redis: kvtest.Redis(t), back: edgetest.NewServer(t, edgetest.Legacy)}
	p.a = p.edge(t, brief)
	p.back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask(`"q"`, "roots/list", "")
		c.Result(`{"content":[]}`)
	})
	here := p.a.callerOf(t, edgetest.Modern, "")
	first := p.a.begin(t, here, `{}`)
	p.a.Stop() // it is alone, and does not stay for the answer
	p.b = p.edge(t, brief)
	m := fails(t, retry(here.at(p.b), "2", `{}`, `{"`+first.key(t)+`":{"roots":[]}}`, first.RequestState), 500, -32603, "2")
	if m.Error.Message != "the edge that held this call is gone" {
		t.Errorf("%q", m.Error.Message)
	}
	if n := p.back.Count("tools/call"); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// TestItem01StreamAtTheOtherReplica: a legacy client whose stream broke reads on
// at another edge: while its own lives, what comes there; when it is gone, what
// it wrote down, and that the call has failed if it had no answer.
func TestItem01StreamAtTheOtherReplica(t *testing.T) {
	t.Parallel()
	brief := edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = time.Millisecond })
	p := newPair(t, edgetest.Legacy, brief)
	goOn := make(chan struct{}, 1)
	p.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		if !c.Wait(goOn) {
			return
		}
		c.Progress(2)
		if edgetest.Member(string(c.Message.Params), "arguments", "hang") != "" {
			c.Wait(nil)
			return
		}
		c.Result(`{"content":[]}`)
	})
	here := p.a.callerOf(t, edgetest.Legacy, "")
	there := here.at(p.b)
	broken := func(id, arguments string) edgetest.Event {
		t.Helper()
		stream := here.request(t, id, "tools/call", `{"name":"echo","arguments":`+arguments+`}`, `"progressToken":`+id)
		seen := stream.Next()
		stream.Close()
		return seen
	}
	resume := func(c caller, id string) *edgetest.Response {
		t.Helper()
		return c.Do("GET", "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", c.session.ID, "Last-Event-ID", id)
	}
	progress := func(e edgetest.Event) string { return edgetest.Member(string(e.Data), "params", "progress") }

	// 1. The edge lives, and the call goes on while the client reads at the other.
	seen := broken("1", "{}")
	stream := resume(there, seen.ID)
	goOn <- struct{}{}
	if events := stream.Rest(); len(events) != 2 || progress(events[0]) != "2" || edgetest.Member(string(events[1].Data), "id") != "1" {
		t.Errorf("resumed: %q", events)
	}
	// 2. It lives, and the call has ended.
	if events := resume(there, seen.ID).Rest(); len(events) != 2 {
		t.Errorf("resumed again: %q", events)
	}
	// 3. Ids that lead nowhere.
	for _, id := range []string{"0123456789abcdef.1-1", strings.Split(seen.ID, ".")[0] + ".99-1", "../../1", seen.ID + "9999"} {
		if r := resume(there, id); r.Status != 400 {
			t.Errorf("%s: status %d: %s", id, r.Status, r.Body)
		}
	}
	other := p.b.callerOf(t, edgetest.Legacy, "")
	if r := resume(other, seen.ID); r.Status != 400 {
		t.Errorf("another session's stream: status %d: %s", r.Status, r.Body)
	}
	// 4. The edge goes while somebody reads on, and while nobody does.
	hangs := broken("2", `{"hang":1}`)
	reading := resume(there, hangs.ID)
	goOn <- struct{}{}
	if e := reading.Next(); progress(e) != "2" {
		t.Errorf("%+v", e)
	}
	lost := broken("3", `{"hang":1}`)
	edgetest.Until(t, "the logs in the store", func() bool { return len(strings.Fields(p.redis.Do("--raw", "keys", "weir:log:*"))) >= 3 })
	goOn <- struct{}{}
	p.a.Stop()
	gone := func(id string, e edgetest.Event) {
		t.Helper()
		if text := string(e.Data); edgetest.Member(text, "id") != id || edgetest.Member(text, "error", "code") != "-32603" ||
			edgetest.Member(text, "error", "message") != `"the edge that held this call is gone"` {
			t.Errorf("%s", text)
		}
	}
	if rest := reading.Rest(); len(rest) != 1 {
		t.Errorf("after its edge went: %q", rest)
	} else {
		gone("2", rest[0])
	}
	rest := resume(there, lost.ID).Rest()
	if len(rest) == 0 {
		t.Fatal("nothing of a stream whose edge is gone")
	}
	gone("3", rest[len(rest)-1])
	// What was answered is answered.
	if events := resume(there, seen.ID).Rest(); len(events) != 2 || edgetest.Member(string(events[1].Data), "id") != "1" {
		t.Errorf("of an edge that is gone: %q", events)
	}
}

// TestItem01SubscriptionsAtTheOtherReplica: a client that subscribed at one edge
// and listens at another hears of changes, whichever came first.
func TestItem01SubscriptionsAtTheOtherReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	p.back.Always("resources/subscribe", func(c *edgetest.Call) { c.Result("{}") })
	p.back.Always("resources/unsubscribe", func(c *edgetest.Call) { c.Result("{}") })
	here := p.a.callerOf(t, edgetest.Legacy, "")
	there := here.at(p.b)
	subscribe := func(c caller, method, uri string) {
		t.Helper()
		if r := c.request(t, "1", method, `{"uri":"`+uri+`"}`); r.Status != 200 || r.Message().Error != nil {
			t.Fatalf("%s: status %d: %s", method, r.Status, r.Body)
		}
	}
	subscribed := func(uri string, n int) {
		t.Helper()
		p.back.Until(uri, func() bool {
			count := 0
			for _, r := range p.back.Requests("resources/subscribe") {
				if edgetest.Member(string(r.Message.Params), "uri") == `"`+uri+`"` {
					count++
				}
			}
			return count >= n
		})
	}
	subscribe(here, "resources/subscribe", "file:///before")
	subscribed("file:///before", 1)
	listening := there.session.Listen()
	defer listening.Close()
	subscribed("file:///before", 2) // by the edge that has the stream
	subscribe(here, "resources/subscribe", "file:///after")
	subscribed("file:///after", 2)
	sub := p.back.Requests("resources/subscribe")
	session := p.back.Session(sub[len(sub)-1].Session)
	session.Push(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///after"}}`)
	if m := listening.NextMessage(); m.Method != "notifications/resources/updated" {
		t.Errorf("%+v", m)
	}
	subscribe(here, "resources/unsubscribe", "file:///after")
	p.back.Await("resources/unsubscribe", 2)
}

// TestItem01TasksAtTheOtherReplica: who began a task at one edge asks for it at
// another; nobody else can.
func TestItem01TasksAtTheOtherReplica(t *testing.T) {
	t.Parallel()
	redis, backs := kvtest.Redis(t), map[string]*edgetest.Server{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.Modern)}
	backs["b"].Always("tools/call", func(c *edgetest.Call) { c.Result(`{"resultType":"task","taskId":"t2","status":"working"}`) })
	backs["b"].Always("tasks/get", func(c *edgetest.Call) { c.Result(`{"resultType":"complete","taskId":"t2","status":"completed"}`) })
	var fronts []*front
	for range 2 {
		e := edgetest.Start(t, group(backs, bestEffort, in(redis)), patient)
		f := &front{Edge: e, client: e.NewClient()}
		f.stored(t)
		fronts = append(fronts, f)
	}
	c := fronts[0].callerOf(t, edgetest.Modern, "")
	c.request(t, "1", "tools/call", edgetest.CallParams("b_echo", "{}")).Result()
	if out := c.at(fronts[1]).request(t, "2", "tasks/get", `{"taskId":"t2"}`).Result(); !strings.Contains(out, "completed") {
		t.Error(out)
	}
	fails(t, c.at(fronts[1]).request(t, "3", "tasks/get", `{"taskId":"t3"}`), 400, -32602, "3")
	legacy := fronts[1].callerOf(t, edgetest.Legacy, "")
	fails(t, legacy.request(t, "4", "tasks/get", `{"taskId":"t2"}`), 200, -32602, "4")
}

// TestMessageOfOtherSettings: a message that is larger than an edge's messages may
// be is not taken; whoever waits for what comes of it is told, and the edge goes
// on.
func TestMessageOfOtherSettings(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxBody, s.MaxMessage = 64<<10, 64<<10 }))
	p.back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask(`"q"`, "roots/list", "")
		c.Result(`{"content":[],"filler":"` + strings.Repeat("-", 60<<10) + `"}`)
	})
	node := strings.TrimPrefix(strings.Fields(p.redis.Do("--raw", "keys", "weir:alive:*"))[0], "weir:alive:")
	store, err := kv.Redis(kv.Options{Addresses: []string{p.redis.Addr}, Timeout: edgetest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const me = "0123456789abcdef"
	messages := make(chan string, 4)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = store.Listen(ctx, "node:"+me, func(text []byte) { messages <- string(text) }) }() // it ends with ctx
	large := `{"k":"retry","f":"` + me + `","t":"mine"}` + "\n" + strings.Repeat(" ", 2<<20)
	text, err := os.ReadFile(stateKey(t))
	if err != nil {
		t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{large, "no message", strings.Replace(large, "retry", "note", 1)} {
		from := fmt.Sprintf("%016x", i) // each edge numbers its messages
		if err := store.Post(t.Context(), "node:"+node, serve.Message(from, node, key, []byte(text)), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if text := edgetest.Receive(t, messages, "what comes of the message"); !strings.Contains(text, `"k":"error"`) || !strings.Contains(text, `"t":"mine"`) || !strings.Contains(text, "at most") {
		t.Errorf("%s", text)
	}
	// Both go on, with messages as large as they may be.
	here := p.a.callerOf(t, edgetest.Modern, "")
	first := p.a.begin(t, here, `{}`)
	r := retry(here.at(p.b), "2", `{}`, `{"`+first.key(t)+`":{"roots":[]}}`, first.RequestState)
	if r.Status != 200 || r.Message().Error != nil || len(r.Answer()) < 60<<10 {
		t.Errorf("status %d: %.200s", r.Status, r.Answer())
	}
}
