package catalog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

var things = []edge.Thing{edge.Tool, edge.Prompt, edge.Resource, edge.Template}

// tools is a list of tools of these names, each of which says whose it is.
func tools(backend string, names ...string) *catalog.List {
	l := &catalog.List{}
	for _, name := range names {
		l.Items = append(l.Items, mcp.Change(nil, nil, mcp.Raw("owner", mcp.Quote(backend+"\x00"+name)), mcp.Raw("name", mcp.Quote(name)),
			mcp.With("inputSchema", `{"type":"object"}`)))
	}
	return l
}

func rules(t testing.TB, a *v1beta1.Aggregation, backends ...string) *catalog.Rules {
	t.Helper()
	var all []catalog.Backend
	for _, name := range backends {
		all = append(all, catalog.Backend{Name: name})
	}
	r, wrong := catalog.Parse(field.NewPath("aggregation"), a, all, nil)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	return r
}

// hold checks what is true of every catalog.
func hold(t testing.TB, c *catalog.Catalog, offers []catalog.Offer) {
	t.Helper()
	proper := regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	for _, thing := range things {
		seen := map[string]bool{}
		for target, raw := range c.Items(thing) {
			if seen[target.Name] {
				t.Fatalf("the name %q is there twice", target.Name)
			}
			seen[target.Name] = true
			if c.Lookup(thing, target.Name) != target || c.LookupBytes(thing, []byte(target.Name)) != target {
				t.Fatalf("%q does not lead to its own target", target.Name)
			}
			if c.Advertised(thing, target.Backend, target.Original) != target {
				t.Fatalf("%s.%q is not found from its backend", target.Backend, target.Original)
			}
			member := []string{"", "name", "name", "uri", "uriTemplate"}[thing]
			if got := mcp.String(mcp.Lookup(raw, member)); got != target.Name {
				t.Fatalf("%q is shown as %q", target.Name, got)
			}
			if mcp.Valid(raw) != nil {
				t.Fatalf("%q is shown as %q, which is not JSON", target.Name, raw)
			}
			if thing != edge.Tool || target.Backend == "" {
				continue
			}
			if owner := mcp.String(mcp.Lookup(raw, "owner")); owner != "" && owner != target.Backend+"\x00"+target.Original {
				t.Fatalf("%q leads to %s.%q, but was made from %q", target.Name, target.Backend, target.Original, owner)
			}
			if !c.Bare() && (!proper.MatchString(target.Name) || catalog.Reserved(target.Name)) {
				t.Fatalf("a tool is shown as %q", target.Name)
			}
		}
		for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			if got := walked(t, c, thing, era, nil); !slices.Equal(got, names(c, thing)) {
				t.Fatalf("the list of the %s era has %q, want %q", era, got, names(c, thing))
			}
		}
	}
	for _, o := range offers {
		if o.Backend == "" || o.Tools == nil {
			continue
		}
		for _, raw := range o.Tools.Items {
			if mcp.Valid(raw) != nil {
				continue
			}
			whole := c.LookupWhole(catalog.Whole(o.Backend, mcp.String(mcp.Lookup(raw, "name"))))
			if whole == nil {
				continue
			}
			if shown := c.Lookup(edge.Tool, whole.Name); shown != nil && shown != whole {
				t.Fatalf("%q is the name of %s.%q and of %s.%q", whole.Name, whole.Backend, whole.Original, shown.Backend, shown.Original)
			}
		}
	}
}

func names(c *catalog.Catalog, thing edge.Thing) []string {
	var out []string
	for target := range c.Items(thing) {
		out = append(out, target.Name)
	}
	return out
}

// walked returns the names of all pages of a list.
func walked(t testing.TB, c *catalog.Catalog, thing edge.Thing, era mcp.Era, view edge.View) []string {
	t.Helper()
	member := []string{"", "tools", "prompts", "resources", "resourceTemplates"}[thing]
	name := []string{"", "name", "name", "uri", "uriTemplate"}[thing]
	var out []string
	cursor := ""
	for {
		text, err := c.List(thing, era, view, cursor)
		if err != nil {
			t.Fatal(err)
		}
		if err := mcp.Valid(text); err != nil {
			t.Fatalf("%v: %.300s", err, text)
		}
		items := mcp.Elements(mcp.Lookup(text, member))
		if len(items) > 1000 {
			t.Fatalf("%d items on a page", len(items))
		}
		for _, i := range items {
			out = append(out, mcp.String(mcp.Lookup(i, name)))
		}
		next := mcp.Lookup(text, "nextCursor")
		if next == nil {
			return out
		}
		cursor = mcp.String(next)
	}
}

// hostile makes the name of a tool out of what collides and what is not allowed.
func hostile(r *rand.Rand) string {
	parts := []string{"a", "b", "_", ".", "a_b", "find_tool", "é", " ", "x", "\u200b", strings.Repeat("n", 120), "__", "-", "{workload}"}
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// Whatever backends call their tools: every advertised name leads to the tool
// that it was made from, no two tools have one name, and offers may come in any
// order.
func TestNamesOfStrangers(t *testing.T) {
	backends := []string{"a", "a_b", "b", "a.b", "c"}
	strategies := []v1beta1.ConflictResolution{v1beta1.ConflictPrefix, v1beta1.ConflictPriority, v1beta1.ConflictManual}
	shown, withheld := 0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		a := &v1beta1.Aggregation{
			ConflictResolution:       strategies[r.IntN(3)],
			ConflictResolutionConfig: &v1beta1.ConflictResolutionConfig{PrefixFormat: []string{"{workload}_", "{workload}.", "{workload}", "é{workload}"}[r.IntN(4)]},
		}
		for range r.IntN(4) {
			a.ConflictResolutionConfig.PriorityOrder = append(a.ConflictResolutionConfig.PriorityOrder, backends[r.IntN(len(backends))])
		}
		var offers []catalog.Offer
		for _, b := range backends {
			o := catalog.Offer{Backend: b, Tools: &catalog.List{Down: r.IntN(9) == 0}, Prompts: &catalog.List{}}
			w := v1beta1.WorkloadTools{Workload: b, ExcludeAll: r.IntN(6) == 0, Overrides: map[string]v1beta1.ToolOverride{}}
			for range r.IntN(12) {
				name := hostile(r)
				o.Tools.Items = append(o.Tools.Items, tools(b, name).Items...)
				o.Prompts.Items = append(o.Prompts.Items, tools(b, name).Items...)
				if r.IntN(5) == 0 {
					if to := hostile(r); !catalog.Reserved(to) {
						w.Overrides[name] = v1beta1.ToolOverride{Name: to}
					}
				}
			}
			a.Tools = append(a.Tools, w)
			offers = append(offers, o)
		}
		offers = append(offers, catalog.Offer{Tools: tools("", "x", "a_x", "find_tool")})
		rules := rules(t, a, backends...)
		c := catalog.Build(rules, offers)
		hold(t, c, offers)
		for range 3 {
			other := slices.Clone(offers)
			r.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
			d := catalog.Build(rules, other)
			if c.Version() != d.Version() || catalog.Diff(c, d).Any() || fmt.Sprint(c.Report()) != fmt.Sprint(d.Report()) {
				t.Fatal("the order of the offers makes a difference")
			}
			x, _ := c.List(edge.Tool, mcp.Modern, nil, "")
			y, _ := d.List(edge.Tool, mcp.Modern, nil, "")
			if !bytes.Equal(x, y) {
				t.Fatal("the order of the offers makes a difference to the list")
			}
		}
		shown += len(names(c, edge.Tool))
		for _, f := range c.Report().Findings {
			if f.Reason.Withheld() && f.Thing == edge.Tool {
				withheld++
			}
		}
	}
	if shown < 1500 || withheld < 300 {
		t.Errorf("%d tools shown and %d withheld: the names do not collide enough to prove anything", shown, withheld)
	}
}

// Every tool that a visible backend offers is either shown or withheld with a
// finding that says why.
func TestNothingVanishesSilently(t *testing.T) {
	offers := []catalog.Offer{
		{Backend: "a", Tools: tools("a", "x", "b_c", "find_tool", "é", "è", "x")},
		{Backend: "a_b", Tools: tools("a_b", "c")},
	}
	offers[0].Tools.Items = append(offers[0].Tools.Items, []byte(`{"name":"bare","inputSchema":"s"}`)) // clients would refuse all of them for it
	for _, strategy := range []v1beta1.ConflictResolution{v1beta1.ConflictPrefix, v1beta1.ConflictPriority, v1beta1.ConflictManual} {
		c := catalog.Build(rules(t, &v1beta1.Aggregation{ConflictResolution: strategy}, "a", "a_b"), offers)
		withheld := 0
		for _, f := range c.Report().Findings {
			if f.Reason.Withheld() {
				withheld++
			}
		}
		if !slices.ContainsFunc(c.Report().Findings, func(f catalog.Finding) bool { return f.Reason == catalog.Malformed && f.Original == "bare" }) {
			t.Errorf("%s: nothing says that a tool whose schema is a text is withheld", strategy)
		}
		if n := len(names(c, edge.Tool)); n+withheld != 8 {
			t.Errorf("%s: %d shown and %d withheld of 8", strategy, n, withheld)
		}
	}
}

func TestReportIsBounded(t *testing.T) {
	bad := &catalog.List{}
	for range 5000 {
		bad.Items = append(bad.Items, []byte("{"))
	}
	c := catalog.Build(rules(t, nil, "a", "b"), []catalog.Offer{
		{Backend: "a", Tools: bad},
		{Backend: "b", Tools: tools("b", strings.Repeat("n", 100_000))},
	})
	r := c.Report()
	if len(r.Findings) > 500 || r.More != 4800 {
		t.Errorf("%d findings and %d more", len(r.Findings), r.More)
	}
	long := false
	for _, f := range r.Findings {
		long = long || f.Backend == "b" && f.Reason == catalog.Shortened
		if len(f.String()) > 1000 {
			t.Errorf("a finding of %d bytes", len(f.String()))
		}
	}
	if !long {
		t.Error("one backend's findings leave no room for another's")
	}
}

func TestFindingsDoNothingToATerminal(t *testing.T) {
	f := catalog.Finding{Reason: catalog.SameName, Thing: edge.Tool, Backend: "a", Original: "x\x1b[2J\n", Name: "\u202ex", With: []string{"b.\u200b", "b.y"}}
	if got, want := f.String(), `same-name: tool "a.x\x1b[2J\n" as "\u202ex" (with "b.\u200b", b.y)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestItemsAboveTheLimit(t *testing.T) {
	big := []byte(`{"name":"big","description":"` + strings.Repeat("x", 1<<20) + `"}`)
	c := catalog.Build(rules(t, nil, "a"), []catalog.Offer{{Backend: "a", Tools: &catalog.List{Items: [][]byte{big}}}})
	if n := len(names(c, edge.Tool)); n != 0 {
		t.Errorf("%d tools are shown", n)
	}
	if f := c.Report().Findings; len(f) != 1 || f[0].Reason != catalog.Malformed {
		t.Errorf("found %v", f)
	}
}

func TestDeepSchemas(t *testing.T) {
	// The time is linear in the size however deep a schema goes.
	deep := `{"name":"deep","inputSchema":` + strings.Repeat(`{"type":"object","properties":{"a":`, 400) + `{"type":"string","x-mcp-header":"A","description":"` +
		strings.Repeat("x", 500_000) + `"}` + strings.Repeat("}}", 400) + "}"
	c := catalog.Build(rules(t, nil, "a"), []catalog.Offer{{Backend: "a", Tools: &catalog.List{Items: [][]byte{[]byte(deep)}}}})
	if got := names(c, edge.Tool); !slices.Equal(got, []string{"a_deep"}) {
		t.Errorf("got %q: %v", got, c.Report())
	}
}

// TestPagesOfTools: a page is that of the backend whose tool shows it, whoever lists it.
func TestPagesOfTools(t *testing.T) {
	const page = "ui://shop/page"
	for _, one := range []struct{ lists, shows, at string }{
		{"", "", ""}, {"ac", "", "a"}, {"", "c", "c"}, {"", "bc", "b"},
		{"c", "a", "a"}, {"a", "c", "c"}, {"a", "bc", "b"},
		{"c", "ac", "c"}, {"ac", "ac", "a"}, {"bc", "abc", "b"},
	} {
		var offers []catalog.Offer
		for _, name := range []string{"c", "a", "b"} {
			o := catalog.Offer{Backend: name, Tools: tools(name, "plain"), Resources: &catalog.List{}}
			if strings.Contains(one.shows, name) {
				o.Tools.Items = append(o.Tools.Items, []byte(`{"name":"app","_meta":{"ui":{"resourceUri":"`+page+`"}}}`))
			}
			if strings.Contains(one.lists, name) {
				o.Resources.Items = append(o.Resources.Items, []byte(`{"uri":"`+page+`","name":"p"}`))
			}
			offers = append(offers, o)
		}
		at := ""
		if found := catalog.Build(rules(t, nil, "a", "b", "c"), offers).Located(page); found != nil {
			at = found.Backend
		}
		if at != one.at {
			t.Errorf("%q list it and tools of %q show it: it is at %q, want %q", one.lists, one.shows, at, one.at)
		}
	}
}

func TestTemplatesOfOneBackendAreBounded(t *testing.T) {
	l := &catalog.List{}
	for i := range 1200 {
		l.Items = append(l.Items, []byte(fmt.Sprintf(`{"name":"n","uriTemplate":"x://{a}/%d"}`, i)))
	}
	l.Items = append(l.Items, []byte(`{"name":"n","uriTemplate":"x://`+strings.Repeat("l", 3000)+`"}`))
	c := catalog.Build(rules(t, nil, "a"), []catalog.Offer{{Backend: "a", Templates: l}})
	if n := len(names(c, edge.Template)); n != 1000 {
		t.Errorf("%d templates, want 1000", n)
	}
	if c.Resource("x://1/999") == nil || c.Resource("x://1/1000") != nil {
		t.Error("not the first thousand are matched")
	}
	if c.Resource("x://1/"+strings.Repeat("9", 5000)) != nil {
		t.Error("a URI of 5,000 bytes is held against templates")
	}
	// Templates that take long to match are given up together, not one by one.
	l = &catalog.List{}
	for i := range 1000 {
		l.Items = append(l.Items, []byte(fmt.Sprintf(`{"name":"n","uriTemplate":"x://%s{b%d}"}`, strings.Repeat("{a}a", 15), i)))
	}
	l.Items[len(l.Items)-1] = []byte(`{"name":"n","uriTemplate":"x://{z}/{z}"}`) // the last that is tried
	c = catalog.Build(rules(t, nil, "a"), []catalog.Offer{{Backend: "a", Templates: l}})
	of := func(n int) string { return "x://" + strings.Repeat("a", n) + "/" + strings.Repeat("a", n) }
	if c.Resource(of(100)) == nil {
		t.Error("a short URI is not matched")
	}
	if c.Resource(of(1000)) != nil {
		t.Error("there is no end to matching")
	}
	// Nor is there for the URIs of one message.
	taken, found := 0, 0
	for range 1000 {
		if c.ResourceOf(&taken, of(10)) != nil {
			found++
		}
	}
	if found == 0 || found > 20 {
		t.Errorf("%d URIs of one message are matched", found)
	}
	// What has not the literals of a template takes next to nothing of that.
	taken = 0
	for i := range 1000 {
		if c.ResourceOf(&taken, fmt.Sprintf("x://b/%d", i)) == nil {
			t.Fatalf("the URI of number %d is not matched", i)
		}
	}
}

// Every block of YAML in the README is a configuration whose rules are right.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) < 3 {
		t.Errorf("%d blocks", len(blocks))
	}
	for _, block := range blocks {
		var config v1beta1.ServerConfig
		if err := yaml.UnmarshalStrict(block[1], &config); err != nil {
			t.Errorf("%v in\n%s", err, block[1])
			continue
		}
		var backends []catalog.Backend
		for _, b := range config.Backends {
			backends = append(backends, catalog.Backend{Name: b.Name})
		}
		if _, wrong := catalog.Parse(field.NewPath("aggregation"), config.Aggregation, backends, nil); len(wrong) > 0 || len(backends) == 0 {
			t.Errorf("%v in\n%s", wrong, block[1])
		}
	}
}

func TestDiff(t *testing.T) {
	item := func(s string) *catalog.List { return &catalog.List{Items: [][]byte{[]byte(s)}} }
	base := func() catalog.Offer {
		return catalog.Offer{Backend: "a",
			Tools: item(`{"name":"t","inputSchema":{"type":"object"}}`), Prompts: item(`{"name":"p"}`),
			Resources: item(`{"name":"n","uri":"r://x"}`), Templates: item(`{"name":"n","uriTemplate":"r://{x}"}`)}
	}
	for _, c := range []struct {
		name   string
		change func(*catalog.Offer)
		want   catalog.Changes
	}{
		{"nothing", func(*catalog.Offer) {}, catalog.Changes{}},
		{"time to live", func(o *catalog.Offer) { o.Tools.TTL = 1e9; o.Prompts.Public = true }, catalog.Changes{}},
		{"a schema", func(o *catalog.Offer) { o.Tools = item(`{"name":"t","inputSchema":{"type":"object","x":1}}`) }, catalog.Changes{Tools: true}},
		{"a prompt goes", func(o *catalog.Offer) { o.Prompts.Items = nil }, catalog.Changes{Prompts: true}},
		{"a resource", func(o *catalog.Offer) { o.Resources = item(`{"name":"n","uri":"r://y"}`) }, catalog.Changes{Resources: true}},
		{"a template", func(o *catalog.Offer) { o.Templates = item(`{"name":"n","uriTemplate":"r://y/{x}"}`) }, catalog.Changes{Resources: true}},
		{"all of it", func(o *catalog.Offer) { *o = catalog.Offer{Backend: "a"} }, catalog.Changes{Tools: true, Prompts: true, Resources: true}},
		{"down", func(o *catalog.Offer) { o.Tools.Down = true }, catalog.Changes{Tools: true}},
	} {
		r := rules(t, nil, "a")
		changed := base()
		c.change(&changed)
		before, after := catalog.Build(r, []catalog.Offer{base()}), catalog.Build(r, []catalog.Offer{changed})
		got := catalog.Diff(before, after)
		if got != c.want || got.Any() != (c.want != catalog.Changes{}) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
		if (before.Version() == after.Version()) == got.Any() {
			t.Errorf("%s: versions %s and %s", c.name, before.Version(), after.Version())
		}
	}
	all := catalog.Changes{Tools: true, Prompts: true, Resources: true}
	if got := all.Methods(); !slices.Equal(got, []string{"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed"}) {
		t.Errorf("got %q", got)
	}
}

func TestLookupsOfNothing(t *testing.T) {
	c := catalog.Build(catalog.Bare(), nil)
	for _, thing := range []edge.Thing{edge.NoThing, edge.Tool, edge.Template, 99} {
		if c.Lookup(thing, "x") != nil || c.LookupBytes(thing, []byte("x")) != nil || c.Advertised(thing, "a", "x") != nil {
			t.Errorf("%d: found something", thing)
		}
	}
	for range c.Items(edge.Tool) {
		t.Error("there is an item")
	}
	if !c.Bare() {
		t.Error("not bare")
	}
}

func FuzzBuild(f *testing.F) {
	f.Add(`[{"name":"x"},{"name":"a_x"}]`, `[{"name":"x","annotations":{"readOnlyHint":true}}]`, uint8(0), "x", "y")
	f.Add(`[{"name":"b_c","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]`, `[{"n\u0061me":"\u0063"}]`, uint8(1), "b_c", "find_tool")
	f.Add(`[{"name":"😀","uri":"x://1","uriTemplate":"x://{a}"}]`, `[{"uriTemplate":"x://{+b}"},7,"",null,[]]`, uint8(6), "", "é")
	f.Fuzz(func(t *testing.T, a, b string, how uint8, from, to string) {
		items := func(text string) *catalog.List {
			if mcp.Valid([]byte(text)) != nil {
				return &catalog.List{Items: [][]byte{[]byte(text)}}
			}
			return &catalog.List{Items: mcp.Elements([]byte(text))}
		}
		strategies := []v1beta1.ConflictResolution{v1beta1.ConflictPrefix, v1beta1.ConflictPriority, v1beta1.ConflictManual}
		aggregation := &v1beta1.Aggregation{ConflictResolution: strategies[how%3], ExcludeAllTools: how&8 != 0}
		if how&16 != 0 {
			aggregation.ConflictResolutionConfig = &v1beta1.ConflictResolutionConfig{PriorityOrder: []string{"b", "a"}}
		}
		if to != "" {
			yes := true
			aggregation.Tools = []v1beta1.WorkloadTools{{Workload: "a", ExcludeAll: how&32 != 0,
				Overrides: map[string]v1beta1.ToolOverride{from: {Name: to, Description: to, Annotations: &v1beta1.ToolAnnotations{Title: &to, ReadOnlyHint: &yes}}}}}
		}
		r, _ := catalog.Parse(field.NewPath("aggregation"), aggregation, []catalog.Backend{{Name: "a"}, {Name: "b"}}, nil)
		if how&4 != 0 {
			r = catalog.Bare()
		}
		offers := []catalog.Offer{
			{Backend: "a", Tools: items(a), Prompts: items(a), Resources: items(a), Templates: items(a)},
			{Backend: "b", Tools: items(b), Prompts: items(b), Resources: items(b), Templates: items(b)},
		}
		if how&4 != 0 {
			offers = offers[:1]
		}
		c := catalog.Build(r, offers)
		hold(t, c, offers)
		c.Resource(from)
		slices.Reverse(offers)
		if d := catalog.Build(r, offers); c.Version() != d.Version() {
			t.Fatal("the order of the offers makes a difference")
		}
	})
}

// A template takes every expansion for one.
func FuzzTemplate(f *testing.F) {
	f.Add("x://a/{b}/c", "v", "w")
	f.Add("x://{+b}{/c,d}{?e}", "1/2", "%20")
	f.Fuzz(func(t *testing.T, text, v, w string) {
		l := &catalog.List{Items: [][]byte{mcp.Change(nil, nil, mcp.With("name", `"n"`), mcp.Raw("uriTemplate", mcp.Quote(text)))}}
		c := catalog.Build(rules(t, nil, "a"), []catalog.Offer{{Backend: "a", Templates: l}})
		c.Resource(v + w)
		if len(names(c, edge.Template)) == 0 || !regexp.MustCompile(`^[A-Za-z0-9%-]*$`).MatchString(v+w) || !strings.Contains(text, "{") {
			return
		}
		// Put v and w in the place of simple expressions, in turn.
		i := 0
		uri := regexp.MustCompile(`\{[A-Za-z0-9_]+\}`).ReplaceAllStringFunc(names(c, edge.Template)[0], func(string) string {
			i++
			return []string{v, w}[i%2]
		})
		if strings.ContainsAny(uri, "{}") || len(uri) > 2000 {
			return
		}
		if c.Resource(uri) == nil {
			t.Errorf("%s is no expansion of %s", uri, text)
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, list := many(b, n)
			name := []byte(list[n/2])
			b.ReportAllocs()
			for b.Loop() {
				if c.LookupBytes(edge.Tool, name) == nil {
					b.Fatal("not found")
				}
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	var backends []string
	var offers []catalog.Offer
	for i := range 10 {
		name := fmt.Sprintf("b%d", i)
		backends = append(backends, name)
		l := &catalog.List{}
		for j := range 1000 {
			l.Items = append(l.Items, []byte(fmt.Sprintf(`{"name":"tool_%d","description":%q,"inputSchema":{"type":"object"}}`, j, strings.Repeat("text ", 100))))
		}
		offers = append(offers, catalog.Offer{Backend: name, Tools: l})
	}
	r := rules(b, nil, backends...)
	for b.Loop() {
		catalog.Build(r, offers)
	}
}

func many(t testing.TB, n int) (*catalog.Catalog, []string) {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("tool_%05d", i))
	}
	c := catalog.Build(rules(t, nil, "a"), []catalog.Offer{{Backend: "a", Tools: tools("a", all...)}})
	return c, names(c, edge.Tool)
}

func TestLookupAllocatesNothing(t *testing.T) {
	for _, n := range []int{10, 10_000} {
		c, list := many(t, n)
		name := []byte(list[n/2])
		if got := testing.AllocsPerRun(100, func() {
			if c.LookupBytes(edge.Tool, name) == nil || c.Lookup(edge.Tool, list[0]) == nil || c.LookupWhole("a.tool_00001") == nil {
				t.Fatal("not found")
			}
		}); got != 0 {
			t.Errorf("%d tools: %v allocations", n, got)
		}
	}
}

// TestAdviceFits: what is to be done about a finding can be done to a thing of its kind.
func TestAdviceFits(t *testing.T) {
	t.Parallel()
	for thing, want := range map[edge.Thing][2]string{
		edge.Tool:     {"priorityOrder is meant so; else give it a name of its own with aggregation.tools[].overrides", "aggregation.tools[].overrides"},
		edge.Prompt:   {"priorityOrder is meant so; else change priorityOrder or prefixFormat", "change priorityOrder or prefixFormat"},
		edge.Resource: {"both backends mean the same by it; else have whoever runs one of them change its URI", "change its URI"},
		edge.Template: {"both backends mean the same by it; else have whoever runs one of them change its URI", "change its URI"},
	} {
		for i, reason := range []catalog.Reason{catalog.Lost, catalog.SameName} {
			f := catalog.Finding{Reason: reason, Thing: thing, Backend: "a", Original: "x"}
			if got := f.Advice(false).Next; !strings.Contains(got, want[i]) || thing != edge.Tool && strings.Contains(got, "overrides") {
				t.Errorf("%s: %s", f, got)
			}
		}
	}
}
