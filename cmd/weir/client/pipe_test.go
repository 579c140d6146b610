package client

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
)

// piped is a Pipe, and the client on its other side.
type piped struct {
	t     *testing.T
	in    *io.PipeWriter
	lines chan string
	ended chan error

	mu  sync.Mutex
	log []string
}

func startPipe(t *testing.T, url string) *piped {
	t.Helper()
	p := &piped{t: t, lines: make(chan string, 1000), ended: make(chan error, 1)}
	transport := &http.Transport{}
	in, write := io.Pipe()
	read, out := io.Pipe()
	p.in = write
	pipe := Pipe{URL: url, HTTP: &http.Client{Transport: transport}, Out: out, Next: "look at it", Log: func(text string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.log = append(p.log, text)
	}}
	go func() {
		p.ended <- pipe.Run(t.Context(), in)
		_ = out.Close()
	}()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		lines := bufio.NewScanner(read)
		lines.Buffer(nil, maxMessage+1)
		for lines.Scan() {
			p.lines <- lines.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(func() {
		_ = write.Close()
		<-heard
		transport.CloseIdleConnections()
	})
	return p
}

func (p *piped) say(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(p.in, line+"\n"); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *piped) hear(want string) {
	p.t.Helper()
	select {
	case got := <-p.lines:
		if got != want {
			p.t.Fatalf("the client hears\n%s\nwant\n%s", got, want)
		}
	case <-time.After(edgetest.Patience):
		p.t.Fatalf("the client never hears %s; the log has %q", want, p.logged())
	}
}

// hearPart wants a message with certain texts in it.
func (p *piped) hearPart(parts ...string) {
	p.t.Helper()
	select {
	case got := <-p.lines:
		for _, part := range parts {
			if !strings.Contains(got, part) {
				p.t.Fatalf("the client hears %s, want %s", got, part)
			}
		}
	case <-time.After(edgetest.Patience):
		p.t.Fatalf("the client never hears %s; the log has %q", parts, p.logged())
	}
}

func (p *piped) logged() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

// end ends the client's stream, and waits for the end of the Pipe.
func (p *piped) end() error {
	p.t.Helper()
	_ = p.in.Close()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(edgetest.Patience):
		p.t.Fatal("it does not end")
		return nil
	}
}

const (
	hello  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	ready  = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
)

// request is what a fake server was sent.
type request struct {
	method string
	header http.Header
	text   string
}

// sessions is a fake server of the legacy era that hands out sessions one, two, …, and forgets
// them when it is told to. It echoes tools/call.
type sessions struct {
	mu     sync.Mutex
	n      int
	lost   bool
	got    []request
	events map[string]chan string // for the GET of a session
	call   func(w http.ResponseWriter, r *http.Request, m *mcp.Message)
}

func (s *sessions) fake() fake {
	named := func(w http.ResponseWriter, r *http.Request, m *mcp.Message) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		text := ""
		if m != nil {
			text = string(m.Raw)
		}
		s.got = append(s.got, request{r.Method, r.Header.Clone(), text})
		if s.lost || r.Header.Get(mcp.HeaderSession) != fmt.Sprint("session-", s.n) || r.Header.Get(mcp.HeaderVersion) != "2025-11-25" {
			w.WriteHeader(http.StatusNotFound)
			return false
		}
		return true
	}
	accepted := func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
		if named(w, r, m) {
			w.WriteHeader(http.StatusAccepted)
		}
	}
	return fake{
		"initialize": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			s.mu.Lock()
			s.n, s.lost = s.n+1, false
			s.got = append(s.got, request{r.Method, r.Header.Clone(), string(m.Raw)})
			w.Header().Set(mcp.HeaderSession, fmt.Sprint("session-", s.n))
			s.mu.Unlock()
			result(initialized)(w, r, m)
		},
		"notifications/initialized": accepted,
		"notifications/cancelled":   accepted,
		"answer":                    accepted,
		"DELETE":                    accepted,
		"GET": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			if !named(w, r, m) {
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			events := s.stream(r.Header.Get(mcp.HeaderSession))
			for {
				select {
				case e := <-events:
					if e == "" {
						return
					}
					_, _ = io.WriteString(w, e)
					_ = http.NewResponseController(w).Flush()
				case <-r.Context().Done():
					return
				}
			}
		},
		"tools/call": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			if named(w, r, m) {
				s.call(w, r, m)
			}
		},
	}
}

// stream is where events for a session are written; "" ends its stream.
func (s *sessions) stream(id string) chan string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events == nil {
		s.events = map[string]chan string{}
	}
	if s.events[id] == nil {
		s.events[id] = make(chan string)
	}
	return s.events[id]
}

// requests are those of an HTTP method whose text has a part.
func (s *sessions) requests(method, part string) (out []request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.got {
		if r.method == method && strings.Contains(r.text, part) {
			out = append(out, r)
		}
	}
	return out
}

func event(id, data string) string { return "id: " + id + "\ndata: " + data + "\n\n" }

// TestPipeLegacy carries a session: the bytes of both sides, what the server says of its own
// accord, its questions and their answers, and the end.
func TestPipeLegacy(t *testing.T) {
	s := &sessions{}
	s.call = func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/progress\",\"params\":{\"n\":1.0}}\n\n")
		_, _ = io.WriteString(w, event("e1", `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"who?"}}`))
		_ = http.NewResponseController(w).Flush()
		for len(s.requests("POST", `"Ada"`)) == 0 && r.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		_, _ = io.WriteString(w, event("e2", `{"jsonrpc":"2.0","id":12345678901234567890,"result":{"z":1.0, "a":12345678901234567890}}`))
	}
	p := startPipe(t, s.fake().start(t))
	p.say(hello)
	p.hear(`{"jsonrpc":"2.0","id":0,"result":` + initialized + `}`)
	p.say(ready)
	s.stream("session-1") <- event("g1", `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	p.hear(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	const call = `{"jsonrpc":"2.0",  "id":12345678901234567890,"method":"tools/call","params":{"name":"x","arguments":{"b":1.0,"a":1}}}`
	p.say(call)
	p.hear(`{"jsonrpc":"2.0", "method":"notifications/progress","params":{"n":1.0}}`)
	p.hear(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"who?"}}`)
	p.say(`{"jsonrpc":"2.0","id":"q","result":{"action":"accept","content":{"name":"Ada"}}}`)
	p.hear(`{"jsonrpc":"2.0","id":12345678901234567890,"result":{"z":1.0, "a":12345678901234567890}}`)
	if got := s.requests("POST", "tools/call"); len(got) != 1 || got[0].text != call {
		t.Errorf("the server gets %v", got)
	}
	s.stream("session-1") <- "" // the stream ends, and is opened again after its last event
	s.stream("session-1") <- event("g2", `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
	p.hear(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
	if got := s.requests("GET", ""); len(got) != 2 || got[1].header.Get(mcp.HeaderLastEventID) != "g1" {
		t.Errorf("its streams are %v", got)
	}
	if err := p.end(); err != nil || len(s.requests("DELETE", "")) != 1 {
		t.Errorf("%v, %v", err, s.requests("DELETE", ""))
	}
	if log := p.logged(); log != nil {
		t.Errorf("the log has %q", log)
	}
}

// TestPipeRenewsSessions: a server that has lost the session gets another one, and the message
// again, which it did not take; the client notices nothing.
func TestPipeRenewsSessions(t *testing.T) {
	s := &sessions{}
	s.call = func(w http.ResponseWriter, r *http.Request, m *mcp.Message) { result(`{"ok":true}`)(w, r, m) }
	p := startPipe(t, s.fake().start(t))
	p.say(hello)
	p.hearPart(`"id":0`)
	p.say(ready)
	s.stream("session-1") <- event("g1", `{"jsonrpc":"2.0","method":"notifications/one"}`)
	p.hearPart("notifications/one")
	for n, say := range []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`} {
		s.mu.Lock()
		s.lost = true
		s.mu.Unlock()
		p.say(say)
		p.hearPart(fmt.Sprintf(`"id":%d,"result":{"ok":true}`, n+1))
	}
	// What the server says then is heard: the new session has a stream.
	s.stream("session-3") <- event("h1", `{"jsonrpc":"2.0","method":"notifications/two"}`)
	p.hearPart("notifications/two")
	if got := s.requests("POST", `"initialize"`); len(got) != 3 || got[1].text != hello || got[1].header.Get(mcp.HeaderSession) != "" {
		t.Errorf("sessions begin with %v", got)
	}
	if log := p.logged(); len(log) != 2 || !strings.Contains(log[0], "there is a new one") {
		t.Errorf("the log has %q", log)
	}
	// A client that is silent gets a new one too, when its stream ends.
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
	s.stream("session-3") <- ""
	s.stream("session-4") <- event("i1", `{"jsonrpc":"2.0","method":"notifications/three"}`)
	p.hearPart("notifications/three")
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// TestPipeModern repeats in headers what the revision wants there, and ends the stream of a
// request that is cancelled.
func TestPipeModern(t *testing.T) {
	var mu sync.Mutex
	var calls []http.Header
	lists, gone := 0, make(chan struct{})
	f := fake{
		"tools/list": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			mu.Lock()
			lists++
			header := fmt.Sprint("City", lists)
			mu.Unlock()
			if m.Text("cursor") == "" {
				result(`{"resultType":"complete","tools":[],"nextCursor":"2"}`)(w, r, m)
				return
			}
			result(`{"resultType":"complete","tools":[{"name":"x","inputSchema":{"type":"object","properties":{"city":{"type":"string","x-mcp-header":"`+header+`"}}}}]}`)(w, r, m)
		},
		"tools/call": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			mu.Lock()
			calls = append(calls, r.Header.Clone())
			n := len(calls)
			mu.Unlock()
			if n == 1 {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write(mcp.AppendError(nil, m.IDText(), mcp.CodeHeaderMismatch, "the tool has changed", nil))
				return
			}
			result("{\r\n  \"resultType\": \"complete\",\n  \"content\": []\n}")(w, r, m)
		},
		"subscriptions/listen": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\"}\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			close(gone)
		},
	}
	p := startPipe(t, f.start(t))
	p.say(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x","arguments":{"city":"Köln"},` + modern + `}}`)
	p.hear(`{"jsonrpc":"2.0","id":"a","result":{    "resultType": "complete",   "content": [] }}`)
	mu.Lock()
	if len(calls) != 2 || lists != 4 {
		t.Fatalf("%d calls, %d lists", len(calls), lists)
	}
	for i, header := range []string{"Mcp-Param-City2", "Mcp-Param-City4"} {
		h := calls[i]
		if h.Get(mcp.HeaderMethod) != "tools/call" || h.Get(mcp.HeaderName) != "x" || h.Get(mcp.HeaderVersion) != mcp.V2607 || h.Get(header) != mcp.EncodeHeader("Köln") || h.Get(mcp.HeaderSession) != "" {
			t.Errorf("call %d has %v", i, h)
		}
	}
	mu.Unlock()
	p.say(`{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{` + modern + `}}`)
	p.hearPart("acknowledged")
	p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	select {
	case <-gone:
	case <-time.After(edgetest.Patience):
		t.Fatal("the server does not learn of the end")
	}
	p.say(`{"jsonrpc":"2.0","id":8,"method":"nonsense","params":{` + modern + `}}`)
	p.hearPart(`"id":8`, "-32601") // and nothing of 7 before it
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// TestPipeRefuses what is no message, is too large, or is there twice; and says why a server
// cannot be talked to.
func TestPipeRefuses(t *testing.T) {
	waiting := make(chan struct{})
	f := fake{
		"slow": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			<-waiting
			result(`{}`)(w, r, m)
		},
		"page":   status(200, "text/html", "<html>"),
		"locked": status(401, "text/plain", "no", "WWW-Authenticate", "Bearer"),
		"other":  status(200, "application/json", `{"jsonrpc":"2.0","id":999,"result":{}}`),
		"nobody": status(400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}`),
		"cut":    status(200, "text/event-stream", ": nothing\n\n"),
		"noise":  status(200, "text/event-stream", "data: hello\n\n"),
		"small":  result(`{}`),
	}
	p := startPipe(t, f.start(t))
	ask := func(id int, method string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method)
	}
	p.say(`hello`)
	p.hearPart(`"id":null`, "-32700")
	p.say(`{"jsonrpc":"2.0","id":1}`)
	p.hearPart("-32600")
	p.say(`{"x":"` + strings.Repeat("x", maxLine) + `"}`)
	p.hearPart(`"id":null`, "larger than 16 MiB")
	p.say("", "   ", `[`+ask(2, "small")+`,`+ask(3, "page")+`]`)
	for range 2 {
		p.hearPart(`"id":`)
	}
	for method, want := range map[string]string{
		"page": `which is no message of MCP`, "locked": "give a token with --bearer-token-file", "other": "no message of MCP", "nobody": `"error":{"code":-32000,"message":"no"}`,
		"cut": "the stream ended before the answer came", "noise": "sent what is no message of MCP",
	} {
		p.say(ask(4, method))
		p.hearPart(`"id":4`, want)
	}
	p.say(ask(5, "slow"), ask(5, "slow"))
	p.hearPart(`"id":5`, "there is a request with this id under way")
	for n := range maxAsked {
		p.say(ask(100+n, "slow"))
	}
	p.hearPart(fmt.Sprint(`"id":`, 100+maxAsked-1), "requests are under way")
	close(waiting)
	for range maxAsked {
		p.hearPart(`"result":{}`)
	}
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// TestPipeWaitsForAServer that is being started again: what it did not receive is sent again,
// and only that.
func TestPipeWaitsForAServer(t *testing.T) {
	addr := edgetest.FreeAddress(t)
	p := startPipe(t, "http://"+addr+"/mcp")
	p.say(`{"jsonrpc":"2.0","id":1,"method":"a","params":{` + modern + `}}`)
	served := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, err := mcp.Decode(body)
		if err != nil || m.Method == "b" {
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = c.Close() // received, and not answered
			}
			return
		}
		result(`{}`)(w, r, m)
	})}
	defer func() { _ = served.Close() }()
	time.Sleep(2 * tryAgain) // it is tried while nobody is there
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = served.Serve(l) }()
	p.hearPart(`"id":1,"result":{}`)
	p.say(`{"jsonrpc":"2.0","id":2,"method":"b","params":{` + modern + `}}`)
	p.hearPart(`"id":2,"error"`, "look at it")
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// TestPipeEnds with what is under way when the client does, also when the server never
// answers; and when the client does not read any more.
func TestPipeEnds(t *testing.T) {
	never := func(w http.ResponseWriter, r *http.Request, m *mcp.Message) { <-r.Context().Done() }
	for name, line := range map[string]string{"a request": `{"jsonrpc":"2.0","id":1,"method":"never"}`, "initialize": hello, "a notification": `{"jsonrpc":"2.0","method":"notifications/never"}`} {
		f := fake{"never": never, "initialize": never, "notifications/never": never}
		p := startPipe(t, f.start(t))
		p.say(line)
		if err := p.end(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, more := <-p.lines; more {
			t.Errorf("%s: the client hears %s", name, got)
		}
	}
	in, write := io.Pipe()
	defer write.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	pipe := Pipe{URL: fake{"a": result(`{}`)}.start(t), HTTP: &http.Client{Transport: transport}, Out: full{}, Log: func(string) {}}
	go func() { _, _ = io.WriteString(write, `{"jsonrpc":"2.0","id":1,"method":"a"}`+"\n") }()
	if err := pipe.Run(t.Context(), in); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
}

// full is a stream that cannot be written to.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
