package serve_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/serve"
)

// lasting opens a stream of each kind that lasts, for a client's header, and
// returns them by kind.
func lasting(t *testing.T, f *front, tool string, who []string) map[string]*edgetest.Response {
	t.Helper()
	open := map[string]*edgetest.Response{}
	for name, way := range streamsOf(t, f, tool, func() []string { return who }) {
		r := way()
		if r.Status != 200 || !r.Stream() {
			t.Fatalf("%s: status %d: %s", name, r.Status, r.Body)
		}
		open[name] = r
	}
	return open
}

// ends waits for the end of all streams, and returns when the last one ended.
func ends(t *testing.T, open map[string]*edgetest.Response) time.Time {
	t.Helper()
	for name, r := range open {
		for {
			if _, err := r.TryNext(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	return time.Now()
}

// goesOn holds that streams are open.
func goesOn(t *testing.T, when string, open map[string]*edgetest.Response) {
	t.Helper()
	for name, r := range open {
		if r.Over() {
			t.Errorf("%s: %s has ended", when, name)
		}
	}
}

// unanswered is a backend whose calls tell of progress and wait.
func unanswered(back *edgetest.Server) {
	forever := make(chan struct{})
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		c.Wait(forever)
	})
}

// TestZ09StreamEndsWithItsToken: a stream of any kind ends a minute after the
// token that it was opened with has expired, before one backend and several, and
// those of other tokens go on.
func TestZ09StreamEndsWithItsToken(t *testing.T) {
	for _, several := range []bool{false, true} {
		t.Run(fmt.Sprintf("several %v", several), func(t *testing.T) {
			t.Parallel()
			m, back := newMint(t), edgetest.NewServer(t, edgetest.Legacy)
			unanswered(back)
			tool, yaml := "echo", edgetest.Manifest(back)
			if several {
				tool, yaml = "a_echo", group(map[string]*edgetest.Server{"a": back, "b": edgetest.NewServer(t, edgetest.Modern)}, bestEffort)
			}
			e := edgetest.Start(t, asPeople(m, yaml))
			f := &front{Edge: e, back: back, client: e.NewClient()}
			f.person(t, m, edgetest.Modern, "probe", "")
			long := lasting(t, f, tool, bearer(m.token(t, "alice", "weir", nil)))
			exp := time.Now().Add(-53 * time.Second).Truncate(time.Second)
			short := lasting(t, f, tool, bearer(m.token(t, "alice", "weir", map[string]any{"exp": exp.Unix()})))
			goesOn(t, "within the minute", short)
			if late := ends(t, short).Sub(exp.Add(time.Minute)); late < 0 || late > 5*time.Second {
				t.Errorf("the streams ended %s after the minute", late)
			}
			goesOn(t, "with another token", long)
		})
	}
}

// provider is an identity provider whose keys and grants come and go.
type provider struct {
	*mint
	keyless atomic.Bool // its key is another
	revoked atomic.Bool // opaque tokens are not active
	away    atomic.Bool // nobody answers about them
	less    atomic.Bool // opaque tokens have lost a scope
	asked   atomic.Int64
	serve   http.Handler
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{mint: newMint(t)}
	p.serve = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/introspect" && p.away.Load():
			http.Error(w, "away", http.StatusServiceUnavailable)
		case r.URL.Path == "/introspect":
			p.asked.Add(1)
			w.Header().Set("Content-Type", "application/json")
			if p.revoked.Load() && strings.HasPrefix(r.FormValue("token"), "revoked") {
				_, _ = io.WriteString(w, `{"active":false}`)
				return
			}
			scope := "tools"
			if p.less.Load() && strings.HasPrefix(r.FormValue("token"), "revoked") {
				scope = "other"
			}
			fmt.Fprintf(w, `{"active":true,"sub":%q,"aud":"weir","scope":%q,"exp":%d}`, r.FormValue("token"), scope, time.Now().Add(time.Hour).Unix())
		case p.keyless.Load():
			part := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
			point, _ := other.PublicKey.Bytes()
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","use":"sig","kid":"another","x":%q,"y":%q}]}`, part(point[1:33]), part(point[33:]))
		default:
			p.mint.ServeHTTP(w, r)
		}
	})
	web := httptest.NewServer(p.serve)
	t.Cleanup(web.Close)
	p.mint.URL = web.URL // the issuer's name from here on
	return p
}

// guard has a server ask for tokens of the provider.
func (p *provider) guard(yaml string) string {
	return strings.Replace(yaml, "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, introspectionUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", p.URL, p.URL+"/keys", p.URL+"/introspect"), 1)
}

// TestZ09StreamEndsWithItsKey: when an issuer takes a key back, the streams of
// its tokens end; so they do when a reload takes the issuer away.
func TestZ09StreamEndsWithItsKey(t *testing.T) {
	for _, way := range []string{"key", "issuer", "server"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			p, back := newProvider(t), edgetest.NewServer(t, edgetest.Legacy)
			unanswered(back)
			times := edgetest.With(serve.WithIssuers(&oauth.Issuers{Interval: 20 * time.Millisecond, Refresh: 50 * time.Millisecond}))
			e := edgetest.Start(t, p.guard(edgetest.Manifest(back)), times)
			f := &front{Edge: e, back: back, client: e.NewClient()}
			f.person(t, p.mint, edgetest.Modern, "probe", "")
			open := lasting(t, f, "echo", bearer(p.token(t, "alice", "weir", nil)))
			opaque := lasting(t, f, "echo", bearer("opaque-bob"))
			e.Serve.Beat(time.Now())
			goesOn(t, "at first", open)
			began := time.Now()
			switch way {
			case "key":
				p.keyless.Store(true)
			case "issuer":
				other := newProvider(t)
				if err := e.Serve.Reload(edgetest.Plan(t, other.guard(edgetest.Manifest(back)))); err != nil {
					t.Fatal(err)
				}
			case "server":
				if err := e.Serve.Reload(edgetest.Plan(t, edgetest.Object("another", back))); err != nil {
					t.Fatal(err)
				}
			}
			if took := ends(t, open).Sub(began); took > 5*time.Second {
				t.Errorf("they ended after %s", took)
			}
			if way == "key" {
				goesOn(t, "after the key has gone", opaque) // which no key signs
			} else if took := ends(t, opaque).Sub(began); took > 5*time.Second {
				t.Errorf("those of opaque tokens ended after %s", took)
			}
		})
	}
}

// TestZ09StreamEndsWithItsGrant: the streams of a token that its issuer calls
// inactive, or takes a scope from that all need, end within ten seconds, and so
// they do when it does not say.
func TestZ09StreamEndsWithItsGrant(t *testing.T) {
	for way, refused := range map[string]int{"revoked": 401, "less": 403, "away": 0} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			p, back := newProvider(t), edgetest.NewServer(t, edgetest.Legacy)
			unanswered(back)
			e := edgetest.Start(t, strings.Replace(p.guard(edgetest.Manifest(back)), "clientId: weir,", "clientId: weir, requiredScopes: [tools],", 1))
			f := &front{Edge: e, back: back, client: e.NewClient()}
			token := func(subject string) string { return p.token(t, subject, "weir", map[string]any{"scope": "tools"}) }
			edgetest.Until(t, "the keys", func() bool { return f.client.Post(handshake, bearer(token("probe"))...).Status == 200 })
			open, other := lasting(t, f, "echo", bearer("revoked-alice")), lasting(t, f, "echo", bearer("opaque-bob"))
			signed := lasting(t, f, "echo", bearer(token("carol")))
			n := p.asked.Load()
			edgetest.Until(t, "a question of the edge's own", func() bool { return p.asked.Load() >= n+2 })
			goesOn(t, "after it was asked again", open)
			began := time.Now()
			p.revoked.Store(way == "revoked")
			p.away.Store(way == "away")
			p.less.Store(way == "less")
			if took := ends(t, open).Sub(began); took > 11*time.Second { // a second for a busy machine
				t.Errorf("they ended after %s", took)
			}
			if refused != 0 {
				goesOn(t, "of another grant", other)
				if got := f.client.Post(handshake, bearer("revoked-alice")...).Status; got != refused {
					t.Errorf("and it is let in: status %d", got)
				}
			}
			goesOn(t, "of a signed token", signed)
			if asked := p.asked.Load() - n; asked > 20 {
				t.Errorf("%d questions for two tokens", asked)
			}
		})
	}
}

// TestZ09HeaderNamesOfLists: a modern client before a legacy backend answers for
// the headers that the last whole list which it had wants, not for those of
// lists before it or of somebody else.
func TestZ09HeaderNamesOfLists(t *testing.T) {
	t.Parallel()
	m, back := newMint(t), edgetest.NewServer(t, edgetest.Legacy)
	list := func(more string) {
		result := `{"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"region":{"type":"string"` + more + `}}}}]}`
		back.Always("tools/list", func(c *edgetest.Call) { c.Result(result) })
	}
	back.Always("tools/call", func(c *edgetest.Call) { c.Result(`{"content":[]}`) })
	e := edgetest.Start(t, asPeople(m, edgetest.Manifest(back)))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	alice, bob := f.person(t, m, edgetest.Modern, "alice", ""), f.person(t, m, edgetest.Modern, "bob", "")
	call := func(c caller) int { return c.call(t, "1", `{"region":"eu"}`).Status }
	list(`,"x-mcp-header":"Region"`)
	alice.request(t, "1", "tools/list", "")
	if call(alice) != 400 || call(bob) != 200 {
		t.Errorf("alice, who was told: %d; bob, who was not: %d", call(alice), call(bob))
	}
	list("")
	bob.request(t, "1", "tools/list", "")
	if call(alice) != 400 {
		t.Error("what bob was told counts for alice")
	}
	alice.request(t, "1", "tools/list", "")
	if call(alice) != 200 {
		t.Error("a header is wanted that the last list does not name")
	}
}

// slowly has a provider take its time for a question about a token, and say of
// strangers' that they are not active.
func (p *provider) slowly(t *testing.T, long time.Duration) {
	t.Helper()
	inner := p.serve
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/introspect" {
			time.Sleep(long)
			if strings.HasPrefix(r.FormValue("token"), "stranger") {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"active":false}`)
				return
			}
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	p.mint.URL = web.URL
}

// TestZ09StrangersEndNoStreams: however many strangers have an issuer asked about
// tokens that mean nothing, the streams of good ones go on.
func TestZ09StrangersEndNoStreams(t *testing.T) { // which takes a processor for itself
	p, back := newProvider(t), edgetest.NewServer(t, edgetest.Legacy)
	p.slowly(t, 100*time.Millisecond)
	unanswered(back)
	e := edgetest.Start(t, p.guard(edgetest.Manifest(back)))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	open := lasting(t, f, "echo", bearer("opaque-bob"))
	var over atomic.Bool
	var n, turnedAway atomic.Int64
	var strangers sync.WaitGroup
	for range 200 {
		strangers.Go(func() {
			c := e.NewClient()
			for !over.Load() {
				r, err := c.Try("POST", "/mcp", handshake, bearer(fmt.Sprintf("stranger-%d", n.Add(1)))...)
				if err == nil && r.Status == 503 {
					turnedAway.Add(1)
				}
			}
		})
	}
	for began := time.Now(); time.Since(began) < 13*time.Second && !t.Failed(); time.Sleep(200 * time.Millisecond) {
		goesOn(t, fmt.Sprintf("%s after the strangers began", time.Since(began).Round(time.Second)), open)
	}
	over.Store(true)
	strangers.Wait()
	if turnedAway.Load() == 0 {
		t.Errorf("none of %d strangers found the room taken", n.Load())
	}
}

// TestZ09ManyStreamsOfASlowIssuer: an issuer that takes its time, and is asked
// about many who stay, ends none of their streams; nor does one beside it that
// does not answer at all, whose streams end.
func TestZ09ManyStreamsOfASlowIssuer(t *testing.T) { // which takes a processor for itself
	p, back := newProvider(t), edgetest.NewServer(t, edgetest.Legacy)
	p.slowly(t, 300*time.Millisecond)
	other := newProvider(t)
	silenced := strings.Replace(other.guard(edgetest.Manifest(back)), "name: edgetest", "name: other", 1)
	e := edgetest.Start(t, p.guard(edgetest.Manifest(back))+"\n---\n"+silenced)
	f := &front{Edge: e, back: back, client: e.NewClient()}
	body, head := edgetest.ModernRequest("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`, edgetest.Meta())
	listen := func(path, token string) *edgetest.Response {
		r, err := f.client.Try("POST", path, body, append(bearer(token), head...)...)
		if err != nil || r.Status != 200 || !r.Stream() {
			t.Errorf("%s of %s: %+v, %v", path, token, r, err)
			return nil
		}
		return r
	}
	const many = 300
	open, silent := make(map[string]*edgetest.Response), make(map[string]*edgetest.Response)
	var mu sync.Mutex
	var work sync.WaitGroup
	for lane := range 16 {
		work.Go(func() {
			for n := lane; n < many; n += 16 {
				name := fmt.Sprint("opaque-", n)
				one, two := listen("/servers/edgetest/mcp", name), (*edgetest.Response)(nil)
				if n%4 == 0 {
					two = listen("/servers/other/mcp", name)
				}
				mu.Lock()
				if open[name] = one; two != nil {
					silent[name] = two
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	if t.Failed() {
		return
	}
	began := time.Now()
	other.away.Store(true)
	ends(t, silent)
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("those of the silent issuer ended after %s", took)
	}
	time.Sleep(13*time.Second - time.Since(began))
	goesOn(t, "at the end", open)
}
