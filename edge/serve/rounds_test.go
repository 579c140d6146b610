package serve_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// A modern server asks by saying that input is required. A legacy client is
// asked by requests on the stream of its call, and the edge retries with what
// it said.
func TestInputRequiredBecomesQuestions(t *testing.T) {
	t.Parallel()
	for _, door := range []string{"/mcp", "/sse"} {
		t.Run(door, func(t *testing.T) {
			t.Parallel()
			f := newFront(t, edgetest.Modern)
			f.back.Once("tools/call", func(c *edgetest.Call) {
				c.Result(`{"resultType":"input_required","inputRequests":{` +
					`"who":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object"},"x":1.0}},` +
					`"roots \"é":{"method":"roots/list"}},"requestState":"st\u00e4te 1"}`)
			})
			f.back.Once("tools/call", func(c *edgetest.Call) {
				c.Result(`{"resultType":"input_required","inputRequests":{"again":{"method":"sampling/createMessage","params":{"messages":[]}}}}`)
			})
			f.back.Once("tools/call", func(c *edgetest.Call) {
				c.Progress(5)
				c.Result(`{"resultType":"complete","content":[]}`)
			})
			params := `{"name":"echo","arguments":{"a":1.0},"_meta":{"progressToken":"t","vendor":1.0}}`
			var next func() edgetest.Message
			var reply func(id []byte, result string)
			if door == "/mcp" {
				s := f.client.Initialize(asks)
				r := s.Request(`"call"`, "tools/call", params)
				next, reply = r.NextMessage, s.Reply
			} else {
				s := f.client.OpenSSE()
				s.Initialize(asks)
				s.Request(`"call"`, "tools/call", params)
				next = s.Stream.NextMessage
				reply = func(id []byte, result string) {
					s.Accepted(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`)
				}
			}
			answers := map[string]string{
				"elicitation/create":     `{"action":"accept","content":{"n":12345678901234567890}}`,
				"roots/list":             `{"roots":[ 1.0 ]}`,
				"sampling/createMessage": `{"role":"assistant","model":"m"}`,
			}
			for range 2 {
				q := next()
				want := map[string]string{"elicitation/create": `{"message":"Who?","requestedSchema":{"type":"object"},"x":1.0}`, "roots/list": ""}
				if string(q.Params) != want[q.Method] {
					t.Errorf("%s %s", q.Method, q.Params)
				}
				reply(q.ID, answers[q.Method])
			}
			q := next()
			if q.Method != "sampling/createMessage" {
				t.Fatalf("%+v", q)
			}
			reply(q.ID, answers[q.Method])
			if m := next(); m.Method != "notifications/progress" || string(m.Params) != `{"progressToken":"t","progress":5}` {
				t.Errorf("%+v", m)
			}
			if m := next(); string(m.Result) != `{"content":[]}` || string(m.ID) != `"call"` {
				t.Errorf("%+v", m)
			}

			calls := f.back.Requests("tools/call")
			if len(calls) != 3 {
				t.Fatalf("%d calls", len(calls))
			}
			ids := map[string]bool{}
			for _, c := range calls {
				ids[string(c.Message.ID)] = true
			}
			if len(ids) != 3 {
				t.Errorf("ids are used again: %v", ids)
			}
			second, third := members(t, string(calls[1].Message.Params)), members(t, string(calls[2].Message.Params))
			rest := []member{{"name", `"echo"`}, {"arguments", `{"a":1.0}`}}
			same(t, "second", without(second, "_meta", "inputResponses", "requestState"), rest)
			same(t, "third", without(third, "_meta", "inputResponses", "requestState"), rest)
			for _, m := range second {
				switch m.name {
				case "requestState":
					if m.value != `"st\u00e4te 1"` {
						t.Errorf("state %s", m.value)
					}
				case "inputResponses":
					got := members(t, m.value)
					same(t, "responses", got, []member{{"who", answers["elicitation/create"]}, {`roots "é`, answers["roots/list"]}})
				case "_meta":
					if edgetest.Member(m.value, "vendor") != "1.0" || edgetest.Member(m.value, "progressToken") != `"t"` {
						t.Errorf("_meta %s", m.value)
					}
				}
			}
			text := string(calls[2].Message.Params)
			if edgetest.Member(text, "requestState") != "" || edgetest.Member(text, "inputResponses") != `{"again":`+answers["sampling/createMessage"]+`}` {
				t.Errorf("third %s", text)
			}
		})
	}
}

// A client that refuses an elicitation has cancelled it; one that refuses
// anything else, or cannot be asked, ends its call.
func TestInputThatIsRefused(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	required := func(method string) edgetest.Script {
		return func(c *edgetest.Call) {
			c.Result(`{"resultType":"input_required","inputRequests":{"k":{"method":"` + method + `","params":{}}},"requestState":"s"}`)
		}
	}
	s := f.client.Initialize(asks)

	f.back.Once("tools/call", required("elicitation/create"))
	r := s.Call("1", "echo", "{}")
	s.ReplyError(r.NextMessage().ID, `{"code":-1,"message":"no"}`)
	if r.Message().Error != nil {
		t.Error("the call failed")
	}
	calls := f.back.Requests("tools/call")
	if got := edgetest.Member(string(calls[1].Message.Params), "inputResponses"); got != `{"k":{"action":"cancel"}}` {
		t.Errorf("responses %s", got)
	}

	f.back.Once("tools/call", required("sampling/createMessage"))
	r = s.Call("2", "echo", "{}")
	s.ReplyError(r.NextMessage().ID, `{"code":-1,"message":"no"}`)
	if m := r.Message(); m.Error == nil || string(m.ID) != "2" {
		t.Errorf("%+v", m)
	}
	if n := f.back.Count("tools/call"); n != 3 {
		t.Errorf("%d calls", n)
	}

	f.back.Once("tools/call", required("roots/list"))
	r = s.Send(echo, "Accept", "application/json")
	if m := r.Message(); r.Stream() || m.Error == nil {
		t.Errorf("%+v", m)
	}
}

// A server that asks without end is given up.
func TestInputWithoutEnd(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Result(`{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}}}`)
	})
	s := f.client.Initialize(asks)
	r := s.Call("1", "echo", "{}")
	rounds := 0
	for {
		m := r.NextMessage()
		if m.Method == "" {
			if m.Error == nil || m.Error.Code != -32602 || !strings.Contains(m.Error.Message, "asked 10 times") {
				t.Errorf("%+v", m.Error)
			}
			break
		}
		rounds++
		s.Reply(m.ID, `{"roots":[]}`)
	}
	if rounds != 10 || f.back.Count("tools/call") != 11 {
		t.Errorf("%d rounds, %d calls", rounds, f.back.Count("tools/call"))
	}
}

// A server that wants the call again but asks nothing gets it again.
func TestInputRequiredWithoutQuestions(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	f.back.Once("tools/call", func(c *edgetest.Call) {
		c.Result(`{"resultType":"input_required","requestState":"later"}`)
	})
	if r := f.client.Initialize("").Call("1", "echo", "{}"); r.Message().Error != nil {
		t.Errorf("%s", r.Answer())
	}
	text := string(f.back.Requests("tools/call")[1].Message.Params)
	if edgetest.Member(text, "requestState") != `"later"` || edgetest.Member(text, "inputResponses") != "" {
		t.Errorf("%s", text)
	}
}

// A tool whose parameters a modern server wants mirrored in headers: the first
// call is told so, the edge looks at the tools and calls again, once; from
// then on the headers go along.
func TestParametersInHeaders(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern, func(s *edgetest.Server) {
		s.Tools = `[{"name":"other","inputSchema":{"type":"object"}},{"name":"echo","inputSchema":{"type":"object","properties":{` +
			`"region":{"type":"string","x-mcp-header":"Region"},"count":{"type":"integer","x-mcp-header":"Count"},"dry":{"type":"boolean","x-mcp-header":"Dry-Run"},` +
			`"deep":{"type":"object","properties":{"city":{"type":"string","x-mcp-header":"City"}}},"list":{"type":"array","items":{"properties":{"a":{"x-mcp-header":"No"}}}},` +
			`"bad":{"type":"string","x-mcp-header":"not a token"}}}}]`
	})
	ran := make(chan struct{}, 100)
	back.Always("tools/call", func(c *edgetest.Call) {
		h := c.Request.Header
		args := edgetest.Member(string(c.Message.Params), "arguments")
		if region := edgetest.Member(args, "region"); region != "" && h.Get("Mcp-Param-Region") == "" {
			c.Error(400, -32020, "Mcp-Param-Region is missing")
			return
		}
		ran <- struct{}{}
		c.Result(`{"resultType":"complete","content":[]}`)
	})
	e := edgetest.Start(t, edgetest.Manifest(back))
	s := e.NewClient().Initialize("")
	args := `{"region":"eu","count":9007199254740991,"dry":false,"deep":{"city":" Zürich"},"bad":"x","list":[{"a":"b"}]}`
	if m := s.Call("1", "echo", args).Message(); m.Error != nil {
		t.Fatalf("%+v", m.Error)
	}
	if len(ran) != 1 || back.Count("tools/call") != 2 || back.Count("tools/list") != 1 {
		t.Errorf("ran %d times of %d calls, %d lists", len(ran), back.Count("tools/call"), back.Count("tools/list"))
	}
	h := back.Requests("tools/call")[1].Header
	got := fmt.Sprint(h.Get("Mcp-Param-Region"), "|", h.Get("Mcp-Param-Count"), "|", h.Get("Mcp-Param-Dry-Run"), "|", h.Get("Mcp-Param-City"), "|", h.Get("Mcp-Param-No"))
	if want := "eu|9007199254740991|false|=?base64?IFrDvHJpY2g=?=|"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	back.Forget()
	for i, args := range []string{`{"region":"us"}`, `{"region":"a","count":null}`, `{}`} {
		s.Call(fmt.Sprint(i), "echo", args)
	}
	if len(ran) != 4 || back.Count("tools/call") != 3 || back.Count("tools/list") != 0 {
		t.Errorf("ran %d times of %d calls, %d lists", len(ran), back.Count("tools/call"), back.Count("tools/list"))
	}
	for name := range back.Requests("tools/call")[1].Header {
		if strings.HasPrefix(name, "Mcp-Param-") && name != "Mcp-Param-Region" {
			t.Errorf("%s for a value that is not there", name)
		}
	}
}

// Where a list has passed, the first call of a legacy client carries the headers already that its
// tool wants, also to a server that does not insist: whoever asked for the list, the edge among them.
func TestParametersInHeadersAfterAList(t *testing.T) {
	for _, lists := range []string{"a legacy client", "a modern client", "the edge"} {
		t.Run(lists, func(t *testing.T) {
			t.Parallel()
			back, other := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)
			back.Always("tools/list", func(c *edgetest.Call) {
				c.Result(`{"resultType":"complete","ttlMs":60000,"cacheScope":"private","tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}`)
			})
			yaml, name := edgetest.Manifest(back), "echo"
			if lists == "the edge" {
				yaml, name = group(map[string]*edgetest.Server{"a": back, "b": other}), "a_echo"
			}
			e := edgetest.Start(t, yaml)
			f := &front{Edge: e, client: e.NewClient()}
			c := f.callerOf(t, edgetest.Legacy, "")
			switch lists {
			case "a legacy client":
				c.request(t, "1", "tools/list", "").Result()
			case "a modern client":
				f.callerOf(t, edgetest.Modern, "").request(t, "1", "tools/list", "").Result()
			}
			c.request(t, "2", "tools/call", edgetest.CallParams(name, `{"a":"x"}`)).Result()
			if got := back.Requests("tools/call"); len(got) != 1 || got[0].Header.Get("Mcp-Param-A") != "x" {
				t.Errorf("%d calls, the first with Mcp-Param-A %q", len(got), got[0].Header.Get("Mcp-Param-A"))
			}
		})
	}
}

// A server that stays unhappy with the headers is believed the second time.
func TestHeaderMismatchThatStays(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	f.back.Always("tools/call", func(c *edgetest.Call) { c.Error(400, -32020, "still missing") })
	m := fails(t, f.client.Initialize("").Call("1", "echo", "{}"), 200, -32600, "1")
	if m.Error.Message != "still missing" || f.back.Count("tools/call") != 2 {
		t.Errorf("%q after %d calls", m.Error.Message, f.back.Count("tools/call"))
	}
	// A modern client has its own headers to answer for.
	f.back.Forget()
	fails(t, f.client.Modern("2", "tools/call", edgetest.CallParams("echo", "{}")), 400, -32020, "2")
	if n := f.back.Count("tools/call"); n != 1 {
		t.Errorf("%d calls for a modern client", n)
	}
}

// Before a modern server the edge is the client, which must not list a tool whose annotations
// of headers are not valid; a modern client judges that itself.
func TestToolsWithBadHeaders(t *testing.T) {
	t.Parallel()
	tool := func(name, header string) string {
		return `{"name":"` + name + `","inputSchema":{"type":"object","properties":{"p":{"type":"string","x-mcp-header":"` + header + `"}}}}`
	}
	back := edgetest.NewServer(t, edgetest.Modern, func(s *edgetest.Server) {
		s.Tools = `[{"name":"plain","inputSchema":{"type":"object"}},` + tool("bad", "A B") + `,` + tool("good", "Region") + `]`
	})
	f := &front{Edge: edgetest.Start(t, edgetest.Manifest(back)), back: back}
	for client, want := range map[edgetest.Era]string{edgetest.Legacy: "[plain good]", edgetest.Modern: "[plain bad good]"} {
		if got := fmt.Sprint(listed(t, f.callerOf(t, client, ""))); got != want {
			t.Errorf("a %s client is told of %s, want %s", client, got, want)
		}
	}
}

// A legacy client subscribes to resources of a modern server, and hears of
// changes on its own stream.
func TestSubscriptionsAcrossEras(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	streams := make(chan chan string, 8) // of each stream, in order
	f.back.Always("subscriptions/listen", func(c *edgetest.Call) {
		wish := edgetest.Member(string(c.Message.Params), "notifications")
		if strings.Contains(wish, "bad:1") {
			c.Error(200, -32602, "no such resource")
			return
		}
		events := make(chan string, 8)
		streams <- events
		id := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + c.ID() + `}`
		c.Event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{` + id + `,"notifications":` + strings.Replace(wish, `,"left:out"`, "", 1) + `}}`)
		for {
			select {
			case method := <-events:
				c.Event(`{"jsonrpc":"2.0","method":"` + method + `","params":{"uri":"a:b","x":1.0,` + id + `}}`)
			case <-c.Gone():
				return
			}
		}
	})
	s := f.client.Initialize("")
	stream := s.Listen()
	edgetest.Receive(t, streams, "the first stream")
	if got := s.Request("1", "resources/subscribe", `{"uri":"a:b"}`).Result(); got != "{}" {
		t.Errorf("%s", got)
	}
	last := f.back.Await("subscriptions/listen", 2)
	if got := edgetest.Member(string(last.Message.Params), "notifications"); got != `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a:b"]}` {
		t.Errorf("%s", got)
	}
	events := edgetest.Receive(t, streams, "the second stream")
	events <- "notifications/resources/updated"
	m := stream.NextMessage()
	if m.Method != "notifications/resources/updated" || edgetest.Member(string(m.Params), "uri") != `"a:b"` || edgetest.Member(string(m.Params), "x") != "1.0" ||
		strings.Contains(string(m.Params), "subscriptionId") {
		t.Errorf("%s %s", m.Method, m.Params)
	}
	events <- "notifications/tools/list_changed"
	if m := stream.NextMessage(); m.Method != "notifications/tools/list_changed" {
		t.Errorf("%+v", m)
	}
	if got := s.Request("2", "resources/unsubscribe", `{"uri":"a:b"}`).Result(); got != "{}" {
		t.Errorf("%s", got)
	}
	last = f.back.Await("subscriptions/listen", 3)
	if got := edgetest.Member(string(last.Message.Params), "notifications", "resourceSubscriptions"); got != "" {
		t.Errorf("%s", got)
	}
	events = edgetest.Receive(t, streams, "the third stream")
	events <- "notifications/resources/updated" // not wished for any longer
	events <- "notifications/prompts/list_changed"
	if m := stream.NextMessage(); m.Method != "notifications/prompts/list_changed" {
		t.Errorf("%+v", m)
	}
	// What the server refuses, or leaves out, is refused, and takes nothing else away.
	heard := func(what string) {
		t.Helper()
		edgetest.Receive(t, streams, what) <- "notifications/resources/updated"
		if m := stream.NextMessage(); m.Method != "notifications/resources/updated" {
			t.Errorf("%s: %+v", what, m)
		}
	}
	s.Request("3", "resources/subscribe", `{"uri":"a:b"}`).Result()
	heard("the fourth stream")
	fails(t, s.Request("4", "resources/subscribe", `{"uri":"bad:1"}`), 200, -32602, "4")
	heard("the stream after one that was refused")
	fails(t, s.Request("5", "resources/subscribe", `{"uri":"left:out"}`), 200, -32602, "5")
	heard("the stream that leaves out a resource")
	f.back.Once("subscriptions/listen", func(c *edgetest.Call) { c.Error(200, -32603, "not now") })
	s.Request("6", "resources/subscribe", `{"uri":"c:d"}`).Result()
	heard("the stream after a failure")
}

// A modern client listens to a legacy server: acknowledged first, and every
// event under its own subscription.
func TestListeningAcrossEras(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era)
			f.back.Always("resources/subscribe", func(c *edgetest.Call) {
				if edgetest.Member(string(c.Message.Params), "uri") == `"no:such"` {
					c.Error(200, -32002, "not found")
					return
				}
				c.Result("{}")
			})
			r := f.client.Modern(`"l1"`, "subscriptions/listen", `{"notifications":{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["a:b","no:such"]}}`)
			const tag = `{"io.modelcontextprotocol/subscriptionId":"l1"}`
			ack := r.NextMessage()
			if ack.Method != "notifications/subscriptions/acknowledged" || edgetest.Member(string(ack.Params), "_meta") != tag {
				t.Errorf("%s %s", ack.Method, ack.Params)
			}
			same(t, "honoured", members(t, edgetest.Member(string(ack.Params), "notifications")),
				members(t, `{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}`))
			upstream := f.back.Session(f.back.Requests("resources/subscribe")[0].Session)
			upstream.Push(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
			upstream.Push(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"other:one"}}`)
			upstream.Push(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			upstream.Push(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			upstream.Push(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b","x":1.0}}`)
			if m := r.NextMessage(); m.Method != "notifications/tools/list_changed" || edgetest.Member(string(m.Params), "_meta") != tag {
				t.Errorf("%s %s", m.Method, m.Params)
			}
			if m := r.NextMessage(); edgetest.Member(string(m.Params), "uri") != `"a:b"` || edgetest.Member(string(m.Params), "x") != "1.0" || edgetest.Member(string(m.Params), "_meta") != tag {
				t.Errorf("%s %s", m.Method, m.Params)
			}
			if era == edgetest.Legacy { // the session of the older transport is its stream
				known := len(f.back.Sessions())
				f.back.Drop()
				f.back.Until("a new session that is listened to", func() bool {
					for _, one := range f.back.Sessions()[known:] {
						if one.Listening() {
							upstream = one
							return true
						}
					}
					return false
				})
				var uris []string
				for _, r := range f.back.Requests("resources/subscribe") {
					if r.Session == upstream.ID {
						uris = append(uris, edgetest.Member(string(r.Message.Params), "uri"))
					}
				}
				if strings.Join(uris, " ") != `"a:b"` {
					t.Errorf("the new session is subscribed to %s", uris)
				}
				upstream.Push(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}`)
				if m := r.NextMessage(); edgetest.Member(string(m.Params), "uri") != `"a:b"` {
					t.Errorf("%s %s", m.Method, m.Params)
				}
			}
			// The client leaves: its session at the server ends.
			r.Close()
			f.back.Until("the end of the session", upstream.Ended)
		})
	}
}

// A client that is asked and says nothing holds its call no longer than any call may last.
func TestInputThatNobodyGives(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern, edgetest.Settings(func(s *serve.Settings) { s.CallCap = time.Second }))
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Result(`{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"s"}`)
	})
	r := f.client.Initialize(asks).Call("1", "echo", "{}")
	for _, want := range []string{"roots/list", "notifications/cancelled", ""} {
		m := r.NextMessage()
		if m.Method != want || want == "" && (m.Error == nil || string(m.ID) != "1" || !strings.Contains(m.Error.Message, "in time")) {
			t.Fatalf("%+v %v, want %q", m, m.Error, want)
		}
	}
	edgetest.Until(t, "room", func() bool { return f.Serve.Inflight() == 0 })
}

// What a modern backend asks and a client does not answer as it needs is told to that client, and
// does not close the backend to others.
func TestClientThatAnswersBadly(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	e := edgetest.Start(t, edgetest.Manifest(back, "operational: {failureHandling: {circuitBreaker: {enabled: true, failureThreshold: 2, timeout: 60s}}}"))
	form := `{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}}`
	var many strings.Builder
	for i := range 1001 {
		fmt.Fprintf(&many, `,"%d":%s`, i, form)
	}
	for _, one := range []struct{ name, caps, asks, want string }{
		{"accepts without what is required", asks, `"k":` + form, "asked 10 times for input"},
		{"cannot be asked", `{}`, `"k":` + form, "asks for elicitation/create, which this client cannot do"},
		{"is asked too much", asks, many.String()[1:], "asks 1001 questions at once"},
	} {
		back.Always("tools/call", func(c *edgetest.Call) {
			c.Result(`{"resultType":"input_required","inputRequests":{` + one.asks + `},"requestState":"s"}`)
		})
		s := e.NewClient().Initialize(one.caps)
		for range 3 {
			r := s.Call("1", "echo", "{}")
			for {
				var m edgetest.Message
				if r.Stream() {
					m = r.NextMessage()
				} else {
					m = r.Message()
				}
				if m.Method != "" {
					s.Reply(m.ID, `{"action":"accept","content":{}}`)
					continue
				}
				if m.Error == nil || m.Error.Code != -32602 || !strings.Contains(m.Error.Message, one.want) {
					t.Fatalf("a client that %s: %+v %+v", one.name, m, m.Error)
				}
				break
			}
		}
	}
	back.Always("tools/call", func(c *edgetest.Call) { c.Result(`{"resultType":"complete","content":[]}`) })
	e.NewClient().Initialize("").Call("1", "echo", "{}").Result()
	if status := string(e.NewClient().Do("GET", "/status", "").Body); !strings.Contains(status, `"circuitBreakerState": "closed"`) {
		t.Errorf("the breaker: %s", status)
	}
}
