package serve

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/audit"
)

// A backend may be a server that the process starts. Who starts it is told to the edge: it
// knows no sandbox. One of a digest is started once for all servers that have it behind
// them, and goes on over reloads as long as one of them has.

// Starting is a workload that is to be started when somebody needs it.
type Starting struct {
	Workload   compile.Workload
	Digest     string // hexadecimal, of all of it
	Secrets    edge.Secrets
	MaxMessage int // bytes of one message, either way
	Log        *slog.Logger

	// Record records an event in the audit logs of the servers that the workload is behind,
	// as they are then. It does not wait.
	Record func(audit.Event)
}

// WithWorkloads sets what keeps the workloads of plans. start returns at once, and starts
// nothing before a stream is opened; it fails for what waiting does not cure.
func WithWorkloads(start func(Starting) (backend.Local, error)) Option {
	return func(g *given) { g.start = start }
}

// Login is a user's login to a server at a URL.
type Login struct {
	URL string // of the server
	How v1beta1.RemoteAuth
}

// WithLogins sets what sends servers the login of a user. It asks no network, and fails for
// what waiting does not cure.
func WithLogins(open func(Login, edge.Env) (*edge.Credential, error)) Option {
	return func(g *given) { g.login = open }
}

// errNoLogins is the error of a plan with a login in a process that has none.
var errNoLogins = errors.New("this process has no logins of users")

// credential opens what a backend is sent besides calls.
func (o *opening) credential(b backing, env edge.Env) (*edge.Credential, error) {
	c, err := b.Outgoing.Open(env)
	if err != nil || b.Login == nil {
		return c, err
	}
	if o.edge.given.login == nil {
		return nil, errNoLogins
	}
	l, err := o.edge.given.login(Login{b.URL, *b.Login}, env)
	if err != nil {
		return nil, err
	}
	return l.With(c), nil
}

// errNoWorkloads is the error of a plan with a workload in a process that starts none.
var errNoWorkloads = errors.New("this process starts no workloads")

// lend is a workload that several backends share, as one of them has it. Closing it gives
// it back.
func lend(one backend.Local, release func()) backend.Local {
	switch one := one.(type) {
	case backend.OverLines:
		return lines{one, release}
	case backend.OverHTTP:
		return served{one, release}
	}
	return one
}

type lines struct {
	backend.OverLines
	release func()
}

func (l lines) Close() error {
	l.release()
	return nil
}

type served struct {
	backend.OverHTTP
	release func()
}

func (l served) Close() error {
	l.release()
	return nil
}

// startable reports what keeps a workload from being started.
func (o *opening) startable(w *compile.Workload) error {
	if w != nil && o.edge.given.start == nil {
		return errNoWorkloads
	}
	return nil
}

// either is secrets as they are now, and where there is none yet as a plan has it that is
// being opened.
type either struct{ now, soon edge.Secrets }

func (s either) Secret(ctx context.Context, name, key string) (edge.Secret, error) {
	v, err := s.now.Secret(ctx, name, key)
	if err != nil {
		return s.soon.Secret(ctx, name, key)
	}
	return v, nil
}

// record records an event of a workload. There is nothing live before the first plan.
func (l *live) record(workload string, event audit.Event) {
	if l == nil {
		return
	}
	for _, s := range l.servers {
		if s.record != nil && slices.ContainsFunc(s.Backends, func(b *backend.Backend) bool { return b.Name == workload }) {
			s.record.Write(event)
		}
	}
}

// workload returns what keeps a workload of the plan, running already or new.
func (o *opening) workload(w *compile.Workload) (backend.Local, error) {
	e := o.edge
	digest := digestOf(w)
	one, release, err := e.world.workloads.Get(digest, func() (backend.Local, func(), error) {
		local, err := e.given.start(Starting{Workload: *w, Digest: hex.EncodeToString([]byte(digest)), Secrets: either{e.world.secrets, o.secrets}, MaxMessage: e.settings.MaxMessage, Log: e.log, Record: func(event audit.Event) { e.live.Load().record(w.Name, event) }})
		if err != nil {
			return nil, nil, err
		}
		return local, func() {
			if err := local.Close(); err != nil {
				e.log.Warn("a workload did not end in order", "workload", w.Name, "error", err)
			}
		}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	return lend(one, release), nil
}

// Alone returns the backend of a server that has one alone, nil for no such server, and the
// lists of the server, nil where they are the backend's.
func (e *Edge) Alone(server string) (*backend.Backend, *catalog.Book) {
	if l := e.live.Load(); l != nil && l.servers[server] != nil && len(l.servers[server].Backends) == 1 {
		return l.servers[server].Backends[0], l.servers[server].Book
	}
	return nil, nil
}
