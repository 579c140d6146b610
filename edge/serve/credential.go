package serve

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/outgoing"
)

// attached is what the requests to a backend are sent with, open.
type attached struct {
	to   outgoing.Attach   // nil for nothing
	own  func(string) bool // not nil with to
	done func()            // ends what it holds
}

// openCredential opens what a backend is sent besides its calls. A secret that
// is not there, or cannot stand in a header, is an error, also for a backend
// that is open already: a set is served with sound secrets or not at all.
func openCredential(log *slog.Logger, server string, b compile.Backend, secrets edge.Secrets) (attached, error) {
	var after []func()
	a := attached{done: func() {
		for _, f := range slices.Backward(after) {
			f()
		}
	}}
	var err error
	if a.to, a.own, err = b.Outgoing.Open(edge.Env{Log: log, Secrets: secrets, Defer: func(f func()) { after = append(after, f) }}); err != nil {
		a.done()
		return attached{}, fmt.Errorf("server %s: backend %s: %w", server, b.Name, err)
	}
	return a, nil
}
