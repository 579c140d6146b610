package incoming_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/filters/incoming"
)

// inCache opens a gate whose memory is a part of a cache.
func inCache(t *testing.T, cache *kv.Cache, s incoming.Spec) *incoming.Gate {
	t.Helper()
	e := env(t)
	e.Cache = func(part string) edge.Cache { return cache.Part(part) }
	g, err := parse(t, s).Start(e, &oauth.Issuers{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func newCache(t *testing.T, budget int64) *kv.Cache {
	t.Helper()
	c, err := kv.NewCache(budget)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// counted is what a cache counts of tokens.
func counted(c *kv.Cache, metric string) (value int64) {
	c.Collect(edge.Emitter{Emit: func(s edge.Sample) {
		if s.Name == metric && len(s.Labels) == 1 && s.Labels[0].Value == "tokens" {
			value = int64(s.Value)
		}
	}})
	return value
}

// TestFloodOfTokens holds that people who show a token once do not make the gate
// forget those who are there all the time, though there is no room for all, and
// that somebody who comes later is remembered as well.
func TestFloodOfTokens(t *testing.T) {
	ed := newEd("ed-1") // which is quick to sign
	p := newProvider(t, ed)
	cache := newCache(t, kv.MinCache)
	g := inCache(t, cache, p.spec())
	mint := func(who string, i int) string {
		return ed.mint(p.claims(map[string]any{"sub": fmt.Sprint(who, i), "groups": []string{"a", "b", strings.Repeat("x", 300)}}))
	}
	var busy []string
	for i := range 10 {
		busy = append(busy, mint("busy", i))
		for range 20 {
			remembered(t, g, busy[i])
		}
	}
	before, uses := g.Stats(), 0
	const people = 5000 // some 300 of them have room
	for i := range people {
		accepted(t, g, "a token", mint("once", i))
		if i%50 == 0 {
			for _, token := range busy {
				accepted(t, g, "a busy token", token)
				uses++
			}
		}
	}
	after := g.Stats()
	if verified := after.Verified - before.Verified - people; float64(verified) > float64(uses)*floodLoses {
		t.Errorf("of %d uses of busy tokens %d were verified anew", uses, verified)
	}
	if n := counted(cache, "weir_cache_values"); n == 0 || n > people/10 {
		t.Errorf("%d tokens are remembered", n)
	}
	remembered(t, g, mint("late", 1))
}

// TestRememberedByNobodyElse holds that what one gate has found good is nothing to
// another: not to one that wants another audience, issuer or scope, nor to one
// that stands in for it after a reload.
func TestRememberedByNobodyElse(t *testing.T) {
	p, other := newProvider(t, theEC()), newProvider(t, newEC("other"))
	cache := newCache(t, 8<<20)
	token := theEC().mint(p.claims(map[string]any{"aud": []string{audience, "https://b.example"}}))
	only := theEC().mint(p.claims(nil))
	first := inCache(t, cache, p.spec())
	remembered(t, first, token)
	remembered(t, first, only)

	same := inCache(t, cache, p.spec())
	accepted(t, same, "the token at a gate of the same configuration", token)
	if s := same.Stats(); s.Cached != 0 || s.Verified != 1 {
		t.Errorf("another gate remembers what it has not seen: %+v", s)
	}
	s := p.spec()
	s.Audience = "https://b.example"
	elsewhere := inCache(t, cache, s)
	accepted(t, elsewhere, "a token for both", token)
	refused(t, elsewhere, "a token for the first", only, "aud")
	s = p.spec()
	s.Issuer, s.JWKSURL = other.URL, other.URL+"/keys"
	refused(t, inCache(t, cache, s), "a token of another issuer", only, "")
	s = p.spec()
	s.Required = []string{"admin"}
	if _, err := identify(t, inCache(t, cache, s), only); edge.KindOf(err) != edge.Denied {
		t.Errorf("without a scope that another gate does not want: %v", err)
	}
}

// TestWithoutCache holds that a gate judges every token where nothing can be
// remembered.
func TestWithoutCache(t *testing.T) {
	p := newProvider(t, theEC())
	e := env(t)
	e.Cache = nil
	g, err := parse(t, p.spec()).Start(e, &oauth.Issuers{})
	if err != nil {
		t.Fatal(err)
	}
	token := theEC().mint(p.claims(nil))
	for range 3 {
		accepted(t, g, "a token", token)
	}
	if s := g.Stats(); s.Verified != 3 || s.Cached != 0 || g.Remembered([]byte("Bearer "+token)) != nil {
		t.Errorf("%+v", s)
	}
}

// heap is how many bytes are reachable.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestTokensStayWithinTheBudget holds what is remembered of tokens to the budget,
// whatever the claims are made of: what is counted for a token is what it holds.
func TestTokensStayWithinTheBudget(t *testing.T) {
	ed := newEd("ed-1")
	p := newProvider(t, ed)
	list := func(n int, item any) []any {
		var all []any
		for range n {
			all = append(all, item)
		}
		return all
	}
	members := func(n int) map[string]any {
		all := map[string]any{}
		for i := range n {
			all[fmt.Sprint("m", i)] = true
		}
		return all
	}
	for name, shape := range map[string]any{
		"ordinary": "x", "one text": strings.Repeat("x", 8<<10), "numbers": list(3000, 1), "texts": list(1000, "group"), "empty lists": list(3000, []any{}),
		"empty objects": list(1500, map[string]any{}), "objects": list(300, map[string]any{"a": "b", "c": 1}), "members": members(800), "nested": list(60, list(60, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			// 1. What is counted for some, where there is room for all.
			cache := newCache(t, 256<<20)
			g := inCache(t, cache, p.spec())
			show := func(g *incoming.Gate, i int) {
				token := ed.mint(p.claims(map[string]any{"jti": i, "shape": shape}))
				accepted(t, g, "a token", strings.Clone(token)) // as the door makes a copy
			}
			const some = 60
			show(g, -1)
			maps := cache.Part("maps") // which the first values of each of them make
			for i := range 3000 {
				maps.Put(edge.Key{24: byte(i), 25: byte(i >> 8)}, nil, 0, time.Time{})
			}
			before, counts := heap(), counted(cache, "weir_cache_bytes")
			for i := range some {
				show(g, i)
			}
			holds, counts := (heap()-before)/some, (counted(cache, "weir_cache_bytes")-counts)/some
			if counts < holds*9/10 || counts > 1024+holds*5/2 {
				t.Errorf("a token holds %d bytes, and %d are counted", holds, counts)
			}

			// 2. The budget of a small cache.
			small := newCache(t, 2<<20)
			g = inCache(t, small, p.spec())
			for i := range 3 * 2 << 20 / int(counts) {
				show(g, i)
			}
			if bytes := counted(small, "weir_cache_bytes"); bytes > 2<<20 || counts < 100<<10 && bytes < 2<<20/4 {
				t.Errorf("%d bytes of %d are taken", bytes, 2<<20)
			}
			runtime.KeepAlive(cache)
		})
	}
}

// grant is one that lives, of a user of whom policies read much.
type grant struct{ claims map[string]any }

func (grant) Lives(time.Time) bool               { return true }
func (g grant) Claims() (map[string]any, uint64) { return g.claims, 1 }

// TestPolicyClaimsStayWithinTheBudget: what policies read of a user, beside the token, counts.
func TestPolicyClaimsStayWithinTheBudget(t *testing.T) {
	p := newProvider(t, theEC())
	document, err := json.Marshal(map[string]any{"keys": []any{theEC().jwk()}})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := oauth.ParseKeys(document)
	if err != nil {
		t.Fatal(err)
	}
	of := grant{map[string]any{"groups": []any{strings.Repeat("g", 100<<10)}}}
	own := &incoming.Own{Keys: func() oauth.Snapshot { return oauth.Snapshot{Keys: keys} }, Look: func(context.Context, string) (incoming.Grant, error) { return of, nil }}
	cache, e := newCache(t, 8<<20), env(t)
	e.Cache = func(part string) edge.Cache { return cache.Part(part) }
	g, err := parse(t, p.spec()).Own(own).Start(e, &oauth.Issuers{})
	if err != nil {
		t.Fatal(err)
	}
	remembered(t, g, theEC().mint(p.claims(map[string]any{"tsid": "x"})))
	if n := counted(cache, "weir_cache_bytes"); n < 100<<10 {
		t.Errorf("%d bytes are counted of a user of whom policies read 100 KiB", n)
	}
}

// TestNow holds that a gate goes by the time of its world.
func TestNow(t *testing.T) {
	p := newProvider(t, theEC())
	e, now := env(t), time.Now()
	e.Now = func() time.Time { return now }
	g, err := parse(t, p.spec()).Start(e, &oauth.Issuers{})
	if err != nil {
		t.Fatal(err)
	}
	token := theEC().mint(p.claims(map[string]any{"exp": now.Add(time.Hour).Unix()}))
	remembered(t, g, token)
	now = now.Add(time.Hour + 59*time.Second)
	accepted(t, g, "a token within the skew", token)
	now = now.Add(2 * time.Second)
	refused(t, g, "a token that is over", token, "exp")
}
