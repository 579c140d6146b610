package catalog

import (
	"container/list"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Bounds of the pages sent to clients, and of the cache of them.
const (
	pageItems       = 1000
	pageBytes       = 4 << 20 // of items; one item may be more than that by itself
	maxEncoded      = 1024    // lists in the page cache
	maxEncodedBytes = 64 << 20
)

// List returns the JSON text of the result of a list request: the page that the
// cursor names, "" standing for the first. Legacy results have the
// members that era defines; modern ones have resultType, the least ttlMs of all
// backends, and a cacheScope that is public only if all backends say so and there
// is no view (2026-07-28, server/utilities/caching). A cursor is valid while the
// list and the view stay the same. The text is shared and must not be changed. An
// error is of kind Params.
func (c *Catalog) List(thing edge.Thing, era mcp.Era, view edge.View, cursor string) ([]byte, error) {
	if thing < edge.Tool || thing > edge.Template {
		return nil, edge.Errorf(edge.Internal, "list", "there is no list of it")
	}
	t := c.table(thing)
	key := listKey{table: t.digest, era: era}
	if view != nil {
		key.viewed, key.view = true, view.Key()
	}
	s := c.pages.get(key, func() *encodedList { return c.encode(t, era, view, key) })
	if cursor == "" {
		return s.pages[0], nil
	}
	n, ok := pageOf(cursor, s.tag)
	if !ok || n < 1 || n >= len(s.pages) {
		return nil, edge.Errorf(edge.Params, "list", "invalid cursor")
	}
	return s.pages[n], nil
}

// Thing returns the kind of thing that a method lists; NoThing for a method
// that lists none.
func Thing(method string) edge.Thing {
	switch method {
	case "tools/list":
		return edge.Tool
	case "prompts/list":
		return edge.Prompt
	case "resources/list":
		return edge.Resource
	case "resources/templates/list":
		return edge.Template
	}
	return edge.NoThing
}

// method returns the method that lists a thing, and the member of its result that
// holds the list.
func method(thing edge.Thing) (method, member string) {
	switch thing {
	case edge.Prompt:
		return "prompts/list", "prompts"
	case edge.Resource:
		return "resources/list", "resources"
	case edge.Template:
		return "resources/templates/list", "resourceTemplates"
	}
	return "tools/list", "tools"
}

// tag marks the cursors of one list under one view.
type tag [8]byte

// cursor returns the cursor of a page.
func (t tag) cursor(page int) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(t[:], uint32(page)))
}

// pageOf reads a cursor.
func pageOf(cursor string, t tag) (int, bool) {
	var b [12]byte
	if len(cursor) != base64.RawURLEncoding.EncodedLen(len(b)) {
		return 0, false
	}
	if n, err := base64.RawURLEncoding.Strict().Decode(b[:], []byte(cursor)); err != nil || n != len(b) || tag(b[:8]) != t {
		return 0, false
	}
	return int(binary.BigEndian.Uint32(b[8:])), true
}

// encode encodes the items of a table that a view allows, in the form of an era.
func (c *Catalog) encode(t *table, era mcp.Era, view edge.View, key listKey) *encodedList {
	s := &encodedList{}
	h := sha256.New()
	h.Write(t.listed[:])
	h.Write([]byte{byte(era)})
	if key.viewed {
		h.Write([]byte("\x00" + key.view))
	}
	copy(s.tag[:], h.Sum(nil))
	_, member := method(t.thing)
	var page []byte
	n := 0
	begin := func() {
		page = append([]byte{}, '{')
		if era == mcp.Modern {
			page = append(page, `"resultType":"complete",`...)
		}
		page = append(append(append(page, '"'), member...), `":[`...)
		n = 0
	}
	end := func(more bool) {
		page = append(page, ']')
		if more {
			page = append(append(page, `,"nextCursor":"`...), s.tag.cursor(len(s.pages)+1)...)
			page = append(page, '"')
		}
		if era == mcp.Modern {
			page = strconv.AppendInt(append(page, `,"ttlMs":`...), int64(t.ttl/time.Millisecond), 10)
			scope := "private"
			if t.public && view == nil {
				scope = "public"
			}
			page = append(append(append(page, `,"cacheScope":"`...), scope...), '"')
		}
		s.pages = append(s.pages, append(page, '}'))
		s.size += len(page)
	}
	shown := t.items
	if view != nil {
		shown = nil
		for _, i := range t.items {
			if view.Allows(i.target) {
				shown = append(shown, i)
			}
		}
	}
	begin()
	for _, i := range shown {
		raw := i.raw
		if i.target.Backend == "" {
			raw = c.described(t, raw, things(shown))
		}
		if era == mcp.Legacy && t.thing == edge.Tool {
			raw = mcp.LegacyTool(raw)
		}
		if n == pageItems || n > 0 && len(page)+len(raw) > pageBytes {
			end(true)
			begin()
		}
		if n > 0 {
			page = append(page, ',')
		}
		page = append(page, raw...)
		n++
	}
	end(false)
	return s
}

// described returns an item of the edge's own for clients that are shown what is shown.
func (c *Catalog) described(t *table, raw []byte, shown Things) []byte {
	for _, s := range t.from {
		if s.backend == "" && s.list.Describe != nil {
			return s.list.Describe(raw, shown, c)
		}
	}
	return raw
}

// encodedList is a list as JSON text, in pages.
type encodedList struct {
	pages [][]byte
	tag   tag
	size  int
}

// listKey is the key of an encoded list.
type listKey struct {
	table  digest
	era    mcp.Era
	viewed bool
	view   string
}

// pageCache keeps the most recently used encoded lists, each encoded once.
// It is safe for concurrent use.
type pageCache struct {
	lists, bytes int // at most

	mu    sync.Mutex
	byKey map[listKey]*list.Element // of *cachedList
	order list.List                 // the last used first
	held  int                       // bytes
}

// cachedList is an entry of a pageCache.
type cachedList struct {
	key  listKey
	once sync.Once
	list *encodedList
	held int // bytes that pageCache.held counts for it
}

func newPageCache(lists, bytes int) *pageCache {
	return &pageCache{lists: lists, bytes: bytes, byKey: make(map[listKey]*list.Element)}
}

// get returns the encoded list of a key, which encode makes if there is none.
func (p *pageCache) get(key listKey, encode func() *encodedList) *encodedList {
	p.mu.Lock()
	e := p.byKey[key]
	if e == nil {
		e = p.order.PushFront(&cachedList{key: key})
		p.byKey[key] = e
		p.trim()
	} else {
		p.order.MoveToFront(e)
	}
	at := e.Value.(*cachedList)
	p.mu.Unlock()
	at.once.Do(func() {
		defer p.keep(e, at)
		at.list = encode()
	})
	if at.list == nil {
		return encode() // the goroutine that was encoding it panicked
	}
	return at.list
}

// keep counts the bytes of an encoded list, or removes its entry if there is no
// list or it is above the bound by itself.
func (p *pageCache) keep(e *list.Element, at *cachedList) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey[at.key] != e {
		return
	}
	if at.list == nil || at.list.size > p.bytes {
		p.order.Remove(e)
		delete(p.byKey, at.key)
		return
	}
	at.held = at.list.size
	p.held += at.held
	p.trim()
}

// trim evicts the least recently used lists until the rest is within bounds; p.mu
// is held.
func (p *pageCache) trim() {
	for p.order.Len() > p.lists || p.held > p.bytes && p.order.Len() > 0 {
		e := p.order.Back()
		old := p.order.Remove(e).(*cachedList)
		delete(p.byKey, old.key)
		p.held -= old.held
	}
}
