package doctor

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/source"
)

// Unsent warns of what the edge could not send a backend or an identity provider: a secret
// with a line break, say, or a variable that is not set here; and of what cannot be a secret or
// a key of an authorization server. There is none without a plan, and none for want of a secret
// that is not there: of that Result.Missing warns.
func Unsent(r *source.Result, secrets edge.Secrets) source.Findings {
	var out source.Findings
	if r.Plan == nil {
		return nil
	}
	for _, s := range r.Plan.Servers {
		warn := func(path, format string, args ...any) {
			for _, kind := range []string{"VirtualMCPServer", "MCPServer", "MCPRemoteProxy"} { // any of which is a server of its name
				f := r.Locate(compile.Finding{
					Severity: compile.Warning, Object: compile.Ref{Kind: kind, Name: s.Name}, Path: path,
					Message: fmt.Sprintf(format+"; it has to be right when the edge starts", args...),
				})
				if f.Index >= 0 {
					out = append(out, f)
					return
				}
			}
		}
		if s.Incoming != nil {
			looked := &lookups{Secrets: secrets}
			if err := s.Incoming.Sound(edge.Env{Secrets: looked}); err != nil && !looked.missed {
				warn("spec.config.incomingAuth.oidc.clientSecretEnv", "%v", err)
			}
		}
		for _, b := range s.Backends {
			var after []func()
			looked := &lookups{Secrets: secrets}
			_, err := b.Outgoing.Open(edge.Env{Log: slog.New(slog.DiscardHandler), Secrets: looked, Upstreams: edge.Nobody{}, Defer: func(f func()) { after = append(after, f) }})
			for _, f := range after {
				f()
			}
			if err != nil && !looked.missed {
				warn("", "backend %s: %v", b.Name, err)
			}
		}
	}
	for _, n := range r.Report.Needs {
		value, err := secrets.Secret(context.Background(), n.Name, n.Key)
		if err != nil {
			continue
		}
		if err := authserver.Sound(n.Path, []byte(value)); err != nil {
			out = append(out, r.Locate(compile.Finding{
				Severity: compile.Warning, Object: n.Object, Path: n.Path,
				Message: fmt.Sprintf("secret %s/%s: %v; it has to be right when the edge starts", n.Name, n.Key, err),
			}))
		}
	}
	return out
}

// lookups are secrets that note whether one was looked for that is not there.
type lookups struct {
	edge.Secrets
	missed bool
}

// Secret is edge.Secrets.Secret.
func (l *lookups) Secret(ctx context.Context, name, key string) (edge.Secret, error) {
	v, err := l.Secrets.Secret(ctx, name, key)
	l.missed = l.missed || err != nil
	return v, err
}
