package route

import (
	"context"
	"strings"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/mcp"
)

// Offer returns the capabilities and instructions of the server, made of those of the
// backends that have introduced themselves. It waits only while none has.
func (s *Server) Offer(ctx context.Context, era mcp.Era) (caps, instructions []byte) {
	var known []*backend.Introduction
	var names []string
	silent := false
	for _, b := range s.Backends {
		if in := b.Known(); in != nil {
			known, names = append(known, in), append(names, b.Name)
		} else {
			silent = true
		}
	}
	if len(known) == 0 && len(s.Backends) > 0 {
		ctx, cancel := context.WithTimeout(ctx, s.o.Wait)
		defer cancel()
		if in, _ := s.Backends[0].Introduced(ctx, nil); in != nil {
			known, names, silent = append(known, in), append(names, s.Backends[0].Name), len(s.Backends) > 1
		}
	}
	if s.only != nil && len(known) == 1 {
		return mcp.ServerCapabilities(known[0].Capabilities, known[0].Era, era), known[0].Instructions
	}
	all := make([][]byte, 0, len(known)+1)
	for _, in := range known {
		all = append(all, mcp.ServerCapabilities(in.Capabilities, in.Era, era))
	}
	if silent || len(known) == 0 {
		all = append(all, backend.Everything()) // a backend that is down may come back with any capability
	}
	if len(s.o.Local) > 0 {
		all = append(all, []byte(`{"tools":{}}`))
	}
	return union(all, era), guidance(known, names)
}

// setLevel answers logging/setLevel of a legacy session, for all its backends.
func (s *Server) setLevel(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	level := x.Request.Text("level")
	x.Session.SetLogLevel(level)
	s.Level(ctx, x.Session, level)
	return edge.Reply(x.Request, []byte("{}"))
}

// Level sets the least level of log messages for a session at every backend.
func (s *Server) Level(ctx context.Context, session *edge.Session, level string) {
	s.each(ctx, func(ctx context.Context, b *backend.Backend) { b.SetLevel(ctx, session, level) })
}

// Notify tells every backend what a session's client has said at another edge.
func (s *Server) Notify(ctx context.Context, session *edge.Session, m *mcp.Message) {
	s.each(ctx, func(ctx context.Context, b *backend.Backend) { b.Notify(ctx, session, m) })
}

// each calls f for every backend at the same time, and waits.
func (s *Server) each(ctx context.Context, f func(context.Context, *backend.Backend)) {
	var work sync.WaitGroup
	for _, b := range s.Backends {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.o.Wait)
			defer cancel()
			f(ctx, b)
		})
	}
	work.Wait()
}

// union returns the capabilities of a server from those of its backends: each that one
// of them has and the edge relays.
func union(all [][]byte, era mcp.Era) []byte {
	has := func(path ...string) bool {
		for _, caps := range all {
			if v := mcp.Lookup(caps, path...); v != nil && string(v) != "false" && string(v) != "null" {
				return true
			}
		}
		return false
	}
	var set []mcp.Member
	add := func(name, value string) {
		if has(name) {
			set = append(set, mcp.With(name, value))
		}
	}
	add("completions", "{}")
	add("logging", "{}")
	add("prompts", `{"listChanged":true}`)
	resources := `{"listChanged":true}`
	if has("resources", "subscribe") {
		resources = `{"listChanged":true,"subscribe":true}`
	}
	add("resources", resources)
	add("tools", `{"listChanged":true}`)
	if era == mcp.Legacy && has("tasks", "requests", "tools", "call") {
		set = append(set, mcp.With("tasks", `{"cancel":{},"requests":{"tools":{"call":{}}}}`))
	}
	if era == mcp.Modern && has("extensions", "io.modelcontextprotocol/tasks") {
		set = append(set, mcp.With("extensions", `{"io.modelcontextprotocol/tasks":{}}`))
	}
	return mcp.Change(nil, nil, set...)
}

// maxGuidance bounds the instructions of all backends together, in bytes.
const maxGuidance = 64 << 10

// guidance returns the instructions of all backends, each under its name, as JSON
// text of a string; nil for none.
func guidance(known []*backend.Introduction, names []string) []byte {
	var text strings.Builder
	for i, in := range known {
		said := mcp.String(in.Instructions)
		if said == "" || text.Len()+len(said) > maxGuidance {
			continue
		}
		if text.Len() > 0 {
			text.WriteString("\n\n")
		}
		text.WriteString("# " + names[i] + "\n\n" + said)
	}
	if text.Len() == 0 {
		return nil
	}
	return mcp.Quote(text.String())
}
