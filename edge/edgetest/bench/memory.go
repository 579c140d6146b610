package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
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
	b.tryEdge(ctx, "P8, idle sessions", b.idleSessions)
	b.tryEdge(ctx, "P8, idle streams", func(ctx context.Context) { b.idleStreams(ctx, "405", b.streams) })
	b.tryEdge(ctx, "P8, idle streams with one to the backend each", func(ctx context.Context) {
		b.idleStreams(ctx, "stream", min(b.streams, upstreamStreams))
	})
	for _, e := range []kit.Era{kit.Modern, kit.Legacy} {
		b.try(ctx, "P8, many calls, "+string(e), func(ctx context.Context) { b.manyCalls(ctx, e) })
	}
}

// idleSessions opens sessions, leaves them without a connection and reads what
// they weigh.
func (b *bench) idleSessions(ctx context.Context) {
	backend := b.startBackend(ctx, kit.Legacy, "json")
	most := strconv.Itoa(warmSessions + b.sessions)
	e := b.startEdge(ctx, []string{backend.Addr}, "--pprof", "--max-sessions", most, "--max-sessions-per-principal", most)

	kit.Must(openSessions(ctx, e.Addr, warmSessions))
	before := weigh(ctx, e, true)
	sessions := kit.Must(openSessions(ctx, e.Addr, b.sessions))
	after := weigh(ctx, e, false)
	alive := kit.Must(countAlive(ctx, e.Addr, sessions))
	b.addMemory("an idle legacy session", before, after, alive, b.sessions, 2<<10)
}

// idleStreams opens a session for each stream, then the streams, and reads
// what these add.
func (b *bench) idleStreams(ctx context.Context, get string, streams int) {
	backend := b.startBackend(ctx, kit.Legacy, "json", "--get", get)
	const warm = 50
	most := strconv.Itoa(warm + streams)
	e := b.startEdge(ctx, []string{backend.Addr}, "--pprof", "--max-sessions", most, "--max-sessions-per-principal", most)

	sessions := kit.Must(openSessions(ctx, e.Addr, warm+streams))
	var open []*client
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	add := func(sessions []string) {
		for _, s := range sessions {
			c := kit.Must(dial(ctx, e.Addr, kit.Legacy, len(open)))
			open = append(open, c)
			kit.Check(stream(c.Client, s))
		}
	}
	add(sessions[:warm])
	before := weigh(ctx, e, true)
	add(sessions[warm:])
	after := weigh(ctx, e, false)
	seen := kit.Must(kit.CountsAt(ctx, backend.Addr))
	what := "an idle SSE stream, the backend has none (405)"
	if get == "stream" {
		what = fmt.Sprintf("an idle SSE stream, %d streams to the backend", seen.Streams)
	}
	alive := 0
	for _, c := range open[warm:] {
		if stillOpen(c.Client) {
			alive++
		}
	}
	b.addMemory(what, before, after, alive, streams, 20<<10)
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
func (b *bench) manyCalls(ctx context.Context, e kit.Era) {
	c := cell{e, e, "json", 8, false}
	backend := b.startBackend(ctx, e, c.answer)
	pass := b.startHelper(ctx, "bare", "--backend", backend.Addr)
	targets := map[string]*kit.Process{bare: pass.Process}
	if !b.floors {
		e := b.startEdge(ctx, []string{backend.Addr})
		targets[weir] = e.Process
	}
	for _, name := range []string{bare, weir} {
		p := targets[name]
		if p == nil {
			continue
		}
		row := massRow{target: name, cell: c, calls: b.mass}
		row.measure(ctx, p)
		b.report.mass = append(b.report.mass, row)
		b.say("P8, %s: %s: %.1f MiB after %d calls, %.1f MiB after %d", c, name, kit.MiB(row.half), row.calls/2, kit.MiB(row.full), row.calls)
	}
}

// afterStart is how long a process is left alone first: an edge lets go of what its start has read
// of its program, and calls are to find the pages that they need before the first look.
const afterStart = 3 * time.Second

func (row *massRow) measure(ctx context.Context, p *kit.Process) {
	f := kit.Must(openFleet(ctx, p.Addr, row.cell.client, row.cell.conns))
	defer f.hangUp()
	if !kit.Sleep(ctx, afterStart) {
		kit.Fail("%v", ctx.Err())
	}
	for _, part := range []struct {
		calls int
		read  *int64
	}{{row.calls / 2, &row.half}, {row.calls - row.calls/2, &row.full}} {
		kit.Must(f.drive(ctx, "echo", part.calls))
		*part.read = kit.Must(kit.Resident(p.PID()))
	}
	kit.Check(f.close())
}

// openSessions initializes sessions over a few connections that are closed
// when it returns, and gives their ids.
func openSessions(ctx context.Context, addr string, count int) ([]string, error) {
	ids := make([]string, count)
	return ids, kit.Spread(ctx, addr, count, 8, kit.Apart, func(c *kit.Client, i int) error {
		err := c.Begin("weir-bench")
		ids[i] = c.Session
		return err
	})
}

// countAlive pings sessions and counts those that still run.
func countAlive(ctx context.Context, addr string, sessions []string) (alive int, err error) {
	var n atomic.Int64
	err = kit.Spread(ctx, addr, len(sessions), 8, kit.Apart, func(c *kit.Client, i int) error {
		lives, err := ping(c, sessions[i])
		if lives {
			n.Add(1)
		}
		return err
	})
	return int(n.Load()), err
}

// ping reports whether a session still runs.
func ping(c *kit.Client, session string) (bool, error) {
	c.Session = session
	a, err := c.Try("POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if err != nil {
		return false, fmt.Errorf("ping: %w", err)
	}
	return a.Status == 200, nil
}

// stream opens the GET stream of a session. It returns when the head of the
// answer has come; the connection is the stream's from then on.
func stream(c *kit.Client, session string) error {
	c.Session = session
	c.Wait(handshakeLimit)
	if _, err := c.Conn.Write(c.Request("GET", "")); err != nil {
		return fmt.Errorf("GET: %w", err)
	}
	if err := c.Answer.ReadHead(c.In); err != nil {
		return fmt.Errorf("GET: %w", err)
	}
	if c.Answer.Status != 200 || c.Answer.Kind != kit.EventContent {
		return fmt.Errorf("GET: status %d, and not the event stream that was asked for", c.Answer.Status)
	}
	return nil
}

// stillOpen reports whether a stream that should be silent has not ended. What
// it says in between, a heartbeat, is read and dropped.
func stillOpen(c *kit.Client) bool {
	if c.Conn.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return false
	}
	for {
		if _, err := c.In.Discard(max(c.In.Buffered(), 1)); err != nil {
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
func weigh(ctx context.Context, e *kit.Edge, first bool) (w weight) {
	if first {
		w.live = liveBytes(ctx, e)
	}
	w.resident = kit.Must(kit.Settled(ctx, e.PID(), 100*time.Millisecond, 3*time.Second))
	if !first {
		w.live = liveBytes(ctx, e)
	}
	return w
}

// liveBytes asks the edge's own profile for its heap after a collection and
// its stacks; 0 when it has none.
func liveBytes(ctx context.Context, e *kit.Edge) int64 {
	status, text := e.Get(ctx, "/debug/pprof/heap?gc=1&debug=1", 20*time.Second)
	if status != 200 {
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
