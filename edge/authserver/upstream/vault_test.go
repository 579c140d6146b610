package upstream_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

const ours = "https://edge.example"

// clock is the time of a test, which goes on by itself and can be put forward.
type clock struct{ ahead atomic.Int64 }

func (c *clock) Now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) forward(d time.Duration) { c.ahead.Add(int64(d)) }

// counted are records that count calls, and can fail them.
type counted struct {
	upstream.Records
	gets, updates atomic.Int64
	fails         atomic.Pointer[func(update int64) error] // nil for never
}

// dies has all updates fail after so many more, as where a replica is killed.
func (c *counted) dies(after int64) {
	last := c.updates.Load() + after
	fails := func(n int64) error {
		if n > last {
			return errDead
		}
		return nil
	}
	c.fails.Store(&fails)
}

func (c *counted) Get(ctx context.Context, key string) ([]byte, error) {
	c.gets.Add(1)
	return c.Records.Get(ctx, key)
}

func (c *counted) Update(ctx context.Context, key string, ttl time.Duration, change func([]byte) ([]byte, error)) error {
	n := c.updates.Add(1)
	if f := c.fails.Load(); f != nil {
		if err := (*f)(n); err != nil {
			return err
		}
	}
	return c.Records.Update(ctx, key, ttl, change)
}

// world is replicas over one store and one provider.
type world struct {
	*fake
	clock  *clock
	kept   upstream.Records
	gone   atomic.Int64
	tells  sync.Map // outcome to count
	logins []*upstream.Tokens
}

func newWorld(t testing.TB) *world {
	return &world{fake: newFake(t), clock: &clock{}, kept: records(t)}
}

// onBoth runs a test over the store in memory and over Redis.
func onBoth(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := kvtest.Redis(t)
		store, err := kv.Redis(kv.Options{Addresses: []string{server.Addr}, Timeout: edgetest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		test(t, &world{fake: newFake(t), clock: &clock{}, kept: store})
	})
}

// replica is a vault of its own over the records.
func (w *world) replica(t testing.TB, kept upstream.Records, now func() time.Time) *upstream.Vault {
	t.Helper()
	u := w.oauth2(nil)
	c, wrong := upstream.Parse(field.NewPath("u"), u, redirect)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	p, err := upstream.New(c, upstream.Env{Reach: edge.Reach{CAs: w.CA}, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	v := upstream.NewVault(upstream.VaultOptions{
		Issuer: ours, Providers: []*upstream.Provider{p}, Records: kept, Now: now,
		Gone: func(_ context.Context, grant, provider string) error {
			if provider == "hub" {
				w.gone.Add(1)
			}
			return nil
		},
		Told: func(r upstream.Renewal) {
			n, _ := w.tells.LoadOrStore(r.Outcome, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
		},
	})
	t.Cleanup(func() { v.Close(); p.Close() })
	if len(w.logins) == 0 {
		tokens, _, err := w.login(t, p)
		if err != nil {
			t.Fatal(err)
		}
		w.logins = append(w.logins, tokens)
	}
	return v
}

// keeps keeps the tokens of the first login for a grant.
func (w *world) keeps(t testing.TB, v *upstream.Vault, grant string) {
	t.Helper()
	if err := v.Keep(t.Context(), grant, "hub", w.logins[0], w.clock.Now().Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) refreshes() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, form := range w.asked {
		if form.Get("grant_type") == "refresh_token" {
			n++
		}
	}
	return n
}

func (w *world) told(outcome string) int64 {
	n, ok := w.tells.Load(outcome)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// TestVault is what a backend gets of a login: the token that is good, at the price of one
// look, and only for its own user.
func TestVault(t *testing.T) {
	w := newWorld(t)
	kept := &counted{Records: w.kept}
	v := w.replica(t, kept, w.clock.Now)
	w.keeps(t, v, "g1")
	who := &edge.Identity{Issuer: ours, Subject: "corp:alice", Claims: map[string]any{"tsid": "g1"}}
	before := kept.gets.Load()
	for range 100 {
		if access, _, err := v.Upstream(t.Context(), who, "hub"); err != nil || access != "access-1" {
			t.Fatalf("%q, %v", string(access), err)
		}
	}
	if n := kept.gets.Load() - before; n != 1 {
		t.Errorf("100 calls looked %d times", n)
	}
	for name, one := range map[string]*edge.Identity{
		"another issuer's token":  {Issuer: "https://other", Claims: map[string]any{"tsid": "g1"}},
		"a token of no login":     {Issuer: ours, Claims: map[string]any{}},
		"a grant of nobody":       {Issuer: ours, Claims: map[string]any{"tsid": "g2"}},
		"a grant that is no text": {Issuer: ours, Claims: map[string]any{"tsid": 1}},
	} {
		if access, id, err := v.Upstream(t.Context(), one, "hub"); edge.KindOf(err) != edge.Unauthenticated || access+id != "" {
			t.Errorf("%s: %q, %v", name, string(access), err)
		}
	}
	if _, _, err := v.Upstream(t.Context(), who, "other"); edge.KindOf(err) != edge.Unauthenticated {
		t.Errorf("another provider: %v", err)
	}

	// It lives as its grant, and goes with it.
	if err := v.Extend(t.Context(), "g1", w.clock.Now().Add(48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := v.Drop(t.Context(), "g1"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Upstream(t.Context(), who, "hub"); edge.KindOf(err) != edge.Unauthenticated {
		t.Errorf("after the grant is gone: %v", err)
	}
	if err := v.Extend(t.Context(), "g1", w.clock.Now().Add(48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if tokens, err := v.Peek(t.Context(), "g1", "hub"); err != nil || tokens != nil {
		t.Errorf("it came back: %v, %v", tokens, err)
	}
}

// TestRenewals is T29: for each expiry one refresh, whoever asks, over two replicas; before the
// end beside the calls, after it before them.
func TestRenewals(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		replicas := []*upstream.Vault{w.replica(t, w.kept, w.clock.Now), w.replica(t, w.kept, w.clock.Now)}
		w.keeps(t, replicas[0], "g")
		everybody := func() {
			t.Helper()
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					if _, err := replicas[i%2].Tokens(t.Context(), "g", "hub"); err != nil {
						t.Errorf("a call: %v", err)
					}
				})
			}
			all.Wait()
		}
		everybody()
		if n := w.refreshes(); n != 0 {
			t.Fatalf("%d refreshes of new tokens", n)
		}
		for round := range 5 {
			w.clock.forward(time.Hour + time.Second) // all has ended
			everybody()
			if n := w.refreshes(); n != round+1 {
				t.Fatalf("round %d: %d refreshes", round, n)
			}
		}
		w.clock.forward(time.Hour - 30*time.Second) // it is due
		began := w.refreshes()
		everybody()
		edgetest.Until(t, "the refresh beside the calls", func() bool { return w.told("renewed") == 6 })
		everybody()
		if n := w.refreshes() - began; n != 1 {
			t.Errorf("%d refreshes", n)
		}
		if v, err := replicas[1].Tokens(t.Context(), "g", "hub"); err != nil || v.Access != "access-7" && v.Access != "access-6" {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// TestNewLogin is a provider that says no: the user signs in again, the grant learns it once,
// and the provider is asked no more.
func TestNewLogin(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		one, two := w.replica(t, w.kept, w.clock.Now), w.replica(t, w.kept, w.clock.Now)
		w.keeps(t, one, "g")
		w.set(func() { w.valid = "" })
		w.spoils("/token", say(http.StatusBadRequest, `{"error":"invalid_grant","error_description":"`+planted+`"}`))
		w.clock.forward(2 * time.Hour)
		asked := w.count("/token")
		for range 5 {
			for _, v := range []*upstream.Vault{one, two} {
				_, err := v.Tokens(t.Context(), "g", "hub")
				if edge.KindOf(err) != edge.Unauthenticated {
					t.Fatal(err)
				}
				w.silent(t, "the error", err.Error())
			}
		}
		if n := w.count("/token") - asked; n != 1 || w.gone.Load() != 1 || w.told("gone") != 1 {
			t.Errorf("asked %d times, the grant was told %d times, %d entries", n, w.gone.Load(), w.told("gone"))
		}

		// The next login ends that.
		w.spoils("/token", nil)
		w.clock.forward(-2 * time.Hour)
		w.keeps(t, two, "g")
		if tokens, err := two.Tokens(t.Context(), "g", "hub"); err != nil || tokens.Access != "access-1" {
			t.Errorf("after a new login: %v", err)
		}

		// Without a refresh token it ends with the access token.
		w.logins[0].Refresh = ""
		w.keeps(t, one, "h")
		if _, err := one.Tokens(t.Context(), "h", "hub"); err != nil {
			t.Fatal(err)
		}
		w.clock.forward(2 * time.Hour)
		if _, err := one.Tokens(t.Context(), "h", "hub"); edge.KindOf(err) != edge.Unauthenticated || w.gone.Load() != 2 {
			t.Errorf("no refresh token: %v", err)
		}
	})
}

// TestNoLoginWithIt: a provider that a login knows nothing of, since it is newer, or that the edge
// has no longer, needs a new login, and the grant is told, so that its refresh ends.
func TestNoLoginWithIt(t *testing.T) {
	w := newWorld(t)
	told := ""
	c, wrong := upstream.Parse(field.NewPath("u"), w.oauth2(nil), redirect)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	p, err := upstream.New(c, upstream.Env{Reach: edge.Reach{CAs: w.CA}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	login, _, err := w.login(t, p)
	if err != nil {
		t.Fatal(err)
	}
	for what, providers := range map[string][]*upstream.Provider{"of a newer provider": {p}, "without the provider": nil} {
		v := upstream.NewVault(upstream.VaultOptions{Issuer: ours, Providers: providers, Records: w.kept,
			Gone: func(_ context.Context, grant, provider string) error {
				told += grant + " " + provider + ";"
				return nil
			}})
		grant := "old"
		if providers == nil {
			grant = "removed"
			if err := v.Keep(t.Context(), grant, "hub", login, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		told = ""
		if _, err := v.Tokens(t.Context(), grant, "hub"); edge.KindOf(err) != edge.Unauthenticated || told != grant+" hub;" {
			t.Errorf("%s: %v; told %q", what, err, told)
		}
		v.Close()
	}
}

// TestRefusedByABackend is a token that a backend does not take, though it has not ended: without a
// refresh token the user signs in again, but not at once after a login.
func TestRefusedByABackend(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		one, two := w.replica(t, w.kept, w.clock.Now), w.replica(t, w.kept, w.clock.Now)
		who := &edge.Identity{Issuer: ours, Subject: "alice", Claims: map[string]any{"tsid": "g"}}
		w.keeps(t, one, "g")
		refused := func(access edge.Secret, kind edge.Kind) {
			t.Helper()
			if err := two.Refused(t.Context(), who, "hub", access, false); kind == 0 && err != nil || kind != 0 && edge.KindOf(err) != kind {
				t.Error(err)
			}
		}
		before := w.count("/token")
		has := func(v *upstream.Vault, access string, asked int) {
			t.Helper()
			tokens, err := v.Tokens(t.Context(), "g", "hub")
			if n := w.count("/token") - before; err != nil || string(tokens.Access) != access || n != asked {
				t.Errorf("%v, the provider was asked %d times; want %s and %d times", err, n, access, asked)
			}
		}

		// 1. It can be renewed, though not one that was issued just now.
		w.clock.forward(2 * time.Minute)
		refused("another", 0)
		has(two, "access-1", 0)
		refused("access-1", 0)
		has(two, "access-2", 1)
		w.clock.forward(11 * time.Second) // until the other replica looks
		has(one, "access-2", 1)
		refused("access-1", 0) // by a call that was under way
		refused("access-2", 0)
		has(two, "access-2", 1)

		// 2. While the provider says nothing the token stays: other backends may take it. Each
		// attempt waits a second.
		w.clock.forward(2 * time.Minute)
		w.spoils("/token", say(http.StatusServiceUnavailable, planted))
		refused("access-2", 0)
		has(two, "access-2", 2)
		refused("access-2", 0)
		has(two, "access-2", 2)
		w.clock.forward(2 * time.Second)
		var many sync.WaitGroup
		for range 10 {
			many.Go(func() { refused("access-2", 0) })
		}
		many.Wait()
		has(two, "access-2", 3)
		w.spoils("/token", nil)
		w.clock.forward(2 * time.Second)
		refused("access-2", 0)
		has(two, "access-3", 4)

		// 3. The provider has decided that it is over.
		w.clock.forward(2 * time.Minute)
		w.spoils("/token", say(http.StatusBadRequest, `{"error":"invalid_grant"}`))
		refused("access-3", edge.Unauthenticated)
		if w.gone.Load() != 1 {
			t.Errorf("the grant was told %d times", w.gone.Load())
		}
		w.spoils("/token", nil)

		// 4. It cannot be renewed.
		w.gone.Store(0)
		w.logins[0].Refresh = ""
		w.logins[0].Expires = time.Time{}
		w.logins[0].Issued = w.clock.Now()
		w.keeps(t, two, "g")
		refused("access-1", 0) // of a login just now
		w.clock.forward(2 * time.Minute)
		refused("another", 0)
		if w.gone.Load() != 0 {
			t.Fatalf("the grant was told %d times", w.gone.Load())
		}
		if err := two.Refused(t.Context(), who, "hub", "access-1", true); err != nil { // by a token service of one backend
			t.Error(err)
		}
		if tokens, err := two.Tokens(t.Context(), "g", "hub"); err != nil || tokens.Access != "access-1" || w.gone.Load() != 0 {
			t.Errorf("one token service takes it from all backends: %v; the grant was told %d times", err, w.gone.Load())
		}
		refused("access-1", edge.Unauthenticated)
		w.clock.forward(11 * time.Second)
		for _, v := range []*upstream.Vault{one, two} {
			if _, err := v.Tokens(t.Context(), "g", "hub"); edge.KindOf(err) != edge.Unauthenticated || w.gone.Load() != 1 {
				t.Errorf("%v; the grant was told %d times", err, w.gone.Load())
			}
		}
	})
}

// TestRefusedIDToken is an ID token that whoever makes credentials of it does not take. Where no
// other comes the user signs in again, and the access token stays in use.
func TestRefusedIDToken(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		one := w.replica(t, w.kept, w.clock.Now)
		who := &edge.Identity{Issuer: ours, Subject: "alice", Claims: map[string]any{"tsid": "g"}}
		id := func(n int, life time.Duration) edge.Secret {
			text := fmt.Sprintf(`{"n":%d,"exp":%d}`, n, w.clock.Now().Add(life).Unix())
			return edge.Secret("e30." + base64.RawURLEncoding.EncodeToString([]byte(text)) + ".e30")
		}
		before := w.count("/token")
		refused := func(what string, token edge.Secret, kind edge.Kind, asked int, gone int64) {
			t.Helper()
			err := one.Refused(t.Context(), who, "hub", token, true)
			if n := w.count("/token") - before; kind == 0 && err != nil || kind != 0 && edge.KindOf(err) != kind || n != asked || w.gone.Load() != gone {
				t.Errorf("%s: %v; the provider was asked %d times, want %d; the grant was told %d times, want %d", what, err, n, asked, w.gone.Load(), gone)
			}
		}
		w.logins[0].Issued, w.logins[0].ID, w.logins[0].Expires = w.clock.Now(), id(1, time.Hour), time.Time{}
		w.keeps(t, one, "g")
		refused("one of a login just now", w.logins[0].ID, 0, 0, 0)
		w.clock.forward(61 * time.Minute)
		w.spoils("/token", say(http.StatusServiceUnavailable, planted))
		refused("while the provider is away", w.logins[0].ID, 0, 1, 0)
		w.spoils("/token", nil)
		w.clock.forward(2 * time.Second)

		// The provider of this test issues none at a refresh that is read: the old one stays.
		refused("a refresh that brings no other", w.logins[0].ID, edge.Unauthenticated, 2, 1)
		refused("the same again", w.logins[0].ID, 0, 2, 1)

		// Without a refresh token, and ended within a minute of its login.
		w.logins[0].Refresh = ""
		w.logins[0].Issued, w.logins[0].ID = w.clock.Now(), id(2, 2*time.Second)
		w.keeps(t, one, "g")
		w.clock.forward(3 * time.Second)
		refused("no refresh token", w.logins[0].ID, edge.Unauthenticated, 2, 2)
		if tokens, err := one.Tokens(t.Context(), "g", "hub"); err != nil || tokens.Access != w.logins[0].Access {
			t.Errorf("the access token is gone: %v", err)
		}
	})
}

// TestRefusedAtTwoReplicas: who hears of a refused token while another replica renews it waits for
// the new one, and the provider is asked once.
func TestRefusedAtTwoReplicas(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		looks := &counted{Records: w.kept}
		one, two := w.replica(t, w.kept, w.clock.Now), w.replica(t, looks, w.clock.Now)
		who := &edge.Identity{Issuer: ours, Subject: "alice", Claims: map[string]any{"tsid": "g"}}
		w.keeps(t, one, "g")
		w.clock.forward(2 * time.Minute)
		asked, waits := make(chan struct{}), make(chan struct{})
		w.spoils("/token", func(rw http.ResponseWriter, r *http.Request) {
			w.spoils("/token", nil)
			close(asked)
			<-waits
			w.ServeHTTP(rw, r)
		})
		before := w.count("/token")
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- one.Refused(t.Context(), who, "hub", "access-1", false) }()
		<-asked
		go func() { second <- two.Refused(t.Context(), who, "hub", "access-1", false) }()
		edgetest.Until(t, "the other replica to look again and again", func() bool { return looks.gets.Load() > 3 || len(second) > 0 })
		close(waits)
		if err := <-second; err != nil {
			t.Error(err)
		}
		if tokens, err := two.Tokens(t.Context(), "g", "hub"); err != nil || tokens.Access != "access-2" {
			t.Errorf("%+v, %v", tokens, err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		if n := w.count("/token") - before; n != 2 { // once, which came by twice here
			t.Errorf("the provider was asked %d times", n-1)
		}
	})
}

// TestProviderDown is a provider that does not answer: the old token while it is good, then
// an error, one attempt a second, and no logout.
func TestProviderDown(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]http.HandlerFunc{
		"says nothing": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"status 503":   say(http.StatusServiceUnavailable, planted),
		"HTML":         say(200, "<html>"+planted),
	} {
		w := newWorld(t)
		v := w.replica(t, w.kept, w.clock.Now)
		w.keeps(t, v, "g")
		w.spoils("/token", spoil)
		w.clock.forward(time.Hour - 30*time.Second)
		for range 20 {
			if tokens, err := v.Tokens(t.Context(), "g", "hub"); err != nil || tokens.Access != "access-1" {
				t.Fatalf("%s: while it is good: %v", name, err)
			}
		}
		edgetest.Until(t, "the attempt beside the calls", func() bool { return w.told("failed") > 0 })
		w.clock.forward(time.Minute)
		asked := w.count("/token")
		edgetest.Until(t, "the end of that attempt, which began while it was good", func() bool {
			_, err := v.Tokens(t.Context(), "g", "hub")
			return err != nil
		})
		for range 20 {
			_, err := v.Tokens(t.Context(), "g", "hub")
			if edge.KindOf(err) != edge.Unavailable {
				t.Fatalf("%s: after its end: %v", name, err)
			}
			w.silent(t, name, err.Error())
		}
		if n := w.count("/token") - asked; n > 4 { // an attempt is two requests at most
			t.Errorf("%s: asked %d times in a second or two", name, n)
		}
		w.spoils("/token", nil)
		w.clock.forward(2 * time.Second)
		if tokens, err := v.Tokens(t.Context(), "g", "hub"); err != nil || tokens.Access == "access-1" || w.gone.Load() != 0 {
			t.Errorf("%s: after it is well: %v", name, err)
		}
	}
}

// errDead is what a replica that has been killed sees.
var errDead = errors.New("killed")

// TestKilled is A16: a replica dies after the provider was asked and before that is written.
// The next use has a new token or is a new login, after two requests at most.
func TestKilled(t *testing.T) {
	for _, rotates := range []bool{true, false} {
		t.Run(fmt.Sprint("rotates ", rotates), func(t *testing.T) {
			onBoth(t, func(t *testing.T, w *world) {
				w.rotates = rotates
				killed := &counted{Records: w.kept}
				one := w.replica(t, killed, w.clock.Now)
				w.keeps(t, one, "g")
				killed.dies(1) // after its lease
				w.clock.forward(2 * time.Hour)
				if _, err := one.Tokens(t.Context(), "g", "hub"); err == nil {
					t.Fatal("a killed replica answers")
				}
				two := w.replica(t, w.kept, w.clock.Now)
				var tokens *upstream.Tokens
				var err error
				for tries := range 4 { // it sees the lease, and after the whole life of that takes it
					if tokens, err = two.Tokens(t.Context(), "g", "hub"); edge.KindOf(err) != edge.Unavailable {
						break
					}
					if tries == 3 {
						t.Fatalf("the lease is never taken over: %v", err)
					}
					w.clock.forward(10 * time.Second)
				}
				if rotates && edge.KindOf(err) != edge.Unauthenticated || !rotates && (err != nil || tokens.Access != "access-3") {
					t.Errorf("rotates %v: %+v, %v", rotates, tokens, err)
				}
				if n := w.refreshes(); n > 2 {
					t.Errorf("rotates %v: %d requests", rotates, n)
				}
			})
		})
	}
}

// TestKilledBeforeJudged is T30 over a crash: what was heard and not judged is never used, and
// its refresh token is the one that goes on.
func TestKilledBeforeJudged(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		killed := &counted{Records: w.kept}
		one := w.replica(t, killed, w.clock.Now)
		w.keeps(t, one, "g")
		killed.dies(2) // after its lease, and what it heard
		w.clock.forward(2 * time.Hour)
		if _, err := one.Tokens(t.Context(), "g", "hub"); err == nil {
			t.Fatal("a killed replica answers")
		}
		two := w.replica(t, w.kept, w.clock.Now)
		w.clock.forward(2 * time.Minute) // no difference of clocks explains it
		if tokens, err := two.Peek(t.Context(), "g", "hub"); err != nil || tokens != nil {
			t.Errorf("what nobody judged is used: %+v, %v", tokens, err)
		}
		tokens, err := two.Tokens(t.Context(), "g", "hub")
		if err != nil || tokens.Access != "access-3" || tokens.Refresh != "refresh-3" || tokens.ID != w.logins[0].ID || tokens.ID == "" || w.refreshes() != 2 {
			t.Errorf("%+v, %v, %d requests", tokens, err, w.refreshes())
		}
	})
}

// TestAnswerOfNoUse is T30 for an answer that holds a new refresh token, and nothing else of
// use: the old one is spent, and never shown again.
func TestAnswerOfNoUse(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		v := w.replica(t, w.kept, w.clock.Now)
		w.keeps(t, v, "g")
		w.set(func() { w.tokens = func(a map[string]any) { a["expires_in"] = "soon" } })
		w.clock.forward(2 * time.Hour)
		if tokens, err := v.Tokens(t.Context(), "g", "hub"); edge.KindOf(err) != edge.Unavailable {
			t.Fatalf("%+v, %v", tokens, err)
		}
		w.set(func() { w.tokens = nil })
		w.clock.forward(2 * time.Second)
		if tokens, err := v.Tokens(t.Context(), "g", "hub"); err != nil || tokens.Access != "access-3" || tokens.Refresh != "refresh-3" || w.gone.Load() != 0 {
			t.Errorf("%+v, %v", tokens, err)
		}
	})
}

// TestSlowProvider: a call has the token that is good and due, however long the provider
// takes, also where the replica has not looked lately; and nobody asks for whom the lease is
// over.
func TestSlowProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.replica(t, w.kept, w.clock.Now), w.replica(t, w.kept, w.clock.Now)
	w.keeps(t, first, "g")
	ends := make(chan struct{})
	w.spoils("/token", func(http.ResponseWriter, *http.Request) { <-ends })
	t.Cleanup(func() { close(ends) })
	w.clock.forward(time.Hour - 30*time.Second)
	asked := w.count("/token")
	for i, v := range []*upstream.Vault{first, second, first, second} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if tokens, err := v.Tokens(ctx, "g", "hub"); err != nil || tokens.Access != "access-1" {
			t.Errorf("call %d: %v", i, err)
		}
		cancel()
	}
	began := time.Now()
	edgetest.Until(t, "the end of the attempt", func() bool { return w.told("failed") == 1 })
	if took := time.Since(began); took > 10*time.Second || w.count("/token")-asked != 2 {
		t.Errorf("%d requests in %s, longer than a lease lives", w.count("/token")-asked, took)
	}
}

// TestFence holds that a replica that was taken for dead writes nothing: the provider answers
// it when another has taken over.
func TestFence(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.rotates = false
		one, two := w.replica(t, w.kept, w.clock.Now), w.replica(t, w.kept, w.clock.Now)
		w.keeps(t, one, "g")
		asked, goes := make(chan struct{}), make(chan struct{})
		var first sync.Once
		w.spoils("/token", func(rw http.ResponseWriter, r *http.Request) {
			slow := false
			first.Do(func() { slow = true })
			if slow {
				close(asked)
				<-goes
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			_, _ = fmt.Fprintf(rw, `{"access_token":"late-%v","token_type":"Bearer","expires_in":3600}`, slow)
		})
		w.clock.forward(2 * time.Hour)
		late := make(chan error, 1)
		go func() {
			tokens, err := one.Tokens(context.Background(), "g", "hub")
			if err == nil && tokens.Access != "late-false" {
				err = fmt.Errorf("it has %s", string(tokens.Access))
			}
			late <- err
		}()
		edgetest.Receive(t, asked, "the first request")
		w.clock.forward(2 * time.Minute)
		tokens, err := two.Tokens(t.Context(), "g", "hub")
		if err != nil || tokens.Access != "late-false" {
			t.Fatalf("the one that took over: %v", err)
		}
		close(goes)
		if err := edgetest.Receive(t, late, "the first replica"); err != nil {
			t.Errorf("the one that was taken for dead: %v", err)
		}
		w.clock.forward(20 * time.Second)
		if tokens, err := two.Peek(t.Context(), "g", "hub"); err != nil || tokens.Access != "late-false" {
			t.Errorf("an old fence has written: %+v, %v", tokens, err)
		}
	})
}

// TestClosed holds that a vault whose plan retires keeps what a provider is issuing.
func TestClosed(t *testing.T) {
	w := newWorld(t)
	v := w.replica(t, w.kept, w.clock.Now)
	w.keeps(t, v, "g")
	asked, goes := make(chan struct{}), make(chan struct{})
	w.spoils("/token", func(rw http.ResponseWriter, r *http.Request) {
		close(asked)
		<-goes
		say(200, `{"access_token":"new","token_type":"Bearer","refresh_token":"r","expires_in":36000}`)(rw, r)
	})
	w.clock.forward(2 * time.Hour)
	result, closed := make(chan error, 1), make(chan struct{})
	go func() { _, err := v.Tokens(context.Background(), "g", "hub"); result <- err }()
	edgetest.Receive(t, asked, "the request")
	go func() { v.Close(); close(closed) }()
	edgetest.Until(t, "the vault is closing", func() bool {
		_, err := v.Tokens(t.Context(), "other", "hub")
		return edge.KindOf(err) == edge.Unavailable
	})
	close(goes)
	if err := edgetest.Receive(t, result, "the call"); err != nil {
		t.Error(err)
	}
	edgetest.Receive(t, closed, "the end")
	if tokens, err := w.replica(t, w.kept, w.clock.Now).Tokens(t.Context(), "g", "hub"); err != nil || tokens.Access != "new" {
		t.Errorf("the next plan has %+v, %v", tokens, err)
	}
}

// looked counts how often records are looked at.
type looked struct {
	upstream.Records
	atomic.Int64
}

func (l *looked) Get(ctx context.Context, key string) ([]byte, error) {
	defer l.Add(1)
	return l.Records.Get(ctx, key)
}

// TestClocks is A23 for leases: a replica whose clock is 50 s ahead does not take a lease from
// one that is at work.
func TestClocks(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		one := w.replica(t, w.kept, w.clock.Now)
		looks := &looked{Records: w.kept}
		ahead := w.replica(t, looks, func() time.Time { return w.clock.Now().Add(50 * time.Second) })
		w.keeps(t, one, "g")
		asked, goes := make(chan struct{}), make(chan struct{})
		var once sync.Once
		w.spoils("/token", func(rw http.ResponseWriter, r *http.Request) {
			once.Do(func() { close(asked) })
			<-goes
			say(200, `{"access_token":"new","token_type":"Bearer","refresh_token":"r","expires_in":3600}`)(rw, r)
		})
		w.clock.forward(2 * time.Hour)
		start := w.count("/token")
		results := make(chan error, 2)
		for i, v := range []*upstream.Vault{one, ahead} {
			if i == 1 {
				edgetest.Receive(t, asked, "the first request")
			}
			go func() { _, err := v.Tokens(context.Background(), "g", "hub"); results <- err }()
		}
		for have := looks.Load(); looks.Load() < have+4; { // the other has time to do what it must not
			time.Sleep(time.Millisecond)
		}
		close(goes)
		for range 2 {
			if err := edgetest.Receive(t, results, "a call"); err != nil {
				t.Error(err)
			}
		}
		if n := w.count("/token") - start; n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestChangedGroups is A24: what policies read is new within 10 s of a refresh, and the same
// value while it has not changed.
func TestChangedGroups(t *testing.T) {
	w := newWorld(t)
	u := w.oidc(nil)
	c, _ := upstream.Parse(field.NewPath("u"), u, redirect)
	c.Claims = true
	var vaults []*upstream.Vault
	var first *upstream.Provider
	for range 2 {
		p, err := upstream.New(c, upstream.Env{Reach: edge.Reach{CAs: w.CA}, Secrets: secrets(secret)})
		if err != nil {
			t.Fatal(err)
		}
		v := upstream.NewVault(upstream.VaultOptions{Issuer: ours, Providers: []*upstream.Provider{p}, Records: w.kept, Now: w.clock.Now})
		t.Cleanup(func() { v.Close(); p.Close() })
		vaults, first = append(vaults, v), p
	}
	w.set(func() { w.life = 5 * time.Minute })
	tokens, _, err := w.login(t, first)
	if err != nil {
		t.Fatal(err)
	}
	if err := vaults[0].Keep(t.Context(), "g", "corp", tokens, w.clock.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	peek := func(v *upstream.Vault) *upstream.Tokens {
		t.Helper()
		tokens, err := v.Peek(t.Context(), "g", "corp")
		if err != nil || tokens == nil {
			t.Fatalf("%v, %v", tokens, err)
		}
		return tokens
	}
	old := peek(vaults[1])
	w.clock.forward(11 * time.Second)
	if again := peek(vaults[1]); again != old || fmt.Sprint(old.Claims["groups"]) != "[eng]" {
		t.Errorf("without a change it is another value, or groups %v", old.Claims["groups"])
	}
	w.set(func() { w.claims = func(c map[string]any) { c["groups"] = []string{"ops"} } })
	w.clock.forward(5 * time.Minute)
	if _, err := vaults[0].Tokens(t.Context(), "g", "corp"); err != nil {
		t.Fatal(err)
	}
	for i, v := range vaults {
		if groups := fmt.Sprint(peek(v).Claims["groups"]); groups != "[ops]" {
			t.Errorf("replica %d: policies read groups %s", i, groups)
		}
	}
}

// TestNothingCrosses has 20 users call at once, on two replicas, while all is renewed: each
// has what was issued to it.
func TestNothingCrosses(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		// The provider issues to whoever shows a refresh token "USER/N" the access token "USER-N+1".
		w.spoils("/token", func(rw http.ResponseWriter, r *http.Request) {
			var user string
			var n int
			_ = r.ParseForm()
			if _, err := fmt.Sscanf(r.PostForm.Get("refresh_token"), "%5s/%d", &user, &n); err != nil {
				rw.WriteHeader(http.StatusBadRequest)
				return
			}
			say(200, fmt.Sprintf(`{"access_token":"%s-%d","token_type":"Bearer","refresh_token":"%s/%d","expires_in":3600}`, user, n+1, user, n+1))(rw, r)
		})
		w.logins = []*upstream.Tokens{{Client: "none"}}
		replicas := []*upstream.Vault{w.replica(t, w.kept, w.clock.Now), w.replica(t, w.kept, w.clock.Now)}
		w.spoils("/probe", nil)
		client := w.generation(t)
		for u := range 20 {
			name := fmt.Sprintf("usr%02d", u)
			tokens := &upstream.Tokens{Access: edge.Secret(name + "-0"), Refresh: edge.Secret(name + "/0"), Issued: w.clock.Now(), Expires: w.clock.Now().Add(time.Hour), Client: client}
			if err := replicas[0].Keep(t.Context(), name, "hub", tokens, w.clock.Now().Add(100*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		var crossed atomic.Int64
		for i := range 40 {
			all.Go(func() {
				for n := range 500 {
					name := fmt.Sprintf("usr%02d", (i+n)%20)
					tokens, err := replicas[(i+n)%2].Tokens(t.Context(), name, "hub")
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					if string(tokens.Access[:5]) != name {
						crossed.Add(1)
					}
					if i == 0 && n%100 == 99 {
						w.clock.forward(time.Hour)
					}
				}
			})
		}
		all.Wait()
		if crossed.Load() != 0 {
			t.Errorf("%d tokens of others", crossed.Load())
		}
		if w.told("renewed") < 20 {
			t.Errorf("%d renewals: nothing was shown", w.told("renewed"))
		}
	})
}

// generation is that of the client at the provider.
func (w *world) generation(t *testing.T) string {
	p := w.open(t, w.oauth2(nil), nil, nil)
	_, leg, err := p.Send(t.Context(), "s", nil)
	if err != nil {
		t.Fatal(err)
	}
	return leg.Client
}

// TestStoreAway passes on that the store is away.
func TestStoreAway(t *testing.T) {
	w := newWorld(t)
	away := edge.Errorf(edge.Overload, "kv", "store unavailable")
	v := w.replica(t, awayRecords{away}, w.clock.Now)
	if _, err := v.Tokens(t.Context(), "g", "hub"); !errors.Is(err, away) {
		t.Error(err)
	}
	if err := v.Keep(t.Context(), "g", "hub", w.logins[0], w.clock.Now().Add(time.Hour)); !errors.Is(err, away) {
		t.Error(err)
	}
	if err := v.Drop(t.Context(), "g"); !errors.Is(err, away) {
		t.Error(err)
	}
}

type awayRecords struct{ err error }

func (a awayRecords) Get(context.Context, string) ([]byte, error) { return nil, a.err }
func (a awayRecords) Update(context.Context, string, time.Duration, func([]byte) ([]byte, error)) error {
	return a.err
}

// BenchmarkSeen is a call whose token is known: 0.5 µs, and 0 allocations.
func BenchmarkSeen(b *testing.B) {
	w := newWorld(b)
	v := w.replica(b, w.kept, nil)
	w.keeps(b, v, "g")
	who := &edge.Identity{Issuer: ours, Claims: map[string]any{"tsid": "g"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := v.Upstream(b.Context(), who, "hub"); err != nil {
			b.Fatal(err)
		}
	}
}

var _ edge.Upstreams = (*upstream.Vault)(nil)

// TestPauseOfAnotherClock: after a failure at a replica whose clock is ahead the others try again.
func TestPauseOfAnotherClock(t *testing.T) {
	w := newWorld(t)
	ahead := w.replica(t, w.kept, func() time.Time { return w.clock.Now().Add(10 * time.Minute) })
	one := w.replica(t, w.kept, w.clock.Now)
	w.keeps(t, one, "g")
	w.clock.forward(2 * time.Hour)
	w.spoils("/token", say(http.StatusServiceUnavailable, planted))
	if _, err := ahead.Tokens(t.Context(), "g", "hub"); edge.KindOf(err) != edge.Unavailable {
		t.Fatal(err)
	}
	w.spoils("/token", nil)
	if tokens, err := one.Tokens(t.Context(), "g", "hub"); err != nil || tokens.Access == "access-1" {
		t.Errorf("%+v, %v", tokens, err)
	}
}

// TestClaimsWhileRenewed: policies go on with what they read before while new tokens are kept and
// not judged, also where whoever renewed them was killed.
func TestClaimsWhileRenewed(t *testing.T) {
	w := newWorld(t)
	c, _ := upstream.Parse(field.NewPath("u"), w.oidc(nil), redirect)
	c.Claims = true
	p, err := upstream.New(c, upstream.Env{Reach: edge.Reach{CAs: w.CA}, Secrets: secrets(secret)})
	if err != nil {
		t.Fatal(err)
	}
	killed := &counted{Records: w.kept}
	var vaults []*upstream.Vault
	for _, kept := range []upstream.Records{killed, w.kept} {
		v := upstream.NewVault(upstream.VaultOptions{Issuer: ours, Providers: []*upstream.Provider{p}, Records: kept, Now: w.clock.Now})
		t.Cleanup(v.Close)
		vaults = append(vaults, v)
	}
	t.Cleanup(p.Close)
	tokens, _, err := w.login(t, p)
	if err == nil {
		err = vaults[0].Keep(t.Context(), "g", "corp", tokens, w.clock.Now().Add(24*time.Hour))
	}
	if err != nil {
		t.Fatal(err)
	}
	killed.dies(2) // after its lease, and what it heard
	w.clock.forward(2 * time.Hour)
	if _, err := vaults[0].Tokens(t.Context(), "g", "corp"); err == nil {
		t.Fatal("a killed replica answers")
	}
	got, err := vaults[1].Peek(t.Context(), "g", "corp")
	if err != nil || got == nil || fmt.Sprint(got.Claims["groups"]) != "[eng]" || got.Access+got.Refresh+got.ID != "" {
		t.Errorf("%+v, %v", got, err)
	}
}
