package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"
)

// memoryRow is one line of P8. Sizes are bytes.
type memoryRow struct {
	what   string
	each   float64 // per session or stream: resident memory
	live   float64 // per session or stream: heap after a collection, and stacks; NaN when not known
	alive  int     // sessions or streams that lived when the memory was read
	opened int
	bar    float64
}

// massRow is the part of P8 about many calls. Sizes are bytes.
type massRow struct {
	target     string
	cell       cell
	calls      int
	half, full int64 // resident memory after half and after all of the calls
}

// warmSessions are opened before the first reading, so that code and pools
// which every edge has are not put on the account of sessions.
const warmSessions = 200

// upstreamStreams bounds the idle streams of the row in which each has a
// stream of its own to the backend, below the 1024 connections that an edge
// keeps to one backend.
const upstreamStreams = 900

// runMemory is P8.
func (b *bench) runMemory(ctx context.Context) {
	type part struct {
		name string
		run  func(context.Context) error
	}
	var parts []part
	if !b.floors {
		parts = append(parts,
			part{"P8, idle sessions", b.idleSessions},
			part{"P8, idle streams", func(ctx context.Context) error { return b.idleStreams(ctx, "405", b.streams) }},
			part{"P8, idle streams with one to the backend each", func(ctx context.Context) error {
				return b.idleStreams(ctx, "stream", min(b.streams, upstreamStreams))
			}})
	}
	for _, e := range []era{modern, legacy} {
		parts = append(parts, part{"P8, many calls, " + string(e), func(ctx context.Context) error { return b.manyCalls(ctx, e) }})
	}
	for _, p := range parts {
		if ctx.Err() != nil {
			return
		}
		if err := p.run(ctx); err != nil {
			b.fail(p.name, err)
		}
	}
}

// idleSessions opens sessions, leaves them without a connection and reads what
// they weigh.
func (b *bench) idleSessions(ctx context.Context) error {
	backend, err := b.startBackend(ctx, legacy, "json")
	if err != nil {
		return err
	}
	defer backend.stop()
	most := strconv.Itoa(warmSessions + b.sessions)
	e, err := b.startEdge(ctx, []string{backend.addr}, "--pprof", "--max-sessions", most, "--max-sessions-per-principal", most)
	if err != nil {
		return err
	}
	defer e.stop()

	if _, err := openSessions(ctx, e.addr, warmSessions); err != nil {
		return e.fault(err)
	}
	before, err := e.weigh(ctx, true)
	if err != nil {
		return err
	}
	sessions, err := openSessions(ctx, e.addr, b.sessions)
	if err != nil {
		return e.fault(err)
	}
	after, err := e.weigh(ctx, false)
	if err != nil {
		return err
	}
	alive, err := countAlive(ctx, e.addr, sessions)
	if err != nil {
		return e.fault(err)
	}
	b.addMemory("an idle legacy session", before, after, alive, b.sessions, 4<<10)
	return nil
}

// idleStreams opens a session for each stream, then the streams, and reads
// what these add.
func (b *bench) idleStreams(ctx context.Context, get string, streams int) error {
	backend, err := b.startBackend(ctx, legacy, "json", "--get", get)
	if err != nil {
		return err
	}
	defer backend.stop()
	const warm = 50
	most := strconv.Itoa(warm + streams)
	e, err := b.startEdge(ctx, []string{backend.addr}, "--pprof", "--max-sessions", most, "--max-sessions-per-principal", most)
	if err != nil {
		return err
	}
	defer e.stop()

	sessions, err := openSessions(ctx, e.addr, warm+streams)
	if err != nil {
		return e.fault(err)
	}
	var open []*client
	defer func() {
		for _, c := range open {
			c.conn.Close()
		}
	}()
	add := func(sessions []string) error {
		for _, s := range sessions {
			c, err := dial(ctx, e.addr, legacy, len(open))
			if err != nil {
				return err
			}
			open = append(open, c)
			if err := c.stream(s); err != nil {
				return fmt.Errorf("stream %d: %w", len(open), err)
			}
		}
		return nil
	}
	if err := add(sessions[:warm]); err != nil {
		return e.fault(err)
	}
	before, err := e.weigh(ctx, true)
	if err != nil {
		return err
	}
	if err := add(sessions[warm:]); err != nil {
		return e.fault(err)
	}
	after, err := e.weigh(ctx, false)
	if err != nil {
		return err
	}
	seen, err := readCounts(ctx, backend.addr)
	if err != nil {
		return err
	}
	what := "an idle SSE stream, the backend has none (405)"
	if get == "stream" {
		what = fmt.Sprintf("an idle SSE stream, %d streams to the backend", seen.Streams)
	}
	alive := 0
	for _, c := range open[warm:] {
		if c.stillOpen() {
			alive++
		}
	}
	b.addMemory(what, before, after, alive, streams, 40<<10)
	return nil
}

// addMemory takes two readings for one row of the table.
func (b *bench) addMemory(what string, before, after weight, alive, opened int, bar float64) {
	row := memoryRow{what: what, live: math.NaN(), alive: alive, opened: opened, bar: bar}
	if alive > 0 {
		row.each = float64(after.resident-before.resident) / float64(alive)
		if before.live > 0 && after.live > 0 {
			row.live = float64(after.live-before.live) / float64(alive)
		}
	}
	b.report.memory = append(b.report.memory, row)
	b.say("P8, %s: %.1f KiB resident, %.1f KiB live, %d of %d alive", what, row.each/1024, row.live/1024, alive, opened)
}

// manyCalls reads the resident memory after half and after all of many calls.
func (b *bench) manyCalls(ctx context.Context, e era) error {
	c := cell{e, e, "json", 8, false}
	backend, err := b.startBackend(ctx, e, c.answer)
	if err != nil {
		return err
	}
	defer backend.stop()
	pass, err := startHelper(ctx, b.procs, "bare", "--backend", backend.addr)
	if err != nil {
		return err
	}
	defer pass.stop()
	targets := map[string]*process{bare: pass}
	if !b.floors {
		e, err := b.startEdge(ctx, []string{backend.addr})
		if err != nil {
			return err
		}
		defer e.stop()
		targets[weir] = e.process
	}
	for _, name := range []string{bare, weir} {
		p := targets[name]
		if p == nil {
			continue
		}
		row := massRow{target: name, cell: c, calls: b.mass}
		if err := row.measure(ctx, p); err != nil {
			return p.fault(fmt.Errorf("%s: %w", name, err))
		}
		b.report.mass = append(b.report.mass, row)
		b.say("P8, %s: %s: %.1f MiB after %d calls, %.1f MiB after %d", c, name, mib(row.half), row.calls/2, mib(row.full), row.calls)
	}
	return nil
}

func (row *massRow) measure(ctx context.Context, p *process) error {
	f, err := openFleet(ctx, p.addr, row.cell.client, row.cell.conns)
	if err != nil {
		return err
	}
	defer f.hangUp()
	for _, part := range []struct {
		calls int
		read  *int64
	}{{row.calls / 2, &row.half}, {row.calls - row.calls/2, &row.full}} {
		if _, err := f.drive(ctx, "echo", part.calls); err != nil {
			return err
		}
		if *part.read, err = residentBytes(p.pid()); err != nil {
			return err
		}
	}
	return f.close()
}

// openSessions initializes sessions over a few connections that are closed
// when it returns, and gives their ids in no order.
func openSessions(ctx context.Context, addr string, count int) ([]string, error) {
	return spread(ctx, addr, count, func(c *client, _ int) (string, error) { return c.initialize() })
}

// countAlive pings sessions and counts those that still run.
func countAlive(ctx context.Context, addr string, sessions []string) (alive int, err error) {
	lives, err := spread(ctx, addr, len(sessions), func(c *client, i int) (bool, error) { return c.ping(sessions[i]) })
	for _, l := range lives {
		if l {
			alive++
		}
	}
	return alive, err
}

// spread does count things over eight connections of eight clients.
func spread[T any](ctx context.Context, addr string, count int, do func(c *client, i int) (T, error)) ([]T, error) {
	const lanes = 8
	out := make([]T, count)
	errs := make([]error, lanes)
	var wait sync.WaitGroup
	for lane := range lanes {
		wait.Go(func() {
			c, err := dial(ctx, addr, legacy, lane)
			if err != nil {
				errs[lane] = err
				return
			}
			defer c.conn.Close()
			defer context.AfterFunc(ctx, func() { c.conn.Close() })()
			for i := lane; i < count && errs[lane] == nil; i += lanes {
				out[i], errs[lane] = do(c, i)
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// stillOpen reports whether a stream that should be silent has not ended. What
// it says in between, a heartbeat, is read and dropped.
func (c *client) stillOpen() bool {
	if c.conn.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return false
	}
	for {
		if _, err := c.reader.Discard(max(c.reader.Buffered(), 1)); err != nil {
			timeout, ok := err.(interface{ Timeout() bool })
			return ok && timeout.Timeout()
		}
	}
}

// weight is what an edge holds in memory, in bytes.
type weight struct {
	resident int64
	live     int64 // heap after a collection, and stacks; 0 when the edge does not say
}

// weigh reads an edge's memory once it has come to rest. The collection that
// the live heap takes is forced only before the first of two readings and
// after the second, so that it does not make what lies between look smaller.
func (e *edge) weigh(ctx context.Context, first bool) (w weight, err error) {
	if first {
		w.live = e.liveBytes(ctx)
	}
	if w.resident, err = settled(ctx, e.pid()); err != nil {
		return w, err
	}
	if !first {
		w.live = e.liveBytes(ctx)
	}
	return w, nil
}

// settled reads resident memory until it has not moved by a hundredth for
// half a second, or for three seconds at most.
func settled(ctx context.Context, pid int) (int64, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last, quiet := int64(0), 0
	for range 30 {
		n, err := residentBytes(pid)
		if err != nil {
			return 0, err
		}
		if d := n - last; d > n/100 || d < -n/100 {
			last, quiet = n, 0
		} else if quiet++; quiet == 5 {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
	return residentBytes(pid)
}

// liveBytes asks the edge's own profile for its heap after a collection and
// its stacks; 0 when it has none.
func (e *edge) liveBytes(ctx context.Context) int64 {
	text, err := httpGet(ctx, "http://"+e.admin+"/debug/pprof/heap?gc=1&debug=1", 20*time.Second)
	if err != nil {
		return 0
	}
	return parseLive(text)
}

// parseLive adds up HeapAlloc and Stack of a heap profile in text form
// (runtime/pprof, the lines `# HeapAlloc = N` and `# Stack = N / M`); 0 when
// one is missing.
func parseLive(text []byte) int64 {
	var sum int64
	for _, name := range []string{"# HeapAlloc = ", "# Stack = "} {
		i := bytes.Index(text, []byte("\n"+name))
		if i < 0 {
			return 0
		}
		rest := text[i+1+len(name):]
		end := bytes.IndexAny(rest, " /\n")
		if end < 0 {
			return 0
		}
		n, err := strconv.ParseInt(string(rest[:end]), 10, 64)
		if err != nil {
			return 0
		}
		sum += n
	}
	return sum
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
