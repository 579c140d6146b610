package incoming_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/oauth"
)

// TestJ27 is a provider that answers nonsense. What it costs and how long its
// last good keys serve is held in edge/oauth, and by TestG14.
func TestJ27(t *testing.T) {
	p := newProvider(t, theEC())
	for name, answer := range map[string]http.HandlerFunc{
		"down": hangUp,
		"500":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"HTML": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>hello</html>") },
		"metadata": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		},
		"large": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2<<20)) },
	} {
		p.breaks(answer)
		g := open(t, p.spec(), &oauth.Issuers{Wait: 50 * time.Millisecond})
		_, err := identify(t, g, theEC().mint(p.claims(nil)))
		if edge.KindOf(err) != edge.Overload || err.(*edge.Error).After <= 0 || err.(*edge.Error).Err.Error() != "the identity provider cannot be reached" {
			t.Errorf("%s: %v", name, err)
		}
		if g.Ready() == nil {
			t.Errorf("%s: ready", name)
		}
	}
}

func TestJ28(t *testing.T) {
	p := newProvider(t, theEC())
	var say atomic.Pointer[http.HandlerFunc]
	tell := func(h http.HandlerFunc) { say.Store(&h) }
	p.introspect = func(w http.ResponseWriter, r *http.Request) { (*say.Load())(w, r) }
	answer := func(change map[string]any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			c := map[string]any{"active": true, "client_id": "c", "token_type": "Bearer"}
			for k, v := range change {
				c[k] = v
			}
			_, _ = io.WriteString(w, p.claims(c))
		}
	}
	spec := p.spec()
	spec.IntrospectionURL = p.URL + "/introspect"
	g := open(t, spec)
	n := 0
	opaque := func() string { n++; return fmt.Sprint("opaque-token-", n) }

	tell(answer(nil))
	if id := accepted(t, g, "active", opaque()); id.Subject != "alice" || id.Issuer != p.URL || id.Claims["active"] != nil || len(id.Scopes) != 2 {
		t.Errorf("%+v", id)
	}
	tell(answer(map[string]any{"iss": nil, "exp": nil, "sub": nil}))
	if id := accepted(t, g, "with little said", opaque()); id.Subject != "client:c" || !id.Expires.IsZero() {
		t.Errorf("%+v", id)
	}
	tell(answer(map[string]any{"username": "al"}))
	if id := accepted(t, g, "a user with a name", opaque()); id.Subject != "alice" {
		t.Errorf("%+v", id)
	}
	for name, h := range map[string]http.HandlerFunc{
		"revoked":       answer(map[string]any{"active": false}),
		"active a text": answer(map[string]any{"active": "true"}),
		"active 1":      answer(map[string]any{"active": 1}),
		"no active":     answer(map[string]any{"active": nil}),
		"for others":    answer(map[string]any{"aud": "other"}),
		"for nobody":    answer(map[string]any{"aud": nil}),
		"of others":     answer(map[string]any{"iss": "https://evil.example"}),
		"over":          answer(map[string]any{"exp": time.Now().Add(-time.Second).Unix()}),
		"not yet":       answer(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		"DPoP":          answer(map[string]any{"token_type": "DPoP"}),
		"bound":         answer(map[string]any{"cnf": map[string]any{"jkt": "x"}}),
		"of nobody":     answer(map[string]any{"sub": nil, "client_id": nil}),
		"a name alone":  answer(map[string]any{"sub": nil, "username": "bob"}),
		"odd name":      answer(map[string]any{"sub": nil, "username": 7}),
		"down":          hangUp,
		"500":           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"401":           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"no JSON":       func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "true") },
		"a redirect":    func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, p.URL+"/keys", http.StatusFound) },
	} {
		tell(h)
		refused(t, g, name, opaque(), "")
	}
	hits := p.hits.Load()
	for _, bad := range []string{"a\r\nb", "a b", `a"b`, "é", "", "="} {
		if _, err := identify(t, g, bad); edge.KindOf(err) != edge.Unauthenticated {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if p.hits.Load() != hits {
		t.Error("what is no token was introspected")
	}
	refused(t, open(t, p.spec()), "without introspection", "opaque", "not a JWT")
}

// TestJ29 holds for how long an answer of introspection is used: never past the
// token's end, and not for long.
func TestJ29(t *testing.T) {
	p := newProvider(t, theEC())
	var asked atomic.Int32
	var exp atomic.Int64
	p.introspect = func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, p.claims(map[string]any{"active": true, "exp": exp.Load()}))
	}
	spec := p.spec()
	spec.IntrospectionURL = p.URL + "/introspect"
	g := open(t, spec)
	start := time.Now()
	var ahead atomic.Int64
	g.SetClock(func() (int64, time.Duration) {
		d := time.Duration(ahead.Load())
		return start.Add(d).UnixNano(), d
	})
	exp.Store(start.Add(5 * time.Second).Unix())
	for range 3 {
		accepted(t, g, "a fresh token", "opaque")
	}
	if asked.Load() != 1 {
		t.Errorf("it was asked about %d times", asked.Load())
	}
	ahead.Store(int64(5 * time.Second))
	refused(t, g, "at its end", "opaque", "over")
	if asked.Load() != 2 {
		t.Errorf("at its end it was asked about %d times", asked.Load()-1)
	}
}

// TestJ30 is a wall clock that jumps while tokens are in use.
func TestJ30(t *testing.T) {
	p, g := ready(t)
	start := time.Now()
	var wall, mono atomic.Int64
	g.SetClock(func() (int64, time.Duration) { return start.UnixNano() + wall.Load(), time.Duration(mono.Load()) })
	pass := func(d time.Duration) { wall.Add(int64(d)); mono.Add(int64(d)) }
	live := theRSA().mint(p.claims(map[string]any{"exp": start.Add(30 * time.Minute).Unix()}))
	fresh := func() string {
		return theRSA().mint(p.claims(map[string]any{"exp": start.Add(31 * time.Minute).Unix(), "jti": mono.Load()}))
	}
	dead := theRSA().mint(p.claims(map[string]any{"exp": start.Add(-10 * time.Minute).Unix()}))
	accepted(t, g, "before", live)
	refused(t, g, "over, before", dead, "over")
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		wall.Add(int64(jump))
		for range 4 {
			accepted(t, g, fmt.Sprintf("after a jump of %s", jump), live)
			accepted(t, g, fmt.Sprintf("a new one after a jump of %s", jump), fresh())
			refused(t, g, fmt.Sprintf("over, after a jump of %s", jump), dead, "over")
			pass(time.Minute)
		}
		wall.Add(int64(-jump)) // the clock is put right
		accepted(t, g, "after it", live)
		pass(time.Minute)
	}
	// A jump that lasts is the truth, as after a machine was suspended.
	wall.Add(int64(time.Hour))
	accepted(t, g, "at first", live)
	pass(6 * time.Minute)
	refused(t, g, "in the end", live, "over")
	// A clock that is put right within the skew is followed at once.
	pass(time.Minute)
}

func TestJ31(t *testing.T) {
	ours, theirs := newEC("shared"), newEC("shared")
	a, b := newProvider(t, ours), newProvider(t, theirs)
	issuers := &oauth.Issuers{}
	ga, gb := open(t, a.spec(), issuers), open(t, b.spec(), issuers)
	tokenA, tokenB := ours.mint(a.claims(nil)), theirs.mint(b.claims(nil))
	accepted(t, ga, "A at A", tokenA)
	accepted(t, gb, "B at B", tokenB)
	refused(t, gb, "A at B", tokenA, "signature")
	refused(t, ga, "B at A", tokenB, "signature")
	refused(t, ga, "A's key, B's name", ours.mint(b.claims(nil)), "iss")
}

// TestStrangersAtTheIssuer: while strangers' tokens take all the room in which an issuer is asked
// about tokens that nobody knows, those that were active before go on. They are known for a while,
// and no longer once they are inactive.
func TestStrangersAtTheIssuer(t *testing.T) {
	p := newProvider(t, theEC())
	const strangers = 64
	start := time.Now()
	var under, revoked atomic.Int32
	leave := make(chan struct{})
	p.introspect = func(w http.ResponseWriter, r *http.Request) {
		token := r.PostFormValue("token")
		if strings.HasPrefix(token, "stranger") {
			under.Add(1)
			<-leave
			return
		}
		_, _ = io.WriteString(w, p.claims(map[string]any{"active": revoked.Load() == 0, "exp": start.Add(time.Hour).Unix()}))
	}
	spec := p.spec()
	spec.IntrospectionURL = p.URL + "/introspect"
	g := open(t, spec)
	var ahead atomic.Int64
	g.SetClock(func() (int64, time.Duration) {
		d := time.Duration(ahead.Load())
		return start.Add(d).UnixNano(), d
	})
	accepted(t, g, "at first", "known")
	accepted(t, g, "at first", "idle")
	var all sync.WaitGroup
	for i := range strangers {
		all.Go(func() { _, _ = identify(t, g, fmt.Sprint("stranger-", i)) })
	}
	defer all.Wait()
	defer close(leave)
	edgetest.Until(t, "strangers in all the room", func() bool { return under.Load() == strangers })
	busy := func(what, token string) {
		t.Helper()
		if _, err := identify(t, g, token); edge.KindOf(err) != edge.Overload {
			t.Errorf("%s: %v", what, err)
		}
	}
	busy("one more stranger", "never-seen")
	ahead.Store(int64(11 * time.Second))
	accepted(t, g, "a token that was active 11 s ago", "known")
	ahead.Store(int64(10*time.Minute + time.Second))
	accepted(t, g, "a token that was active 10 min ago", "known")
	busy("a token that nobody has shown for longer", "idle")
	revoked.Store(1)
	accepted(t, g, "within 10 s of the issuer's word", "known")
	ahead.Add(int64(11 * time.Second))
	refused(t, g, "a token that is revoked", "known", "inactive")
	busy("the same again, which is forgotten", "known")
}
