package oauth_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/oauth"
)

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func rsaKey(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func rsaJWK(kid string, n *big.Int, e int64) map[string]any {
	return map[string]any{"kty": "RSA", "kid": kid, "n": b64(n.Bytes()), "e": b64(big.NewInt(e).Bytes())}
}

func ecJWK(t testing.TB, kid string, c elliptic.Curve) map[string]any {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := k.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	size := (len(point) - 1) / 2
	return map[string]any{"kty": "EC", "kid": kid, "crv": c.Params().Name, "x": b64(point[1 : 1+size]), "y": b64(point[1+size:])}
}

func set(t testing.TB, keys ...any) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func with(key map[string]any, name string, value any) map[string]any {
	c := map[string]any{}
	for k, v := range key {
		c[k] = v
	}
	if c[name] = value; value == nil {
		delete(c, name)
	}
	return c
}

// TestParseKeys holds which keys are of use. Each case stands beside a sound
// key, which must stay.
func TestParseKeys(t *testing.T) {
	good := ecJWK(t, "good", elliptic.P256())
	r := rsaJWK("r", rsaKey(t, 2048).N, 65537)
	e := ecJWK(t, "e", elliptic.P384())
	pub, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	o := map[string]any{"kty": "OKP", "kid": "o", "crv": "Ed25519", "x": b64(pub)}
	for name, tt := range map[string]struct {
		key map[string]any
		ok  bool
	}{
		"RSA":                      {r, true},
		"EC":                       {e, true},
		"Ed25519":                  {o, true},
		"for signatures":           {with(r, "use", "sig"), true},
		"for verifying":            {with(r, "key_ops", []string{"verify"}), true},
		"with an alg":              {with(r, "alg", "PS512"), true},
		"with what nobody reads":   {with(with(r, "x5c", []string{"garbage"}), "x5t", 1), true},
		"without a kid":            {with(r, "kid", nil), true},
		"for encryption":           {with(r, "use", "enc"), false},
		"for encrypting":           {with(r, "key_ops", []string{"encrypt"}), false},
		"use is no text":           {with(r, "use", []string{"sig"}), false},
		"of a secret type":         {map[string]any{"kty": "oct", "k": "AAAA", "kid": "s"}, false},
		"of no type":               {with(r, "kty", nil), false},
		"private":                  {with(r, "d", "AAAA"), false},
		"HMAC with an RSA key":     {with(r, "alg", "HS256"), false},
		"RSA for encryption":       {with(r, "alg", "RSA-OAEP"), false},
		"alg none":                 {with(r, "alg", "none"), false},
		"alg of another curve":     {with(e, "alg", "ES256"), false},
		"alg is no text":           {with(r, "alg", 1), false},
		"an empty kid":             {with(r, "kid", ""), false},
		"a kid that is no text":    {with(r, "kid", 7), false},
		"a long kid":               {with(r, "kid", strings.Repeat("k", 257)), false},
		"padded":                   {with(r, "n", r["n"].(string)+"="), false},
		"with trailing bits":       {with(r, "e", "AQAC"[:3]+"B"), true},
		"e with trailing bits":     {with(r, "e", "Aw"[:1]+"x"), false},
		"with a line end":          {with(r, "n", r["n"].(string)+"\n"), false},
		"standard base64":          {with(r, "n", "+/"+r["n"].(string)[2:]), false},
		"no modulus":               {with(r, "n", nil), false},
		"a point of another curve": {with(e, "crv", "P-256"), false},
		"an unknown curve":         {with(e, "crv", "secp256k1"), false},
		"a point off the curve":    {with(e, "y", e["x"]), false},
		"the point at infinity":    {with(with(e, "x", b64(make([]byte, 48))), "y", b64(make([]byte, 48))), false},
		"X25519":                   {with(o, "crv", "X25519"), false},
		"a short Ed25519":          {with(o, "x", b64(pub[:31])), false},
	} {
		s, err := oauth.ParseKeys(set(t, good, tt.key))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := 1 + map[bool]int{true: 1}[tt.ok]; s.Len() != want || len(s.Ignored) != 2-want {
			t.Errorf("%s: %d keys, ignored: %q", name, s.Len(), s.Ignored)
		}
		if s.Find("good") == nil {
			t.Errorf("%s: took the sound key along", name)
		}
	}
	for name, doc := range map[string]string{
		"nothing":           ``,
		"no keys":           `{}`,
		"no array":          `{"keys":{}}`,
		"an empty array":    `{"keys":[]}`,
		"a text":            `"keys"`,
		"HTML":              `<html></html>`,
		"two of a name":     `{"keys":[],"keys":[]}`,
		"another case":      strings.Replace(string(set(t, good)), "keys", "Keys", 1),
		"a key in two ways": strings.Replace(string(set(t, good)), `"kty"`, `"use":"sig","use":"sig","kty"`, 1),
		"too many":          `{"keys":[` + strings.Repeat(`{},`, 256) + `{}]}`,
		"nested":            `{"keys":[` + strings.Repeat(`[`, 100_000),
		"only a secret":     `{"keys":[{"kty":"oct","k":"AAAA"}]}`,
	} {
		if s, err := oauth.ParseKeys([]byte(doc)); err == nil {
			t.Errorf("%s: %d keys", name, s.Len())
		}
	}
}

// TestJ06 is two keys of one kid: neither can be told by it.
func TestJ06(t *testing.T) {
	a, b, c := ecJWK(t, "twin", elliptic.P256()), rsaJWK("twin", rsaKey(t, 2048).N, 65537), ecJWK(t, "other", elliptic.P256())
	s, err := oauth.ParseKeys(set(t, a, b, c))
	if err != nil || s.Len() != 1 || s.Find("twin") != nil || s.Find("other") == nil {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := oauth.ParseKeys(set(t, a, b)); err == nil {
		t.Errorf("%d keys", s.Len())
	}
	if s, err := oauth.ParseKeys(set(t, c, map[string]any{"kty": "oct", "kid": "other", "k": "AAAA"})); err == nil {
		t.Errorf("a secret of the same kid: %d keys", s.Len())
	}
}

// TestJ07 is a secret among public keys.
func TestJ07(t *testing.T) {
	s, err := oauth.ParseKeys(set(t, map[string]any{"kty": "oct", "kid": "s", "k": "AAAA"}, ecJWK(t, "e", elliptic.P256())))
	if err != nil || s.Len() != 1 || s.Find("s") != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestJ08 is RSA keys that are weak, or too strong to be cheap.
func TestJ08(t *testing.T) {
	odd := func(bits int) *big.Int { // a number of that size
		n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
		return n.Add(n, big.NewInt(1))
	}
	sound := rsaKey(t, 2048).N
	for name, key := range map[string]map[string]any{
		"512 bits":       rsaJWK("k", odd(512), 65537),
		"1024 bits":      rsaJWK("k", odd(1024), 65537),
		"2047 bits":      rsaJWK("k", odd(2047), 65537),
		"8193 bits":      rsaJWK("k", odd(8193), 65537),
		"65,536 bits":    rsaJWK("k", odd(65536), 65537),
		"e = 1":          rsaJWK("k", sound, 1),
		"e = 2":          rsaJWK("k", sound, 2),
		"e = 2^31 + 1":   rsaJWK("k", sound, 1<<31+1),
		"e = 2^40 + 1":   rsaJWK("k", sound, 1<<40+1),
		"an even number": rsaJWK("k", new(big.Int).Add(sound, big.NewInt(1)), 65537),
		"ROCA":           rsaJWK("k", rocaModulus(), 65537),
	} {
		if s, err := oauth.ParseKeys(set(t, key)); err == nil {
			t.Errorf("%s: %d keys", name, s.Len())
		}
	}
	if _, err := oauth.ParseKeys(set(t, rsaJWK("k", sound, 3))); err != nil {
		t.Errorf("e = 3: %v", err)
	}
}

// rocaModulus is a number with the fingerprint: one that every small prime
// leaves the rest 1 of.
func rocaModulus() *big.Int {
	n := big.NewInt(1)
	for _, p := range []int64{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167} {
		n.Mul(n, big.NewInt(p))
	}
	n.Lsh(n, uint(2048-n.BitLen()))
	return n.Add(n, big.NewInt(1))
}

// TestKeySetFind holds that only a single key can do without a name.
func TestKeySetFind(t *testing.T) {
	a, b := ecJWK(t, "a", elliptic.P256()), ecJWK(t, "b", elliptic.P256())
	one, err := oauth.ParseKeys(set(t, a))
	if err != nil {
		t.Fatal(err)
	}
	two, err := oauth.ParseKeys(set(t, a, b))
	if err != nil {
		t.Fatal(err)
	}
	other, err := oauth.ParseKeys(set(t, b, a))
	if err != nil {
		t.Fatal(err)
	}
	if one.Find("") == nil || one.Find("b") != nil || two.Find("") != nil || two.Find("b") == nil {
		t.Error("keys are not found as they should be")
	}
	if one.Same(two) || !two.Same(other) || two.Same(nil) {
		t.Error("sets are not told apart as they should be")
	}
	r := rsaJWK("r", rsaKey(t, 2048).N, 65537)
	all, err := oauth.ParseKeys(set(t, r))
	if err != nil {
		t.Fatal(err)
	}
	if narrowed, err := oauth.ParseKeys(set(t, with(r, "alg", "PS256"))); err != nil || narrowed.Same(all) {
		t.Errorf("a key that is now for one algorithm is the same: %v", err)
	}
}

// FuzzCanonical: a text is canonical exactly when it can be decoded.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"", "A", "AA", "AB", "AAA", "AAB", "AAAA", "-_9z", "AA==", "A\nA", "ä", "+/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, ok := oauth.DecodeSegment(text); ok != oauth.Canonical(text) {
			t.Errorf("%q: decoded %t, canonical %t", text, ok, oauth.Canonical(text))
		}
	})
}
