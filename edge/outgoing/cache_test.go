package outgoing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/outgoing"
)

// maker makes credentials that name whom they are for and of what they are made.
type maker struct {
	asked atomic.Int64
	life  time.Duration
	skew  time.Duration
	takes time.Duration
	mu    sync.Mutex
	err   error         // guarded by mu, once it is asked
	hold  chan struct{} // Make waits for it to be closed; nil for nothing
	now   func() time.Time
}

// fails has Make fail from now on; nil for no more.
func (m *maker) fails(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

type credential struct{ owner, subject string }

func (m *maker) Make(ctx context.Context, a *outgoing.Ask) (outgoing.Fresh, error) {
	m.asked.Add(1)
	began := time.Now()
	if m.now != nil {
		began = m.now()
	}
	if m.hold != nil {
		select {
		case <-m.hold:
		case <-ctx.Done():
			return outgoing.Fresh{}, ctx.Err()
		}
	}
	if m.takes > 0 {
		select {
		case <-time.After(m.takes):
		case <-ctx.Done():
			return outgoing.Fresh{}, ctx.Err()
		}
	}
	m.mu.Lock()
	err := m.err
	m.mu.Unlock()
	if err != nil {
		return outgoing.Fresh{}, err
	}
	return outgoing.Fresh{
		Value: &credential{strings.Clone(a.Who.Subject), strings.Clone(string(a.Subject))},
		Cost:  64, Expires: began.Add(m.life), Skew: m.skew,
	}, nil
}

func user(name string) *edge.Identity {
	token := edge.Secret("token of " + name)
	return &edge.Identity{Issuer: "https://issuer.example.com", Subject: name, Token: token, Digested: edge.DigestToken(token)}
}

func ask(who *edge.Identity) *outgoing.Ask {
	return &outgoing.Ask{Who: who, Subject: who.Token}
}

func by(m outgoing.Maker) *outgoing.Way {
	return &outgoing.Way{Strategy: "test", Digest: [16]byte{1}, Maker: m}
}

func cache(t testing.TB) *outgoing.Cache {
	c := outgoing.NewCache(time.Now)
	t.Cleanup(c.Close)
	return c
}

// 1,000 first calls at once make one credential, and each gets it.
func TestT15OnceAtATime(t *testing.T) {
	c, m, who := cache(t), &maker{life: time.Hour, hold: make(chan struct{})}, user("alice")
	var calls sync.WaitGroup
	var wrong atomic.Int64
	for range 1000 {
		calls.Go(func() {
			if v, generation, err := c.Get(t.Context(), by(m), ask(who)); err != nil || generation != 1 || v.(*credential).owner != "alice" {
				wrong.Add(1)
			}
		})
	}
	for outgoing.Waiting(c) < 1000 {
		runtime.Gosched()
	}
	close(m.hold)
	calls.Wait()
	if m.asked.Load() != 1 || wrong.Load() != 0 {
		t.Errorf("%d made, %d wrong", m.asked.Load(), wrong.Load())
	}
}

// Two users, each with a narrow and a wide token, whose credentials expire and are renewed
// all the time: nobody ever gets what was made of another token.
func TestT14(t *testing.T) {
	const interleavings = 2 * 100_000
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(0, clock.Load()) }
	c := outgoing.NewCache(now)
	defer c.Close()
	makers := []*maker{{life: time.Second, now: now}, {life: time.Minute, now: now}, {now: now, err: outgoing.Fault(edge.Unavailable, false, errors.New("down"))}}
	var users []*edge.Identity
	for _, name := range []string{"alice", "bob"} {
		for _, scope := range []string{"narrow", "wide"} {
			id := &edge.Identity{Issuer: "https://issuer.example.com", Subject: name, Token: edge.Secret(scope + " token of " + name)}
			if scope == "wide" { // the digest of the other has to be computed
				id.Digested = edge.DigestToken(id.Token)
			}
			users = append(users, id)
		}
	}
	var calls sync.WaitGroup
	var crossed, got atomic.Int64
	for g := range 4 {
		calls.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range interleavings / 4 {
				a := ask(users[r.IntN(len(users))])
				clock.Add(r.Int64N(int64(100 * time.Millisecond)))
				a.Refused = r.IntN(3) == 0
				a.Mark = []string{"", "rotated"}[r.IntN(2)]
				v, _, err := c.Get(t.Context(), by(makers[r.IntN(len(makers))]), a)
				if err != nil {
					continue
				}
				got.Add(1)
				if one := v.(*credential); one.owner != a.Who.Subject || one.subject != string(a.Who.Token) {
					crossed.Add(1)
				}
			}
		})
	}
	calls.Wait()
	made := makers[0].asked.Load() + makers[1].asked.Load()
	if crossed.Load() != 0 || got.Load() < interleavings/10 || made < 100 {
		t.Errorf("%d of %d crossed, %d made", crossed.Load(), got.Load(), made)
	}
}

// Everything that a key is made of tells credentials apart.
func TestT14Key(t *testing.T) {
	c, m := cache(t), &maker{life: time.Hour}
	base := edge.Identity{Issuer: "i", Subject: "s", Token: "t"}
	seen := map[any]bool{}
	for _, change := range []func(*edge.Identity){
		func(*edge.Identity) {}, func(id *edge.Identity) { id.Issuer = "j" }, func(id *edge.Identity) { id.Subject = "u" }, func(id *edge.Identity) { id.Token = "v" },
		func(id *edge.Identity) { id.Issuer, id.Subject = "is", "" },
	} {
		who := base
		who.Digested = edge.DigestToken(who.Token)
		change(&who)
		for way := range byte(2) {
			v, _, err := c.Get(t.Context(), &outgoing.Way{Digest: [16]byte{way}, Maker: m}, &outgoing.Ask{Who: &who})
			if err != nil || seen[v] {
				t.Error(who, way, err)
			}
			seen[v] = true
		}
	}
	if len(seen) != 10 || m.asked.Load() != 10 {
		t.Error(len(seen), m.asked.Load())
	}
}

// One call a millisecond over a minute, across three expiries, with a maker that takes half
// a second: a credential is made four times, and only the first call waits.
func TestT15Renewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m, who := cache(t), &maker{life: 20 * time.Second, skew: 30 * time.Second, takes: 500 * time.Millisecond}, user("alice")
		began, waited := time.Now(), 0
		for time.Since(began) < 35*time.Second {
			before := time.Now()
			if _, _, err := c.Get(t.Context(), by(m), ask(who)); err != nil {
				t.Fatal(err)
			}
			if time.Since(before) > 0 {
				waited++
			}
			time.Sleep(time.Millisecond)
		}
		if m.asked.Load() != 4 || waited != 1 {
			t.Errorf("%d made, %d calls waited", m.asked.Load(), waited)
		}
	})
}

// However long the skew and however short the life, one a second is made for a key.
func TestT16(t *testing.T) {
	for _, tt := range []struct {
		life, skew time.Duration
		most       int64 // in 10 s
	}{
		{time.Second, time.Hour, 11}, {time.Nanosecond, 0, 11}, {3 * time.Second, time.Hour, 8}, {time.Hour, -time.Hour, 1}, {time.Hour, 2 * time.Hour, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, m, who := cache(t), &maker{life: tt.life, skew: tt.skew}, user("alice")
			for range 1000 {
				if _, _, err := c.Get(t.Context(), by(m), ask(who)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if n := m.asked.Load(); n > tt.most {
				t.Errorf("life %s, skew %s: %d made in 10 s", tt.life, tt.skew, n)
			}
		})
	}
}

// A credential is used until its end less the skew: at most half its life.
func TestT16Use(t *testing.T) {
	for _, tt := range []struct{ life, skew, used time.Duration }{
		{time.Hour, 30 * time.Second, time.Hour - 30*time.Second}, {time.Hour, -time.Minute, time.Hour}, {time.Minute, time.Hour, 30 * time.Second}, {20 * time.Second, 30 * time.Second, 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, m, who := cache(t), &maker{life: tt.life, skew: tt.skew}, user("alice")
			get := func() uint64 {
				_, generation, err := c.Get(t.Context(), by(m), ask(who))
				if err != nil {
					t.Fatal(err)
				}
				return generation
			}
			first := get()
			time.Sleep(tt.used - 1)
			m.takes = time.Second // the renewal, which this call begins
			if get() != first {
				t.Errorf("%v: made anew too early", tt)
			}
			synctest.Wait()
			time.Sleep(time.Nanosecond)
			if get() == first {
				t.Errorf("%v: used too long", tt)
			}
		})
	}
}

// What was refused is not asked for 5 s, what failed for 1 s, and not by anybody.
func TestRefusalsAreKept(t *testing.T) {
	for _, tt := range []struct {
		err   error
		quiet time.Duration
	}{
		{outgoing.Fault(edge.Unauthenticated, true, errors.New("no")), 5 * time.Second},
		{outgoing.Fault(edge.Unavailable, false, errors.New("down")), time.Second},
		{outgoing.Fault(edge.Timeout, false, errors.New("silent")), time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, m, who := cache(t), &maker{err: tt.err, life: time.Hour}, user("alice")
			for range 3 {
				for range 10 {
					if _, _, err := c.Get(t.Context(), by(m), ask(who)); !errors.Is(err, tt.err) {
						t.Fatal(err)
					}
				}
				time.Sleep(tt.quiet - 1)
				_, _, _ = c.Get(t.Context(), by(m), ask(who))
				time.Sleep(time.Nanosecond)
			}
			if m.asked.Load() != 3 {
				t.Errorf("%v: asked %d times", tt.err, m.asked.Load())
			}
			m.fails(nil)
			if _, _, err := c.Get(t.Context(), by(m), ask(who)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A token service that says nothing takes a part of the room: others' credentials are made
// meanwhile.
func TestSilentServiceAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache(t)
		silent := outgoing.Fault(edge.Timeout, false, errors.New("silent"))
		m, other := &maker{err: silent, takes: 5 * time.Second, life: time.Hour}, &maker{life: time.Hour}
		way := func(n byte, m outgoing.Maker) *outgoing.Way {
			return &outgoing.Way{Strategy: "test", Digest: [16]byte{n}, Maker: m, Asks: true}
		}
		began := time.Now()
		var calls sync.WaitGroup
		call := func(n int, from string, well bool) {
			for i := range n {
				calls.Go(func() {
					if _, _, err := c.Get(t.Context(), way(1, m), ask(user(fmt.Sprint(from, i)))); (err == nil) != well {
						t.Errorf("%s: %v", from, err)
					}
				})
			}
			synctest.Wait()
		}
		before := int64(0)
		at := func(what string, asked int64, after time.Duration) {
			t.Helper()
			if n, past := m.asked.Load()-before, time.Since(began); n != asked || past != after {
				t.Errorf("%s: it was asked %d times, want %d, after %s, want %s", what, n, asked, past, after)
			}
		}
		call(600, "first", false)
		if _, _, err := c.Get(t.Context(), way(2, other), ask(user("alice"))); err != nil {
			t.Error(err)
		}
		at("another way", 32, 0)
		calls.Wait()
		m.fails(nil)
		m.takes, before = 0, m.asked.Load()
		call(100, "well", true) // at once, whoever has failed
		calls.Wait()
		at("it answers again", 100, 15*time.Second)

		// What asks nobody waits for no room.
		m.takes = time.Hour
		for n := range byte(4) {
			for i := range 40 {
				calls.Go(func() { _, _, _ = c.Get(t.Context(), way(10+n, m), ask(user(fmt.Sprint("full", i)))) })
			}
		}
		synctest.Wait()
		alone := way(20, other)
		alone.Asks = false
		if _, _, err := c.Get(t.Context(), alone, ask(user("alice"))); err != nil {
			t.Error(err)
		}
		at("without room", 100+128, 15*time.Second)
		c.Close()
		calls.Wait()
	})
}

// While it cannot be made anew, the old one is used to its end.
func TestRenewalUnderFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m, who := cache(t), &maker{life: 100 * time.Second}, user("alice")
		began, fails := time.Now(), 0
		for time.Since(began) < 104*time.Second {
			_, generation, err := c.Get(t.Context(), by(m), ask(who))
			switch past := time.Since(began); {
			case past < 100*time.Second && (err != nil || generation != 1):
				t.Fatalf("after %s: %v", past, err)
			case past >= 100*time.Second && err == nil:
				t.Fatalf("after %s: still used", past)
			case err != nil:
				fails++
			}
			m.fails(outgoing.Fault(edge.Unavailable, false, errors.New("down")))
			time.Sleep(100 * time.Millisecond)
		}
		if n := m.asked.Load(); n < 10 || n > 16 || fails == 0 {
			t.Errorf("asked %d times", n)
		}
		m.fails(nil)
		time.Sleep(2 * time.Second)
		if _, generation, err := c.Get(t.Context(), by(m), ask(who)); err != nil || generation == 1 {
			t.Error(generation, err)
		}
	})
}

// A backend that says 401 to everything has one credential made anew in 30 s; calls that
// were refused the old one get the new one.
func TestRefusedByBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m, who := cache(t), &maker{life: time.Hour, takes: 100 * time.Millisecond}, user("alice")
		get := func(refused bool) uint64 {
			a := ask(who)
			a.Refused = refused
			_, generation, err := c.Get(t.Context(), by(m), a)
			if err != nil {
				t.Fatal(err)
			}
			return generation
		}
		first := get(false)
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				if get(true) == first {
					t.Error("the one that was refused came back")
				}
			})
		}
		calls.Wait()
		second := get(false)
		for range 2900 {
			if get(true) != second || get(false) != second {
				t.Fatal("made anew too soon")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if m.asked.Load() != 2 {
			t.Errorf("%d made", m.asked.Load())
		}
		time.Sleep(time.Second)
		if get(true) == second || m.asked.Load() != 3 {
			t.Error("not made anew after 30 s")
		}
	})
}

// A call that leaves ends nobody's wait; the end of the cache ends all.
func TestWaiterLeaves(t *testing.T) {
	c, m, who := cache(t), &maker{life: time.Hour, hold: make(chan struct{})}, user("alice")
	ctx, leave := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, _, err := c.Get(ctx, by(m), ask(who)); first <- err }()
	for outgoing.Waiting(c) < 1 {
		runtime.Gosched()
	}
	go func() { _, _, err := c.Get(t.Context(), by(m), ask(who)); second <- err }()
	for outgoing.Waiting(c) < 2 {
		runtime.Gosched()
	}
	leave()
	if err := <-first; edge.KindOf(err) != edge.Gone {
		t.Error(err)
	}
	close(m.hold)
	if err := <-second; err != nil || m.asked.Load() != 1 {
		t.Error(err, m.asked.Load())
	}
	m.hold = make(chan struct{})
	go func() { _, _, err := c.Get(t.Context(), by(m), ask(user("bob"))); first <- err }()
	for outgoing.Waiting(c) < 1 {
		runtime.Gosched()
	}
	c.Close()
	if err := <-first; err == nil {
		t.Error("made after the end")
	}
	if _, _, err := c.Get(t.Context(), by(m), ask(user("carol"))); edge.KindOf(err) != edge.Unavailable {
		t.Error(err)
	}
}

// A maker that panics fails the call.
func TestMakerPanics(t *testing.T) {
	c := cache(t)
	if _, _, err := c.Get(t.Context(), by(panics{}), ask(user("alice"))); edge.KindOf(err) != edge.Unavailable {
		t.Error(err)
	}
}

type panics struct{}

func (panics) Make(context.Context, *outgoing.Ask) (outgoing.Fresh, error) { panic("a defect") }

// The cache holds no more bytes than it may: those that were used last.
func TestCacheIsBounded(t *testing.T) {
	const budget = 1 << 20
	c, m := outgoing.NewCacheOf(budget), &maker{life: time.Hour}
	defer c.Close()
	alice := user("alice")
	for i := range 10_000 {
		if _, _, err := c.Get(t.Context(), by(m), ask(user(fmt.Sprint("user", i)))); err != nil {
			t.Fatal(err)
		}
		if _, generation, err := c.Get(t.Context(), by(m), ask(alice)); err != nil || generation > 2 {
			t.Fatal("what is used often went", generation, err)
		}
	}
	s := c.Stats()
	if s.Bytes > budget || s.Bytes < budget/2 || s.Entries > 2000 || m.asked.Load() != 10_001 {
		t.Error(s, m.asked.Load())
	}
}

// What is counted for a credential is at least what it takes: 768 bytes and its token at most.
func TestCacheMemory(t *testing.T) {
	const n = 10_000
	c, m := cache(t), &maker{life: time.Hour}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	for i := range n {
		if _, _, err := c.Get(t.Context(), by(m), ask(user(fmt.Sprintf("user-%06d", i)))); err != nil {
			t.Fatal(err)
		}
	}
	took := int64(heap()-before) / n
	counted := c.Stats().Bytes / n
	if took > counted || took > 768 {
		t.Errorf("an entry takes %d bytes and counts %d", took, counted)
	}
	runtime.KeepAlive(c)
}

// The way to a credential that is kept costs no allocation.
func TestCacheAllocatesNothing(t *testing.T) {
	c, m, who, ctx := cache(t), &maker{life: time.Hour}, user("alice"), t.Context()
	w := by(m)
	if n := testing.AllocsPerRun(100, func() {
		if _, _, err := c.Get(ctx, w, &outgoing.Ask{Who: who, Subject: who.Token}); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCache(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n, " users"), func(b *testing.B) {
			c, m := cache(b), &maker{life: time.Hour}
			users := make([]*edge.Identity, n)
			for i := range users {
				users[i] = user(fmt.Sprint("user", i))
				if _, _, err := c.Get(b.Context(), by(m), ask(users[i])); err != nil {
					b.Fatal(err)
				}
			}
			ctx, w, i := b.Context(), by(m), 0
			b.ReportAllocs()
			for b.Loop() {
				who := users[i%10]
				i++
				if _, _, err := c.Get(ctx, w, &outgoing.Ask{Who: who, Subject: who.Token}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestSleep: what ended while the machine slept is not used any more.
func TestSleep(t *testing.T) {
	var slept atomic.Int64
	now := func() time.Time {
		now := time.Now()
		*(*uint64)(unsafe.Pointer(&now)) += uint64(slept.Load()) << 30 // seconds of its wall clock alone
		return now
	}
	c := outgoing.NewCache(now)
	t.Cleanup(c.Close)
	m := &maker{life: time.Hour, now: now}
	for i, want := range []int64{1, 1, 2} {
		if i == 2 {
			slept.Store(2 * 60 * 60)
		}
		if _, _, err := c.Get(t.Context(), by(m), ask(user("alice"))); err != nil || m.asked.Load() != want {
			t.Errorf("call %d: made %d times, %v", i, m.asked.Load(), err)
		}
	}
}
