package catalog_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	fakes "github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/mcp"
)

func TestPagesOfABackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a")
		plain := a.result
		a.result = func(id *edge.Identity, method string, cursor *string) (string, error) {
			switch {
			case method != "tools/list":
				return plain(id, method, cursor)
			case cursor == nil:
				return `{"tools":[{"name":"1","inputSchema":{"type":"object"}}],"nextCursor":"","ttlMs":9000,"cacheScope":"public"}`, nil
			case *cursor == "":
				return `{"tools":[{"name":"2","inputSchema":{"type":"object"}}],"nextCursor":"\u00e9\"","ttlMs":4000,"cacheScope":"public"}`, nil
			case *cursor == `é"`:
				return `{"tools":[{"name":"3","inputSchema":{"type":"object"}}],"nextCursor":"loop","cacheScope":"public","ttlMs":7000}`, nil
			}
			return `{"tools":[{"name":"4","inputSchema":{"type":"object"}}],"nextCursor":"","ttlMs":7000,"cacheScope":"public"}`, nil
		}
		r := open(t, nil, a)
		r.want(0, "a_1", "a_2", "a_3", "a_4")
		text, err := r.List(t.Context(), nil, edge.Tool, mcp.Modern, nil, "")
		if err != nil || string(mcp.Lookup(text, "ttlMs")) != "4000" || mcp.String(mcp.Lookup(text, "cacheScope")) != "public" {
			t.Errorf("%s, %v", text, err)
		}
		if want := []string{"tools/list", "tools/list ", `tools/list é"`, "tools/list loop"}; a.times("tools/list") != len(want) {
			t.Errorf("asked %q", a.asked)
		}
	})
}

func TestBoundsOfABackend(t *testing.T) {
	endless := func(item string) func(*edge.Identity, string, *string) (string, error) {
		n := 0
		return func(_ *edge.Identity, method string, _ *string) (string, error) {
			if method != "tools/list" {
				return "", edge.Errorf(edge.NoMethod, "list", "no")
			}
			n++
			return fmt.Sprintf(`{"tools":[%s],"nextCursor":"%d"}`, item, n), nil
		}
	}
	says := func(text string) func(*edge.Identity, string, *string) (string, error) {
		return func(_ *edge.Identity, method string, _ *string) (string, error) {
			if method != "tools/list" {
				return "", edge.Errorf(edge.NoMethod, "list", "no")
			}
			return text, nil
		}
	}
	for name, c := range map[string]struct {
		result func(*edge.Identity, string, *string) (string, error)
		bounds catalog.Bounds
		why    string
	}{
		"endless pages":   {endless(`{"name":"x","inputSchema":{"type":"object"}}`), catalog.Bounds{}, "more than 1000 pages"},
		"endless nothing": {endless(""), catalog.Bounds{Pages: 7}, "more than 7 pages"},
		"items":           {endless(`{"name":"x","inputSchema":{"type":"object"}},{"name":"y","inputSchema":{"type":"object"}}`), catalog.Bounds{Items: 99}, "more than 99 items"},
		"bytes":           {endless(`"` + strings.Repeat("x", 100_000) + `"`), catalog.Bounds{}, "more than 16777216 bytes"},
		"memory":          {says(`{"tools":["` + strings.Repeat("x", 100_000) + `"]}`), catalog.Bounds{Bytes: 50_000}, "the lists of all backends are more than 50000 bytes"},
		"a cursor":        {says(`{"tools":[],"nextCursor":"` + strings.Repeat("x", 10_000) + `"}`), catalog.Bounds{}, "a cursor of more than 8192 bytes"},
		"no JSON":         {says(`{"tools":[}`), catalog.Bounds{}, "not JSON"},
		"no list":         {says(`{"tool":[]}`), catalog.Bounds{}, "no tools in the result"},
		"an object":       {says(`{"tools":{}}`), catalog.Bounds{}, "no tools in the result"},
		"a panic": {func(*edge.Identity, string, *string) (string, error) { panic("of a backend") }, catalog.Bounds{},
			"panic"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := having("a"), having("b", "y")
			a.result = c.result
			r := open(t, func(config *catalog.Config) { config.BestEffort, config.Bounds = true, c.bounds }, a, b)
			r.want(2*time.Second, "b_y")
			if got := r.Status()[0]; !got.Missing || !strings.Contains(got.Message, c.why) {
				t.Errorf("%s: got %+v, want %q", name, got, c.why)
			}
			r.Close()
		})
	}
}

func TestBackendsAreAskedForWhatTheyDeclare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "x")
		a.caps = `{"tools":{"listChanged":true},"prompts":null}`
		r := open(t, nil, a)
		r.want(0, "a_x")
		for _, thing := range things {
			if _, err := r.List(t.Context(), nil, thing, mcp.Legacy, nil, ""); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(a.asked, []string{"tools/list"}) {
			t.Errorf("asked %q", a.asked)
		}
		c, err := r.Catalog(t.Context(), nil, edge.Tool)
		if err != nil || string(c.Capabilities()) != `{"tools":{"listChanged":true}}` {
			t.Errorf("%s, %v", c.Capabilities(), err)
		}
	})
}

func TestPersonalLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, shared := having("a"), having("shared", "s")
		a.personal = true
		a.result = func(id *edge.Identity, method string, _ *string) (string, error) {
			if method == "tools/list" {
				return result(60_000, "of_"+id.Subject, "with_"+string(id.Token)), nil
			}
			return "", edge.Errorf(edge.NoMethod, "list", "no")
		}
		ann, bob := &edge.Identity{Issuer: "i", Subject: "ann", Token: "t1"}, &edge.Identity{Issuer: "i", Subject: "bob", Token: "t2"}
		r := open(t, nil, a, shared)
		want := func(id *edge.Identity, tools ...string) {
			t.Helper()
			if got, err := r.tools(id); err != nil || !slices.Equal(got, tools) {
				t.Errorf("got %q, %v; want %q", got, err, tools)
			}
		}
		if a.times("tools/list") != 0 {
			t.Error("asked for nobody")
		}
		for range 3 {
			want(ann, "a_of_ann", "a_with_t1", "shared_s")
			want(bob, "a_of_bob", "a_with_t2", "shared_s")
			want(nil, "shared_s")
		}
		if n := a.times("tools/list"); n != 2 {
			t.Errorf("asked %d times for two principals", n)
		}
		text, err := r.List(t.Context(), ann, edge.Tool, mcp.Modern, nil, "")
		if err != nil || mcp.String(mcp.Lookup(text, "cacheScope")) != "private" {
			t.Errorf("%s, %v", text, err)
		}
		c, err := r.Catalog(t.Context(), bob, edge.Tool)
		if err != nil || c.Lookup(edge.Tool, "a_of_ann") != nil || c.Lookup(edge.Tool, "a_of_bob") == nil {
			t.Errorf("bob's catalog is not his own: %v", err)
		}
		// A change that the edge hears of is told to all, and fetched for each who asks.
		r.Drop("a", edge.Tool)
		r.heard(toolsChanged)
		synctest.Wait()
		if n := a.times("tools/list"); n != 2 {
			t.Errorf("asked %d times before anybody asked", n)
		}
		ann = &edge.Identity{Issuer: "i", Subject: "ann", Token: "t3"}
		time.Sleep(time.Second)
		want(ann, "a_of_ann", "a_with_t3", "shared_s")
		time.Sleep(10 * time.Second)
		r.heard() // it was told already
		// So is one of a list that is the same for everybody.
		shared.set("s2")
		r.Drop("shared")
		time.Sleep(10 * time.Second)
		r.heard(toolsChanged)
		want(bob, "a_of_bob", "a_with_t2", "shared_s2")
		time.Sleep(10 * time.Second)
		r.heard()
		if s := r.Status()[0]; !s.Personal || s.Missing {
			t.Errorf("got %+v", s)
		}
	})
}

// A call of a principal whose lists are there has nothing to wait for, and finds what
// Catalog does; whatever is not there, or has changed, is left to that.
func TestSettledForAPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, shared := having("a", "x"), having("shared", "s")
		a.personal = true
		r := open(t, nil, a, shared)
		ann, bob := &edge.Identity{Issuer: "i", Subject: "ann", Token: "t1"}, &edge.Identity{Issuer: "i", Subject: "bob"}
		synctest.Wait()
		settled := func(id *edge.Identity, thing edge.Thing, name string) {
			t.Helper()
			if c := r.Settled(id, thing); c == nil && name != "" || c != nil && (name == "" || c.Lookup(edge.Tool, name) == nil) {
				t.Errorf("%v, want one with %q", c, name)
			}
		}
		catalog := func(id *edge.Identity) *catalog.Catalog {
			t.Helper()
			c, err := r.Catalog(t.Context(), id, edge.Tool)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		catalog(nil)
		settled(nil, edge.Tool, "shared_s")
		settled(ann, edge.Tool, "") // nobody has asked for her
		if c := catalog(ann); c != r.Settled(ann, edge.Tool) {
			t.Error("it is another than that of Catalog")
		}
		settled(ann, edge.Tool, "a_x")
		settled(ann, edge.Prompt, "") // a list of another kind
		settled(ann, edge.NoThing, "")
		settled(bob, edge.Tool, "") // hers are not his
		if n := testing.AllocsPerRun(100, func() { r.Settled(ann, edge.Tool) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		// One that has changed is taken in by Catalog.
		shared.set("s2")
		r.Drop("shared")
		time.Sleep(time.Second)
		settled(ann, edge.Tool, "")
		catalog(ann)
		synctest.Wait()
		settled(ann, edge.Tool, "shared_s2")
		// One that could not be fetched is tried again by Catalog.
		a.fail()
		catalog(bob)
		settled(bob, edge.Tool, "")
	})
}

func TestPrincipalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", strings.Repeat("x", 100))
		a.personal = true
		r := open(t, func(c *catalog.Config) { c.Bounds.Principals = 10 }, a)
		ask := func(n int) {
			t.Helper()
			if _, err := r.tools(&edge.Identity{Subject: fmt.Sprint(n)}); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 30 {
			ask(n)
		}
		if n := a.times("tools/list"); n != 30 {
			t.Errorf("asked %d times", n)
		}
		ask(29)
		ask(20)
		if n := a.times("tools/list"); n != 30 {
			t.Errorf("asked %d times: the last ten are not kept", n)
		}
		ask(0)
		if n := a.times("tools/list"); n != 31 {
			t.Errorf("asked %d times: the first is kept", n)
		}
		// By memory.
		a = having("a", strings.Repeat("x", 10_000))
		a.personal = true
		r = open(t, func(c *catalog.Config) { c.Bounds.Bytes = 100_000 }, a)
		for n := range 30 {
			ask(n)
		}
		ask(29)
		ask(0)
		if n := a.times("tools/list"); n != 31 {
			t.Errorf("asked %d times with room for a few", n)
		}
	})
}

// Tokens of one user that may have different rights have lists of their own, and those of equal
// rights the same. One who shows many of them pushes out the own lists, and nobody else's.
func TestListsOfTokensOfOneUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a")
		a.personal = true
		a.result = func(id *edge.Identity, method string, _ *string) (string, error) {
			if method == "tools/list" {
				return result(600_000, fmt.Sprint("of_", id.Rights[0])), nil
			}
			return "", edge.Errorf(edge.NoMethod, "list", "no")
		}
		r := open(t, func(c *catalog.Config) { c.Bounds.Principals = 20 }, a)
		ann := func(rights byte, token edge.Secret) *edge.Identity {
			return &edge.Identity{Issuer: "i", Subject: "ann", Token: token, Rights: [16]byte{rights}}
		}
		want := func(id *edge.Identity, fetches int) {
			t.Helper()
			tools, err := r.tools(id)
			if is := fmt.Sprint("a_of_", id.Rights[0]); err != nil || !slices.Equal(tools, []string{is}) {
				t.Errorf("got %q, %v; want %q", tools, err, is)
			}
			if c, err := r.Catalog(t.Context(), id, edge.Tool); err != nil || c != r.Settled(id, edge.Tool) {
				t.Errorf("a call has another catalog: %v", err)
			}
			if n := a.times("tools/list"); n != fetches {
				t.Errorf("asked %d times, want %d", n, fetches)
			}
		}
		want(ann(1, "plain"), 1)
		want(ann(2, "admin"), 2)
		want(ann(1, "plain, refreshed"), 2)
		want(ann(2, "admin"), 2)
		for n := range 3 {
			want(&edge.Identity{Issuer: "i", Subject: fmt.Sprint(n)}, 3+n)
		}
		for n := range 60 {
			want(ann(byte(3+n), "another"), 6+n)
		}
		for n := range 3 {
			want(&edge.Identity{Issuer: "i", Subject: fmt.Sprint(n)}, 65)
		}
		// Tokens that take turns find their lists while there is room; what nobody used goes.
		r = open(t, func(c *catalog.Config) { c.Interval = time.Hour }, a)
		for range 3 {
			for n := range 18 {
				want(ann(byte(n), "in turn"), max(a.times("tools/list"), 65+n+1))
			}
		}
		want(ann(0, "in turn"), 83)
		time.Sleep(2 * time.Minute)
		want(ann(18, "another"), 84)
		want(ann(0, "in turn"), 84)
		want(ann(4, "in turn"), 84)
		want(ann(3, "in turn"), 85)
	})
}

// refusedCredential is the error of a credential that a user may not have.
type refusedCredential struct{ error }

func (refusedCredential) Unattached() bool { return true }
func (r refusedCredential) Unwrap() error  { return r.error }

// A user who may not use a backend is told so, and not that it is away.
func TestListsOfOneWhoIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, want := range map[edge.Kind]edge.Kind{edge.Denied: edge.Denied, edge.Unauthenticated: edge.Unauthenticated, edge.Unavailable: edge.Unavailable} {
			a, b := having("a"), having("b", "y")
			a.personal = true
			a.result = func(*edge.Identity, string, *string) (string, error) {
				return "", refusedCredential{edge.Errorf(kind, "credential", "why")}
			}
			r := open(t, nil, a, b)
			_, err := r.tools(&edge.Identity{Issuer: "i", Subject: "ann"})
			if edge.KindOf(err) != want || strings.Contains(err.Error(), "unavailable") != (want == edge.Unavailable) {
				t.Errorf("%v: %v", kind, err)
			}
		}
	})
}

// The lists of a principal may be evicted while a request waits for them.
func TestPrincipalThatIsEvictedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "x")
		a.personal = true
		a.slow(time.Second)
		r := open(t, func(c *catalog.Config) { c.Bounds.Principals = 1 }, a)
		var work sync.WaitGroup
		for n := range 4 {
			work.Go(func() {
				began := time.Now()
				_, err := r.tools(&edge.Identity{Subject: fmt.Sprint(n)})
				if err != nil && edge.KindOf(err) != edge.Unavailable {
					t.Error(err)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("waited %v", took)
				}
			})
			synctest.Wait()
		}
		work.Wait()
	})
}

func TestFetchesFromOneBackendAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "x")
		a.personal = true
		a.slow(time.Second)
		r := open(t, bestEffort, a)
		var work sync.WaitGroup
		for n := range 100 {
			work.Go(func() { _, _ = r.tools(&edge.Identity{Subject: fmt.Sprint(n)}) })
		}
		work.Wait()
		time.Sleep(time.Minute)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.most > 8 || a.most < 2 {
			t.Errorf("%d lists at a time", a.most)
		}
	})
}

func TestStatusAndReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "x", "y", "find_tool")
		plain := a.result
		a.result = func(id *edge.Identity, method string, cursor *string) (string, error) {
			switch method {
			case "prompts/list":
				return `{"prompts":[{"name":"p"}]}`, nil
			case "resources/list":
				return `{"resources":[{"name":"n","uri":"r://1"},{"name":"n","uri":"r://2"}]}`, nil
			case "resources/templates/list":
				return `{"resourceTemplates":[{"name":"n","uriTemplate":"r://{x}"}]}`, nil
			}
			return plain(id, method, cursor)
		}
		r := open(t, func(c *catalog.Config) {
			c.Rules.Conflicts = "priority"
			c.Log = slog.New(slog.DiscardHandler)
			c.Changed = nil
		}, a)
		r.want(0, "x", "y")
		synctest.Wait()
		now := time.Now()
		if got, want := r.Status()[0], (catalog.BackendStatus{Backend: "a", Tools: 3, Prompts: 1, Resources: 2, Templates: 1, Listed: now}); got != want {
			t.Errorf("got %+v", got)
		}
		if f := r.Report().Findings; len(f) != 1 || f[0].Reason != catalog.Taken {
			t.Errorf("found %v", f)
		}
		a.fail()
		time.Sleep(40 * time.Second)
		r.want(0, "x", "y")
		synctest.Wait()
		if got := r.Status()[0]; got.Missing || got.Message != "tools/list: list: down" || !got.Listed.Equal(now) {
			t.Errorf("got %+v", got)
		}
		time.Sleep(80 * time.Second)
		if got := r.Status()[0]; !got.Missing || !got.Failing {
			t.Errorf("got %+v", got)
		}
		a.set("z") // nobody is told
		time.Sleep(40 * time.Second)
		r.want(0, "z")
		if got := r.Status()[0]; got.Missing || got.Failing {
			t.Errorf("got %+v", got)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "x")
		a.slow(time.Hour)
		r := open(t, nil, a)
		var work sync.WaitGroup
		work.Go(func() { r.refused(time.Second, `{"missing":["a"]}`) })
		synctest.Wait()
		time.Sleep(time.Second)
		r.Close()
		work.Wait()
		r.Drop("a")
		r.refused(2*time.Second, `{"missing":["a"]}`)
		r.Close()
	})
}

// Changed that panics costs one telling.
func TestChangedThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "x")
		told := 0
		r := open(t, func(c *catalog.Config) {
			c.Changed = func(catalog.Changes) {
				told++
				panic("of a listener")
			}
		}, a)
		r.want(0, "a_x")
		for i := range 3 {
			a.set(fmt.Sprint(i))
			r.Drop("a")
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		if told != 3 {
			t.Errorf("told %d times", told)
		}
	})
}

// slowly is programs that change nothing, and take their time for that.
type slowly time.Duration

func (slowly) Varies() bool              { return false }
func (slowly) Key(*edge.Identity) string { return "" }

func (d slowly) Override(context.Context, *edge.Identity, string, edge.Thing, [][]byte) ([]edge.Override, error) {
	time.Sleep(time.Duration(d))
	return nil, nil
}

// A backend whose list changes again before a catalog of it is built is not served as it was
// before all of that.
func TestChangesFasterThanBuilds(t *testing.T) {
	t.Parallel()
	a := having("a", "x0")
	r := open(t, func(c *catalog.Config) { c.Overrides = slowly(250 * time.Millisecond) }, a)
	has := func(name string) bool {
		c, err := r.Catalog(t.Context(), nil, edge.Tool)
		if err != nil {
			t.Fatal(err)
		}
		is, _ := c.Tool(name)
		return is != nil
	}
	for _, thing := range []edge.Thing{edge.Tool, edge.Prompt, edge.Resource, edge.Template} {
		if _, err := r.List(t.Context(), nil, thing, mcp.Modern, nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	fakes.Until(t, "the first catalog", func() bool { return has("a_x0") })
	for i := 1; ; i++ {
		a.set(fmt.Sprint("x", i))
		r.Drop("a", edge.Tool)
		time.Sleep(50 * time.Millisecond) // changes come sooner than a catalog is built
		if !has("a_x0") {
			return
		}
		if i == 400 {
			t.Fatal("after 20 seconds of changes the first list is served")
		}
	}
}

// Everything at once, for the race detector.
func TestHammer(t *testing.T) {
	a, b, p := having("a", "x"), having("b", "y"), having("p", "z")
	p.personal = true
	r := open(t, func(c *catalog.Config) {
		c.BestEffort = true
		c.Quiet = time.Millisecond
		c.Bounds.Principals = 3
	}, a, b, p)
	var work sync.WaitGroup
	for n := range 8 {
		work.Go(func() {
			id := &edge.Identity{Subject: fmt.Sprint(n)}
			for i := range 200 {
				switch (i + n) % 6 {
				case 0:
					a.set(fmt.Sprint("x", i))
					r.Drop("a")
				case 1:
					b.fail()
					r.Drop("b", edge.Tool)
				case 2:
					b.set("y")
					r.Drop("p")
				case 3:
					r.Status()
					r.Report()
				}
				if _, err := r.tools(id); err != nil {
					t.Error(err)
				}
				c, err := r.Catalog(t.Context(), id, edge.Tool)
				if err != nil {
					t.Error(err)
					continue
				}
				c.Lookup(edge.Tool, "b_y")
			}
		})
	}
	work.Wait()
}
