//go:build unix

package kv_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
)

// load is what calls at a steady rate saw.
type load struct {
	mu    sync.Mutex
	took  []time.Duration
	fails int
	wrong []error // that are not of a store that is away
}

func (l *load) p99() time.Duration {
	slices.Sort(l.took)
	return l.took[len(l.took)*99/100]
}

// run makes 1,000 calls a second, whatever becomes of them.
func run(t *testing.T, s edge.Store, during time.Duration) *load {
	t.Helper()
	l := &load{}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var all sync.WaitGroup
	for end := time.Now().Add(during); time.Now().Before(end); <-tick.C {
		all.Go(func() {
			began := time.Now()
			_, _, err := s.Take(context.Background(), edge.Bucket{Key: "rl:{load}", Capacity: 1 << 30, Refill: time.Second})
			took := time.Since(began)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.took = append(l.took, took)
			var e *edge.Error
			switch {
			case err == nil:
			case errors.As(err, &e) && e.Kind == edge.Overload && e.After > 0:
				l.fails++
			default:
				l.wrong = append(l.wrong, err)
			}
		})
	}
	all.Wait()
	return l
}
