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

	"github.com/weir-edge/weir/edge/edgetest/kit"
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
func runSlowloris(ctx context.Context, s *storm) {
	count := s.size(s.count, 4000, 300, "slow connections")
	hold := s.span(s.length, 60*time.Second, 40*time.Second, "attack")
	b := s.newBackend(kit.Modern, nil)
	e := s.start(ctx, b.Addr)
	var n kit.Numbers
	var t tally
	const rate = 200
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	load.Go(func() {
		pace{addr: e.Addr, era: kit.Mixed, conns: 32, rate: rate, from: 5000, numbers: &n}.run(loading, &t)
	})
	kit.Pause(ctx, 2*time.Second)
	base := kit.Must(kit.Resident(e.PID()))
	top := s.peak(e)
	began := time.Now()
	opened := make([]time.Time, count)
	slow, err := kit.OpenAll(ctx, e.Addr, count, func(i int) (*kit.Client, error) {
		c, err := kit.Dial(ctx, e.Addr, kit.Modern, kit.DialOptions{From: i, Receive: ownReceive, Buffer: 512})
		if err == nil {
			opened[i] = time.Now()
			err = beginSlowly(c, kindOf(i))
		}
		return c, err
	})
	defer func() { kit.CloseAll(slow) }()
	kit.Check(err)
	s.say("%d slow connections after %s", count, time.Since(began))

	// Every connection gets another byte each trickle, and a look each second
	// at whether the edge still has it.
	at := map[netip.AddrPort]int{}
	for i, c := range slow {
		at[c.Local()] = i
	}
	cut := make([]time.Duration, count)
	left := count
	var most int
	for step := 0; time.Since(began) < hold && left > 0; step++ {
		kit.Pause(ctx, time.Second)
		for i := step % int(trickle/time.Second); i < count; i += int(trickle / time.Second) {
			if cut[i] == 0 {
				goOnSlowly(slow[i], kindOf(i))
			}
		}
		now := kit.Must(shares(e, b))
		open := 0
		for from, i := range at {
			if cut[i] != 0 {
				continue
			}
			if k, ok := now.clients[from]; ok && k.State == kit.Established {
				open++
			} else {
				cut[i] = time.Since(opened[i])
			}
		}
		left, most = open, max(most, open)
		s.say("%3.0f s: %d open, %d calls answered, kernel of the edge %.0f MiB", time.Since(began).Seconds(), open, t.right.Load(), kit.MiB(now.edge()))
	}
	if more := hold - time.Since(began); more > 0 && !s.quick {
		kit.Sleep(ctx, more)
	}
	unload()
	load.Wait()
	highest := top()

	served, failed := t.right.Load(), t.failed()+int(t.refused.Load())
	share := 100 * float64(served) / float64(max(served+int64(failed), 1))
	s.bar(share >= 99.9 && t.right.Load() > 0, "99.9 %", "%d slow connections, %d open at a time: %.3f %% of %d calls at %d a second served, p50 %.1f ms, p99 %.1f ms", count, most, share, served+int64(failed), rate, kit.Millis(t.percentile(500)), kit.Millis(t.percentile(990)))
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
		latest := kit.Percentile(took, 1000)
		s.bar(len(took) == all && latest <= arriveWithin+4*time.Second, "30 s, + 4 s of the sampling", "%d of %d %s cut, the first after %.0f s, the last after %.0f s", len(took), all, what, kit.Percentile(took, 0).Seconds(), latest.Seconds())
	}
	s.tell("resident %.0f MiB at the most, %.0f before; a slow reader holds an answer of %d KiB", kit.MiB(highest), kit.MiB(base), bigAnswer>>10)
	if failed > 0 {
		s.note("%s", t.reasons())
	}
}

// kindOf spreads the slow connections over three kinds.
func kindOf(i int) int { return i % 3 }

// beginSlowly sends the beginning of a request: of a header, of a body, or all
// of a request whose answer is long.
func beginSlowly(c *kit.Client, kind int) error {
	var text string
	switch kind {
	case 0:
		text = "POST /mcp HTTP/1.1\r\nHost: " + c.Addr + "\r\nX-Slow: "
	case 1:
		text = "POST /mcp HTTP/1.1\r\nHost: " + c.Addr + "\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n{"
	default:
		text = string(c.CallText("1", kit.Work{Text: "slow", Size: bigAnswer}, ""))
	}
	_, err := c.Conn.Write([]byte(text))
	if err != nil {
		return fmt.Errorf("slow: %w", err)
	}
	return nil
}

// goOnSlowly sends or reads one byte more. The edge may have cut the
// connection, which is looked for elsewhere.
func goOnSlowly(c *kit.Client, kind int) {
	_ = c.Conn.SetDeadline(time.Now().Add(time.Millisecond))
	var b [1]byte
	var err error
	if kind == 2 {
		_, err = c.In.Read(b[:])
	} else {
		_, err = c.Conn.Write([]byte(strings.Repeat("a", 1)))
	}
	var timeout interface{ Timeout() bool }
	if err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
		c.Close()
	}
}
