package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// trickle is how often a slow client sends or reads another byte.
	trickle = 5 * time.Second

	// arriveWithin is how long a request may take to arrive, and an answer to
	// be taken.
	arriveWithin = 30 * time.Second

	// bigAnswer is what a slow reader asks for: more than the kernel's buffers
	// hold between it and the edge.
	bigAnswer = 256 << 10
)

// runSlowloris is G25: thousands of connections that send their header byte by
// byte, or their body, or read their answer so, beside ordinary clients.
func runSlowloris(ctx context.Context, s *storm) error {
	count := s.size(s.count, 4000, 300, "slow connections")
	hold := s.span(s.length, 60*time.Second, 40*time.Second, "attack")
	b, err := s.newBackend(modern, nil)
	if err != nil {
		return err
	}
	e, err := s.start(ctx, []string{b.addr})
	if err != nil {
		return err
	}
	var n numbers
	var t tally
	const rate = 200
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	load.Go(func() { pace{addr: e.addr, era: both, conns: 32, rate: rate, from: 5000, numbers: &n}.run(loading, &t) })
	if !sleep(ctx, 2*time.Second) {
		return ctx.Err()
	}
	base, err := resident(e.pid())
	if err != nil {
		return e.fault(err)
	}
	top := peak(e.pid())
	began := time.Now()
	opened := make([]time.Time, count)
	slow, err := openFleet(ctx, e.addr, count, func(i int) (*client, error) {
		c, err := dial(ctx, e.addr, modern, dialOptions{from: i, receive: ownReceive, buffer: 512})
		if err == nil {
			opened[i] = time.Now()
			err = c.beginSlowly(kindOf(i))
		}
		return c, err
	})
	defer func() { closeAll(slow) }()
	if err != nil {
		top()
		return e.fault(err)
	}
	s.say("%d slow connections after %s", count, time.Since(began))

	// Every connection gets another byte each trickle, and a look each second
	// at whether the edge still has it.
	at := map[netip.AddrPort]int{}
	for i, c := range slow {
		at[c.local()] = i
	}
	cut := make([]time.Duration, count)
	left := count
	var most int
	for step := 0; time.Since(began) < hold && left > 0; step++ {
		if !sleep(ctx, time.Second) {
			top()
			return ctx.Err()
		}
		for i := step % int(trickle/time.Second); i < count; i += int(trickle / time.Second) {
			if cut[i] == 0 {
				slow[i].goOnSlowly(kindOf(i))
			}
		}
		now, err := shares(e, b)
		if err != nil {
			top()
			return err
		}
		open := 0
		for from, i := range at {
			if cut[i] != 0 {
				continue
			}
			if k, ok := now.clients[from]; ok && k.state == established {
				open++
			} else {
				cut[i] = time.Since(opened[i])
			}
		}
		left, most = open, max(most, open)
		s.say("%3.0f s: %d open, %d calls answered, kernel of the edge %.0f MiB", time.Since(began).Seconds(), open, t.right.Load(), mib(now.edge()))
	}
	if more := hold - time.Since(began); more > 0 && !s.quick {
		sleep(ctx, more)
	}
	unload()
	load.Wait()
	highest := top()

	served, failed := t.right.Load(), t.failed()+int(t.refused.Load())
	share := 100 * float64(served) / float64(max(served+int64(failed), 1))
	s.bar(share >= 99.9 && t.right.Load() > 0, "99.9 %", "%d slow connections, %d open at a time: %.3f %% of %d calls at %d a second served, p50 %.1f ms, p99 %.1f ms", count, most, share, served+int64(failed), rate, millis(t.percentile(0.5)), millis(t.percentile(0.99)))
	for kind, what := range []string{"slow headers", "slow bodies", "slow readers"} {
		var took []time.Duration
		all := 0
		for i := range count {
			if kindOf(i) != kind {
				continue
			}
			all++
			if cut[i] > 0 {
				took = append(took, cut[i])
			}
		}
		slices.Sort(took)
		latest := percentile(took, 1)
		s.bar(len(took) == all && latest <= arriveWithin+4*time.Second, "30 s, + 4 s of the sampling", "%d of %d %s cut, the first after %.0f s, the last after %.0f s", len(took), all, what, percentile(took, 0).Seconds(), latest.Seconds())
	}
	s.tell("resident %.0f MiB at the most, %.0f before; a slow reader holds an answer of %d KiB", mib(highest), mib(base), bigAnswer>>10)
	if failed > 0 {
		s.note("%s", t.reasons())
	}
	return nil
}

// kindOf spreads the slow connections over three kinds.
func kindOf(i int) int { return i % 3 }

// beginSlowly sends the beginning of a request: of a header, of a body, or all
// of a request whose answer is long.
func (c *client) beginSlowly(kind int) error {
	var text string
	switch kind {
	case 0:
		text = "POST /mcp HTTP/1.1\r\nHost: " + c.addr + "\r\nX-Slow: "
	case 1:
		text = "POST /mcp HTTP/1.1\r\nHost: " + c.addr + "\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n{"
	default:
		text = string(c.callText("1", work{Text: "slow", Size: bigAnswer}, ""))
	}
	_, err := c.conn.Write([]byte(text))
	if err != nil {
		return fmt.Errorf("slow: %w", err)
	}
	return nil
}

// goOnSlowly sends or reads one byte more. The edge may have cut the
// connection, which is looked for elsewhere.
func (c *client) goOnSlowly(kind int) {
	_ = c.conn.SetDeadline(time.Now().Add(time.Millisecond))
	var b [1]byte
	var err error
	if kind == 2 {
		_, err = c.br.Read(b[:])
	} else {
		_, err = c.conn.Write([]byte(strings.Repeat("a", 1)))
	}
	var timeout interface{ Timeout() bool }
	if err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
		c.close()
	}
}
