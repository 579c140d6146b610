package items_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// A session of a client keeps one session of its own at each backend, and an
// edge that shares no store with the first knows neither the session nor a
// state that the first sealed, and says so.
func TestItem01(t *testing.T) {
	t.Parallel()
	const asks = `{"elicitation":{"form":{}}}`
	f := open(t, servers{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.Legacy)})
	var clients []caller
	for range 3 {
		clients = append(clients, f.as(edgetest.Legacy, ""))
	}
	for round := range 4 {
		for i, c := range clients {
			for _, name := range []string{"a", "b"} {
				c.CallTool(fmt.Sprint(round), name+"_echo", fmt.Sprintf(`{"client":%d}`, i)).Result()
			}
		}
	}
	for name, back := range f.backs {
		of := map[string]string{} // the session at the backend, by client
		for _, r := range back.Requests("tools/call") {
			who := param(r, "arguments", "client")
			if of[who] == "" {
				of[who] = r.Session
			}
			if r.Session == "" || r.Session != of[who] {
				t.Errorf("%s: client %s came in session %q after %q", name, who, r.Session, of[who])
			}
		}
		if of["0"] == of["1"] || of["1"] == of["2"] || of["0"] == of["2"] {
			t.Errorf("%s: clients share a session: %v", name, of)
		}
	}

	// Another edge.
	f.backs["a"].Once("tools/call", func(c *edgetest.Call) {
		c.Ask("9", "elicitation/create", `{"message":"?","requestedSchema":{"type":"object","properties":{}}}`)
		c.Result(`{"content":[]}`)
	})
	first := f.as(edgetest.Modern, asks).CallTool("1", "a_echo", "{}").Result()
	state := edgetest.Member(first, "requestState")
	if state == "" {
		t.Fatalf("no state: %s", first)
	}
	other := open(t, f.backs)
	before := f.backs["a"].Count("tools/call")
	params := edgetest.CallParams("a_echo", "{}")
	modern := other.as(edgetest.Modern, asks)
	fails(t, modern.Ask("2", "tools/call", params[:len(params)-1]+`,"requestState":`+state+`,"inputResponses":{"input_1":{"action":"accept","content":{}}}}`), 400, -32602)
	stranger := caller{edgetest.Caller{Client: other.NewClient(), Session: clients[0].Session}}
	fails(t, stranger.CallTool("3", "a_echo", "{}"), 404, -32001)
	if n := f.backs["a"].Count("tools/call"); n != before {
		t.Errorf("the backend got %d calls from an edge that does not know the client", n-before)
	}
}

// Whether there is a session is a matter of each backend: of those behind one
// edge, one with sessions, one that hands none out, one of the older transport
// and one of the newest revision serve the same client.
func TestItem02(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := open(t, servers{
				"full":  edgetest.NewServer(t, edgetest.Legacy),
				"plain": edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Sessionless = true }),
				"new":   edgetest.NewServer(t, edgetest.Modern),
				"old":   edgetest.NewServer(t, edgetest.SSE),
			})
			c := f.as(era, "")
			for round := range 2 {
				for name := range f.backs {
					c.CallTool(fmt.Sprint(round), name+"_echo", "{}").Result()
				}
			}
			for name, back := range f.backs {
				calls := back.Requests("tools/call")
				if len(calls) != 2 {
					t.Fatalf("%s got %d calls", name, len(calls))
				}
				for _, r := range calls {
					if with := name == "full" || name == "old"; (r.Session != "") != with {
						t.Errorf("%s: a call in session %q", name, r.Session)
					}
				}
			}
		})
	}
}

// A backend that answers the question of the newest revision with anything else
// than that revision's own errors is asked to initialize, and what it offers is
// listed beside the offers of the others.
func TestItem03(t *testing.T) {
	t.Parallel()
	backs := servers{"modern": edgetest.NewServer(t, edgetest.Modern), "sse": edgetest.NewServer(t, edgetest.SSE)}
	for name, script := range map[string]edgetest.Script{
		"empty400": func(c *edgetest.Call) { c.Text(400, "", "") },
		"session":  func(c *edgetest.Call) { c.Error(400, -32000, "Bad Request: Server not initialized") },
		"params":   func(c *edgetest.Call) { c.Error(400, -32602, "Invalid request parameters") },
		"method":   func(c *edgetest.Call) { c.Error(200, -32601, "Method not found") },
		"html404":  func(c *edgetest.Call) { c.Text(404, "text/html", "<!DOCTYPE html><pre>Cannot POST /mcp</pre>") },
		"text405":  func(c *edgetest.Call) { c.Text(405, "text/plain", "Method Not Allowed") },
		"stateful": func(c *edgetest.Call) {
			c.Result(`{"supportedVersions":["2025-11-25","2025-06-18"],"capabilities":{}}`)
		},
		"supported": func(c *edgetest.Call) {
			c.JSON(400, `{"jsonrpc":"2.0","id":`+c.ID()+`,"error":{"code":-32022,"message":"m","data":`+`{"supported":["2025-11-25"],"requested":"2026-07-28"}`+`}}`)
		},
	} {
		backs[name] = edgetest.NewServer(t, edgetest.Legacy)
		backs[name].Always("server/discover", script)
	}
	f := open(t, backs)
	for _, era := range eras {
		c := f.as(era, "")
		var want []string
		for _, name := range names(backs) {
			want = append(want, name+"_echo")
		}
		if got := c.tools(t); got != strings.Join(want, " ") {
			t.Errorf("%s: tools %s, want %s", era, got, want)
		}
		for _, name := range want {
			c.CallTool("1", name, "{}").Result()
		}
	}
}

// A session that a backend has lost is opened anew and the call that found out
// goes there, once; the client's session and those at other backends go on.
func TestItem04(t *testing.T) {
	for name, lost := range map[string]edgetest.Lost{"404": edgetest.LostNotFound, "400": edgetest.LostBadRequest, "text": edgetest.LostText, "echo": edgetest.LostEcho} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Lost = lost })
			b := edgetest.NewServer(t, edgetest.Legacy)
			f := open(t, servers{"a": a, "b": b})
			for _, era := range eras {
				c := f.as(era, "")
				c.CallTool("1", "a_echo", "{}").Result()
				c.CallTool("2", "b_echo", "{}").Result()
				kept := b.Requests("tools/call")
				a.Drop()
				before := a.Count("tools/call")
				if text := c.CallTool("3", "a_echo", `{"again":1}`).Result(); !strings.Contains(text, "again") {
					t.Errorf("%s: %s", era, text)
				}
				calls := a.Requests("tools/call")
				if n := len(calls) - before; n < 1 || n > 2 {
					t.Errorf("%s: %d requests for a call", era, n)
				}
				if a.Session(calls[len(calls)-1].Session) == nil {
					t.Errorf("%s: the call went to session %s, which is lost", era, calls[len(calls)-1].Session)
				}
				c.CallTool("4", "b_echo", "{}").Result()
				if all := b.Requests("tools/call"); all[len(all)-1].Session != kept[len(kept)-1].Session {
					t.Errorf("%s: the other backend's session went, too", era)
				}
			}
		})
	}
}

// A session is whose it is: a guess, an ended one and one of another server
// lead nowhere by any HTTP method, whatever backends they name; and no two
// clients share a session of a backend, those without a session included.
func TestItem05(t *testing.T) {
	t.Parallel()
	f := open(t, servers{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.SSE)})
	one, two := f.as(edgetest.Legacy, ""), f.as(edgetest.Legacy, "")
	for _, c := range []caller{one, two} {
		c.CallTool("1", "a_echo", "{}").Result()
		c.CallTool("2", "b_echo", "{}").Result()
	}
	for name, back := range f.backs {
		if calls := back.Requests("tools/call"); calls[0].Session == calls[1].Session {
			t.Errorf("%s: two clients share session %s", name, calls[0].Session)
		}
	}
	own := f.backs["a"].Requests("tools/call")[0].Session
	ended := f.as(edgetest.Legacy, "")
	if r := ended.Session.Delete(); r.Status != 200 && r.Status != 204 {
		t.Fatalf("DELETE: status %d", r.Status)
	}
	f.backs["a"].Forget()
	for what, id := range map[string]string{
		"a guess": strings.Repeat("A", len(one.Session.ID)), "one that ended": ended.Session.ID,
		"the backend's own": own, "the beginning of one": one.Session.ID[:len(one.Session.ID)-1],
	} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			body, head := "", []string{"Mcp-Session-Id", id, "MCP-Protocol-Version", edgetest.LegacyVersion, "Accept", "application/json, text/event-stream"}
			if method == "POST" {
				body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a_echo","arguments":{}}}`
			}
			r := f.NewClient().Do(method, "/mcp", body, head...)
			if r.Status != 404 && r.Status != 400 || r.Stream() {
				t.Errorf("%s %s: status %d: %s", method, what, r.Status, r.Body)
			}
		}
	}
	if n := f.backs["a"].Count("tools/call") + f.backs["a"].Count("DELETE"); n != 0 {
		t.Errorf("the backend heard of it %d times", n)
	}
	one.CallTool("3", "a_echo", "{}").Result() // is as it was
}

// What a backend asks reaches the client whose call it belongs to, on that
// call's stream, and the answer comes back under the backend's own id, though
// all backends and clients choose the same ids; a client that cannot be asked
// has the backend told so, and is not left waiting.
func TestItem06(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.SSE)
	for _, s := range []*edgetest.Server{a, b} {
		s.Always("tools/call", func(c *edgetest.Call) {
			who := param(c.Request, "arguments", "who")
			if who == "" {
				who = `"nobody"`
			}
			m := c.Ask("1", "sampling/createMessage", `{"messages":[],"maxTokens":1,"systemPrompt":`+who+`}`)
			if m.Error != nil {
				c.Result(fmt.Sprintf(`{"content":[],"refused":%d}`, m.Error.Code))
				return
			}
			c.Result(`{"content":[],"asked":` + who + `,"said":` + string(m.Result) + `}`)
		})
	}
	f := open(t, servers{"a": a, "b": b})
	var open []*edgetest.Response
	var clients []caller
	for i := range 4 {
		c := f.as(edgetest.Legacy, `{"sampling":{}}`)
		clients = append(clients, c)
		open = append(open, c.CallTool("1", []string{"a_echo", "b_echo"}[i%2], fmt.Sprintf(`{"who":"client %d"}`, i)))
	}
	questions := make([]edgetest.Message, len(open))
	for i, r := range open {
		questions[i] = r.NextMessage()
		if want := fmt.Sprintf(`"client %d"`, i); edgetest.Member(string(questions[i].Params), "systemPrompt") != want {
			t.Errorf("client %d was asked %s", i, questions[i].Params)
		}
	}
	for i := len(open) - 1; i >= 0; i-- {
		clients[i].Session.Reply(questions[i].ID, fmt.Sprintf(`{"from":%d}`, i))
		m := open[i].NextMessage()
		if edgetest.Member(string(m.Result), "said", "from") != fmt.Sprint(i) || edgetest.Member(string(m.Result), "asked") != fmt.Sprintf(`"client %d"`, i) {
			t.Errorf("client %d got %s", i, m.Result)
		}
	}
	for _, era := range eras {
		c := f.as(era, "")
		for _, name := range []string{"a_echo", "b_echo"} {
			if text := c.CallTool("1", name, "{}").Result(); edgetest.Member(text, "refused") != "-32601" {
				t.Errorf("%s client, %s: %s", era, name, text)
			}
		}
	}
	// What the client cannot do is not declared to the backend in its name.
	for _, r := range a.Requests("initialize") {
		if caps := param(r, "capabilities"); caps != "{}" && edgetest.Member(caps, "sampling") == "" {
			t.Errorf("declared to the backend: %s", caps)
		}
	}
}

// A modern backend's input_required goes to a modern client with a state that
// only the edge can read and that leads back to the backend of that call alone;
// to a legacy client as questions; and a backend that needs what the client
// cannot do has its error passed on.
func TestItem07(t *testing.T) {
	t.Parallel()
	const asks = `{"elicitation":{"form":{}}}`
	const question = `{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`
	a, b := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)
	for name, s := range map[string]*edgetest.Server{"a": a, "b": b} {
		s.Always("tools/call", func(c *edgetest.Call) {
			if param(c.Request, "requestState") != "" {
				c.Result(`{"resultType":"complete","content":[],"state":` + param(c.Request, "requestState") + `,"responses":` + param(c.Request, "inputResponses") + `}`)
				return
			}
			if edgetest.Member(param(c.Request, "_meta", "io.modelcontextprotocol/clientCapabilities"), "elicitation") == "" {
				c.JSON(400, `{"jsonrpc":"2.0","id":`+c.ID()+`,"error":{"code":-32021,"message":"needs elicitation","data":{"requiredCapabilities":{"elicitation":{}}}}}`)
				return
			}
			c.Result(`{"resultType":"input_required","inputRequests":{"q":` + question + `},"requestState":"state of ` + name + `"}`)
		})
	}
	f := open(t, servers{"a": a, "b": b})
	c := f.as(edgetest.Modern, asks)
	states := map[string]string{}
	for _, name := range []string{"a", "b"} {
		first := c.CallTool("1", name+"_echo", "{}").Result()
		states[name] = edgetest.Member(first, "requestState")
		if edgetest.Member(first, "resultType") != `"input_required"` || edgetest.Member(first, "inputRequests", "q") != question || strings.Contains(states[name], "state of") {
			t.Fatalf("%s: %s", name, first)
		}
	}
	retry := func(name, state string) *edgetest.Response {
		params := edgetest.CallParams(name+"_echo", "{}")
		return c.Ask("2", "tools/call", params[:len(params)-1]+`,"inputResponses":{"q":{"action":"decline"}},"requestState":`+state+`}`)
	}
	fails(t, retry("a", states["b"]), 400, -32602)
	fails(t, retry("b", `"state of b"`), 400, -32602)
	for name, state := range states {
		out := retry(name, state).Result()
		if edgetest.Member(out, "state") != `"state of `+name+`"` || edgetest.Member(out, "responses") != `{"q":{"action":"decline"}}` {
			t.Errorf("%s: %s", name, out)
		}
	}
	m := fails(t, f.as(edgetest.Modern, "").CallTool("3", "a_echo", "{}"), 400, -32021)
	if m.Error != nil && edgetest.Member(string(m.Error.Data), "requiredCapabilities") != `{"elicitation":{}}` {
		t.Errorf("%s", m.Error.Data)
	}

	legacy := f.as(edgetest.Legacy, asks)
	r := legacy.CallTool("4", "b_echo", "{}")
	asked := r.NextMessage()
	if asked.Method != "elicitation/create" {
		t.Fatalf("%+v", asked)
	}
	legacy.Session.Reply(asked.ID, `{"action":"accept","content":{"n":9007199254740993}}`)
	if out := string(r.NextMessage().Result); edgetest.Member(out, "responses", "q", "content", "n") != "9007199254740993" || edgetest.Member(out, "resultType") != "" {
		t.Errorf("%s", out)
	}
	// -32021 is a code of the newest revision, which a legacy client does not know.
	fails(t, f.as(edgetest.Legacy, "").CallTool("5", "b_echo", "{}"), 200, -32600)
}
