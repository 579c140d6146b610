package serve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// asks is what a client can be asked.
const asks = `{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`

// A legacy server's questions reach the client on the stream of the call that
// they belong to, under ids of the edge's own; the answers come back under the
// server's ids. Nothing else of either changes.
func TestQuestionsOfALegacyBackend(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era)
			c := f.callerOf(t, edgetest.Legacy, asks)
			for _, q := range []struct{ id, method, params string }{
				{`"q\u0041"`, "sampling/createMessage", `{"messages":[ {"role":"user","content":{"type":"text","text":"é"}} ],"maxTokens":100,"big":9007199254740993,"x":1.0}`},
				{`0`, "elicitation/create", `{"message":"Who?","requestedSchema":{"type":"object","properties":{"b":{},"a":{}}}}`},
				{`-7`, "elicitation/create", `{"mode":"url","url":"https://example.com/","elicitationId":"e","message":"m"}`},
				{`9007199254740993`, "roots/list", ``},
				{`1`, "roots/list", `{"_meta":{"x":1.0}}`},
			} {
				for _, answer := range []struct{ result, fault string }{
					{result: `{"action":"accept" , "content":{"n":12345678901234567890,"f":1.10}, "unknown":[ ]}`},
					{fault: `{"code":-1, "message":"né","data":{"x":1.0},"own":1}`},
				} {
					said := make(chan edgetest.Message, 1)
					f.back.Once("tools/call", func(c *edgetest.Call) {
						m := c.Ask(q.id, q.method, q.params)
						said <- m
						c.Result(`{"content":[]}`)
					})
					r := c.call(t, "1", "{}")
					asked := r.NextMessage()
					if asked.Method != q.method || string(asked.Params) != q.params || string(asked.ID) == q.id && q.id != "1" {
						t.Errorf("asked %s %s under %s", asked.Method, asked.Params, asked.ID)
					}
					if answer.fault == "" {
						c.session.Reply(asked.ID, answer.result)
					} else {
						c.session.ReplyError(asked.ID, answer.fault)
					}
					m := edgetest.Receive(t, said, "the answer")
					if string(m.ID) != q.id || string(m.Result) != answer.result {
						t.Errorf("%s under %s; want %s under %s", m.Result, m.ID, answer.result, q.id)
					}
					last := f.back.Requests("response")
					if body := string(last[len(last)-1].Body); answer.fault != "" && edgetest.Member(body, "error") != answer.fault {
						t.Errorf("error %s, want %s", body, answer.fault)
					}
					if all := r.Rest(); len(all) != 1 || edgetest.Parse(t, all[0].Data).Result == nil {
						t.Errorf("after the answer: %s", all)
					}
				}
			}
			for _, got := range f.back.Requests("response") {
				if got.Session != f.back.Requests("tools/call")[0].Session {
					t.Errorf("an answer in session %s", got.Session)
				}
			}
			init := f.back.Requests("initialize")
			if got := edgetest.Member(string(init[len(init)-1].Message.Params), "capabilities"); got != asks {
				t.Errorf("capabilities %s", got)
			}
		})
	}
}

// What a backend says on one stream, questions among it, a client hears in that order.
func TestQuestionsOfALegacyBackendInOrder(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, asks)
	for range 20 {
		f.back.Once("tools/call", func(c *edgetest.Call) {
			var all []string
			for i := range 6 {
				one := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"roots/list","params":{"n":%d}}`, 10+i, i)
				if i%3 == 0 {
					one = fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","n":%d}}`, i)
				}
				all = append(all, "data: "+one+"\n\n")
			}
			c.Raw(strings.Join(all, ""))
			c.Result(`{"content":[]}`)
		})
		r, got := c.call(t, "1", "{}"), ""
		for range 6 {
			got += edgetest.Member(string(r.NextMessage().Params), "n")
		}
		if r.Result(); got != "012345" {
			t.Fatalf("in the order %s", got)
		}
	}
}

// The same of a modern client: the first question is the first that it is asked.
func TestQuestionsOfALegacyBackendInOrderOfAModernClient(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Modern, "")
	for range 20 {
		f.back.Once("tools/call", func(c *edgetest.Call) {
			c.Raw("data: {\"jsonrpc\":\"2.0\",\"id\":10,\"method\":\"roots/list\",\"params\":{\"n\":0}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":11,\"method\":\"roots/list\",\"params\":{\"n\":1}}\n\n")
			<-c.Gone()
		})
		out := c.call(t, "1", "{}", edgetest.Capabilities(asks)).Result()
		if got := edgetest.Member(out, "inputRequests", "input_1", "params", "n"); got != "0" {
			t.Fatalf("the first question is %s: %s", got, out)
		}
	}
}

// Several questions of one call wait side by side, and may be answered in any
// order.
func TestQuestionsSideBySide(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, asks)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		var all sync.WaitGroup
		var got [3]string
		for i := range got {
			all.Go(func() { got[i] = string(c.Ask(fmt.Sprint(10+i), "roots/list", fmt.Sprintf(`{"n":%d}`, i)).Result) })
		}
		all.Wait()
		c.Result(`{"got":[` + strings.Join(got[:], ",") + `]}`)
	})
	r := c.call(t, "1", "{}")
	var qs []edgetest.Message
	for range 3 {
		qs = append(qs, r.NextMessage())
	}
	for i := len(qs) - 1; i >= 0; i-- {
		c.session.Reply(qs[i].ID, `{"for":`+edgetest.Member(string(qs[i].Params), "n")+`}`)
	}
	if got := r.Result(); got != `{"got":[{"for":0},{"for":1},{"for":2}]}` {
		t.Error(got)
	}
}

// Two clients whose calls and whose servers' questions have the same ids never
// get anything of each other.
func TestClientsAreNeverCrossed(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		who := edgetest.Member(string(c.Message.Params), "arguments")
		c.Progress(1)
		m := c.Ask("1", "roots/list", `{"who":`+who+`}`)
		c.Result(`{"who":` + who + `,"answer":` + string(m.Result) + `}`)
	})
	const clients, calls = 2, 200
	errs := make(chan error, clients)
	for n := range clients {
		c := f.NewClient()
		go func() {
			errs <- func() error {
				s, err := c.TryInitialize(edgetest.LegacyVersion, asks)
				if err != nil {
					return err
				}
				for i := range calls {
					who := fmt.Sprintf(`{"client":%d,"call":%d}`, n, i)
					r, err := s.TrySend(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":` + who + `,"_meta":{"progressToken":1}}}`)
					if err != nil {
						return err
					}
					if _, err := r.TryNext(); err != nil { // progress
						return err
					}
					e, err := r.TryNext()
					if err != nil {
						return err
					}
					if got := edgetest.Member(string(e.Data), "params", "who"); got != who {
						return fmt.Errorf("%s was asked for %s", who, got)
					}
					reply, err := s.TrySend(`{"jsonrpc":"2.0","id":` + edgetest.Member(string(e.Data), "id") + `,"result":` + who + `}`)
					if err != nil || reply.Status != 202 {
						return fmt.Errorf("%v %+v", err, reply)
					}
					text, err := r.TryAnswer()
					if err != nil {
						return err
					}
					if got, want := edgetest.Member(string(text), "result"), `{"who":`+who+`,"answer":`+who+`}`; got != want {
						return fmt.Errorf("%s, want %s", got, want)
					}
				}
				return nil
			}()
		}()
	}
	var all []error
	for range clients {
		select {
		case err := <-errs:
			all = append(all, err)
		case <-time.After(3 * edgetest.Patience):
			t.Fatal("the calls do not end")
		}
	}
	if err := errors.Join(all...); err != nil {
		t.Error(err)
	}
}

// A server that asks and answers in one breath waits for nobody: its question
// may come too late, but never to another client, and the edge does not wait
// for an answer that nobody will give.
func TestQuestionThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		who := edgetest.Member(string(c.Message.Params), "arguments")
		c.Whole(`{"jsonrpc":"2.0","id":5,"method":"roots/list","params":{"who":`+who+`}}`, `{"jsonrpc":"2.0","id":`+c.ID()+`,"result":`+who+`}`)
	})
	const clients, calls = 4, 50
	errs := make(chan error, clients)
	for n := range clients {
		c := f.NewClient()
		go func() {
			errs <- func() error {
				s, err := c.TryInitialize(edgetest.LegacyVersion, asks)
				if err != nil {
					return err
				}
				for i := range calls {
					who := fmt.Sprintf(`{"client":%d,"call":%d}`, n, i)
					r, err := s.TrySend(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":` + who + `}}`)
					if err != nil {
						return err
					}
					var texts []string
					if r.Stream() {
						all, err := r.TryRest()
						if err != nil {
							return err
						}
						for _, e := range all {
							texts = append(texts, string(e.Data))
						}
					} else {
						texts = []string{string(r.Body)}
					}
					for _, text := range texts {
						if !strings.Contains(text, who) {
							return fmt.Errorf("%s got %s", who, text)
						}
					}
				}
				return nil
			}()
		}()
	}
	var all []error
	for range clients {
		all = append(all, edgetest.Receive(t, errs, "the end of the calls"))
	}
	if err := errors.Join(all...); err != nil {
		t.Error(err)
	}
	began := time.Now()
	f.Stop()
	if d := time.Since(began); d > edgetest.Patience/2 {
		t.Errorf("the edge took %s to end", d)
	}
}

// A question after which the client's stream is gone ends with its call.
func TestQuestionToAClientThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	said := make(chan edgetest.Message, 1)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		said <- c.Ask("7", "sampling/createMessage", `{"messages":[]}`)
		c.Result(`{"content":[]}`)
	})
	for name, one := range map[string]struct {
		caller caller
		accept string
	}{
		"a legacy client that declared nothing": {f.callerOf(t, edgetest.Legacy, `{}`), "application/json, text/event-stream"},
		"a legacy client that takes no stream":  {f.callerOf(t, edgetest.Legacy, asks), "application/json"},
		"a modern client that declared nothing": {f.callerOf(t, edgetest.Modern, ``), "application/json, text/event-stream"},
	} {
		body, head := one.caller.message("1", "tools/call", edgetest.CallParams("echo", "{}"))
		r := one.caller.Post(body, append(head, "Accept", one.accept)...)
		m := edgetest.Receive(t, said, "the refusal")
		if m.Error == nil || m.Error.Code != -32601 || string(m.ID) != "7" {
			t.Errorf("%s: the server was answered %+v", name, m)
		}
		if r.Stream() || r.Message().Error != nil {
			t.Errorf("%s: %s", name, r.Answer())
		}
	}
}

// The server's pings are answered by the edge, whatever the client does.
func TestPingOfTheBackend(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era)
			f.back.Always("tools/call", func(c *edgetest.Call) {
				m := c.Ask(`"p"`, "ping", "")
				c.Result(`{"pong":` + string(m.Result) + `}`)
			})
			for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
				r := f.callerOf(t, client, "").call(t, "1", "{}")
				if r.Stream() || edgetest.Member(r.Result(), "pong") != "{}" {
					t.Errorf("%s: %s", client, r.Answer())
				}
			}
		})
	}
}

// What belongs to no call reaches a legacy client on the stream that it opened
// with GET, and only while it has one.
func TestStreamOfALegacySession(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, asks)
	f.introduced(t)
	c.request(t, "1", "resources/subscribe", `{"uri":"a:b"}`)
	upstream := f.back.Session(f.back.Requests("resources/subscribe")[0].Session)
	if upstream.Listening() || f.back.Count("GET") != 0 {
		t.Error("the backend's stream is open before the client's")
	}
	stream := c.session.Listen()
	update := `{"jsonrpc":"2.0", "method":"notifications/resources/updated","params":{"uri":"a:b","x":1.0}}`
	upstream.Push(update)
	if got := string(stream.Next().Data); got != update {
		t.Errorf("%s, want %s", got, update)
	}
	upstream.Push(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	if m := stream.NextMessage(); m.Method != "notifications/tools/list_changed" {
		t.Errorf("%+v", m)
	}
	// Questions that belong to no call as well, and their answers.
	upstream.Push(`{"jsonrpc":"2.0","id":"g","method":"roots/list"}`)
	q := stream.NextMessage()
	if q.Method != "roots/list" {
		t.Fatalf("%+v", q)
	}
	c.session.Reply(q.ID, `{"roots":[1.0]}`)
	if got := f.back.Await("response", 1); string(got.Body) != `{"jsonrpc":"2.0","id":"g","result":{"roots":[1.0]}}` || got.Session != upstream.ID {
		t.Errorf("%s in %s", got.Body, got.Session)
	}
	// Another client hears nothing of it: its own first event is its own.
	d := f.callerOf(t, edgetest.Legacy, "")
	other := d.session.Listen()
	f.back.Until("the other's session", func() bool { return len(f.back.Sessions()) == 3 })
	upstream.Push(update)
	if got := string(stream.Next().Data); got != update {
		t.Errorf("%s", got)
	}
	f.back.Sessions()[2].Push(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
	if m := other.NextMessage(); m.Method != "notifications/prompts/list_changed" {
		t.Errorf("the other client heard %+v", m)
	}
	// The backend's stream ends with the client's.
	stream.Close()
	f.back.Until("the end of the backend's stream", func() bool { return !upstream.Listening() })
	if r := c.request(t, "2", "ping", ""); r.Status != 200 {
		t.Errorf("the session ended with its stream: status %d", r.Status)
	}
}

// TestHearingAfterAReload: a session whose server is served from another manifest, before the same
// backend, hears what that says outside of calls as before.
func TestHearingAfterAReload(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	f.introduced(t)
	c := f.callerOf(t, edgetest.Legacy, "")
	stream := c.session.Listen()
	up := f.back.Session(f.back.Await("GET", 1).Session)
	for n := range 3 {
		more := fmt.Sprintf("passthroughHeaders: [X-Tenant-%d]", n)
		if err := f.Serve.Reload(edgetest.Plan(t, edgetest.Manifest(f.back, more))); err != nil {
			t.Fatal(err)
		}
		f.back.Await("GET", 2+n)
		// What ended listening comes late, and must end nothing of what listens now.
		time.Sleep(50 * time.Millisecond)
		one := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/number_%d"}`, n)
		up.Push(one)
		for {
			if got := string(stream.Next().Data); got == one {
				break
			} else if !strings.Contains(got, "list_changed") {
				t.Fatalf("%s, want %s", got, one)
			}
		}
	}
}

// TestQuestionOutlivesAStream: a question that belongs to no call waits for its answer also where
// the client's stream breaks meanwhile, and is opened again.
func TestQuestionOutlivesAStream(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, asks)
	f.introduced(t)
	c.request(t, "1", "resources/subscribe", `{"uri":"a:b"}`)
	upstream := f.back.Session(f.back.Requests("resources/subscribe")[0].Session)
	stream := c.session.Listen()
	upstream.Push(`{"jsonrpc":"2.0","id":"g","method":"roots/list"}`)
	q := stream.NextMessage()
	stream.Close()
	f.back.Until("the end of the backend's stream", func() bool { return !upstream.Listening() })
	c.session.Listen()
	c.session.Reply(q.ID, `{"roots":[1.0]}`)
	if got := f.back.Await("response", 1); string(got.Body) != `{"jsonrpc":"2.0","id":"g","result":{"roots":[1.0]}}` {
		t.Errorf("%s", got.Body)
	}
}

// Of several streams of a session each message goes to one.
func TestStreamsOfOneSession(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, "")
	f.introduced(t)
	first := c.session.Listen()
	f.back.Await("GET", 1)
	second := c.session.Listen()
	edgetest.Until(t, "both streams", func() bool { return strings.Contains(string(c.Do("GET", "/status", "").Body), `"streams": 2`) })
	upstream := f.back.Session(f.back.Requests("GET")[0].Session)
	upstream.Push(`{"jsonrpc":"2.0","method":"notifications/one"}`)
	if m := second.NextMessage(); m.Method != "notifications/one" {
		t.Errorf("%+v", m)
	}
	second.Close()
	edgetest.Until(t, "one stream", func() bool { return strings.Contains(string(c.Do("GET", "/status", "").Body), `"streams": 1`) })
	upstream.Push(`{"jsonrpc":"2.0","method":"notifications/two"}`)
	if m := first.NextMessage(); m.Method != "notifications/two" {
		t.Errorf("the first stream got %+v", m)
	}
	if f.back.Count("GET") != 1 {
		t.Errorf("%d streams at the backend", f.back.Count("GET"))
	}
}

// The streams of a session end with it.
func TestStreamEndsWithItsSession(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, "")
	stream := c.session.Listen()
	f.back.Await("GET", 1)
	c.session.Delete()
	if all := stream.Rest(); len(all) != 0 {
		t.Errorf("%s", all)
	}
	f.back.Until("the end of the session at the backend", func() bool { return f.back.Count("DELETE") == 1 })
}

// A modern server's input_required and the client's retry pass as they are.
func TestInputRequiredOfAModernBackend(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	answer := `{"jsonrpc":"2.0", "id":"a","result":{ "resultType":"input_required","inputRequests":{"k\u0041":{"method":"elicitation/create","params":{"message":"m","x":1.0}}},` +
		`"requestState":"opaque é\/ 123" , "own":12345678901234567890}}`
	f.back.Once("tools/call", func(c *edgetest.Call) { c.JSON(200, answer) })
	caps := edgetest.Capabilities(asks)
	if r := f.client.Modern(`"a"`, "tools/call", edgetest.CallParams("echo", "{}"), caps); string(r.Answer()) != answer {
		t.Errorf("%s", r.Answer())
	}
	retry := `{"inputResponses":{"k\u0041":{"action":"accept","content":{"n":1.0}}},"name":"echo","requestState":"opaque é\/ 123","arguments":{}}`
	if r := f.client.Modern(`"b"`, "tools/call", retry, caps); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	last := f.back.Requests("tools/call")[1]
	same(t, "retry", without(members(t, string(last.Message.Params)), "_meta"), members(t, retry))
	if got := edgetest.Member(string(last.Message.Params), "_meta", "io.modelcontextprotocol/clientCapabilities"); got != asks {
		t.Errorf("capabilities %s", got)
	}
}

// Subscriptions of a modern client to a modern server pass as they are, both
// ends of them.
func TestSubscriptionsOfAModernBackend(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	events := []string{
		`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true}}}`,
		`{"jsonrpc":"2.0", "method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l","x":1.0}}}`,
	}
	next, gone := make(chan struct{}), make(chan struct{}, 1)
	script := func(c *edgetest.Call) {
		c.Event(events[0])
		if c.Wait(next) {
			c.Event(events[1])
			c.Result(`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}`)
			return
		}
		gone <- struct{}{}
	}
	f.back.Always("subscriptions/listen", script)
	params := `{"notifications":{"toolsListChanged":true, "own":1.0}}`
	r := f.client.Modern(`"l"`, "subscriptions/listen", params)
	if got := string(r.Next().Data); got != events[0] {
		t.Errorf("%s", got)
	}
	same(t, "params", without(members(t, string(f.back.Requests("subscriptions/listen")[0].Message.Params)), "_meta"), members(t, params))
	next <- struct{}{}
	if got := string(r.Next().Data); got != events[1] {
		t.Errorf("%s", got)
	}
	if got := r.Result(); got != `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}` {
		t.Errorf("%s", got)
	}
	// The client leaves: the backend's stream ends.
	r = f.client.Modern(`"l"`, "subscriptions/listen", params)
	r.Next()
	r.Close()
	edgetest.Receive(t, gone, "the end of the backend's stream")
}

// A modern server whose reader of JSON rounds numbers answers, tells of progress and of changes
// under numbers that it can keep; the client hears of all of it under its own.
func TestServerThatRoundsNumbers(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	rounded := func(number string) string {
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return number
		}
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	tagged := func(id string) string { return `{"io.modelcontextprotocol/subscriptionId":` + id + `}` }
	f.back.Always("subscriptions/listen", func(c *edgetest.Call) {
		id := rounded(c.ID())
		c.Event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":` + tagged(id) + `,"notifications":{"toolsListChanged":true}}}`)
		c.Event(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":` + tagged(id) + `}}`)
		c.Event(`{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete","_meta":` + tagged(id) + `}}`)
	})
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Notify("notifications/progress", `{"progressToken":`+rounded(c.Token())+`,"progress":1}`)
		c.Event(`{"jsonrpc":"2.0","id":` + rounded(c.ID()) + `,"result":{"resultType":"complete","content":[]}}`)
	})
	for _, number := range []string{"7", `"7.0"`, "9007199254740993", "123456789012345678901234567890"} {
		r := f.client.Modern(number, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
		all := r.Rest()
		if len(all) != 3 {
			t.Fatalf("%s: %d events: %s", number, len(all), all)
		}
		for i, e := range all {
			m := edgetest.Parse(t, e.Data)
			in := m.Params
			if i == 2 {
				in = m.Result
			}
			if got := edgetest.Member(string(in), "_meta"); got != tagged(number) || i == 2 && string(m.ID) != number {
				t.Errorf("%s: %s", number, e.Data)
			}
		}
	}
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		c := f.callerOf(t, client, "")
		for _, number := range []string{"7", "9007199254740993", "1.0", "-0", "1e2"} {
			all := c.call(t, "1", "{}", `"progressToken":`+number).Rest()
			if len(all) != 2 || edgetest.Member(string(edgetest.Parse(t, all[0].Data).Params), "progressToken") != number {
				t.Errorf("%s, progress token %s: %s", client, number, all)
			}
		}
	}
}

// A question that cannot be read is passed over, and the call that it came in goes on.
func TestQuestionThatCannotBeRead(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		for _, text := range []string{
			`{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"a","message":"b"}}`,
			`{"jsonrpc":"2.0","method":"roots/list","id":8,"params":7}`,
			`{"id":"9","jsonrpc":"2.0","method":"ping","x":"\ud800"}`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1,"data":2}}`,
		} {
			f.back.Once("tools/call", func(c *edgetest.Call) {
				c.Event(text)
				c.Result(`{"resultType":"complete","content":[]}`)
			})
			if m := c.call(t, "7", "{}").Message(); m.Error != nil {
				t.Errorf("%s: %+v", text, m.Error)
			}
		}
		for _, odd := range []string{`{"jsonrpc":"2.0","id":7,"method":"roots/list","params":5}`, `{"jsonrpc":"2.0","method":"notifications/message","params":5}`} {
			for _, form := range []string{`[%s,%s]`, `[%[2]s,%[1]s]`} {
				f.back.Once("tools/call", func(c *edgetest.Call) {
					c.Event(fmt.Sprintf(form, odd, `{"jsonrpc":"2.0","id":`+c.ID()+`,"result":{"resultType":"complete","content":[]}}`))
				})
				if m := c.call(t, "7", "{}").Message(); m.Error != nil {
					t.Errorf("%s with the answer, as %s: %+v", odd, form, m.Error)
				}
			}
		}
		if n := strings.Count(f.Log(), "passed over"); n != 1 {
			t.Errorf("the log says %d times that messages are passed over", n)
		}
		f.back.Once("tools/call", func(c *edgetest.Call) {
			c.Event(`{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{"method":"x","a":1,"a":2}}`)
		})
		if m := c.call(t, "7", "{}").Message(); m.Error == nil || m.Error.Code != 502 {
			t.Errorf("an answer that cannot be read: %+v", m)
		}
	})
}

// A server that waits for the answer to a question that cannot be read gets an error.
func TestQuestionThatCannotBeReadIsAnswered(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE} {
		f := newFront(t, era)
		c := f.callerOf(t, edgetest.Legacy, "")
		for params, code := range map[string]int{`null`: -32601, `[]`: -32602, `{"a":1,"a":2}`: -32700, `{"a":"\ud83d"}`: -32700} {
			said := make(chan edgetest.Message, 1)
			f.back.Once("tools/call", func(c *edgetest.Call) {
				said <- c.Ask("7", "roots/list", params)
				c.Result(`{"content":[]}`)
			})
			c.call(t, "1", "{}").Result()
			if m := edgetest.Receive(t, said, "the answer"); m.Error == nil || m.Error.Code != code {
				t.Errorf("%s, params %s: %+v", era, params, m.Error)
			}
		}
	}
}

// A backend that refuses the answer to its question ends the call that waits for it.
func TestAnswerThatIsNotTaken(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, asks)
	f.back.Always("response", func(c *edgetest.Call) { c.Text(404, "text/plain", "gone") })
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Event(`{"jsonrpc":"2.0","id":7,"method":"roots/list"}`)
		c.Wait(nil)
	})
	r := c.call(t, "1", "{}")
	c.session.Reply(r.NextMessage().ID, `{"roots":[]}`)
	if m := r.NextMessage(); m.Error == nil || !strings.Contains(m.Error.Message, "did not take the answer") {
		t.Errorf("%+v %+v", m, m.Error)
	}

	// One that goes on with the call all the same has not lost it.
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Event(`{"jsonrpc":"2.0","id":7,"method":"roots/list"}`)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for range 15 {
			<-tick.C
			c.Event(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1}}`)
		}
		c.Event(`{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{"content":[]}}`)
	})
	r = c.call(t, "3", "{}")
	c.session.Reply(r.NextMessage().ID, `{"roots":[]}`)
	m := r.NextMessage()
	for m.Method != "" {
		m = r.NextMessage()
	}
	if m.Result == nil {
		t.Errorf("%+v", m)
	}

	// One that refuses it otherwise may have given the question up, and goes on.
	for _, status := range []int{400, 429} {
		refused := make(chan struct{})
		f.back.Always("response", func(c *edgetest.Call) { c.Text(status, "text/plain", "no"); close(refused) })
		f.back.Always("tools/call", func(c *edgetest.Call) {
			c.Event(`{"jsonrpc":"2.0","id":8,"method":"roots/list"}`)
			<-refused
			c.Event(`{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{"content":[]}}`)
		})
		r := c.call(t, "2", "{}")
		c.session.Reply(r.NextMessage().ID, `{"roots":[]}`)
		if m := r.NextMessage(); m.Error != nil || m.Result == nil {
			t.Errorf("%d: %+v %+v", status, m, m.Error)
		}
	}
}

// An error of null beside a result is none, and the other way around; what is no message, or no result of the protocol,
// cannot be read.
func TestAnswersOfOddForm(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	for form, read := range map[string]bool{
		`{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"error":null}`: true,
		`{"id":ID,"result":{"content":[]}}`:                              false,
		`{"jsonrpc":"2.0","id":ID.0,"result":{"content":[]}}`:            false,
		`{"jsonrpc":"2.0","id":"ID","result":{"content":[]}}`:            false,
		`{"jsonrpc":"2.0","id":ID,"result":null}`:                        false,
		`{"jsonrpc":"2.0","id":ID,"result":"s"}`:                         false,
	} {
		f.back.Once("tools/call", func(c *edgetest.Call) { c.JSON(200, strings.ReplaceAll(form, "ID", c.ID())) })
		m := f.callerOf(t, edgetest.Modern, "").call(t, "1", "{}").Message()
		if read != (m.Error == nil) || !read && !strings.Contains(m.Error.Message, "cannot be read") {
			t.Errorf("%s: %s %+v", form, m.Result, m.Error)
		}
	}
	f.back.Once("tools/call", func(c *edgetest.Call) {
		c.JSON(200, `{"jsonrpc":"2.0","id":`+c.ID()+`,"result":null,"error":{"code":-32050,"message":"its own"}}`)
	})
	if m := f.callerOf(t, edgetest.Modern, "").call(t, "1", "{}").Message(); m.Error == nil || m.Error.Code != -32050 {
		t.Errorf("a result of null beside an error: %s %+v", m.Result, m.Error)
	}
}

// A modern server must not send requests on a stream; one that does is not
// heard, and the call goes on.
func TestRequestOnAModernStream(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Whole(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`, `{"jsonrpc":"2.0","id":`+c.ID()+`,"result":{"content":[]}}`)
	})
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		r := f.callerOf(t, era, asks).call(t, "1", "{}")
		if r.Stream() || r.Message().Error != nil {
			t.Errorf("%s: %s", era, r.Answer())
		}
	}
	if !strings.Contains(f.Log(), "sampling/createMessage") {
		t.Error("the log says nothing of it")
	}
}

// A stream that is opened while its session ends, ends with it.
func TestStreamOpenedAtTheEndOfItsSession(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	for range 150 {
		s := f.client.Initialize("")
		deleted := make(chan error, 1)
		go func() {
			_, err := s.Try("DELETE", "/mcp", "", "Mcp-Session-Id", s.ID)
			deleted <- err
		}()
		r := f.client.Do("GET", "/mcp", "", "Mcp-Session-Id", s.ID, "Accept", "text/event-stream")
		if err := edgetest.Receive(t, deleted, "the end of the session"); err != nil {
			t.Fatal(err)
		}
		if r.Status == 200 {
			r.Rest()
		}
	}
}

// A question that its server withdraws is withdrawn from the client, no answer to it is
// sent, and the clock of the call goes on.
func TestQuestionThatIsWithdrawn(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era)
			e := edgetest.Start(t, edgetest.Manifest(back, edgetest.Timeout(2*time.Second)))
			s := e.NewClient().Initialize(asks)
			back.Always("tools/call", func(c *edgetest.Call) {
				c.Event(`{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"why":",\"reason\":\"too \\\"late\\\"\""}}`)
				c.Event(`{"jsonrpc":"2.0","id":8,"method":"roots/list","params":{"why":""}}`)
				c.Notify("notifications/cancelled", `{"requestId":"q","reason":"too \"late\""}`)
				c.Notify("notifications/cancelled", `{"requestId":"8"}`)
				c.Notify("notifications/cancelled", `{"requestId":8}`)
				c.Wait(nil)
			})
			r := s.Call("1", "echo", "{}")
			want, told := map[string]bool{}, map[string]bool{}
			for range 4 {
				switch m := r.NextMessage(); m.Method {
				case "roots/list":
					var p struct{ Why string }
					if err := json.Unmarshal(m.Params, &p); err != nil {
						t.Fatal(err)
					}
					want[`{"requestId":`+string(m.ID)+p.Why+`}`] = true
				case "notifications/cancelled":
					told[string(m.Params)] = true
				}
			}
			if len(want) != 2 || !maps.Equal(told, want) {
				t.Errorf("told %v, want %v", told, want)
			}
			if m := r.Message(); m.Error == nil || m.Error.Code != 504 {
				t.Errorf("the call ended with %+v", m)
			}
			if got := back.Requests("response"); len(got) != 0 {
				t.Errorf("%d answers were sent, the first %s", len(got), got[0].Body)
			}
		})
	}
}
