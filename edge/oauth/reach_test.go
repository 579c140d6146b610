package oauth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// TestT07Loopback holds what the flag for development opens to learned URLs: this machine, also
// by http, and nothing else.
func TestT07Loopback(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer secure.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	for _, dev := range []bool{false, true} {
		c, err := oauth.New(oauth.Options{Reach: edge.Reach{CAs: ca, DevLoopback: dev}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for url, opened := range map[string]bool{
			plain.URL: true, secure.URL: true, strings.Replace(plain.URL, "127.0.0.1", "localhost", 1): true,
			"http://10.0.0.1/": false, "https://10.0.0.1/": false, "https://192.168.1.1/": false, "http://example.com/": false,
			"http://169.254.169.254/": false, "http://[::ffff:10.0.0.1]/": false, "http://127.1/": false, "http://localhost.example.com/": false,
		} {
			if _, err := c.Do(t.Context(), oauth.Request{URL: url}); (err == nil) != (dev && opened) {
				t.Errorf("dev %v: %s: %v", dev, url, err)
			}
		}
		// What the operator named is dialled in any case, by http where he wrote it so.
		if _, err := c.Do(t.Context(), oauth.Request{URL: plain.URL, Trust: oauth.Named, AllowHTTP: true}); err != nil {
			t.Errorf("dev %v: named: %v", dev, err)
		}
	}
	if _, err := oauth.New(oauth.Options{Reach: edge.Reach{CAs: []byte("nonsense")}}); err == nil {
		t.Error("no error for a bundle without a certificate")
	}
}

// TestSignAssertion holds that an assertion of each kind of key is verified by its public key,
// and says who, for whom, how long, and once.
func TestSignAssertion(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]any{"RS256": small, "EdDSA": edKey}
	for name, curve := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()} {
		if keys[name], err = ecdsa.GenerateKey(curve, rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Unix(1_800_000_000, 0)
	seen := map[string]bool{}
	for alg, key := range keys {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		for range 2 {
			signed, err := oauth.SignAssertion(text, "me", "https://as", now)
			if err != nil {
				t.Fatalf("%s: %v", alg, err)
			}
			header, err1 := oauth.Header(signed)
			claims, err2 := oauth.Claims(signed)
			if err1 != nil || err2 != nil {
				t.Fatalf("%s: %v, %v", alg, err1, err2)
			}
			got, _ := header.Text("alg")
			iss, _ := claims.Text("iss")
			sub, _ := claims.Text("sub")
			id, _ := claims.Text("jti")
			exp, err := claims.Time("exp")
			if got != alg || iss != "me" || sub != "me" || !claims.Audience("https://as") || seen[id] || len(id) < 20 || err != nil || exp.Sub(now) != time.Minute {
				t.Errorf("%s: %v %v", alg, header, claims)
			}
			seen[id] = true
			algorithm, _ := jwa.LookupSignatureAlgorithm(alg)
			if _, err := jws.Verify([]byte(signed), jws.WithKey(algorithm, key.(crypto.Signer).Public())); err != nil {
				t.Errorf("%s: %v", alg, err)
			}
		}
	}
	for _, text := range []string{"", "nonsense", "{}", `{"kty":"oct","k":"AAAA"}`, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := oauth.SignAssertion([]byte(text), "me", "https://as", now); err == nil || strings.Contains(err.Error(), "AAAA") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
