package catalog_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
)

// view lets names with a suffix pass, and counts what it is asked.
type view struct {
	key, suffix string
	mu          sync.Mutex
	asked       int
}

func (v *view) Key() string { return v.key }

func (v *view) Allows(i *edge.Item) bool {
	v.mu.Lock()
	v.asked++
	v.mu.Unlock()
	return strings.HasSuffix(i.Name, v.suffix)
}

func TestPages(t *testing.T) {
	for _, n := range []int{0, 1, 999, 1000, 1001, 2000, 2001, 3500} {
		c, all := many(t, n)
		if got := walked(t, c, edge.Tool, mcp.Modern, nil); !slices.Equal(got, all) {
			t.Errorf("%d tools: %d are listed", n, len(got))
		}
		odd := &view{key: "odd", suffix: "1"}
		want := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasSuffix(s, "1") })
		if got := walked(t, c, edge.Tool, mcp.Legacy, odd); !slices.Equal(got, want) {
			t.Errorf("%d tools under a view: %d are listed, want %d", n, len(got), len(want))
		}
	}
}

func TestPagesAreBoundedByBytes(t *testing.T) {
	l := &catalog.List{}
	for i := range 12 {
		l.Items = append(l.Items, []byte(fmt.Sprintf(`{"name":"t%02d","description":"%s"}`, i, strings.Repeat("x", 1_000_000))))
	}
	c := catalog.Build(catalog.Bare(), []catalog.Offer{{Backend: "a", Tools: l}})
	pages, cursor := 0, ""
	for {
		text, err := c.List(edge.Tool, mcp.Modern, nil, cursor)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		if len(text) > 4<<20+200 {
			t.Errorf("a page of %d bytes", len(text))
		}
		if cursor = mcp.String(mcp.Lookup(text, "nextCursor")); cursor == "" {
			break
		}
	}
	if pages != 3 {
		t.Errorf("%d pages, want 3 of four items each", pages)
	}
}

func TestCursors(t *testing.T) {
	c, _ := many(t, 2500)
	text, err := c.List(edge.Tool, mcp.Modern, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	good := mcp.String(mcp.Lookup(text, "nextCursor"))
	if _, err := c.List(edge.Tool, mcp.Modern, nil, good); err != nil {
		t.Fatal(err)
	}
	same, _ := many(t, 2500)
	if _, err := same.List(edge.Tool, mcp.Modern, nil, good); err != nil {
		t.Errorf("a cursor of an equal catalog: %v", err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	page := func(n byte) string { return base64.RawURLEncoding.EncodeToString(append(slices.Clone(raw[:11]), n)) }
	if page(1) != good {
		t.Fatalf("the last byte of %x is not the page", raw)
	}
	other, _ := many(t, 2501)
	for name, list := range map[string]func() ([]byte, error){
		"the first page, which has none": func() ([]byte, error) { return c.List(edge.Tool, mcp.Modern, nil, page(0)) },
		"a page after the last":          func() ([]byte, error) { return c.List(edge.Tool, mcp.Modern, nil, page(3)) },
		"another catalog":                func() ([]byte, error) { return other.List(edge.Tool, mcp.Modern, nil, good) },
		"another kind":                   func() ([]byte, error) { return c.List(edge.Prompt, mcp.Modern, nil, good) },
		"another era":                    func() ([]byte, error) { return c.List(edge.Tool, mcp.Legacy, nil, good) },
		"another view":                   func() ([]byte, error) { return c.List(edge.Tool, mcp.Modern, &view{key: ""}, good) },
		"too short":                      func() ([]byte, error) { return c.List(edge.Tool, mcp.Modern, nil, good[1:]) },
		"no base64":                      func() ([]byte, error) { return c.List(edge.Tool, mcp.Modern, nil, "!"+good[1:]) },
		"white space":                    func() ([]byte, error) { return c.List(edge.Tool, mcp.Modern, nil, "\n"+good[1:]) },
	} {
		text, err := list()
		if edge.KindOf(err) != edge.Params || text != nil || !strings.HasSuffix(err.Error(), "invalid cursor") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.List(edge.NoThing, mcp.Modern, nil, ""); edge.KindOf(err) != edge.Internal || err == nil {
		t.Errorf("a list of nothing: %v", err)
	}
}

func FuzzCursor(f *testing.F) {
	c, all := many(f, 2500)
	good := ""
	for range 2 {
		text, err := c.List(edge.Tool, mcp.Modern, nil, good)
		if err != nil {
			f.Fatal(err)
		}
		good = mcp.String(mcp.Lookup(text, "nextCursor"))
		f.Add(good)
	}
	f.Add("")
	f.Add("AAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, cursor string) {
		text, err := c.List(edge.Tool, mcp.Modern, nil, cursor)
		if err != nil {
			if edge.KindOf(err) != edge.Params {
				t.Fatal(err)
			}
			return
		}
		first := mcp.String(mcp.Lookup(mcp.Elements(mcp.Lookup(text, "tools"))[0], "name"))
		if at := slices.Index(all, first); at%1000 != 0 || cursor == "" && at != 0 {
			t.Fatalf("the page of %q starts at %d", cursor, at)
		}
	})
}

func TestHints(t *testing.T) {
	list := func(ttl time.Duration, public bool) *catalog.List {
		l := tools("", fmt.Sprintf("t%d", ttl))
		l.TTL, l.Public = ttl, public
		return l
	}
	for _, c := range []struct {
		name  string
		lists []*catalog.List
		view  edge.View
		ttl   string
		scope string
	}{
		{"one", []*catalog.List{list(time.Minute, true)}, nil, "60000", "public"},
		{"the least", []*catalog.List{list(time.Minute, true), list(1500*time.Millisecond, true)}, nil, "1500", "public"},
		{"one says nothing", []*catalog.List{list(time.Minute, true), list(0, false)}, nil, "0", "private"},
		{"one is private", []*catalog.List{list(time.Minute, true), list(time.Minute+1, false)}, nil, "60000", "private"},
		{"under a view", []*catalog.List{list(time.Minute, true)}, &view{key: "k"}, "60000", "private"},
		{"nobody", nil, nil, "0", "private"},
	} {
		var offers []catalog.Offer
		var backends []string
		for i, l := range c.lists {
			backends = append(backends, fmt.Sprintf("b%d", i))
			offers = append(offers, catalog.Offer{Backend: backends[i], Tools: l})
		}
		offers = append(offers, catalog.Offer{Tools: tools("", "own")})
		built := catalog.Build(rules(t, nil, backends...), offers)
		text, err := built.List(edge.Tool, mcp.Modern, c.view, "")
		if err != nil {
			t.Fatal(err)
		}
		if ttl, scope := string(mcp.Lookup(text, "ttlMs")), mcp.String(mcp.Lookup(text, "cacheScope")); ttl != c.ttl || scope != c.scope {
			t.Errorf("%s: ttlMs %s and cacheScope %s, want %s and %s", c.name, ttl, scope, c.ttl, c.scope)
		}
		if mcp.String(mcp.Lookup(text, "resultType")) != "complete" {
			t.Errorf("%s: %s", c.name, text)
		}
		text, err = built.List(edge.Tool, mcp.Legacy, c.view, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, member := range []string{"ttlMs", "cacheScope", "resultType"} {
			if mcp.Lookup(text, member) != nil {
				t.Errorf("%s: a legacy list has %s", c.name, member)
			}
		}
	}
}

// A list is encoded once for a view, and then served as it is.
func TestListsAreEncodedOnce(t *testing.T) {
	c, _ := many(t, 300)
	v := &view{key: "k", suffix: ""}
	var first []byte
	for range 5 {
		text, err := c.List(edge.Tool, mcp.Modern, v, "")
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = text
		}
		if &text[0] != &first[0] {
			t.Fatal("the list was encoded again")
		}
	}
	if v.asked != 300 {
		t.Errorf("the view was asked %d times for 300 tools", v.asked)
	}
	// A view with an equal key is the same view.
	if _, err := c.List(edge.Tool, mcp.Modern, &view{key: "k", suffix: "never"}, ""); err != nil {
		t.Fatal(err)
	}
	if text, _ := c.List(edge.Tool, mcp.Modern, &view{key: "k", suffix: "never"}, ""); &text[0] != &first[0] {
		t.Error("an equal key was encoded again")
	}
	// Many views push it out, and it comes again as it was.
	for i := range 1200 {
		if _, err := c.List(edge.Tool, mcp.Modern, &view{key: fmt.Sprint(i), suffix: "never"}, ""); err != nil {
			t.Fatal(err)
		}
	}
	text, err := c.List(edge.Tool, mcp.Modern, v, "")
	if err != nil {
		t.Fatal(err)
	}
	if &text[0] == &first[0] || string(text) != string(first) || v.asked != 600 {
		t.Errorf("after 1,200 other views: asked %d times", v.asked)
	}
}

func TestListsForManyAtOnce(t *testing.T) {
	c, all := many(t, 1000)
	v := &view{key: "k"}
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for range 5 {
				if got := walked(t, c, edge.Tool, mcp.Modern, v); !slices.Equal(got, all) {
					t.Errorf("%d tools", len(got))
				}
			}
		})
	}
	work.Wait()
	if v.asked != 1000 {
		t.Errorf("asked %d times", v.asked)
	}
}

// grumpy panics the first time.
type grumpy struct {
	view
	calm bool
}

func (g *grumpy) Allows(i *edge.Item) bool {
	if !g.calm {
		g.calm = true
		panic("not today")
	}
	return true
}

func TestViewThatPanics(t *testing.T) {
	c, all := many(t, 3)
	v := &grumpy{view: view{key: "k"}}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = c.List(edge.Tool, mcp.Modern, v, "")
	}()
	if got := walked(t, c, edge.Tool, mcp.Modern, v); !slices.Equal(got, all) {
		t.Errorf("then %q", got)
	}
}

func TestThing(t *testing.T) {
	for method, want := range map[string]edge.Thing{
		"tools/list": edge.Tool, "prompts/list": edge.Prompt, "resources/list": edge.Resource,
		"resources/templates/list": edge.Template, "tools/call": edge.NoThing, "": edge.NoThing,
	} {
		if got := catalog.Thing(method); got != want {
			t.Errorf("%s: %d", method, got)
		}
	}
}

func TestListAllocatesAsMuchForManyTools(t *testing.T) {
	of := func(n int) float64 {
		c, _ := many(t, n)
		v := &view{key: "k"}
		return testing.AllocsPerRun(50, func() {
			if _, err := c.List(edge.Tool, mcp.Modern, v, ""); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, lots := of(10), of(10_000); few != lots || lots > 2 {
		t.Errorf("%v allocations for 10 tools, %v for 10,000", few, lots)
	}
}

func BenchmarkList(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, _ := many(b, n)
			v := &view{key: "k"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.List(edge.Tool, mcp.Modern, v, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
