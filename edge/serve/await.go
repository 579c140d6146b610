package serve

import (
	"context"
	"time"
)

// Await waits until each backend of a server has said what it offers, or has failed to, and
// for scripts until their interpreter is compiled; at most until ctx ends. What is listed
// before may be less, which is no fault to who asks again.
func Await(ctx context.Context, e *Edge, server string, scripts bool) {
	if scripts {
		_ = e.world.scripting.Ready(ctx) // a script is told the error
	}
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for s := e.live.Load().servers[server]; s != nil && s.Book != nil && s.pending(); {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// pending reports whether a backend has yet to say what it offers.
func (s *server) pending() bool {
	failed := map[string]bool{}
	for _, b := range s.Backends {
		failed[b.Name] = b.Status().Message != ""
	}
	for _, one := range s.Book.Status() {
		if one.Missing && one.Message == "" && !failed[one.Backend] {
			return true
		}
	}
	return false
}
