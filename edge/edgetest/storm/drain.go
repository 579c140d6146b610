package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// drainTimeout is the edge's own default, and the bar for its end.
const drainTimeout = 10 * time.Second

// runDrain is G02 and L02: what is under way when the edge is told to end is
// answered, and what would last for ever ends in order.
func runDrain(ctx context.Context, s *storm) error {
	for _, e := range []era{modern, legacy} {
		if s.quick && e == legacy {
			s.scale("with a modern backend alone")
			break
		}
		if err := s.drainOnce(ctx, e); err != nil {
			return err
		}
	}
	return errors.Join(s.stopTwice(ctx), s.stopEarly(ctx))
}

// ledger is the numbers of the calls that a backend has seen.
type ledger struct {
	mu   sync.Mutex
	seen map[int64]bool
}

func newLedger() *ledger { return &ledger{seen: map[int64]bool{}} }

func (l *ledger) arrived(t *task) {
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
func (s *storm) drainOnce(ctx context.Context, back era) error {
	slow := s.size(s.count, 200, 40, "slow calls and as many streams")
	book := newLedger()
	slowSeen := make(chan struct{}, slow)
	b, err := s.newBackend(back, func(b *backend) {
		b.arrived = func(t *task) {
			book.arrived(t)
			if t.Ms > 0 {
				slowSeen <- struct{}{}
			}
		}
		b.feed = func(f *feed) {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-f.Gone:
					return
				case <-tick.C:
					if !f.notify("tools/list_changed", "") {
						return
					}
				}
			}
		}
	})
	if err != nil {
		return err
	}
	e, err := s.start(ctx, []string{b.addr}, "--max-streams", "20000", "--drain-timeout", drainTimeout.String())
	if err != nil {
		return err
	}
	var n numbers
	most, err := s.ceiling(ctx, e.addr, &n)
	if err != nil {
		return e.fault(err)
	}
	rate := s.steady(most, 2000)
	s.say("ceiling %d calls a second, load %d", most, rate)

	// 1. Streams.
	streams, err := openStreams(ctx, e.addr, slow)
	if err != nil {
		return e.fault(err)
	}
	defer streams.close()
	// 2. The steady load.
	var t tally
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	load.Go(func() {
		pace{addr: e.addr, era: both, conns: 32, rate: rate, numbers: &n}.run(loading, &t)
	})
	if !sleep(ctx, time.Second) {
		return ctx.Err()
	}
	// 3. Slow calls, until the backend has all of them.
	var late tally
	for w := range slow {
		load.Go(func() { slowCall(ctx, e.addr, both(w), w, &n, &late) })
	}
	for range slow {
		select {
		case <-slowSeen:
		case <-time.After(patience):
			return e.fault(errors.New("the slow calls did not reach the backend"))
		}
	}
	// 4. The end.
	look := s.watchReadiness(ctx, e)
	before := t.right.Load()
	told := time.Now()
	e.signal(syscall.SIGTERM)
	ended := e.awaitEnd(drainTimeout + 5*time.Second)
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
	return nil
}

// slowCall makes one call of two seconds.
func slowCall(ctx context.Context, addr string, e era, from int, n *numbers, t *tally) {
	number := n.next()
	c, err := dial(ctx, addr, e, dialOptions{from: from})
	if err != nil {
		t.count(number, 0, err)
		return
	}
	defer c.close()
	if err := c.begin("slow"); err != nil {
		t.count(number, 0, err)
		return
	}
	c.wait(patience)
	text := strconv.FormatInt(number, 10)
	t.sent.Add(1)
	sent := time.Now()
	_, err = c.call(text, work{Text: text, Ms: 2000})
	t.count(number, time.Since(sent), err)
}

// readiness is what was seen of the order in which an edge tells that it ends.
type readiness struct {
	ok   bool
	text string
}

// watchReadiness asks the admin door for /readyz and knocks at the door, again
// and again, until the function that it returns is called. Whoever sends work
// to an edge must be able to hear that it ends before it refuses.
func (s *storm) watchReadiness(ctx context.Context, e *edge) (stop func() readiness) {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var notReady, refused, readyAsked time.Time // the first, the first, and when the last 200 was asked for
	wait.Go(func() {
		for ctx.Err() == nil {
			asked := time.Now()
			status, _ := e.get(ctx, "/readyz", time.Second)
			mu.Lock()
			switch {
			case status == 200:
				readyAsked = asked
			case status == 503 && notReady.IsZero():
				notReady = time.Now()
			}
			mu.Unlock()
			sleep(ctx, 2*time.Millisecond)
		}
	})
	wait.Go(func() {
		d := net.Dialer{Timeout: time.Second}
		for ctx.Err() == nil {
			c, err := d.DialContext(ctx, "tcp", e.addr)
			if err == nil {
				c.Close()
			} else if errors.Is(err, syscall.ECONNREFUSED) {
				mu.Lock()
				if refused.IsZero() {
					refused = time.Now()
				}
				mu.Unlock()
			}
			sleep(ctx, 2*time.Millisecond)
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
	open []*client
	done sync.WaitGroup

	mu   sync.Mutex
	ends []streamEnd
}

type streamEnd struct {
	era   era
	inOrd bool // with its last chunk
	final bool // the last event was the answer to subscriptions/listen
}

// openStreams opens streams, half of them of each era, and reads them.
func openStreams(ctx context.Context, addr string, count int) (*streams, error) {
	t := &streams{}
	for i := range count {
		c, err := dial(ctx, addr, both(i), dialOptions{from: i})
		if err != nil {
			t.close()
			return nil, err
		}
		t.open = append(t.open, c)
		err = c.begin("stream")
		var in *events
		if err == nil {
			in, err = c.listen(strconv.Itoa(i))
		}
		if err != nil {
			t.close()
			return nil, fmt.Errorf("stream %d: %w", i, err)
		}
		t.done.Go(func() { t.read(c.era, in) })
	}
	return t, nil
}

// read ends with the stream.
func (t *streams) read(e era, in *events) {
	var last []byte
	for {
		data, err := in.next()
		if err == nil {
			last = data
			continue
		}
		t.mu.Lock()
		t.ends = append(t.ends, streamEnd{e, isEOF(err), bytes.Contains(last, []byte(`"result"`))})
		t.mu.Unlock()
		return
	}
}

func (t *streams) wait() { t.done.Wait() }

func (t *streams) close() {
	for _, c := range t.open {
		c.close()
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
func (t *streams) modern() int  { return t.count(func(e streamEnd) bool { return e.era == modern }) }
func (t *streams) final() int {
	return t.count(func(e streamEnd) bool { return e.era == modern && e.inOrd && e.final })
}

// stopTwice is L02: the second signal ends the process at once, and leaves
// nothing behind that would keep the next from starting.
func (s *storm) stopTwice(ctx context.Context) error {
	seen := make(chan struct{}, 1)
	b, err := s.newBackend(modern, func(b *backend) { b.arrived = func(*task) { seen <- struct{}{} } })
	if err != nil {
		return err
	}
	manifest, err := s.manifest([]string{b.addr})
	if err != nil {
		return err
	}
	e, err := s.start(ctx, []string{b.addr})
	if err != nil {
		return err
	}
	c, err := dial(ctx, e.addr, modern, dialOptions{})
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.conn.Write(c.callText("1", work{Hang: true}, "")); err != nil {
		return err
	}
	select {
	case <-seen:
	case <-time.After(patience):
		return e.fault(errors.New("the call did not reach the backend"))
	}
	e.signal(syscall.SIGTERM)
	waited := !e.awaitEnd(500 * time.Millisecond)
	again := time.Now()
	e.signal(syscall.SIGTERM)
	ended := e.awaitEnd(2 * time.Second)
	took := time.Since(again)
	s.bar(waited && ended && took < time.Second, "1 s", "second SIGTERM ends it after %d ms", took.Milliseconds())
	next, err := s.startAt(ctx, manifest, e.addr, e.admin)
	if err != nil {
		s.bar(false, "starts", "the next one on its addresses does not start: %v", err)
		return nil
	}
	s.tell("the next one on its addresses is ready after %d ms", next.ready.Milliseconds())
	return nil
}

// stopEarly is L02: a signal while the process starts ends it.
func (s *storm) stopEarly(ctx context.Context) error {
	manifest, err := s.manifest([]string{"127.0.0.1:9"})
	if err != nil {
		return err
	}
	const starts = 20
	worst, stuck := time.Duration(0), 0
	for i := range starts {
		addr, err := port.Free()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, s.weir, "serve", "-c", manifest, "--listen", addr, "--admin-listen", "")
		cmd.SysProcAttr = childAttr()
		if err := cmd.Start(); err != nil {
			return err
		}
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
	return nil
}
