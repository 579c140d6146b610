package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/mount"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/session"
	"github.com/weir-edge/weir/filters/telemetry"
)

// live is the servers of one plan, open. It never changes: a reload opens another and
// replaces it. Only exchanges under way hold one that has been replaced.
type live struct {
	servers map[string]*server
	hosts   map[string]*session.Host // the servers as their sessions see them
	main    *server                  // the one that answers on /mcp; nil for none
	release map[string]func()        // gives them back, by name
	secrets *secret.Draft

	mounts  mount.Table           // what is served beside MCP
	metrics *telemetry.Exposition // for the admin address
}

// needed returns an error for every secret that a plan needs and cannot have. It looks at
// those of servers that go on, too.
func needed(plan *compile.Plan, secrets edge.Secrets) error {
	var missing []error
	for _, n := range plan.Needs {
		if _, err := secrets.Secret(context.Background(), n.Name, n.Key); err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", n, err))
		}
	}
	return errors.Join(missing...)
}

// describe mounts the documents that tell clients where to get a token
// (RFC 9728 §3.1: at the well-known path put before that of the resource).
func (l *live) describe() {
	const wellKnown = "/.well-known/oauth-protected-resource"
	for name, s := range l.servers {
		if len(s.document) == 0 {
			continue
		}
		paths := []string{"/servers/" + name + "/mcp"}
		if s == l.main {
			paths = append(paths, "/mcp", "")
		}
		for _, path := range paths {
			l.mounts.Add(edge.Mount{Prefix: wellKnown + path, Handler: described(s.document), MaxBody: mount.Ignored})
		}
	}
}

// server returns the server of a path such as /servers/NAME/mcp, and the rest
// of the path; nil for none.
func (l *live) server(path string) (s *server, rest string) {
	switch path {
	case "/mcp", "/sse", "/messages":
		return l.main, path
	}
	path, ok := strings.CutPrefix(path, "/servers/")
	i := strings.IndexByte(path, '/')
	if !ok || i < 0 {
		return nil, ""
	}
	return l.servers[path[:i]], path[i:]
}

// all returns the servers, sorted by name.
func (l *live) all() []*server {
	var all []*server
	for _, name := range l.names() {
		all = append(all, l.servers[name])
	}
	return all
}

// names returns the names of the servers, sorted.
func (l *live) names() []string {
	var all []string
	for name := range l.servers {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// open opens the servers of a plan. What is made from the same as before goes on as it
// is, with its connections, sessions and caches.
func (e *Edge) open(plan *compile.Plan, before *live) (_ *live, err error) {
	if len(plan.Servers) == 0 {
		return nil, errors.New("a plan without servers cannot be served")
	}
	next := &live{servers: make(map[string]*server, len(plan.Servers)), hosts: make(map[string]*session.Host, len(plan.Servers)),
		mounts: mount.Table{Log: e.log, Running: &e.world.running}, release: make(map[string]func(), len(plan.Servers)), secrets: e.world.secrets.Draft(plan.Secrets)}
	defer func() {
		if err != nil {
			next.close()
		}
	}()
	if err := needed(plan, next.secrets); err != nil {
		return nil, err
	}
	for _, p := range plan.Servers {
		o := opening{edge: e, plan: p, secrets: next.secrets, main: len(plan.Servers) == 1 || p.Name == e.settings.DefaultServer}
		if before != nil {
			o.was = before.servers[p.Name]
		}
		s, release, err := o.open()
		if err != nil {
			return nil, fmt.Errorf("server %s: %w", p.Name, err)
		}
		next.servers[p.Name], next.hosts[p.Name], next.release[p.Name] = s, s.host(), release
	}
	if name := e.settings.DefaultServer; name != "" {
		if next.main = next.servers[name]; next.main == nil {
			return nil, fmt.Errorf("--default-server: there is no server %q", name)
		}
	} else if len(plan.Servers) == 1 {
		next.main = next.servers[plan.Servers[0].Name]
	}
	next.describe()
	if err := e.expose(next); err != nil {
		return nil, err
	}
	return next, nil
}

// close gives the servers back, side by side: each may have to wait for a log or a
// collector that takes nothing. What another plan holds goes on.
func (l *live) close() {
	var work sync.WaitGroup
	for _, release := range l.release {
		work.Go(release)
	}
	work.Wait()
}
