package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// tokenSize is how long the tokens of P13 are, in bytes, or a little longer.
const tokenSize = 1024

// signer is the identity provider of P13: one RSA key of 2,048 bits.
type signer struct {
	key    *rsa.PrivateKey
	url    string
	server *http.Server
	ended  chan struct{}
	minted atomic.Int64
}

func startSigner() (*signer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &signer{key: key, url: "http://" + ln.Addr().String(), ended: make(chan struct{})}
	s.server = &http.Server{ReadHeaderTimeout: handshakeLimit, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		encode := base64.RawURLEncoding.EncodeToString
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":"k","n":%q,"e":%q}]}`, encode(key.N.Bytes()), encode(big.NewInt(int64(key.E)).Bytes()))
	})}
	go func() { // ends with the server
		defer close(s.ended)
		_ = s.server.Serve(ln)
	}()
	return s, nil
}

func (s *signer) stop() {
	s.server.Close()
	<-s.ended
}

// plan is an edge that takes its tokens.
func (s *signer) plan(backend string) plan {
	return plan{
		backends: []string{backend},
		incoming: "{type: oidc, oidcConfigRef: {name: bench, audience: bench}}",
		before: fmt.Sprintf("apiVersion: weir.dev/v1beta1\nkind: MCPOIDCConfig\nmetadata: {name: bench}\nspec: {type: inline, inline: {issuer: %q, jwksUrl: %q, insecureAllowHTTP: true, jwksAllowPrivateIP: true}}\n---\n",
			s.url, s.url+"/keys"),
	}
}

// mint signs a token of tokenSize that no other is equal to.
func (s *signer) mint() (string, error) {
	encode := base64.RawURLEncoding.EncodeToString
	now := time.Now()
	claims := map[string]any{"iss": s.url, "sub": "bench", "aud": "bench", "iat": now.Unix(), "exp": now.Add(2 * time.Hour).Unix(), "jti": s.minted.Add(1), "pad": ""}
	head := encode([]byte(`{"alg":"RS256","typ":"at+jwt","kid":"k"}`)) + "."
	bare, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	const signature = 342 // characters
	claims["pad"] = strings.Repeat("x", max(0, (tokenSize-len(head)-1-signature)*3/4+1-len(bare)))
	text, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed := head + encode(text)
	sum := sha256.Sum256([]byte(signed))
	raw, err := rsa.SignPKCS1v15(nil, s.key, crypto.SHA256, sum[:])
	return signed + "." + encode(raw), err
}

// mintAll signs many tokens.
func (s *signer) mintAll(n int) ([]string, error) {
	all, wrong := make([]string, n), make([]error, 2)
	var work sync.WaitGroup
	for w := range wrong {
		work.Go(func() {
			for i := w; i < n && wrong[w] == nil; i += len(wrong) {
				all[i], wrong[w] = s.mint()
			}
		})
	}
	work.Wait()
	return all, errors.Join(wrong...)
}

// check is what the check of one signature takes, in µs: the least of many.
func (s *signer) check() (float64, error) {
	sum := sha256.Sum256([]byte("text"))
	raw, err := rsa.SignPKCS1v15(nil, s.key, crypto.SHA256, sum[:])
	if err != nil {
		return 0, err
	}
	least := time.Hour
	for range 20 {
		const each = 50
		began := time.Now()
		for range each {
			if err := rsa.VerifyPKCS1v15(&s.key.PublicKey, crypto.SHA256, sum[:], raw); err != nil {
				return 0, err
			}
		}
		least = min(least, time.Since(began)/each)
	}
	return micros(least), nil
}

// The targets of P13.
const (
	noToken     = "no authentication"
	cachedToken = "in cache"
	freshToken  = "not in cache"
)

// tokenRow is P13.
type tokenRow struct {
	size    int     // of a token, bytes
	check   float64 // µs of a bare check of its signature
	figures map[string][]figure
}

// added is what a token adds to the CPU of a call, in µs: the median of the
// differences in each round.
func (t tokenRow) added(target string) float64 {
	var all []float64
	for i, f := range t.figures[target] {
		all = append(all, f.cpu-t.figures[noToken][i].cpu)
	}
	return median(all)
}

func (t tokenRow) verdicts() []verdict {
	cached, fresh := t.added(cachedToken), t.added(freshToken)
	what := fmt.Sprintf("CPU per call that an RSA-2048 token of %d bytes adds, ", t.size)
	return []verdict{
		{"P13", what + cachedToken, fmt.Sprintf("%.2f µs", cached), "–", "–", "≤ 2 µs", yesNo(cached <= 2)},
		{"P13", what + freshToken, fmt.Sprintf("%.2f µs", fresh), fmt.Sprintf("%.2f µs, the check alone", t.check), fmt.Sprintf("%.2f", fresh/t.check), "beside", "–"},
	}
}

// tokenCalls is how many calls of a round carry a token of their own: each has
// to be signed before.
const tokenCalls = 4000

// runTokens is P13.
func (b *bench) runTokens(ctx context.Context) {
	if b.floors {
		return
	}
	if err := b.tokensOf(ctx); err != nil {
		b.fail("P13", err)
	}
}

func (b *bench) tokensOf(ctx context.Context) error {
	// 1. The provider, the backend, an edge without authentication and one with.
	s, err := startSigner()
	if err != nil {
		return err
	}
	defer s.stop()
	backend, err := b.startBackend(ctx, modern, "json")
	if err != nil {
		return err
	}
	defer backend.stop()
	open, err := b.startEdge(ctx, []string{backend.addr})
	if err != nil {
		return err
	}
	defer open.stop()
	guarded, err := b.startPlan(ctx, s.plan(backend.addr))
	if err != nil {
		return err
	}
	defer guarded.stop()

	// 2. The tokens: one that all calls share, and one for each call.
	const conns = 8
	calls := min(b.calls, tokenCalls)
	warm := calls/10 + 10*conns
	tokens, err := s.mintAll(1 + b.rounds*(calls+warm))
	if err != nil {
		return err
	}
	row := tokenRow{size: len(tokens[0]), figures: map[string][]figure{}}
	if row.check, err = s.check(); err != nil {
		return err
	}
	var next atomic.Int64
	with := func(token func() string) func(*client, uint64) error {
		return func(c *client, number uint64) error {
			c.token = token()
			one := c.prepare("echo")
			one.number(number)
			if err := c.exchange(one.text); err != nil {
				return err
			}
			return one.check(&c.answer)
		}
	}
	shared := func() string { return tokens[0] }
	fresh := func() string { return tokens[1+int(next.Add(1)-1)%(len(tokens)-1)] }
	targets := []*target{
		{name: noToken, process: open.process, do: with(shared)},
		{name: cachedToken, process: guarded.process, do: with(shared)},
		{name: freshToken, process: guarded.process, do: with(fresh)},
	}

	// 3. The rounds.
	for range b.rounds {
		if err := b.roundOf(ctx, cell{client: modern, backend: modern, answer: "json", conns: conns}, targets, calls, sliceCalls); err != nil {
			return err
		}
		for _, t := range targets {
			row.figures[t.name] = append(row.figures[t.name], figureOf(t.run, t.cpu))
		}
	}
	b.report.tokens = append(b.report.tokens, row)
	b.say("P13: a token of %d bytes adds %.2f µs from cache, %.2f µs otherwise; the check of its signature alone takes %.2f µs", row.size, row.added(cachedToken), row.added(freshToken), row.check)
	return nil
}
