// Package catalog turns the offers of backends into the lists that clients see: names,
// conflicts, overrides, visibility, and the lists themselves, encoded once and
// served as they are.
//
// Build makes a Catalog of offers; it is pure. A Book fetches the offers, keeps
// them, and rebuilds the Catalog whenever one has changed.
package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Offer is the offer of one backend. The names of backends are unique; the empty
// name is that of the edge itself, whose reserved names take precedence over all others.
type Offer struct {
	Backend      string
	Capabilities []byte // JSON text of the backend's capabilities; nil while unknown

	Tools, Prompts, Resources, Templates *List // nil while unknown
}

// List is one list of a backend, all pages of it. It is not changed once it is
// part of an offer.
type List struct {
	Items  [][]byte      // JSON text of each, as the backend sent it
	TTL    time.Duration // how long it is fresh; 0 if the backend does not say
	Public bool          // it is the same for everybody

	// Down marks an old list of a backend that is down: its things keep their
	// names and targets, and are not listed.
	Down bool

	// Describe returns an item of the edge's own as a client sees it that is shown the
	// things of seen, itself included: its JSON text, under the same name. It is asked
	// once for each encoded list, and keeps nothing. nil for items that are the same for
	// everybody.
	Describe func(item []byte, seen Things, c *Catalog) []byte

	// Asks are the names by which Describe asks the catalog for tools, seen or not: what
	// the catalog says of them is a part of the list.
	Asks []string

	overrides []edge.Override // of the items, in their order; nil for none
}

// override returns the changes of programs to an item; the zero value for none.
func (l *List) override(i int) edge.Override {
	if l.overrides == nil {
		return edge.Override{}
	}
	return l.overrides[i]
}

// Things are things that clients see, in the order of the list, each with its JSON
// text, which must not be changed.
type Things = iter.Seq2[*edge.Target, []byte]

func (o *Offer) list(thing edge.Thing) *List {
	switch thing {
	case edge.Tool:
		return o.Tools
	case edge.Prompt:
		return o.Prompts
	case edge.Resource:
		return o.Resources
	case edge.Template:
		return o.Templates
	}
	return nil
}

// kinds is the number of kinds of things that have lists. The table of a thing is
// at its number less one, since NoThing has none.
const kinds = 4

// Catalog holds the things that clients of a server see, and their targets. It is
// immutable and safe for concurrent use.
type Catalog struct {
	rules        *Rules
	tables       [kinds]*table
	match        *matcher
	capabilities []byte
	pages        *pageCache
}

// table holds all things of one kind.
type table struct {
	thing edge.Thing
	from  []source

	items    []item                  // the listed ones, in the order of the list
	byName   map[string]*edge.Target // by advertised name or URI
	byOrigin map[origin]*edge.Target // those of byName, by backend and original name
	whole    map[string]*edge.Target // every tool by <workload>.<name>
	apps     map[origin]*edge.Target // of tools: the pages that they show, by backend and URI, and those of the first backend by "" and URI

	definitions map[*edge.Target][]byte // of every tool, as its backend gives it
	report      Report
	findings    map[string]int // by backend, for the bound on the report

	ttl    time.Duration // the least of all lists
	public bool          // all of them are
	listed digest        // of the items
	digest digest        // of everything that an encoded list depends on
	size   int           // about how many bytes it keeps
}

// source is a list that a table was made from.
type source struct {
	backend string
	list    *List
}

type item struct {
	target *edge.Target
	raw    []byte
}

type origin struct{ backend, original string }

type digest [sha256.Size]byte

// maxItem bounds the bytes of one item.
const maxItem = 1 << 20

// Build makes the catalog of the offers. It is pure: the same offers, in
// whatever order, give the same catalog.
func Build(r *Rules, offers []Offer) *Catalog {
	return build(r, offers, nil, newPageCache(maxEncoded, maxEncodedBytes))
}

// build is Build that keeps the tables of an old catalog of the same rules
// whose lists have not changed.
func build(r *Rules, offers []Offer, old *Catalog, p *pageCache) *Catalog {
	offers = slices.SortedStableFunc(slices.Values(offers), func(a, b Offer) int { return cmp.Compare(a.Backend, b.Backend) })
	c := &Catalog{rules: r, pages: p, capabilities: union(offers)}
	for i := range c.tables {
		thing := edge.Thing(i + 1)
		var from []source
		for _, o := range offers {
			if l := o.list(thing); l != nil {
				from = append(from, source{o.Backend, l})
			}
		}
		if old != nil && slices.Equal(from, old.tables[i].from) {
			c.tables[i] = old.tables[i]
			continue
		}
		c.tables[i] = newTable(r, thing, from)
	}
	if templates := c.table(edge.Template); old != nil && templates == old.table(edge.Template) {
		c.match = old.match
	} else {
		c.match = newMatcher(templates)
	}
	return c
}

func newTable(r *Rules, thing edge.Thing, from []source) *table {
	t := &table{
		thing: thing, from: from,
		byName:   make(map[string]*edge.Target),
		byOrigin: make(map[origin]*edge.Target),
	}
	switch thing {
	case edge.Tool:
		t.tools(r)
	case edge.Prompt:
		t.prompts(r)
	case edge.Resource:
		t.uris(r, "uri")
	case edge.Template:
		t.uris(r, "uriTemplate")
	}
	t.close(r)
	return t
}

// advertise gives a thing its name. An item that is down is not listed.
func (t *table) advertise(target *edge.Target, raw []byte, down bool) {
	t.byName[target.Name] = target
	t.byOrigin[origin{target.Backend, target.Original}] = target
	if !down {
		t.items = append(t.items, item{target, raw})
	}
}

// close sorts the list and the report and computes digests and size.
func (t *table) close(r *Rules) {
	if r.Conflicts != "" { // else the one backend's own order stays
		slices.SortFunc(t.items, func(a, b item) int { return cmp.Compare(a.target.Name, b.target.Name) })
	}
	slices.SortStableFunc(t.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Original, b.Original), cmp.Compare(a.Reason, b.Reason))
	})
	up := 0
	t.public = true
	for _, s := range t.from {
		if s.backend == "" || s.list.Down {
			continue
		}
		if up++; up == 1 || s.list.TTL < t.ttl {
			t.ttl = s.list.TTL
		}
		t.public = t.public && s.list.Public
	}
	t.public = t.public && up > 0
	h := sha256.New()
	h.Write([]byte{byte(t.thing)})
	var n [8]byte
	for _, i := range t.items {
		h.Write(binary.BigEndian.AppendUint64(n[:0], uint64(len(i.raw))))
		h.Write(i.raw)
		t.size += len(i.raw)
	}
	for _, s := range t.from {
		for _, name := range s.list.Asks {
			if at := t.whole[name]; at != nil {
				text, _ := json.Marshal([]*bool{at.ReadOnly, at.Destructive, at.Idempotent, at.OpenWorld})
				h.Write(text)
			}
			h.Write([]byte{0})
		}
	}
	h.Sum(t.listed[:0])
	h.Write(binary.BigEndian.AppendUint64(n[:0], uint64(t.ttl)))
	if t.public {
		h.Write([]byte{1})
	}
	// A view looks at whose a thing is, which its text does not say: two backends may list the same.
	for _, i := range t.items {
		for _, s := range [...]string{i.target.Backend, i.target.Original} {
			h.Write(binary.BigEndian.AppendUint64(n[:0], uint64(len(s))))
			h.Write([]byte(s))
		}
	}
	h.Sum(t.digest[:0])
	t.size += 512 * (len(t.byName) + len(t.whole) + len(t.apps))
}

func (c *Catalog) table(thing edge.Thing) *table { return c.tables[thing-1] }

// Bare reports whether the catalog is that of one backend whose names stay as
// they are.
func (c *Catalog) Bare() bool { return c.rules.Conflicts == "" }

// Lookup returns the target of a tool or prompt by its advertised name; nil when
// clients see none. It allocates nothing.
func (c *Catalog) Lookup(thing edge.Thing, name string) *edge.Target {
	if thing < edge.Tool || thing > edge.Template {
		return nil
	}
	return c.table(thing).byName[name]
}

// LookupBytes is Lookup by a name that is not a string yet. It allocates
// nothing.
func (c *Catalog) LookupBytes(thing edge.Thing, name []byte) *edge.Target {
	if thing < edge.Tool || thing > edge.Template {
		return nil
	}
	return c.table(thing).byName[string(name)]
}

// LookupWhole returns the target of <workload>.<name>, for tools that clients see
// and for those that are hidden or withheld; nil when there is no such tool, or
// when the name could be that of several. name is the backend's own name for
// the tool. The target of a tool that clients see has its advertised name.
func (c *Catalog) LookupWhole(name string) *edge.Target { return c.table(edge.Tool).whole[name] }

// OfAnother reports whether a name reads as <workload>.<name> of a backend that is not the given
// one, whether that has such a tool now or not: who writes it means that backend's tool.
func (c *Catalog) OfAnother(name, backend string) bool {
	for i := range len(name) { // a workload may have dots in its name
		if name[i] != '.' || name[:i] == backend {
			continue
		}
		if _, ok := c.rules.Workloads[name[:i]]; ok {
			return true
		}
	}
	return false
}

// Wholes returns the names by which LookupWhole finds a tool, sorted.
func (c *Catalog) Wholes() []string { return slices.Sorted(maps.Keys(c.table(edge.Tool).whole)) }

// Definition returns the definition of a tool that LookupWhole or Lookup found, as its
// backend gives it: JSON text, which must not be changed; nil for another target.
func (c *Catalog) Definition(t *edge.Target) []byte { return c.table(edge.Tool).definitions[t] }

// Advertised returns the target of a thing by the name or URI that its backend
// uses, for notifications, links and references of the backend; nil if clients do
// not see it.
func (c *Catalog) Advertised(thing edge.Thing, backend, original string) *edge.Target {
	if thing < edge.Tool || thing > edge.Template {
		return nil
	}
	return c.table(thing).byOrigin[origin{backend, original}]
}

// Located returns the target of a URI that a backend lists, or whose page one of its tools
// shows; nil for any other. Who lists the page of another's tool does not have it, unless a tool
// of its own shows it, too.
func (c *Catalog) Located(uri string) *edge.Target {
	t, apps := c.table(edge.Resource).byName[uri], c.table(edge.Tool).apps
	if page := apps[origin{"", uri}]; page != nil && (t == nil || apps[origin{t.Backend, uri}] == nil) {
		return page
	}
	return t
}

// Resource returns the target of a URI: that of Located, else the backend
// with a template that matches it. It returns nil when no backend has it, and when
// templates of several backends match and the rules do not order them.
func (c *Catalog) Resource(uri string) *edge.Target {
	return c.ResourceOf(new(int), uri)
}

// ResourceOf is Resource for one of the URIs that a message names. taken is how many steps
// of matching the message has taken, to which it adds: a message that takes more than there
// are has no resource of a template any more.
func (c *Catalog) ResourceOf(taken *int, uri string) *edge.Target {
	if t := c.Located(uri); t != nil {
		return t
	}
	backend, ok := c.match.backend(c.rules, uri, taken)
	if !ok {
		return nil
	}
	return &edge.Target{Backend: backend, Thing: edge.Resource, Name: uri, Original: uri}
}

// Items yields the things of a kind that clients see.
func (c *Catalog) Items(thing edge.Thing) Things { return things(c.table(thing).items) }

// Tool returns a tool that clients see by its advertised name, and its JSON text, which must
// not be changed; nil for none.
func (c *Catalog) Tool(name string) (*edge.Target, []byte) {
	t := c.table(edge.Tool)
	target := t.byName[name]
	if target == nil {
		return nil, nil
	}
	at := func(i item) bool { return i.target == target }
	if !c.Bare() { // they are sorted by name
		i, ok := slices.BinarySearchFunc(t.items, name, func(i item, name string) int { return cmp.Compare(i.target.Name, name) })
		if !ok || !at(t.items[i]) {
			return nil, nil
		}
		return target, t.items[i].raw
	}
	if i := slices.IndexFunc(t.items, at); i >= 0 {
		return target, t.items[i].raw
	}
	return nil, nil
}

// Shown returns the JSON text of a tool as the list shows it to clients of an era that see
// these tools; only a tool of the edge's own depends on them.
func (c *Catalog) Shown(era mcp.Era, target *edge.Target, raw []byte, seen Things) []byte {
	t := c.table(edge.Tool)
	if target.Backend == "" {
		raw = c.described(t, raw, seen)
	}
	if era == mcp.Legacy {
		raw = mcp.LegacyTool(raw)
	}
	return raw
}

// Seen yields those of Items that a view allows; nil for all.
func (c *Catalog) Seen(thing edge.Thing, view edge.View) Things {
	return func(yield func(*edge.Target, []byte) bool) {
		for target, raw := range c.Items(thing) {
			if (view == nil || view.Allows(target)) && !yield(target, raw) {
				return
			}
		}
	}
}

// Listed is a digest of the list of a kind: equal lists have equal digests.
func (c *Catalog) Listed(thing edge.Thing) [sha256.Size]byte { return c.table(thing).listed }

func things(items []item) Things {
	return func(yield func(*edge.Target, []byte) bool) {
		for _, i := range items {
			if !yield(i.target, i.raw) {
				return
			}
		}
	}
}

// Report returns the findings made while the catalog was built.
func (c *Catalog) Report() Report {
	var all Report
	for _, t := range c.tables {
		all.Findings = append(all.Findings, t.report.Findings...)
		all.More += t.report.More
	}
	return all
}

// Version identifies the lists that clients see: catalogs with equal lists have
// equal versions.
func (c *Catalog) Version() string {
	h := sha256.New()
	for _, t := range c.tables {
		h.Write(t.listed[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Changes says which kinds of lists differ. Resources and templates share one
// notification.
type Changes struct{ Tools, Prompts, Resources bool }

// Any reports whether any list differs.
func (c Changes) Any() bool { return c.Tools || c.Prompts || c.Resources }

// Methods returns the notifications that tell of the changes.
func (c Changes) Methods() []string {
	var out []string
	if c.Tools {
		out = append(out, "notifications/tools/list_changed")
	}
	if c.Prompts {
		out = append(out, "notifications/prompts/list_changed")
	}
	if c.Resources {
		out = append(out, "notifications/resources/list_changed")
	}
	return out
}

// Add joins the changes of o to those of c.
func (c *Changes) Add(o Changes) {
	c.Tools = c.Tools || o.Tools
	c.Prompts = c.Prompts || o.Prompts
	c.Resources = c.Resources || o.Resources
}

func changeOf(thing edge.Thing) Changes {
	return Changes{
		Tools:     thing == edge.Tool,
		Prompts:   thing == edge.Prompt,
		Resources: thing == edge.Resource || thing == edge.Template,
	}
}

// Diff returns the kinds whose lists differ between two catalogs.
func Diff(a, b *Catalog) Changes {
	var c Changes
	for i := range a.tables {
		if a.tables[i].listed != b.tables[i].listed {
			c.Add(changeOf(edge.Thing(i + 1)))
		}
	}
	return c
}

// Capabilities returns JSON text of the capabilities of the server: those that any
// backend declares and the edge passes on. It declares listChanged for
// every list, since the edge compares lists itself.
func (c *Catalog) Capabilities() []byte { return c.capabilities }

func union(offers []Offer) []byte {
	has := func(path ...string) bool {
		return slices.ContainsFunc(offers, func(o Offer) bool {
			v := mcp.Lookup(o.Capabilities, path...)
			return len(v) > 0 && (v[0] == '{' || string(v) == "true")
		})
	}
	var set []mcp.Member
	add := func(name, value string) { set = append(set, mcp.With(name, value)) }
	if has("completions") {
		add("completions", "{}")
	}
	if has("logging") {
		add("logging", "{}")
	}
	if has("prompts") {
		add("prompts", `{"listChanged":true}`)
	}
	switch {
	case has("resources", "subscribe"):
		add("resources", `{"subscribe":true,"listChanged":true}`)
	case has("resources"):
		add("resources", `{"listChanged":true}`)
	}
	own := slices.ContainsFunc(offers, func(o Offer) bool { return o.Backend == "" && o.Tools != nil && len(o.Tools.Items) > 0 })
	if own || has("tools") {
		add("tools", `{"listChanged":true}`)
	}
	return mcp.Change(nil, nil, set...)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// size returns about how many bytes the catalog keeps.
func (c *Catalog) size() int {
	n := 0
	for _, t := range c.tables {
		n += t.size
	}
	return n
}

// Notices returns the notifications for the changes.
func (c Changes) Notices() []*mcp.Message {
	var all []*mcp.Message
	for _, method := range c.Methods() {
		if n, err := mcp.Decode(mcp.AppendRequest(nil, nil, method, nil)); err == nil {
			all = append(all, n)
		}
	}
	return all
}
