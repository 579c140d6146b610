package backend

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// heardBy is a client that is told.
type heardBy struct {
	edge.NoClient
	all chan string
}

func (h heardBy) Send(m *mcp.Message) error { h.all <- m.Method; return nil }

// A session that was handed over may be lost before its stream is open here: a server that
// says so with 400 gets the client's introduction. What else is said with 400 ends no session.
func TestStreamOfALostSessionTakenOver(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]int{"Bad Request: No valid session ID provided": 1, "Bad Request": 0} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			sessions := 0 // begun one after the other
			b := open(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				m, err := mcp.Decode(body)
				switch {
				case r.Method == "GET" && r.Header.Get("Mcp-Session-Id") == "taken":
					http.Error(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"`+said+`"},"id":null}`, 400)
				case r.Method == "GET":
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n")
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				case err != nil || m.Kind == mcp.Notification:
					w.WriteHeader(202)
				case m.Method == "initialize":
					sessions++
					w.Header().Set("Content-Type", "application/json")
					w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", sessions))
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.IDText())+`,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`)
				default:
					w.WriteHeader(400)
				}
			}, nil)
			if _, err := b.Introduced(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			client := &edge.Session{ID: "c", Version: mcp.V2511}
			if !b.Take(client, Handed{ID: "taken", Version: mcp.V2511, First: firstNumber, Requests: firstNumber}) {
				t.Fatal("it is not taken")
			}
			before := sessions
			ctx, cancel := context.WithCancel(t.Context())
			out := heardBy{all: make(chan string, 1)}
			ended := make(chan error, 1)
			go func() { ended <- b.Attend(ctx, client, out) }()
			defer cancel()
			var err error
			select {
			case <-out.all:
				cancel()
				err = <-ended
			case err = <-ended:
			case <-time.After(30 * time.Second):
				t.Fatal("it hears nothing and does not end")
			}
			if n := sessions - before; err != nil || n != want {
				t.Errorf("%d new sessions: %v", n, err)
			}
			b.Leave(client)
		})
	}
}

// A process that takes a session over counts it among those of a bridge: where
// it has a call under way beside another's, nobody knows whose a question is. And
// it knows the numbers of its own requests, and those of the process before.
func TestZ12BridgeAfterAHandOver(t *testing.T) {
	t.Parallel()
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, err := mcp.Decode(body)
		answer := func(status int, rest string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.IDText())+`,`+rest+`}`)
		}
		switch {
		case err != nil || m.Kind == mcp.Notification:
			w.WriteHeader(202)
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s")
			answer(200, `"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
		default:
			answer(404, `"error":{"code":-32601,"message":"no"}`)
		}
	}, nil)
	if _, err := b.Introduced(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	client := func(id string) *edge.Session {
		return &edge.Session{ID: id, Version: mcp.V2511, Capabilities: []byte(`{"elicitation":{}}`)}
	}
	opened := func(client *edge.Session) *session {
		t.Helper()
		s, err := b.sessionOf(client, b.Known())
		if err == nil {
			_, err = s.link(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	// The session goes from one process to the next.
	old := client("old")
	before := opened(old)
	asked := before.number(nil)
	h, ok := b.Hand(t.Context(), old)
	taken := client("taken")
	if !ok || !b.Take(taken, h) {
		t.Fatalf("%+v is not taken", h)
	}
	b.HandedOver(old, h)
	b.Leave(old)
	one, other := opened(taken), opened(client("fresh"))
	for range 3 {
		for _, s := range []*session{one, other} {
			is := map[*session]*session{one: other, other: one}[s]
			if id := s.number(nil); !s.gave(id) || s.foreign(id) || is.gave(id) || !is.foreign(id) {
				t.Errorf("%s is not known as the number of one session alone", id)
			}
		}
	}
	if !one.gave(asked) {
		t.Errorf("%s, which the process before asked by, is taken for another's", asked)
	}

	// Nothing that is handed over has numbers be known that nobody gave.
	for _, h := range []Handed{
		{ID: "up", Version: mcp.V2511, Requests: firstNumber + 5},
		{ID: "up", Version: mcp.V2511, First: 5, Requests: firstNumber + 5},
		{ID: "up", Version: mcp.V2511, First: lastStart, Requests: firstNumber + 5},
	} {
		odd := client("odd")
		if !b.Take(odd, h) {
			t.Fatalf("%+v is not taken", h)
		}
		s := opened(odd)
		if id := s.number(nil); !s.gave(id) || s.gave([]byte("10000000000005")) || s.gave([]byte("6")) {
			t.Errorf("%+v: %s and others", h, id)
		}
		b.Leave(odd)
	}

	// Both have a call under way.
	for _, s := range []*session{one, other} {
		s.add(&call{id: s.number(nil), method: "tools/call", client: edge.NoClient{}})
	}
	if s := b.bridge.sole(); s != nil {
		t.Errorf("one of two sessions with calls under way counts as the only one; the fresh one: %t", s == other)
	}
	q, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if owner, _ := b.bridge.claim(q); owner != nil {
		t.Errorf("a question that came to both has an owner; the fresh one: %t", owner == other)
	}
	b.Leave(taken)
	if s := b.bridge.sole(); s != other {
		t.Error("a session that was taken over stays in the bridge after its end")
	}
}
