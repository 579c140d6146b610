package authserver_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/kv"
)

// TestStateOfAnyBytes: what a client sends as state comes back byte for byte, text or not.
func TestStateOfAnyBytes(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(nil)
	for _, state := range []string{"\xff\xfe", "a\x00b", "\u2028<&>"} {
		b, q := r.browser(), asking(client)
		q.Set("state", state)
		if _, got := led(t, b.returns(b.allows(q))); got.Get("state") != state {
			t.Errorf("state %q came back as %q", state, got.Get("state"))
		}
	}
}

// TestO27Hosts: a host is written so that a user is shown what is asked, never a look-alike
// that an escape stands for.
func TestO27Hosts(t *testing.T) {
	for _, bad := range []string{"https://%D0%B0pple.com/y", "https://a%2Eb.example/y", "https://apple.com%EF%BC%8Fx.example/y", "https://x@apple.com/y", "https://@apple.com/y"} {
		if authserver.IsDocumentURL(bad) {
			t.Errorf("%s is taken", bad)
		}
		if authserver.MayRegister(bad) {
			t.Errorf("%s may be registered", bad)
		}
	}
	if !authserver.IsDocumentURL("https://apple.com/@y%20z") {
		t.Error("a sound URL is refused")
	}
}

// TestPlaces: two authorization servers do not share a path under two spellings of a host.
func TestPlaces(t *testing.T) {
	a := (&authserver.Spec{Issuer: "https://h.example/a", Base: "https://h.example/a"}).Endpoints()
	b := (&authserver.Spec{Issuer: "https://H.example:443/a", Base: "https://H.example:443/a"}).Endpoints()
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("%v and %v", a, b)
	}
}

// TestRevokeIsTold: a revocation that is refused is told, as every decision is.
func TestRevokeIsTold(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(map[string]any{"token_endpoint_auth_method": "client_secret_post"})
	refused(t, "a wrong secret", r.post("/oauth/revoke", url.Values{"token": {"x"}, "client_id": {client}, "client_secret": {"wrong"}}), 401, "invalid_client")
	if !r.told("revoke", authserver.Refused) {
		t.Error("nothing is told")
	}
}

// TestO41: what a browser has before it allows a login is worth nothing afterwards: the login
// has a cookie of its own, which a cookie that somebody has planted does not stand for.
func TestO41(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(nil)
	b := r.browser()
	b.authorize(asking(client))
	before := map[string]string{}
	for name, value := range b.cookies {
		before[name] = value
	}
	state := b.allows(asking(client))
	planted := r.browser()
	for name := range b.cookies {
		for _, value := range before {
			planted.cookies[name] = value
		}
	}
	for name, value := range b.cookies {
		for _, old := range before {
			if before[name] == "" && value == old {
				t.Errorf("cookie %s is one from before", name)
			}
		}
	}
	if w := planted.returns(state); w.Code != 400 {
		t.Errorf("a planted cookie: status %d", w.Code)
	}
}

// TestO16Late: a state that nobody came back with for ten minutes is worth nothing.
func TestO16Late(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, options{})
		client, _ := r.register(nil)
		b := r.browser()
		soon, late := b.allows(asking(client)), b.allows(asking(client))
		time.Sleep(9*time.Minute + 59*time.Second)
		if w := b.returns(soon); w.Code != 200 {
			t.Errorf("after 9:59: status %d", w.Code)
		}
		time.Sleep(2 * time.Second)
		if w := b.returns(late); w.Code != 400 {
			t.Errorf("after 10:01: status %d", w.Code)
		}
	})
}

// TestO35: signing keys turn in two steps, in which replicas of two neighbouring steps serve
// side by side: each judges the tokens of both, and the old key stays published.
func TestO35(t *testing.T) {
	kept := &secrets{all: map[string]string{"as/hmac": strings.Repeat("h", 32), "as/old": signingKey(t), "as/new": signingKey(t)}}
	store := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = store.Close() })
	var steps []*rig
	for _, names := range [][]string{{"old"}, {"old", "new"}, {"new", "old"}} {
		steps = append(steps, open(t, options{store: store, secrets: kept, config: func(c *authserver.Spec) {
			c.Secrets = append(c.Secrets, ref("hmac"))
			for _, name := range names {
				c.Keys = append(c.Keys, ref(name))
			}
		}}))
	}
	for i, one := range steps {
		for _, other := range steps[max(0, i-1):min(len(steps), i+2)] {
			client, got := one.signIn()
			if _, err := other.gate(audience).Identify(t.Context(), edge.Secret("Bearer "+got.Access), ""); err != nil {
				t.Errorf("a token of step %d: %v", i, err)
			}
			other.tokens(other.post("/oauth/token", refreshing(client, got.Refresh)))
		}
	}
	if a, b := steps[0].Status().Kids, steps[2].Status().Kids; a[0] != b[1] || !strings.Contains(steps[2].get("/.well-known/jwks.json").Body.String(), a[0]) {
		t.Errorf("the old key %v is not published: %v", a, b)
	}
}

// TestTwoIssuers: two authorization servers of one edge take nothing of each other, even with
// the same secrets, keys, store and paths.
func TestTwoIssuers(t *testing.T) {
	kept := &secrets{all: map[string]string{"as/hmac": strings.Repeat("h", 32), "as/key": signingKey(t)}}
	store := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = store.Close() })
	with := func(issuer string) *rig {
		return open(t, options{store: store, secrets: kept, config: func(c *authserver.Spec) {
			c.Issuer, c.Base = issuer, issuer
			c.Secrets, c.Keys = append(c.Secrets, ref("hmac")), append(c.Keys, ref("key"))
		}})
	}
	a, b := with(issuer), with("https://other.example")
	client, got := a.signIn()
	own, _ := b.register(nil)
	refused(t, "a client", b.post("/oauth/token", refreshing(client, got.Refresh)), 401, "invalid_client")
	refused(t, "a refresh token", b.post("/oauth/token", refreshing(own, got.Refresh)), 400, "invalid_grant")
	refused(t, "a code", b.post("/oauth/token", redeeming(own, a.code(asking(client)))), 400, "invalid_grant")
	if w := b.browser().authorize(asking(client)); w.Code != 400 {
		t.Errorf("a client at authorize: status %d", w.Code)
	}
	browser := a.browser()
	sealed := form(t, browser.authorize(asking(client)))
	state := stateOf(t, browser.answers(sealed, "allow"))
	browser.rig = b
	if w := browser.answers(sealed, "allow"); w.Code != 403 {
		t.Errorf("a form: status %d", w.Code)
	}
	if w := browser.returns(state); w.Code != 400 {
		t.Errorf("a state: status %d", w.Code)
	}
	for _, token := range []string{got.Access, got.Refresh} {
		b.post("/oauth/revoke", url.Values{"token": {token}, "client_id": {own}})
	}
	if !a.alive(got.Access) {
		t.Error("the other revoked it")
	}
	if b.alive(got.Access) {
		t.Error("the other knows the grant")
	}
}

// keeping is a store that deletes nothing as long as it is told so.
type keeping struct {
	edge.Store
	on atomic.Bool
}

func (k *keeping) Delete(ctx context.Context, key string) error {
	if k.on.Load() {
		return errGone
	}
	return k.Store.Delete(ctx, key)
}

// TestO05StoreAway: a code that is shown again ends its grant everywhere. Where the store cannot
// end it nobody is told that it is done: whoever shows the code once more ends it then.
func TestO05StoreAway(t *testing.T) {
	memory := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = memory.Close() })
	store := &keeping{Store: memory}
	kept := &secrets{all: map[string]string{"as/hmac": strings.Repeat("h", 32), "as/key": signingKey(t)}}
	replica := func() *rig {
		return open(t, options{store: store, secrets: kept, config: func(c *authserver.Spec) {
			c.Secrets, c.Keys = append(c.Secrets, ref("hmac")), append(c.Keys, ref("key"))
		}})
	}
	r := replica()
	client, _ := r.register(nil)
	again := redeeming(client, r.code(asking(client)))
	got := r.tokens(r.post("/oauth/token", again))
	store.on.Store(true)
	refused(t, "a code again, store away", r.post("/oauth/token", again), 503, "temporarily_unavailable")
	store.on.Store(false)
	refused(t, "a code again", r.post("/oauth/token", again), 400, "invalid_grant")
	if replica().alive(got.Access) {
		t.Error("the grant lives at another replica")
	}
}
