package backend_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/serve"
)

func start(t *testing.T, era edgetest.Era, options ...edgetest.Option) (*edgetest.Server, *edgetest.Edge, *edgetest.Client) {
	t.Helper()
	back := edgetest.NewServer(t, era)
	e := edgetest.Start(t, edgetest.Manifest(back), options...)
	return back, e, e.NewClient()
}

// introduced waits until the edge has a session of its own with a legacy
// server.
func introduced(back *edgetest.Server) {
	back.Await("notifications/initialized", 1)
}

// Every client session has an upstream session of its own, which is opened by
// its first request that needs one and introduces the client.
func TestSessionPerClient(t *testing.T) {
	t.Parallel()
	back, e, _ := start(t, edgetest.Legacy)
	introduced(back)
	a, b := e.NewClient().Initialize(`{"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"mimeTypes":["x/y"], "x":1.0}}}`), e.NewClient().InitializeAs("2025-06-18", `{"sampling":{},"experimental":{"x":{}}}`)
	a.Request("1", "ping", "")
	b.Request("1", "ping", "")
	a.Notify("notifications/roots/list_changed", "")
	if n := len(back.Sessions()); n != 1 {
		t.Errorf("%d sessions before the first request that needs one", n)
	}
	for range 3 {
		a.Call("1", "echo", `{"who":"a"}`)
		b.Call("1", "echo", `{"who":"b"}`)
	}
	if n := len(back.Sessions()); n != 3 {
		t.Errorf("%d sessions for two clients", n-1)
	}
	who := map[string]string{}
	for _, r := range back.Requests("tools/call") {
		name := edgetest.Member(string(r.Message.Params), "arguments", "who")
		if who[r.Session] == "" {
			who[r.Session] = name
		}
		if who[r.Session] != name {
			t.Errorf("session %s is shared", r.Session)
		}
	}
	inits := back.Requests("initialize")
	for i, want := range []string{
		`{"protocolVersion":"2025-11-25","capabilities":{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["x/y"], "x":1.0}},"roots":{}},"clientInfo":{"name":"edgetest","version":"1"}}`,
		`{"protocolVersion":"2025-06-18","capabilities":{"sampling":{}},"clientInfo":{"name":"edgetest","version":"1"}}`,
	} {
		if got := string(inits[i+1].Message.Params); got != want {
			t.Errorf("initialize %s\nwant %s", got, want)
		}
	}
	for _, r := range back.Requests("tools/call") {
		want := map[string]string{`"a"`: "2025-11-25", `"b"`: "2025-06-18"}[who[r.Session]]
		if got := r.Header.Get("MCP-Protocol-Version"); got != want {
			t.Errorf("version %s of %s", got, who[r.Session])
		}
	}
	if n := back.Count("notifications/initialized"); n != 3 {
		t.Errorf("%d times initialized", n)
	}
	// Notifications reach the server once it has met the client.
	a.Notify("notifications/roots/list_changed", "")
	if got := back.Requests("notifications/roots/list_changed"); len(got) != 1 || who[got[0].Session] != `"a"` {
		t.Errorf("%d notifications", len(got))
	}
}

// A backend of either era learns that a client shows apps. Modern clients that do share their
// sessions with a legacy one, and are told of nothing else by them.
func TestClientsThatShowApps(t *testing.T) {
	t.Parallel()
	const apps = `{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`
	t.Run("legacy backend", func(t *testing.T) {
		t.Parallel()
		back, e, _ := start(t, edgetest.Legacy)
		introduced(back)
		for _, caps := range []string{apps, strings.Replace(apps, `"]`, `","x/y"],"x":1`, 1)} {
			e.NewClient().Modern("1", "tools/list", "", edgetest.Capabilities(caps)).Result()
			e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Capabilities(caps)).Result()
		}
		e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Capabilities(strings.Replace(apps, "text/html", "x/y", 1))).Result()
		if all := back.Requests("initialize"); len(all) != 2 || edgetest.Member(string(all[1].Message.Params), "capabilities") != apps {
			t.Errorf("%d sessions, the last by %s", len(all), all[len(all)-1].Body)
		}
		if n := back.Count("GET"); n != 0 {
			t.Errorf("%d streams for clients that cannot be asked", n)
		}
	})
	t.Run("modern backend", func(t *testing.T) {
		t.Parallel()
		back, _, c := start(t, edgetest.Modern)
		c.Initialize(apps).Call("1", "echo", "{}").Result()
		if got := edgetest.Member(string(back.Requests("tools/call")[0].Message.Params), "_meta", "io.modelcontextprotocol/clientCapabilities"); got != apps {
			t.Errorf("%s", got)
		}
	})
}

// Calls that come at once share one opening of their session.
func TestSessionIsOpenedOnce(t *testing.T) {
	t.Parallel()
	back, e, _ := start(t, edgetest.Legacy)
	introduced(back)
	s := e.NewClient().Initialize("")
	back.Forget()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r, err := s.TrySend(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{}}}`, i))
			if err != nil || r.Status != 200 {
				t.Errorf("call %d: %v %+v", i, err, r)
			}
		})
	}
	all.Wait()
	if back.Count("initialize") != 1 || back.Count("tools/call") != 20 {
		t.Errorf("%d sessions for %d calls", back.Count("initialize"), back.Count("tools/call"))
	}
}

// Modern clients have no sessions: their plain calls share one.
func TestModernClientsShareASession(t *testing.T) {
	t.Parallel()
	back, e, _ := start(t, edgetest.Legacy)
	introduced(back)
	var all sync.WaitGroup
	for n := range 4 {
		c := e.NewClient()
		all.Go(func() {
			for i := range 10 {
				r, err := c.TryModern("1", "tools/call", edgetest.CallParams("echo", fmt.Sprintf(`{"n":%d,"i":%d}`, n, i)))
				want := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"{\"n\":%d,\"i\":%d}"}]}}`, n, i)
				if err != nil || string(r.Body) != want {
					t.Errorf("%v %s, want %s", err, r.Body, want)
				}
			}
		})
	}
	all.Wait()
	if n := back.Count("initialize"); n != 1 {
		t.Errorf("%d sessions", n)
	}
	ids := map[string]bool{}
	for _, r := range back.Requests("tools/call") {
		if ids[string(r.Message.ID)] {
			t.Errorf("id %s is used twice in one session", r.Message.ID)
		}
		ids[string(r.Message.ID)] = true
	}
}

// A server that lost a session, in whatever way it says so, gets the client's
// introduction once more, and the call once more, and the client notices
// nothing.
func TestLostSessionIsOpenedAgain(t *testing.T) {
	t.Parallel()
	for lost, name := range map[edgetest.Lost]string{
		edgetest.LostNotFound: "404", edgetest.LostBadRequest: "400 of the TypeScript SDK", edgetest.LostText: "404 with text of the Go SDK", edgetest.LostEcho: "404 with the id",
	} {
		for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(name+", "+client.String()+" client", func(t *testing.T) {
				t.Parallel()
				back := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Lost = lost })
				e := edgetest.Start(t, edgetest.Manifest(back))
				introduced(back)
				c := e.NewClient()
				call := func(id string) *edgetest.Response {
					return c.Modern(id, "tools/call", edgetest.CallParams("echo", `{"id":`+id+`}`))
				}
				if client == edgetest.Legacy {
					s := c.Initialize("")
					s.Request("8", "logging/setLevel", `{"level":"notice"}`)
					s.Request("9", "resources/subscribe", `{"uri":"a:b"}`)
					s.Request("10", "resources/subscribe", `{"uri":"c:d"}`)
					s.Request("11", "resources/unsubscribe", `{"uri":"c:d"}`)
					call = func(id string) *edgetest.Response { return s.Call(id, "echo", `{"id":`+id+`}`) }
				}
				call("1")
				for round := range 3 {
					back.Drop()
					back.Forget()
					id := fmt.Sprint(round + 2)
					want := `{"type":"text","text":"{\"id\":` + id + `}"}`
					if got := edgetest.Member(call(id).Result(), "content"); got != "["+want+"]" {
						t.Errorf("round %d: %s", round, got)
					}
					sent := back.Requests("tools/call")
					if len(sent) != 2 || sent[0].Session == sent[1].Session || string(sent[0].Body) != string(sent[1].Body) && client == edgetest.Legacy {
						t.Errorf("round %d: the call was sent %d times", round, len(sent))
					}
					if back.Count("initialize") != 1 || back.Count("notifications/initialized") != 1 {
						t.Errorf("round %d: initialize %d times", round, back.Count("initialize"))
					}
					if client == edgetest.Modern {
						continue
					}
					levels, subs := back.Requests("logging/setLevel"), back.Requests("resources/subscribe")
					if len(levels) != 1 || edgetest.Member(string(levels[0].Message.Params), "level") != `"notice"` || levels[0].Session != sent[1].Session {
						t.Errorf("round %d: level set %d times", round, len(levels))
					}
					if len(subs) != 1 || edgetest.Member(string(subs[0].Message.Params), "uri") != `"a:b"` || subs[0].Session != sent[1].Session {
						t.Errorf("round %d: subscribed %d times", round, len(subs))
					}
				}
			})
		}
	}
}

// A session that is lost again at once is an error, not a loop.
func TestSessionThatIsLostAgain(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Legacy)
	introduced(back)
	s := c.Initialize("")
	s.Call("1", "echo", "{}")
	back.Always("tools/call", func(c *edgetest.Call) {
		c.JSON(404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
	})
	back.Forget()
	m := s.Call("2", "echo", "{}").Message()
	if m.Error == nil || m.Error.Code != 502 || back.Count("tools/call") != 2 || back.Count("initialize") != 1 {
		t.Errorf("%+v after %d calls and %d openings", m, back.Count("tools/call"), back.Count("initialize"))
	}
	// The client's own session is still there, and works once the server does.
	back.Always("tools/call", nil)
	if m := s.Call("3", "echo", "{}").Message(); m.Error != nil {
		t.Errorf("%+v", m.Error)
	}
}

// The stream of a session that the server lost, in whatever way it says so, is
// opened again in the new one, also where it is refused for a while.
func TestStreamAfterALostSession(t *testing.T) {
	t.Parallel()
	later := func(status int) edgetest.Script { return func(c *edgetest.Call) { c.Text(status, "", "") } }
	for name, one := range map[string]struct {
		lost edgetest.Lost
		then edgetest.Script // of the first stream of the new session
	}{
		"404":      {edgetest.LostNotFound, nil},
		"404, id":  {edgetest.LostEcho, nil},
		"400":      {edgetest.LostBadRequest, nil},
		"404, 503": {edgetest.LostNotFound, later(503)},
		"404, 502": {edgetest.LostNotFound, later(502)},
		"400, 429": {edgetest.LostBadRequest, later(429)},
	} {
		for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(name+", "+client.String()+" client", func(t *testing.T) {
				t.Parallel()
				back := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Lost = one.lost })
				e := edgetest.Start(t, edgetest.Manifest(back))
				introduced(back)
				c := e.NewClient()
				var stream *edgetest.Response
				if client == edgetest.Legacy {
					s := c.Initialize("")
					s.Request("1", "resources/subscribe", `{"uri":"a:b"}`)
					stream = s.Listen()
				} else {
					stream = c.Modern("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
					if m := stream.NextMessage(); m.Method != "notifications/subscriptions/acknowledged" {
						t.Fatalf("%+v", m)
					}
				}
				hears := func(of int) {
					t.Helper()
					back.Sessions()[of].Push(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
					if m := stream.NextMessage(); m.Method != "notifications/tools/list_changed" {
						t.Errorf("%+v", m)
					}
				}
				hears(1)
				if one.then != nil {
					back.Once("GET", one.then)
				}
				back.Drop()
				back.Until("a new session", func() bool { return len(back.Sessions()) == 3 })
				hears(2)
				if n := back.Count("resources/subscribe"); client == edgetest.Legacy && n != 2 {
					t.Errorf("subscribed %d times", n)
				}
			})
		}
	}
}

// A server that has no route for GET says 404 of it, as of a session that it has lost: asked in the
// session, it still has it, and what is said in one call holds in the next.
func TestServerWithoutARouteForGET(t *testing.T) {
	t.Parallel()
	for _, sessionless := range []bool{false, true} {
		for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(fmt.Sprintf("%s client, sessionless %t", client, sessionless), func(t *testing.T) {
				t.Parallel()
				back := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Sessionless = sessionless })
				back.Always("GET", func(c *edgetest.Call) { c.Text(404, "text/html", "<pre>Cannot GET /mcp</pre>") })
				e := edgetest.Start(t, edgetest.Manifest(back))
				introduced(back)
				c := e.NewClient()
				if client == edgetest.Legacy {
					s := c.Initialize("")
					stream := s.Listen()
					defer stream.Close()
					back.Await("GET", 1)
					s.Call("1", "echo", "{}").Result()
					time.Sleep(time.Second) // for what must not happen
					s.Call("2", "echo", "{}").Result()
				} else {
					stream := c.Modern("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
					defer stream.Close()
					if m := stream.NextMessage(); m.Method != "notifications/subscriptions/acknowledged" {
						t.Fatalf("%+v", m)
					}
					back.Await("GET", 1)
					time.Sleep(time.Second)
				}
				if n, gets := back.Count("initialize"), back.Count("GET"); n != 2 || gets != 1 {
					t.Errorf("initialized %d times, asked for the stream %d times", n, gets)
				}
				if calls := back.Requests("tools/call"); len(calls) == 2 && calls[0].Session != calls[1].Session {
					t.Error("the second call was in another session")
				}
			})
		}
	}
}

// A server that had the stream and says 404 of it for a while is asked for it again.
func TestStreamThatIsNotFoundForAWhile(t *testing.T) {
	t.Parallel()
	for _, sessionless := range []bool{false, true} {
		back := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Sessionless = sessionless })
		e := edgetest.Start(t, edgetest.Manifest(back))
		introduced(back)
		back.Once("GET", func(c *edgetest.Call) {
			c.Raw("retry: 20\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/one\"}\n\n")
		})
		back.Once("GET", func(c *edgetest.Call) { c.Text(404, "", "") })
		back.Once("GET", func(c *edgetest.Call) {
			c.Raw("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/two\"}\n\n")
			c.Wait(nil)
		})
		stream := e.NewClient().Initialize("").Listen()
		for _, want := range []string{"notifications/one", "notifications/two"} {
			if m := stream.NextMessage(); m.Method != want {
				t.Errorf("sessionless %t: %+v, want %s", sessionless, m, want)
			}
		}
		if n := back.Count("initialize"); n != 2 {
			t.Errorf("sessionless %t: initialized %d times", sessionless, n)
		}
		stream.Close()
	}
}

// A server that refuses to go on from an event with 400 still has the session.
func TestStreamFromAnUnknownEvent(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Legacy)
	introduced(back)
	back.Once("GET", func(c *edgetest.Call) {
		c.Raw("id: e1\nretry: 20\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/one\"}\n\n")
	})
	back.Once("GET", func(c *edgetest.Call) {
		if got := c.Request.Header.Get("Last-Event-ID"); got != "e1" {
			t.Errorf("from %q", got)
		}
		c.Error(400, -32000, "Invalid event ID format")
	})
	stream := c.Initialize("").Listen()
	if m := stream.NextMessage(); m.Method != "notifications/one" {
		t.Errorf("%+v", m)
	}
	back.Sessions()[1].Push(`{"jsonrpc":"2.0","method":"notifications/two"}`)
	if m := stream.NextMessage(); m.Method != "notifications/two" || len(back.Sessions()) != 2 {
		t.Errorf("%+v in session %d", m, len(back.Sessions()))
	}
}

// Who opens its stream while a backend is away hears it when it is back.
func TestStreamBeforeABackend(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Legacy)
	introduced(back)
	s := c.Initialize("")
	back.Once("initialize", func(c *edgetest.Call) { c.Text(503, "", "") })
	stream := s.Listen()
	back.Until("a session that is listened to", func() bool { all := back.Sessions(); return len(all) == 2 && all[1].Listening() })
	back.Sessions()[1].Push(`[{"jsonrpc":"2.0","method":"notifications/one"},{"jsonrpc":"2.0","method":"notifications/two"}]`)
	for _, want := range []string{"notifications/one", "notifications/two"} { // a batch, as 2025-03-26 has them
		if m := stream.NextMessage(); m.Method != want {
			t.Errorf("%+v, want %s", m, want)
		}
	}
}

// listenedTo waits for a session at a server whose own stream is read, and returns it.
func listenedTo(back *edgetest.Server) *edgetest.ServerSession {
	heard := func(s *edgetest.ServerSession) bool { return s.Listening() }
	back.Until("a session that is listened to", func() bool { return slices.ContainsFunc(back.Sessions(), heard) })
	return back.Sessions()[slices.IndexFunc(back.Sessions(), heard)]
}

// Params of null are none on a session's own stream, too.
func TestNullsOnTheOwnStream(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Legacy)
	stream := c.Initialize("").Listen()
	s := listenedTo(back)
	s.Push(`{"jsonrpc":"2.0","method":"notifications/one","params":null}`)
	s.Push(`[{"jsonrpc":"2.0","method":"notifications/two","params":null}]`)
	s.Push(`{"jsonrpc":"2.0","method":"notifications/three"}`)
	for _, want := range []string{"notifications/one", "notifications/two", "notifications/three"} {
		if m := stream.NextMessage(); m.Method != want {
			t.Errorf("%+v, want %s", m, want)
		}
	}
}

// What cannot be read on a session's own stream is passed over as on that of a call, and a question
// among it is answered.
func TestUnreadableOnTheOwnStream(t *testing.T) {
	t.Parallel()
	back, e, c := start(t, edgetest.Legacy)
	stream := c.Initialize("").Listen()
	s := listenedTo(back)
	for i, text := range []string{
		`{"jsonrpc":"2.0","id":"q","method":"roots/list","params":[1]}`,
		`[{"jsonrpc":"2.0","id":"q","method":"roots/list","params":[1]}]`,
	} {
		s.Push(text)
		if m := back.Await("response", i+1).Message; string(m.ID) != `"q"` || m.Error == nil || m.Error.Code != -32602 {
			t.Errorf("%s: %+v", text, m)
		}
	}
	s.Push(`[{"jsonrpc":"2.0","method":"notifications/one","params":[1]},{"jsonrpc":"2.0","method":"notifications/two"}]`)
	if m := stream.NextMessage(); m.Method != "notifications/two" {
		t.Errorf("%+v", m)
	}
	if !strings.Contains(e.Log(), "passed over") {
		t.Error("the log says nothing of it")
	}
}

// The upstream session ends with the client's: by DELETE, by age, and with the
// edge.
func TestEndOfASession(t *testing.T) {
	t.Parallel()
	t.Run("DELETE", func(t *testing.T) {
		t.Parallel()
		back, _, c := start(t, edgetest.Legacy)
		introduced(back)
		s := c.Initialize("")
		s.Call("1", "echo", "{}")
		upstream := back.Requests("tools/call")[0].Session
		s.Delete()
		d := back.Await("DELETE", 1)
		if d.Session != upstream || d.Header.Get("MCP-Protocol-Version") != s.Version {
			t.Errorf("DELETE of %s (%s), the session was %s", d.Session, d.Header.Get("MCP-Protocol-Version"), upstream)
		}
		back.Until("the end of the session", func() bool { return back.Live() == 1 })
		if n := back.Count("DELETE"); n != 1 {
			t.Errorf("%d times DELETE", n)
		}
	})
	t.Run("DELETE with a call under way", func(t *testing.T) {
		t.Parallel()
		back, e, c := start(t, edgetest.Legacy)
		s, other := c.Initialize(""), e.NewClient().Initialize("")
		entered, told, taken := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
		back.Once("tools/call", func(c *edgetest.Call) {
			c.Progress(1)
			entered <- struct{}{}
			c.Wait(nil)
		})
		back.Always("notifications/cancelled", func(c *edgetest.Call) {
			close(told)
			<-taken
			c.Accept()
		})
		r := s.Request("1", "tools/call", `{"name":"echo","_meta":{"progressToken":1}}`)
		edgetest.Receive(t, entered, "the call")
		s.Delete()
		if all := r.Rest(); len(all) != 2 || !strings.Contains(string(all[1].Data), `"the session has ended"`) { // who reads the stream may not be who ended it
			t.Errorf("%d events: %s", len(all), all)
		}
		edgetest.Receive(t, told, "the cancellation")
		for n := range 20 { // a DELETE that does not wait for the answer comes before theirs
			other.Call(fmt.Sprint(n), "echo", "{}")
		}
		if back.Count("DELETE") != 0 {
			t.Error("the session ended before the server had taken the cancellation of its call")
		}
		close(taken)
		back.Await("DELETE", 1)
	})
	t.Run("age", func(t *testing.T) {
		t.Parallel()
		back, _, c := start(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.SessionTTL = time.Second }))
		introduced(back)
		s := c.Initialize("")
		s.Call("1", "echo", "{}")
		upstream := back.Requests("tools/call")[0].Session
		if d := back.Await("DELETE", 1); d.Session != upstream {
			t.Errorf("DELETE of %s", d.Session)
		}
		if r := s.Request("2", "ping", ""); r.Status != 404 {
			t.Errorf("status %d", r.Status)
		}
	})
	t.Run("the end of the edge", func(t *testing.T) {
		t.Parallel()
		back, e, c := start(t, edgetest.Legacy)
		introduced(back)
		c.Initialize("").Call("1", "echo", "{}")
		c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), `"`+edgetest.LogLevel+`":"info"`)
		e.Stop()
		if n := back.Live(); n != 0 {
			t.Errorf("%d sessions of %d are left", n, len(back.Sessions()))
		}
	})
}

// A session that something is under way in does not age.
func TestSessionInUseDoesNotAge(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.SessionTTL = time.Second }))
	introduced(back)
	busy, idle := c.Initialize(""), c.Initialize("")
	stream := busy.Listen()
	back.Await("GET", 1)
	idle.Call("1", "echo", "{}")
	back.Await("DELETE", 1) // of the idle one
	if r := busy.Request("1", "ping", ""); r.Status != 200 {
		t.Errorf("status %d", r.Status)
	}
	stream.Close()
}

// A server without session ids works like any other.
func TestServerWithoutSessionIDs(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Sessionless = true })
	e := edgetest.Start(t, edgetest.Manifest(back))
	c := e.NewClient()
	s := c.Initialize("")
	if r := s.Call("1", "echo", "{}"); r.Message().Error != nil {
		t.Errorf("%s", r.Answer())
	}
	if r := c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}")); r.Message().Error != nil {
		t.Errorf("%s", r.Answer())
	}
	s.Delete()
	e.Stop()
	if back.Count("DELETE") != 0 {
		t.Error("DELETE of no session")
	}
	for _, r := range back.Requests("tools/call") {
		if _, ok := r.Header["Mcp-Session-Id"]; ok {
			t.Errorf("session %q", r.Session)
		}
	}
}

// A client whose method a server does not know has it asked anew what it speaks.
// What others have under way in the session that they share goes on, and so does
// the session.
func TestZ04SessionInUseIsKept(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	back.Always("server/discover", func(c *edgetest.Call) { c.Error(404, -32601, "Method not found") })
	back.Always("x/unknown", func(c *edgetest.Call) {
		c.JSON(404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}`)
	})
	release := make(chan struct{})
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Wait(release)
		c.Result(`{"content":[]}`)
	})
	b := direct(t, back)
	if _, err := b.Introduced(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	call := func(id string) error {
		r, err := b.Handle(t.Context(), modern(t, id, "tools/call", `{"name":"x","arguments":{},"_meta":{}}`, make(ears)))
		if err == nil && r.Kind != mcp.Result {
			err = fmt.Errorf("%s", r.Raw)
		}
		return err
	}
	done := make(chan error, 1)
	go func() { done <- call("1") }()
	under := back.Session(back.Await("tools/call", 1).Session)
	if r, err := b.Handle(t.Context(), modern(t, "2", "x/unknown", `{"_meta":{}}`, make(ears))); err != nil || r.Code() != mcp.CodeMethodNotFound {
		t.Errorf("an unknown method: %+v, %v", r, err)
	}
	back.Await("DELETE", 1) // the session that the server was asked in
	if back.Count("initialize") != 2 || back.Count("DELETE") != 1 {
		t.Errorf("%d times initialize, %d times DELETE", back.Count("initialize"), back.Count("DELETE"))
	}
	if under == nil || under.Ended() {
		t.Error("the session with a call under way was ended")
	}
	close(release)
	if err := edgetest.Receive(t, done, "the answer"); err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if err := call("3"); err != nil {
		t.Error(err)
	}
	if r := back.Await("tools/call", 2); under != nil && r.Session != under.ID {
		t.Error("the next call is not in the session of the one before")
	}
}
