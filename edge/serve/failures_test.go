package serve_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// A backend that is down or keeps silent, in both eras.
func TestBackendThatFails(t *testing.T) {
	t.Parallel()
	type cell struct {
		name   string
		break_ func(*edgetest.Server)
		legacy [2]int // status and code
		modern [2]int
		says   string

		silence time.Duration
	}
	silent := func(c *edgetest.Call) { c.Wait(nil) }
	for _, c := range []cell{
		{"is down", func(s *edgetest.Server) { s.Close() }, [2]int{200, 502}, [2]int{502, 502}, `backend "back" unavailable`, time.Minute},
		{"closes the connection", func(s *edgetest.Server) { s.Always("tools/call", (*edgetest.Call).Abort) }, [2]int{200, 502}, [2]int{502, 502}, `backend "back" unavailable`, time.Minute},
		{"keeps silent", func(s *edgetest.Server) { s.Always("tools/call", silent) }, [2]int{200, 504}, [2]int{504, 504}, `backend "back" timed out`, 3 * time.Second},
		{"answers 500", func(s *edgetest.Server) {
			s.Always("tools/call", func(c *edgetest.Call) { c.Text(500, "text/plain", "secret internals") })
		}, [2]int{200, 502}, [2]int{502, 502}, `backend "back" unavailable`, time.Minute},
		{"wants a credential", func(s *edgetest.Server) {
			s.Always("tools/call", func(c *edgetest.Call) { c.Text(401, "text/plain", "secret internals") })
		}, [2]int{200, 502}, [2]int{502, 502}, `backend "back" unavailable`, time.Minute},
	} {
		for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(c.name+", "+era.String(), func(t *testing.T) {
				t.Parallel()
				back := edgetest.NewServer(t, era, func(s *edgetest.Server) { s.Address = edgetest.FreeAddress(t) })
				e := edgetest.Start(t, edgetest.Manifest(back, edgetest.Timeout(c.silence)))
				f := &front{Edge: e, back: back, client: e.NewClient()}
				s := f.client.Initialize("")
				if m := s.Call("0", "echo", `{}`).Message(); m.Error != nil {
					t.Fatal(m.Error)
				}
				f.introduced(t)
				c.break_(back)
				m := fails(t, s.Call("1", "echo", `{}`), c.legacy[0], c.legacy[1], "1")
				n := fails(t, f.client.Modern(`"m"`, "tools/call", edgetest.CallParams("echo", `{}`)), c.modern[0], c.modern[1], `"m"`)
				if m.Error.Message != c.says || n.Error.Message != c.says {
					t.Errorf("%q and %q in place of %q", m.Error.Message, n.Error.Message, c.says)
				}
			})
		}
	}
}

// An answer that is no JSON, or none that everybody reads alike, is told as such, and the log says
// once a minute why, without a word of it.
func TestAnswerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era)
			s := f.client.Initialize("")
			for i, result := range []string{`{"structuredContent":{"secret":1,"secret":2}}`, `{"content":[{"type":"text","text":"secret\ud83d"}]}`} {
				for _, way := range []func(*edgetest.Call, string){(*edgetest.Call).Event, func(c *edgetest.Call, text string) { c.JSON(200, text) }} {
					f.back.Once("tools/call", func(c *edgetest.Call) { way(c, `{"jsonrpc":"2.0","id":`+c.ID()+`,"result":`+result+`}`) })
					if m := fails(t, s.Call("1", "echo", `{}`), 200, 502, "1"); m.Error.Message != `backend "back" gave an answer that cannot be read` {
						t.Errorf("result %d: %s", i, m.Error.Message)
					}
				}
			}
			log := f.Log()
			if strings.Count(log, "an answer cannot be read") != 1 || !strings.Contains(log, "an object with a duplicate name at byte ") || strings.Contains(log, "secret") {
				t.Error(log)
			}
		})
	}
}

// A notification has no answer that could carry an error: the status says that
// it was not taken (2025-11-25, basic/transports: an HTTP error status).
func TestNotificationThatTheBackendDoesNotTake(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	s := f.client.Initialize("")
	s.Call("1", "echo", `{}`)
	f.back.Always("notifications/roots/list_changed", func(c *edgetest.Call) { c.Text(500, "", "") })
	r := s.Send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	if r.Status != 502 {
		t.Errorf("status %d: %s, want 502", r.Status, r.Body)
	}
}

// Once a stream is open the status stays 200 and the error is its last event.
func TestErrorOnAnOpenStream(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, client := range []string{"legacy", "modern"} {
			t.Run(client+" client, "+era.String()+" backend", func(t *testing.T) {
				t.Parallel()
				f := newFront(t, era)
				f.back.Always("tools/call", func(c *edgetest.Call) {
					c.Progress(1)
					c.Abort()
				})
				params := `{"name":"echo","arguments":{},"_meta":{"progressToken":"p"}}`
				var r *edgetest.Response
				if client == "legacy" {
					r = f.client.Initialize("").Request("1", "tools/call", params)
				} else {
					r = f.client.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), `"progressToken":"p"`)
				}
				all := r.Rest()
				if r.Status != 200 || len(all) != 2 {
					t.Fatalf("status %d, %d events", r.Status, len(all))
				}
				if m := edgetest.Parse(t, all[0].Data); m.Method != "notifications/progress" {
					t.Errorf("first %s", all[0].Data)
				}
				if m := edgetest.Parse(t, all[1].Data); m.Error == nil || m.Error.Code != 502 || string(m.ID) != "1" {
					t.Errorf("last %s", all[1].Data)
				}
				if f.back.Count("tools/call") != 1 {
					t.Errorf("the call was sent %d times", f.back.Count("tools/call"))
				}
			})
		}
	}
}

// More exchanges than there is room for are refused at once and told when to
// come back.
func TestTooManyExchanges(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxInflight = 1 }))
	s := f.client.Initialize("")
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	f.back.Always("tools/call", func(c *edgetest.Call) {
		entered <- struct{}{}
		c.Wait(leave)
		c.Result(`{"content":[]}`)
	})
	first := make(chan *edgetest.Response, 1)
	go func() {
		r, _ := s.TrySend(echo)
		first <- r
	}()
	edgetest.Receive(t, entered, "the first call")
	for id, head := range map[string][]string{"1": {"Mcp-Session-Id", s.ID}, "": modernHead("tools/call", "echo")} {
		r := f.client.Post(echo, head...)
		fails(t, r, 503, 503, id)
		if r.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q", r.Header.Get("Retry-After"))
		}
	}
	close(leave)
	if r := edgetest.Receive(t, first, "the first answer"); r == nil || r.Status != 200 {
		t.Errorf("the first call: %+v", r)
	}
	edgetest.Until(t, "room", func() bool { return s.Request("2", "ping", "").Status == 200 })
}

// A server's question must be answered even when there is no room for more
// exchanges: the exchange that waits for it is one of those that fill it.
func TestAnswersPassAFullEdge(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxInflight = 1 }))
	s := f.client.Initialize(`{"roots":{}}`)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		m := c.Ask("1", "roots/list", "")
		c.Result(`{"content":[],"roots":` + string(m.Result) + `}`)
	})
	r := s.Call("1", "echo", `{}`)
	q := r.NextMessage()
	s.Reply(q.ID, `{"roots":[]}`)
	if got := r.Result(); !strings.Contains(got, `{"roots":[]}`) {
		t.Error(got)
	}
}

// With no room for a session the one that is idle for longest makes it; when
// all of them have something under way the next one waits.
func TestTooManySessions(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxSessions = 2 }))
	a := f.client.Initialize("")
	stream := a.Listen()
	defer stream.Close()
	b := f.client.Initialize("")
	b.Call("1", "echo", "{}")
	upstream := f.back.Requests("tools/call")[0].Session
	c := f.client.Initialize("")
	fails(t, b.Request("1", "ping", ""), 404, -32001, "1")
	if r := a.Request("1", "ping", ""); r.Status != 200 {
		t.Errorf("the session with a stream was ended: status %d", r.Status)
	}
	f.back.Until("the end of the session at the backend", func() bool { return f.back.Session(upstream) == nil })
	other := c.Listen()
	defer other.Close()
	r := f.client.Post(handshake)
	fails(t, r, 503, 503, "1")
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	other.Close()
	edgetest.Until(t, "room for a session", func() bool { return f.client.Post(handshake).Status == 200 })
}

// More streams than a client may have open are refused.
func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxStreams = 2 }))
	s := f.client.Initialize("")
	one, two := s.Listen(), s.Listen()
	defer one.Close()
	r := f.client.Do("GET", "/mcp", "", "Mcp-Session-Id", s.ID, "Accept", "text/event-stream")
	fails(t, r, 503, 503, "")
	fails(t, f.client.Do("GET", "/sse", "", "Accept", "text/event-stream"), 503, 503, "")
	two.Close()
	edgetest.Until(t, "room for a stream", func() bool {
		r := f.client.Do("GET", "/mcp", "", "Mcp-Session-Id", s.ID, "Accept", "text/event-stream")
		r.Close()
		return r.Status == http.StatusOK
	})
}

// A session ends with DELETE, and then it is gone for good.
func TestDelete(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	s := f.client.Initialize("")
	if r := s.Delete(); r.Status != 200 || len(r.Body) > 0 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	fails(t, s.Request("1", "ping", ""), 404, -32001, "1")
	fails(t, s.Delete(), 404, -32001, "")
	fails(t, f.client.Do("GET", "/mcp", "", "Mcp-Session-Id", s.ID, "Accept", "text/event-stream"), 404, -32001, "")
}

// An edge whose backend has never been there still answers what needs none.
func TestWithoutABackend(t *testing.T) {
	t.Parallel()
	e := edgetest.Start(t, edgetest.ManifestFor("http://"+edgetest.FreeAddress(t)+"/mcp", compile.StreamableHTTP))
	c := e.NewClient()
	s := c.Initialize("")
	if r := s.Request("1", "ping", ""); string(r.Body) != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("ping: %s", r.Body)
	}
	fails(t, s.Request("2", "tools/list", ""), 200, 502, "2")
	if r := c.Modern("3", "server/discover", ""); r.Status != 200 || !strings.Contains(r.Result(), `"supportedVersions":["2026-07-28"`) {
		t.Errorf("server/discover: status %d: %s", r.Status, r.Body)
	}
	fails(t, c.Modern("4", "tools/list", ""), 502, 502, "4")
}

// TestBackendLimitsTheRate: a client of a backend that answers 429, or 503 with Retry-After, is told
// so, and when it may ask again; a step that is to be tried again waits so long.
func TestBackendLimitsTheRate(t *testing.T) {
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composed(t, back, `compositeTools:
- name: flow
  steps: [{id: a, tool: back.echo, arguments: {text: x}, onError: {action: retry, retryCount: 1, retryDelay: 10ms}}]`)
		c := f.callerOf(t, client, "")
		refuses := func(status int, after string) {
			f.back.Once("tools/call", func(c *edgetest.Call) {
				if after != "" {
					c.Header().Set("Retry-After", after)
				}
				c.Text(status, "text/plain", "slow down")
			})
		}
		busy := func(after string) { refuses(429, after) }
		for given, want := range map[string]string{"7": "7", "": "", "soon": "", "-1": "", "99999999": "86400", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): ""} {
			busy(given)
			r := c.request(t, "1", "tools/call", edgetest.CallParams("echo", `{"text":"x"}`))
			fails(t, r, 429, 429, "1")
			data := ""
			if want != "" {
				data = `{"retryAfterSeconds":` + want + `}`
			}
			if m := r.Message(); r.Header.Get("Retry-After") != want || string(m.Error.Data) != data || m.Error.Message != `backend "back" limits the rate` {
				t.Errorf("%q: Retry-After %q, %s", given, r.Header.Get("Retry-After"), r.Body)
			}
		}
		refuses(503, "8")
		r := c.request(t, "1", "tools/call", edgetest.CallParams("echo", `{"text":"x"}`))
		fails(t, r, 503, 503, "1")
		if r.Header.Get("Retry-After") != "8" || !strings.Contains(string(r.Body), `{"retryAfterSeconds":8}`) {
			t.Errorf("Retry-After %q, %s", r.Header.Get("Retry-After"), r.Body)
		}
		// So is one that says it with an error of JSON-RPC, whatever its id and code.
		for _, status := range []int{429, 503} {
			for _, id := range []string{`"id":ID,`, `"id":null,`, ""} {
				for _, code := range []int{-32000, status} {
					f.back.Once("tools/call", func(c *edgetest.Call) {
						c.Header().Set("Retry-After", "1")
						c.JSON(status, `{"jsonrpc":"2.0",`+strings.Replace(id, "ID", c.ID(), 1)+fmt.Sprintf(`"error":{"code":%d,"message":"slow down"}}`, code))
					})
					r := c.request(t, "1", "tools/call", edgetest.CallParams("echo", `{"text":"x"}`))
					fails(t, r, status, status, "1")
					if m := r.Message(); r.Header.Get("Retry-After") != "1" || string(m.Error.Data) != `{"retryAfterSeconds":1}` || !strings.HasSuffix(m.Error.Message, ": slow down") {
						t.Errorf("%d %s%d: Retry-After %q, %s", status, id, code, r.Header.Get("Retry-After"), r.Body)
					}
				}
			}
		}
		// Without Retry-After nobody has to wait, and the error is the backend's own.
		for _, id := range []string{`"id":ID,`, `"id":null,`, ""} {
			f.back.Once("tools/call", func(c *edgetest.Call) {
				c.JSON(429, `{"jsonrpc":"2.0",`+strings.Replace(id, "ID", c.ID(), 1)+`"error":{"code":-32050,"message":"quota","data":{"k":1}}}`)
			})
			if m := c.request(t, "1", "tools/call", edgetest.CallParams("echo", `{"text":"x"}`)).Message(); m.Error == nil || m.Error.Code != -32050 || string(m.Error.Data) != `{"k":1}` {
				t.Errorf("%s %+v", id, m.Error)
			}
		}
		for _, status := range []int{429, 503} {
			refuses(status, "1")
			began := time.Now()
			got := c.tool(t, "2", "flow", "{}")
			if took := time.Since(began); !strings.Contains(got, `"structuredContent":{"text":"x"}`) || took < time.Second {
				t.Errorf("%d: after %s: %s", status, took, got)
			}
			f.back.Once("tools/call", func(c *edgetest.Call) {
				c.Header().Set("Retry-After", "1")
				c.JSON(status, `{"jsonrpc":"2.0","id":`+c.ID()+`,"error":{"code":-32000,"message":"slow down"}}`)
			})
			began = time.Now()
			got = c.tool(t, "2", "flow", "{}")
			if took := time.Since(began); !strings.Contains(got, `"structuredContent":{"text":"x"}`) || took < time.Second {
				t.Errorf("%d in JSON-RPC: after %s: %s", status, took, got)
			}
		}
	})
}
