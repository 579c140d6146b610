package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// audience is what tokens of an issuer are for.
const audience = "storm"

// issuer is an identity provider: it has keys, signs tokens with the newest, and
// says of opaque ones that they are active, each after its own name.
type issuer struct {
	addr string // where it listens
	url  string // its name, and where the edge looks for it: addr, or what stands before it

	fetches    atomic.Int64 // of keys
	last       atomic.Int64 // when the last one was, Unix nanoseconds
	asked      atomic.Int64 // introspections
	minted     atomic.Int64 // tokens
	introspect bool         // opaque tokens are shown to it
	closes     atomic.Bool  // each connection ends after one answer, which says so

	mu   sync.Mutex
	keys []issuerKey // the newest first

	server *http.Server
	ended  chan struct{} // closed when the server has ended
}

type issuerKey struct {
	kid    string
	secret *ecdsa.PrivateKey
}

var encode = base64.RawURLEncoding.EncodeToString

// newIssuer starts an identity provider with one key, which ends with the row.
// before is the address that the edge finds it at; "" for its own.
func (s *storm) newIssuer(before func(addr string) (string, error)) (*issuer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	i := &issuer{addr: ln.Addr().String()}
	i.url = "http://" + i.addr
	if before != nil {
		at, err := before(i.addr)
		if err != nil {
			ln.Close()
			return nil, err
		}
		i.url = "http://" + at
	}
	if err := i.rotate(); err != nil {
		ln.Close()
		return nil, err
	}
	i.serve(ln)
	s.later(i.leave)
	return i, nil
}

// serve answers whoever connects, until leave.
func (i *issuer) serve(ln net.Listener) {
	server, ended := &http.Server{Handler: i, ReadHeaderTimeout: patience}, make(chan struct{})
	go func() { // ends with the listener
		defer close(ended)
		_ = server.Serve(ln)
	}()
	i.server, i.ended = server, ended
}

// leave closes every connection and takes no other: whoever asks is refused.
func (i *issuer) leave() {
	i.server.Close()
	<-i.ended
}

// back ends what leave began.
func (i *issuer) back() error {
	ln, err := net.Listen("tcp", i.addr)
	if err == nil {
		i.serve(ln)
	}
	return err
}

// rotate makes another key sign from now on. The old ones stay.
func (i *issuer) rotate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = append([]issuerKey{{fmt.Sprintf("key-%d", len(i.keys)+1), key}}, i.keys...)
	return nil
}

// mint signs a token for a subject with the newest key.
func (i *issuer) mint(subject string) (string, error) {
	i.mu.Lock()
	key := i.keys[0]
	i.mu.Unlock()
	now := time.Now()
	claims, err := json.Marshal(map[string]any{"iss": i.url, "sub": subject, "aud": audience, "jti": i.minted.Add(1), "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()})
	if err != nil {
		return "", err
	}
	signed := encode(fmt.Appendf(nil, `{"alg":"ES256","typ":"at+jwt","kid":%q}`, key.kid)) + "." + encode(claims)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key.secret, sum[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + encode(signature), nil
}

// mintAll signs several tokens for one subject: a session is its owner's,
// whichever of them it shows.
func (i *issuer) mintAll(n int) (all []string, err error) {
	for range n {
		token, err := i.mint("client")
		if err != nil {
			return nil, err
		}
		all = append(all, token)
	}
	return all, nil
}

// text is the issuer as manifests.
func (i *issuer) text() string {
	more := ""
	if i.introspect {
		more = fmt.Sprintf(", introspectionUrl: %q, clientId: edge", i.url+"/introspect")
	}
	return fmt.Sprintf("apiVersion: weir.dev/v1beta1\nkind: MCPOIDCConfig\nmetadata: {name: storm}\nspec: {type: inline, inline: {issuer: %q, insecureAllowHTTP: true, jwksAllowPrivateIP: true%s}}\n---\n", i.url, more)
}

// ServeHTTP answers as an identity provider.
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if i.closes.Load() {
		w.Header().Set("Connection", "close")
	}
	var answer any
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration":
		answer = map[string]any{"issuer": i.url, "jwks_uri": i.url + "/jwks", "authorization_endpoint": i.url + "/auth", "token_endpoint": i.url + "/token", "response_types_supported": []string{"code"}}
	case "/jwks":
		i.fetches.Add(1)
		i.last.Store(time.Now().UnixNano())
		answer = map[string]any{"keys": i.published()}
	case "/introspect":
		i.asked.Add(1)
		name := r.FormValue("token")
		answer = map[string]any{"active": strings.HasPrefix(name, "opaque"), "iss": i.url, "aud": audience, "sub": name, "exp": time.Now().Add(time.Hour).Unix(), "filler": strings.Repeat("-", 600)}
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if text, err := json.Marshal(answer); err == nil {
		_, _ = w.Write(text) // who does not take it has gone
	}
}

// published is the keys as a set of them says it (RFC 7517).
func (i *issuer) published() (all []any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, k := range i.keys {
		point, err := k.secret.PublicKey.Bytes()
		if err != nil {
			continue // a key of a curve has a point
		}
		all = append(all, map[string]string{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": k.kid, "x": encode(point[1:33]), "y": encode(point[33:])})
	}
	return all
}
