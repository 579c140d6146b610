package serve

import (
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/session"
)

// maxBatch is how many messages a batch may have.
const maxBatch = 100

// batch takes several messages in one body, which only the revisions before
// 2025-06-18 have.
func (e *Edge) batch(req *request) {
	if headEra(req) == mcp.Modern {
		req.refuse(mcp.Modern, nil, edge.Errorf(edge.Invalid, "door", "batches were removed in protocol revision 2025-06-18"))
		return
	}
	stateless := req.server.stateless != nil
	var s *session.Session
	var err error
	version := string(req.version)
	switch {
	case !stateless:
		if s, err = e.sessionOf(req); err == nil {
			version = s.Version
		}
	case !req.hasVersion:
		version = mcp.V2503 // which a client means that says none (2025-03-26)
	}
	if err == nil && version != mcp.V2503 && version != mcp.V2024 {
		err = edge.Errorf(edge.Invalid, "door", "batches were removed in protocol revision 2025-06-18")
	}
	if err == nil && stateless {
		s, err = e.pooledFor(req)
	}
	body := req.body
	var parts []mcp.Span
	if err == nil {
		if parts, err = mcp.Split(body, maxBatch); err != nil {
			err = edge.Errorf(edge.Invalid, "door", "%w", err)
		}
	}
	if err != nil {
		req.refuse(mcp.Legacy, nil, err)
		return
	}
	all := batchAnswer{most: e.settings.MaxMessage}
	status := 200
	for _, part := range parts {
		x := e.newExchange(req)
		x.way.able = false // one body for all of them
		if stateless {
			x.pooled, x.Session = s, &s.Session
		} else {
			x.within(s)
		}
		x.Batch = len(parts)
		req.x = x
		err := x.Request.Decode(part.Of(body))
		if err != nil {
			req.x, err = nil, edge.Errorf(edge.Invalid, "door", "%w", err)
		} else if err = x.Request.CheckID(); err != nil {
			status, err = 400, edge.Errorf(edge.Invalid, "door", "%w", err)
		} else if x.Request.Method == "initialize" {
			err = edge.Errorf(edge.Invalid, "door", "initialize is not allowed in a batch")
		} else if stateless && (x.Request.Method == "resources/subscribe" || x.Request.Method == "resources/unsubscribe") {
			err = route.ErrNoMethod(x.Request)
		}
		if err != nil {
			req.turnedAway(mcp.Legacy, err)
			all.add(edge.Fail(mcp.Legacy, x.Request.IDText(), err).Body)
			continue
		}
		if stateless && forSession(x.Request) || !stateless && e.aside(x) {
			continue
		}
		if all.full && x.Request.Kind == mcp.Request {
			err := all.err()
			req.turnedAway(mcp.Legacy, err)
			all.add(edge.Fail(mcp.Legacy, x.Request.IDText(), err).Body)
			continue
		}
		r, err := e.run(nil, x) // the server waits for the rest of the batch, too
		x.way.end(nil, false)
		switch {
		case err != nil:
			all.add(edge.Fail(mcp.Legacy, x.Request.IDText(), err).Body)
		case r != nil && !all.room(len(r.Raw)+len(r.Shared)):
			all.full = true
			all.add(edge.Fail(mcp.Legacy, x.Request.IDText(), all.err()).Body)
		case r != nil && r.Shared != nil:
			all.add(r.Raw, r.Shared, []byte{'}'})
		case r != nil:
			all.add(r.Raw)
		}
	}
	req.cors()
	if all.text == nil {
		req.ctx.SetStatusCode(202)
		return
	}
	req.ctx.SetStatusCode(status)
	req.ctx.Response.Header.SetContentTypeBytes(jsonType)
	req.ctx.Response.SetBodyRaw(append(all.text, ']'))
}

// batchAnswer collects the answers to the messages of a batch.
type batchAnswer struct {
	text []byte
	most int  // bytes of it, beside errors
	full bool // no further message is served
}

// room reports whether an answer of n bytes may be added: one alone always may.
func (a *batchAnswer) room(n int) bool { return a.text == nil || len(a.text)+n <= a.most }

// add adds an answer, in parts.
func (a *batchAnswer) add(parts ...[]byte) {
	sep := byte(',')
	if a.text == nil {
		sep = '['
	}
	a.text = append(a.text, sep)
	for _, part := range parts {
		a.text = append(a.text, part...)
	}
}

// err is the error for a message whose answer has no room.
func (a *batchAnswer) err() error {
	return edge.Errorf(edge.Overload, "door", "the answers of a batch have %d bytes at most: send the rest by itself", a.most)
}
