package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/embedder"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// Sizes of the rows about find_tool.
const (
	findBackends = 100
	findTools    = 100 // of each
	findAll      = findBackends * findTools
	findSize     = 384 // dimensions of a vector
)

// kinds of edges in those rows.
const (
	plainEdge   = "without the optimizer"
	wordsEdge   = "keywords"
	vectorsEdge = "with vectors"
)

// definition is JSON text of a tool of a backend: one in three is of the kind that policies
// allow.
func definition(backend, tool int, change string) string {
	verbs := []string{"read", "list", "create", "delete", "search", "update", "move", "open", "count", "watch", "merge"}
	nouns := []string{"file", "page", "issue", "graph", "message", "branch", "query", "index", "folder", "invoice", "ticket", "cluster", "bucket"}
	n := backend*findTools + tool
	verb, noun, other := verbs[n%len(verbs)], nouns[n/3%len(nouns)], nouns[n/7%len(nouns)]
	return fmt.Sprintf(`{"name":"%s_%s_k%d_%d","description":"Will %s a %s of the %s that belongs to workspace %d, and returns what has changed since it was last seen.%s","inputSchema":{"type":"object","properties":{"%sId":{"type":"string"},"limit":{"type":"integer"}}}}`,
		verb, noun, n%3, n, verb, noun, other, n%97, change, noun)
}

// stock is many backends in this process, each with many tools, and who listens for changes.
type stock struct {
	backends []*kit.Backend
	changed  []chan struct{} // by backend
}

func newStock() *stock {
	s := &stock{}
	for i := range findBackends {
		b, told := kit.NewBackend(kit.Modern), make(chan struct{}, 16)
		b.Lives = time.Hour
		b.Feed = func(f *kit.Feed) {
			for {
				select {
				case <-f.Gone:
					return
				case <-told:
					if !f.Notify("tools/list_changed", "") {
						return
					}
				}
			}
		}
		s.backends, s.changed = append(s.backends, b), append(s.changed, told)
		s.list(i, "")
	}
	return s
}

// list has a backend list its tools, the first of them with a change.
func (s *stock) list(backend int, change string) {
	tools := []string{definition(backend, 0, change)}
	for i := 1; i < findTools; i++ {
		tools = append(tools, definition(backend, i, ""))
	}
	s.backends[backend].List("[" + strings.Join(tools, ",") + "]")
}

func (s *stock) close() {
	for _, b := range s.backends {
		b.Close()
	}
}

// searched is an edge before a stock, and a client of it.
type searched struct {
	*kit.Edge
	kind  string
	stock *stock
	c     *kit.Client
	ready time.Duration // CPU until everything was there
}

// searchedBy starts an edge of a kind before a stock of its own, and waits until all of its
// tools are there. service is its embedding service; nil for none.
func (b *bench) searchedBy(ctx context.Context, kind, incoming string, service *embedder.Service) *searched {
	s := &searched{kind: kind, stock: newStock()}
	p := kit.Plan{Prefixed: true, Incoming: incoming}
	for _, one := range s.stock.backends {
		p.Backends = append(p.Backends, kit.Must(one.Listen("127.0.0.1:0")))
	}
	switch kind {
	case wordsEdge:
		p.Config = "    optimizer: {hybridSearchSemanticRatio: \"0\"}\n"
	case vectorsEdge:
		p.Config = fmt.Sprintf("    optimizer: {embeddingService: %q}\n", service.URL)
	}
	s.Edge = b.startPlan(ctx, p, "--pprof")
	s.c = kit.Must(kit.Dial(ctx, s.Addr, kit.Modern, kit.DialOptions{}))
	awaits(ctx, kind+": all lists", func() bool {
		return !slices.ContainsFunc(s.stock.backends, func(one *kit.Backend) bool { return one.Counts().Methods["tools/list"] == 0 })
	})
	s.settle(ctx)
	if kind != plainEdge {
		awaits(ctx, kind+": an index of all tools", func() bool { return s.indexed(ctx) == findAll })
	}
	s.ready = kit.Must(kit.CPU(s.PID()))
	if kind == vectorsEdge {
		awaits(ctx, kind+": all vectors", func() bool { return bytes.Contains(s.find("all vectors"), []byte("hybrid")) })
		kit.Pause(ctx, 2*time.Second) // the last are under way
	}
	return s
}

// settle gives an edge the time to make of what it has heard what it makes of it, and has it
// make a catalog, which is done when it is asked for one: all kinds alike.
func (s *searched) settle(ctx context.Context) {
	kit.Pause(ctx, 1500*time.Millisecond)
	s.ask("tools/call", "nothing", "")
}

func (s *searched) end() {
	s.c.Close()
	s.Stop()
	s.stock.close()
}

// awaits waits for something that an edge has to do.
func awaits(ctx context.Context, what string, done func() bool) {
	for began := time.Now(); !done(); kit.Pause(ctx, 50*time.Millisecond) {
		if time.Since(began) > 60*time.Second {
			kit.Fail("%s: not within a minute", what)
		}
	}
}

// indexed is how many tools the index has.
func (s *searched) indexed(ctx context.Context) (n float64) {
	_, text := s.Get(ctx, "/metrics", 10*time.Second)
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("weir_optimizer_index_tools")) {
			_, _ = fmt.Sscan(string(line[bytes.LastIndexByte(line, ' '):]), &n)
		}
	}
	return n
}

// ask sends a request and returns the answer, which is valid until the next.
func (s *searched) ask(method, name, params string) []byte {
	if name != "" {
		params = fmt.Sprintf(`"name":%q,"arguments":{%s}`, name, params)
	}
	s.c.Wait(30 * time.Second)
	a := kit.Must(s.c.Do(s.c.Modern("1", method, name, params, "")))
	return kit.Must(a.Message())
}

// find asks for tools.
func (s *searched) find(text string) []byte {
	return s.ask("tools/call", "find_tool", fmt.Sprintf(`"tool_description":%q`, text))
}

// runFinding is P21, P22 and P23.
func (b *bench) runFinding(ctx context.Context) { b.tryEdge(ctx, "P21, P22, P23", b.finding) }

func (b *bench) finding(ctx context.Context) {
	service := kit.Must(embedder.Start("bench", findSize))
	defer service.Close()
	if b.wants("p21") {
		b.p21(ctx, service)
	}
	if b.wants("p22") {
		b.p22(ctx, service)
	}
	if b.wants("p23") {
		b.p23(ctx, service)
	}
}

// told adds a line to the report.
func (b *bench) told(id, what, value, floor, bar string, reached bool) {
	b.report.finding = append(b.report.finding, verdict{id, what, value, floor, "–", bar, yesNo(reached)})
	b.say("%s, %s: %s (%s), %s", id, what, value, floor, bar)
}

func (b *bench) p21(ctx context.Context, service *embedder.Service) {
	questions := []string{"read the file of a workspace", "delete a message", "what has changed in the invoice", "merge the branch", "search issues", "open a ticket in the cluster", "count", "folder limit"}
	for _, row := range []struct {
		kind string
		bar  time.Duration
	}{{wordsEdge, time.Millisecond}, {vectorsEdge, 3 * time.Millisecond}} {
		kind, bar := row.kind, row.bar
		var with *embedder.Service
		if kind == vectorsEdge {
			with = service
		}
		s := b.searchedBy(ctx, kind, policed([]string{`permit(principal, action == Action::"call_tool", resource) when { resource.originalName like "*_k1_*" };`}), with)
		var took []time.Duration
		var before time.Duration
		n := max(b.calls/20, 100)
		for i := range n + len(questions) {
			began := time.Now()
			answer := s.find(questions[i%len(questions)])
			if one := time.Since(began); i >= len(questions) { // the first have no vector yet
				took = append(took, one)
			} else {
				before = kit.Must(kit.CPU(s.PID()))
			}
			if hybrid := bytes.Contains(answer, []byte(`"hybrid"`)); !bytes.Contains(answer, []byte("_k1_")) || bytes.Contains(answer, []byte("_k2_")) || i >= len(questions) && hybrid != (with != nil) {
				kit.Fail("find_tool: %.300s", answer)
			}
		}
		cpu := kit.Must(kit.CPU(s.PID())) - before
		half := kit.Percentile(took, 500)
		b.told("P21", fmt.Sprintf("`find_tool`, %d tools of %d backends, a policy that allows a third, %s, p50 (p99), one connection", findAll, findBackends, kind),
			fmt.Sprintf("%.2f ms (%.2f ms); CPU %.0f µs", kit.Millis(half), kit.Millis(kit.Percentile(took, 990)), float64(cpu.Microseconds())/float64(n)), "–", fmt.Sprintf("≤ %.0f ms", kit.Millis(bar)), half <= bar)
		s.end()
	}
}

// p22 is what an index costs, from nothing and after a change: the CPU of the process, less
// that of one without the optimizer, to which the same happens.
func (b *bench) p22(ctx context.Context, service *embedder.Service) {
	var nothing, plain, change, plainChange []float64
	for range min(b.rounds, 3) {
		for _, kind := range []string{plainEdge, wordsEdge} {
			s := b.searchedBy(ctx, kind, "", nil)
			start, changes := &nothing, &change
			if kind == plainEdge {
				start, changes = &plain, &plainChange
			}
			*start = append(*start, kit.Millis(s.ready))
			*changes = append(*changes, s.changes(ctx, 3)...)
			s.end()
		}
	}
	made := median(nothing) - median(plain)
	b.told("P22", fmt.Sprintf("index of %d tools from nothing, CPU", findAll), fmt.Sprintf("%.0f ms", made), fmt.Sprintf("%.0f ms, the start and the catalog alone", median(plain)), "≤ 600 ms", made <= 600)
	one := median(change) - median(plainChange)
	b.told("P22", fmt.Sprintf("after one backend of %d has changed one tool, CPU", findBackends), fmt.Sprintf("%.1f ms", one), fmt.Sprintf("%.1f ms, the catalog alone", median(plainChange)), "≤ 60 ms", one <= 60)

	s := b.searchedBy(ctx, vectorsEdge, "", service)
	before := service.Counts().Texts
	s.change(ctx, "quagga")
	awaits(ctx, "the vector of what has changed", func() bool {
		return slices.ContainsFunc(service.Texts(), func(text string) bool { return strings.HasSuffix(text, " quagga") })
	})
	first := service.Counts().Texts - before - 1 // less the question
	kit.Check(s.Reload(ctx))
	s.settle(ctx)
	second := service.Counts().Texts - before - 1 - first
	b.told("P22", "texts embedded after that change; after a reload", fmt.Sprintf("%d; %d", first, second), "–", "1; 0", first == 1 && second == 0)
	s.end()
}

// change changes one tool, and waits until it is there.
func (s *searched) change(ctx context.Context, word string) {
	before := s.stock.backends[0].Counts().Methods["tools/list"]
	s.stock.list(0, " "+word)
	s.stock.changed[0] <- struct{}{}
	awaits(ctx, "the list that has changed", func() bool { return s.stock.backends[0].Counts().Methods["tools/list"] > before })
	s.settle(ctx)
	if s.kind != plainEdge {
		awaits(ctx, "the tool that has changed", func() bool { return bytes.Contains(s.find(word), []byte(word+`"`)) })
	}
}

// changes are what some changes took, in ms of CPU.
func (s *searched) changes(ctx context.Context, n int) (all []float64) {
	for i := range n {
		before := kit.Must(kit.CPU(s.PID()))
		s.change(ctx, fmt.Sprintf("quagga%d", i))
		all = append(all, kit.Millis(kit.Must(kit.CPU(s.PID()))-before))
	}
	return all
}

// p23 is the memory that an index takes: the heap after a collection, less that of an edge
// without the optimizer that has the same catalog.
func (b *bench) p23(ctx context.Context, service *embedder.Service) {
	live := map[string]int64{}
	for _, kind := range []string{plainEdge, wordsEdge, vectorsEdge} {
		with := service
		if kind != vectorsEdge {
			with = nil
		}
		s := b.searchedBy(ctx, kind, "", with)
		live[kind] = liveBytes(ctx, s.Edge)
		s.end()
	}
	for _, row := range []struct {
		kind string
		bar  float64
	}{{wordsEdge, 1}, {vectorsEdge, 3}} {
		kind, bar := row.kind, row.bar
		each := kit.KiB(live[kind]-live[plainEdge], findAll)
		b.told("P23", fmt.Sprintf("heap that a tool takes beyond the catalog, %d tools, %s", findAll, kind), fmt.Sprintf("%.2f KiB", each), fmt.Sprintf("%.1f MiB, the process without", kit.MiB(live[plainEdge])), fmt.Sprintf("≤ %.0f KiB", bar), each <= bar)
	}
}

// runThrough is P24: a call by call_tool beside the same call made directly.
func (b *bench) runThrough(ctx context.Context) { b.tryEdge(ctx, "P24", b.through) }

func (b *bench) through(ctx context.Context) {
	backend := b.startBackend(ctx, kit.Modern, "json")
	plain := b.startEdge(ctx, []string{backend.Addr})
	p := kit.PlanOf(backend.Addr)
	p.Config = "    optimizer: {hybridSearchSemanticRatio: \"0\"}\n"
	with := b.startPlan(ctx, p)
	arguments := kit.Must(json.Marshal(kit.Work{Text: "call " + mark}))
	targets := []*target{{name: plainEdge, Process: plain.Process}, {name: "call_tool", Process: with.Process, do: func(c *client, number uint64) error {
		if c.calls["call_tool"] == nil {
			c.calls["call_tool"] = newCall(c.Modern(mark, "tools/call", "call_tool", `"name":"call_tool","arguments":{"tool_name":"echo","parameters":`+string(arguments)+`}`, ""))
		}
		return c.calls["call_tool"].make(c.Client, number)
	}}}
	figures := b.inTurn(ctx, cell{kit.Modern, kit.Modern, "json", 8, false}, targets)
	direct, by := figures[plainEdge].cpu, figures["call_tool"].cpu
	b.told("P24", "CPU per call by `call_tool`, 8 connections", fmt.Sprintf("%.2f µs", by), fmt.Sprintf("%.2f µs, the same call without the optimizer", direct), "≤ + 10 %", by <= 1.1*direct)
	b.report.finding[len(b.report.finding)-1].ratio = fmt.Sprintf("%.3f", by/direct)
}
