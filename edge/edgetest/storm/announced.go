package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

const (
	// announcedBody is what a head says of a body that does not come, or comes
	// slowly and never whole: as much as an edge takes.
	announcedBody = 4 << 20

	// announcedLimit is the memory limit of the edge, and announcedMore how much
	// larger the process may grow.
	announcedLimit = "512MiB"
	announcedMore  = 64 << 20

	// announcedPiece is how much of a body comes at a time, and announcedTick how
	// often.
	announcedPiece = 16 << 10
	announcedTick  = 500 * time.Millisecond
)

// announcedHeads are the ways to announce a body, and what comes of it at once.
var announcedHeads = []string{
	fmt.Sprintf("Content-Length: %d\r\n\r\n", announcedBody),
	fmt.Sprintf("Content-Length: %d\r\n\r\n{", announcedBody),
	fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", announcedBody-1),
	fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n{", announcedBody-1),
	fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", announcedBody),
}

// runAnnounced is Z01: thousands of connections announce large bodies, and send
// nothing or little of them, to an edge that lets everybody in and to one that
// wants tokens, beside ordinary clients.
func runAnnounced(ctx context.Context, s *storm) {
	count := s.size(s.count, 2000, 400, "connections that announce")
	hold := s.span(s.length, 15*time.Second, 4*time.Second, "attack")
	s.environment = []string{"GOMEMLIMIT=" + announcedLimit}
	a := &announcing{storm: s, count: count, hold: hold, rate: 200, numbers: &kit.Numbers{}}
	if s.rate > 0 {
		a.rate = s.rate
	}

	// 1. Everybody is let in.
	b := s.newBackend(kit.Modern, nil)
	a.edge = s.start(ctx, b.Addr)
	a.attack(ctx, "announce, and send nothing", "", announcedHeads, false, 0)
	a.attack(ctx, "announce, and send it slowly", "", announcedHeads[:1], true, 0)
	a.edge.Stop()

	// 2. Tokens are wanted.
	i := s.newIssuer(nil)
	a.edge = s.guarded(ctx, i, "")
	a.tokens = kit.Must(mintAll(i, 50))
	a.attack(ctx, "announce, without a token", "", announcedHeads, false, 401)
	stranger := kit.Must(i.Token("somebody else", nil))
	a.attack(ctx, "announce with tokens of one subject, and send it slowly", stranger, announcedHeads[:1], true, 0)
}

// announcing is the row while it runs.
type announcing struct {
	*storm
	edge    *kit.Edge
	count   int
	hold    time.Duration
	rate    int
	tokens  []string // of ordinary clients; none where nobody wants one
	numbers *kit.Numbers
}

// load is the ordinary clients.
func (a *announcing) load() pace {
	p := pace{addr: a.edge.Addr, era: only(kit.Modern), conns: 16, rate: a.rate, from: 30_000, numbers: a.numbers}
	if a.tokens != nil {
		p.token, p.tool = (&turns{tokens: a.tokens}).next, among(0, 2)
	}
	return p
}

// attack opens the connections, and holds them beside the ordinary clients.
// slowly has more of each body sent; want is the status that each is to be
// answered with at once, 0 for none.
func (a *announcing) attack(ctx context.Context, what, token string, heads []string, slowly bool, want int) {
	var calm, calmLarge, opening, t, large tally // before, while the connections are opened, then
	beside := func(ctx context.Context, t, large *tally) {
		var all sync.WaitGroup
		all.Go(func() { a.load().run(ctx, t) })
		if slowly { // those who send large bodies and mean it
			all.Go(func() { a.mean(ctx, large) })
		}
		all.Wait()
	}
	during(ctx, 2*time.Second, func(ctx context.Context) { beside(ctx, &tally{}, &tally{}) })
	top := a.peak(a.edge)
	during(ctx, a.hold, func(ctx context.Context) { beside(ctx, &calm, &calmLarge) })
	base := top()
	if calm.failed()+calmLarge.failed() > 0 || calm.right.Load() == 0 {
		kit.Fail("calls fail in the calm: %s %s", calm.reasons(), calmLarge.reasons())
	}
	var answered, refused, other, sent atomic.Int64
	top = a.peak(a.edge)
	ctx, end := context.WithCancel(ctx)
	defer end()
	var all sync.WaitGroup
	begun, open := context.WithCancel(ctx)
	defer open()
	all.Go(func() {
		a.load().run(begun, &opening)
		a.load().run(ctx, &t)
	})
	if slowly {
		all.Go(func() { a.mean(ctx, &large) })
	}
	piece := []byte(strings.Repeat(" ", announcedPiece))
	fleet, err := kit.OpenAll(ctx, a.edge.Addr, a.count, func(i int) (*kit.Client, error) {
		c, err := kit.Dial(ctx, a.edge.Addr, kit.Modern, kit.DialOptions{From: i, Receive: ownReceive, Buffer: 512})
		if err != nil {
			return nil, err
		}
		c.Token = token
		head := "POST /mcp HTTP/1.1\r\nHost: " + c.Addr + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" + c.Credential()
		_, err = c.Conn.Write([]byte(head + heads[i%len(heads)]))
		return c, err
	})
	defer func() { kit.CloseAll(fleet) }()
	if err != nil {
		end()
		all.Wait()
		kit.Check(err)
	}
	for i, c := range fleet {
		all.Go(func() { // one after the other, spread over a tick
			defer c.Close()
			status := a.hear(c)
			tick := time.NewTicker(announcedTick)
			defer tick.Stop()
			if slowly && !kit.Sleep(ctx, time.Duration(i)*announcedTick/time.Duration(a.count)) {
				return
			}
			for left := announcedBody - announcedBody/40; ; {
				select {
				case code := <-status:
					switch code {
					case 503:
						refused.Add(1)
					case want:
						answered.Add(1)
					default:
						other.Add(1)
					}
					return
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if slowly && left > 0 {
					c.Wait(time.Second)
					n, _ := c.Conn.Write(piece[:min(len(piece), left)]) // one that is refused is heard of
					left -= n
					sent.Add(int64(n))
				}
			}
		})
	}
	open()
	kit.Sleep(ctx, a.hold)
	highest := top()
	end()
	all.Wait()

	failed := opening.failed() + int(opening.refused.Load()) + t.failed() + int(t.refused.Load())
	p99, usual := t.percentile(990), calm.percentile(990)
	a.bar(highest-base <= announcedMore, "+ 64 MiB", "%d connections %s (%.0f MiB of it came, %d were refused with 503): resident %.0f MiB at the most, %.0f without", a.count, what, kit.MiB(sent.Load()), refused.Load(), kit.MiB(highest), kit.MiB(base))
	a.bar(failed == 0 && t.right.Load() > 0, "0", "%d of %d calls beside them failed", failed, opening.sent.Load()+t.sent.Load())
	switch n := large.failed() + int(large.refused.Load()); {
	case slowly && token != "": // who has a credential has room beside all others
		a.bar(n == 0 && large.right.Load() > 0, "0", "%d of %d calls of 1 MiB beside them failed, with tokens of another subject", n, large.sent.Load())
	case slowly:
		a.tell("%d of %d calls of 1 MiB beside them were refused; nobody says who they are", n, large.sent.Load())
	}
	a.bar(p99 <= usual+max(usual/5, 2*time.Millisecond), "+ 20 %, or 2 ms", "p99 of calls beside them %.2f ms, %.2f ms without: %+.0f %%", kit.Millis(p99), kit.Millis(usual), 100*(float64(p99)/float64(max(usual, 1))-1))
	if want != 0 {
		a.bar(answered.Load() == int64(a.count), "all", "%d of %d answered with %d before any of the body came", answered.Load(), a.count, want)
	} else if other.Load() > 0 {
		a.bar(false, "0", "%d answered with something else than 503", other.Load())
	}
	if failed+large.failed() > 0 {
		a.note("%s: %s %s %s", what, opening.reasons(), t.reasons(), large.reasons())
	}
}

// hear waits for the status of the answer, in the background: it comes when
// there is one. A server that asks for the body has not answered yet.
func (a *announcing) hear(c *kit.Client) <-chan int {
	status := make(chan int, 1)
	go func() { // ends with the connection
		_ = c.Conn.SetReadDeadline(time.Time{})
		for {
			if c.Answer.ReadHead(c.In) != nil {
				return
			}
			if c.Answer.Status >= 200 {
				if t, ok := c.Conn.(*net.TCPConn); ok {
					_ = t.CloseWrite()
				}
				status <- c.Answer.Status
				return
			}
		}
	}()
	return status
}

// mean sends calls of 1 MiB, one after the other.
func (a *announcing) mean(ctx context.Context, t *tally) {
	var c *kit.Client
	defer func() { c.Close() }()
	p := a.load()
	for kit.Sleep(ctx, 100*time.Millisecond) {
		if c == nil {
			var err error
			if c, err = kit.Dial(context.WithoutCancel(ctx), a.edge.Addr, kit.Modern, kit.DialOptions{From: 39_000}); err != nil {
				t.noConnection(err)
				continue
			}
			if p.tool != nil {
				c.Tool, c.Token = p.tool(0), p.token()
			}
		}
		n := a.numbers.Next()
		one := kit.Work{Text: fmt.Sprint(n) + strings.Repeat("x", 1<<20)}
		c.Wait(kit.Patience)
		t.sent.Add(1)
		began := time.Now()
		closes, err := c.Call(fmt.Sprint(n), one)
		t.count(n, time.Since(began), err)
		if err != nil || closes {
			c.Close()
			c = nil
		}
	}
}
