package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// takeProfile keeps the load of the P1 modern cell, or of P2 when that is the
// case of the run, of P2 with tokenExchange when credentials are, or of P12a's
// composite of one step when P12 is, on an edge while it writes its CPU profile.
func (b *bench) takeProfile(ctx context.Context, stdout io.Writer) {
	if b.only["p12"] {
		e, c := b.startWorkflows(ctx, "--pprof")
		b.profiled(ctx, stdout, e, "composites of one step", func() {
			for range 500 {
				c.must(ctx, "one")
			}
		})
		return
	}
	c := cell{kit.Modern, kit.Modern, "json", 8, b.only["p2"] || b.only["credentials"]}
	backend := b.startBackend(ctx, c.backend, c.answer)
	start := b.startCell
	if b.only["credentials"] {
		service := kit.Must(startTokenService())
		defer service.close()
		start = func(ctx context.Context, _ cell, backend string, flags ...string) (*kit.Edge, string, func()) {
			return b.startChain(ctx, exchanging[0].in(service), backend, flags...)
		}
	}
	e, token, end := start(ctx, c, backend.Addr, "--pprof")
	defer end()
	f := kit.Must(openFleetAs(ctx, token, e.Addr, c.client, c.conns))
	defer f.hangUp()
	b.profiled(ctx, stdout, e, c.String(), func() { kit.Must(f.drive(ctx, "echo", 2000)) })
}

// profiled writes the CPU profile of an edge under a load, and prints its largest entries.
func (b *bench) profiled(ctx context.Context, stdout io.Writer, e *kit.Edge, of string, load func()) {
	load()
	type answer struct {
		status int
		text   []byte
	}
	done := make(chan answer, 1)
	go func() { // ends with the answer, or with its limit
		status, text := e.Get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", b.seconds), time.Duration(b.seconds+20)*time.Second)
		done <- answer{status, text}
	}()
	var a answer
	for a.status == 0 {
		load()
		select {
		case a = <-done:
			if a.status != 200 {
				kit.Fail("profile: HTTP %d", a.status)
			}
		default:
		}
	}
	kit.Check(os.WriteFile(b.profile, a.text, 0o644))
	out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-flat", "-nodecount=10", b.weir, b.profile).CombinedOutput()
	if err != nil {
		kit.Fail("go tool pprof: %w: %s", err, out)
	}
	kit.Must(fmt.Fprintf(stdout, "CPU profile of the edge: %s\n\n%s\n", of, out))
}
