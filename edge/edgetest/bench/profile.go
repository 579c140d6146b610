package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// takeProfile keeps the load of the P1 modern cell, or of P2 when that is the
// case of the run, on an edge while it writes its CPU profile, and prints the
// ten largest entries.
func (b *bench) takeProfile(ctx context.Context, stdout io.Writer) error {
	c := cell{kit.Modern, kit.Modern, "json", 8, b.only["p2"]}
	backend, err := b.startBackend(ctx, c.backend, c.answer)
	if err != nil {
		return err
	}
	defer backend.Stop()
	e, token, stop, err := b.startCell(ctx, c, backend.Addr, "--pprof")
	if err != nil {
		return err
	}
	defer stop()
	f, err := openFleetAs(ctx, token, e.Addr, c.client, c.conns)
	if err != nil {
		return e.Fault(err)
	}
	defer f.hangUp()
	if _, err := f.drive(ctx, "echo", 2000); err != nil {
		return e.Fault(err)
	}

	var text []byte
	var failed error
	done := make(chan struct{})
	go func() { // ends with the answer, or with its limit
		defer close(done)
		var status int
		status, text = e.Get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", b.seconds), time.Duration(b.seconds+20)*time.Second)
		if status != 200 {
			failed = fmt.Errorf("profile: HTTP %d", status)
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			if _, err = f.drive(ctx, "echo", 2000); err != nil {
				<-done
				running = false
			}
		}
	}
	if err := errors.Join(err, failed); err != nil {
		return e.Fault(err)
	}
	if err := os.WriteFile(b.profile, text, 0o644); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-flat", "-nodecount=10", b.weir, b.profile).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go tool pprof: %w: %s", err, out)
	}
	_, err = fmt.Fprintf(stdout, "CPU profile of the edge: %s\n\n%s\n", c, out)
	return err
}
