package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// client is one client of a fleet, on one connection that stays open.
type client struct {
	*kit.Client
	calls map[string]*call // by tool
}

// fleet is a closed loop of clients: each sends its next call when it has the
// answer to the last.
type fleet struct {
	clients []*client
	next    atomic.Uint64 // the number of the last call that was made
}

// run is what the calls of a fleet took.
type run struct {
	latencies []time.Duration // sorted
	elapsed   time.Duration
}

// dial connects a client, from an address of its own among two hundred.
func dial(ctx context.Context, addr string, e kit.Era, number int) (*client, error) {
	c, err := kit.Dial(ctx, addr, e, kit.DialOptions{From: number % 200, Buffer: 16 << 10})
	return &client{Client: c}, err
}

// openFleet connects clients and opens them. Numbers of calls start anywhere,
// so that two fleets before one target do not make the same calls. The tools
// that the clients call begin with the prefixes, in turn; without any with none.
func openFleet(ctx context.Context, addr string, e kit.Era, size int, prefixes ...string) (*fleet, error) {
	return openFleetAs(ctx, "", addr, e, size, prefixes...)
}

// openFleetAs is openFleet for clients that show a token, unless it is empty.
func openFleetAs(ctx context.Context, token, addr string, e kit.Era, size int, prefixes ...string) (*fleet, error) {
	f := &fleet{}
	f.next.Store(firstNumber + rand.Uint64N(lastNumber-2*firstNumber))
	for i := range size {
		c, err := dial(ctx, addr, e, i)
		if err == nil {
			f.clients = append(f.clients, c)
			c.Token = token
			prefix := ""
			if len(prefixes) > 0 {
				prefix = prefixes[i%len(prefixes)]
			}
			err = c.Begin("weir-bench")
			c.calls = map[string]*call{"echo": callOf(c.Client, prefix+"echo"), "slow": callOf(c.Client, prefix+"slow")}
		}
		if err != nil {
			f.hangUp()
			return nil, fmt.Errorf("client %d of %s: %w", i+1, addr, err)
		}
	}
	return f, nil
}

// drive makes a number of calls and waits for their answers. The first wrong
// answer ends it with an error. When ctx ends, so do the connections.
func (f *fleet) drive(ctx context.Context, tool string, calls int) (run, error) {
	return f.repeat(ctx, calls, func(c *client, number uint64) error { return c.calls[tool].make(c.Client, number) })
}

// repeat does something a number of times, each with a number of its own, and
// waits for all.
func (f *fleet) repeat(ctx context.Context, calls int, do func(c *client, number uint64) error) (run, error) {
	defer context.AfterFunc(ctx, f.hangUp)()
	var left atomic.Int64
	left.Store(int64(calls))
	errs := make([]error, len(f.clients))
	latencies := make([][]time.Duration, len(f.clients))
	for i := range latencies {
		latencies[i] = make([]time.Duration, 0, 2*calls/len(f.clients)+1)
	}

	var loops sync.WaitGroup
	begin := time.Now()
	for i, c := range f.clients {
		c.Wait(30*time.Second + time.Duration(calls)*time.Millisecond)
		loops.Go(func() {
			for left.Add(-1) >= 0 {
				start := time.Now()
				if err := do(c, f.next.Add(1)); err != nil {
					errs[i] = fmt.Errorf("call %d of client %d: %w", len(latencies[i])+1, i+1, err)
					left.Store(0)
					return
				}
				latencies[i] = append(latencies[i], time.Since(start))
			}
		})
	}
	loops.Wait()
	r := run{elapsed: time.Since(begin)}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	for _, err := range errs {
		if err != nil {
			return r, err
		}
	}
	r.latencies = slices.Concat(latencies...)
	slices.Sort(r.latencies)
	if len(r.latencies) != calls {
		return r, fmt.Errorf("%d calls were answered, not %d", len(r.latencies), calls)
	}
	return r, nil
}

// close ends the clients' sessions and connections.
func (f *fleet) close() error {
	var errs []error
	for _, c := range f.clients {
		errs = append(errs, c.End())
	}
	return errors.Join(errs...)
}

// hangUp closes the connections and nothing else.
func (f *fleet) hangUp() {
	for _, c := range f.clients {
		c.Close()
	}
}

// loadCommand puts a load on one address and prints what it took.
func loadCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("bench load", flag.ContinueOnError)
	f.SetOutput(stderr)
	addr := f.String("addr", "127.0.0.1:4483", "address to call, HOST:PORT")
	speaks := f.String("era", string(kit.Modern), "modern or legacy")
	tool := f.String("tool", "echo", "echo or slow")
	conns := f.Int("conns", 8, "connections")
	calls := f.Int("calls", 20000, "calls")
	pid := f.Int("pid", 0, "process whose CPU time is to be counted; 0 for none")
	if err := f.Parse(args); err != nil {
		return err
	}
	if e := kit.Era(*speaks); e != kit.Modern && e != kit.Legacy {
		return fmt.Errorf("load: --era: %q is neither modern nor legacy", e)
	}
	if *tool != "echo" && *tool != "slow" {
		return fmt.Errorf("load: --tool: %q is neither echo nor slow", *tool)
	}
	if *conns < 1 || *conns > 10000 || *calls < 1 || *calls > 1<<24 {
		return errors.New("load: --conns is between 1 and 10000, --calls between 1 and 16777216")
	}
	fl, err := openFleet(ctx, *addr, kit.Era(*speaks), *conns)
	if err != nil {
		return err
	}
	defer fl.hangUp()
	before, err := cpuOf(*pid)
	if err != nil {
		return err
	}
	r, err := fl.drive(ctx, *tool, *calls)
	if err != nil {
		return err
	}
	after, err := cpuOf(*pid)
	if err != nil {
		return err
	}
	if err := fl.close(); err != nil {
		return err
	}
	g := figureOf(r, after-before)
	fmt.Fprintf(stdout, "%d calls, %d connections: p50 %.1f µs, p99 %.1f µs, %.0f calls/s", *calls, *conns, g.p50, g.p99, g.rate)
	if *pid != 0 {
		fmt.Fprintf(stdout, ", CPU %.2f µs a call", g.cpu)
	}
	fmt.Fprintln(stdout)
	return nil
}

// cpuOf is what a process has used, and 0 for no process.
func cpuOf(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	return kit.CPU(pid)
}
