package backend

import (
	"context"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// everybody is what the edge says of clients when it asks what a server offers
// to all of them: a server may offer some things only to a client that it can
// ask. Nothing is asked while lists are fetched.
const everybody = `{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{"context":{},"tools":{}}}`

// turnWithin is how long a list waits for another one of the same local server.
const turnWithin = 5 * time.Second

// listTurn has the lists of a local server asked for one after the other, as long as none of them
// takes long: each that is under way may need a process of its own.
func (b *Backend) listTurn(ctx context.Context) (over func()) {
	if b.lined == nil {
		return func() {}
	}
	late := time.NewTimer(turnWithin)
	defer late.Stop()
	select {
	case b.listing <- struct{}{}:
		return func() { <-b.listing }
	case <-late.C:
	case <-ctx.Done():
	}
	return func() {}
}

// List sends a list request of the edge's own and returns JSON text of the
// result in its modern form. A nil cursor asks for the first page. An error of
// kind NoMethod says that the backend has no such list.
func (b *Backend) List(ctx context.Context, id *edge.Identity, method string, cursor *string) ([]byte, error) {
	caller := mcp.Caller{Info: b.Info, Capabilities: []byte(everybody)}
	set := []mcp.Member{mcp.Raw("_meta", mcp.Change(nil, nil, caller.Members()...))}
	if cursor != nil {
		set = append(set, mcp.Raw("cursor", mcp.Quote(*cursor)))
	}
	m, err := mcp.Decode(mcp.AppendRequest(nil, []byte("1"), method, mcp.Change(nil, nil, set...)))
	if err != nil {
		return nil, edge.Errorf(edge.Internal, "list", "%w", err)
	}
	defer b.listTurn(ctx)()
	x := &edge.Exchange{Era: mcp.Modern, Request: m, Identity: id, Client: edge.NoClient{}}
	r, err := b.Handle(ctx, x)
	switch {
	case err != nil:
		return nil, err
	case r == nil || r.Kind == mcp.Failure && r.Code() == mcp.CodeMethodNotFound:
		return nil, edge.Errorf(edge.NoMethod, "list", "backend %q has no %s", b.Name, method)
	case r.Kind != mcp.Result:
		b.ailing.Store(true)
		return nil, edge.Errorf(edge.Unavailable, "list", "backend %q answered %s with error %d", b.Name, method, r.Code())
	}
	return r.Result.Of(r.Raw), nil
}
