package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// tokenSize is how long the tokens of P13 are, in bytes, or a little longer.
const tokenSize = 1024

// guarded is an edge that takes the tokens of an issuer. auth is further YAML of
// spec.incomingAuth.
func guarded(s *issuer.Issuer, backend, auth string) kit.Plan {
	return kit.PlanOf(backend).Guarded(s, auth, fmt.Sprintf(", jwksUrl: %q", s.URL+"/keys"))
}

// mint signs a token of tokenSize that no other is equal to.
func mint(s *issuer.Issuer) (string, error) { return mintFor(s, "bench") }

// mintFor is mint for a subject.
func mintFor(s *issuer.Issuer, subject string) (string, error) {
	claims := s.Claims(subject, map[string]any{"exp": time.Now().Add(2 * time.Hour).Unix()})
	bare, err := s.Sign(claims)
	if err != nil {
		return "", err
	}
	const member = len(`"pad":"",`)
	claims["pad"] = strings.Repeat("x", max(0, (tokenSize-len(bare))*3/4+1-member))
	return s.Sign(claims)
}

// mintAll signs many tokens, for subjects by their number.
func mintAll(s *issuer.Issuer, n int, subject func(i int) string) ([]string, error) {
	all, wrong := make([]string, n), make([]error, 2)
	var work sync.WaitGroup
	for w := range wrong {
		work.Go(func() {
			for i := w; i < n && wrong[w] == nil; i += len(wrong) {
				all[i], wrong[w] = mintFor(s, subject(i))
			}
		})
	}
	work.Wait()
	return all, errors.Join(wrong...)
}

// sameUser is the one user of most rows, whatever the number of the token.
func sameUser(int) string { return "bench" }

// checkAlone is what the check of one signature takes, in µs: the least of many.
func checkAlone() (float64, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return 0, err
	}
	sum := sha256.Sum256([]byte("text"))
	raw, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		return 0, err
	}
	least := time.Hour
	for range 20 {
		const each = 50
		began := time.Now()
		for range each {
			if err := rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], raw); err != nil {
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
	b.tryEdge(ctx, "P13", b.tokensOf)
}

func (b *bench) tokensOf(ctx context.Context) {
	// 1. The provider, the backend, an edge without authentication and one with.
	s := kit.Must(issuer.New(issuer.RS256, kit.ServerName, nil))
	defer s.Leave()
	backend := b.startBackend(ctx, kit.Modern, "json")
	open := b.startEdge(ctx, []string{backend.Addr})
	closed := b.startPlan(ctx, guarded(s, backend.Addr, ""))

	// 2. The tokens: one that all calls share, and one for each call.
	const conns = 8
	calls := min(b.calls, tokenCalls)
	warm := calls/10 + 10*conns
	tokens := kit.Must(mintAll(s, 1+b.rounds*(calls+warm), sameUser))
	row := tokenRow{size: len(tokens[0]), figures: map[string][]figure{}}
	row.check = kit.Must(checkAlone())
	var next atomic.Int64
	with := func(token func() string) func(*client, uint64) error {
		return func(c *client, number uint64) error {
			c.Token = token()
			return callOf(c.Client, "echo").make(c.Client, number)
		}
	}
	shared := func() string { return tokens[0] }
	fresh := func() string { return tokens[1+int(next.Add(1)-1)%(len(tokens)-1)] }
	targets := []*target{
		{name: noToken, Process: open.Process, do: with(shared)},
		{name: cachedToken, Process: closed.Process, do: with(shared)},
		{name: freshToken, Process: closed.Process, do: with(fresh)},
	}

	// 3. The rounds.
	for range b.rounds {
		b.roundOf(ctx, cell{client: kit.Modern, backend: kit.Modern, answer: "json", conns: conns}, targets, calls, sliceCalls)
		for _, t := range targets {
			row.figures[t.name] = append(row.figures[t.name], figureOf(t.run, t.cpu))
		}
	}
	b.report.tokens = append(b.report.tokens, row)
	b.say("P13: a token of %d bytes adds %.2f µs from cache, %.2f µs otherwise; the check of its signature alone takes %.2f µs", row.size, row.added(cachedToken), row.added(freshToken), row.check)
}
