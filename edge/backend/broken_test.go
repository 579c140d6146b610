package backend_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
)

// A stream whose connection breaks after an event with an id is taken up like
// one that ended in order (2025-11-25, basic/transports): the call is sent once.
func TestStreamThatBreaks(t *testing.T) {
	t.Parallel()
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(client.String()+" client", func(t *testing.T) {
			t.Parallel()
			back, _, c := start(t, edgetest.Legacy)
			event := func(c *edgetest.Call, id, token string, n int) {
				c.Raw(fmt.Sprintf("id: %s\nretry: 20\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%d}}\n\n", id, token, n))
			}
			back.Once("tools/call", func(c *edgetest.Call) {
				event(c, "s-1", c.Token(), 1)
				c.Abort()
			})
			back.Once("GET", func(c *edgetest.Call) {
				call := back.Requests("tools/call")[0]
				event(c, "s-2", edgetest.Member(string(call.Message.Params), "_meta", "progressToken"), 2)
				c.Raw("id: s-lost\ndata: {\"jsonrpc\":\"2.0\",\"id\":")
				c.Abort()
			})
			back.Once("GET", (*edgetest.Call).Abort) // it is not back yet
			back.Once("GET", func(c *edgetest.Call) {
				id := string(back.Requests("tools/call")[0].Message.ID)
				c.Raw("id: s-3\ndata: {\"jsonrpc\":\"2.0\",\"id\":" + id + ",\"result\":{\"content\":[],\"x\":1.0}}\n\n")
			})
			var r *edgetest.Response
			if client == edgetest.Legacy {
				r = c.Initialize("").Request("5", "tools/call", `{"name":"echo","_meta":{"progressToken":"p"}}`)
			} else {
				r = c.Modern("5", "tools/call", edgetest.CallParams("echo", "{}"), `"progressToken":"p"`)
			}
			all := r.Rest()
			if len(all) != 3 {
				t.Fatalf("%s", all)
			}
			if m := edgetest.Parse(t, all[2].Data); edgetest.Member(string(m.Result), "x") != "1.0" || string(m.ID) != "5" {
				t.Errorf("%s", all[2].Data)
			}
			var last []string
			for _, g := range back.Requests("GET") {
				last = append(last, g.Header.Get("Last-Event-ID"))
			}
			if n := back.Count("tools/call"); n != 1 || strings.Join(last, " ") != "s-1 s-2 s-2" {
				t.Errorf("%d calls, asked for what is after %s", n, last)
			}
		})
	}
	t.Run("the session is gone, too", func(t *testing.T) {
		t.Parallel()
		back, _, c := start(t, edgetest.Legacy)
		back.Once("tools/call", func(c *edgetest.Call) {
			c.Raw("id: 1\nretry: 10\ndata: \n\n")
			back.Drop()
			c.Abort()
		})
		if m := c.Initialize("").Call("1", "echo", "{}").Message(); m.Error == nil || m.Error.Code != 502 || back.Count("tools/call") != 1 {
			t.Errorf("%+v after %d calls", m, back.Count("tools/call"))
		}
	})
	t.Run("without an id", func(t *testing.T) {
		t.Parallel()
		back, _, c := start(t, edgetest.Legacy)
		back.Once("tools/call", func(c *edgetest.Call) {
			c.Progress(1)
			c.Abort()
		})
		if m := c.Initialize("").Call("1", "echo", "{}").Message(); m.Error == nil || m.Error.Code != 502 || back.Count("tools/call") != 1 || back.Count("GET") != 0 {
			t.Errorf("%+v after %d calls", m, back.Count("tools/call"))
		}
	})
}

// tiny is a legacy server by hand: it introduces itself and leaves the rest to
// others.
func tiny(t *testing.T, address string, stranger, member http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m edgetest.Message
		if r.Method == "POST" {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			m = edgetest.Parse(t, body)
		}
		r.Header.Set("Test-Method", m.Method)
		r.Header.Set("Test-Id", string(m.ID))
		switch {
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s")
			answer(w, string(m.ID), `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"tiny","version":"1"}}`)
		case r.Header.Get("Mcp-Session-Id") == "":
			stranger(w, r)
		case m.ID == nil && r.Method == "POST":
			w.WriteHeader(202)
		default:
			member(w, r)
		}
	}))
	if address != "" {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		s.Listener.Close()
		s.Listener = ln
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL + "/mcp"
}

// answer writes a message with an id, which is JSON text.
func answer(w http.ResponseWriter, id, rest string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, id, rest)
}

// A connection that is reset breaks a stream like one that is closed.
func TestStreamThatIsReset(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	var id string
	url := tiny(t, "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == "DELETE":
		case r.Method == "GET":
			w.Header().Set("Content-Type", "text/event-stream")
			if r.Header.Get("Last-Event-ID") == "a" {
				fmt.Fprintf(w, "id: b\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", id)
			}
		default:
			id = r.Header.Get("Test-Id")
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: a\nretry: 10\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-read:
			case <-r.Context().Done():
			}
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = c.(*net.TCPConn).SetLinger(0)
				c.Close()
			}
		}
	})
	s := edgetest.Start(t, edgetest.ManifestFor(url, compile.StreamableHTTP)).NewClient().Initialize("")
	r := s.Call("1", "echo", "{}")
	if m := r.NextMessage(); m.Method != "notifications/x" {
		t.Errorf("%+v", m)
	}
	close(read)
	if got := r.Result(); got != `{"content":[]}` {
		t.Error(got)
	}
}

// A backend that was modern and turned legacy says so in the way of its SDK: it
// is asked anew what it speaks, and the call is sent again where it says that it
// did not run it.
func TestModernBackendTurnsLegacy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		stranger http.HandlerFunc
		again    bool // the call is sent again
	}{
		{"Go SDK", func(w http.ResponseWriter, r *http.Request) {
			answer(w, r.Header.Get("Test-Id"), `"error":{"code":0,"message":"method \"tools/call\" is invalid during session initialization"}`)
		}, true},
		{"TypeScript SDK", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`)
		}, true},
		{"TypeScript SDK, with the id", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":%s}`, r.Header.Get("Test-Id"))
		}, true},
		{"code 0 without a reason", func(w http.ResponseWriter, r *http.Request) {
			answer(w, r.Header.Get("Test-Id"), `"error":{"code":0,"message":"oops"}`)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
				address := edgetest.FreeAddress(t)
				first := edgetest.NewServer(t, edgetest.Modern, func(s *edgetest.Server) { s.Address, s.KeepAlive = address, "timeout=1" })
				client := edgetest.Start(t, edgetest.Manifest(first)).NewClient()
				call := caller(t, client, era)
				call(1)
				first.Close()
				var mu sync.Mutex
				ran, refused := 0, 0
				tiny(t, address, func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					if r.Header.Get("Test-Method") == "tools/call" {
						refused++
					}
					mu.Unlock()
					c.stranger(w, r)
				}, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == "POST" {
						mu.Lock()
						ran++
						mu.Unlock()
						answer(w, r.Header.Get("Test-Id"), `"result":{"content":[]}`)
					}
				})
				if !c.again { // the client has the answer, and the next call goes the right way
					if m := client.Modern("2", "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error == nil || m.Error.Message != "oops" {
						t.Errorf("%s client: %+v", era, m.Error)
					}
				} else {
					call(2)
				}
				call(3)
				if got := backendStatus(t, client); got.Era != "legacy" {
					t.Errorf("%s client: %+v", era, got)
				}
				mu.Lock()
				want := 2
				if !c.again {
					want = 1
				}
				if ran != want || refused != 1 {
					t.Errorf("%s client: %d calls ran and %d were refused", era, ran, refused)
				}
				mu.Unlock()
			}
		})
	}
	t.Run("one that stays modern", func(t *testing.T) {
		t.Parallel()
		back, _, c := start(t, edgetest.Modern)
		back.Always("tools/call", func(c *edgetest.Call) { c.Error(200, 0, "the database is not initialized") })
		for i := range 5 {
			if m := c.Modern(fmt.Sprint(i), "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error == nil || m.Error.Code != 0 || m.Error.Message != "the database is not initialized" {
				t.Errorf("%+v", m)
			}
		}
		if n := back.Count("tools/call"); n != 5 || back.Count("server/discover") != 2 {
			t.Errorf("%d questions, %d calls", back.Count("server/discover"), n)
		}
	})
}

// A question of a backend over HTTP with SSE that nobody answers ends with the
// call that it came in, and the backend is told.
func TestQuestionThatOutlivesItsCall(t *testing.T) {
	t.Parallel()
	told := func(t *testing.T, back *edgetest.Server) {
		t.Helper()
		if r := back.Await("response", 1); string(r.Message.ID) != `"q"` || r.Message.Error == nil || r.Message.Error.Message != "the client has left, or its call has ended" {
			t.Errorf("%s", r.Body)
		}
	}
	script := func(asked <-chan struct{}) edgetest.Script {
		return func(c *edgetest.Call) {
			c.Event(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
			if c.Wait(asked) {
				c.Result(`{"content":[]}`)
			}
		}
	}
	t.Run("legacy client", func(t *testing.T) {
		t.Parallel()
		back, _, c := start(t, edgetest.SSE)
		asked := make(chan struct{})
		back.Always("tools/call", script(asked))
		r := c.Initialize(`{"roots":{}}`).Call("1", "echo", "{}")
		if q := r.NextMessage(); q.Method != "roots/list" {
			t.Errorf("%+v", q)
		}
		close(asked)
		r.Result()
		told(t, back)
	})
	t.Run("modern client", func(t *testing.T) {
		t.Parallel()
		back := edgetest.NewServer(t, edgetest.SSE)
		client := silent{ears: make(ears, 1), asked: make(chan struct{})}
		back.Always("tools/call", script(client.asked))
		x := modern(t, "1", "tools/call", `{"name":"echo","_meta":{}}`, client)
		x.Capabilities = []byte(`{"roots":{}}`)
		if r, err := direct(t, back).Handle(t.Context(), x); err != nil || r.Kind != mcp.Result {
			t.Errorf("%v", err)
		}
		told(t, back)
	})
	t.Run("the end of the session", func(t *testing.T) {
		t.Parallel()
		back, _, c := start(t, edgetest.SSE)
		s := c.Initialize(`{"roots":{}}`)
		s.Call("1", "echo", "{}")
		stream := s.Listen()
		back.Until("a second session", func() bool { return len(back.Sessions()) == 2 })
		// Until the edge hears the session for the stream, it refuses at once.
		heard := make(chan error, 1)
		go func() {
			_, err := stream.TryNext()
			heard <- err
		}()
		refused := 0
		for ; len(heard) == 0; refused = back.Count("response") {
			back.Sessions()[1].Push(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
			edgetest.Until(t, "the question, or its refusal", func() bool { return len(heard) > 0 || back.Count("response") > refused })
		}
		if err := <-heard; err != nil {
			t.Fatal(err)
		}
		s.Delete()
		if r := back.Await("response", refused+1); string(r.Message.ID) != `"q"` || r.Message.Error == nil {
			t.Errorf("%s", r.Body)
		}
	})
}

// silent is a client that is asked and does not answer.
type silent struct {
	ears
	asked chan struct{}
}

func (s silent) Ask(ctx context.Context, all map[string]edge.Question) (map[string]edge.Answer, error) {
	all["q"].Sent()
	close(s.asked)
	<-ctx.Done()
	return nil, edge.Errorf(edge.Gone, "ask", "%w", context.Cause(ctx))
}

// direct is a backend of its own, without an edge before it.
func direct(t testing.TB, back *edgetest.Server) *backend.Backend {
	t.Helper()
	return directOver(t, back, 0)
}

// directOver is direct with connections bounded; 0 for the default.
func directOver(t testing.TB, back *edgetest.Server, conns int) *backend.Backend {
	t.Helper()
	b, err := backend.Open(backend.Config{
		MaxConns: conns,
		Name:     "back", URL: back.URL, SSE: back.Era == edgetest.SSE, Private: true, Silence: edgetest.Patience, Cap: edgetest.Patience, MaxMessage: 16 << 20,
		Info: []byte(`{"name":"test","version":"1"}`), Agent: "test", Log: slog.New(slog.DiscardHandler), Health: health.Config{Interval: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// ears is a client that keeps what it hears.
type ears chan *mcp.Message

func (e ears) Send(m *mcp.Message) error { e <- m; return nil }

func (e ears) Ask(ctx context.Context, q map[string]edge.Question) (map[string]edge.Answer, error) {
	return edge.NoClient{}.Ask(ctx, q)
}

func modern(t testing.TB, id, method, params string, out edge.Client) *edge.Exchange {
	t.Helper()
	m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return &edge.Exchange{Era: mcp.Modern, Request: m, Client: out}
}

// The streams of sessions that clients can be asked on take a quarter of the
// connections at most, and end with the backend.
func TestOwnStreamsAreBounded(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	enough := make(chan struct{})
	back.Always("tools/call", func(c *edgetest.Call) {
		if c.Wait(enough) {
			c.Result(`{"content":[]}`)
		}
	})
	b := directOver(t, back, 12)
	listening := func() (n int) {
		for _, s := range back.Sessions() {
			if s.Listening() {
				n++
			}
		}
		return n
	}
	errs := make(chan error, 5)
	for range cap(errs) {
		x := modern(t, "1", "tools/call", `{"name":"echo","_meta":{}}`, make(ears, 1))
		x.Capabilities = []byte(`{"roots":{}}`)
		go func() {
			_, err := b.Handle(t.Context(), x)
			errs <- err
		}()
	}
	back.Await("tools/call", cap(errs))
	edgetest.Until(t, "the streams", func() bool { return listening() == 3 })
	close(enough)
	for range cap(errs) {
		if err := edgetest.Receive(t, errs, "the end of a call"); err != nil {
			t.Error(err)
		}
	}
	b.Close()
	edgetest.Until(t, "the end of the streams", func() bool { return listening() == 0 })
	if n := back.Count("GET"); n != 3 {
		t.Errorf("%d streams of 12 connections, want 3", n)
	}
}

// Those who only listen leave connections for calls, and whose stream ends leaves its own to others.
func TestStreamsLeaveRoomForCalls(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	back.Always("subscriptions/listen", func(c *edgetest.Call) {
		c.Event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + c.ID() + `},"notifications":{}}}`)
		c.Wait(nil)
	})
	b := directOver(t, back, 8)
	for range 3 { // times
		ctx, cancel := context.WithCancel(t.Context())
		ends := make(chan error, 20)
		for i := range cap(ends) {
			go func() {
				_, err := b.Handle(ctx, modern(t, fmt.Sprint(i), "subscriptions/listen", `{"notifications":{"toolsListChanged":true},"_meta":`+edgetest.Meta()+`}`, make(ears, 10)))
				ends <- err
			}()
		}
		for range cap(ends) - 6 {
			if err := edgetest.Receive(t, ends, "a stream too many"); edge.KindOf(err) != edge.Overload {
				t.Errorf("a stream too many: %v", err)
			}
		}
		for range 10 {
			r, err := b.Handle(t.Context(), modern(t, "1", "tools/call", `{"name":"echo","arguments":{},"_meta":`+edgetest.Meta()+`}`, make(ears, 1)))
			if err != nil || r.Kind != mcp.Result {
				t.Errorf("a call beside the streams: %+v, %v", r, err)
			}
		}
		cancel()
		for range 6 {
			if err := edgetest.Receive(t, ends, "the end of a stream"); err != nil {
				t.Error(err)
			}
		}
	}
}

// A subscription that the edge ends is ended in order, whatever the backend
// speaks.
func TestEndOfASubscription(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Modern, edgetest.Legacy, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era)
			back.Always("subscriptions/listen", func(c *edgetest.Call) {
				c.Event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + c.ID() + `},"notifications":{}}}`)
				c.Wait(nil)
			})
			b := direct(t, back)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := make(ears, 10)
			type end struct {
				*edge.Response
				error
			}
			ended := make(chan end, 1)
			x := modern(t, `"sub 1"`, "subscriptions/listen", `{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`, out)
			go func() {
				r, err := b.Handle(ctx, x)
				ended <- end{r, err}
			}()
			edgetest.Receive(t, out, "the acknowledgement")
			cancel()
			e := edgetest.Receive(t, ended, "the end")
			if e.error != nil || e.Response == nil {
				t.Fatal(e.error)
			}
			if got, want := string(e.Raw), `{"jsonrpc":"2.0","id":"sub 1","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"sub 1"}}}`; got != want || e.Status != 200 {
				t.Errorf("%d %s\nwant %s", e.Status, got, want)
			}
		})
	}
}

// A session that declared what its client can be asked, or set a log level,
// carries one call at a time; plain calls share one, lists included. There are
// 256 of a sort at most, and a call beyond them is told that there is no room.
func TestSessionsOfASort(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	introduced := make(chan struct{})
	back.Always("tools/call", func(c *edgetest.Call) {
		if c.Wait(introduced) {
			c.Result(`{"content":[]}`)
		}
	})
	b := direct(t, back)
	const most = 256
	errs := make(chan error, most+50)
	run := func(params, caps string) {
		x := modern(t, "1", "tools/call", params, make(ears, 1))
		x.Capabilities = []byte(caps)
		go func() {
			_, err := b.Handle(t.Context(), x)
			errs <- err
		}()
	}
	const askable = `{"name":"echo","_meta":{}}`
	for range most {
		run(askable, `{"roots":{}}`)
	}
	back.Await("tools/call", most)
	x := modern(t, "2", "tools/call", askable, make(ears, 1))
	x.Capabilities = []byte(`{"roots":{}}`)
	if _, err := b.Handle(t.Context(), x); edge.KindOf(err) != edge.Overload {
		t.Errorf("one too many: %v", err)
	}
	for range 20 { // another sort has room
		run(`{"name":"echo","_meta":{"io.modelcontextprotocol/logLevel":"info"}}`, "")
	}
	for range 20 { // and these share a session
		run(askable, "")
	}
	back.Await("tools/call", most+40)
	// A list for a client that can be asked goes where nobody else is; one for
	// any client where all are.
	list := func(caps string) string {
		n := back.Count("tools/list")
		if r, err := b.Handle(t.Context(), modern(t, "3", "tools/list", `{"_meta":{"io.modelcontextprotocol/clientCapabilities":`+caps+`}}`, make(ears, 1))); err != nil || r.Kind != mcp.Result {
			t.Errorf("list: %v", err)
		}
		return back.Requests("tools/list")[n].Session
	}
	calls := map[string]int{}
	for _, r := range back.Requests("tools/call") {
		calls[r.Session]++
	}
	shared := list("{}")
	if calls[shared] != 20 || len(calls) != most+21 {
		t.Errorf("%d sessions; the shared one carries %d calls", len(calls), calls[shared])
	}
	if alone := list(`{"elicitation":{}}`); calls[alone] != 0 || alone == shared {
		t.Errorf("a list of a client that can be asked went to session %s with %d calls", alone, calls[alone])
	}
	close(introduced)
	for range most + 40 {
		if err := edgetest.Receive(t, errs, "the end of a call"); err != nil {
			t.Error(err)
		}
	}
	// What was given back is used again.
	n := len(back.Sessions())
	run(askable, `{"roots":{}}`)
	if err := edgetest.Receive(t, errs, "a call"); err != nil || len(back.Sessions()) != n {
		t.Errorf("%v; %d sessions more", err, len(back.Sessions())-n)
	}
}
