package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
)

// ofUser is a credential that says for which user a request is.
func ofUser(c *Config) {
	c.Credential = &edge.Credential{Headers: []string{"X-User"}, Personal: true, Attach: func(_ context.Context, r *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
		switch {
		case r.Exchange == nil || r.Exchange.Identity == nil:
			return 0, nil
		case r.Exchange.Identity.Subject == "nobody":
			return 0, edge.Errorf(edge.Unavailable, "attach", "no token")
		}
		set("X-User", edge.Secret(r.Exchange.Identity.Subject))
		return 1, nil
	}}
}

// theirs is a server that answers users alone, each with a tool of its own name. A legacy
// one takes no message of one user in a session of another.
type theirs struct {
	legacy   bool
	mu       sync.Mutex
	sessions map[string]string // users by session
	crossed  []string
	silent   int // requests without a user
}

func (s *theirs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	user := r.Header.Get("X-User")
	if user == "" {
		s.silent++
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if user == "narrow" {
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="files:write"`)
		w.WriteHeader(http.StatusForbidden)
		return
	}
	text, _ := io.ReadAll(r.Body) // what is missing is no message
	m, err := mcp.Decode(text)
	if err != nil || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	session := r.Header.Get("Mcp-Session-Id")
	if s.legacy && m.Method != "initialize" && s.sessions[session] != user && m.Method != "server/discover" {
		s.crossed = append(s.crossed, fmt.Sprintf("%s by %s in the session of %q", m.Method, user, s.sessions[session]))
	}
	result := fmt.Sprintf(`{"resultType":"complete","tools":[{"name":%q,"inputSchema":{"type":"object"}}]}`, user)
	switch {
	case m.Kind == mcp.Notification:
		w.WriteHeader(http.StatusAccepted)
		return
	case m.Method == "server/discover" && s.legacy:
		w.WriteHeader(http.StatusBadRequest)
		return
	case m.Method == "server/discover":
		result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
	case m.Method == "initialize":
		id := fmt.Sprintf("session-%d", len(s.sessions))
		s.sessions[id] = user
		w.Header().Set("Mcp-Session-Id", id)
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"theirs","version":"1"}}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.IDText(), result)
}

// TestPersonal: a backend that answers users alone lives, though nothing of the edge's own
// gets through; what it speaks is learned from the first user's request; each user is
// listed what is theirs, and in sessions of their own.
func TestPersonal(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		t.Run(map[bool]string{false: "modern", true: "legacy"}[legacy], func(t *testing.T) {
			s := &theirs{legacy: legacy, sessions: map[string]string{}}
			breaker := health.NewBreaker("back", 1, time.Hour)
			b := open(t, s.ServeHTTP, func(c *Config) {
				ofUser(c)
				c.Breaker = breaker
				c.Health = health.Config{Interval: time.Hour, Timeout: 5 * time.Second, Rules: health.Rules{Threshold: 1}}
			})
			for end := time.Now().Add(10 * time.Second); b.monitor.Snapshot().Is() != health.Ready; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("status %s, %s", b.monitor.Snapshot().Is(), b.Status().Message)
				}
			}
			if b.Known() != nil {
				t.Fatal("it introduced itself to nobody")
			}
			if _, err := b.Introduced(t.Context(), nil); !b.WantsUser(err) {
				t.Errorf("of the edge's own: %v", err)
			}
			who := func(name string) *edge.Identity {
				return &edge.Identity{Issuer: "https://issuer", Subject: name, Token: "t"}
			}
			// One who has no credential is refused, and it is no fault of the backend.
			if _, err := b.List(t.Context(), who("nobody"), "tools/list", nil); edge.KindOf(err) != edge.Unavailable {
				t.Fatal(err)
			}
			for range 2 {
				for _, name := range []string{"ada", "bob"} {
					text, err := b.List(t.Context(), who(name), "tools/list", nil)
					if err != nil || !strings.Contains(string(text), `"name":"`+name+`"`) {
						t.Fatalf("%s is listed %s, %v", name, text, err)
					}
				}
			}
			if in := b.Known(); in == nil || (in.Era == mcp.Legacy) != legacy {
				t.Errorf("%+v", in)
			}
			// Nor one whom the backend wants more scopes of.
			_, err := b.List(t.Context(), who("narrow"), "tools/list", nil)
			var lacks *edge.ScopeError
			if edge.KindOf(err) != edge.Denied || !errors.As(err, &lacks) || !lacks.Elsewhere || strings.Join(lacks.Scopes, " ") != "files:write" {
				t.Errorf("%v", err)
			}
			if err := b.probe(t.Context()); err != nil && !b.wantsUser(err) {
				t.Errorf("the probe found %v", err)
			}
			if _, err := breaker.Allow(); err != nil {
				t.Errorf("the circuit is open: %v", err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.crossed) > 0 || s.silent == 0 {
				t.Errorf("%q; %d requests without a user", s.crossed, s.silent)
			}
		})
	}
}

// TestPersonalParams: which headers a tool wants is asked with the credential of the call.
func TestPersonalParams(t *testing.T) {
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		m, err := mcp.Decode(text)
		if r.Header.Get("X-User") == "" || err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		answer := `"result":{"resultType":"complete","content":[]}`
		switch {
		case m.Method == "server/discover":
			answer = `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
		case m.Method == "tools/list":
			answer = `"result":{"resultType":"complete","tools":[{"name":"t","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"R"}}}}]}`
		case r.Header.Get("Mcp-Param-R") != "eu":
			w.WriteHeader(http.StatusBadRequest)
			answer = `"error":{"code":-32020,"message":"a header is missing"}`
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.IDText(), answer)
	}, ofUser)
	m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"r":"eu"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	x := &edge.Exchange{Era: mcp.Legacy, Request: m, Identity: &edge.Identity{Issuer: "i", Subject: "ann", Token: "t"},
		Session: &edge.Session{ID: "s", Version: mcp.V2511, Capabilities: []byte("{}")}, Client: edge.NoClient{}}
	if r, err := b.Handle(t.Context(), x); err != nil || r.Kind != mcp.Result {
		t.Errorf("%+v, %v", r, err)
	}
}
