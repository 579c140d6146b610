package serve

import "context"

// Await waits until each backend of a server has said what it offers, or has failed to, and
// for scripts until their interpreter is compiled; at most until ctx ends. What is listed
// before may be less, which is no fault to who asks again.
func Await(ctx context.Context, e *Edge, server string, scripts bool) {
	if scripts {
		_ = e.world.scripting.Ready(ctx) // a script is told the error
	}
	if s := e.live.Load().servers[server]; s != nil {
		s.await(ctx, false)
	}
}
