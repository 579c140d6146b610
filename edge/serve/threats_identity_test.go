package serve_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// mint is an identity provider that the test asks for tokens itself.
type mint struct{ *edgetest.Mint }

func newMint(t *testing.T) *mint {
	t.Helper()
	return &mint{edgetest.NewMint(t, "weir")}
}

// token is a token for a subject.
func (m *mint) token(t *testing.T, subject, audience string, more map[string]any) string {
	t.Helper()
	claims := map[string]any{"aud": audience}
	maps.Copy(claims, more)
	return m.Token(subject, claims)
}

// newGuarded is an edge that wants tokens, before a backend of an era.
func newGuarded(t *testing.T, era edgetest.Era) (*front, *mint) {
	t.Helper()
	m := newMint(t)
	back := edgetest.NewServer(t, era)
	yaml := strings.Replace(edgetest.Manifest(back), "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, m.URL+"/keys"), 1)
	e := edgetest.Start(t, yaml)
	f := &front{Edge: e, back: back, client: e.NewClient()}
	edgetest.Until(t, "the keys", func() bool {
		return f.client.Do("GET", "/status", "", "Authorization", "Bearer "+m.token(t, "probe", "weir", nil)).Status == 200
	})
	return f, m
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// TestSessionOfSomebodyElse holds rows M10, M11 and M16: a session is its
// owner's, whatever token the owner shows, and nobody else's.
func TestSessionOfSomebodyElse(t *testing.T) {
	t.Parallel()
	f, m := newGuarded(t, edgetest.Legacy)
	alice, mallory := bearer(m.token(t, "alice", "weir", nil)), bearer(m.token(t, "mallory", "weir", nil))
	r := f.client.Post(handshake, alice...)
	id := r.Header.Get("Mcp-Session-Id")
	if r.Status != 200 || id == "" {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	in := func(who []string) []string { return append([]string{"Mcp-Session-Id", id}, who...) }

	// M10, M16: for everybody else it is as unknown as one that is not there.
	for _, try := range []*edgetest.Response{
		f.client.Post(call, in(mallory)...),
		f.client.Do("DELETE", "/mcp", "", in(mallory)...),
		f.client.Do("GET", "/mcp", "", append(in(mallory), "Accept", "text/event-stream")...),
	} {
		if try.Status != 404 || !strings.Contains(string(try.Body), "-32001") {
			t.Errorf("status %d: %s", try.Status, try.Body)
		}
	}
	if n := f.back.Count("tools/call"); n != 0 {
		t.Errorf("the backend got %d calls", n)
	}
	// M11: the owner goes on with another token.
	again := bearer(m.token(t, "alice", "weir", map[string]any{"jti": "another"}))
	if r := f.client.Post(call, in(again)...); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if r := f.client.Do("DELETE", "/mcp", "", in(again)...); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
}

// TestNoToken holds rows M24 and M26: every method and every door wants a
// token first, and says where to get one.
func TestNoToken(t *testing.T) {
	t.Parallel()
	f, m := newGuarded(t, edgetest.Modern)
	body, head := edgetest.ModernRequest("1", "tools/list", "", edgetest.Meta())
	for name, token := range map[string]string{
		"none": "", "another audience": m.token(t, "alice", "other", nil), "nonsense": "x.y.z",
		"expired": m.token(t, "alice", "weir", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
	} {
		var who []string
		if token != "" {
			who = bearer(token)
		}
		for _, r := range []*edgetest.Response{
			f.client.Post(body, append(who, head...)...),
			f.client.Post("no JSON", who...), // 401 comes before what is wrong with the message
			f.client.Do("GET", "/mcp", "", append(who, "Accept", "text/event-stream")...),
			f.client.Do("DELETE", "/mcp", "", who...),
			f.client.Do("GET", "/sse", "", append(who, "Accept", "text/event-stream")...),
			f.client.Do("POST", "/messages?sessionId=x", "{}", who...),
			f.client.Do("GET", "/status", "", who...),
		} {
			challenge := r.Header.Get("WWW-Authenticate")
			if r.Status != 401 || !strings.HasPrefix(challenge, "Bearer ") || !strings.Contains(challenge, "resource_metadata=") {
				t.Errorf("%s: status %d, WWW-Authenticate %q: %s", name, r.Status, challenge, r.Body)
			}
			if strings.Contains(string(r.Body), "audience") || strings.Contains(string(r.Body), "weir-") {
				t.Errorf("%s: the answer tells too much: %s", name, r.Body)
			}
		}
	}
	if f.back.Count("tools/list") != 0 {
		t.Error("the backend was asked")
	}
	// The document that the challenge names says who to ask, and is open to every page.
	r := f.client.Do("GET", "/.well-known/oauth-protected-resource/mcp", "")
	if r.Status != 200 || !strings.Contains(string(r.Body), m.URL) || r.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("status %d, %v: %s", r.Status, r.Header, r.Body)
	}
	for _, page := range []string{f.Base(), "https://app.example.com", "null"} {
		get := f.client.Do("GET", "/.well-known/oauth-protected-resource/mcp", "", "Origin", page)
		before := f.client.Do("OPTIONS", "/.well-known/oauth-protected-resource/mcp", "", "Origin", page, "Access-Control-Request-Method", "GET")
		if get.Status != 200 || string(get.Body) != string(r.Body) || get.Header.Get("Access-Control-Allow-Origin") != "*" || before.Status != 204 {
			t.Errorf("a page of %s: status %d, preflight %d: %s", page, get.Status, before.Status, get.Body)
		}
	}
	// What is wanted of a page before it sends anything needs no token.
	if r := f.client.Do("OPTIONS", "/mcp", "", "Origin", f.Base(), "Access-Control-Request-Method", "POST"); r.Status != 204 {
		t.Errorf("OPTIONS: status %d", r.Status)
	}
	// With a token that holds, the client's own never reaches the backend.
	if r := f.client.Post(body, append(bearer(m.token(t, "alice", "weir", nil)), head...)...); r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	for _, seen := range f.back.Requests("") {
		if seen.Header.Get("Authorization") != "" {
			t.Errorf("the backend got the client's token with %s", seen.Kind)
		}
	}
}

// TestS41 has a client that waits to be asked for its body be refused without.
func TestS41(t *testing.T) {
	t.Parallel()
	f, _ := newGuarded(t, edgetest.Modern)
	raw := f.Dial()
	defer raw.Close()
	raw.Write("POST /mcp HTTP/1.1\r\nHost: " + f.Addr() + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\nAuthorization: Bearer nonsense\r\n\r\n")
	r, body := raw.Read()
	if r.StatusCode != 401 || r.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("status %d: %s", r.StatusCode, body)
	}
	if !raw.Ended() {
		t.Error("the connection goes on, with a body to come that nobody asked for")
	}
}

// TestS40 limits the connections of one address, and lets others in.
func TestS40(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	e := edgetest.Start(t, edgetest.Manifest(back), edgetest.Settings(func(s *serve.Settings) { s.MaxConnectionsPerAddress = 10 }))
	var idle []net.Conn
	for range 10 {
		c, err := net.Dial("tcp", e.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	for range 20 {
		raw := e.Dial()
		if r, _ := raw.Read(); r.StatusCode != 429 || r.Header.Get("Retry-After") == "" {
			t.Errorf("status %d", r.StatusCode)
		}
		raw.Close()
	}
	other, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	fmt.Fprintf(other, "GET /health HTTP/1.1\r\nHost: %s\r\n\r\n", e.Addr())
	var b [12]byte
	if _, err := io.ReadFull(other, b[:]); err != nil || string(b[9:]) != "200" {
		t.Errorf("another address is turned down: %q %v", b, err)
	}
	idle[0].Close()
	edgetest.Until(t, "room for one more", func() bool {
		c := e.NewClient()
		r, err := c.Try("GET", "/health", "", "Connection", "close")
		return err == nil && r.Status == 200
	})
}
