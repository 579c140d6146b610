package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// detect finds out what the backend speaks, the modern era first (2026-07-28,
// server/discover, detection).
func (b *Backend) detect(ctx context.Context) (*Introduction, error) {
	if b.SSE {
		return b.detectLegacy(ctx, true)
	}
	m, err := b.discover(ctx)
	var r *refusal
	if err != nil && !errors.As(err, &r) && edge.KindOf(err) != edge.Unavailable {
		return nil, err
	}
	switch {
	case r != nil && (r.status == 401 || r.status == 403 || r.status >= 500):
		return nil, r.verdict()
	case r != nil && r.code == mcp.CodeVersion:
		if v := versions(mcp.Lookup(r.data, "supported")); !slices.Contains(v, mcp.V2607) {
			if slices.ContainsFunc(v, mcp.LegacyVersion) {
				break
			}
			return nil, edge.Errorf(edge.Unavailable, "discover", "speaks none of the revisions that the edge speaks, only %q", v)
		}
		return &Introduction{Era: mcp.Modern, Version: mcp.V2607, Capabilities: Everything()}, nil
	case r != nil && r.modern():
		return &Introduction{Era: mcp.Modern, Version: mcp.V2607, Capabilities: Everything()}, nil
	case err == nil && m.Kind == mcp.Result && slices.Contains(versions(m.Get("supportedVersions").Of(m.Raw)), mcp.V2607):
		return &Introduction{
			Era:          mcp.Modern,
			Version:      mcp.V2607,
			Capabilities: slices.Clone(m.Get("capabilities").Of(m.Raw)),
			Instructions: slices.Clone(m.Get("instructions").Of(m.Raw)),
			Info:         slices.Clone(m.Meta(mcp.MetaServerInfo).Of(m.Raw)),
		}, nil
	case err != nil && r == nil:
		// The connection failed, or the answer made no sense. A legacy server
		// may do the second; the attempt below tells.
	}
	return b.detectLegacy(ctx, false)
}

// discover asks a server of the modern era what it can do. An error answer is a
// *refusal.
func (b *Backend) discover(ctx context.Context) (*mcp.Message, error) {
	meta := mcp.Change(nil, nil, mcp.Caller{Info: b.Info}.Members()...)
	o := outgoing{
		method: "POST", version: mcp.V2607, rpc: "server/discover", silence: b.Silence, until: time.Now().Add(b.Silence),
		body: mcp.AppendRequest(nil, []byte("1"), "server/discover", mcp.Change(nil, nil, mcp.Raw("_meta", meta))),
	}
	m := new(mcp.Message)
	status, err := b.peer.converse(ctx, &o, []byte("1"), m, func(*mcp.Message, *reply) {})
	if err == nil && m.Kind == mcp.Failure {
		err = &refusal{status: status, code: m.Code(), text: m.Text("message"), data: m.Get("data").Of(m.Raw)}
	}
	return m, err
}

// Everything is JSON text of what a server may offer, for one that does not say.
func Everything() []byte {
	return []byte(`{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`)
}

func versions(array []byte) []string {
	var out []string
	if json.Unmarshal(array, &out) != nil {
		return nil
	}
	return out
}

// detectLegacy introduces the edge to a legacy server. The session it opens
// serves the clients that have none.
func (b *Backend) detectLegacy(ctx context.Context, sse bool) (*Introduction, error) {
	s := newSession(b, sse, nil, nil)
	in, err := s.ready(ctx)
	var r *refusal
	if errors.As(err, &r) && !sse && (r.status == 400 || r.status == 404 || r.status == 405) {
		old := newSession(b, true, nil, nil)
		if again, err2 := old.ready(ctx); err2 == nil {
			in, err, s = again, nil, old
		} else {
			old.Close()
		}
	}
	if err != nil {
		s.Close()
		if errors.As(err, &r) {
			return nil, &edge.Error{Kind: edge.Unavailable, Op: "initialize", Err: fmt.Errorf("speaks no revision that the edge speaks: %w", r)}
		}
		return nil, err
	}
	b.adopt(s)
	return in, nil
}
