package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/mcp"
)

// runLargeSessions is Z40: two edges share a Redis that is small, and a hundred
// clients say as much of themselves, and subscribe to as much, as they may, and
// more. Nobody else notices, and the Redis stays small.
func runLargeSessions(ctx context.Context, s *storm) {
	const most = 2 << 20
	count := s.size(s.count, 100, 20, "clients")
	calls := s.size(0, 10_000, 1_000, "calls of others")
	rate := s.rate
	if rate == 0 {
		rate = 400
	}

	// 1. A Redis of 32 MiB, two edges that share it, and others, who call.
	store := s.newRedis(ctx)
	kit.Must(store.command(ctx, "config", "set", "maxmemory", "32mb"))
	b := s.newBackend(kit.Legacy, nil)
	p := sharing(b.Addr, store.addr)
	var edges []*kit.Edge
	for range 2 {
		e := s.startPlan(ctx, p)
		defer e.Stop()
		edges = append(edges, e)
	}
	var n kit.Numbers
	diaries := make([]diary, len(edges))
	load := func(length time.Duration) {
		loading, unload := context.WithTimeout(ctx, length)
		defer unload()
		var work sync.WaitGroup
		for i, e := range edges {
			work.Go(func() { diaries[i].run(loading, e.Addr, rate/len(edges), 8, &n) })
		}
		work.Wait()
	}
	load(time.Second) // what their sessions take is not what is measured
	before := kit.Must(store.memory(ctx))
	began := time.Now()

	// 2. The large ones beside them.
	s.say("%d clients", count)
	hostile, call := context.WithCancel(ctx)
	defer call()
	var large sync.WaitGroup
	var peak atomic.Int64
	guests := make([]largeGuest, count)
	for i := range guests {
		large.Go(func() { guests[i].run(hostile, i, edges) })
	}
	large.Go(func() {
		// The store counts what connections have only now and then: the least of a
		// second is what its data take.
		for hostile.Err() == nil {
			least := int64(math.MaxInt64)
			for range 5 {
				now, err := store.memory(ctx)
				if err != nil || !kit.Sleep(hostile, 200*time.Millisecond) {
					return
				}
				least = min(least, now)
			}
			peak.Store(max(peak.Load(), least))
		}
	})
	load(time.Duration(calls) * time.Second / time.Duration(rate))
	call()
	large.Wait()

	// 3. What became of all of them.
	all, failed := 0, 0
	var took []time.Duration
	for i := range diaries {
		of := diaries[i].between(began, time.Now())
		right, times := count200(of)
		all, failed, took = all+len(of), failed+len(of)-right, append(took, times...)
	}
	var wrong largeGuest
	for i := range guests {
		wrong.add(&guests[i])
	}
	s.bar(failed == 0 && all >= calls*9/10, "0 failed", "others: %d of %d calls failed, p99 %.1f ms", failed, all, kit.Millis(kit.Percentile(took, 990)))
	s.bar(wrong.refused > 0 && wrong.taken == 0, "all refused", "too large: %d refused with %d, %d taken", wrong.refused, mcp.CodeInvalidParams, wrong.taken)
	s.bar(wrong.largest > 0 && wrong.failed == 0, "0 failed", "as large as may be: %d requests served, %d failed", wrong.largest, wrong.failed)
	grown := peak.Load() - before
	s.bar(grown <= most, "2 MiB", "the store: %.2f MiB more at most, for %d clients", float64(grown)/(1<<20), count)
	for _, text := range wrong.notes {
		s.note("%s", text)
	}
	for _, e := range edges {
		kit.Check(e.Fault(nil))
	}
}

func count200(calls []told) (int, []time.Duration) { return count(calls, 200) }

// largeGuest is a client that is as large as it may be, and larger.
type largeGuest struct {
	refused, taken  int // of what is too large
	largest, failed int // of what is not
	notes           []string
}

func (g *largeGuest) add(o *largeGuest) {
	g.refused, g.taken, g.largest, g.failed = g.refused+o.refused, g.taken+o.taken, g.largest+o.largest, g.failed+o.failed
	if len(g.notes) < 3 {
		g.notes = append(g.notes, o.notes...)
	}
}

// run says too much of itself, then as much as it may, subscribes to as much as it
// may and to more, and calls, at one edge and the other, until ctx ends. One in
// ten sends what is as large as a body may be, again and again.
func (g *largeGuest) run(ctx context.Context, i int, edges []*kit.Edge) {
	if !kit.Sleep(ctx, time.Duration(rand.IntN(2000))*time.Millisecond) {
		return
	}
	var conns []*kit.Client
	for _, e := range edges {
		c, err := kit.Dial(ctx, e.Addr, kit.Legacy, kit.DialOptions{From: 1000 + i, Buffer: 32 << 10})
		if err != nil {
			g.wrong("%v", err)
			return
		}
		defer c.Close()
		conns = append(conns, c)
	}
	const most = 16 << 10
	huge := 64 << 10
	if i%10 == 0 {
		huge = 4<<20 - 1000
	}
	g.tooLarge(conns[0], hello(most+1))
	a, err := conns[0].Try("POST", hello(most))
	if err != nil || a.Status != 200 || len(a.Session) == 0 {
		g.wrong("initialize: %d %.200s %v", a.Status, a.Body, err)
		return
	}
	for _, c := range conns {
		c.Session = string(a.Session)
	}
	for turn := 0; ctx.Err() == nil; turn++ {
		c := conns[turn%len(conns)]
		switch turn % 4 {
		case 0:
			session := c.Session
			c.Session = ""
			g.tooLarge(c, hello(huge))
			c.Session = session
		case 1:
			g.tooLarge(c, subscribe("test://"+strings.Repeat("x", most)))
		case 2: // which needs no room of the store: what its client is holds for every session
			g.right(c, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"work","arguments":{"text":"x"}}}`, turn))
		case 3:
			g.right(c, subscribe(fmt.Sprintf("test://%d", turn%3)))
		}
		if !kit.Sleep(ctx, 500*time.Millisecond) {
			return
		}
	}
}

func (g *largeGuest) tooLarge(c *kit.Client, body string) {
	a, err := c.Try("POST", body)
	if err == nil && bytes.Contains(a.Text(), []byte(strconv.Itoa(mcp.CodeInvalidParams))) {
		g.refused++
		return
	}
	g.taken++
	g.note("too large: %d %.200s %v", a.Status, a.Text(), err)
}

func (g *largeGuest) right(c *kit.Client, body string) {
	a, err := c.Try("POST", body)
	if err == nil && a.Status == 200 && bytes.Contains(a.Text(), []byte(`"result"`)) {
		g.largest++
		return
	}
	g.wrong("%d %.200s %v", a.Status, a.Text(), err)
}

func (g *largeGuest) wrong(format string, args ...any) {
	g.failed++
	g.note(format, args...)
}

func (g *largeGuest) note(format string, args ...any) {
	if len(g.notes) == 0 {
		g.notes = append(g.notes, fmt.Sprintf(format, args...))
	}
}

// hello is an initialize of a client that says so many bytes of itself, of which a
// compressor makes little.
func hello(n int) string {
	const info, caps = `{"name":"storm","version":"1"}`, `{"experimental":{"x":""}}`
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
	filler := make([]byte, n-len(info)-len(caps))
	for i := range filler {
		filler[i] = letters[rand.IntN(len(letters))]
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"%s","capabilities":{"experimental":{"x":"%s"}},"clientInfo":%s}}`, mcp.V2511, filler, info)
}

func subscribe(uri string) string {
	return `{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"` + uri + `"}}`
}

// command sends the store a command, and returns what it says.
func (r *redis) command(ctx context.Context, args ...string) (string, error) {
	_, port, _ := strings.Cut(r.addr, ":")
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-p", port}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("redis-cli %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// memory is how many bytes its data take: all that it uses but what belongs to
// connections.
func (r *redis) memory(ctx context.Context) (int64, error) {
	out, err := r.command(ctx, "memory", "stats")
	if err != nil {
		return 0, err
	}
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		if strings.TrimSpace(line) == "dataset.bytes" && i+1 < len(lines) {
			return strconv.ParseInt(strings.TrimSpace(lines[i+1]), 10, 64)
		}
	}
	return 0, fmt.Errorf("redis-cli memory stats: no dataset.bytes")
}
