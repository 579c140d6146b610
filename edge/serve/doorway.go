package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mount"
)

// A process has one door of its own, which the settings describe, and those of the plan.
// Each has addresses and paths of its own. All of them share connections, limits, sessions
// and backends; a reload opens those that are new, closes those that are gone, and leaves
// the others alone.

// doorway is a door of a plan, open: where its clients come in, and what its paths lead to.
// It never changes.
type doorway struct {
	plan      compile.Door
	entrances []*door.Entrance
	servers   map[string]*server
	main      *server     // the one that answers on /mcp; nil for none
	mounts    mount.Table // what is served beside MCP
}

// nowhere is the door of a request whose own has just been closed.
var nowhere = &doorway{}

// server returns the server of a path such as /servers/NAME/mcp, and the rest of the path;
// nil for none.
func (d *doorway) server(path string) (s *server, rest string) {
	switch path {
	case "/mcp", "/sse", "/messages":
		return d.main, path
	}
	path, ok := strings.CutPrefix(path, "/servers/")
	i := strings.IndexByte(path, '/')
	if !ok || i < 0 {
		return nil, ""
	}
	return d.servers[path[:i]], path[i:]
}

// all returns the servers, sorted by name.
func (d *doorway) all() []*server {
	var all []*server
	for _, name := range slices.Sorted(maps.Keys(d.servers)) {
		all = append(all, d.servers[name])
	}
	return all
}

// describe mounts the documents that tell clients where to get a token
// (RFC 9728 §3.1: at the well-known path put before that of the resource).
func (d *doorway) describe() {
	for name, s := range d.servers {
		if len(s.document) == 0 {
			continue
		}
		paths := []string{"/servers/" + name + "/mcp"}
		if s == d.main {
			paths = append(paths, "/mcp", "")
		}
		for _, path := range paths {
			d.mounts.Add(edge.Mount{Prefix: documentAt + path, Handler: s.described(), MaxBody: mount.Ignored, AnyOrigin: true})
		}
	}
}

// loopback reports whether only this host can reach the door.
func (d *doorway) loopback() bool {
	return !slices.ContainsFunc(d.entrances, func(en *door.Entrance) bool { return !en.Loopback() })
}

// base is the URL of the door as its clients see it, without a path.
func (d *doorway) base(tls bool) string {
	if base := strings.TrimSuffix(d.plan.ExternalURL, "/"); base != "" {
		return base
	}
	if len(d.entrances) == 0 {
		return ""
	}
	if tls {
		return "https://" + d.entrances[0].Addr()
	}
	return "http://" + d.entrances[0].Addr()
}

// endpoint is the path of a server at its door.
func endpoint(server string, main bool) string {
	if main {
		return "/mcp"
	}
	return "/servers/" + server + "/mcp"
}

// ownDoor is the door of the process: it leads to all servers that no door of the plan
// leads to.
func (e *Edge) ownDoor(plan *compile.Plan) (compile.Door, error) {
	s := e.settings
	d := compile.Door{Listen: s.Listen, Hosts: s.AllowedHosts, Origins: s.AllowedOrigins, Proxies: s.TrustedProxies, ExternalURL: s.ExternalURL, Main: s.DefaultServer}
	for _, p := range plan.Servers {
		if !slices.ContainsFunc(plan.Doors, func(d compile.Door) bool { return slices.Contains(d.Servers, p.Name) }) {
			d.Servers = append(d.Servers, p.Name)
		}
	}
	switch {
	case d.Main != "" && !slices.Contains(d.Servers, d.Main):
		return d, fmt.Errorf("--default-server: there is no server %q", d.Main)
	case d.Main == "" && len(d.Servers) == 1:
		d.Main = d.Servers[0]
	}
	return d, nil
}

// openDoors gives a plan its doors: those that listen already, and new ones. Nobody comes
// in by the new ones before startDoors.
func (e *Edge) openDoors(next *live, plan *compile.Plan, before *live) error {
	next.at, next.of = make(map[*door.Entrance]*doorway), make(map[string]*doorway)
	add := func(p compile.Door, entrances []*door.Entrance) error {
		d := &doorway{plan: p, entrances: entrances, servers: make(map[string]*server, len(p.Servers)), mounts: mount.Table{Log: e.log, Running: &e.world.running}}
		next.doors = append(next.doors, d)
		for _, en := range entrances {
			next.at[en] = d
		}
		for _, name := range p.Servers {
			if next.of[name] != nil {
				return fmt.Errorf("door %s: another one leads to the server %s, too", p.Name, name)
			}
			next.of[name] = d
		}
		return nil
	}
	if e.front != nil {
		own, err := e.ownDoor(plan)
		if err == nil {
			err = add(own, []*door.Entrance{e.front})
		}
		if err != nil {
			return err
		}
	}
	kept := before.listening()
	for _, p := range plan.Doors {
		if p.Name == "" {
			return errors.New("a door of the plan has no name")
		}
		if _, err := door.ParseProxies(p.Proxies); err != nil {
			return fmt.Errorf("door %s: trusted proxies: %w", p.Name, err)
		}
		entrances := kept[placeOf(p)]
		delete(kept, placeOf(p)) // two doors cannot have one address
		if entrances == nil {
			var err error
			if entrances, err = e.openAt(p); err != nil {
				return fmt.Errorf("door %s: %w", p.Name, err)
			}
		}
		if err := add(p, entrances); err != nil {
			return err
		}
	}
	return nil
}

// placeOf tells where a door listens from where another does. Where the system chooses the
// port each door has its own.
func placeOf(p compile.Door) string {
	if strings.HasSuffix(p.Listen, ":0") {
		return p.Name + " " + p.Listen
	}
	return p.Listen
}

// listening returns the entrances of the doors of a plan, by where they listen. The
// process's own door is none of them.
func (l *live) listening() map[string][]*door.Entrance {
	all := make(map[string][]*door.Entrance)
	if l == nil {
		return all
	}
	for _, d := range l.doors {
		if d.plan.Name != "" {
			all[placeOf(d.plan)] = d.entrances
		}
	}
	return all
}

// lookUpWithin is how long the name of an address to listen on may take to be looked up.
const lookUpWithin = 5 * time.Second

// openAt opens the addresses of a door: of a name, all that it stands for.
func (e *Edge) openAt(p compile.Door) (all []*door.Entrance, err error) {
	defer func() {
		if err != nil {
			for _, en := range all {
				en.Close()
			}
		}
	}()
	host, port, err := net.SplitHostPort(p.Listen)
	if err != nil {
		return nil, fmt.Errorf("%q is not HOST:PORT: %w", p.Listen, err)
	}
	addresses := []string{host}
	if host != "" && net.ParseIP(host) == nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookUpWithin)
		addresses, err = net.DefaultResolver.LookupHost(ctx, host)
		if cancel(); err != nil {
			return nil, fmt.Errorf("address %s: %w", p.Listen, err)
		}
		if port == "0" { // the system would choose another one for each
			addresses = addresses[:1]
		}
	}
	for _, address := range addresses {
		ln, err := listenAt(net.JoinHostPort(address, port))
		if err != nil {
			return all, err
		}
		en, err := e.door.Open(ln, rulesOf(p))
		if err != nil {
			ln.Close()
			return all, err
		}
		all = append(all, en)
		if !en.Loopback() && len(p.Origins) == 0 {
			e.log.Warn("no page in a browser may use this door: no origin is allowed", "door", p.Name, "listen", en.Addr())
		}
	}
	return all, nil
}

func rulesOf(p compile.Door) door.Rules {
	return door.Rules{Hosts: p.Hosts, Origins: p.Origins, Proxies: p.Proxies}
}

// startDoors lets clients come in by the doors of a plan that are new, and by the others
// under the rules of the plan.
func (e *Edge) startDoors(next, before *live) {
	kept := before.listening()
	for _, d := range next.doors {
		if d.plan.Name == "" {
			continue // which Serve began, and whose rules are settings
		}
		for _, en := range d.entrances {
			if kept[placeOf(d.plan)] != nil {
				_ = en.Allow(rulesOf(d.plan)) // openDoors has read them
				continue
			}
			e.work.Go(func() {
				if err := en.Serve(); err != nil {
					e.log.Error("a door has failed", "door", d.plan.Name, "listen", en.Addr(), "error", err)
				}
			})
		}
	}
}

// dropDoors closes the doors of a plan that another one does not have.
func (e *Edge) dropDoors(of, but *live) {
	kept := but.listening()
	for _, d := range of.doors {
		if d.plan.Name == "" || kept[placeOf(d.plan)] != nil {
			continue
		}
		for _, en := range d.entrances {
			en.Close()
			if e.sessions == nil {
				continue
			}
			for _, o := range e.sessions.Streams.List() {
				if o.Conn().Entrance() == en {
					go o.CloseAfterCalls() // a client that does not read must not hold up the others
				}
			}
			e.each(func(x *exchange) {
				if x.Lasts && x.way.conn.Entrance() == en {
					x.Cancel()
				}
			})
		}
	}
}

// DoorAddr returns host:port of a door of the plan, the first where it has several; "" for
// no such door.
func (e *Edge) DoorAddr(name string) string {
	if l := e.live.Load(); l != nil {
		for _, d := range l.doors {
			if d.plan.Name == name && len(d.entrances) > 0 {
				return d.entrances[0].Addr()
			}
		}
	}
	return ""
}
