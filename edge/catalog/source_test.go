package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
)

// fake is a source whose tools a test sets.
type fake struct {
	name     string
	personal bool

	mu       sync.Mutex
	caps     string
	result   func(id *edge.Identity, method string, cursor *string) (string, error)
	delay    time.Duration // of an answer
	asked    []string      // METHOD or METHOD CURSOR
	at, most int           // lists under way
}

const everything = `{"tools":{},"prompts":{},"resources":{}}`

// having makes a source of tools of these names.
func having(name string, tools ...string) *fake {
	f := &fake{name: name, caps: everything}
	f.set(tools...)
	return f
}

func (f *fake) set(tools ...string) { f.answer(result(0, tools...)) }

// answer sets the result of tools/list; the other lists are empty.
func (f *fake) answer(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result = func(_ *edge.Identity, method string, _ *string) (string, error) {
		switch method {
		case "tools/list":
			return text, nil
		case "prompts/list":
			return `{"prompts":[]}`, nil
		case "resources/list":
			return `{"resources":[]}`, nil
		}
		return "", edge.Errorf(edge.NoMethod, "list", "no such method")
	}
}

func (f *fake) fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result = func(*edge.Identity, string, *string) (string, error) {
		return "", edge.Errorf(edge.Unavailable, "list", "down")
	}
}

func (f *fake) slow(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay = d
}

// times is how often a method was asked.
func (f *fake) times(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, m := range f.asked {
		if name, _, _ := strings.Cut(m, " "); name == method {
			n++
		}
	}
	return n
}

func (f *fake) Name() string   { return f.name }
func (f *fake) Personal() bool { return f.personal }

func (f *fake) Capabilities(context.Context, *edge.Identity) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []byte(f.caps), nil
}

func (f *fake) List(ctx context.Context, id *edge.Identity, method string, cursor *string) ([]byte, error) {
	f.mu.Lock()
	what := method
	if cursor != nil {
		what += " " + *cursor
	}
	f.asked = append(f.asked, what)
	f.at++
	f.most = max(f.most, f.at)
	delay, result := f.delay, f.result
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.at--
		f.mu.Unlock()
	}()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, edge.Errorf(edge.Timeout, "list", "%w", context.Cause(ctx))
		}
	}
	text, err := result(id, method, cursor)
	return []byte(text), err
}

func result(ttl int, tools ...string) string {
	var items []string
	for _, name := range tools {
		items = append(items, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
	}
	return fmt.Sprintf(`{"resultType":"complete","tools":[%s],"ttlMs":%d,"cacheScope":"public"}`, strings.Join(items, ","), ttl)
}

// reader reads lists of a book, on the clock of a bubble.
type reader struct {
	t *testing.T
	*catalog.Book
	mu   sync.Mutex
	told []string
}

// open opens a book over the sources; change may set more of its config.
func open(t *testing.T, change func(*catalog.Config), sources ...*fake) *reader {
	t.Helper()
	r := &reader{t: t}
	var names []string
	config := catalog.Config{
		Interval: 30 * time.Second, Wait: 2 * time.Second, Timeout: 10 * time.Second, Quiet: 5 * time.Second,
		Changed: func(c catalog.Changes) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told = append(r.told, c.Methods()...)
		},
	}
	for _, s := range sources {
		config.Sources = append(config.Sources, s)
		names = append(names, s.name)
	}
	config.Rules = rules(t, nil, names...)
	if change != nil {
		change(&config)
	}
	r.Book = catalog.Open(config)
	t.Cleanup(func() { r.Close() })
	return r
}

// tools lists all tools for an identity.
func (r *reader) tools(id *edge.Identity) ([]string, error) {
	text, err := r.List(r.t.Context(), id, edge.Tool, mcp.Modern, nil, "")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, item := range mcp.Elements(mcp.Lookup(text, "tools")) {
		out = append(out, mcp.String(mcp.Lookup(item, "name")))
	}
	return out, nil
}

// want lists the tools and expects these, after no longer than so long.
func (r *reader) want(within time.Duration, tools ...string) {
	r.t.Helper()
	began := time.Now()
	got, err := r.tools(nil)
	if err != nil || !slices.Equal(got, tools) {
		r.t.Errorf("got %q, %v; want %q", got, err, tools)
	}
	if took := time.Since(began); took > within {
		r.t.Errorf("the list took %v", took)
	}
}

// refused lists the tools and expects an error that names what is missing.
func (r *reader) refused(within time.Duration, missing string) {
	r.t.Helper()
	began := time.Now()
	got, err := r.tools(nil)
	var e *edge.Error
	if !errors.As(err, &e) || e.Kind != edge.Unavailable || string(e.Data) != missing {
		r.t.Errorf("got %q, %v, want an error with %s", got, err, missing)
	}
	if took := time.Since(began); took > within {
		r.t.Errorf("the error took %v", took)
	}
}

// heard expects that so many notifications were sent since it was asked last.
func (r *reader) heard(want ...string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.told, want) {
		r.t.Errorf("told %q, want %q", r.told, want)
	}
	r.told = nil
}

func bestEffort(c *catalog.Config) { c.BestEffort = true }

const toolsChanged = "notifications/tools/list_changed"
