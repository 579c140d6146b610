// Package issuer is an identity provider for tests and tools: it has keys, signs
// whatever it is asked for with the newest, and publishes all of them.
package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Algorithm is what the keys of an issuer are for (RFC 7518 §3.1).
type Algorithm string

// The algorithms, with keys of the curve P-256 and of 2,048 bits.
const (
	ES256 Algorithm = "ES256"
	RS256 Algorithm = "RS256"
)

// Encode is the encoding of the parts of a token (RFC 7515 §2).
var Encode = base64.RawURLEncoding.EncodeToString

// Issuer is an identity provider. It also answers introspection (RFC 7662):
// each opaque token is active and its own subject.
type Issuer struct {
	URL      string // its name, and where relying parties look for it
	Audience string // of its tokens

	Fetches atomic.Int64 // of keys
	Last    atomic.Int64 // when the last fetch was, Unix nanoseconds
	Asked   atomic.Int64 // introspections
	Minted  atomic.Int64 // tokens
	Closes  atomic.Bool  // each connection ends after one answer, which says so

	algorithm Algorithm
	addr      string

	mu   sync.Mutex
	keys []key // the newest first

	server *http.Server
	ended  chan struct{} // closed when the server has ended
}

type key struct {
	kid    string
	signer crypto.Signer
}

// New starts an identity provider with one key, whose tokens are for an
// audience. before returns the address at which others find it, for one that
// stands behind something else; nil is for its own. Leave ends it.
func New(algorithm Algorithm, audience string, before func(addr string) (string, error)) (*Issuer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	i := &Issuer{Audience: audience, algorithm: algorithm, addr: ln.Addr().String()}
	at := i.addr
	if before != nil {
		at, err = before(i.addr)
	}
	if err == nil {
		i.URL = "http://" + at
		err = i.Rotate()
	}
	if err != nil {
		ln.Close()
		return nil, err
	}
	i.serve(ln)
	return i, nil
}

// serve answers whoever connects, until Leave.
func (i *Issuer) serve(ln net.Listener) {
	server, ended := &http.Server{Handler: i, ReadHeaderTimeout: 20 * time.Second}, make(chan struct{})
	go func() { // ends with the listener
		defer close(ended)
		_ = server.Serve(ln)
	}()
	i.server, i.ended = server, ended
}

// Leave closes every connection and takes no other: whoever asks is refused.
func (i *Issuer) Leave() {
	i.server.Close()
	<-i.ended
}

// Return ends what Leave began, at the same address.
func (i *Issuer) Return() error {
	ln, err := net.Listen("tcp", i.addr)
	if err == nil {
		i.serve(ln)
	}
	return err
}

// Rotate signs with another key from now on. The old ones stay published.
func (i *Issuer) Rotate() error {
	var signer crypto.Signer
	var err error
	if i.algorithm == RS256 {
		signer, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return fmt.Errorf("key of the issuer: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = append([]key{{fmt.Sprintf("key-%d", len(i.keys)+1), signer}}, i.keys...)
	return nil
}

// Key is the public key of the newest.
func (i *Issuer) Key() crypto.PublicKey { return i.newest().signer.Public() }

func (i *Issuer) newest() key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[0]
}

// Token is a token for a subject: Claims, signed.
func (i *Issuer) Token(subject string, more map[string]any) (string, error) {
	return i.Sign(i.Claims(subject, more))
}

// Claims are those of a token for a subject that is equal to no other and valid
// for an hour, with more, which come before the others.
func (i *Issuer) Claims(subject string, more map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{"iss": i.URL, "sub": subject, "aud": i.Audience, "jti": i.Minted.Add(1), "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	maps.Copy(claims, more)
	return claims
}

// Sign signs claims with the newest key, as an access token (RFC 9068 §2.1).
func (i *Issuer) Sign(claims map[string]any) (string, error) { return i.SignAs("at+jwt", claims) }

// SignAs signs claims as a JWT of a type (RFC 7519 §5.1).
func (i *Issuer) SignAs(typ string, claims map[string]any) (string, error) {
	text, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("claims: %w", err)
	}
	k := i.newest()
	signed := Encode(fmt.Appendf(nil, `{"alg":%q,"typ":%q,"kid":%q}`, i.algorithm, typ, k.kid)) + "." + Encode(text)
	sum := sha256.Sum256([]byte(signed))
	var signature []byte
	switch key := k.signer.(type) {
	case *ecdsa.PrivateKey:
		r, s, signErr := ecdsa.Sign(rand.Reader, key, sum[:])
		if signErr != nil {
			return "", fmt.Errorf("sign a token: %w", signErr)
		}
		signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	default:
		if signature, err = k.signer.Sign(rand.Reader, sum[:], crypto.SHA256); err != nil {
			return "", fmt.Errorf("sign a token: %w", err)
		}
	}
	return signed + "." + Encode(signature), nil
}

// ServeHTTP answers as an identity provider: with its metadata (RFC 8414), its
// keys (RFC 7517) at /keys, and what tokens are at /introspect.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if i.Closes.Load() {
		w.Header().Set("Connection", "close")
	}
	var answer any
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration":
		answer = map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/auth", "token_endpoint": i.URL + "/token", "response_types_supported": []string{"code"}}
	case "/keys":
		i.Fetches.Add(1)
		i.Last.Store(time.Now().UnixNano())
		answer = map[string]any{"keys": i.published()}
	case "/introspect":
		i.Asked.Add(1)
		name := r.FormValue("token")
		answer = i.Claims(name, map[string]any{"active": strings.HasPrefix(name, "opaque"), "filler": strings.Repeat("-", 600)})
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if text, err := json.Marshal(answer); err == nil {
		_, _ = w.Write(text) // who does not take it has gone
	}
}

// published is the public keys (RFC 7517).
func (i *Issuer) published() (all []any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, k := range i.keys {
		one := map[string]string{"alg": string(i.algorithm), "use": "sig", "kid": k.kid}
		switch public := k.signer.Public().(type) {
		case *rsa.PublicKey:
			one["kty"], one["n"], one["e"] = "RSA", Encode(public.N.Bytes()), Encode(big.NewInt(int64(public.E)).Bytes())
		case *ecdsa.PublicKey:
			point, err := public.Bytes()
			if err != nil {
				continue // a key of a curve has a point
			}
			one["kty"], one["crv"], one["x"], one["y"] = "EC", "P-256", Encode(point[1:33]), Encode(point[33:])
		}
		all = append(all, one)
	}
	return all
}
