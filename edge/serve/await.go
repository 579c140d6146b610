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
	await(ctx, e.live.Load().servers[server], false)
}

// localsWait bounds how long the taking over from another process waits for local servers. The
// other one waits longer, which serves meanwhile.
const localsWait = 30 * time.Second

// awaitLocals waits until each local server has said what it offers, or has failed to: calls that
// come before fail, where the process before has it running.
func awaitLocals(ctx context.Context, e *Edge) {
	ctx, cancel := context.WithTimeout(ctx, localsWait)
	defer cancel()
	for name, s := range e.live.Load().servers {
		if s.Book != nil && s.pending(true) {
			e.log.Info("local servers start before this process takes over", "server", name, "at most", localsWait.String())
			await(ctx, s, true)
		}
	}
}

// await waits until each backend of a server, or each local one, has said what it offers, or has
// failed to.
func await(ctx context.Context, s *server, local bool) {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for s != nil && s.Book != nil && s.pending(local) {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// pending reports whether a backend has yet to say what it offers; a local one alone, where local
// says so.
func (s *server) pending(local bool) bool {
	failed := map[string]bool{}
	for _, b := range s.Backends {
		failed[b.Name] = b.Status().Message != "" || local && b.Local == nil
	}
	for _, one := range s.Book.Status() {
		if one.Missing && one.Message == "" && !failed[one.Backend] {
			return true
		}
	}
	return false
}
