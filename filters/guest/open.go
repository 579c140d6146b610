package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/status"
	"github.com/weir-edge/weir/sdk/abi"
)

// Open opens the filters of a server in order and returns the functions that
// ask them; nil if there are none. It fails if a module cannot be loaded,
// does not match its digest, needs a grant it lacks or refuses its
// configuration. Everything opened is closed when the plan retires.
func (k *Cache) Open(server string, filters []Loaded, o Options, env edge.Env) (*edge.Guest, []func() status.Filter, error) {
	h := &openFilters{options: o}
	g := &edge.Guest{}
	var told []func() status.Filter
	var shown *events
	env.Defer(func() { shown.stop() }) // before the programs that it asks are closed
	for _, l := range filters {
		p, release, err := k.open(server, o.Store, l, env)
		if err != nil {
			return nil, nil, err
		}
		env.Defer(release)
		credentials, err := l.part.spec.openCredentials(env)
		if err != nil {
			return nil, nil, err
		}
		told = append(told, p.status)
		for hook, want := range p.wants {
			if want == nil {
				continue
			}
			h.at[hook] = append(h.at[hook], subscriber{program: p, want: want, hall: h, credentials: credentials, kept: &held{}})
			for _, name := range want.headers {
				if !slices.Contains(g.Headers, name) {
					g.Headers = append(g.Headers, name)
				}
			}
		}
	}
	if len(h.at[abi.OverrideTools])+len(h.at[abi.OverridePrompts])+len(h.at[abi.OverrideResources]) > 0 {
		g.Overrides = newOverrides(h)
		h.fixes = len(h.at[abi.OverrideTools]) > 0
	}
	h.guards = len(h.at[abi.OnNotification])+len(h.at[abi.OnQuestion]) > 0 // who holds is asked about questions, too
	if h.guards {
		g.Beside = h.beside
	}
	if h.fixes || h.guards || len(h.at[abi.OnCallRequest])+len(h.at[abi.OnCallResponse])+len(h.at[abi.OnMessage]) > 0 {
		g.Filter = func(next edge.Handler) edge.Handler {
			return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
				return h.handle(ctx, x, next)
			})
		}
	}
	if len(h.at[abi.OnHTTPRequest]) > 0 {
		g.HTTPRequest = h.httpRequest
	}
	if len(h.at[abi.OnHTTPResponse]) > 0 {
		g.HTTPResponse = h.httpResponse
	}
	if len(h.at[abi.Authenticate]) > 0 {
		if !o.Guarded {
			return nil, nil, fmt.Errorf("filter %q: hook authenticate: the server lets everybody in: set incomingAuth of type oidc, or use another %s", h.at[abi.Authenticate][0].spec.Name, h.at[abi.Authenticate][0].spec.instead("script", "module"))
		}
		g.Authenticate = h.authenticate
	}
	if len(h.at[abi.MapIdentity]) > 0 {
		g.MapIdentity = h.identify
	}
	if len(h.at[abi.OutgoingAuth])+len(h.at[abi.OnUpstreamRequest]) > 0 {
		g.Upstream = h.upstream
	}
	if len(h.at[abi.OnSessionStart]) > 0 {
		g.SessionStart = h.sessionStart
		h.beginners = beginners(h.at[abi.OnSessionStart])
		g.Beginners = h.beginners
	}
	if len(h.at[abi.OnSessionEnd]) > 0 {
		g.SessionEnd = h.sessionEnd
	}
	if list := h.at[abi.OnEvent]; len(list) > 0 {
		if !o.Audited {
			return nil, nil, fmt.Errorf("filter %q: hook on_event: the server keeps no records: turn spec.config.audit on, or use another %s", list[0].spec.Name, list[0].spec.instead("script", "module"))
		}
		shown = startEvents(list)
		g.Event = shown.take
	}
	return g, told, nil
}

// beginners names programs by all that decides what they say of a session: the
// same at every replica that runs them, and another after a reload that changes
// one.
func beginners(list []subscriber) string {
	h := sha256.New()
	for _, a := range list {
		s := a.spec
		parts := slices.Concat([]string{s.Name, a.digest, s.Config, a.keys, string(s.Mode)}, s.Grants, s.HTTP, s.Tools)
		for _, part := range append(parts, "") {
			fmt.Fprintf(h, "%d:%s", len(part), part)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
