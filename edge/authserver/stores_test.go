//go:build unix

package authserver_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
)

// TestStores is O43: the same is seen whichever store records lie in, request by request over
// two replicas.
func TestStores(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, one := range []struct {
			name string
			play func(*scene)
			want string
		}{
			{"create, get", create, "lives, lives, upstream, upstream"},
			{"take once", takeOnce, "code, page 400, page 400, tokens, 400 invalid_grant, 400 invalid_grant, dead, dead, none, none"},
			{"rotate", rotate, "tokens, tokens, the same, tokens, 400 invalid_grant, 400 invalid_grant, 400 invalid_grant, dead, dead, none, none"},
			{"expire", expire, "400 invalid_grant, tokens, 400 invalid_grant, dead, dead"},
			{"end of life", endOfLife, "400 invalid_grant, 400 invalid_grant, 0 records"},
			{"revoke", revoke, "200, dead, lives, dead, dead, none, none, 400 invalid_grant, 0 records"},
			{"away", away, "503 temporarily_unavailable, 503 temporarily_unavailable, 503 temporarily_unavailable, page 503, page 503, away, tokens, tokens, on, 200"},
			{"full", full, "form, page 503, lives, lives, on, code, tokens"},
			{"spoilt", spoilt, strings.Repeat("page 400, 400 invalid_grant, 400 invalid_grant, dead, none; ", 5) + "tokens"},
			{"back empty", backEmpty, "page 400, 400 invalid_grant, 400 invalid_grant, dead, dead, none, none, tokens"},
		} {
			t.Run(one.name, func(t *testing.T) {
				s := newScene(t, p)
				s.short = one.name == "end of life"
				s.replica(patience)
				s.replica(patience)
				one.play(s)
				if got := strings.ReplaceAll(strings.Join(s.seen, ", "), "; , ", "; "); got != one.want {
					t.Errorf("%s:\n%s, not\n%s", p.name, got, one.want)
				}
			})
		}
		// A replica ends between any two writes, or before anybody hears that a write was done: who
		// goes on at another replica finds nothing that stands in the way, no code is good twice, and
		// nothing outlives its grant.
		t.Run("crash", func(t *testing.T) {
			for _, after := range []bool{false, true} {
				n := 1
				for crash(t, p, n, after) {
					n++
				}
				if n < 9 { // a request, its end, an upstream's token, a grant, a code, its end, a refresh with what belongs to it, a revocation with what belongs to it
					t.Errorf("a login has %d writes", n-1)
				}
			}
		})
	})
}

func create(s *scene) {
	got := s.login(s.client())
	s.lives(got.Access)
	s.upstreams(got.Access)
}

func takeOnce(s *scene) {
	client := s.client()
	b, back := s.leaves(client)
	cookies := b.cookies
	var code string
	for range 3 { // at this replica and at the other
		b = s.next().browser()
		for name, value := range cookies {
			b.cookies[name] = value
		}
		if w := s.saw(b.get(back)); code == "" {
			_, q := led(s.t, w)
			code = q.Get("code")
		}
	}
	w := s.saw(s.redeems(client, code))
	got := s.reps[0].tokens(w)
	s.saw(s.redeems(client, code))
	s.saw(s.redeems(client, code))
	s.lives(got.Access)
	s.upstreams(got.Access)
}

func rotate(s *scene) {
	client := s.client()
	got := s.login(client)
	next := s.reps[0].tokens(s.saw(s.refreshes(client, got.Refresh)))
	if again := s.reps[0].tokens(s.saw(s.refreshes(client, got.Refresh))); again.Refresh == next.Refresh && next.Refresh != got.Refresh {
		s.say("the same")
	}
	third := s.reps[0].tokens(s.saw(s.refreshes(client, next.Refresh)))
	s.clock.moves(4 * time.Second)
	s.saw(s.refreshes(client, next.Refresh)) // it ends the grant
	s.saw(s.refreshes(client, third.Refresh))
	s.saw(s.refreshes(client, next.Refresh))
	s.lives(third.Access)
	s.upstreams(third.Access)
}

func expire(s *scene) {
	client := s.client()
	code := s.code(client)
	s.clock.moves(10*time.Minute + time.Second)
	s.saw(s.redeems(client, code))
	got := s.login(client)
	s.clock.moves(167 * time.Hour)
	next := s.reps[0].tokens(s.saw(s.refreshes(client, got.Refresh)))
	s.clock.moves(169 * time.Hour)
	s.saw(s.refreshes(client, next.Refresh))
	s.lives(next.Access)
}

// endOfLife: what has ended is not kept by the store either.
func endOfLife(s *scene) {
	client := s.client()
	got := s.login(client)
	code := s.code(client)
	store := s.place.open(s.t, patience)
	left := func() (n int) {
		for _, k := range s.keys() {
			if v, err := store.Get(s.t.Context(), k); err != nil {
				s.t.Fatal(err)
			} else if v != nil {
				n++
			}
		}
		return n
	}
	edgetest.Until(s.t, "the end of all records", func() bool { return left() == 0 })
	s.saw(s.redeems(client, code))
	s.saw(s.refreshes(client, got.Refresh))
	s.say("%d records", left())
}

func revoke(s *scene) {
	client := s.client()
	got := s.login(client)
	s.turn = 1 // so that the first replica revokes
	for _, r := range s.reps {
		if !r.alive(got.Access) {
			s.t.Fatal("a new grant is dead")
		}
	}
	s.saw(s.next().post("/oauth/revoke", url.Values{"token": {got.Refresh}, "client_id": {client}}))
	s.lives(got.Access)
	s.clock.moves(10 * time.Second)
	s.lives(got.Access)
	s.upstreams(got.Access)
	s.saw(s.refreshes(client, got.Refresh))
	n := 0
	store := s.place.open(s.t, patience)
	for _, p := range s.taps {
		for _, k := range append(p.of("grant"), p.of("up")...) {
			if v, err := store.Get(s.t.Context(), k); err != nil || v != nil {
				n++
			}
		}
	}
	s.say("%d records", n)
}

// away: nobody answers for a while, and nothing of it is lost.
func away(s *scene) {
	client := s.client()
	got, code := s.login(client), s.code(client)
	waits, back := s.leaves(client)
	asks := s.next().browser()
	sealed := form(s.t, asks.authorize(asking(client)))
	patient := s.reps
	hasty := s.replica(250 * time.Millisecond)
	for _, server := range s.place.all {
		server.Freeze()
	}
	hasty.store.gone.Store(s.place.memory != nil) // memory is never away
	s.saw(hasty.post("/oauth/token", redeeming(client, code)))
	s.saw(hasty.post("/oauth/token", refreshing(client, got.Refresh)))
	s.saw(hasty.post("/oauth/revoke", url.Values{"token": {got.Refresh}, "client_id": {client}}))
	waits.rig, asks.rig = hasty, hasty
	s.saw(waits.get(back))
	s.saw(asks.answers(sealed, "allow"))
	if _, err := hasty.Look(s.t.Context(), "x"); edge.KindOf(err) == edge.Overload {
		s.say("away")
	}
	for _, server := range s.place.all {
		server.Thaw()
	}
	// What was asked in vain may have been done: the code is spent if so, and the token of the
	// grant that it might have ended is that of another login. Both are held to by histories.
	s.reps = patient
	if s.place.memory == nil {
		s.answered("a store that answers")
	}
	again := s.login(client)
	s.say("tokens")
	s.saw(s.refreshes(client, again.Refresh))
	asks.rig = s.next()
	s.saw(asks.answers(sealed, "allow"))
	s.saw(s.next().post("/oauth/revoke", url.Values{"token": {again.Refresh}, "client_id": {client}}))
}

// answered waits until the stores of all replicas answer, and go on answering: a node of a
// cluster that was frozen finds out a moment after it goes on that it has not heard of the
// others for long, and refuses until it has.
func (s *scene) answered(what string) {
	const goOn = 500 * time.Millisecond
	var since time.Time
	asked := 0
	edgetest.Until(s.t, what, func() bool {
		for range 16 { // so that each node is asked
			for _, r := range s.reps {
				asked++
				if _, err := r.Look(s.t.Context(), fmt.Sprintf("nobody-%d", asked)); err != nil {
					since = time.Time{}
					return false
				}
			}
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) > goOn
	})
}

func full(s *scene) {
	client := s.client()
	got := s.login(client)
	room := s.place.fill(s.t)
	b := s.next().browser()
	w := s.saw(b.authorize(asking(client)))
	s.saw(b.answers(form(s.t, w), "allow"))
	room()
	s.answered("a store with room") // one without is taken for one that is away, until it is asked again
	s.clock.moves(10 * time.Second)
	s.lives(got.Access)
	sealed := form(s.t, b.authorize(asking(client)))
	to, err := url.Parse(s.saw(b.answers(sealed, "allow")).Header().Get("Location"))
	if err != nil {
		s.t.Fatal(err)
	}
	b.rig = s.next()
	w = s.saw(b.get("/oauth/callback?" + url.Values{"state": {to.Query().Get("state")}, "code": {"alice"}}.Encode()))
	_, q := led(s.t, w)
	s.saw(s.redeems(client, q.Get("code")))
}

// spoilt: what is not as it was written, where it was written, is not there, and is counted.
func spoilt(s *scene) {
	client := s.client()
	store := s.place.open(s.t, patience)
	// live are the records that are there of those that were written since it was last asked.
	live := func() map[string][]byte {
		all := map[string][]byte{}
		for _, p := range s.taps {
			p.mu.Lock()
			keys := p.keys
			p.keys = nil
			p.mu.Unlock()
			for _, key := range keys {
				if v, err := store.Get(s.t.Context(), key); err != nil {
					s.t.Fatal(err)
				} else if v != nil {
					all[key] = v
				}
			}
		}
		return all
	}
	kind := func(key string) string { return strings.Split(strings.TrimPrefix(key, s.reps[0].Prefix()), ":")[0] }
	noise := make([]byte, 300)
	_, _ = rand.Read(noise)
	for _, harm := range []func(v []byte, of string, others map[string][]byte) []byte{
		func(v []byte, _ string, _ map[string][]byte) []byte { return v[:len(v)-1] },
		func(v []byte, _ string, _ map[string][]byte) []byte { v[len(v)/2] ^= 1; return v },
		func([]byte, string, map[string][]byte) []byte { return noise },
		func([]byte, string, map[string][]byte) []byte { return []byte{} },
		func(_ []byte, of string, others map[string][]byte) []byte { return others[of] }, // that of another
	} {
		others := map[string][]byte{}
		_, _ = s.leaves(client)
		_ = s.code(client)
		for key, v := range live() {
			others[kind(key)] = v
		}
		signedIn := s.login(client)
		b, back := s.leaves(client)
		code := s.code(client)
		spoil := live()
		for key, v := range spoil {
			spoil[key] = harm(v, kind(key), others)
		}
		if len(spoil) < 5 {
			s.t.Fatalf("only %d records", len(spoil))
		}
		for key, v := range spoil {
			if err := store.Put(s.t.Context(), key, v, time.Hour); err != nil {
				s.t.Fatal(err)
			}
		}
		before := s.reps[0].Corrupt() + s.reps[1].Corrupt()
		b.rig = s.next()
		s.saw(b.get(back))
		s.saw(s.redeems(client, code))
		s.saw(s.refreshes(client, signedIn.Refresh))
		s.clock.moves(10 * time.Second)
		r := s.next()
		if l, err := r.Look(s.t.Context(), r.claims(signedIn.Access)["tsid"].(string)); err != nil || l != nil {
			s.t.Errorf("a spoilt grant: %v, %v", l, err)
		}
		s.say("dead")
		who := &edge.Identity{Issuer: issuer, Subject: "hub:alice", Claims: r.claims(signedIn.Access)}
		if got, _, err := r.Upstreams().Upstream(s.t.Context(), who, "hub"); got != "" || edge.KindOf(err) != edge.Unauthenticated {
			s.t.Errorf("a spoilt upstream token: %v", err)
		}
		s.say("none; ")
		if n := s.reps[0].Corrupt() + s.reps[1].Corrupt() - before; n < 5 {
			s.t.Errorf("%d of 5 spoilt records are counted", n)
		}
	}
	s.login(client)
	s.say("tokens")
}

// backEmpty is R03: what is lost costs a login, never a client.
func backEmpty(s *scene) {
	client := s.client()
	got, code := s.login(client), s.code(client)
	b, back := s.leaves(client)
	s.place.empty(s.keys())
	b.rig = s.next()
	s.saw(b.get(back))
	s.saw(s.redeems(client, code))
	s.saw(s.refreshes(client, got.Refresh))
	s.clock.moves(10 * time.Second)
	s.lives(got.Access)
	s.upstreams(got.Access)
	s.login(client)
	s.say("tokens")
}

// crash is one that ends at its nth write; false where there are fewer.
func crash(t *testing.T, p *place, n int, after bool) bool {
	s := newScene(t, p)
	one, two := s.replica(patience), s.replica(patience)
	client, _ := one.register(nil)
	dying := s.taps[0]
	dying.at, dying.after = n, after
	name := map[bool]string{false: "before", true: "after"}[after]
	redeemed := 0
	var latest tokens
	// each does a request at the replica that ends, and where it has ended at the other one.
	each := func(do func(r *rig) string) string {
		said := do(one)
		if !dying.ended {
			return said
		}
		return do(two)
	}

	// 1. Allow. A browser whose answer is lost sends the form again.
	b := one.browser()
	sealed := form(t, b.authorize(asking(client)))
	var state string
	said := each(func(r *rig) string {
		b.rig = r
		w := b.answers(sealed, "allow")
		if to, err := url.Parse(w.Header().Get("Location")); err == nil {
			state = to.Query().Get("state")
		}
		return word(t, w)
	})
	if said != "on" {
		t.Fatalf("%d %s: allow: %s", n, name, said)
	}

	// 2. Back. A state that was taken is over: the user begins again.
	var code string
	said = each(func(r *rig) string {
		b.rig = r
		w := b.get("/oauth/callback?" + url.Values{"state": {state}, "code": {"alice"}}.Encode())
		if word(t, w) == "code" {
			_, q := led(t, w)
			code = q.Get("code")
		}
		return word(t, w)
	})
	switch {
	case said == "code":
	case dying.ended && said == "page 400":
		s.reps = []*rig{two}
		code = s.code(client)
	default:
		t.Fatalf("%d %s: back: %s", n, name, said)
	}

	// 3. The code. One that was spent in doubt is spent, and then the user begins again.
	take := func(r *rig) string {
		w := r.post("/oauth/token", redeeming(client, code))
		if w.Code == http.StatusOK {
			latest = r.tokens(w)
			redeemed++
		}
		return word(t, w)
	}
	said = each(take)
	switch {
	case said == "tokens":
	case dying.ended && after && said == "400 invalid_grant":
		s.reps = []*rig{two}
		code = s.code(client)
		take(two)
	default:
		t.Fatalf("%d %s: code: %s", n, name, said)
	}
	if redeemed != 1 {
		t.Fatalf("%d %s: %d redemptions", n, name, redeemed)
	}

	// 4. A refresh. A client without an answer asks again, at once, and has the token that is good.
	first := latest
	said = each(func(r *rig) string {
		w := r.post("/oauth/token", refreshing(client, first.Refresh))
		if w.Code == http.StatusOK {
			latest = r.tokens(w)
		}
		return word(t, w)
	})
	if said != "tokens" || latest.Refresh == first.Refresh {
		t.Fatalf("%d %s: refresh: %s", n, name, said)
	}
	if who := two.claims(latest.Access); who["sub"] != "hub:alice" {
		t.Fatalf("%d %s: sub %v", n, name, who["sub"])
	}

	// 5. Revocation. Nothing can be used afterwards.
	said = each(func(r *rig) string {
		return word(t, r.post("/oauth/revoke", url.Values{"token": {latest.Refresh}, "client_id": {client}}))
	})
	if said != "200" {
		t.Fatalf("%d %s: revoke: %s", n, name, said)
	}
	s.clock.moves(10 * time.Second)
	if two.alive(latest.Access) || two.alive(first.Access) {
		t.Errorf("%d %s: a revoked grant lives", n, name)
	}
	refused(t, "a revoked refresh token", two.post("/oauth/token", refreshing(client, latest.Refresh)), 400, "invalid_grant")

	// 6. Whatever was left behind, the client is known and the user can sign in.
	s.reps = []*rig{two}
	again := s.login(client)
	if !two.alive(again.Access) {
		t.Errorf("%d %s: a new grant is dead", n, name)
	}
	return dying.ended
}
