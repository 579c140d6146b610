package main

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runSignInRaces is G20, A06, O06 and O09: many show one return of a provider, one code, one
// refresh token at the same time, half of them at each of two edges with one store, or all at
// one edge with its memory.
func runSignInRaces(ctx context.Context, s *storm) {
	races := s.size(s.count, 1000, 20, "races of each kind")
	l := s.newLobby(1)
	l.trace()
	secrets := l.secretsDir()
	for _, where := range []string{"memory", "redis"} {
		var addrs []string
		var edges []*kit.Edge
		store := ""
		if where == "redis" {
			store = s.withPassword(ctx).addr
		}
		for range map[string]int{"memory": 1, "redis": 2}[where] {
			manifest := kit.Must(kit.WriteManifest(s.dir, l.door(store, []string{"hmac"}, []string{"key"}, "")))
			e := l.edgeAt(ctx, kit.Must(kit.FreeSeat()), manifest, secrets)
			edges, addrs = append(edges, e), append(addrs, e.Addr)
		}
		l.race(ctx, where, races, addrs)
		l.clean(ctx, edges...)
		for _, e := range edges {
			e.Stop()
		}
	}
}

// race runs the races of each kind at some edges.
func (l *lobby) race(ctx context.Context, where string, races int, addrs []string) {
	const many = 8 // at once
	r := &roads{}
	defer r.close()
	type score struct{ once, other, refused int }
	var mu sync.Mutex
	scores := map[string]*score{"callback": {}, "code": {}, "refresh": {}}
	count := func(kind string, won int, refused bool) {
		mu.Lock()
		defer mu.Unlock()
		one := scores[kind]
		if won == 1 {
			one.once++
		} else {
			one.other++
		}
		if refused {
			one.refused++
		}
	}
	// together has all of them ask at the same time, and returns what those saw who were not
	// refused, and whether all others were refused as they must be.
	together := func(p *person, refused string, ask func(q *person) (*answered, error)) (won []*answered, right bool) {
		start := make(chan struct{})
		right = true
		var got sync.Mutex
		var all sync.WaitGroup
		for i := range many {
			q := *p
			q.jar, q.turn = maps.Clone(p.jar), i
			all.Go(func() {
				<-start
				w, err := ask(&q)
				got.Lock()
				defer got.Unlock()
				switch {
				case err == nil && w.status == http.StatusOK:
					won = append(won, w)
				case err != nil || w.status != http.StatusBadRequest || !strings.Contains(w.text, refused):
					right = false
				}
			})
		}
		close(start)
		all.Wait()
		return won, right
	}
	var work sync.WaitGroup
	lanes := make(chan struct{}, 4)
	var fault error
	for i := range races {
		lanes <- struct{}{}
		work.Go(func() {
			defer func() { <-lanes }()
			p := l.person(r, i, "user-"+where, addrs...)
			err := func() error {
				// 1. A return (A06).
				back, err := p.allow(ctx)
				if err != nil {
					return err
				}
				won, right := together(p, "over", func(q *person) (*answered, error) { return q.ask(ctx, back, "", "") })
				count("callback", len(won), right)
				if len(won) == 0 {
					return nil
				}
				// 2. Its code (O06).
				code, err := p.led(won[0])
				if err != nil {
					return err
				}
				won, right = together(p, "invalid_grant", func(q *person) (*answered, error) {
					return q.form(ctx, "/oauth/token", url.Values{"grant_type": {"authorization_code"}, "client_id": {p.client}, "code": {code}, "redirect_uri": {personCallback}, "code_verifier": {personVerifier}})
				})
				count("code", len(won), right)
				// 3. A refresh token, of another login: who shows a code twice ends the grant (O09). All
				// that are answered have one and the same new token, since a program that had no answer
				// asks again.
				if err := p.signIn(ctx); err != nil {
					return err
				}
				old := p.refresh
				won, right = together(p, "nobody is refused", func(q *person) (*answered, error) {
					return q.form(ctx, "/oauth/token", url.Values{"grant_type": {"refresh_token"}, "client_id": {p.client}, "refresh_token": {old}})
				})
				distinct := map[string]bool{}
				for _, w := range won {
					_, rest, _ := strings.Cut(w.text, `"refresh_token":"`)
					token, _, _ := strings.Cut(rest, `"`)
					distinct[token] = true
					p.refresh = token
				}
				rotations := len(distinct)
				if distinct[old] || distinct[""] || p.renew(ctx) != nil { // and that is alive
					rotations = -1
				}
				count("refresh", rotations, right)
				return nil
			}()
			if err != nil {
				mu.Lock()
				fault = err
				mu.Unlock()
			}
		})
	}
	work.Wait()
	kit.Check(fault)
	for _, one := range []struct{ kind, what, others string }{
		{"callback", "one return goes on", "a page with 400"}, {"code", "one redemption", "invalid_grant"}, {"refresh", "one rotation, and one refresh token that lives", "the same token"},
	} {
		sc := scores[one.kind]
		l.bar(sc.once == races && sc.other == 0 && sc.refused == races, "all", "%s, %d edges: %d of %d races of %d for a %s end with %s, %d with %s for all others", where, len(addrs), sc.once, races, many, one.kind, one.what, sc.refused, one.others)
	}
}
