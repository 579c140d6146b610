//go:build unix

package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// TestR01StoreFaults (also G05): a store that is refused, silent, reset, slow,
// read-only, full, loading or moved costs a call at most 100 ms, and is in use
// again within 2 s.
func TestR01StoreFaults(t *testing.T) {
	r := kvtest.Redis(t)
	for _, fault := range []struct {
		name        string
		begin, heal func(*kvtest.Wire)
	}{
		{"refused", func(*kvtest.Wire) { r.Kill() }, func(*kvtest.Wire) { r.Start() }},
		{"black hole", func(*kvtest.Wire) { r.Freeze() }, func(*kvtest.Wire) { r.Thaw() }},
		{"reset", func(w *kvtest.Wire) { w.Reset.Store(true) }, func(w *kvtest.Wire) { w.Reset.Store(false) }},
		{"5 s late", func(w *kvtest.Wire) { w.Delay.Store(int64(5 * time.Second)) }, func(w *kvtest.Wire) { w.Delay.Store(0); w.Cut() }},
		{"read-only", func(*kvtest.Wire) { r.Do("replicaof", "127.0.0.1", "1") }, func(*kvtest.Wire) { r.Do("replicaof", "no", "one") }},
		{"out of memory", func(*kvtest.Wire) { r.Do("config", "set", "maxmemory", "1") }, func(*kvtest.Wire) { r.Do("config", "set", "maxmemory", "0") }},
		{"loading", func(w *kvtest.Wire) { w.Says.Store("-LOADING Redis is loading the dataset in memory\r\n") }, func(w *kvtest.Wire) { w.Says.Store("") }},
		{"moved", func(w *kvtest.Wire) { w.Says.Store("-MOVED 1 10.1.2.3:6379\r\n") }, func(w *kvtest.Wire) { w.Says.Store("") }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			w := kvtest.NewWire(t, r.Addr)
			s := open(t, kv.Options{Addresses: []string{w.Addr}, Log: slog.New(slog.DiscardHandler)})
			ready(t, s)
			// A machine that is held up makes one attempt slow, and not three.
			for attempt := 1; ; attempt++ {
				fault.begin(w)
				l := run(t, s, time.Second)
				fault.heal(w)
				healed := time.Now()
				edgetest.Until(t, "a store that answers again", func() bool {
					_, _, err := s.Take(t.Context(), edge.Bucket{Key: "rl:{load}", Capacity: 1 << 30, Refill: time.Second})
					return err == nil
				})
				back := time.Since(healed)
				for _, err := range l.wrong[:min(3, len(l.wrong))] {
					t.Errorf("an error of another kind: %v", err)
				}
				t.Logf("%d calls, %d failed; p99 %s, slowest %s; back after %s; %+v", len(l.took), l.fails, l.p99(), l.took[len(l.took)-1], back, s.Counters())
				if l.fails < len(l.took)/2 {
					t.Errorf("only %d of %d calls failed: the fault is none", l.fails, len(l.took))
				}
				if l.p99() <= 100*time.Millisecond && back <= 2*time.Second {
					return
				}
				if attempt == 3 {
					t.Fatalf("p99 %s, want 100ms at most; back after %s, want 2s at most", l.p99(), back)
				}
				ready(t, s)
			}
		})
	}
}

// While a store is away one probe after the other asks it, whatever the load.
func TestOneProbeAtATime(t *testing.T) {
	r := kvtest.Redis(t)
	w := kvtest.NewWire(t, r.Addr)
	s := open(t, kv.Options{Addresses: []string{w.Addr}})
	ready(t, s)
	w.Says.Store("-LOADING Redis is loading the dataset in memory\r\n")
	edgetest.Until(t, "an open breaker", func() bool {
		_, _ = s.Get(t.Context(), "k")
		return s.State().Open
	})
	before, calls := w.Asked.Load(), s.Counters().Calls
	if l := run(t, s, time.Second); l.fails != len(l.took) {
		t.Errorf("%d of %d calls failed", l.fails, len(l.took))
	}
	// After 50, 100, 200, 400 and 500 ms, or a quarter sooner.
	if n := w.Asked.Load() - before; n > 8 {
		t.Errorf("a store that is away was asked %d times in a second", n)
	}
	if n := s.Counters().Calls - calls; n != 0 {
		t.Errorf("%d calls asked a store that is away", n)
	}
	w.Says.Store("")
	ready(t, s)
	if _, err := s.Get(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}

// TestR02ValuesOfAStoreThatIsAway: no method answers as though there were
// nothing.
func TestR02ValuesOfAStoreThatIsAway(t *testing.T) {
	r := kvtest.Redis(t)
	s := open(t, kv.Options{Addresses: []string{r.Addr}})
	ready(t, s)
	if err := s.Put(t.Context(), "k", []byte("v"), time.Hour); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]func(){"killed": {r.Kill, r.Start}, "frozen": {r.Freeze, r.Thaw}} {
		change[0]()
		ctx := t.Context()
		_, getErr := s.Get(ctx, "k")
		_, _, takeErr := s.Take(ctx, edge.Bucket{Key: "b", Capacity: 1, Refill: time.Hour})
		for method, err := range map[string]error{
			"get": getErr, "take": takeErr,
			"put":    s.Put(ctx, "k", nil, time.Hour),
			"delete": s.Delete(ctx, "k"),
			"post":   s.Post(ctx, "box", nil, time.Hour),
			"update": s.Update(ctx, "k", time.Hour, func([]byte) ([]byte, error) { t.Error("change was called"); return nil, nil }),
		} {
			if edge.KindOf(err) != edge.Overload || strings.Contains(fmt.Sprint(err), r.Addr) {
				t.Errorf("%s, %s: %v", name, method, err)
			}
		}
		edgetest.Until(t, "a store that is not ready", func() bool { return s.Ready() != nil })
		change[1]()
		ready(t, s)
	}
}

// TestR03KilledUnderLoad: a Redis that comes back empty has full buckets and no
// values, and nothing else is different.
func TestR03KilledUnderLoad(t *testing.T) {
	r := kvtest.Redis(t)
	s := open(t, kv.Options{Addresses: []string{r.Addr}})
	ready(t, s)
	ctx, b := t.Context(), edge.Bucket{Key: "b", Capacity: 2, Refill: time.Hour}
	if err := s.Put(ctx, "k", []byte("v"), time.Hour); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if wait, _, err := s.Take(ctx, b); wait != 0 || err != nil {
			t.Fatal(wait, err)
		}
	}
	ended := make(chan *load)
	go func() { ended <- run(t, s, time.Second) }()
	edgetest.Until(t, "load", func() bool { return s.Counters().Calls > 100 })
	r.Kill()
	edgetest.Until(t, "an open breaker", func() bool { return s.State().Open })
	r.Start()
	if l := edgetest.Receive(t, ended, "the end of the load"); len(l.wrong) > 0 {
		t.Errorf("%d errors of another kind, such as %v", len(l.wrong), l.wrong[0])
	}
	ready(t, s)
	if v, err := s.Get(ctx, "k"); v != nil || err != nil {
		t.Errorf("a value of an empty Redis: %q, %v", v, err)
	}
	for i, want := range []bool{true, true, false} {
		if wait, _, err := s.Take(ctx, b); err != nil || (wait == 0) != want {
			t.Errorf("take %d: %s, %v", i, wait, err)
		}
	}
}

// TestR05StoreTime: buckets are counted by the clock of the store. What a
// replica with a clock that is ahead would have written gives nobody a token.
func TestR05StoreTime(t *testing.T) {
	r := kvtest.Redis(t)
	s := open(t, patient(r.Addr))
	micros := func() int64 {
		f := strings.Fields(r.Do("time"))
		sec, _ := strconv.ParseInt(f[0], 10, 64)
		us, _ := strconv.ParseInt(f[1], 10, 64)
		return sec*1e6 + us
	}
	b := edge.Bucket{Key: "b", Capacity: 60, Refill: time.Minute}
	before := micros()
	if _, _, err := s.Take(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	after := micros()
	last, err := strconv.ParseInt(r.Do("hget", "weir:b", "last_refill"), 10, 64)
	if err != nil || last < before || last > after {
		t.Errorf("the bucket was counted at %d, and the store's clock went from %d to %d", last, before, after)
	}
	for _, skew := range []int64{30e6, -30e6} {
		r.Do("hset", "weir:b", "tokens", "0", "last_refill", strconv.FormatInt(micros()+skew, 10))
		got := 0
		for {
			wait, _, err := s.Take(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			if wait > 0 {
				if wait > time.Second {
					t.Errorf("skew %d: a token a second, and the next comes in %s", skew, wait)
				}
				break
			}
			got++
		}
		// A bucket written 30 s ago has 30 tokens; one "of the future" has none.
		if want := int(max(-skew, 0) / 1e6); got < want || got > want+3 {
			t.Errorf("skew %d: %d tokens, want %d", skew, got, want)
		}
	}
}

// TestR06PrefixesDoNotClash: stores with different prefixes share nothing.
func TestR06PrefixesDoNotClash(t *testing.T) {
	r := kvtest.Redis(t)
	prefixes := []string{"", "a", "a:", "weir:", "aweir:", ":", "*", "a\nb"}
	for i, p := range prefixes {
		o := patient(r.Addr)
		o.KeyPrefix = p
		if err := open(t, o).Put(t.Context(), "session:k", []byte(strconv.Itoa(i)), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range prefixes {
		o := patient(r.Addr)
		o.KeyPrefix = p
		if v, err := open(t, o).Get(t.Context(), "session:k"); string(v) != strconv.Itoa(i) || err != nil {
			t.Errorf("prefix %q: %q, %v", p, v, err)
		}
	}
}

// TestR07BucketsExpire: a bucket lives twice as long as it takes to fill.
func TestR07BucketsExpire(t *testing.T) {
	r := kvtest.Redis(t)
	s := open(t, patient(r.Addr))
	for _, refill := range []time.Duration{time.Minute, 1500 * time.Millisecond, 24 * 365 * time.Hour} {
		if _, _, err := s.Take(t.Context(), edge.Bucket{Key: "b" + refill.String(), Capacity: 3, Refill: refill}); err != nil {
			t.Fatal(err)
		}
		ttl, err := strconv.ParseInt(r.Do("pttl", "weir:b"+refill.String()), 10, 64)
		if left := time.Duration(ttl) * time.Millisecond; err != nil || left > 2*refill || left < 2*refill-time.Second {
			t.Errorf("a bucket that fills in %s lives for %s", refill, left)
		}
	}
	if _, _, err := s.Take(t.Context(), edge.Bucket{Key: "soon", Capacity: 3, Refill: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "a bucket that is gone", func() bool { return r.Do("exists", "weir:soon") == "0" })
}

// TestR12Corrupt: what nobody of ours wrote counts as absent and is counted.
func TestR12Corrupt(t *testing.T) {
	r := kvtest.Redis(t)
	o := patient(r.Addr)
	o.Value = 1 << 10
	s := open(t, o)
	ctx := t.Context()
	huge := strings.Repeat("x", 64<<10)
	writes := [][]string{
		{"set", "%", "of another"}, {"set", "%", huge}, {"set", "%", "\x01short"}, {"set", "%", "\x01" + huge}, {"rpush", "%", "a"}, {"hset", "%", "tokens", "b"},
		{"hset", "%", "tokens", "nan", "last_refill", "1"}, {"hset", "%", "tokens", "many", "last_refill", "never"}, {"hset", "%", "tokens", "1"},
		{"hset", "%", "tokens", huge, "last_refill", huge}, {"xadd", "%", "*", "a", "b"}, {"sadd", "%", "a"},
	}
	write := func(i int, key string) {
		args := slices.Clone(writes[i])
		args[1] = key
		r.Do("del", key)
		r.Do(args...)
	}
	for i := range writes {
		before := s.Counters().Corrupt
		write(i, "weir:v")
		if v, err := s.Get(ctx, "v"); v != nil || err != nil {
			t.Errorf("get of %.40q: %.20q, %v", writes[i], v, err)
		}
		err := s.Update(ctx, "v", time.Hour, func(old []byte) ([]byte, error) {
			if old != nil {
				t.Errorf("update of %.40q sees %.20q", writes[i], old)
			}
			return []byte("mine"), nil
		})
		if v, getErr := s.Get(ctx, "v"); string(v) != "mine" || err != nil || getErr != nil {
			t.Errorf("update of %.40q: %q, %v, %v", writes[i], v, err, getErr)
		}
		if s.Counters().Corrupt == before {
			t.Errorf("a value that is %.40q is not counted", writes[i])
		}

		before = s.Counters().Corrupt
		write(i, "weir:b")
		for try, want := range []bool{true, true, false} {
			wait, _, err := s.Take(ctx, edge.Bucket{Key: "b", Capacity: 2, Refill: time.Hour})
			if err != nil || (wait == 0) != want {
				t.Errorf("take %d of %.40q: %s, %v", try, writes[i], wait, err)
			}
		}
		if s.Counters().Corrupt == before {
			t.Errorf("a bucket that is %.40q is not counted", writes[i])
		}

		box := "weir:box:{corrupt" + strconv.Itoa(i) + "}"
		write(i, box)
		write((i+1)%len(writes), box+":bytes")
		if err := s.Post(ctx, "corrupt"+strconv.Itoa(i), []byte("mine"), time.Hour); err != nil {
			t.Errorf("post to %.40q: %v", writes[i], err)
		}
		got := make(chan string, 10)
		listening, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- s.Listen(listening, "corrupt"+strconv.Itoa(i), func(m []byte) { got <- string(m) })
		}()
		if m := edgetest.Receive(t, got, "a message"); m != "mine" {
			t.Errorf("a box that was %.40q gives %q", writes[i], m)
		}
		stop()
		if err := edgetest.Receive(t, ended, "the end of listening"); err != nil {
			t.Error(err)
		}
	}
	if st := s.State(); st.Open || !st.Ready {
		t.Errorf("corrupt values make a store unready: %+v", st)
	}
}

// TestR13WhoIsAsked (also K10): a wrong password and a wrong authority make a
// store that is not ready, say what is wrong, and never say the password.
func TestR13WhoIsAsked(t *testing.T) {
	const secret = "hunter2-never-seen"
	ca := kvtest.NewAuthority(t)
	r := kvtest.Redis(t, append(ca.TLS(), "--requirepass", "right-"+secret)...)
	good := kv.Options{Addresses: []string{r.Addr}, CA: ca.PEM, Password: "right-" + secret, Timeout: 5 * time.Second}
	for _, c := range []struct {
		name   string
		change func(*kv.Options)
		want   string
	}{
		{"wrong password", func(o *kv.Options) { o.Password = "wrong-" + secret }, "WRONGPASS"},
		{"no password", func(o *kv.Options) { o.Password = "" }, "NOAUTH"},
		{"wrong user", func(o *kv.Options) { o.User = "nobody" }, "WRONGPASS"},
		{"another authority", func(o *kv.Options) { o.CA = kvtest.NewAuthority(t).PEM }, "certificate"},
		{"another name", func(o *kv.Options) { o.ServerName = "other.example" }, "other.example"},
		{"no TLS", func(o *kv.Options) { o.CA = nil }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var text lockedBuffer
			o := good
			o.Log = slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
			c.change(&o)
			s := open(t, o)
			edgetest.Until(t, "the log of a store that is away", func() bool { return strings.Contains(text.String(), "the store is away") })
			_, err := s.Get(t.Context(), "k")
			all := fmt.Sprintf("%v %+v %#v %v %s", err, err, errors.Unwrap(err), s.Ready(), text.String())
			if !strings.Contains(fmt.Sprint(s.Ready()), c.want) || s.Ready() == nil {
				t.Errorf("ready says %v, which lacks %q", s.Ready(), c.want)
			}
			if strings.Contains(all, secret) {
				t.Errorf("log and errors: %s", all)
			}
		})
	}
	s := open(t, good)
	ready(t, s)
	if err := s.Put(t.Context(), "k", []byte("v"), time.Hour); err != nil {
		t.Error(err)
	}
	if all := fmt.Sprintf("%v %+v %#v", good, good, good); strings.Contains(all, secret) {
		t.Errorf("options say %s", all)
	}
}

// A store that was closed fails at once, and so does who listens.
func TestClosed(t *testing.T) {
	r := kvtest.Redis(t)
	s := open(t, kv.Options{Addresses: []string{r.Addr}})
	ready(t, s)
	ended := make(chan error, 1)
	go func() { ended <- s.Listen(t.Context(), "box", func([]byte) {}) }()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := edgetest.Receive(t, ended, "the end of listening"); err == nil {
		t.Error("who listens at a closed store hears nothing of it")
	}
	if _, err := s.Get(t.Context(), "k"); err == nil {
		t.Error("a closed store answers")
	}
}

// A caller that leaves is no fault of the store.
func TestCallerLeaves(t *testing.T) {
	r := kvtest.Redis(t)
	s := open(t, kv.Options{Addresses: []string{r.Addr}, Timeout: 10 * time.Second})
	ready(t, s)
	r.Freeze()
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if _, err := s.Get(ctx, "k"); err == nil {
			t.Error("a frozen store answers")
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ctx, "k"); edge.KindOf(err) != edge.Gone {
		t.Errorf("a caller that had left: %v", err)
	}
	if s.State().Open || s.Counters().Failures != 0 {
		t.Errorf("the store is blamed: %+v %+v", s.State(), s.Counters())
	}
	r.Thaw()
}

// Options that no Redis could make right are refused, and a Redis that is away
// is not.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name string
		o    kv.Options
		want string
	}{
		{"no address", kv.Options{}, "an address"},
		{"no port", kv.Options{Addresses: []string{"redis"}}, "host:port"},
		{"no host", kv.Options{Addresses: []string{":6379"}}, "host:port"},
		{"a URL", kv.Options{Addresses: []string{"redis://a:6379"}}, "host:port"},
		{"a port of letters", kv.Options{Addresses: []string{"a:redis"}}, "port"},
		{"a port too high", kv.Options{Addresses: []string{"a:65536"}}, "port"},
		{"two servers", kv.Options{Addresses: []string{"a:1", "b:1"}}, "one address"},
		{"no master", kv.Options{Mode: kv.Sentinel, Addresses: []string{"a:1"}}, "master"},
		{"a database of a cluster", kv.Options{Mode: kv.Cluster, Addresses: []string{"a:1"}, DB: 1}, "database"},
		{"a database below 0", kv.Options{Addresses: []string{"a:1"}, DB: -1}, "database"},
		{"braces", kv.Options{Addresses: []string{"a:1"}, KeyPrefix: "{}"}, "braces"},
		{"a long prefix", kv.Options{Addresses: []string{"a:1"}, KeyPrefix: strings.Repeat("a", 300)}, "256"},
		{"no certificate", kv.Options{Addresses: []string{"a:1"}, CA: []byte("none")}, "PEM"},
	} {
		s, err := kv.Redis(c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if s != nil {
			s.Close()
		}
	}
	for _, o := range []kv.Options{
		{Addresses: []string{edgetest.FreeAddress(t)}},
		{Mode: kv.Cluster, Addresses: []string{edgetest.FreeAddress(t), edgetest.FreeAddress(t)}},
		{Mode: kv.Sentinel, Master: "main", Addresses: []string{edgetest.FreeAddress(t)}},
	} {
		s := open(t, o)
		edgetest.Until(t, "an open breaker", func() bool { return s.State().Open })
		if err := s.Ready(); err == nil {
			t.Error("a store that is not there is ready")
		}
	}
}

// A user who may do no more than the README says is enough.
func TestAccessControlList(t *testing.T) {
	r := kvtest.Redis(t)
	r.Do(append([]string{"acl", "setuser", "weir", "on", ">secret", "resetchannels", "&weir:*", "~weir:*"}, kvtest.Commands(t, "README.md")...)...)
	o := patient(r.Addr)
	o.User, o.Password = "weir", "secret"
	a, b := open(t, o), open(t, o)
	kvtest.Run(t, a, b)
}

// lockedBuffer is a buffer that a log may write to while a test reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
