package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runSignInTokens is what backends are sent of users who signed in at three providers: each
// the token of its own, never that of another user; tokens that end again and again under load
// are renewed once each over two edges; and when a provider says no, its users are told to
// sign in again and get on.
func runSignInTokens(ctx context.Context, s *storm) {
	calls := s.size(s.count, 100_000, 2000, "calls")
	hold := s.span(s.length, time.Minute, 11*time.Second, "of tokens that end after 5 s")
	l := s.newLobby(3)
	l.trace()
	secrets := l.secretsDir()
	store := s.withPassword(ctx)
	var edges []*kit.Edge
	var addrs []string
	for range 2 {
		manifest := kit.Must(kit.WriteManifest(s.dir, l.door(store.addr, []string{"hmac"}, []string{"key"}, "")))
		e := l.edgeAt(ctx, kit.Must(kit.FreeSeat()), manifest, secrets)
		edges, addrs = append(edges, e), append(addrs, e.Addr)
	}
	r := &roads{}
	defer r.close()
	n := &kit.Numbers{}

	// 1. Two users, three providers, calls in any order at both edges.
	users := []*person{l.person(r, 1, "ann", addrs...), l.person(r, 2, "ben", addrs...)}
	for _, p := range users {
		kit.Check(p.signIn(ctx))
	}
	seen, began := &seenCodes{}, time.Now()
	l.mingle(ctx, n, users, addrs, calls, seen)
	s.bar(seen.codes[http.StatusOK] == calls && l.calls.Load() == int64(calls), "all", "%d of %d calls of 2 users to 3 backends at 2 edges were answered, %d reached the backend with the token of their user and its provider, in %.0f s", seen.codes[http.StatusOK], calls, l.calls.Load(), time.Since(began).Seconds())
	s.bar(l.crossed.Load() == 0, "0", "%d with the token of another user or provider", l.crossed.Load())
	seen.others(s, "calls", http.StatusOK)

	// 2. Tokens that end after 5 s, a hundred calls at a time.
	h := l.hubs[0]
	h.mu.Lock()
	h.life = 5
	h.mu.Unlock()
	p := l.person(r, 3, "cleo", addrs...)
	kit.Check(p.signIn(ctx))
	seen, began = &seenCodes{}, time.Now()
	var work sync.WaitGroup
	for w := range 100 {
		work.Go(func() {
			c, err := kit.Dial(ctx, addrs[w%2], kit.Modern, kit.DialOptions{From: 300 + w})
			if err != nil {
				seen.take(0, err, time.Now())
				return
			}
			defer c.Close()
			c.Tool = toolOf(0)
			for time.Since(began) < hold && ctx.Err() == nil {
				sent := time.Now()
				code, err := shopCall(c, n, p.name, p.access)
				if seen.take(code, err, sent); code == 0 {
					return
				}
				kit.Sleep(ctx, 50*time.Millisecond)
			}
		})
	}
	work.Wait()
	took := time.Since(began)
	refreshes, twice := h.asked(p.name)
	total := 0
	for _, n := range seen.codes {
		total += n
	}
	// One is renewed when a tenth of its life is left, so that each lasts 4.5 s at least.
	least, most := int(took/(5*time.Second)), int(took/(4500*time.Millisecond))+1
	s.bar(seen.codes[http.StatusOK] == total && total > 0, "0", "%d of %d calls of 100 clients failed while tokens ended every 5 s, for %.0f s; the longest took %.0f ms", total-seen.codes[http.StatusOK], total, took.Seconds(), kit.Millis(seen.longest))
	s.bar(refreshes >= least && refreshes <= most && twice == 0, fmt.Sprintf("%d to %d, 0", least, most), "%d refreshes, %d with a token that had been used", refreshes, twice)
	seen.others(s, "calls of tokens that end", http.StatusOK)

	// 3. The provider says no: the next refresh is the last.
	h.mu.Lock()
	h.revoked[p.name], h.life = true, 3600
	h.mu.Unlock()
	var challenge atomic.Value
	told := kit.WaitFor(ctx, 20*time.Second, func() bool {
		w, err := p.post(ctx, n, addrs[0], toolOf(0))
		if err != nil || w.status != http.StatusUnauthorized {
			return false
		}
		challenge.Store(w.header.Get("WWW-Authenticate"))
		return true
	})
	text, _ := challenge.Load().(string)
	s.bar(told && strings.HasPrefix(text, "Bearer") && strings.Contains(text, "invalid_token") && strings.Contains(text, "resource_metadata"), "401 with a challenge", "after the provider has revoked: %q", text)
	other, err := p.post(ctx, n, addrs[1], toolOf(1))
	kit.Check(err)
	s.bar(other.status == http.StatusOK, "200", "a backend of another provider: HTTP %d", other.status)
	renewed := statusOf(p.renew(ctx))
	h.mu.Lock()
	h.revoked[p.name] = false
	h.mu.Unlock()
	kit.Check(p.signIn(ctx))
	after, err := p.post(ctx, n, addrs[1], toolOf(0))
	kit.Check(err)
	s.bar(renewed == http.StatusBadRequest && after.status == http.StatusOK, "400, 200", "a refresh at the edge: HTTP %d; the call after a new login: HTTP %d", renewed, after.status)
	l.clean(ctx, edges...)
}

// mingle has users call the tools of all backends at all edges, over connections that they
// share.
func (l *lobby) mingle(ctx context.Context, n *kit.Numbers, users []*person, addrs []string, calls int, seen *seenCodes) {
	const lanes = 16
	var work sync.WaitGroup
	for w := range lanes {
		work.Go(func() {
			c, err := kit.Dial(ctx, addrs[w%len(addrs)], kit.Modern, kit.DialOptions{From: 200 + w})
			if err != nil {
				seen.take(0, err, time.Now())
				return
			}
			defer func() { c.Close() }()
			for k := w; k < calls && ctx.Err() == nil; k += lanes {
				p := users[(k/lanes+k)%len(users)]
				c.Tool = toolOf((k / 7) % len(l.back))
				sent := time.Now()
				code, err := shopCall(c, n, p.name, p.access)
				if seen.take(code, err, sent); code == 0 {
					return
				}
			}
		})
	}
	work.Wait()
}

// post is a call whose whole answer is wanted.
func (p *person) post(ctx context.Context, n *kit.Numbers, addr, tool string) (*answered, error) {
	c := kit.Client{Addr: addr, Era: kit.Modern, Tool: tool, Token: p.access}
	head, body, _ := strings.Cut(string(c.CallText(fmt.Sprint(n.Next()), kit.Work{Text: "x", How: p.name}, "")), "\r\n\r\n")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/mcp", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(head, "\r\n")[1:] {
		name, value, _ := strings.Cut(line, ": ")
		if name != "Content-Length" && name != "Host" {
			r.Header.Set(name, value)
		}
	}
	w, err := p.web.Do(r)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	return &answered{status: w.StatusCode, header: w.Header}, nil
}
