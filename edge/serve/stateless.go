package serve

import (
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/session"
)

// A stateless server takes POST alone and gives out no session ids. Behind it a backend of
// the legacy era wants sessions all the same: legacy clients of one principal have one
// together, which only the edge knows. Nothing of it reaches a client outside of its call,
// and no client of it can be asked anything.

// pooled is the sessions of a stateless server's legacy clients. The zero value is ready; it
// is safe for concurrent use.
type pooled struct {
	mu  sync.Mutex
	ids map[string]string // by principal
}

// withoutSession serves a message of a legacy client at a stateless server.
func (e *Edge) withoutSession(req *request, x *exchange) {
	m := x.Request
	if forSession(m) { // there is nothing that it could be about
		req.ctx.SetStatusCode(202)
		req.cors()
		return
	}
	if m.Method == "resources/subscribe" || m.Method == "resources/unsubscribe" {
		req.refuse(mcp.Legacy, m.IDText(), route.ErrNoMethod(m)) // no stream would bring the updates
		return
	}
	s, err := e.pooledFor(req)
	if err != nil {
		req.refuse(mcp.Legacy, m.IDText(), err)
		return
	}
	x.pooled, x.Session = s, &s.Session
	e.serve(req, x)
	x.recycle()
}

// untold returns what a server offers without what it would tell outside of calls: JSON text.
func untold(offered []byte) []byte {
	var set []mcp.Member
	for _, name := range []string{"tools", "prompts", "resources"} {
		if of := mcp.Lookup(offered, name); of != nil {
			set = append(set, mcp.Raw(name, mcp.Change(of, []string{"listChanged", "subscribe"})))
		}
	}
	return mcp.Change(offered, nil, set...)
}

// pooledFor returns the session of the principal of a request, and begins it where there is
// none.
func (e *Edge) pooledFor(req *request) (*session.Session, error) {
	s := req.server
	who := req.who.Principal()
	p := s.stateless
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := p.ids[who]; id != "" {
		if one, err := e.sessions.Find(s.Name, nil, id, who); err == nil && !one.Lost() {
			return one, nil
		}
		delete(p.ids, who) // it was not used for long, or the process that it had has ended
	}
	one, err := e.sessions.Begin(session.Beginning{
		Server: s.Name, Owner: who, Holder: edge.Holder(req.who, req.client()), Version: mcp.V2511, Capabilities: []byte("{}"),
	})
	if err != nil {
		return nil, err
	}
	// Nobody has it yet.
	one.Several = true
	if len(p.ids) > e.settings.MaxSessions { // of most of them the session has ended
		clear(p.ids)
	}
	if p.ids == nil {
		p.ids = make(map[string]string)
	}
	p.ids[who] = one.ID
	return one, nil
}
