package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// echoLines answers each line with itself.
func echoLines(t *testing.T) (addr string) {
	t.Helper()
	return fake.Listen(t, func(c net.Conn) { _, _ = io.Copy(c, c) }).Addr // until either end leaves
}

// TestRelay does every harm to each direction, and then none.
func TestRelay(t *testing.T) {
	const line = "a line that is longer than a slice\n"
	for _, c := range []struct {
		name    string
		toxin   toxin
		least   time.Duration // that the answer takes
		broken  bool          // there is no answer
		silence bool          // nor an end
	}{
		{name: "none"},
		{name: "delay", toxin: toxin{delay: 60 * time.Millisecond, jitter: 10 * time.Millisecond}, least: 50 * time.Millisecond},
		{name: "rate", toxin: toxin{rate: 500}, least: 40 * time.Millisecond},
		{name: "slice", toxin: toxin{slice: 5}, least: 5 * time.Millisecond},
		{name: "linger", toxin: toxin{linger: time.Millisecond}},
		{name: "swallow", toxin: toxin{swallow: true}, broken: true, silence: true},
		{name: "reset", toxin: toxin{reset: true}, broken: true},
		{name: "limit", toxin: toxin{limit: 10}, broken: true},
	} {
		for _, way := range []direction{upstream, downstream} {
			t.Run(c.name+" "+way.String(), func(t *testing.T) {
				t.Parallel()
				s := &storm{}
				t.Cleanup(s.end)
				r := s.newRelay(echoLines(t))
				r.poison(way, c.toxin)
				conn, err := net.Dial("tcp", r.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				in := bufio.NewReader(conn)
				ask := func(within time.Duration) (string, error) {
					_ = conn.SetDeadline(time.Now().Add(within))
					if _, err := io.WriteString(conn, line); err != nil {
						return "", err
					}
					return in.ReadString('\n')
				}
				began := time.Now()
				within := 10 * time.Second
				if c.silence {
					within = 50 * time.Millisecond
				}
				got, err := ask(within)
				var timeout net.Error
				switch {
				case c.silence:
					if !errors.As(err, &timeout) || !timeout.Timeout() {
						t.Errorf("%q, %v, and not silence", got, err)
					}
				case c.broken:
					if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
						t.Errorf("%q, %v, and not the end of the connection", got, err)
					}
					if c.toxin.reset && !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("%v, and not a reset", err)
					}
				case err != nil || got != line || time.Since(began) < c.least:
					t.Errorf("%q, %v, after %s", got, err, time.Since(began))
				}

				// A connection that is whole is well again; one of which something
				// was lost ends.
				r.cure()
				got, err = ask(10 * time.Second)
				if c.broken && err == nil || !c.broken && (err != nil || got != line) {
					t.Errorf("after the cure: %q, %v", got, err)
				}
				conn.Close()
				edgetest.Until(t, "the end of the connection", func() bool { return r.open() == 0 })
			})
		}
	}
}

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   int
	}{
		{200, `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"seven"}]}}`, 200},
		{200, `{"jsonrpc":"2.0","id":7,"error":{"code":502,"message":"m"}}`, 502},
		{200, `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"m"}}`, -32603},
		{504, `{"jsonrpc":"2.0","id":7,"error":{"code":504,"message":"m"}}`, 504},
		{200, `{"jsonrpc":"2.0","id":8,"result":{"content":[{"type":"text","text":"seven"}]}}`, 200},
	} {
		a := kit.Answer{Status: c.status}
		a.Body = []byte(c.body)
		code, err := codeOf(&a, "7", "seven")
		if code != c.want || (err == nil) != strings.Contains(c.body, `"id":7,"result"`) {
			t.Errorf("%s: %d, %v", c.body, code, err)
		}
	}
}

// TestStoreToxics: seven harms in two directions, each with answers that it may
// have, and 200 where data gets through.
func TestStoreToxics(t *testing.T) {
	names := map[string]int{}
	for _, one := range storeToxics() {
		names[one.name]++
		through := one.delay == 0 && !one.swallow && !one.reset && one.limit == 0
		if through != (one.want[0] == 200) || !through && len(one.want) != 1 {
			t.Errorf("%s %s: %v", one.name, one.way, one.want)
		}
	}
	if len(names) != 7 || len(storeToxics()) != 14 {
		t.Errorf("%v", names)
	}
}

// TestMoods has a backend be down, slow and resetting, and well again.
func TestMoods(t *testing.T) {
	s := &storm{}
	t.Cleanup(s.end)
	b := s.newBackend(kit.Modern, nil)
	var n kit.Numbers
	call := func(within time.Duration) error {
		c, err := kit.Dial(t.Context(), b.Addr, kit.Modern, kit.DialOptions{})
		if err != nil {
			return err
		}
		defer c.Close()
		text := "1"
		c.Wait(within)
		_, err = c.Call(text, kit.Work{Text: text})
		return err
	}
	well := func() {
		t.Helper()
		if err := call(kit.Patience); err != nil {
			t.Fatal(err)
		}
	}
	well()
	for _, a := range ailments() {
		a.ill(b)
		if err := call(100 * time.Millisecond); err == nil {
			t.Errorf("%s: it answers", a.name)
		}
		if err := a.heal(b); err != nil {
			t.Fatal(err)
		}
		well()
	}
	c, err := kit.Dial(t.Context(), b.Addr, kit.Modern, kit.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.Down()
	edgetest.Until(t, "the end of the connection", c.Closed)
	if err := b.Up(); err != nil {
		t.Fatal(err)
	}
	if c, err = again(t.Context(), c, &n); err != nil {
		t.Error(err)
	}
	c.Close()
}

func TestPlans(t *testing.T) {
	sets := reloadSets([]string{"a:1", "b:2", "c:3"})
	for i, p := range sets {
		next := sets[(i+1)%len(sets)]
		if p.Text() == next.Text() {
			t.Errorf("set %d is the same as the one after it", i)
		}
		for _, want := range []string{"url: http://a:1/mcp", "url: http://b:2/mcp", "conflictResolution: prefix"} {
			if !strings.Contains(p.Text(), want) {
				t.Errorf("set %d has no %s:\n%s", i, want, p.Text())
			}
		}
	}
	if toolOf(1) != "backend-2_work" || !strings.Contains(kit.PlanOf("a:1", "b:2").Text(), "{name: backend-2, url: http://b:2/") {
		t.Error("names and backends do not go together")
	}
	tool := among(0, 2)
	if tool(0) != tool(1) || tool(1) == tool(2) || tool(2) != tool(3) || tool(4) != tool(0) {
		t.Error("connections are not spread in pairs")
	}
}

func TestSlope(t *testing.T) {
	var rising, flat []sample
	for i := range 40 {
		at := time.Duration(i) * time.Minute
		rising = append(rising, sample{at, int64(i) << 20})
		flat = append(flat, sample{at, 5<<20 + int64(i%2)})
	}
	if got := slopeOf(rising); got < 59.9 || got > 60.1 {
		t.Errorf("1 MiB a minute is %g MiB an hour", got)
	}
	if got := slopeOf(flat); got > 0.01 || got < -0.01 {
		t.Errorf("nothing is %g MiB an hour", got)
	}
	if slopeOf(nil) != 0 || slopeOf(rising[:1]) != 0 {
		t.Error("one sample has a slope")
	}
	if n, ok := heapAlloc([]byte("heap profile: 1\n# Alloc = 1\n# HeapAlloc = 1234\n# HeapSys = 5\n")); !ok || n != 1234 {
		t.Errorf("%d, %t", n, ok)
	}
	if _, ok := heapAlloc([]byte("nothing")); ok {
		t.Error("a line that is not there was found")
	}
}

func TestNear(t *testing.T) {
	at := time.Now()
	c := tally{keep: true, stamps: []stamp{{at, 1}, {at.Add(200), 2}, {at.Add(250), 3}, {at.Add(-1), 4}, {at.Add(99), 5}}}
	got := c.near([]time.Time{at, at.Add(240)}, 99)
	if len(got) != 3 || got[0] != 1 || got[1] != 3 || got[2] != 5 {
		t.Errorf("%v", got)
	}
}
