package catalog_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
)

func TestListsFromCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := having("a", "x"), having("b", "y")
		r := open(t, nil, a, b)
		var work sync.WaitGroup
		for range 50 {
			work.Go(func() { r.want(0, "a_x", "b_y") })
		}
		work.Wait()
		time.Sleep(29 * time.Second)
		r.want(0, "a_x", "b_y")
		for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
			if n := a.times(method); n != 1 {
				t.Errorf("%s was asked %d times", method, n)
			}
		}
		r.heard()
	})
}

func TestStaleListsAreFetchedBesideTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "old")
		r := open(t, nil, a)
		r.want(0, "a_old")
		a.set("new")
		a.slow(time.Second)
		time.Sleep(31 * time.Second)
		for range 5 {
			r.want(0, "a_old")
		}
		time.Sleep(2 * time.Second)
		r.heard(toolsChanged)
		r.want(0, "a_new")
		if n := a.times("tools/list"); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a")
		for _, c := range []struct {
			ttl         int
			fresh, gone time.Duration
		}{
			{5000, 4 * time.Second, 6 * time.Second},
			{1, 900 * time.Millisecond, 1100 * time.Millisecond}, // no sooner than a second
			{3_600_000, 29 * time.Second, 31 * time.Second},      // no later than the interval
			{-5, 29 * time.Second, 31 * time.Second},
		} {
			a.answer(result(c.ttl, "x"))
			r := open(t, nil, a)
			r.want(0, "a_x")
			n := a.times("tools/list")
			time.Sleep(c.fresh)
			r.want(0, "a_x")
			synctest.Wait()
			if a.times("tools/list") != n {
				t.Errorf("ttlMs %d: fetched again after %v", c.ttl, c.fresh)
			}
			time.Sleep(c.gone - c.fresh)
			r.want(0, "a_x")
			synctest.Wait()
			if a.times("tools/list") != n+1 {
				t.Errorf("ttlMs %d: not fetched again after %v", c.ttl, c.gone)
			}
			r.Close()
		}
	})
}

func TestListsThatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := having("a", "old"), having("b", "y")
		r := open(t, nil, a, b)
		r.want(0, "a_old", "b_y")
		time.Sleep(time.Second)
		a.set("new")
		a.slow(time.Second)
		r.Drop("a", edge.Tool)
		r.want(time.Second, "a_new", "b_y") // waits for what is known to have changed
		r.heard(toolsChanged)
		if n := a.times("prompts/list"); n != 1 {
			t.Errorf("prompts were asked %d times", n)
		}
		// A change that changes nothing is not told.
		r.Drop("a")
		time.Sleep(10 * time.Second)
		r.heard()
		if n := a.times("prompts/list"); n != 2 {
			t.Errorf("prompts were asked %d times", n)
		}
		r.Drop("nobody")
		r.heard()
	})
}

// What changes while a list is being fetched is fetched once more.
func TestChangeDuringAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "old")
		r := open(t, nil, a)
		r.want(0, "a_old")
		time.Sleep(time.Second)
		a.mu.Lock()
		a.delay = 500 * time.Millisecond
		before := a.result
		n := 0
		a.result = func(id *edge.Identity, method string, cursor *string) (string, error) {
			if method != "tools/list" {
				return before(id, method, cursor)
			}
			n++
			return result(0, fmt.Sprintf("try%d", n)), nil
		}
		a.mu.Unlock()
		r.Drop("a", edge.Tool)
		time.Sleep(100 * time.Millisecond)
		r.Drop("a", edge.Tool)
		r.want(2*time.Second, "a_try2")
		r.heard(toolsChanged) // the first of the two
		time.Sleep(6 * time.Second)
		r.heard(toolsChanged)
	})
}

// Clients hear of changes no more than once in Quiet, however often a backend
// changes its mind, and the backend is not asked without a pause.
func TestBackendThatFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "x")
		r := open(t, nil, a)
		r.want(0, "a_x")
		n := a.times("tools/list")
		for i := range 1000 {
			a.set(fmt.Sprintf("x%d", i))
			r.Drop("a", edge.Tool)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(6 * time.Second)
		r.heard(toolsChanged, toolsChanged, toolsChanged) // at 0, 5 and 10 seconds
		if n = a.times("tools/list") - n; n > 110 {
			t.Errorf("asked %d times in ten seconds", n)
		}
		r.want(0, "a_x999")
		began := time.Now()
		for time.Since(began) < 3*time.Second {
			r.Drop("a", edge.Tool)
			if _, err := r.tools(nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// A backend that never stops changing its list delays nobody beyond Wait.
func TestEndlessChangesDelayNobodyForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "x")
		r := open(t, nil, a)
		r.want(0, "a_x")
		a.slow(time.Second)
		stop := make(chan struct{})
		var work sync.WaitGroup
		work.Go(func() {
			for {
				r.Drop("a", edge.Tool)
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
		time.Sleep(time.Second)
		r.want(2*time.Second, "a_x")
		close(stop)
		work.Wait()
	})
}

func TestBestEffort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, dead, hole := having("good", "x"), having("dead", "y"), having("hole", "z")
		dead.fail()
		hole.slow(time.Hour)
		r := open(t, bestEffort, good, dead, hole)
		r.want(2*time.Second, "good_x") // as long as Wait, once
		for range 3 {
			r.want(0, "good_x")
		}
		for i, s := range r.Status() {
			if want := []string{"good", "dead", "hole"}[i]; s.Backend != want || s.Missing != (i > 0) {
				t.Errorf("got %+v", s)
			}
		}
		// They come back: running sessions learn of it.
		dead.set("y")
		time.Sleep(40 * time.Second)
		r.heard(toolsChanged)
		r.want(0, "dead_y", "good_x")
		hole.slow(0)
		time.Sleep(60 * time.Second)
		r.heard(toolsChanged)
		r.want(2*time.Second, "dead_y", "good_x", "hole_z")
	})
}

// A list counts for three intervals. Then its tools are not listed, and keep
// their names and their way.
func TestBestEffortOfABackendThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := having("a", "x"), having("b", "y")
		r := open(t, bestEffort, a, b)
		r.want(0, "a_x", "b_y")
		a.fail()
		time.Sleep(89 * time.Second)
		r.want(0, "a_x", "b_y")
		time.Sleep(2 * time.Second)
		r.want(0, "b_y")
		c, err := r.Catalog(t.Context(), nil, edge.Tool)
		if err != nil || c.Lookup(edge.Tool, "a_x") == nil || c.Lookup(edge.Tool, "a_x").Backend != "a" {
			t.Errorf("a_x is not routed: %v", err)
		}
		r.heard(toolsChanged)
		a.set("x")
		time.Sleep(31 * time.Second)
		r.heard(toolsChanged)
		r.want(0, "a_x", "b_y")
	})
}

func TestBestEffortOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := having("a", "x"), having("b")
		a.fail()
		b.fail()
		r := open(t, bestEffort, a, b)
		r.refused(0, `{"missing":["a","b"]}`)
		r.refused(0, `{"missing":["a","b"]}`)
		own := open(t, func(c *catalog.Config) {
			c.BestEffort = true
			c.Own = catalog.Offer{Tools: tools("", "flow")}
		}, a, b)
		own.want(0, "flow")
	})
}

func TestFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := having("a", "x"), having("b", "y")
		r := open(t, nil, a, b)
		r.want(0, "a_x", "b_y")
		a.fail()
		time.Sleep(89 * time.Second)
		r.want(0, "a_x", "b_y") // every list is younger than three intervals
		time.Sleep(2 * time.Second)
		r.refused(0, `{"missing":["a"]}`)
		if c, err := r.Catalog(t.Context(), nil, edge.Tool); err != nil || c.Lookup(edge.Tool, "a_x") == nil {
			t.Errorf("calls depend on it: %v", err)
		}
		b.fail()
		time.Sleep(91 * time.Second)
		r.refused(0, `{"missing":["a","b"]}`)
		_, err := r.tools(nil)
		if got := err.Error(); got != `list: backends "a", "b" unavailable` {
			t.Errorf("got %s", got)
		}
		a.set("x")
		b.set("y")
		time.Sleep(31 * time.Second)
		r.want(0, "a_x", "b_y")
		r.heard() // what clients know is what there is
	})
}

func TestFailAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, hole := having("a", "x"), having("hole")
		hole.slow(time.Hour)
		r := open(t, nil, a, hole)
		time.Sleep(500 * time.Millisecond)
		r.refused(1500*time.Millisecond, `{"missing":["hole"]}`)
		r.refused(0, `{"missing":["hole"]}`)
		time.Sleep(time.Minute)
		r.refused(0, `{"missing":["hole"]}`)
	})
}

// Lists that nobody asked for in a long time are fetched anew, not refused.
func TestListsAfterALongPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "x")
		r := open(t, nil, a)
		r.want(0, "a_x")
		n := a.times("tools/list")
		time.Sleep(24 * time.Hour)
		if a.times("tools/list") != n {
			t.Error("lists were fetched that nobody asked for")
		}
		a.set("y")
		a.slow(time.Second)
		r.want(time.Second, "a_y")
		a.slow(time.Hour)
		time.Sleep(24 * time.Hour)
		r.refused(2*time.Second, `{"missing":["a"]}`)
		r.refused(0, `{"missing":["a"]}`)
	})
}

// One backend's other lists delay nobody who asks for tools.
func TestKindsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := having("a", "x")
		quick := a.result
		a.result = func(id *edge.Identity, method string, cursor *string) (string, error) {
			if method != "tools/list" {
				time.Sleep(time.Minute)
			}
			return quick(id, method, cursor)
		}
		r := open(t, nil, a)
		r.want(0, "a_x")
		if c, err := r.Catalog(t.Context(), nil, edge.Tool); err != nil || c.Lookup(edge.Tool, "a_x") == nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.List(ctx, nil, edge.Prompt, mcp.Legacy, nil, ""); edge.KindOf(err) != edge.Gone {
			t.Errorf("a client that left got %v", err)
		}
		if _, err := r.Catalog(ctx, nil, edge.Resource); edge.KindOf(err) != edge.Gone {
			t.Errorf("a client that left got %v", err)
		}
		if _, err := r.Catalog(ctx, nil, edge.NoThing); err != nil {
			t.Errorf("a message that names nothing waits: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

func TestCallsFindTheCatalogAtOnce(t *testing.T) {
	a := having("a", "x")
	r := open(t, nil, a)
	r.want(time.Minute, "a_x")
	for _, thing := range things {
		if _, err := r.Catalog(t.Context(), nil, thing); err != nil {
			t.Fatal(err)
		}
	}
	n := testing.AllocsPerRun(100, func() {
		c, err := r.Catalog(t.Context(), nil, edge.Tool)
		if err != nil || c.Lookup(edge.Tool, "a_x") == nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// While a changed list is taken in, calls do not wait for it.
func TestCallsGoOnWhileListsChange(t *testing.T) {
	for _, personal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := having("a", "x"), having("b", "y")
			b.personal = personal
			r := open(t, nil, a, b)
			id := &edge.Identity{Subject: "ann"}
			find := func(name string) bool {
				t.Helper()
				c, err := r.Catalog(t.Context(), id, edge.Tool)
				if err != nil {
					t.Fatal(err)
				}
				return c.Lookup(edge.Tool, name) != nil
			}
			if !find("a_x") || !find("b_y") || find("a_new") {
				t.Error("the first call does not find what is there")
			}
			time.Sleep(time.Second)
			a.slow(time.Second)
			a.set("new")
			r.Drop("a")
			if !find("a_x") {
				t.Error("a_x is gone before its list is there")
			}
			time.Sleep(2 * time.Second)
			find("a_new") // has the catalog built where nobody else does
			synctest.Wait()
			if !find("a_new") || find("a_x") {
				t.Error("the changed list is not taken in")
			}
			if n := b.times("tools/list"); n != 1 {
				t.Errorf("b was asked %d times", n)
			}
		})
	}
}

// The list of a principal that could not be had is in the catalog once it is there: the first call
// after a new login finds what it holds.
func TestListThatComesWithANewLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := having("a", "x"), having("b", "y")
		b.personal = true
		b.fail()
		r := open(t, nil, a, b)
		find := func(token edge.Secret) bool {
			t.Helper()
			c, err := r.Catalog(t.Context(), &edge.Identity{Subject: "ann", Token: token}, edge.Tool)
			if err != nil {
				t.Fatal(err)
			}
			return c.Lookup(edge.Tool, "b_y") != nil
		}
		if find("before") {
			t.Error("it finds what it cannot have")
		}
		b.set("y")
		if !find("after") {
			t.Error("the first call after a new login does not find its tool")
		}
	})
}

// ofA lets things of the backend a pass.
type ofA struct{}

func (ofA) Key() string              { return "a" }
func (ofA) Allows(i *edge.Item) bool { return i.Backend == "a" }

// A list that reads as before is another one where its things are another backend's.
func TestPagesAreOfTheirBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := having("a"), having("b")
		give := func(f *fake, items string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.result = func(_ *edge.Identity, method string, _ *string) (string, error) {
				switch method {
				case "tools/list":
					return `{"tools":[]}`, nil
				case "prompts/list":
					return `{"prompts":[]}`, nil
				case "resources/list":
					return `{"resources":[` + items + `]}`, nil
				}
				return "", edge.Errorf(edge.NoMethod, "list", "no such method")
			}
		}
		give(a, `{"uri":"x://y","name":"y"}`)
		give(b, `{"uri":"x://y","name":"y"}`)
		r := open(t, nil, a, b)
		shown := func() bool {
			text, err := r.List(t.Context(), nil, edge.Resource, mcp.Modern, ofA{}, "")
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(text), "x://y")
		}
		if !shown() {
			t.Error("the resource of a is not shown")
		}
		give(a, "")
		r.Drop("a", edge.Resource)
		time.Sleep(time.Second)
		if shown() {
			t.Error("the resource is b's by now, and shown as if it were a's")
		}
	})
}
