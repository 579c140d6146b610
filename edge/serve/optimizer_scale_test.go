package serve_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// wide is an edge before many tools of ten backends of the legacy era, which tell it of
// changes.
type wide struct {
	*front
	backs []*edgetest.Server
	each  int // tools of a backend
}

const wideTools = 10_000

// someTool is the tool of a number.
func someTool(n int) tool {
	verbs, nouns := []string{"read", "list", "create", "delete", "search"}, []string{"file", "page", "issue", "message", "branch", "query", "folder"}
	v, o := verbs[n%len(verbs)], nouns[n/len(verbs)%len(nouns)]
	return tool{fmt.Sprintf("%s_%s_%d", v, o, n), fmt.Sprintf("Will %s the %s of number %d, for whoever wants it.", v, o, n), []string{o + "Id"}, 1}
}

// widely starts an edge before so many tools. more is YAML of its configuration.
func widely(t *testing.T, tools int, more ...string) *wide {
	t.Helper()
	w := &wide{each: tools / 10}
	yaml := "name: edgetest\ngroupRef: edgetest\nincomingAuth: {type: anonymous}\nbackends:\n"
	for i := range 10 {
		back := edgetest.NewServer(t, edgetest.Legacy)
		w.backs = append(w.backs, back)
		w.offer(i)
		results(back, echoes)
		yaml += fmt.Sprintf("- {name: back%d, url: %q, transport: streamable-http}\n", i, back.URL)
	}
	e := edgetest.Start(t, yaml+"aggregation: {conflictResolution: prefix}\n"+strings.Join(more, "\n"), engine(), edgetest.Logging(slog.LevelWarn)) // the log would count as memory
	w.front = &front{Edge: e, client: e.NewClient()}
	edgetest.Until(t, "streams to all backends", func() bool {
		for _, back := range w.backs {
			if !slices.ContainsFunc(back.Sessions(), (*edgetest.ServerSession).Listening) {
				return false
			}
		}
		return true
	})
	return w
}

// offer has a backend offer its tools, and with others in place of the first of them.
func (w *wide) offer(back int, instead ...tool) {
	all := slices.Clone(instead)
	for n := len(instead); n < w.each; n++ {
		all = append(all, someTool(back*w.each+n))
	}
	offersTools(w.backs[back], all...)
}

// tell tells the edge that the tools of a backend have changed.
func (w *wide) tell(back int) {
	for _, s := range w.backs[back].Sessions() {
		if s.Listening() {
			s.Push(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
	}
}

// indexed waits until the index has all tools.
func (w *wide) indexed(t *testing.T) {
	t.Helper()
	edgetest.Until(t, "an index of all tools", func() bool {
		return figure(t, w.metrics(), "weir_optimizer_index_tools") == float64(10*w.each)
	})
}

// TestOneChangeOfTenThousand: a backend that changes one of 10,000 tools costs one text at the
// embedding service, and the tool is found within a second. Twenty reloads under load fail no
// question and embed nothing, every answer compares vectors, and memory stays flat.
func TestOneChangeOfTenThousand(t *testing.T) {
	s := embedding(t, 32)
	w := widely(t, wideTools, means(s))
	c := w.callerOf(t, edgetest.Modern, "")
	embeds(t, s, wideTools)
	c.hybrid(t)
	if n := s.Counts(); n.Texts != wideTools+1 || n.Largest > 256 {
		t.Errorf("%d texts were embedded for %d tools and a question, %d at once", n.Texts, wideTools, n.Largest)
	}

	// 1. Changes of one tool.
	least := time.Hour
	for i := range 5 {
		before := s.Counts().Texts
		name := fmt.Sprintf("zebra%d", i)
		w.offer(3, tool{"counts_" + name, "Counts " + name + " stripes.", nil, 0})
		w.tell(3)
		began := time.Now()
		edgetest.Until(t, name+" to be found", func() bool {
			a := c.find(t, name)
			return len(a.Names) > 0 && strings.Contains(a.Names[0], name)
		})
		least = min(least, time.Since(began))
		edgetest.Until(t, "the vector of "+name, func() bool {
			return slices.ContainsFunc(s.Texts()[before:], func(text string) bool { return strings.Contains(text, "stripes") })
		})
		tools := 0
		for _, text := range s.Texts()[before:] {
			if text != name {
				tools++
			}
		}
		if tools != 1 {
			t.Errorf("%d texts of tools were embedded for one changed tool", tools)
		}
	}
	t.Logf("a changed tool is found after %s", least)
	if least > edgetest.Allowed(time.Second) {
		t.Errorf("a changed tool is found after %s at best", least)
	}

	// 2. Reloads under load.
	questions := []string{"read a file", "delete the branch", "list of pages", "search for an issue", "create a folder"}
	for _, q := range questions {
		c.find(t, q)
	}
	reload := func(i int) {
		more := fmt.Sprintf("metadata: {reload: \"%d\"}", i)
		yaml := "name: edgetest\ngroupRef: edgetest\nincomingAuth: {type: anonymous}\nbackends:\n"
		for i, back := range w.backs {
			yaml += fmt.Sprintf("- {name: back%d, url: %q, transport: streamable-http}\n", i, back.URL)
		}
		if err := w.Serve.Reload(edgetest.Plan(t, yaml+means(s)+"\naggregation: {conflictResolution: prefix}\n"+more)); err != nil {
			t.Fatal(err)
		}
	}
	reload(100)
	for _, q := range questions { // what is made when it is asked for is there
		c.find(t, q)
	}
	before, base := s.Counts().Texts, heap()
	var work sync.WaitGroup
	var asked, byWords atomic.Int64
	end := make(chan struct{})
	for i := range 4 {
		work.Go(func() {
			for n := i; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				body, head := c.message("1", "tools/call", edgetest.CallParams("find_tool", fmt.Sprintf(`{"tool_description":%q}`, questions[n%len(questions)])))
				r, err := c.Try("POST", "/mcp", body, head...)
				if err != nil || r.Status != 200 {
					t.Errorf("during reloads: %v %v", err, r)
					return
				}
				a, err := foundIn(c, edgetest.Member(string(r.Body), "result"))
				if err != nil || len(a.Names) != 8 {
					t.Errorf("during reloads: %v %v", err, a.Names)
					return
				}
				if asked.Add(1); a.Search != "hybrid" {
					byWords.Add(1)
				}
			}
		})
	}
	for i := range 20 {
		was := asked.Load()
		reload(i)
		edgetest.Until(t, "questions after a reload", func() bool { return t.Failed() || asked.Load() > was+20 })
	}
	close(end)
	work.Wait()
	if n := s.Counts().Texts - before; n != 0 {
		t.Errorf("20 reloads embedded %d texts", n)
	}
	if n := byWords.Load(); n != 0 {
		t.Errorf("%d of %d answers during reloads were by words alone", n, asked.Load())
	}
	var after int64
	edgetest.Until(t, "the memory back to what it was and a tenth", func() bool {
		after = heap()
		return after < base+base/10+4<<20*edgetest.Slower
	})
	t.Logf("%d answers; the heap was %d bytes and is %d", asked.Load(), base, after)
}

// TestQ10Sessions: a thousand sessions that begin at once before 10,000 tools cause no request
// to the embedding service and no index, and wait no longer than without the optimizer (row
// Q10).
func TestQ10Sessions(t *testing.T) {
	s := embedding(t, 16)
	with, without := widely(t, wideTools, means(s)), widely(t, wideTools)
	c := with.callerOf(t, edgetest.Modern, "")
	with.indexed(t)
	c.hybrid(t)
	embeds(t, s, wideTools+1) // with the question; what comes late would be counted against the sessions
	edgetest.Until(t, "the vectors of all tools", func() bool {
		return figure(t, with.metrics(), "weir_optimizer_index_vectors") == wideTools
	})
	requests, builds := s.Counts(), figure(t, with.metrics(), "weir_optimizer_index_builds_total")
	const sessions, lanes = 1000, 20
	begin := func(w *wide, list bool) []time.Duration {
		took := make([]time.Duration, sessions)
		var work sync.WaitGroup
		for lane := range lanes {
			work.Go(func() {
				client := w.NewClient()
				for i := lane; i < sessions; i += lanes {
					began := time.Now()
					session, err := client.TryInitialize("2025-11-25", "{}")
					took[i] = time.Since(began)
					if err == nil && list {
						_, err = session.TrySend(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		work.Wait()
		slices.Sort(took)
		return took
	}
	_, plain := begin(with, true), begin(without, false)
	if n := s.Counts(); n != requests {
		t.Errorf("%d sessions caused %+v at the embedding service, before it was %+v", sessions, n, requests)
	}
	if n := figure(t, with.metrics(), "weir_optimizer_index_builds_total"); n != builds {
		t.Errorf("%d sessions caused %v indexes", sessions, n-builds)
	}
	took := begin(with, false)
	p99 := func(d []time.Duration) time.Duration { return d[len(d)*99/100] }
	t.Logf("initialize: p50 %s, p99 %s; without the optimizer %s, %s", took[sessions/2], p99(took), plain[sessions/2], p99(plain))
	if p99(took) > 2*p99(plain)+20*time.Millisecond {
		t.Errorf("the p99 of initialize is %s, and %s without the optimizer", p99(took), p99(plain))
	}
}

// TestQ11ManyChanges has the tools of a backend change a hundred times a second: at most four
// indexes a second are made, searches do not wait for them, and the memory comes back (row
// Q11).
func TestQ11ManyChanges(t *testing.T) {
	s := embedding(t, 16)
	w := widely(t, 2000, means(s))
	c := w.callerOf(t, edgetest.Modern, "")
	embeds(t, s, 2000)
	c.hybrid(t)
	base := heap()
	builds, began := figure(t, w.metrics(), "weir_optimizer_index_builds_total"), time.Now()
	changes := 0
	var longest time.Duration
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var work sync.WaitGroup
	end := make(chan struct{})
	work.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				changes++
				w.offer(5, tool{fmt.Sprintf("change_%d", changes), fmt.Sprintf("Changes the %d. time.", changes), nil, 0})
				w.tell(5)
			}
		}
	})
	answers := 0
	for time.Since(began) < edgetest.Allowed(2*time.Second) {
		one := time.Now()
		if a := c.find(t, "read a file"); len(a.Names) != 8 {
			t.Errorf("during changes %v are found", a.Names)
		}
		longest = max(longest, time.Since(one))
		answers++
	}
	close(end)
	work.Wait()
	made, took := figure(t, w.metrics(), "weir_optimizer_index_builds_total")-builds, time.Since(began)
	t.Logf("%d changes, %v indexes in %s, %d answers, the longest after %s", changes, made, took, answers, longest)
	if made == 0 || made > 4*took.Seconds()+2 {
		t.Errorf("%v indexes were made in %s", made, took)
	}
	if longest > edgetest.Allowed(time.Second) {
		t.Errorf("a search took %s", longest)
	}
	last := fmt.Sprintf("change_%d", changes)
	edgetest.Until(t, "the last change to be found", func() bool {
		a := c.find(t, last)
		return len(a.Names) > 0 && strings.HasSuffix(a.Names[0], last)
	})
	w.offer(5)
	w.tell(5)
	w.indexed(t)
	edgetest.Until(t, "the memory back to what it was and a tenth", func() bool { return heap() < base+base/10+4<<20*edgetest.Slower })
}
