package authserver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// TestAgreement: replicas with one store see who cannot read what they make, and whose clock
// is ahead (A23).
func TestAgreement(t *testing.T) {
	onBoth(t, func(t *testing.T, store edge.Store) {
		all := &secrets{all: map[string]string{"as/one": strings.Repeat("1", 32), "as/two": strings.Repeat("2", 32)}}
		replica := func(names ...string) *rig {
			return open(t, options{store: store, secrets: all, config: func(c *authserver.Spec) {
				c.Secrets = nil
				for _, name := range names {
					c.Secrets = append(c.Secrets, ref(name))
				}
			}})
		}
		look := func(r *rig) authserver.Agreement {
			t.Helper()
			a, err := r.Compare(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		if a := look(replica("one")); a.Replicas != 1 || a.Message != "" {
			t.Errorf("alone: %+v", a)
		}
		if a := look(replica("two")); !strings.Contains(a.Message, "none of hmacSecretRefs") {
			t.Errorf("another secret: %+v", a)
		}
		// The key that is made at start is another at each.
		if a := look(replica("two", "one")); a.Replicas != 2 || !strings.Contains(a.Message, "none of signingKeySecretRefs") {
			t.Errorf("another key: %+v", a)
		}
	})
}

// TestClockAhead: the clock of a replica that is minutes ahead is told (A23).
func TestClockAhead(t *testing.T) {
	m := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = m.Close() })
	key, err := authserver.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	all := &secrets{all: map[string]string{"as/one": strings.Repeat("1", 32), "as/key": key}}
	replica := func(by time.Duration) *rig {
		r := open(t, options{store: m, secrets: all, config: func(c *authserver.Spec) {
			c.Secrets, c.Keys = []v1beta1.SecretRef{ref("one")}, []v1beta1.SecretRef{ref("key")}
		}})
		r.clock.moves(by)
		return r
	}
	for _, by := range []time.Duration{50 * time.Second, 10 * time.Minute} {
		here, there := replica(0), replica(by)
		if _, err := there.Compare(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, err := here.Compare(t.Context())
		if ahead := strings.Contains(a.Message, "ahead"); err != nil || ahead != (by > time.Minute) {
			t.Errorf("%s: %+v, %v", by, a, err)
		}
	}
}

// TestUsage: it is known, over replicas and restarts, how many sign-ins live of clients that
// are registered under each secret, and what Examine says of a list that lacks one.
func TestUsage(t *testing.T) {
	m := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = m.Close() })
	key, err := authserver.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	all := &secrets{all: map[string]string{"as/one": strings.Repeat("1", 32), "as/two": strings.Repeat("2", 32), "as/key": key}}
	with := func(names ...string) func(*authserver.Spec) {
		return func(c *authserver.Spec) {
			c.Secrets, c.Keys = nil, []v1beta1.SecretRef{ref("key")}
			for _, name := range names {
				c.Secrets = append(c.Secrets, ref(name))
			}
		}
	}
	grants := func(r *rig) (all []int64) {
		t.Helper()
		if err := r.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Status().Secrets {
			all = append(all, s.Grants)
		}
		return all
	}
	// Two sign-ins under the first secret, at one replica, of which one is renewed and one ends.
	a := open(t, options{store: m, secrets: all, config: with("one", "two")})
	client, first := a.signIn()
	_, second := a.signIn()
	if got := grants(a); got[0] != 2 {
		t.Errorf("after two sign-ins: %v", got)
	}
	second.Refresh = a.tokens(a.post("/oauth/token", refreshing(client, first.Refresh))).Refresh
	if got := grants(a); got[0] != 2 {
		t.Errorf("after a refresh: %v", got)
	}
	// Another replica, whose current secret is the next: a sign-in there counts for that.
	b := open(t, options{store: m, secrets: all, config: with("two", "one")})
	b.signIn()
	if got := grants(b); got[0] != 1 || got[1] != 2 {
		t.Errorf("after a rotation: %v", got)
	}
	a.post("/oauth/revoke", map[string][]string{"client_id": {client}, "token": {second.Refresh}})
	if got := grants(a); got[0] != 1 {
		t.Errorf("after a revocation: %v", got)
	}
	grants(b)
	// Who takes the old one off the list is told.
	spec := base()
	with("two")(spec)
	e, err := authserver.Examine(t.Context(), spec, all, m)
	if err != nil || len(e.Missed) != 1 || !strings.Contains(e.Missed[0], "about 1 sign-ins") {
		t.Errorf("%+v, %v", e, err)
	}
	with("two", "one")(spec)
	if e, err = authserver.Examine(t.Context(), spec, all, m); err != nil || len(e.Missed) != 0 || e.Secrets[0].Grants != 1 || e.Secrets[1].Grants != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestMadeAtStart: what was made at start, and how secrets are used, outlive a change of the
// Spec in one process.
func TestMadeAtStart(t *testing.T) {
	m := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = m.Close() })
	lasting, err := authserver.NewLasting()
	if err != nil {
		t.Fatal(err)
	}
	before := open(t, options{store: m, lasting: lasting})
	client, got := before.signIn()
	after := open(t, options{store: m, lasting: lasting, config: func(c *authserver.Spec) { c.Access = 2 * time.Minute }})
	if now := after.tokens(after.post("/oauth/token", refreshing(client, got.Refresh))); now.Access == "" || !after.alive(got.Access) {
		t.Error("a change of the configuration ends sign-ins")
	}
	if n := after.Status().Secrets[0].Grants; n != 1 {
		t.Errorf("%d sign-ins", n)
	}
}
