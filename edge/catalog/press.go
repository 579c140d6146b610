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

// Bounds of the lists towards clients, and of what is kept of them.
const (
	pageItems  = 1000
	pageBytes  = 4 << 20 // of items; one item may be more than that by itself
	maxSheets  = 1024    // encoded lists that are kept
	maxPressed = 64 << 20
)

// List returns the JSON text of the result of a list request: the page that the
// cursor names, "" standing for the first. Legacy results have what that era
// defines; modern ones say that they are complete and how long they hold: the
// least ttlMs of all backends, and public only where all of them say so and no
// view is in the way (2026-07-28, server/utilities/caching). A cursor is good as
// long as the list and the view are the same. The text is kept and shared, and
// is not to be changed. An error is of kind Params.
func (c *Catalog) List(thing edge.Thing, era mcp.Era, view edge.View, cursor string) ([]byte, error) {
	if thing < edge.Tool || thing > edge.Template {
		return nil, edge.Errorf(edge.Internal, "list", "there is no list of it")
	}
	t := c.table(thing)
	key := sheetKey{table: t.digest, era: era}
	if view != nil {
		key.viewed, key.view = true, view.Key()
	}
	s := c.press.sheet(key, func() *sheet { return t.print(era, view, key) })
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

// method is the method that lists a thing, and the member of its result that
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

// print encodes the list of a table as an era has it, as far as a view allows.
func (t *table) print(era mcp.Era, view edge.View, key sheetKey) *sheet {
	s := &sheet{}
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
	begin()
	for _, i := range t.items {
		if view != nil && !view.Allows(i.target) {
			continue
		}
		raw := i.raw
		if era == mcp.Legacy && t.thing == edge.Tool {
			raw = legacyTool(raw)
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

// legacyTool returns a tool without an output schema that does not describe an
// object: legacy clients refuse a whole list for one of them (2025-11-25,
// schema, Tool.outputSchema).
func legacyTool(raw []byte) []byte {
	out := mcp.Lookup(raw, "outputSchema")
	if out == nil || mcp.String(mcp.Lookup(out, "type")) == "object" {
		return raw
	}
	return mcp.Change(raw, []string{"outputSchema"})
}

// sheet is an encoded list.
type sheet struct {
	pages [][]byte
	tag   tag
	size  int
}

// sheetKey says which list it is.
type sheetKey struct {
	table  digest
	era    mcp.Era
	viewed bool
	view   string
}

// press keeps encoded lists, those that were asked for last, each encoded once.
// It is safe for concurrent use.
type press struct {
	sheets, bytes int // that are kept at most

	mu    sync.Mutex
	byKey map[sheetKey]*list.Element // of *pressed
	order list.List                  // asked for last comes first
	held  int                        // bytes
}

// pressed is a place for a sheet.
type pressed struct {
	key   sheetKey
	once  sync.Once
	sheet *sheet
	held  int // bytes that press.held counts for it
}

func newPress(sheets, bytes int) *press {
	return &press{sheets: sheets, bytes: bytes, byKey: make(map[sheetKey]*list.Element)}
}

// sheet returns the sheet of a key, which print makes when there is none.
func (p *press) sheet(key sheetKey, print func() *sheet) *sheet {
	p.mu.Lock()
	e := p.byKey[key]
	if e == nil {
		e = p.order.PushFront(&pressed{key: key})
		p.byKey[key] = e
		p.trim()
	} else {
		p.order.MoveToFront(e)
	}
	at := e.Value.(*pressed)
	p.mu.Unlock()
	at.once.Do(func() {
		defer p.keep(e, at)
		at.sheet = print()
	})
	if at.sheet == nil {
		return print() // the first to print it did not come to an end
	}
	return at.sheet
}

// keep counts what was printed, or lets go of its place when it is nothing that
// can be kept.
func (p *press) keep(e *list.Element, at *pressed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey[at.key] != e {
		return
	}
	if at.sheet == nil || at.sheet.size > p.bytes {
		p.order.Remove(e)
		delete(p.byKey, at.key)
		return
	}
	at.held = at.sheet.size
	p.held += at.held
	p.trim()
}

// trim lets go of what was asked for longest ago until the rest is within
// bounds; p.mu is held.
func (p *press) trim() {
	for p.order.Len() > p.sheets || p.held > p.bytes && p.order.Len() > 0 {
		e := p.order.Back()
		old := p.order.Remove(e).(*pressed)
		delete(p.byKey, old.key)
		p.held -= old.held
	}
}
