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
	b.try(ctx, "P9, floor", b.startFloor)
	b.tryEdge(ctx, "P9", func(ctx context.Context) { b.startEdges(ctx, false) })
	b.tryEdge(ctx, "P9, black hole", func(ctx context.Context) { b.startEdges(ctx, true) })
}

// startFloor times the bare proxy, from its start until it says that it
// listens.
func (b *bench) startFloor(ctx context.Context) {
	row := startRow{what: "the bare proxy listens"}
	for range b.starts {
		begin := time.Now()
		p := b.startHelper(ctx, "bare", "--backend", "127.0.0.1:9")
		row.ready = append(row.ready, kit.Millis(time.Since(begin)))
		p.Stop()
	}
	b.addStart(row)
}

// startEdges times the edge before backends that answer, or before the same
// with one that takes connections and never answers.
func (b *bench) startEdges(ctx context.Context, blackHole bool) {
	p := b.startBackend(ctx, kit.Both, "json", "--addresses", strconv.Itoa(b.backends))
	addrs := p.addrs
	row := startRow{what: fmt.Sprintf("the edge is ready, %d backend(s)", len(addrs)), bar: 150}
	if blackHole {
		// The kernel completes the handshake of a connection that nobody
		// accepts, so this one takes requests and says nothing.
		ln := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
		defer ln.Close()
		addrs[len(addrs)-1] = ln.Addr().String()
		row.what += ", one of them black-holed"
	}
	for range b.starts {
		begin := time.Now()
		var e *kit.Edge
		err := kit.Try(func() { e = b.startEdge(ctx, addrs) })
		if errors.Is(err, kit.ErrNotReady) {
			b.started[len(b.started)-1].Stop()
			row.late++
			continue
		}
		kit.Check(err)
		row.ready = append(row.ready, kit.Millis(e.Ready))
		if !blackHole || b.backends > 1 { // there is one that can be called
			callOnce(ctx, e, b.backends)
			row.first = append(row.first, kit.Millis(time.Since(begin)))
		}
		e.Stop()
	}
	b.addStart(row)
}

// callOnce calls the first of some backends.
func callOnce(ctx context.Context, e *kit.Edge, backends int) {
	var names []string
	if backends > 1 {
		names = prefixes(1, backends)
	}
	f := kit.Must(openFleet(ctx, e.Addr, kit.Modern, 1, names...))
	defer f.hangUp()
	kit.Must(f.drive(ctx, "echo", 1))
}

func (b *bench) addStart(row startRow) {
	b.report.starts = append(b.report.starts, row)
	b.say("P9: %s: %.1f ms, median of %d, %d too late", row.what, median(row.ready), len(row.ready), row.late)
}
