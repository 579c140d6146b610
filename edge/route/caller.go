package route

import (
	"cmp"
	"context"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// Caller returns a function that makes calls on behalf of a client. Their questions and
// notifications go to out.
func (s *Server) Caller(out edge.Client) edge.Caller {
	return func(ctx context.Context, x *edge.Exchange, tool string, arguments []byte) (result, failure []byte) {
		return s.callNamed(ctx, x, out, tool, arguments)
	}
}

// callNamed makes a call by the name of a tool. A backend that asks nothing and wants the call again,
// later, gets it; one that asks has its questions returned.
func (s *Server) callNamed(ctx context.Context, x *edge.Exchange, out edge.Client, tool string, arguments []byte) (result, failure []byte) {
	var given []mcp.Member
	for round := 0; ; round++ {
		result, failure = s.inner(ctx, x, out, nil, tool, arguments, given)
		if x.Era != mcp.Modern || mcp.String(mcp.Lookup(result, "resultType")) != "input_required" || len(mcp.Members(mcp.Lookup(result, "inputRequests"))) > 0 {
			return result, failure
		}
		var err error
		if given, err = inputs(ctx, out, nil, result, round); err != nil {
			return nil, mcp.Lookup(edge.Fail(x.Era, nil, err).Body, "error")
		}
	}
}

// serving is Caller for what lasts longer than its server may be served: each call goes to
// the one that is served then, and to none once a reload has taken the server itself.
func (s *Server) serving(out edge.Client) edge.Caller {
	return func(ctx context.Context, x *edge.Exchange, tool string, arguments []byte) (result, failure []byte) {
		now := s.now()
		if now == nil {
			return nil, taken(x)
		}
		return now.callNamed(ctx, x, out, tool, arguments)
	}
}

// now returns the server of this name that is served now: another one after a reload, nil
// where that took it. One without a catalog of its own has nothing that a call could be looked
// up in; the calls of what began before it go on here.
func (s *Server) now() *Server {
	if s.o.Serving == nil {
		return s
	}
	now := s.o.Serving()
	if now != nil && now.Bare() {
		return s
	}
	return now
}

// taken is the error of a call whose target a reload took.
func taken(x *edge.Exchange) []byte {
	return mcp.Lookup(edge.Fail(x.Era, nil, edge.Errorf(edge.NotFound, "inner", "not found")).Body, "error")
}

// CatalogNow is the catalog of tools for a client, of the server of this name that is served
// now; edge.NotFound where a reload took that.
func (s *Server) CatalogNow(ctx context.Context, id *edge.Identity) (*catalog.Catalog, error) {
	now := s.now()
	if now == nil {
		return nil, edge.Errorf(edge.NotFound, "inner", "not found")
	}
	return now.Book.Catalog(ctx, id, edge.Tool)
}

// Belated is the latest catalog, for a tool that an older one does not have, by its name of
// WORKLOAD.TOOL or an advertised one. Where its backend has told no tools yet the error is that of
// a call of it. It waits for no list.
func (s *Server) Belated(x *edge.Exchange, name string) (*catalog.Catalog, error) {
	now := cmp.Or(s.now(), s)
	err := now.away(x, edge.Tool, name)
	for i := range len(name) { // a workload may have dots in its name
		if name[i] == '.' && now.byName[name[:i]] != nil {
			err = now.Book.Fault(x.Identity, name[:i], edge.Tool)
		}
	}
	if err != nil {
		return nil, err
	}
	return now.Book.Latest(now.hub.life, x.Identity)
}

// CallAtNow is CallAt of the server of this name that is served now.
func (s *Server) CallAtNow(ctx context.Context, x *edge.Exchange, out edge.Client, at *edge.Target, arguments []byte) (result, failure []byte) {
	now := s.now()
	if now == nil {
		return nil, taken(x)
	}
	return now.CallAt(ctx, x, out, at, arguments)
}

// CallAt makes a call on behalf of a client at a target of the catalog, also one that the
// client does not see. Its questions and notifications go to out. A backend that wants input,
// or pages opened first, gets it, with the same call again.
func (s *Server) CallAt(ctx context.Context, x *edge.Exchange, out edge.Client, at *edge.Target, arguments []byte) (result, failure []byte) {
	if s.byName[at.Backend] == nil { // a reload took it
		return nil, taken(x)
	}
	var given []mcp.Member
	for round := 0; ; round++ {
		result, failure = s.inner(ctx, x, out, at, at.Name, arguments, given)
		caps, wants := x.Capabilities, result
		switch {
		case x.Era != mcp.Modern:
			caps, wants = pagesFirst(x, failure)
		case failure != nil || mcp.String(mcp.Lookup(result, "resultType")) != "input_required":
			wants = nil
		}
		if wants == nil {
			return result, failure
		}
		var err error
		if given, err = inputs(ctx, out, caps, wants, round); err == nil && x.Era != mcp.Modern {
			err = backend.PagesRefused(mcp.Lookup(mcp.AppendObject(nil, given...), "inputResponses"))
			given = nil // a legacy call has no answers
		}
		if err != nil {
			return nil, mcp.Lookup(edge.Fail(x.Era, nil, err).Body, "error")
		}
	}
}

// pagesFirst returns what a legacy client can be asked, and what the failure of its call wants of
// it, as a modern result; nil where that is no page, or the client opens none.
func pagesFirst(x *edge.Exchange, failure []byte) (caps, wants []byte) {
	if failure == nil || x.Session == nil || !mcp.Can(x.Session.Capabilities, "elicitation/create", []byte(`{"mode":"url"}`)) {
		return nil, nil
	}
	m, err := mcp.Decode(append(append([]byte(`{"jsonrpc":"2.0","id":0,"error":`), failure...), '}'))
	if err != nil {
		return nil, nil
	}
	return x.Session.Capabilities, mcp.PagesRequired(m)
}

// inputs asks the client of a call what its backend wants to know.
func inputs(ctx context.Context, out edge.Client, caps, result []byte, round int) ([]mcp.Member, error) {
	r, err := mcp.Decode(mcp.AppendResult(nil, []byte("0"), result))
	if err != nil {
		return nil, edge.Errorf(edge.Internal, "inner", "%w", err)
	}
	return backend.Inputs(ctx, out, caps, r, round)
}

func (s *Server) inner(ctx context.Context, x *edge.Exchange, out edge.Client, at *edge.Target, tool string, arguments []byte, given []mcp.Member) (result, failure []byte) {
	id := mcp.Quote("weir-" + relay.NewName())
	r, err := s.innerCall(ctx, x, out, at, id, tool, arguments, given)
	switch {
	case err == nil && r == nil:
		err = edge.Errorf(edge.Internal, "inner", "no answer")
	case err == nil && r.Kind == mcp.Result:
		raw := r.Whole()
		return append([]byte{}, r.Result.Of(raw)...), nil
	case err == nil:
		raw := r.Whole()
		return nil, append([]byte{}, r.Error.Of(raw)...)
	}
	if edge.KindOf(err) == edge.Internal {
		s.o.Log.Error("internal error", "server", s.Name, "method", "tools/call", "tool", edge.Printable(tool), "error", err)
	}
	return nil, mcp.Lookup(edge.Fail(x.Era, id, err).Body, "error")
}

func (s *Server) innerCall(ctx context.Context, x *edge.Exchange, out edge.Client, at *edge.Target, id []byte, tool string, arguments []byte, given []mcp.Member) (*edge.Response, error) {
	set := append(append(make([]mcp.Member, 0, len(given)+3), mcp.Raw("name", mcp.Quote(tool))), given...)
	if len(arguments) > 0 {
		set = append(set, mcp.Raw("arguments", arguments))
	}
	var capabilities []byte
	if at != nil {
		capabilities = x.Capabilities // of whom out asks
	}
	if x.Era == mcp.Modern {
		set = append(set, mcp.Raw("_meta", mcp.AppendObject(nil, mcp.Caller{Info: s.o.Client, Capabilities: capabilities}.Members()...)))
	}
	call, err := x.Inner(func(dst []byte) []byte {
		return mcp.AppendRequest(dst, id, "tools/call", mcp.AppendObject(nil, set...))
	})
	if err != nil {
		return nil, edge.Errorf(edge.Params, "inner", "%w", err)
	}
	call.Server, call.Era, call.Session, call.Identity, call.Head, call.Forward, call.Heard = x.Server, x.Era, x.Session, x.Identity, x.Head, x.Forward, x.Heard
	call.Client, call.Target, call.Capabilities = out, at, capabilities
	call.Head.Params, call.Head.Remade = nil, true // the client's Mcp-Param headers mirror other arguments
	if x.Era == mcp.Modern {
		call.Name = tool
	}
	return s.o.Hallway(ctx, call)
}
