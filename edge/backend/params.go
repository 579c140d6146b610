package backend

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
// that the tool is known to want, by the lists that have passed. A server that misses one says so without
// running the call (HeaderMismatch); then the tools are looked at and the call
// is sent again, once.
func (b *Backend) withParams(ctx context.Context, x *edge.Exchange, m *mcp.Message, translate bool) (*edge.Response, error) {
	who := b.lister(x)
	r, err := b.modernCall(ctx, x, m, m.Raw, b.paramHeaders(who, m), translate)
	if err != nil || r == nil || m.Method != "tools/call" || r.Code() != mcp.CodeHeaderMismatch {
		return r, err
	}
	if err := b.learnParams(ctx, x, who); err != nil {
		return nil, err
	}
	return b.modernCall(ctx, x, m, m.Raw, b.paramHeaders(who, m), translate)
}

// lister is whose list of tools a modern server over HTTP gives.
func (b *Backend) lister(x *edge.Exchange) principal {
	if b.Personal() || x.Chosen != nil && x.Chosen.Personal { // it answers users alone, each with a list of their own
		return principalOf(x.Identity)
	}
	return principal{}
}

// mirrored is a parameter that a tool wants mirrored, and what a call has for it: JSON text of a
// string, a number or a boolean; nil where there is nothing to mirror.
type mirrored struct {
	name  string // of the header
	value []byte
}

// mirrored returns what the tool of a call wants mirrored, by the lists that a principal has had.
func (b *Backend) mirrored(who principal, m *mcp.Message) (out []mirrored) {
	if m.Method != "tools/call" || !b.params.any.Load() {
		return nil
	}
	known := b.params.of(who, m.Text("name"))
	if len(known) == 0 {
		return nil
	}
	arguments := m.Get("arguments").Of(m.Raw)
	var all mcp.Outline // of arguments, where to walk through them for each header would take long
	if len(known) > 2 && len(arguments) > 16<<10 && all.Read(arguments, mcp.Bounds{}) != nil {
		return nil
	}
	for _, p := range known {
		var v []byte
		if all.Nodes == nil {
			v = mcp.Find(arguments, p.path, nil)
		} else if n := all.At(p.path, noIndex); n >= 0 {
			v = all.Value(n)
		}
		if string(v) == "null" || v != nil && (v[0] == '{' || v[0] == '[') {
			v = nil
		}
		out = append(out, mirrored{mcp.HeaderParam + p.header, v})
	}
	return out
}

// paramHeaders returns the Mcp-Param headers of a call, as mirrored.
func (b *Backend) paramHeaders(who principal, m *mcp.Message) (out []edge.Header) {
	for _, p := range b.mirrored(who, m) {
		switch {
		case p.value == nil:
		case p.value[0] == '"':
			out = append(out, edge.Header{Name: p.name, Value: mcp.EncodeHeader(mcp.String(p.value))})
		default:
			out = append(out, edge.Header{Name: p.name, Value: string(p.value)})
		}
	}
	return out
}

// noIndex leads into no array: headers mirror what is reached through properties.
func noIndex(string) (int, bool) { return 0, false }

// maxCursor is how many bytes of JSON text a cursor may have; a longer one ends
// the walk.
const maxCursor = 8 << 10

// learnParams walks the backend's tools with the credential of a call, and keeps which of them
// want headers for the principal of the list.
func (b *Backend) learnParams(ctx context.Context, x *edge.Exchange, who principal) error {
	seen := map[[sha256.Size]byte]bool{} // cursors
	cursor := []byte(nil)
	var whole params
	for page := 0; page < 1000; page++ {
		params := mcp.Change(nil, nil, mcp.Raw("_meta", mcp.Change(nil, nil, mcp.Caller{Info: b.Info}.Members()...)))
		if page > 0 {
			params = mcp.Change(params, nil, mcp.Raw("cursor", cursor))
		}
		o := outgoing{
			method: "POST", version: mcp.V2607, rpc: "tools/list", x: x, forward: x.Forward, silence: b.Silence, until: time.Now().Add(b.Cap),
			body: mcp.AppendRequest(nil, []byte("1"), "tools/list", params),
		}
		m := new(mcp.Message)
		_, err := b.peer.converse(ctx, &o, []byte("1"), m, func(*mcp.Message, *reply) {})
		if err != nil || m.Kind != mcp.Result {
			return edge.Errorf(edge.Unavailable, "list tools", "cannot learn which headers a tool wants: %v", err)
		}
		whole.take(m)
		cursor = m.Get("nextCursor").Of(m.Raw)
		sum := sha256.Sum256(cursor)
		if cursor == nil || len(cursor) > maxCursor || seen[sum] {
			b.params.replace(who, &whole)
			return nil
		}
		seen[sum] = true
	}
	return nil
}

// Bounds of what a schema may want mirrored.
const (
	maxHeaderParams = 64 // of one tool
	maxHeaderDepth  = 32
)

// headerParams finds x-mcp-header in a schema, along properties only.
func headerParams(schema []byte) (found []headerParam) {
	var all mcp.Outline
	if all.Read(schema, mcp.Bounds{}) != nil {
		return nil
	}
	var look func(n int, path []string)
	look = func(n int, path []string) {
		if all.Value(n)[0] != '{' || len(path) > maxHeaderDepth {
			return
		}
		for i := all.First(n); i < all.End(n); i = all.After(i) {
			switch string(mcp.Unquote(all.Name(i))) {
			case "x-mcp-header":
				if h := mcp.String(all.Value(i)); len(path) > 0 && mcp.IsToken(h) && len(h) <= maxHeaderName && len(found) < maxHeaderParams {
					found = append(found, headerParam{header: h, path: slices.Clone(path)})
				}
			case "properties":
				if all.Value(i)[0] != '{' {
					continue
				}
				for p := all.First(i); p < all.End(i); p = all.After(p) {
					look(p, append(slices.Clip(path), string(mcp.Unquote(all.Name(p)))))
				}
			}
		}
	}
	look(0, nil)
	return found
}

// The names of headers come from lists of the backend, which may be as long and
// as many as it likes.
const (
	maxHeaderTools = 4096      // tools that want headers, of one list
	maxHeaderName  = 128       // bytes of the name of one
	maxHeaderTool  = 1 << 10   // bytes of the name of a tool
	maxParamsBytes = 256 << 10 // of the names that one list gives
	maxParamsAll   = 4 << 20   // of those of all principals
	maxParamsLists = 1000      // principals whose lists are known
)

// params are the tools of one list that want headers.
type params struct {
	tools map[string][]headerParam
	bytes int
}

// take takes in what a page of a list says. A tool that wants more than may be
// kept is as one that wants none: a modern server says so when it is called.
func (p *params) take(page *mcp.Message) {
	tools := page.Get("tools").Of(page.Raw)
	some := bytes.Contains(tools, []byte("x-mcp-header"))
	if !some && len(p.tools) == 0 {
		return
	}
	for _, tool := range mcp.Elements(tools) {
		name := mcp.String(mcp.Lookup(tool, "name"))
		p.drop(name)
		if !some || len(name) > maxHeaderTool || len(p.tools) >= maxHeaderTools {
			continue
		}
		found := headerParams(mcp.Lookup(tool, "inputSchema"))
		size := sizeOf(name, found)
		if len(found) == 0 || p.bytes+size > maxParamsBytes {
			continue
		}
		if p.tools == nil {
			p.tools = make(map[string][]headerParam)
		}
		p.tools[name] = found
		p.bytes += size
	}
}

func (p *params) drop(name string) {
	if old, ok := p.tools[name]; ok {
		p.bytes -= sizeOf(name, old)
		delete(p.tools, name)
	}
}

// sizeOf is about how many bytes a tool takes here.
func sizeOf(name string, found []headerParam) int {
	n := 64 + len(name)
	for _, one := range found {
		n += 64 + len(one.header)
		for _, part := range one.path {
			n += 16 + len(part)
		}
	}
	return n
}

// paramsOf is what the lists say that principals have had, the edge's own among
// them: another may list other tools to each. The zero value knows of none.
type paramsOf struct {
	any atomic.Bool // some list wants headers

	mu    sync.Mutex
	lists map[principal]*list.Element // of *listed
	order list.List                   // the last used first
	bytes int
}

// listed is what one principal has been told.
type listed struct {
	who   principal
	now   params
	pages params // of a list that is being walked
	next  string // the page of it that comes next, JSON text; "" for none
}

// of returns what a tool wants for a principal.
func (t *paramsOf) of(who principal, tool string) []headerParam {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.lists[who]; e != nil {
		t.order.MoveToFront(e)
		return e.Value.(*listed).now.tools[tool]
	}
	if e := t.lists[principal{}]; e != nil { // what the edge has been told, and passed on
		return e.Value.(*listed).now.tools[tool]
	}
	return nil
}

// replace has a whole list stand in place of the one before.
func (t *paramsOf) replace(who principal, whole *params) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change(who, func(l *listed) { l.now = *whole })
}

// page takes in a page of a list that passes to a principal: what it says of its
// tools holds at once, and the whole list stands in place of the one before when
// its last page has passed. asked is the cursor that the page was asked for by,
// JSON text; nil for the first.
func (t *paramsOf) page(who principal, asked []byte, page *mcp.Message) {
	more := page.Get("nextCursor")
	if !t.any.Load() && !more.OK() && !bytes.Contains(page.Get("tools").Of(page.Raw), []byte("x-mcp-header")) {
		return // as nearly all lists are
	}
	next := string(more.Of(page.Raw))
	if len(next) > maxParamsBytes {
		next = ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change(who, func(l *listed) {
		switch {
		case asked == nil:
			l.pages = params{}
		case string(asked) != l.next:
			l.now.take(page) // of a walk that began otherwise
			return
		}
		l.pages.take(page)
		if l.next = next; !more.OK() {
			l.now, l.pages = l.pages, params{}
			return
		}
		l.now.take(page)
	})
}

// change changes what a principal has been told; t.mu is held.
func (t *paramsOf) change(who principal, f func(*listed)) {
	e := t.lists[who]
	if e == nil {
		if t.lists == nil {
			t.lists = make(map[principal]*list.Element)
		}
		fresh := &listed{who: who}
		e = t.order.PushFront(fresh)
		t.lists[who] = e
		t.bytes += fresh.size()
	}
	t.order.MoveToFront(e)
	l := e.Value.(*listed)
	t.bytes -= l.size()
	f(l)
	t.bytes += l.size()
	for t.bytes > maxParamsAll || t.order.Len() > maxParamsLists {
		last := t.order.Back().Value.(*listed)
		t.order.Remove(t.order.Back())
		delete(t.lists, last.who)
		t.bytes -= last.size()
	}
	some := false
	for e := t.order.Front(); e != nil && !some; e = e.Next() {
		some = len(e.Value.(*listed).now.tools) > 0
	}
	t.any.Store(some)
}

func (l *listed) size() int { return 128 + l.now.bytes + l.pages.bytes + len(l.next) }

// checkParams holds the Mcp-Param headers of a modern call against its arguments, as whoever
// reads bodies must: a legacy backend does not know of them, and a modern one may not check.
// What it checks are the tools of the lists that have passed to whom: a client has its
// knowledge of headers from there, too (2026-07-28, x-mcp-header).
func (b *Backend) checkParams(x *edge.Exchange, who principal) error {
	if x.Head.Remade {
		return nil
	}
	for _, want := range b.mirrored(who, x.Request) {
		i := slices.IndexFunc(x.Head.Params, func(h edge.Header) bool { return strings.EqualFold(h.Name, want.name) })
		switch {
		case i < 0 && want.value != nil:
			return edge.Errorf(edge.Mismatch, "check", "header %s is missing", want.name)
		case i >= 0 && !sameParam(x.Head.Params[i].Value, want.value):
			return edge.Errorf(edge.Mismatch, "check", "header %s does not match the body", want.name)
		}
	}
	return nil
}

// sameParam compares such a header with its argument; nil for none. Numbers are compared as
// such, digit for digit, and strings as they are.
func sameParam(header string, value []byte) bool {
	said, err := mcp.DecodeHeader(header)
	switch {
	case err != nil || value == nil:
		return false
	case value[0] == '"':
		return said == mcp.String(value)
	}
	return mcp.Valid([]byte(said)) == nil && mcp.Same([]byte(said), value)
}
