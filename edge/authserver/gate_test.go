package authserver_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/filters/incoming"
)

// gate is the gate of a server that trusts the issuer, which is in this process.
func (r *rig) gate(audience string) *incoming.Gate {
	r.t.Helper()
	parsed, err := incoming.Parse(incoming.Spec{Type: incoming.OIDC, Issuer: issuer, Audience: audience})
	if err != nil {
		r.t.Fatal(err)
	}
	cache, err := kv.NewCache(1 << 20)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(cache.Close)
	own := &incoming.Own{Keys: r.Keys, Look: func(ctx context.Context, id string) (incoming.Grant, error) {
		l, err := r.Look(ctx, id)
		if l == nil {
			return nil, err
		}
		return l, nil
	}}
	g, err := parsed.Own(own).Start(edge.Env{Now: r.clock.now, Cache: func(part string) edge.Cache { return cache.Part(part) }, Defer: func(func()) {}}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

// TestGate is our tokens before a gate: A21, O32, A14 without calls, and a store that is away.
func TestGate(t *testing.T) {
	r := open(t, options{})
	g := r.gate(audience)
	client, got := r.signIn()
	code := r.code(asking(client))
	kind := func(g *incoming.Gate, token string) edge.Kind {
		_, err := g.Identify(t.Context(), edge.Secret("Bearer "+token), "")
		if err == nil {
			return edge.Internal
		}
		return edge.KindOf(err)
	}
	who, err := g.Identify(t.Context(), edge.Secret("Bearer "+got.Access), "")
	if err != nil || who.Subject != "corp:alice" || who.Issuer != issuer {
		t.Fatalf("%v: %v", who, err)
	}
	for name, token := range map[string]string{"ID token": got.ID, "refresh token": got.Refresh, "client id": client, "code": code} {
		if k := kind(g, token); k != edge.Unauthenticated {
			t.Errorf("A21: %s: kind %d", name, k)
		}
	}
	if k := kind(r.gate(client), got.ID); k != edge.Unauthenticated {
		t.Errorf("A21: an ID token whose audience fits: kind %d", k)
	}
	if k := kind(r.gate("https://edge.example/other"), got.Access); k != edge.Unauthenticated {
		t.Errorf("O32: kind %d", k)
	}
	if k := kind(open(t, options{}).gate(audience), got.Access); k != edge.Unauthenticated {
		t.Errorf("keys of another: kind %d", k)
	}

	// What is known costs nothing of the store.
	before := r.store.calls.Load()
	header := []byte("Bearer " + got.Access)
	remembered := false
	for range 1000 {
		remembered = remembered || g.Remembered(header) != nil
		if k := kind(g, got.Access); k != edge.Internal {
			t.Fatalf("kind %d", k)
		}
	}
	if n := r.store.calls.Load() - before; n != 0 || !remembered {
		t.Errorf("the store was called %d times; remembered: %v", n, remembered)
	}
	if n := testing.AllocsPerRun(100, func() { g.Remembered(header) }); n != 0 {
		t.Errorf("%v allocations", n)
	}

	// Without the store nobody knows, after a while; who stays, stays for it.
	var stay incoming.Stay
	if holds, _ := g.Holds(who, &stay); !holds {
		t.Error("who has come does not stay")
	}
	r.store.gone.Store(true)
	r.clock.moves(10 * time.Second)
	if _, err := g.Identify(t.Context(), edge.Secret(header), ""); edge.KindOf(err) != edge.Overload || err.(*edge.Error).Err.Error() != "sign-ins cannot be looked up at the moment" {
		t.Errorf("without a store: %v", err)
	}
	r.store.gone.Store(false)
	if k := kind(g, got.Access); k != edge.Internal {
		t.Errorf("with the store again: kind %d", k)
	}
	g.Renew(t.Context(), who, &stay)
	if holds, _ := g.Holds(who, &stay); !holds {
		t.Error("who has been looked for does not stay")
	}

	// Revoked, it ends at once.
	r.post("/oauth/revoke", url.Values{"token": {got.Refresh}, "client_id": {client}})
	if g.Remembered(header) != nil || kind(g, got.Access) != edge.Unauthenticated {
		t.Error("a revoked grant lets in")
	}
	_, renew := g.Holds(who, &stay)
	g.Renew(t.Context(), who, &stay)
	if holds, _ := g.Holds(who, &stay); holds || !renew {
		t.Errorf("who has no grant stays: %v, to be looked for: %v", holds, renew)
	}
}

// TestEndedStaysEnded: with --store-failure open, what a replica knows to have ended does not live
// again because the store is away, whoever ended it and however long that lasts.
func TestEndedStaysEnded(t *testing.T) {
	m := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = m.Close() })
	a, b := shared2(t, m)
	client, got := a.signIn()
	_, other := a.signIn()
	id, _ := a.claims(got.Access)["tsid"].(string)
	living, _ := a.claims(other.Access)["tsid"].(string)
	if !b.alive(got.Access) || !b.alive(other.Access) {
		t.Fatal("the grants do not live")
	}
	a.post("/oauth/revoke", url.Values{"token": {got.Refresh}, "client_id": {client}})
	b.clock.moves(10 * time.Second)
	if b.alive(got.Access) {
		t.Fatal("b does not know of the end")
	}
	for _, r := range []*rig{a, b} {
		r.store.gone.Store(true)
		for range 3 {
			r.clock.moves(10 * time.Second)
			if l, err := r.Look(t.Context(), id); l != nil || err == nil && r == b {
				t.Errorf("%v, %v", l, err)
			}
			if r.Believe(id) != nil {
				t.Error("a grant that has ended is believed in")
			}
			if l := r.Believe(living); l == nil || !l.Lives(r.clock.now()) {
				t.Error("one that lives is not")
			}
		}
	}
	b.clock.moves(25 * time.Hour)
	if b.Believe(id) == nil {
		t.Error("it is remembered for longer than any access token lives")
	}
}

// shared2 are two replicas on one store, each with a clock of its own.
func shared2(t testing.TB, store edge.Store) (a, b *rig) {
	kept := &secrets{all: map[string]string{"as/hmac": strings.Repeat("h", 32), "as/key": signingKey(t)}}
	with := func(c *authserver.Spec) {
		c.Secrets, c.Keys = append(c.Secrets, ref("hmac")), append(c.Keys, ref("key"))
	}
	return open(t, options{store: store, secrets: kept, config: with}), open(t, options{store: store, secrets: kept, config: with})
}

// TestStoreAwayAtConsent: a store that is away when the user agrees is told as that, and not as a
// fault of the client or of the provider.
func TestStoreAwayAtConsent(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(nil)
	b := r.browser()
	sealed := form(t, b.authorize(asking(client)))
	r.store.gone.Store(true)
	if w := b.answers(sealed, "allow"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
	if !r.told("consent", authserver.Failed) || r.told("consent", authserver.Refused) {
		t.Errorf("told: %+v", r.events)
	}
	if err := r.Status().Upstreams[0].Err; err != nil {
		t.Errorf("the provider is blamed: %v", err)
	}
}

// TestForgottenGrants: what is known of grants that nobody asks about is given back, with what
// policies read of their users; whoever comes back is known again. Of a grant that has ended
// nothing is left to read.
func TestForgottenGrants(t *testing.T) {
	const many = 48
	r := open(t, options{config: func(c *authserver.Spec) { c.Primary = "corp" }})
	r.clock.stops()
	signIns := func() (all []tokens) {
		for range many {
			_, got := r.signIn()
			if !r.alive(got.Access) {
				t.Fatal("a sign-in does not live")
			}
			all = append(all, got)
		}
		return all
	}
	old := signIns()
	r.clock.moves(2 * time.Minute)
	signIns()
	if n := r.Known(); n > 2*many-many/2 {
		t.Errorf("%d of %d grants are remembered, and nobody asks about %d of them", n, 2*many, many)
	}
	for _, one := range old {
		if !r.alive(one.Access) {
			t.Error("one who comes back is not known")
		}
	}
	client, got := r.signIn()
	id, _ := r.claims(got.Access)["tsid"].(string)
	l, err := r.Look(t.Context(), id)
	if err != nil || l == nil {
		t.Fatal(err)
	}
	if claims, _ := l.Claims(); len(claims) == 0 {
		t.Error("policies read nothing of a user")
	}
	r.post("/oauth/revoke", url.Values{"client_id": {client}, "token": {got.Refresh}})
	if claims, _ := l.Claims(); claims != nil || l.Lives(r.clock.now()) {
		t.Errorf("policies read %v of a sign-in that has ended", claims)
	}
}
