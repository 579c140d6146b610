package optimizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// model512 is an embedding service of a test: a vector has the lengths of words by their
// first letters.
type fakeService struct {
	mu     sync.Mutex
	model  string
	size   int
	fails  func(texts []string) (status int, body string) // 0 for an answer as it should be
	asked  []int                                          // how many texts each request had
	texts  []string
	delay  chan struct{} // an answer waits for it; nil for none
	infos  atomic.Int64
	header http.Header
	url    string // of the last request
}

func (f *fakeService) fetch(ctx context.Context, method, url string, header http.Header, body []byte, most int64) (int, http.Header, []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.header, f.url = header, url
	url, _, _ = strings.Cut(url, "?")
	if strings.HasSuffix(url, "/info") {
		f.infos.Add(1)
		if f.fails != nil {
			if status, body := f.fails(nil); status != 0 {
				return status, nil, []byte(body), nil
			}
		}
		return 200, nil, fmt.Appendf(nil, `{"model_id":%q,"max_client_batch_size":8}`, f.model), nil
	}
	var in struct {
		Inputs []string `json:"inputs"`
		Input  []string `json:"input"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return 400, nil, nil, nil
	}
	texts := append(in.Inputs, in.Input...)
	f.asked, f.texts = append(f.asked, len(texts)), append(f.texts, texts...)
	if f.fails != nil {
		if status, body := f.fails(texts); status < 0 {
			return 0, nil, nil, errors.New("connection refused")
		} else if status != 0 {
			return status, http.Header{"Retry-After": {""}}, []byte(body), nil
		}
	}
	if wait := f.delay; wait != nil {
		f.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}
		f.mu.Lock()
		if ctx.Err() != nil {
			return 0, nil, nil, ctx.Err()
		}
	}
	rows := make([][]float32, len(texts))
	for i, text := range texts {
		rows[i] = make([]float32, f.size)
		for _, w := range wordsOf(text, false) {
			rows[i][int(w[0])%f.size]++
		}
		rows[i][0]++
	}
	if in.Input == nil {
		out, _ := json.Marshal(rows)
		return 200, nil, out, nil
	}
	var data []map[string]any
	for i := len(rows) - 1; i >= 0; i-- { // in another order
		data = append(data, map[string]any{"index": i, "embedding": rows[i]})
	}
	out, _ := json.Marshal(map[string]any{"data": data})
	return 200, nil, out, nil
}

func (f *fakeService) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeService) sent() (requests, texts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked), len(f.texts)
}

func serviceOf(t *testing.T, f *fakeService, change ...func(*ServiceOptions)) *Service {
	o := ServiceOptions{
		ServiceSpec: ServiceSpec{Provider: v1beta1.EmbeddingTEI, Address: "http://embed.test", Timeout: 5 * time.Second},
		Fetch:       f.fetch, Library: NewLibrary(), Log: slog.New(slog.DiscardHandler), Rest: 50 * time.Millisecond,
	}
	for _, c := range change {
		c(&o)
	}
	s := OpenService(o)
	t.Cleanup(s.Close)
	return s
}

// until waits until something is so.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain: " + what)
		}
	}
}

func vectorsOf(e *edition) (n int) {
	if v := e.vectors.Load(); v != nil {
		for i := range v.of {
			if v.of[i].Load() != nil {
				n++
			}
		}
	}
	return n
}

func TestVectorsOfTools(t *testing.T) {
	for _, provider := range []v1beta1.EmbeddingProvider{v1beta1.EmbeddingTEI, v1beta1.EmbeddingCompat} {
		t.Run(string(provider), func(t *testing.T) {
			f := &fakeService{model: "m", size: 16}
			s := serviceOf(t, f, func(o *ServiceOptions) {
				o.Address = "http://embed.test/base?version=2"
				o.Provider, o.Model, o.Key = provider, "mine", "planted-key"
				o.Headers = map[string]string{"X-Org": "blue"}
			})
			e := newEdition(some100, s.library, nil)
			s.serve(e)
			until(t, "all tools have vectors", func() bool { return vectorsOf(e) == 100 })
			if _, texts := f.sent(); texts != 100 {
				t.Errorf("%d texts were embedded for 100 tools", texts)
			}
			f.mu.Lock()
			key, org, asked := f.header.Get("Authorization"), f.header.Get("X-Org"), f.url
			f.mu.Unlock()
			if !strings.HasPrefix(asked, "http://embed.test/base/") || !strings.HasSuffix(asked, "?version=2") {
				t.Errorf("the service was asked at %s", asked)
			}
			if want := map[v1beta1.EmbeddingProvider]string{v1beta1.EmbeddingCompat: "Bearer planted-key"}[provider]; key != want || org != "blue" {
				t.Errorf("Authorization %q, want %q; X-Org %q", key, want, org)
			}
			// Another catalog with one changed tool.
			changed := &shelf{tools: append([]entry{}, some100.tools...)}
			changed.tools[3].raw = []byte(strings.Replace(string(changed.tools[3].raw), `"description":"`, `"description":"zebra `, 1))
			after := newEdition(changed, s.library, e)
			s.serve(after)
			s.leave(e)
			until(t, "the changed tool has a vector", func() bool { return vectorsOf(after) == 100 })
			if _, texts := f.sent(); texts != 101 {
				t.Errorf("%d texts were embedded for one changed tool", texts-100)
			}
			v, m := s.question(t.Context(), "find a zebra")
			if v == nil || m != after.vectors.Load().model || len(v.of) != 16 {
				t.Errorf("the question has the vector %v", v)
			}
			_, _ = s.question(t.Context(), "find a zebra")
			if _, texts := f.sent(); texts != 102 {
				t.Errorf("a question was embedded %d times", texts-101)
			}
		})
	}
}

// TestQ07Failures has a service fail in each way: questions go without a vector, the cause is
// named, and all is well once the service is.
func TestQ07Failures(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"refuses":     {-1, "", "connection refused"},
		"500":         {500, "secret words", "answered 500"},
		"413":         {413, "", "answered 413"},
		"429":         {429, "", "answered 429"},
		"401":         {401, "", "answered 401"},
		"HTML":        {200, "<html>", "is not JSON"},
		"too few":     {200, "[[1]]", "1 vector for"},
		"NaN":         {200, "[[NaN],[NaN]]", "is not JSON"},
		"zero":        {200, "zeros", "no length"},
		"redirect":    {302, "", "redirects are not followed"},
		"no vector":   {200, `{"error":"x"}`, "0 vectors for"},
		"text":        {200, "texts", "no number"},
		"too large":   {200, "huge", "dimensions: 1 to 4096"},
		"other width": {200, "wider", "dimensions, and one before had"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeService{model: "m", size: 16}
			s := serviceOf(t, f)
			e := newEdition(some100, s.library, nil)
			s.serve(e)
			until(t, "all tools have vectors", func() bool { return vectorsOf(e) == 100 })
			f.set(func() {
				f.fails = func(texts []string) (int, string) {
					if len(texts) == 0 {
						return 0, ""
					}
					body := c.body
					switch one := map[string]string{"zeros": "[0,0]", "texts": `["a"]`, "huge": "[1" + strings.Repeat(",1", 5000) + "]", "wider": "[1,2,3]"}[body]; {
					case one != "":
						body = "[" + one + strings.Repeat(","+one, len(texts)-1) + "]"
					case name == "too few":
						body = "[]"
					}
					return c.status, body
				}
			})
			want := c.want
			if name == "too few" {
				want = "0 vectors for"
			}
			for i := 0; s.Fault() == ""; i++ {
				if v, _ := s.question(t.Context(), fmt.Sprint("question ", i)); v != nil {
					t.Fatal("a vector came from a service that fails")
				}
				if i > 100 {
					t.Fatal("the breaker does not open")
				}
			}
			if fault := s.Fault(); !strings.Contains(fault, want) || strings.Contains(fault, "secret words") {
				t.Errorf("the cause is %q, want %q", fault, want)
			}
			before, _ := f.sent()
			if v, _ := s.question(t.Context(), "while it is open"); v != nil {
				t.Error("a vector came while the breaker is open")
			}
			if after, _ := f.sent(); after > before+1 { // a trial, at most
				t.Error("the service is asked while the breaker is open")
			}
			f.set(func() { f.fails = nil })
			i := 0
			until(t, "questions have vectors again", func() bool {
				i++
				v, _ := s.question(t.Context(), fmt.Sprint("again ", i))
				return v != nil
			})
			if fault := s.Fault(); fault != "" {
				t.Errorf("the cause is still %q", fault)
			}
		})
	}
}

// TestOneBadText has one text that the service cannot take: the rest get vectors.
func TestOneBadText(t *testing.T) {
	for name, status := range map[string]int{"413": 413, "500": 500, "400": 400} {
		t.Run(name, func(t *testing.T) {
			f := &fakeService{model: "m", size: 16}
			bad := ""
			f.fails = func(texts []string) (int, string) {
				for _, one := range texts {
					if strings.HasPrefix(one, "read file") {
						bad = one
						return status, ""
					}
				}
				return 0, ""
			}
			s := serviceOf(t, f)
			e := newEdition(some100, s.library, nil)
			s.serve(e)
			until(t, "all others have vectors", func() bool { return vectorsOf(e) == 99 })
			f.mu.Lock()
			defer f.mu.Unlock()
			if bad == "" {
				t.Error("the bad text was never sent")
			}
		})
	}
}

// TestQ08OneRequest has many ask the same while the service is slow.
func TestQ08OneRequest(t *testing.T) {
	f := &fakeService{model: "m", size: 16}
	s := serviceOf(t, f)
	e := newEdition(some100, s.library, nil)
	s.serve(e)
	until(t, "all tools have vectors", func() bool { return vectorsOf(e) == 100 })
	before, _ := f.sent()
	wait := make(chan struct{})
	f.set(func() { f.delay = wait })
	var work sync.WaitGroup
	var got atomic.Int64
	for range 20 {
		work.Go(func() {
			if v, _ := s.question(t.Context(), "the same"); v != nil {
				got.Add(1)
			}
		})
	}
	until(t, "the question is under way", func() bool { n, _ := f.sent(); return n > before })
	close(wait)
	work.Wait()
	if n, _ := f.sent(); n != before+1 {
		t.Errorf("%d requests for one question", n-before)
	}
	if got.Load() == 0 {
		t.Error("nobody got the vector")
	}
}

// TestSlowService has a service that hangs: a question waits a second, and later ones not at
// all.
func TestSlowService(t *testing.T) {
	f := &fakeService{model: "m", size: 16}
	s := serviceOf(t, f, func(o *ServiceOptions) { o.Rest = time.Minute })
	e := newEdition(some100, s.library, nil)
	s.serve(e)
	until(t, "all tools have vectors", func() bool { return vectorsOf(e) == 100 })
	f.set(func() { f.delay = make(chan struct{}) })
	var work sync.WaitGroup
	for i := range failuresToOpen {
		work.Go(func() { _, _ = s.question(t.Context(), fmt.Sprint("question ", i)) })
	}
	work.Wait()
	until(t, "the breaker opens", func() bool { return s.Fault() != "" })
	if fault := s.Fault(); !strings.Contains(fault, "no answer in time") {
		t.Errorf("the cause is %q", fault)
	}
	before, _ := f.sent()
	for i := range 100 {
		_, _ = s.question(t.Context(), fmt.Sprint("later ", i))
	}
	if after, _ := f.sent(); after != before {
		t.Errorf("%d requests while the breaker is open", after-before)
	}
}

// TestLookThatAsksNothing has a service fail that is never asked which model it has: a look at
// that does not make it well.
func TestLookThatAsksNothing(t *testing.T) {
	f := &fakeService{size: 16}
	s := serviceOf(t, f, func(o *ServiceOptions) {
		o.Provider, o.Model, o.Again = v1beta1.EmbeddingCompat, "mine", 20*time.Millisecond
	})
	e := newEdition(some100, s.library, nil)
	s.serve(e)
	until(t, "all tools have vectors", func() bool { return vectorsOf(e) == 100 })
	f.set(func() { f.fails = func([]string) (int, string) { return 500, "" } })
	for i := 0; s.Fault() == ""; i++ {
		if _, _ = s.question(t.Context(), fmt.Sprint("question ", i)); i > 100 {
			t.Fatal("the breaker does not open")
		}
	}
	before, _ := f.sent()
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if s.Fault() == "" {
			t.Fatal("a service that nobody has asked is well again")
		}
	}
	if after, _ := f.sent(); after != before {
		t.Errorf("%d requests without a question", after-before)
	}
	f.set(func() { f.fails = nil })
	i := 0
	until(t, "a question makes it well", func() bool {
		i++
		_, _ = s.question(t.Context(), fmt.Sprint("again ", i))
		return s.Fault() == ""
	})
}

// TestBreakerRests has many requests fail at once: the service rests as long as it would after
// five, twice as long after a trial that fails, and what is late decides nothing.
func TestBreakerRests(t *testing.T) {
	b, now, f := &breaker{rest: firstRest}, time.Now(), &failure{what: "no"}
	permits := make([]permit, 32)
	for i := range permits {
		permits[i] = b.allows(now)
	}
	for _, p := range permits[:31] {
		b.done(now, p, f, plain)
	}
	if wait := b.wait(now); wait != firstRest {
		t.Fatalf("31 that fail at once open it for %s, want %s", wait, firstRest)
	}
	if p := b.allows(now.Add(firstRest - 1)); p != refused {
		t.Errorf("%d before the rest is over", p)
	}
	now = now.Add(firstRest)
	trial := b.allows(now)
	if trial != onTrial || b.allows(now) != refused {
		t.Fatal("not one request goes through after the rest")
	}
	b.done(now, permits[31], f, heavy) // from before it opened
	if b.allows(now) != refused || b.state(now) != 2 {
		t.Error("one that is late ends the trial of another")
	}
	b.done(now, trial, f, light)
	if wait := b.wait(now); wait != 2*firstRest {
		t.Errorf("after a trial that fails it is open for %s", wait)
	}
	now = now.Add(2 * firstRest)
	b.done(now, b.allows(now), nil, plain)
	if b.state(now) != 0 || b.allows(now) != granted {
		t.Error("a trial that succeeds leaves it open")
	}
	b.done(now, granted, &failure{what: "no", after: time.Hour}, plain)
	if wait := b.wait(now); wait != longestRest {
		t.Errorf("a service that wants an hour has %s", wait)
	}
}

// TestQ09SwappedModel swaps the model behind the address, for one of the same dimension and
// of another, under another name and the same.
func TestQ09SwappedModel(t *testing.T) {
	for _, size := range []int{16, 24} {
		for _, name := range []string{"other", "m"} {
			if size == 16 && name == "m" {
				continue // nobody can tell
			}
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				f := &fakeService{model: "m", size: 16}
				s := serviceOf(t, f, func(o *ServiceOptions) { o.Again = 100 * time.Millisecond })
				e := newEdition(some100, s.library, nil)
				s.serve(e)
				until(t, "all tools have vectors", func() bool { return vectorsOf(e) == 100 })
				first := e.vectors.Load().model
				f.set(func() { f.model, f.size = name, size })
				i := 0
				until(t, "all tools have vectors of the other model", func() bool {
					i++
					v, m := s.question(t.Context(), fmt.Sprint("question ", i))
					if all := e.vectors.Load(); v != nil && all.model == m {
						for j := range all.of {
							if one := all.of[j].Load(); one != nil && len(one.of) != len(v.of) {
								t.Fatal("vectors of two dimensions are compared")
							}
						}
					}
					return e.vectors.Load().model != first && vectorsOf(e) == 100
				})
			})
		}
	}
}

// FuzzAnswers reads what a service may answer: nothing breaks, and what is taken is sound.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"[[1,2],[3,4]]", "[[1e999]]", "[[null]]", "[]", "[[0]]", `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[-0.5]}]}`, `{"data":[{"index":9}]}`, "[[1],[1,2]]", "<html>"} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, compat bool) {
		c := &client{ServiceSpec: ServiceSpec{Provider: v1beta1.EmbeddingTEI}}
		if compat {
			c.Provider = v1beta1.EmbeddingCompat
		}
		c.fetch = func(context.Context, string, string, http.Header, []byte, int64) (int, http.Header, []byte, error) {
			return 200, nil, body, nil
		}
		all, err := c.embed(t.Context(), []string{"a", "b"}, 0)
		if err == nil && (len(all) != 2 || len(all[0].of) != len(all[1].of)) {
			t.Errorf("%q: %v", body, all)
		}
		for _, v := range all {
			if n := dot(v.of, v.of); n < 0.99 || n > 1.01 {
				t.Errorf("%q: a vector of length %f", body, n)
			}
		}
		_, _, _ = c.info(t.Context())
	})
}

// An owner that goes while its edition is made leaves nothing behind at the service.
func TestOwnerGoneMeanwhile(t *testing.T) {
	s := serviceOf(t, &fakeService{model: "m", size: 4})
	o := Open(Options{
		Spec: Spec{Ratio: 0.5, Most: 8, Far: 1}, Library: s.library, Service: s, Counters: new(Counters),
		Log: slog.New(slog.DiscardHandler), Settled: func() Catalog { return nil },
	})
	defer o.Close()
	w := o.owner("first")
	for i := range maxOwners {
		o.owner(fmt.Sprint(i))
	}
	o.renew(w, shelfOf([]string{"b", "x", "Does x."}))
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.editions); n != 0 {
		t.Errorf("%d editions are left", n)
	}
}
