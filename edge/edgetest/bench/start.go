package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// startRow is one line of P9. Times are milliseconds.
type startRow struct {
	what  string
	ready []float64 // from the start of the process until it is ready, per start
	first []float64 // until the first call was answered; nil where none was made
	late  int       // starts that were not ready in time
	bar   float64   // 0 for a floor
}

// runStart is P9: the time from the start of the process until it is ready.
func (b *bench) runStart(ctx context.Context) {
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"P9, floor", b.startFloor},
		{"P9", func(ctx context.Context) error { return b.startEdges(ctx, false) }},
		{"P9, black hole", func(ctx context.Context) error { return b.startEdges(ctx, true) }},
	} {
		if ctx.Err() != nil || b.floors && part.name != "P9, floor" {
			continue
		}
		if err := part.run(ctx); err != nil {
			b.fail(part.name, err)
		}
	}
}

// startFloor times the bare proxy, from its start until it says that it
// listens.
func (b *bench) startFloor(ctx context.Context) error {
	row := startRow{what: "the bare proxy listens"}
	for range b.starts {
		begin := time.Now()
		p, err := startHelper(ctx, b.procs, "bare", "--backend", "127.0.0.1:9")
		if err != nil {
			return err
		}
		row.ready = append(row.ready, kit.Millis(time.Since(begin)))
		p.Stop()
	}
	b.addStart(row)
	return nil
}

// startEdges times the edge before backends that answer, or before the same
// with one that takes connections and never answers.
func (b *bench) startEdges(ctx context.Context, blackHole bool) error {
	p, err := b.startBackend(ctx, kit.Both, "json", "--addresses", strconv.Itoa(b.backends))
	if err != nil {
		return err
	}
	defer p.Stop()
	addrs := p.addrs
	row := startRow{what: fmt.Sprintf("the edge is ready, %d backend(s)", len(addrs)), bar: 150}
	if blackHole {
		// The kernel completes the handshake of a connection that nobody
		// accepts, so this one takes requests and says nothing.
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer ln.Close()
		addrs[len(addrs)-1] = ln.Addr().String()
		row.what += ", one of them black-holed"
	}
	for range b.starts {
		begin := time.Now()
		e, err := b.startEdge(ctx, addrs)
		if errors.Is(err, kit.ErrNotReady) {
			row.late++
			continue
		}
		if err != nil {
			return err
		}
		row.ready = append(row.ready, kit.Millis(e.Ready))
		if !blackHole || b.backends > 1 { // there is one that can be called
			err = callOnce(ctx, e, b.backends)
			row.first = append(row.first, kit.Millis(time.Since(begin)))
		}
		e.Stop()
		if err != nil {
			return e.Fault(err)
		}
	}
	b.addStart(row)
	return nil
}

// callOnce calls the first of some backends.
func callOnce(ctx context.Context, e *kit.Edge, backends int) error {
	var names []string
	if backends > 1 {
		names = prefixes(1, backends)
	}
	f, err := openFleet(ctx, e.Addr, kit.Modern, 1, names...)
	if err != nil {
		return err
	}
	defer f.hangUp()
	_, err = f.drive(ctx, "echo", 1)
	return err
}

func (b *bench) addStart(row startRow) {
	b.report.starts = append(b.report.starts, row)
	b.say("P9: %s: %.1f ms, median of %d, %d too late", row.what, median(row.ready), len(row.ready), row.late)
}
