package authserver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/oauth"
)

func signingKey(t testing.TB) string {
	text, err := oauth.NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestO34 is secrets: too short, rotated, taken away.
func TestO34(t *testing.T) {
	kept := &secrets{all: map[string]string{"as/old": strings.Repeat("o", 32) + "\n", "as/new": strings.Repeat("n", 40), "as/short": strings.Repeat("s", 31) + "\n", "as/key": signingKey(t)}}
	if _, err := try(t, options{secrets: kept, config: func(c *authserver.Spec) { c.Secrets = append(c.Secrets, ref("short")) }}); err == nil || !strings.Contains(err.Error(), "31 bytes") {
		t.Errorf("31 bytes: %v", err)
	}
	m := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = m.Close() })
	with := func(names ...string) *rig {
		return open(t, options{store: m, secrets: kept, config: func(c *authserver.Spec) {
			c.Keys = append(c.Keys, ref("key"))
			for _, n := range names {
				c.Secrets = append(c.Secrets, ref(n))
			}
		}})
	}
	old := with("old")
	client, got := old.signIn()
	code := old.code(asking(client))

	// A15: both orders at once.
	first, second := with("old", "new"), with("new", "old")
	b := first.browser()
	sealed := form(t, b.authorize(asking(client)))
	b.rig = second
	state := stateOf(t, b.answers(sealed, "allow"))
	b.rig = first
	_, q := led(t, b.returns(state))
	second.tokens(second.post("/oauth/token", redeeming(client, q.Get("code"))))
	second.tokens(second.post("/oauth/token", redeeming(client, code)))
	next := second.tokens(second.post("/oauth/token", refreshing(client, got.Refresh)))
	first.tokens(first.post("/oauth/token", refreshing(client, next.Refresh)))
	confidential, secret := old.register(map[string]any{"token_endpoint_auth_method": "client_secret_post"})
	form := refreshing(confidential, "x")
	form.Set("client_secret", secret)
	refused(t, "a secret by the old one", second.post("/oauth/token", form), 400, "invalid_grant")

	// A08: without the old one its clients are unknown.
	only := with("new")
	refused(t, "A08", only.post("/oauth/token", refreshing(client, got.Refresh)), 401, "invalid_client")
	if w := only.browser().authorize(asking(client)); w.Code != 400 || !strings.Contains(w.Body.String(), "add it again") {
		t.Errorf("A08: status %d", w.Code)
	}

	// A08: nor are those of another issuer.
	other := open(t, options{store: m, secrets: kept, config: func(c *authserver.Spec) {
		c.Secrets, c.Issuer = append(c.Secrets, ref("old")), issuer+"/other"
	}})
	w := other.browser().get("/oauth/authorize?" + asking(client).Encode())
	if w.Code != 400 {
		t.Errorf("A08: another issuer: status %d", w.Code)
	}
}

// TestRandomSecrets: 32 random bytes are a secret whatever they end with, and the same one at every
// edge. Text has no line break at its end.
func TestRandomSecrets(t *testing.T) {
	m := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = m.Close() })
	for name, text := range map[string]string{"nl": "\n", "cr": "\r", "crnl": "\r\n", "nlnl": "\n\n"} {
		random := strings.Repeat("\x80a\xff", 11)[:32-len(text)] + text
		kept := &secrets{all: map[string]string{"as/random": random, "as/key": signingKey(t) + "\n\n"}}
		with := options{store: m, secrets: kept, config: func(c *authserver.Spec) {
			c.Keys, c.Secrets = append(c.Keys, ref("key")), append(c.Secrets, ref("random"))
		}}
		first, err := try(t, with)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		client, got := first.signIn()
		second := open(t, with)
		second.tokens(second.post("/oauth/token", refreshing(client, got.Refresh)))
	}
}

// TestChangedSecrets: what changes is used without a restart, and what is wrong is not.
func TestChangedSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &secrets{all: map[string]string{"as/hmac": strings.Repeat("h", 32), "as/key": signingKey(t)}}
		r := open(t, options{secrets: kept, config: func(c *authserver.Spec) {
			c.Secrets, c.Keys = append(c.Secrets, ref("hmac")), append(c.Keys, ref("key"))
		}})
		kid := func() string {
			header, err := oauth.Header(edge.Secret(func() string { _, got := r.signIn(); return got.Access }()))
			if err != nil {
				t.Fatal(err)
			}
			id, _ := header.Text("kid")
			return id
		}
		before := kid()
		change := func(text string) {
			kept.mu.Lock()
			kept.all["as/key"] = text
			kept.mu.Unlock()
			time.Sleep(11 * time.Second)
		}
		change("nonsense")
		if kid() != before || !strings.Contains(r.log.String(), "signingKeySecretRefs") {
			t.Error("nonsense is used, or nobody is told")
		}
		change(signingKey(t))
		if kid() == before {
			t.Error("a new key is not used")
		}
	})
}

// TestSigningKeys: each kind of key that may be, and some that may not.
func TestSigningKeys(t *testing.T) {
	pkcs8 := func(key any, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	ec, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	for name, one := range map[string]struct{ text, alg string }{
		"P-256":    {signingKey(t), "ES256"},
		"SEC 1":    {string(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6}})) + string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})), "ES384"},
		"RSA":      {pkcs8(rsaKey, nil), "RS256"},
		"PKCS#1":   {string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)})), "RS256"},
		"Ed25519":  {pkcs8(ed, err), "EdDSA"},
		"P-521":    {pkcs8(ecdsa.GenerateKey(elliptic.P521(), rand.Reader)), ""},
		"nonsense": {"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", ""},
		"nothing":  {"", ""},
	} {
		kept := &secrets{all: map[string]string{"as/key": one.text}}
		r, err := try(t, options{secrets: kept, config: func(c *authserver.Spec) { c.Keys = append(c.Keys, ref("key")) }})
		switch {
		case one.alg == "" && err == nil:
			t.Errorf("%s: it is taken", name)
		case one.alg == "":
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			_, got := r.signIn()
			if header, _ := oauth.Header(edge.Secret(got.Access)); string(header["alg"]) != `"`+one.alg+`"` || string(header["typ"]) != `"at+jwt"` {
				t.Errorf("%s: header %s", name, header)
			}
			r.claims(got.Access)
			r.claims(got.ID)
		}
	}
}

// TestO36: what is made at start is said, and is gone after a restart.
func TestO36(t *testing.T) {
	m := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = m.Close() })
	one := open(t, options{store: m})
	client, got := one.signIn()
	if !strings.Contains(one.log.String(), "made at start") {
		t.Error("nobody is told")
	}
	two := open(t, options{store: m})
	refused(t, "after a restart", two.post("/oauth/token", refreshing(client, got.Refresh)), 401, "invalid_client")
}

// spy keeps all that a store is given.
type spy struct {
	edge.Store
	all map[string][]byte
}

func (s *spy) Put(ctx context.Context, key string, v []byte, ttl time.Duration) error {
	s.all[key] = v
	return s.Store.Put(ctx, key, v, ttl)
}

func (s *spy) Update(ctx context.Context, key string, ttl time.Duration, change func([]byte) ([]byte, error)) error {
	return s.Store.Update(ctx, key, ttl, func(old []byte) ([]byte, error) {
		v, err := change(old)
		if v != nil {
			s.all[key] = v
		}
		return v, err
	})
}

// TestA03: nothing of a user is readable in a store.
func TestA03(t *testing.T) {
	onBoth(t, func(t *testing.T, store edge.Store) {
		s := &spy{store, map[string][]byte{}}
		r := open(t, options{store: s, names: []string{"corp", "hub"}})
		for range 5 {
			client, got := r.signIn()
			r.tokens(r.post("/oauth/token", refreshing(client, got.Refresh)))
		}
		if len(s.all) < 5*5 {
			t.Fatalf("only %d records", len(s.all))
		}
		for key, value := range s.all {
			all := key + "\n" + string(value)
			for _, planted := range []string{"PLANTED", "alice", "corp:alice", verifier, challenge, callback, "client.example"} {
				for _, form := range []string{planted, base64.StdEncoding.EncodeToString([]byte(planted)), hex.EncodeToString([]byte(planted))} {
					if strings.Contains(all, form) {
						t.Errorf("record %s holds %q", key, planted)
					}
				}
			}
			if !strings.HasPrefix(key, "as:") {
				t.Errorf("key %q", key)
			}
		}
	})
}

// TestA02: a record that is moved, cut or of another kind is not there.
func TestA02(t *testing.T) {
	onBoth(t, func(t *testing.T, store edge.Store) {
		s := &spy{store, map[string][]byte{}}
		r := open(t, options{store: s})
		client, got := r.signIn()
		_, other := r.signIn()
		of := func(prefix string) (keys []string) {
			for key := range s.all {
				if strings.HasPrefix(key, r.Prefix()+prefix) {
					keys = append(keys, key)
				}
			}
			return keys
		}
		grants := of("grant:")
		if len(grants) != 2 {
			t.Fatalf("grants: %v", grants)
		}
		put := func(key string, value []byte) {
			if err := store.Put(t.Context(), key, value, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		a, b := s.all[grants[0]], s.all[grants[1]]
		put(grants[0], b) // moved
		put(grants[1], a[:len(a)-1])
		for name, token := range map[string]string{"one": got.Refresh, "the other": other.Refresh} {
			refused(t, name, r.post("/oauth/token", refreshing(client, token)), 400, "invalid_grant")
		}
		code := r.code(asking(client))
		for _, key := range of("code:") {
			put(key, s.all[of("up:")[0]]) // of another kind
		}
		refused(t, "a code", r.post("/oauth/token", redeeming(client, code)), 400, "invalid_grant")
		if r.Corrupt() < 3 {
			t.Errorf("counted: %d", r.Corrupt())
		}
	})
}
