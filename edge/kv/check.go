package kv

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-edge/weir/edge"
)

// LookAt says whether a Redis answers, does all that calls may ask of it, and
// does so within slow. Options.Timeout is how long the look may wait for it.
func LookAt(ctx context.Context, o Options, slow time.Duration) edge.Finding {
	const next = "see that a Redis listens there, that the user and password are its own, and that it takes values; edge/kv/README.md says what Weir needs of it"
	redis, err := Redis(o)
	if err != nil {
		return edge.Problem(edge.ClassStore, next, "%v", err)
	}
	defer redis.Close()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for redis.Ready() != nil {
		select {
		case <-again.C:
		case <-ctx.Done():
			return edge.Problem(edge.ClassStore, next, "%v", redis.Ready())
		}
		if redis.State().Open { // it has been tried often enough
			return edge.Problem(edge.ClassStore, next, "%v", redis.Ready())
		}
	}
	if err := redis.Check(ctx); err != nil {
		return edge.Problem(edge.ClassStore, next, "%v", err)
	}
	best := o.Timeout
	for range 5 {
		began := time.Now()
		if _, err := redis.Get(ctx, "doctor"); err != nil {
			return edge.Problem(edge.ClassStore, next, "%v", err)
		}
		best = min(best, time.Since(began))
	}
	if best > slow {
		return edge.Problem(edge.ClassStore, "have it nearer, or raise --store-timeout", "it answers after %s, and the edge waits for %s", best.Round(time.Millisecond), slow)
	}
	return edge.Fine(fmt.Sprintf("answers after %s", best.Round(100*time.Microsecond)))
}
