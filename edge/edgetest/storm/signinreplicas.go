package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// hosts is how many addresses the logins of a row come from.
const signInHosts = 8

// pair is two edges with one store, behind what sends each request to the other of them.
type pair struct {
	*lobby
	store     *redis
	secrets   string
	seats     []kit.Seat
	manifests []string
	edges     []*kit.Edge
	addrs     []string
	roads     *roads
	clients   []string // one program at each address
	n         kit.Numbers
	users     int
}

// newPair starts them.
func (s *storm) newPair(ctx context.Context) *pair {
	p := &pair{lobby: s.newLobby(1), store: s.withPassword(ctx), roads: &roads{fresh: true}}
	s.later(p.roads.close)
	p.trace()
	p.secrets = p.secretsDir()
	for i := range 2 {
		p.seats = append(p.seats, kit.Must(kit.FreeSeat()))
		p.addrs = append(p.addrs, p.seats[i].Addr)
		p.manifests = append(p.manifests, kit.Must(kit.WriteManifest(s.dir, p.door(p.store.addr, []string{"hmac"}, []string{"key"}, ""))))
		p.edges = append(p.edges, p.edgeAt(ctx, p.seats[i], p.manifests[i], p.secrets))
	}
	for i := range signInHosts {
		one := p.person(p.roads, i, "nobody", p.addrs...)
		kit.Check(one.register(ctx))
		p.clients = append(p.clients, one.client)
	}
	return p
}

// next is somebody who has not signed in.
func (p *pair) next() *person {
	p.users++
	one := p.person(p.roads, p.users%signInHosts, "user-"+strconv.Itoa(p.users), p.addrs...)
	one.client = p.clients[p.users%signInHosts]
	return one
}

// runs are logins by the clock, with what their users do then: a call at each edge, a refresh,
// and a call again.
type runs struct {
	mu      sync.Mutex
	logins  int // that were begun
	begun   int // that were begun again
	most    int // tries of one
	failed  int
	refused int // tokens
	first   error
	all     []*person
}

func (r *runs) fail(token bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed++; token {
		r.refused++
	}
	if r.first == nil {
		r.first = err
	}
}

// signIns has people sign in, so many a minute, until ctx ends.
func (p *pair) signIns(ctx context.Context, aMinute int) *runs {
	r := &runs{}
	over := context.WithoutCancel(ctx) // who has begun goes on to the end
	var work sync.WaitGroup
	began := time.Now()
	for i := 0; kit.Sleep(ctx, time.Until(began.Add(time.Duration(i)*time.Minute/time.Duration(aMinute)))) && ctx.Err() == nil; i++ {
		one := p.next()
		r.mu.Lock()
		r.logins++
		r.mu.Unlock()
		work.Go(func() { p.visit(over, r, one) })
	}
	work.Wait()
	return r
}

// visit is one login with what comes after.
func (p *pair) visit(ctx context.Context, r *runs, one *person) {
	tries, err := insist(ctx, kit.Patience, func() error { return one.signIn(ctx) })
	r.mu.Lock()
	r.begun += tries - 1
	r.most = max(r.most, tries)
	r.mu.Unlock()
	if err != nil {
		r.fail(false, err)
		return
	}
	for round := range 2 {
		for i, addr := range p.addrs {
			status := 0
			_, err := insist(ctx, kit.Patience, func() (err error) {
				status, err = one.call(ctx, &p.n, addr, i, 0)
				switch {
				case err != nil: // nobody is there, or it has ended
					return fmt.Errorf("%w: %w", errAnswerLost, err)
				case status != http.StatusOK:
					return &unexpected{"call", status, one.name}
				}
				return nil
			})
			if err != nil {
				r.fail(status == http.StatusUnauthorized, err)
				return
			}
		}
		if round == 0 {
			if _, err := insist(ctx, kit.Patience, func() error { return one.renew(ctx) }); err != nil {
				r.fail(true, err)
				return
			}
		}
	}
	r.mu.Lock()
	r.all = append(r.all, one)
	r.mu.Unlock()
}

// runSignIn is what two edges with one store do for people who sign in: each request of a
// login is at the other edge; either is killed in the middle; the store is away and comes back
// empty (R03); secrets and keys are changed in two steps (A15); a grant is revoked while calls
// and streams run at both (A14).
func runSignIn(ctx context.Context, s *storm) {
	const aMinute = 500
	logins := s.size(s.count, 500, 20, "logins of each part")
	away := s.span(s.length, 30*time.Second, 3*time.Second, "without the store")
	p := s.newPair(ctx)
	part := time.Duration(logins) * time.Minute / aMinute

	// 1. All is well.
	s.say("logins at the other edge each")
	calm, done := context.WithTimeout(ctx, part)
	r := p.signIns(calm, aMinute)
	done()
	p.score(r, "each request at the other edge", 1)

	// 2. Either edge is killed, again and again.
	s.say("kills")
	loading, unload := context.WithTimeout(ctx, part)
	var load sync.WaitGroup
	load.Go(func() { r = p.signIns(loading, aMinute) })
	kills := 0
	for kit.Sleep(loading, 400*time.Millisecond) && loading.Err() == nil {
		i := kills % 2
		p.edges[i].Kill()
		kit.Pause(ctx, 150*time.Millisecond)
		p.edges[i] = p.edgeAt(ctx, p.seats[i], p.manifests[i], p.secrets)
		kills++
	}
	unload()
	load.Wait()
	// Who meets two ends begins twice again.
	p.score(r, fmt.Sprintf("either edge killed, %d times", kills), 4)

	// 3. The store is away, and comes back empty.
	s.say("the store is away")
	before := r.all
	p.store.kill()
	one := p.next()
	refusals, began := map[int]int{}, time.Now()
	for time.Since(began) < away {
		err := one.signIn(ctx)
		refusals[statusOf(err)]++
		if err == nil {
			s.bar(false, "503", "somebody signed in without a store")
			break
		}
		kit.Pause(ctx, 100*time.Millisecond)
	}
	s.bar(len(refusals) == 1 && refusals[http.StatusServiceUnavailable] > 0, "503", "for %.0f s without the store logins end with %v", away.Seconds(), refusals)
	kit.Check(p.store.start(ctx))
	tries := 0
	back := kit.WaitFor(ctx, kit.Patience, func() bool { tries++; return one.signIn(ctx) == nil })
	s.bar(back, "served", "the store is back, and empty: the program that waited signs in after %d tries, and has not registered again", tries)
	known, oldTokens := 0, 0
	again := &runs{logins: len(before)}
	var work sync.WaitGroup
	lanes := make(chan struct{}, 4)
	for i, q := range before {
		lanes <- struct{}{}
		work.Go(func() {
			defer func() { <-lanes }()
			if statusOf(q.renew(ctx)) == http.StatusBadRequest {
				again.mu.Lock()
				oldTokens++
				again.mu.Unlock()
			}
			kit.Sleep(ctx, time.Duration(i%signInHosts)*20*time.Millisecond)
			p.visit(ctx, again, q)
		})
	}
	work.Wait()
	known = len(again.all)
	s.bar(oldTokens == len(before) && known == len(before) && again.most <= 1, "all, all, 1", "of %d people who had signed in %d are refused a refresh, and %d sign in again with the client they had, in %d tries at most", len(before), oldTokens, known, max(again.most, 1))
	if again.first != nil {
		s.note("such as: %v", again.first)
	}

	// 4. Secrets and keys change in two steps.
	s.say("rotation")
	p.rotate(ctx, part, aMinute)

	// 5. A grant is revoked.
	s.say("revocation")
	p.revocation(ctx)
	p.clean(ctx, p.edges...)
}

// score holds logins against their bars.
func (p *pair) score(r *runs, what string, most int) {
	p.bar(r.failed == 0 && r.logins > 0 && len(r.all) == r.logins && r.most <= most, fmt.Sprintf("0, %d", most), "%s: %d of %d logins, with a call at each edge, a refresh and calls again, failed; %d were begun again, one of them after %d tries", what, r.failed, r.logins, r.begun, r.most)
	if r.first != nil {
		p.note("%s: such as: %v", what, r.first)
	}
}

// rotate is A15: a new secret and a new key last, everywhere, then first, everywhere, one edge
// after the other, under logins.
func (p *pair) rotate(ctx context.Context, part time.Duration, aMinute int) {
	early := p.next()
	kit.Check(early.signIn(ctx))
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var r *runs
	var load sync.WaitGroup
	load.Go(func() { r = p.signIns(loading, aMinute) })
	rejected, asked := 0, 0
	load.Go(func() { // tokens of before are good all the time
		for kit.Sleep(loading, 100*time.Millisecond) {
			for i, addr := range p.addrs {
				asked++
				if status, err := early.call(ctx, &p.n, addr, i, 0); err != nil || status != http.StatusOK {
					rejected++
				}
			}
			if asked%10 == 0 {
				if early.renew(ctx) != nil {
					rejected++
				}
			}
		}
	})
	steps := 0
	for _, order := range [][]string{{"", "2"}, {"2", ""}} {
		var secrets, keys []string
		for _, n := range order {
			secrets, keys = append(secrets, "hmac"+n), append(keys, "key"+n)
		}
		for i := range p.edges {
			kit.Pause(ctx, part/5)
			kit.Check(os.WriteFile(p.manifests[i], []byte(p.door(p.store.addr, secrets, keys, "")), 0o600))
			kit.Check(p.edges[i].Reload(ctx))
			steps++
		}
	}
	kit.Pause(ctx, part/5)
	unload()
	load.Wait()
	p.score(r, fmt.Sprintf("secrets and keys changed in %d steps, at %d logins a minute from %d addresses", steps, aMinute, signInHosts), 1)
	p.bar(rejected == 0 && r.refused == 0 && asked > 0, "0", "%d of %d calls and refreshes with tokens of before were refused", rejected, asked)
}

// revocation is A14.
func (p *pair) revocation(ctx context.Context) {
	one := p.next()
	kit.Check(one.signIn(ctx))
	type stream struct {
		edge int
		took time.Duration
		err  error
	}
	ends := make(chan stream, 2)
	grants, tokens := p.store.records(ctx, "grant"), p.store.records(ctx, "up")
	var open []*kit.Client
	defer func() { kit.CloseAll(open) }()
	var at time.Time
	revoked := make(chan struct{})
	for i, addr := range p.addrs {
		status, err := one.call(ctx, &p.n, addr, i, 0)
		if err != nil || status != http.StatusOK {
			kit.Fail("before the revocation: HTTP %d, %w", status, err)
		}
		c := kit.Must(kit.Dial(ctx, addr, kit.Modern, kit.DialOptions{From: 50 + i}))
		open = append(open, c)
		c.Token = one.access
		in := kit.Must(c.Listen(`"s"`, ""))
		go func() { // ends with its connection
			var err error
			for err == nil {
				_, err = in.Next()
			}
			<-revoked
			ends <- stream{i, time.Since(at), err}
		}()
	}
	here := *one
	here.addrs = p.addrs[:1]
	at = time.Now()
	kit.Check(here.revoke(ctx))
	close(revoked)
	first, _ := one.call(ctx, &p.n, p.addrs[0], 0, 0)
	p.bar(first == http.StatusUnauthorized, "401", "the next call at the edge that revoked: HTTP %d", first)
	elsewhere := time.Duration(-1)
	if kit.WaitFor(ctx, 20*time.Second, func() bool {
		status, err := one.call(ctx, &p.n, p.addrs[1], 1, 0)
		return err == nil && status == http.StatusUnauthorized
	}) {
		elsewhere = time.Since(at)
	}
	p.bar(elsewhere >= 0 && elsewhere <= 10*time.Second, "10 s", "401 at the other edge after %.1f s", elsewhere.Seconds())
	for range p.addrs {
		select {
		case e := <-ends:
			p.bar(e.took <= 10*time.Second, "10 s", "the stream at edge %d ended after %.1f s", e.edge+1, e.took.Seconds())
		case <-time.After(20 * time.Second):
			p.bar(false, "10 s", "a stream has not ended after 20 s")
		}
	}
	g, u := p.store.records(ctx, "grant"), p.store.records(ctx, "up")
	p.bar(g == grants-1 && u == tokens-1, "1, 1", "%d grants and %d upstream tokens fewer in the store", grants-g, tokens-u)
	if err := one.renew(ctx); !errors.As(err, new(*unexpected)) || statusOf(err) != http.StatusBadRequest {
		p.bar(false, "400", "a refresh of the grant: %v", err)
	}
}
