package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/embedder"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// Bars of the answers to questions while an embedding service fails.
const (
	questionLongest = 1100 * time.Millisecond // a second for the vector, and the answer by words
	questionOpen    = 5 * time.Millisecond    // once the service is left alone
	casesAtOnce     = 4
	// longestRest is how long a service that has failed for a minute may be left alone: 30 s, then
	// 60 s, with a margin for the trial.
	longestRest = 62 * time.Second
)

// runOptimizer is Q07 for people who ask all the time: the embedding service of an edge fails in
// each way while questions come by the clock. Some cases run at a time, each with an edge of
// its own.
func runOptimizer(ctx context.Context, s *storm) {
	rate, length := 200, s.span(s.length, time.Minute, 2*time.Second, "of each failure")
	if s.rate > 0 {
		rate = s.rate
	} else if s.quick {
		rate = 40
	}
	if s.quick {
		s.scale("%d questions a second of 200, half of the answers within 5 ms and not 99 of 100, back to vectors where the service says when", rate)
	}
	all := embedder.Harms()
	for len(all) > 0 {
		n := min(casesAtOnce, len(all))
		rounds := make([]*questioned, n)
		for i, harm := range all[:n] {
			rounds[i] = s.newQuestioned(ctx, harm)
		}
		all = all[n:]
		var work sync.WaitGroup
		errs := make([]error, n)
		for i, q := range rounds {
			work.Go(func() { errs[i] = kit.Try(func() { q.run(ctx, rate, length, s.quick) }) })
		}
		work.Wait()
		for i, q := range rounds {
			kit.Check(errs[i])
			q.judge(s)
			q.edge.Stop()
		}
	}
}

// questioned is an edge with an embedding service that fails, and what became of questions.
type questioned struct {
	harm    embedder.Harm
	service *embedder.Service
	edge    *kit.Edge

	mu   sync.Mutex
	free []*kit.Client

	number  atomic.Int64
	asked   []question
	opened  time.Time // when the edge left the service alone
	cause   bool      // the status has named it
	quick   bool
	back    time.Duration // until an answer by vectors; negative for never
	waited  bool          // for that
	trials  int           // requests to the service, from its return to that answer
	strayed int
}

// question is one that was asked.
type question struct {
	due    time.Time
	took   time.Duration
	search string // how it was answered
	err    error
}

func (s *storm) newQuestioned(ctx context.Context, harm embedder.Harm) *questioned {
	q := &questioned{harm: harm, service: kit.Must(embedder.Start("small", 64)), back: -1}
	s.later(q.service.Close)
	var tools []string
	for i := range 100 {
		tools = append(tools, fmt.Sprintf("%s_%s_%d", []string{"read", "list", "delete"}[i%3], []string{"file", "page", "issue", "branch"}[i%4], i))
	}
	b := kit.NewBackend(kit.Modern, tools...)
	kit.Must(b.Listen("127.0.0.1:0"))
	s.later(b.Close)
	p := kit.PlanOf(b.Addr)
	p.Config = fmt.Sprintf("    optimizer: {embeddingService: %q}\n", q.service.URL)
	q.edge = s.startPlan(ctx, p)
	s.later(func() { kit.CloseAll(q.free) })
	for began := time.Now(); ; kit.Pause(ctx, 20*time.Millisecond) {
		if one := q.ask(ctx, time.Now()); one.search == "hybrid" {
			return q
		}
		if time.Since(began) > kit.ReadyLimit {
			kit.Fail("%s: no answer by vectors before the service fails", harm)
		}
	}
}

// run has the service fail for a time while questions come, and waits until it is well.
func (q *questioned) run(ctx context.Context, rate int, length time.Duration, quick bool) {
	q.quick = quick
	kit.Check(q.service.Do(q.harm))
	watching, end := context.WithCancel(ctx)
	defer end()
	var watch sync.WaitGroup
	watch.Go(func() {
		for watching.Err() == nil && q.opened.IsZero() {
			if _, text := q.edge.Get(ctx, "/status", kit.Patience); strings.Contains(string(text), "EmbeddingsUnavailable") {
				q.opened, q.cause = time.Now(), strings.Contains(string(text), q.harm.Cause())
			}
			kit.Sleep(watching, 20*time.Millisecond)
		}
	})
	q.asked = q.fire(ctx, rate, length)
	end()
	watch.Wait()
	q.strayed = q.service.Counts().Strayed
	if q.waited = !quick || q.harm == embedder.Busy; !q.waited {
		return
	}
	before := q.service.Counts().Requests
	kit.Check(q.service.Do(embedder.None))
	for began := time.Now(); time.Since(began) < longestRest; kit.Pause(ctx, 5*time.Millisecond) {
		one := q.ask(ctx, time.Now())
		kit.Check(one.err)
		if one.search == "hybrid" {
			q.back, q.trials = time.Since(began), q.service.Counts().Requests-before
			return
		}
	}
}

// fire asks rate questions a second by the clock.
func (q *questioned) fire(ctx context.Context, rate int, length time.Duration) []question {
	all := make([]question, int(float64(rate)*length.Seconds()))
	began := time.Now()
	var work sync.WaitGroup
	for i := range all {
		due := began.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))
		time.Sleep(time.Until(due))
		work.Go(func() { all[i] = q.ask(ctx, due) })
	}
	work.Wait()
	return all
}

// ask asks a question that nobody has asked before.
func (q *questioned) ask(ctx context.Context, due time.Time) (one question) {
	one.due = due
	q.mu.Lock()
	var c *kit.Client
	if n := len(q.free); n > 0 {
		c, q.free = q.free[n-1], q.free[:n-1]
	}
	q.mu.Unlock()
	if c == nil {
		if c, one.err = kit.Dial(ctx, q.edge.Addr, kit.Modern, kit.DialOptions{}); one.err != nil {
			return one
		}
	}
	id := strconv.FormatInt(q.number.Add(1), 10)
	c.Wait(kit.Patience)
	a, err := c.Do(c.Modern(id, "tools/call", "find_tool", `"name":"find_tool","arguments":{"tool_description":"read the file of number `+id+`"}`, ""))
	one.took = time.Since(due)
	if one.search, one.err = searchOf(a, err); one.err != nil {
		c.Close()
		return one
	}
	q.mu.Lock()
	q.free = append(q.free, c)
	q.mu.Unlock()
	return one
}

// searchOf is how an answer of find_tool was searched for; an error for one that names nothing.
func searchOf(a *kit.Answer, err error) (string, error) {
	if err != nil {
		return "", err
	}
	text, err := a.Message()
	if err != nil {
		return "", err
	}
	var m struct {
		Result struct {
			Structured struct{ Tools []json.RawMessage } `json:"structuredContent"`
			Meta       map[string]any                    `json:"_meta"`
		}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return "", err
	}
	search, _ := m.Result.Meta["weir.dev/search"].(string)
	if a.Status != 200 || search == "" || len(m.Result.Structured.Tools) == 0 {
		return "", fmt.Errorf("%w: status %d: %.200s", kit.ErrWrong, a.Status, text)
	}
	return search, nil
}

// judge holds what was seen against the bars.
func (q *questioned) judge(s *storm) {
	var failed, byVectors int
	var longest time.Duration
	var open []time.Duration
	var why error
	for _, one := range q.asked {
		switch {
		case one.err != nil:
			failed++
			why = one.err
		case one.search == "hybrid":
			byVectors++
		}
		longest = max(longest, one.took)
		if !q.opened.IsZero() && one.due.After(q.opened) {
			open = append(open, one.took)
		}
	}
	permille := 990
	if q.quick {
		permille = 500
	}
	part := kit.Percentile(open, permille)
	s.bar(failed == 0, "0", "%s: %d of %d questions failed%s", q.harm, failed, len(q.asked), because(why))
	s.bar(longest <= questionLongest, "1.1 s", "%s: the longest answer took %.2f s; %d by vectors", q.harm, longest.Seconds(), byVectors)
	s.bar(len(open) > 0 && part <= questionOpen, "5 ms", "%s: %d of 1,000 answers while the service is left alone within %.2f ms, of %d", q.harm, permille, kit.Millis(part), len(open))
	s.bar(q.cause && q.strayed == 0, "named; 0", "%s: the cause is named in the status: %t; requests that followed a redirect: %d", q.harm, q.cause, q.strayed)
	if q.waited {
		s.bar(q.back >= 0 && q.trials == 1, "one trial", "%s: vectors again after %.1f s and %d requests", q.harm, q.back.Seconds(), q.trials)
	}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
