package backend

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// open returns a backend before a handler, without what looks after its health.
func open(t *testing.T, h http.HandlerFunc, change func(*Config)) *Backend {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c := Config{
		Name: "back", URL: s.URL + "/mcp", Private: true, Silence: 30 * time.Second, Cap: time.Minute, MaxMessage: 1 << 20,
		Info: []byte(`{"name":"test","version":"1"}`), Agent: "test", Log: slog.New(slog.DiscardHandler), Health: health.Config{Interval: time.Hour},
	}
	if change != nil {
		change(&c)
	}
	b, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// No more connections are open than the configuration allows; a call beyond
// them is told so at once.
func TestMaxConns(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	defer close(hold)
	var waits atomic.Int64
	three := make(chan struct{})
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if m, err := mcp.Decode(body); err == nil && m.Method == "server/discover" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}`, m.IDText())
			return
		}
		if waits.Add(1) == 3 {
			close(three)
		}
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}, func(c *Config) { c.MaxConns = 3 })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for range 3 {
		calls.Go(func() { _, _ = b.Handle(ctx, exchangeOf(`"a"`)) })
	}
	select {
	case <-three:
	case <-time.After(30 * time.Second):
		t.Fatal("the calls did not come")
	}
	if _, err := b.Handle(ctx, exchangeOf(`"b"`)); edge.KindOf(err) != edge.Overload {
		t.Errorf("a call too many: %v", err)
	}
}

// exchangeOf is a modern client's tools/call.
func exchangeOf(id string) *edge.Exchange {
	m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"x","arguments":{},"_meta":{}}}`))
	if err != nil {
		panic(err)
	}
	return &edge.Exchange{Era: mcp.Modern, Request: m, Name: "x", Client: edge.NoClient{}}
}

// sessionsOf makes sessions that a legacy server knows.
func sessionsOf(b *Backend, n int) []*session {
	all := make([]*session, n)
	for i := range all {
		all[i] = newSession(b, false, nil, nil)
		all[i].live.Store(&link{id: fmt.Sprint("session-", i), version: mcp.V2511})
	}
	return all
}

// However many sessions end at once, the server is told of each, over a few
// connections, and calls keep theirs.
func TestManySessionsEndAtOnce(t *testing.T) {
	t.Parallel()
	const n = 10000
	var mu sync.Mutex
	told := map[string]int{}
	conns := map[string]bool{}
	var all sync.WaitGroup
	all.Add(n)
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "DELETE" {
			w.WriteHeader(500)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		told[r.Header.Get("Mcp-Session-Id")]++
		conns[r.RemoteAddr] = true
		all.Done()
	}, func(c *Config) { c.MaxConns = 16 })
	began := time.Now()
	for _, s := range sessionsOf(b, n) {
		s.Close()
	}
	queued := time.Since(began)
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("not every farewell was said")
	}
	t.Logf("%d farewells queued in %s, said in %s", n, queued, time.Since(began))
	mu.Lock()
	defer mu.Unlock()
	if len(told) != n || len(conns) > 16 {
		t.Errorf("%d of %d farewells over %d connections", len(told), n, len(conns))
	}
	for id, times := range told {
		if times != 1 {
			t.Errorf("%s was told %d times", id, times)
		}
	}
}

// Close says the farewells that are left, and is not held up by a server that
// takes none.
func TestCloseEndsItsSessions(t *testing.T) {
	t.Parallel()
	t.Run("a server that answers", func(t *testing.T) {
		t.Parallel()
		var told atomic.Int64
		b := open(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "DELETE" {
				told.Add(1)
			}
			w.WriteHeader(404)
		}, nil)
		for _, s := range sessionsOf(b, 300) {
			s.Close()
		}
		b.Close()
		if n := told.Load(); n != 300 {
			t.Errorf("%d farewells of 300", n)
		}
		for _, s := range sessionsOf(b, 3) { // none of it is begun
			s.Close()
		}
		if n := told.Load(); n != 300 || len(b.farewells.queue) != 0 {
			t.Errorf("%d farewells after the end", n-300)
		}
	})
	t.Run("a server that does not", func(t *testing.T) {
		t.Parallel()
		b := open(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "DELETE" {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
				return
			}
			w.WriteHeader(500)
		}, nil)
		for _, s := range sessionsOf(b, 300) {
			s.Close()
		}
		began := time.Now()
		b.Close()
		if d := time.Since(began); d > errandsEnd+10*time.Second {
			t.Errorf("Close took %s", d)
		}
	})
}

// Who finds the queue full waits for room, all of them together no longer than
// the patience of one.
func TestErrandsWithoutRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &Backend{Config: Config{Log: slog.New(slog.DiscardHandler)}}
		e := newErrands(b, wire.MaxConns)
		hold := make(chan struct{})
		var ran atomic.Int64
		wait := func(context.Context) { <-hold; ran.Add(1) }
		for range errandsAtOnce {
			e.run(wait)
		}
		synctest.Wait()
		for i := range maxErrands {
			if !e.run(wait) {
				t.Fatalf("errand %d was not taken", i)
			}
		}
		began := time.Now()
		for i := range 3 {
			if e.run(wait) {
				t.Errorf("errand %d beyond the last was taken", i)
			}
		}
		if d := time.Since(began); d != patience {
			t.Errorf("three waited for %s", d)
		}
		close(hold)
		synctest.Wait()
		if n := ran.Load(); n != maxErrands+errandsAtOnce {
			t.Errorf("%d errands ran", n)
		}
		// One that finds room in time is run, and whoever waits is woken by it.
		hold = make(chan struct{})
		slow := func(context.Context) { <-hold }
		for range errandsAtOnce {
			e.run(slow)
		}
		synctest.Wait()
		for range maxErrands {
			e.run(func(context.Context) {})
		}
		time.AfterFunc(patience/2, func() { close(hold) })
		began = time.Now()
		if ok, d := e.run(func(context.Context) { ran.Store(-1) }), time.Since(began); !ok || d != patience/2 {
			t.Errorf("taken: %v, after %s", ok, d)
		}
		synctest.Wait()
		if ran.Load() != -1 || e.running != 0 || e.queue != nil {
			t.Errorf("ran: %v; %d run, %d wait", ran.Load() == -1, e.running, len(e.queue))
		}
	})
}

// A session that the backend asks too much in, and the end of a question with
// its calls, whichever of them it was of.
func TestQuestionsOfASession(t *testing.T) {
	t.Parallel()
	s := newSession(&Backend{}, true, nil, nil)
	one, two, known := &call{}, &call{}, &call{}
	s.add(one)
	s.add(two)
	some, a := s.asks(context.Background(), one, false, nil, nil, 1)
	s.add(known)
	exact, x := s.asks(context.Background(), known, true, nil, nil, 1)
	free, f := s.asks(context.Background(), nil, false, nil, nil, 1)
	ends := func(when string, want ...bool) {
		t.Helper()
		for i, c := range []context.Context{some, exact, free} {
			if (c.Err() != nil) != want[i] {
				t.Errorf("%s: question %d: %v", when, i, c.Err())
			}
		}
	}
	s.remove(one)
	ends("after one call", false, false, false)
	s.remove(two)
	ends("after both calls", true, false, false)
	s.remove(known)
	ends("after its call", true, true, false)
	if _, late := s.asks(context.Background(), one, false, nil, nil, 1); late != nil {
		t.Error("a question of a call that has ended waits")
	}
	s.asked(a)
	s.asked(x)
	for i := 1; i < maxAsking; i++ {
		if _, more := s.asks(context.Background(), nil, false, nil, nil, 1); more == nil {
			t.Fatalf("question %d was not taken", i+1)
		}
	}
	if _, more := s.asks(context.Background(), nil, false, nil, nil, 1); more != nil {
		t.Error("a question too many was taken")
	}
	s.Close()
	ends("after the session", true, true, true)
	s.asked(f)
	if _, more := s.asks(context.Background(), nil, false, nil, nil, 1); more != nil {
		t.Error("a question after the end of the session was taken")
	}
}

// A session that takes the place of another in the pool, because that serves no
// longer or the transport has changed, does not end it before its last user.
func TestZ04ReplacedSessionsEndLast(t *testing.T) {
	t.Parallel()
	closed := func(p *pooled) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.closed
	}
	for _, one := range []struct {
		name   string
		sse    bool
		change func(*session)
		stays  bool
	}{
		{"as it was", false, func(*session) {}, true},
		{"another transport", true, func(*session) {}, false},
		{"of another era", false, func(s *session) { s.odd.Store(true) }, false},
		{"lost", false, func(s *session) { s.live.Store(nil) }, false},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			b := open(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, nil)
			in := &Introduction{Era: mcp.Legacy}
			first, second := newSession(b, false, nil, nil), newSession(b, one.sse, nil, nil)
			first.live.Store(&link{id: "x", version: mcp.V2511})
			b.adopt(first)
			var users [2]*pooled
			for i := range users {
				p, err := b.borrow(in, sort{})
				if err != nil || p.session != first {
					t.Fatalf("%+v, %v", p, err)
				}
				users[i] = p
			}
			one.change(first)
			b.adopt(second)
			in.SSE = one.sse && !one.stays
			p, err := b.borrow(in, sort{})
			if err != nil || (p.session == first) != one.stays || second.closed != one.stays {
				t.Errorf("the next one has %p of %p and %p, %v; the second has been closed: %t", p.session, first, second, err, second.closed)
			}
			b.giveBack(p, false)
			b.giveBack(users[0], false)
			time.Sleep(20 * time.Millisecond)
			if closed(users[1]) {
				t.Error("the session in use was ended")
			}
			b.giveBack(users[1], false)
			for end := time.Now().Add(5 * time.Second); !one.stays && !closed(users[1]); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the session was not ended after its last user")
				}
			}
		})
	}
}
