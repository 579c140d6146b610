package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runHandOver is Z12 and Z45: processes take over from each other while legacy
// clients have sessions that their backend keeps state in, streams that break and
// are resumed, subscriptions, and questions that wait for people, and while calls
// of modern clients are parked.
func runHandOver(ctx context.Context, s *storm) {
	const times = 5
	sessions := s.size(0, 100, 20, "sessions")
	parkedCalls := s.size(s.count, 1000, 100, "parked calls")
	hold := s.span(s.length, 4*time.Second, 2*time.Second, "between two hand-overs")
	b := s.newKeeper()
	manifest := s.write(kit.PlanOf(b.Addr))
	seat := kit.Must(kit.FreeSeat())
	flags := append(flagsOfHandOver(manifest), "--max-parked", "2000", "--max-streams", "20000", "--max-backend-connections", "4096")
	first := s.startAt(ctx, manifest, seat, flags...)
	all := []*kit.Edge{first}

	seen := &handOverSeen{}
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	for i := range sessions {
		v := &visitor{addr: seat.Addr, era: kit.Legacy, name: "visitor-" + strconv.Itoa(i)}
		kit.Check(v.begin(ctx))
		load.Go(func() { v.count(loading, b, seen) })
		other := v.another()
		switch i % 3 {
		case 1:
			kit.Check(other.subscribe(ctx))
			load.Go(func() { other.hear(loading, seen) })
		case 2:
			load.Go(func() { other.resume(loading, b, seen) })
		}
	}
	load.Go(func() {
		for kit.Sleep(loading, 50*time.Millisecond) {
			b.update()
		}
	})
	for i := range times {
		// 1. Calls are parked, and questions wait.
		var waits []func() error
		for n := range parkedCalls / times {
			v := &visitor{addr: seat.Addr, era: kit.Modern}
			waits = append(waits, kit.Must(v.park(ctx, fmt.Sprintf("parked-%d-%d", i, n))))
		}
		for n := range 10 {
			v := &visitor{addr: seat.Addr, era: kit.Legacy, name: "asked"}
			kit.Check(v.begin(ctx))
			waits = append(waits, kit.Must(v.ask(ctx, fmt.Sprintf("asked-%d-%d", i, n))))
		}
		// 2. The next process.
		young := s.launch(manifest, seat, flags...)
		all = append(all, young)
		kit.Pause(ctx, hold)
		kit.Check(young.AwaitReady(ctx, young.Admin))
		// 3. The people answer.
		for n, answer := range waits {
			if err := answer(); err != nil {
				seen.bad(&seen.unanswered, "an answer to %d: %v", n, err)
			}
		}
		s.say("hand-over %d: %d answers, %d lost so far", i+1, len(waits), seen.unanswered.Load())
	}
	kit.Sleep(ctx, time.Second)
	unload()
	load.Wait()
	left := 0
	for _, e := range all[:times] {
		if !e.AwaitEnd(drainTimeout + 5*time.Second) {
			left++
		}
	}
	b.mu.Lock()
	twice := 0
	for _, n := range b.ran {
		if n > 1 {
			twice++
		}
	}
	b.mu.Unlock()
	s.bar(seen.lost.Load() == 0, "0", "%d hand-overs, %d sessions, %d calls: %d sessions lost", times, sessions, seen.calls.Load(), seen.lost.Load())
	s.bar(seen.anew.Load() == 0, "0", "%d times a backend met a client anew, or a call went without an answer that it ran", seen.anew.Load())
	s.bar(seen.gaps.Load() == 0 && seen.events.Load() > 0 && seen.resumed.Load() > 0, "0", "%d events of subscriptions, %d streams resumed by the id of their last event: %d events lost", seen.events.Load(), seen.resumed.Load(), seen.gaps.Load())
	s.bar(seen.unanswered.Load() == 0, "0", "%d answers to parked calls and %d to questions of legacy clients: %d lost", parkedCalls, 10*times, seen.unanswered.Load())
	s.bar(twice == 0, "0", "%d calls ran twice", twice)
	s.bar(left == 0, "0", "%d of %d old processes did not leave", left, times)
	s.tell("%d calls met a connection that was closing and were sent again, %d events came twice", seen.again.Load(), seen.doubled.Load())
	for _, w := range seen.why {
		s.note("%s", w)
	}
	for i, e := range all {
		if text := e.Said.String(); strings.Contains(text, "not everything") || strings.Contains(text, "anew") || strings.Contains(text, "was not") {
			s.note("process %d says: %.500s", i+1, text)
		}
	}
}

// handOverSeen is what clients saw.
type handOverSeen struct {
	calls, lost, anew, gaps, events, doubled, resumed, again, unanswered atomic.Int64

	mu  sync.Mutex
	why []string // the first few
}

func (h *handOverSeen) bad(n *atomic.Int64, format string, args ...any) {
	n.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.why) < 10 {
		h.why = append(h.why, fmt.Sprintf(format, args...))
	}
}
