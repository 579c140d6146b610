package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/port"
)

// drainTimeout is the edge's own default, and the bar for its end.
const drainTimeout = 10 * time.Second

// runDrain is G02 and L02: what is under way when the edge is told to end is
// answered, and what would last for ever ends in order.
func runDrain(ctx context.Context, s *storm) {
	for _, e := range []kit.Era{kit.Modern, kit.Legacy} {
		if s.quick && e == kit.Legacy {
			s.scale("with a modern backend alone")
			break
		}
		s.drainOnce(ctx, e)
	}
	s.stopTwice(ctx)
	s.stopEarly(ctx)
}

// ledger is the numbers of the calls that a backend has seen.
type ledger struct {
	mu   sync.Mutex
	seen map[int64]bool
}

func newLedger() *ledger { return &ledger{seen: map[int64]bool{}} }

func (l *ledger) arrived(t *kit.Task) {
	n, err := strconv.ParseInt(t.Text, 10, 64)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.seen[n] = true
	l.mu.Unlock()
}

// ran splits calls without an answer into those that the backend ran, which
// are lost, and those that it never saw, which a client may send again.
func (l *ledger) ran(numbers []int64) (ran, unseen int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range numbers {
		if l.seen[n] {
			ran++
		} else {
			unseen++
		}
	}
	return ran, unseen
}

// drainOnce stops an edge under load before a backend of one era.
func (s *storm) drainOnce(ctx context.Context, back kit.Era) {
	slow := s.size(s.count, 200, 40, "slow calls and as many streams")
	book := newLedger()
	slowSeen := make(chan struct{}, slow)
	b := s.newBackend(back, func(b *kit.Backend) {
		b.Arrived = func(t *kit.Task) {
			book.arrived(t)
			if t.Ms > 0 {
				slowSeen <- struct{}{}
			}
		}
		b.Feed = kit.Every(time.Second)
	})
	e := s.start(ctx, b.Addr, "--max-streams", "20000", "--drain-timeout", drainTimeout.String())
	var n kit.Numbers
	most := s.ceiling(ctx, e.Addr, &n)
	rate := s.steady(most, 2000)
	s.say("ceiling %d calls a second, load %d", most, rate)

	// 1. Streams.
	streams := kit.Must(openStreams(ctx, e.Addr, slow))
	defer streams.close()
	// 2. The steady load.
	var t tally
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	load.Go(func() {
		pace{addr: e.Addr, era: kit.Mixed, conns: 32, rate: rate, numbers: &n}.run(loading, &t)
	})
	kit.Pause(ctx, time.Second)
	// 3. Slow calls, until the backend has all of them.
	var late tally
	for w := range slow {
		load.Go(func() { slowCall(ctx, e.Addr, kit.Mixed(w), w, &n, &late) })
	}
	for range slow {
		select {
		case <-slowSeen:
		case <-time.After(kit.Patience):
			kit.Fail("the slow calls did not reach the backend")
		}
	}
	// 4. The end.
	look := s.watchReadiness(ctx, e)
	before := t.right.Load()
	told := time.Now()
	e.Signal(syscall.SIGTERM)
	ended := e.AwaitEnd(drainTimeout + 5*time.Second)
	took := time.Since(told)
	during := t.right.Load() - before
	first := look()
	unload()
	load.Wait()
	streams.wait()

	lost, unseen := book.ran(append(t.lost, late.lost...))
	who := fmt.Sprintf("%s backend: ", back)
	s.bar(lost == 0 && len(t.wrong)+len(late.wrong) == 0, "0 lost in flight", "%s%d rps + %d calls of 2 s in flight, %d lost in flight", who, rate, slow, lost)
	s.bar(late.right.Load() == int64(slow), "all", "%d of %d slow calls answered", late.right.Load(), slow)
	s.bar(first.ok, "readiness false first", "%s", first.text)
	s.bar(streams.orderly() == slow, "all", "%d of %d streams ended in order", streams.orderly(), slow)
	s.bar(streams.final() == streams.modern(), "all", "%d of %d subscriptions got their final event", streams.final(), streams.modern())
	s.bar(ended && took <= drainTimeout, drainTimeout.String(), "exit after %.1f s", took.Seconds())
	s.tell("%d more calls answered and %d connections refused after the signal", during, t.refused.Load())
	if unseen > 0 {
		s.note("%s%d requests met a connection that the edge was closing and never reached the backend: a client may send them again, and one that must not would see an error (%s)", who, unseen, t.reasons())
	}
	if lost > 0 {
		s.note("%slost in flight: %s %s", who, t.reasons(), late.reasons())
	}
}

// slowCall makes one call of two seconds.
func slowCall(ctx context.Context, addr string, e kit.Era, from int, n *kit.Numbers, t *tally) {
	number := n.Next()
	c, err := kit.Dial(ctx, addr, e, kit.DialOptions{From: from})
	if err != nil {
		t.count(number, 0, err)
		return
	}
	defer c.Close()
	if err := c.Begin("slow"); err != nil {
		t.count(number, 0, err)
		return
	}
	c.Wait(kit.Patience)
	text := strconv.FormatInt(number, 10)
	t.sent.Add(1)
	sent := time.Now()
	_, err = c.Call(text, kit.Work{Text: text, Ms: 2000})
	t.count(number, time.Since(sent), err)
}

// readiness is what was seen of the order in which an edge tells that it ends.
type readiness struct {
	ok   bool
	text string
}

// watchReadiness asks the admin address for /readyz and knocks at the door, again
// and again, until the function that it returns is called. Whoever sends work
// to an edge must be able to hear that it ends before it refuses.
func (s *storm) watchReadiness(ctx context.Context, e *kit.Edge) (stop func() readiness) {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var notReady, refused, readyAsked time.Time // the first, the first, and when the last 200 was asked for
	wait.Go(func() {
		for ctx.Err() == nil {
			asked := time.Now()
			status, _ := e.Get(ctx, "/readyz", time.Second)
			mu.Lock()
			switch {
			case status == 200:
				readyAsked = asked
			case status == 503 && notReady.IsZero():
				notReady = time.Now()
			}
			mu.Unlock()
			kit.Sleep(ctx, 2*time.Millisecond)
		}
	})
	wait.Go(func() {
		d := net.Dialer{Timeout: time.Second}
		for ctx.Err() == nil {
			c, err := d.DialContext(ctx, "tcp", e.Addr)
			if err == nil {
				c.Close()
			} else if errors.Is(err, syscall.ECONNREFUSED) {
				mu.Lock()
				if refused.IsZero() {
					refused = time.Now()
				}
				mu.Unlock()
			}
			kit.Sleep(ctx, 2*time.Millisecond)
		}
	})
	return func() readiness {
		cancel()
		wait.Wait()
		return ordered(notReady, refused, readyAsked)
	}
}

// ordered judges: /readyz must have said no, and must not have said yes to
// anybody who asked after a connection had been refused.
func ordered(notReady, refused, readyAsked time.Time) readiness {
	switch {
	case notReady.IsZero():
		return readiness{false, "/readyz never said 503"}
	case !refused.IsZero() && readyAsked.After(refused):
		return readiness{false, fmt.Sprintf("/readyz still said 200 %s after the first refused connection", readyAsked.Sub(refused))}
	case refused.IsZero():
		return readiness{true, "/readyz said 503 and no connection was refused"}
	}
	return readiness{true, fmt.Sprintf("/readyz said 503 %+d ms from the first refused connection", notReady.Sub(refused).Milliseconds())}
}

// streams is open streams whose events are read to their end.
type streams struct {
	open []*kit.Client
	done sync.WaitGroup

	mu   sync.Mutex
	ends []streamEnd
}

type streamEnd struct {
	era   kit.Era
	inOrd bool // with its last chunk
	final bool // the last event was the answer to subscriptions/listen
}

// openStreams opens streams, half of them of each era, and reads them.
func openStreams(ctx context.Context, addr string, count int) (*streams, error) {
	t := &streams{}
	for i := range count {
		c, err := kit.Dial(ctx, addr, kit.Mixed(i), kit.DialOptions{From: i})
		if err != nil {
			t.close()
			return nil, err
		}
		t.open = append(t.open, c)
		err = c.Begin("stream")
		var in *kit.Events
		if err == nil {
			in, err = c.Listen(strconv.Itoa(i), "")
		}
		if err != nil {
			t.close()
			return nil, fmt.Errorf("stream %d: %w", i, err)
		}
		t.done.Go(func() { t.read(c.Era, in) })
	}
	return t, nil
}

// read ends with the stream.
func (t *streams) read(e kit.Era, in *kit.Events) {
	var last []byte
	for {
		data, err := in.Next()
		if err == nil {
			last = data
			continue
		}
		t.mu.Lock()
		t.ends = append(t.ends, streamEnd{e, errors.Is(err, io.EOF), bytes.Contains(last, []byte(`"result"`))})
		t.mu.Unlock()
		return
	}
}

func (t *streams) wait() { t.done.Wait() }

func (t *streams) close() {
	for _, c := range t.open {
		c.Close()
	}
	t.done.Wait()
}

func (t *streams) count(is func(streamEnd) bool) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.ends {
		if is(e) {
			n++
		}
	}
	return n
}

func (t *streams) orderly() int { return t.count(func(e streamEnd) bool { return e.inOrd }) }
func (t *streams) modern() int  { return t.count(func(e streamEnd) bool { return e.era == kit.Modern }) }
func (t *streams) final() int {
	return t.count(func(e streamEnd) bool { return e.era == kit.Modern && e.inOrd && e.final })
}

// stopTwice is L02: the second signal ends the process at once, and leaves
// nothing behind that would keep the next from starting.
func (s *storm) stopTwice(ctx context.Context) {
	seen := make(chan struct{}, 1)
	b := s.newBackend(kit.Modern, func(b *kit.Backend) { b.Arrived = func(*kit.Task) { seen <- struct{}{} } })
	manifest := s.write(kit.PlanOf(b.Addr))
	e := s.start(ctx, b.Addr)
	c := kit.Must(kit.Dial(ctx, e.Addr, kit.Modern, kit.DialOptions{}))
	defer c.Close()
	kit.Must(c.Conn.Write(c.CallText("1", kit.Work{Hang: true}, "")))
	select {
	case <-seen:
	case <-time.After(kit.Patience):
		kit.Fail("the call did not reach the backend")
	}
	e.Signal(syscall.SIGTERM)
	waited := !e.AwaitEnd(500 * time.Millisecond)
	again := time.Now()
	e.Signal(syscall.SIGTERM)
	ended := e.AwaitEnd(2 * time.Second)
	took := time.Since(again)
	s.bar(waited && ended && took < time.Second, "1 s", "second SIGTERM ends it after %d ms", took.Milliseconds())
	next := s.startAt(ctx, manifest, kit.Seat{Addr: e.Addr, Admin: e.Admin})
	s.tell("the next one on its addresses is ready after %d ms", next.Ready.Milliseconds())
}

// stopEarly is L02: a signal while the process starts ends it.
func (s *storm) stopEarly(ctx context.Context) {
	manifest := s.write(kit.PlanOf("127.0.0.1:9"))
	const starts = 20
	worst, stuck := time.Duration(0), 0
	for i := range starts {
		addr := kit.Must(port.Free())
		cmd := exec.CommandContext(ctx, s.weir, "serve", "-c", manifest, "--listen", addr, "--admin-listen", "")
		cmd.SysProcAttr = kit.ChildAttr()
		kit.Check(cmd.Start())
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		told := time.Now()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		force := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // how it ended does not matter
		if !force.Stop() {
			stuck++
		}
		worst = max(worst, time.Since(told))
	}
	s.bar(stuck == 0 && worst < 2*time.Second, "2 s", "SIGTERM during %d starts ends each within %d ms", starts, worst.Milliseconds())
}
