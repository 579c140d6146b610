package incoming_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/filters/incoming"
)

const audience = "https://edge.example.com/mcp"

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// signer is a key of a provider.
type signer struct {
	kid, alg string
	key      crypto.Signer
}

// theRSA and theEC are made once: keys cost more than all the rest.
var (
	theRSA = sync.OnceValue(func() signer {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return signer{"rsa-1", "RS256", k}
	})
	theEC = sync.OnceValue(func() signer { return newEC("ec-1") })
)

func newEC(kid string) signer {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return signer{kid, "ES256", k}
}

func newEd(kid string) signer {
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return signer{kid, "EdDSA", k}
}

// jwk is the public key.
func (s signer) jwk() map[string]any {
	switch k := s.key.Public().(type) {
	case *rsa.PublicKey:
		return map[string]any{"kty": "RSA", "kid": s.kid, "alg": s.alg, "use": "sig", "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			panic(err)
		}
		return map[string]any{"kty": "EC", "kid": s.kid, "alg": s.alg, "use": "sig", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])}
	case ed25519.PublicKey:
		return map[string]any{"kty": "OKP", "kid": s.kid, "alg": s.alg, "use": "sig", "crv": "Ed25519", "x": b64(k)}
	}
	panic("no such key")
}

// raw signs the bytes with the algorithm of the key, whatever they are.
func (s signer) raw(input string) []byte {
	sum := crypto.SHA256.New()
	sum.Write([]byte(input))
	var sig []byte
	var err error
	switch k := s.key.(type) {
	case *rsa.PrivateKey:
		if s.alg == "PS256" {
			sig, err = rsa.SignPSS(rand.Reader, k, crypto.SHA256, sum.Sum(nil), &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		} else {
			sig, err = rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum.Sum(nil))
		}
	case *ecdsa.PrivateKey:
		r, v, e := ecdsa.Sign(rand.Reader, k, sum.Sum(nil))
		sig, err = make([]byte, 64), e
		r.FillBytes(sig[:32])
		v.FillBytes(sig[32:])
	case ed25519.PrivateKey:
		sig = ed25519.Sign(k, []byte(input))
	}
	if err != nil {
		panic(err)
	}
	return sig
}

// token signs a header and claims, given as JSON text.
func (s signer) token(header, claims string) string {
	input := b64([]byte(header)) + "." + b64([]byte(claims))
	return input + "." + b64(s.raw(input))
}

// mint signs claims under an ordinary header.
func (s signer) mint(claims string) string {
	return s.token(fmt.Sprintf(`{"alg":%q,"typ":"at+jwt","kid":%q}`, s.alg, s.kid), claims)
}

// provider is a fake identity provider. Tests replace what it says.
type provider struct {
	*httptest.Server
	mu         sync.Mutex
	keys       []signer
	broken     http.HandlerFunc // answers in place of all, when set
	introspect http.HandlerFunc
	hits       atomic.Int32 // of everything
	fetches    atomic.Int32 // of keys
}

func newProvider(t testing.TB, keys ...signer) *provider {
	t.Helper()
	p := &provider{keys: keys}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.hits.Add(1)
	p.mu.Lock()
	keys, broken, introspect := p.keys, p.broken, p.introspect
	p.mu.Unlock()
	if r.URL.Path == "/keys" {
		p.fetches.Add(1)
	}
	switch {
	case broken != nil:
		broken(w, r)
	case r.URL.Path == "/.well-known/openid-configuration":
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, p.URL, p.URL+"/keys")
	case r.URL.Path == "/keys":
		all := []any{}
		for _, k := range keys {
			all = append(all, k.jwk())
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": all}) // the client may be gone
	case r.URL.Path == "/introspect" && introspect != nil:
		introspect(w, r)
	default:
		http.NotFound(w, r)
	}
}

// change replaces the keys.
func (p *provider) change(keys ...signer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
}

// breaks makes the provider answer everything like this; nil mends it.
func (p *provider) breaks(h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = h
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}

func (p *provider) spec() incoming.Spec {
	return incoming.Spec{Type: incoming.OIDC, Issuer: p.URL, Audience: audience, AllowPrivate: true, AllowHTTP: true}
}

// claims are sound, with members put in, replaced, or (nil) taken out. A value
// of type json.RawMessage stands as it is.
func (p *provider) claims(change map[string]any) string {
	c := map[string]any{
		"iss": p.URL, "aud": audience, "sub": "alice", "scope": "tools:read openid",
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "name": "Alice", "email": "alice@example.com",
	}
	for k, v := range change {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(c); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

func parse(t testing.TB, s incoming.Spec) *incoming.Incoming {
	t.Helper()
	in, err := incoming.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func env(t testing.TB) edge.Env {
	t.Helper()
	return within(t, 64<<20)
}

// within is a world whose cache has a budget of so many bytes.
func within(t testing.TB, budget int64) edge.Env {
	t.Helper()
	cache, err := kv.NewCache(budget)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cache.Close)
	return edge.Env{
		Log: slog.New(slog.DiscardHandler), Defer: t.Cleanup,
		Cache: func(part string) edge.Cache { return cache.Part(part) },
	}
}

// open opens a gate that ends with the test.
func open(t testing.TB, s incoming.Spec, issuers ...*oauth.Issuers) *incoming.Gate {
	t.Helper()
	issuers = append(issuers, &oauth.Issuers{})
	g, err := parse(t, s).Start(env(t), issuers[0])
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func identify(t testing.TB, g *incoming.Gate, token string) (*edge.Identity, error) {
	return g.Identify(t.Context(), edge.Secret("Bearer "+token), "192.0.2.1")
}

func accepted(t testing.TB, g *incoming.Gate, what, token string) *edge.Identity {
	t.Helper()
	id, err := identify(t, g, token)
	if err != nil {
		t.Errorf("%s was refused: %v: %v", what, op(err), err)
		return &edge.Identity{}
	}
	return id
}

// refused demands 401 with a challenge that says no more than it should, for a
// reason that holds the words of why.
func refused(t testing.TB, g *incoming.Gate, what, token, why string) {
	t.Helper()
	id, err := identify(t, g, token)
	if err == nil {
		t.Errorf("%s was accepted as %s", what, id.Subject)
		return
	}
	e, ok := err.(*edge.Error)
	if !ok || e.Kind != edge.Unauthenticated || !strings.Contains(e.Challenge, `error="invalid_token"`) || e.Err.Error() != "the access token is not valid here" {
		t.Errorf("%s: %v", what, err)
		return
	}
	if !strings.Contains(e.Op, why) {
		t.Errorf("%s was refused because %q, not because %q", what, e.Op, why)
	}
	if len(token) > 40 && strings.Contains(e.Error()+e.Challenge, token[len(token)-40:]) {
		t.Errorf("%s: the error holds the token", what)
	}
}

func op(err error) string {
	if e, ok := err.(*edge.Error); ok {
		return e.Op
	}
	return ""
}

// remembered returns the identity that a token has, once the gate remembers it.
func remembered(t testing.TB, g *incoming.Gate, token string) *edge.Identity {
	t.Helper()
	id, err := identify(t, g, token)
	if err != nil {
		t.Fatalf("refused: %v: %v", op(err), err)
	}
	edgetest.Until(t, "a token that is remembered", func() bool {
		again, err := identify(t, g, token)
		if err != nil {
			t.Fatalf("refused: %v: %v", op(err), err)
		}
		same := again == id
		id = again
		return same
	})
	return id
}
