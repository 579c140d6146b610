package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/port"
)

// start starts an edge before backends, with the flags of the row and those of
// the command line, and waits until it is ready.
func (s *storm) start(ctx context.Context, backend string, flags ...string) *kit.Edge {
	return s.startPlan(ctx, kit.PlanOf(backend), flags...)
}

// startPlan is start for a plan.
func (s *storm) startPlan(ctx context.Context, p kit.Plan, flags ...string) *kit.Edge {
	return s.startOn(ctx, s.write(p), flags...)
}

// startOn is start for a manifest that is written already.
func (s *storm) startOn(ctx context.Context, manifest string, flags ...string) *kit.Edge {
	return s.startAt(ctx, manifest, kit.Must(kit.FreeSeat()), flags...)
}

// startAt is start at given addresses.
func (s *storm) startAt(ctx context.Context, manifest string, at kit.Seat, flags ...string) *kit.Edge {
	e := s.launch(manifest, at, flags...)
	kit.Check(e.AwaitReady(ctx, e.Admin))
	return e
}

// launch starts the process and does not wait.
func (s *storm) launch(manifest string, at kit.Seat, flags ...string) *kit.Edge {
	flags = append(append([]string{"--log-level", "warn"}, flags...), s.flags...)
	e := kit.Must(kit.Launch(s.weir, manifest, at, s.environment, flags...))
	s.edges = append(s.edges, e)
	s.later(e.Stop)
	return e
}

// write writes a plan into a folder of its own, and returns the file.
func (s *storm) write(p kit.Plan) string { return kit.Must(p.Write(s.dir)) }

// newBackend starts a backend, which ends with the row. It is set up before
// anything connects.
func (s *storm) newBackend(e kit.Era, setUp func(*kit.Backend)) *kit.Backend {
	b := kit.NewBackend(e)
	if setUp != nil {
		setUp(b)
	}
	// The port is none of those that the system hands out for connections, so
	// that nobody has it while the backend is down.
	kit.Must(b.Listen(kit.Must(port.Free())))
	s.later(b.Close)
	return b
}

// newIssuer starts an identity provider, which ends with the row. before is the
// address that the edge finds it at; nil for its own.
func (s *storm) newIssuer(before func(addr string) (string, error)) *issuer.Issuer {
	i := kit.Must(issuer.New(issuer.ES256, kit.ServerName, before))
	s.later(i.Leave)
	return i
}

// mintAll signs several tokens for one subject: a session is its owner's,
// whichever of them it shows.
func mintAll(i *issuer.Issuer, n int) (all []string, err error) {
	for range n {
		token, err := i.Token("client", nil)
		if err != nil {
			return nil, err
		}
		all = append(all, token)
	}
	return all, nil
}

// toolOf is what the tool of a backend is called where names are prefixed.
func toolOf(backend int) string { return kit.ToolOf(backend, "work") }

// operational is the line of a plan with config.operational.
func operational(text string) string { return "    operational: " + text + "\n" }

// sharing is a plan of one backend with a Redis that the edge shares, and a rate
// limit that no run reaches.
func sharing(backend, store string) kit.Plan {
	p := kit.PlanOf(backend)
	p.Spec = fmt.Sprintf("  sessionStorage: {provider: kvstore, address: %q}\n", store)
	p.Config = "    rateLimiting: {shared: {maxTokens: 1000000000, refillPeriod: 1s}}\n"
	return p
}

// settled is the resident memory of an edge that has come to rest.
func settled(ctx context.Context, e *kit.Edge) int64 {
	return kit.Must(kit.Settled(ctx, e.PID(), 200*time.Millisecond, 5*time.Second))
}

// peak keeps the largest resident memory of an edge until the function that it
// returns is called, or until the row ends.
func (s *storm) peak(e *kit.Edge) (stop func() int64) {
	stop = kit.Peak(e.PID(), 200*time.Millisecond)
	s.later(func() { stop() })
	return stop
}

// folder is a new one, which is there until the end of the run.
func (s *storm) folder(name string) string { return kit.Must(os.MkdirTemp(s.dir, name)) }

// flagsOfHandOver are those of edges that take over from each other.
func flagsOfHandOver(manifest string) []string {
	return []string{"--hand-over", filepath.Join(filepath.Dir(manifest), "h"), "--drain-timeout", drainTimeout.String()}
}
