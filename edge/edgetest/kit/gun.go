package kit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Numbers gives every call of a run a number of its own, of ten digits, which
// is its id and stands in its text.
type Numbers struct{ last atomic.Int64 }

// Next is the next number.
func (n *Numbers) Next() int64 { return 1_000_000_000 + n.last.Add(1) }

// Gun sends calls by the clock, whether or not earlier ones have been answered,
// each on a connection that no other call is on.
type Gun struct {
	Addr    string
	Tool    string // that it calls; empty for work
	Work    Work   // but for its text
	Numbers *Numbers

	mu     sync.Mutex
	free   []spare
	opened int
}

// spare is a connection that no call is on.
type spare struct {
	*Client
	since time.Time
}

// spareWithin is how long a connection may have waited for a call. An edge closes those that
// wait for longer than twice that, and a call that meets the end of its connection cannot be
// told from one that was lost.
const spareWithin = time.Minute

// Shot is one call of a gun.
type Shot struct {
	Number int64         // of the call
	Due    time.Time     // when it was to be sent
	Took   time.Duration // from when it was due until it was answered
	Err    error
}

// maxShots bounds the calls under way: beyond it the load is no longer open,
// and what is due is counted as failed.
const maxShots = 4000

// ErrFull is how a shot ends when too many calls are under way.
var ErrFull = fmt.Errorf("more than %d calls under way", maxShots)

// Fire sends rate calls a second for as long as d, and waits for their ends.
func (g *Gun) Fire(ctx context.Context, rate int, d time.Duration) []Shot {
	shots := make([]Shot, int(float64(rate)*d.Seconds()))
	places := make(chan struct{}, maxShots)
	var all sync.WaitGroup
	began := time.Now()
	for i := range shots {
		one := &shots[i]
		one.Due = began.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))
		time.Sleep(time.Until(one.Due))
		if one.Err = ctx.Err(); one.Err != nil {
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			one.Err = ErrFull
			continue
		}
		all.Go(func() {
			defer func() { <-places }()
			one.Number, one.Err = g.Shoot(ctx)
			one.Took = time.Since(one.Due)
		})
	}
	all.Wait()
	return shots
}

// Shoot makes one call.
func (g *Gun) Shoot(ctx context.Context) (number int64, err error) {
	g.mu.Lock()
	var c *Client
	if n := len(g.free); n > 0 && time.Since(g.free[n-1].since) < spareWithin {
		c, g.free = g.free[n-1].Client, g.free[:n-1]
	} else { // the last has waited the shortest
		g.closeSpare()
		g.opened++
	}
	from := g.opened
	g.mu.Unlock()
	if c == nil {
		if c, err = Dial(ctx, g.Addr, Modern, DialOptions{From: from}); err != nil {
			return 0, err
		}
		c.Tool = g.Tool
	}
	number = g.Numbers.Next()
	one := g.Work
	one.Text = strconv.FormatInt(number, 10)
	c.Wait(Patience)
	closes, err := c.Call(one.Text, one)
	if closes || err != nil && !errors.Is(err, ErrBusy) {
		c.Close()
		return number, err
	}
	g.mu.Lock()
	g.free = append(g.free, spare{c, time.Now()})
	g.mu.Unlock()
	return number, err
}

// Opened is how many connections there have been.
func (g *Gun) Opened() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened
}

// Close closes the connections.
func (g *Gun) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeSpare()
}

// closeSpare closes the connections that no call is on. The lock is held.
func (g *Gun) closeSpare() {
	for _, c := range g.free {
		c.Close()
	}
	g.free = nil
}

// ServiceTime is that of the backend under an overload, and GoodWithin what
// counts as goodput there.
const (
	ServiceTime = 20 * time.Millisecond
	GoodWithin  = 40 * time.Millisecond
)

// Sort counts shots by how they ended: in time, with 503, late, in another way.
func Sort(shots []Shot) (good, shed, late, failed int) {
	for _, one := range shots {
		switch {
		case one.Err == nil && one.Took <= GoodWithin:
			good++
		case one.Err == nil:
			late++
		case errors.Is(one.Err, ErrBusy):
			shed++
		default:
			failed++
		}
	}
	return good, shed, late, failed
}

// OpenAll opens many clients, a few at a time. What it returns beside an error
// has to be closed, too.
func OpenAll(ctx context.Context, addr string, count int, open func(i int) (*Client, error)) ([]*Client, error) {
	const lanes = 16
	out := make([]*Client, count)
	errs := make([]error, lanes)
	var wait sync.WaitGroup
	for lane := range lanes {
		wait.Go(func() {
			for i := lane; i < count && errs[lane] == nil && ctx.Err() == nil; i += lanes {
				if out[i], errs[lane] = open(i); errs[lane] != nil {
					errs[lane] = fmt.Errorf("%s, client %d: %w", addr, i, errs[lane])
				}
			}
		})
	}
	wait.Wait()
	return out, errors.Join(append(errs, ctx.Err())...)
}

// CloseAll closes the connections of clients.
func CloseAll(clients []*Client) {
	for _, c := range clients {
		c.Close()
	}
}

// Spread does something a number of times over some connections of legacy
// clients, a lane each, until the first error.
func Spread(ctx context.Context, addr string, count, lanes int, from func(lane int) int, do func(c *Client, i int) error) error {
	errs := make([]error, lanes)
	var wait sync.WaitGroup
	for lane := range lanes {
		wait.Go(func() {
			c, err := Dial(ctx, addr, Legacy, DialOptions{From: from(lane), Buffer: 16 << 10})
			if err != nil {
				errs[lane] = err
				return
			}
			defer c.Close()
			defer context.AfterFunc(ctx, c.Close)()
			for i := lane; i < count && errs[lane] == nil && ctx.Err() == nil; i += lanes {
				errs[lane] = do(c, i)
			}
		})
	}
	wait.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// Apart has each of some clients come from an address of its own, and Together
// all from one.
func Apart(client int) int { return client }

// Together is 0 for every client.
func Together(int) int { return 0 }
