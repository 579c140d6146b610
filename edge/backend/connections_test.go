package backend_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// caller makes calls of a client of one era; it fails the test for an error.
func caller(t *testing.T, c *edgetest.Client, era edgetest.Era) func(id int) {
	if era == edgetest.Legacy {
		s := c.Initialize("")
		return func(id int) {
			t.Helper()
			if r := s.Call(fmt.Sprint(id), "echo", fmt.Sprintf(`{"n":%d}`, id)); r.Message().Error != nil {
				t.Errorf("call %d: %s", id, r.Answer())
			}
		}
	}
	return func(id int) {
		t.Helper()
		if r := c.Modern(fmt.Sprint(id), "tools/call", edgetest.CallParams("echo", fmt.Sprintf(`{"n":%d}`, id))); r.Message().Error != nil {
			t.Errorf("call %d: %s", id, r.Answer())
		}
	}
}

// A call costs the backend one request, and no connection: no handshake, no
// listing, no probe goes with it, however the answer comes.
func TestCostOfACall(t *testing.T) {
	t.Parallel()
	const calls = 100
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
			for _, answer := range []string{"JSON", "event", "event with a length", "progress and event"} {
				if era == edgetest.SSE && answer != "JSON" {
					continue
				}
				t.Run(client.String()+" client, "+era.String()+" backend, "+answer, func(t *testing.T) {
					t.Parallel()
					back, _, c := start(t, era)
					call := caller(t, c, client)
					text := func(c *edgetest.Call) string {
						return `{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{"resultType":"complete","content":[]}}`
					}
					switch answer {
					case "event":
						back.Always("tools/call", func(c *edgetest.Call) { c.Whole(text(c)) })
					case "event with a length":
						back.Always("tools/call", func(c *edgetest.Call) {
							c.Text(200, "text/event-stream", "data: "+text(c)+"\n\n")
						})
					case "progress and event":
						back.Always("tools/call", func(c *edgetest.Call) {
							c.Whole(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x","progress":1}}`, text(c))
						})
					}
					call(0)
					back.Forget()
					for i := range calls {
						call(i + 1)
					}
					if all, ran, conns := back.Count(""), back.Count("tools/call"), back.Connections(); all != calls || ran != calls || conns != 0 {
						t.Errorf("%d calls cost %d requests, %d of them calls, and %d connections", calls, all, ran, conns)
					}
				})
			}
		}
	}
}

// A call is never sent twice: a backend that took it and went away may have
// run it.
func TestCallIsNeverSentTwice(t *testing.T) {
	t.Parallel()
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
			for _, c := range []struct {
				name   string
				script edgetest.Script
			}{
				{"closes after reading", (*edgetest.Call).Abort},
				{"closes in the header", func(c *edgetest.Call) { c.Bytes("HTTP/1.1 200 OK\r\nContent-Ty") }},
				{"closes in the body", func(c *edgetest.Call) {
					c.Bytes("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{")
				}},
				{"closes in the stream", func(c *edgetest.Call) {
					c.Raw("event: message\n")
					c.Abort()
				}},
				{"answers 500", func(c *edgetest.Call) { c.Text(500, "", "") }},
				{"answers 503", func(c *edgetest.Call) { c.Text(503, "", "") }},
				{"redirects", func(c *edgetest.Call) { c.Header().Set("Location", c.Path); c.Text(308, "", "") }},
				{"answers 400", func(c *edgetest.Call) { c.Text(400, "text/plain", "the amount must be positive") }},
				{"answers 405", func(c *edgetest.Call) { c.Text(405, "", "") }},
			} {
				if era == edgetest.SSE {
					continue // the answer is not on the call's connection: below
				}
				t.Run(client.String()+" client, "+era.String()+" backend "+c.name, func(t *testing.T) {
					t.Parallel()
					back, _, cl := start(t, era)
					caller(t, cl, client)(1) // a connection that may be used again
					back.Forget()
					back.Always("tools/call", c.script)
					var m edgetest.Message
					var status int
					if client == edgetest.Legacy {
						r := cl.Initialize("").Call("7", "echo", "{}")
						m, status = r.Message(), r.Status
					} else {
						r := cl.Modern("7", "tools/call", edgetest.CallParams("echo", "{}"))
						m, status = r.Message(), r.Status
					}
					want := 502
					if client == edgetest.Legacy {
						want = 200
					}
					if status != want || m.Error == nil || m.Error.Code != 502 {
						t.Errorf("status %d: %+v", status, m)
					}
					if n := back.Count("tools/call"); n != 1 {
						t.Errorf("the backend got the call %d times", n)
					}
				})
			}
		}
	}
	t.Run("HTTP with SSE: the stream ends", func(t *testing.T) {
		t.Parallel()
		back, _, c := start(t, edgetest.SSE)
		s := c.Initialize("")
		s.Call("1", "echo", "{}")
		back.Once("tools/call", func(*edgetest.Call) { back.Drop() })
		r := s.Call("2", "echo", "{}")
		if m := r.Message(); m.Error == nil || m.Error.Code != 502 || back.Count("tools/call") != 2 {
			t.Errorf("%+v after %d calls", m, back.Count("tools/call"))
		}
		if r := s.Call("3", "echo", "{}"); r.Message().Error != nil {
			t.Errorf("afterwards: %s", r.Answer())
		}
	})
	t.Run("HTTP with SSE: the endpoint is gone", func(t *testing.T) {
		t.Parallel()
		back, _, c := start(t, edgetest.SSE)
		s := c.Initialize("")
		s.Call("1", "echo", "{}")
		back.Drop()
		back.Forget()
		if r := s.Call("2", "echo", "{}"); r.Message().Error != nil {
			t.Errorf("%s", r.Answer())
		}
		if n := back.Count("initialize"); n != 1 || back.Count("tools/call") > 2 {
			t.Errorf("%d openings, %d calls", n, back.Count("tools/call"))
		}
	})
}

// A connection that the backend says it will close soon is not used again.
func TestKeepAliveOfTheBackend(t *testing.T) {
	t.Parallel()
	for value, again := range map[string]bool{
		"timeout=1": false, "timeout=0, max=100": false, "timeout=5": true, "max=10, timeout=60": true, "": true, "nonsense": true, "timeout=x": true,
	} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Modern, func(s *edgetest.Server) { s.KeepAlive = value })
			call := caller(t, edgetest.Start(t, edgetest.Manifest(back)).NewClient(), edgetest.Modern)
			call(0)
			back.Forget()
			for i := range 5 {
				call(i + 1)
			}
			if n := back.Connections(); (n == 0) != again {
				t.Errorf("%d connections for 5 calls", n)
			}
		})
	}
}

// A connection that the backend closes with its answer is not used again.
func TestConnectionThatTheBackendCloses(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Modern)
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Header().Set("Connection", "close")
		c.Result(`{"resultType":"complete","content":[]}`)
	})
	call := caller(t, c, edgetest.Modern)
	for i := range 5 {
		call(i)
	}
	// And one whose answer ends with it.
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Bytes("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + `{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{}}`)
	})
	for i := range 5 {
		call(i)
	}
	// Nor one with more in it than the answer.
	back.Always("tools/call", func(c *edgetest.Call) {
		text := `{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{}}`
		c.Bytes(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", len(text), text))
	})
	for i := range 5 {
		call(i)
	}
}

// A backend that closes idle connections without a word loses no call.
func TestIdleConnectionThatTheBackendClosed(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back, _, c := start(t, era)
			call := caller(t, c, era)
			for i := range 20 {
				call(i)
				back.CloseIdle()
			}
			if n := back.Count("tools/call"); n != 20 {
				t.Errorf("20 calls were sent %d times", n)
			}
		})
	}
}

// What a backend sends is bounded: one message, by --max-message.
func TestMessageAboveTheLimit(t *testing.T) {
	t.Parallel()
	big := `"` + strings.Repeat("a", 64<<10) + `"`
	for _, c := range []struct {
		name   string
		script edgetest.Script
	}{
		{"JSON", func(c *edgetest.Call) { c.Result(`{"a":` + big + `}`) }},
		{"chunked JSON", func(c *edgetest.Call) {
			c.Header().Set("Transfer-Encoding", "chunked")
			c.Result(`{"a":` + big + `}`)
		}},
		{"event", func(c *edgetest.Call) { c.Whole(`{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{"a":` + big + `}}`) }},
		{"event before the answer", func(c *edgetest.Call) {
			c.Whole(`{"jsonrpc":"2.0","method":"notifications/x","params":{"a":`+big+`}}`, `{"jsonrpc":"2.0","id":`+c.ID()+`,"result":{}}`)
		}},
		{"many small lines", func(c *edgetest.Call) { c.Raw(strings.Repeat("data: 1\n", 16<<10) + "\n") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Modern)
			back.Always("tools/call", c.script)
			e := edgetest.Start(t, edgetest.Manifest(back), edgetest.Settings(func(s *serve.Settings) { s.MaxMessage = 64 << 10 }))
			if m := e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error == nil || m.Error.Code != 502 {
				t.Errorf("%+v", m)
			}
			back.Always("tools/call", nil)
			if m := e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error != nil {
				t.Errorf("afterwards: %+v", m.Error)
			}
		})
	}
}

// A backend's timeout bounds its silence, not its call: each word of it starts
// the time anew.
func TestSilenceIsBoundedNotTheCall(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era)
			e := edgetest.Start(t, edgetest.Manifest(back, edgetest.Timeout(3*time.Second)))
			c := e.NewClient()
			const words = 8
			back.Always("tools/call", func(c *edgetest.Call) {
				tick := time.NewTicker(500 * time.Millisecond)
				defer tick.Stop()
				for i := range words {
					<-tick.C
					c.Progress(i)
				}
				c.Result(`{"resultType":"complete","content":[]}`)
			})
			r := c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), `"progressToken":1`)
			if all := r.Rest(); len(all) != words+1 || edgetest.Parse(t, all[words].Data).Error != nil {
				t.Errorf("%s", all)
			}
		})
	}
}

// What the edge drops, and what belongs to no call, leaves a backend as silent as it was.
func TestDroppedMessagesAreSilence(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		for _, said := range []string{
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"nobody's","progress":%d}}`,
			`{"jsonrpc":"2.0","method":"notifications/unheard-of","params":{"n":%d}}`,
			`{"jsonrpc":"2.0","id":%d,"method":"unheard/of"}`,
			`[{"jsonrpc":"2.0","method":"notifications/unheard-of","params":{"n":%d}}]`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":%d}`,
		} {
			t.Run(era.String(), func(t *testing.T) {
				t.Parallel()
				back := edgetest.NewServer(t, era)
				e := edgetest.Start(t, edgetest.Manifest(back, edgetest.Timeout(time.Second)), edgetest.Settings(func(s *serve.Settings) { s.CallCap = edgetest.Patience }))
				gone := make(chan struct{})
				back.Always("tools/call", func(c *edgetest.Call) {
					tick := time.NewTicker(100 * time.Millisecond)
					defer tick.Stop()
					for i := 0; ; i++ {
						select {
						case <-tick.C:
							c.Event(fmt.Sprintf(said, i))
						case <-c.Gone():
							return
						case <-gone:
							return
						}
					}
				})
				defer close(gone)
				began := time.Now()
				r := e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), `"progressToken":1`)
				if m := edgetest.Parse(t, r.Answer()); m.Error == nil || m.Error.Code != 504 {
					t.Errorf("%s: %+v", said, m)
				}
				if d := time.Since(began); d > edgetest.Patience/2 {
					t.Errorf("%s: the call took %s", said, d)
				}
			})
		}
	}
}

// A backend that says something of a call, or asks whether somebody is there, is not silent, though
// the client does not want to hear of it.
func TestSignsOfLife(t *testing.T) {
	t.Parallel()
	for _, said := range []string{
		`{"jsonrpc":"2.0","id":"p%d","method":"ping"}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":%d}}`,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u://%d"}}`,
	} {
		for cell := range 4 {
			client, era := []edgetest.Era{edgetest.Legacy, edgetest.Modern}[cell/2], []edgetest.Era{edgetest.Legacy, edgetest.SSE}[cell%2]
			t.Run(client.String()+" "+era.String(), func(t *testing.T) {
				t.Parallel()
				back := edgetest.NewServer(t, era)
				e := edgetest.Start(t, edgetest.Manifest(back, edgetest.Timeout(time.Second)))
				back.Always("tools/call", func(c *edgetest.Call) {
					tick := time.NewTicker(100 * time.Millisecond)
					defer tick.Stop()
					for i := range 20 {
						<-tick.C
						c.Event(fmt.Sprintf(said, i))
					}
					c.Event(`{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{"content":[]}}`)
				})
				var r *edgetest.Response
				if c := e.NewClient(); client == edgetest.Modern {
					r = c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"))
				} else {
					r = c.Initialize("").Call("1", "echo", "{}")
				}
				if m := edgetest.Parse(t, r.Answer()); m.Error != nil {
					t.Errorf("%s: %+v", said, m.Error)
				}
			})
		}
	}
}

// --call-cap bounds the call whatever the backend says.
func TestCallCap(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back, _, c := start(t, era, edgetest.Settings(func(s *serve.Settings) { s.CallCap = time.Second }))
			back.Always("tools/call", func(c *edgetest.Call) {
				tick := time.NewTicker(50 * time.Millisecond)
				defer tick.Stop()
				for i := 0; ; i++ {
					select {
					case <-tick.C:
						c.Progress(i)
					case <-c.Gone():
						return
					}
				}
			})
			began := time.Now()
			r := c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), `"progressToken":1`)
			all := r.Rest()
			if m := edgetest.Parse(t, all[len(all)-1].Data); m.Error == nil || m.Error.Code != 504 {
				t.Errorf("%+v", m)
			}
			if d := time.Since(began); d > 20*time.Second { // the backend's own timeout is 30 s
				t.Errorf("the call took %s", d)
			}
		})
	}
}

// A server whose call is given up is told so, in the way of its era.
func TestTimeoutIsACancellation(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era)
			e := edgetest.Start(t, edgetest.Manifest(back, edgetest.Timeout(2*time.Second)))
			gone := make(chan string, 1)
			back.Always("tools/call", func(c *edgetest.Call) {
				id := c.ID()
				if era == edgetest.Modern {
					c.Wait(nil)
				}
				gone <- id
				c.Wait(nil)
			})
			if m := e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error == nil || m.Error.Code != 504 {
				t.Errorf("%+v", m)
			}
			id := edgetest.Receive(t, gone, "the call, or its end")
			if era == edgetest.Modern {
				return
			}
			if n := back.Await("notifications/cancelled", 1); edgetest.Member(string(n.Message.Params), "requestId") != id {
				t.Errorf("%s, the call was %s", n.Message.Params, id)
			}
		})
	}
}

// The time that a client takes to answer is not the backend's.
func TestQuestionStopsTheClock(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era)
			e := edgetest.Start(t, edgetest.Manifest(back, edgetest.Timeout(2*time.Second)))
			s := e.NewClient().Initialize(`{"roots":{}}`)
			back.Always("tools/call", func(c *edgetest.Call) {
				c.Ask("1", "roots/list", "")
				time.Sleep(1500 * time.Millisecond) // of the time that it has anew
				c.Result(`{"content":[]}`)
			})
			r := s.Call("1", "echo", "{}")
			q := r.NextMessage()
			thinking := time.NewTimer(2800 * time.Millisecond)
			<-thinking.C
			s.Reply(q.ID, `{"roots":[]}`)
			if m := r.Message(); m.Error != nil {
				t.Errorf("%+v", m.Error)
			}
			// Afterwards it runs again.
			back.Always("tools/call", func(c *edgetest.Call) {
				c.Ask("1", "roots/list", "")
				c.Wait(nil)
			})
			r = s.Call("2", "echo", "{}")
			s.Reply(r.NextMessage().ID, `{"roots":[]}`)
			if m := r.Message(); m.Error == nil || m.Error.Code != 504 {
				t.Errorf("%+v", m)
			}
		})
	}
}
