package backend

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// headerParam is a parameter of a tool that a modern server wants mirrored in
// a header (2026-07-28, x-mcp-header).
type headerParam struct {
	header string
	path   []string // names down from the arguments
}

// withParams sends a request that the edge made or changed, with the Mcp-Param headers
// that the tool is known to want. A server that misses one says so without
// running the call (HeaderMismatch); then the tools are looked at and the call
// is sent again, once.
func (b *Backend) withParams(ctx context.Context, x *edge.Exchange, m *mcp.Message, translate bool) (*edge.Response, error) {
	r, err := b.modernCall(ctx, x, m, m.Raw, b.mirrored(m), translate)
	if err != nil || r == nil || m.Method != "tools/call" || r.Code() != mcp.CodeHeaderMismatch {
		return r, err
	}
	if err := b.learnParams(ctx); err != nil {
		return nil, err
	}
	return b.modernCall(ctx, x, m, m.Raw, b.mirrored(m), translate)
}

// mirrored returns the Mcp-Param headers of a call.
func (b *Backend) mirrored(m *mcp.Message) []edge.Header {
	if m.Method != "tools/call" {
		return nil
	}
	known, ok := b.params.Load(m.Text("name"))
	if !ok {
		return nil
	}
	var out []edge.Header
	for _, p := range known.([]headerParam) {
		v := mcp.Lookup(m.Get("arguments").Of(m.Raw), p.path...)
		switch {
		case v == nil || string(v) == "null" || v[0] == '{' || v[0] == '[':
			continue
		case v[0] == '"':
			out = append(out, edge.Header{Name: mcp.HeaderParam + p.header, Value: mcp.EncodeHeader(mcp.String(v))})
		default:
			out = append(out, edge.Header{Name: mcp.HeaderParam + p.header, Value: string(v)})
		}
	}
	return out
}

// learnParams walks the backend's tools and keeps which of them want headers.
func (b *Backend) learnParams(ctx context.Context) error {
	seen := map[string]bool{}
	cursor := ""
	for page := 0; page < 1000; page++ {
		params := mcp.Change(nil, nil, mcp.Raw("_meta", mcp.Change(nil, nil, mcp.Caller{Info: b.Info}.Members()...)))
		if page > 0 {
			params = mcp.Change(params, nil, mcp.Raw("cursor", []byte(cursor)))
		}
		o := outgoing{
			method: "POST", version: mcp.V2607, rpc: "tools/list", silence: b.Silence, until: time.Now().Add(b.Cap),
			body: mcp.AppendRequest(nil, []byte("1"), "tools/list", params),
		}
		m := new(mcp.Message)
		_, err := b.peer.converse(ctx, &o, []byte("1"), m, func(*mcp.Message, *reply) {})
		if err != nil || m.Kind != mcp.Result {
			return edge.Errorf(edge.Unavailable, "list tools", "cannot learn which headers a tool wants: %v", err)
		}
		b.noteParams(m)
		next := m.Get("nextCursor")
		if cursor = string(next.Of(m.Raw)); !next.OK() || seen[cursor] {
			return nil
		}
		seen[cursor] = true
	}
	return nil
}

// headerParams finds x-mcp-header in a schema, along properties only.
func headerParams(schema []byte, path []string, found []headerParam) []headerParam {
	if len(path) > 32 {
		return found
	}
	for _, p := range mcp.Members(mcp.Lookup(schema, "properties")) {
		here := append(slices.Clip(path), string(mcp.Unquote(p.Name)))
		if h := mcp.String(mcp.Lookup(p.Value, "x-mcp-header")); token(h) {
			found = append(found, headerParam{header: h, path: here})
		}
		found = headerParams(p.Value, here, found)
	}
	return found
}

// token reports whether s is a token by RFC 9110 §5.6.2.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || slices.Contains([]byte(`"(),/:;<=>?@[\]{}`), c) {
			return false
		}
	}
	return s != ""
}

// noteParams keeps which tools of a list want headers.
func (b *Backend) noteParams(list *mcp.Message) {
	tools := list.Get("tools").Of(list.Raw)
	if !bytes.Contains(tools, []byte("x-mcp-header")) {
		return
	}
	for _, tool := range mcp.Elements(tools) {
		if found := headerParams(mcp.Lookup(tool, "inputSchema"), nil, nil); found != nil {
			b.params.Store(mcp.String(mcp.Lookup(tool, "name")), found)
		}
	}
}

// checkParams holds the Mcp-Param headers of a modern call against its
// arguments, on behalf of a legacy backend, which does not know of them. What
// it checks are the tools of the lists that have passed: a client has its
// knowledge of headers from there, too (2026-07-28, x-mcp-header).
func (b *Backend) checkParams(x *edge.Exchange) error {
	m := x.Request
	if m.Method != "tools/call" || x.Head.Remade {
		return nil
	}
	for _, want := range b.mirrored(m) {
		i := slices.IndexFunc(x.Head.Params, func(h edge.Header) bool { return strings.EqualFold(h.Name, want.Name) })
		if i < 0 {
			return edge.Errorf(edge.Mismatch, "check", "header %s is missing", want.Name)
		}
		if !sameParam(x.Head.Params[i].Value, want.Value) {
			return edge.Errorf(edge.Mismatch, "check", "header %s does not match the body", want.Name)
		}
	}
	return nil
}

// sameParam compares two values of such a header. Integers are compared as
// numbers.
func sameParam(a, b string) bool {
	x, err1 := mcp.DecodeHeader(a)
	y, err2 := mcp.DecodeHeader(b)
	if err1 != nil || err2 != nil {
		return false
	}
	if x == y {
		return true
	}
	n, err1 := strconv.ParseFloat(x, 64)
	o, err2 := strconv.ParseFloat(y, 64)
	return err1 == nil && err2 == nil && n == o
}
