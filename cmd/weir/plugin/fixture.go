// Package plugin is what authors of guests work with: it scaffolds them, builds
// them, looks into modules, runs fixtures against them, measures them and packs
// them for an edge. Everything that runs a module does so in package wasm, as
// the edge does.
package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// Fixtures are a file of cases: what a guest is asked, and what it must answer.
type Fixtures struct {
	// Config, Grants and Keys are those of every case that has none of its own.
	Config json.RawMessage   `json:"config,omitempty"`
	Grants []string          `json:"grants,omitempty"`
	Keys   map[string]string `json:"keys,omitempty"` // secrets by name

	Others

	Cases []Case `json:"cases"`
}

// Case asks one hook once. Cases with the same configuration and grants are
// asked of one guest, in their order.
type Case struct {
	Name   string            `json:"name"`
	Config json.RawMessage   `json:"config,omitempty"`
	Grants []string          `json:"grants,omitempty"`
	Keys   map[string]string `json:"keys,omitempty"`

	Others

	// Hook that is asked. Without one, the guest is only started.
	Hook  string `json:"hook,omitempty"`
	Input Input  `json:"input,omitempty"`

	// Ops that must come back, in their order; none when it is absent or empty.
	Ops []map[string]map[string]any `json:"ops,omitempty"`

	// Asked is false when no subscription may match.
	Asked *bool `json:"asked,omitempty"`

	// Error is a part of the text with which the guest must fail, or refuse its
	// configuration.
	Error string `json:"error,omitempty"`

	// Log are the lines that must be written, each LEVEL: TEXT. Not compared
	// when absent.
	Log []string `json:"log,omitempty"`

	// Sent are what others were asked, in their order: METHOD URL, header lines,
	// and BODY of HTTP requests, and the name and arguments of tools. Not compared when absent.
	Sent []string `json:"sent,omitempty"`

	// Events are what was told of, each NAME: DATA. Not compared when absent.
	Events []string `json:"events,omitempty"`

	// Metrics are counters and gauges after the case. Not compared when absent.
	Metrics map[string]int64 `json:"metrics,omitempty"`

	// Subscriptions that the guest must have. Not compared when absent.
	Subscriptions []Subscription `json:"subscriptions,omitempty"`
}

// Subscription is what a guest asks for, as fixtures and inspect write it.
type Subscription struct {
	Hook        string   `json:"hook"`
	Methods     []string `json:"methods,omitempty"`
	Tools       []string `json:"tools,omitempty"`
	Backends    []string `json:"backends,omitempty"`
	Fields      []int    `json:"fields,omitempty"` // none for all
	Headers     []string `json:"headers,omitempty"`
	Pointers    []string `json:"pointers,omitempty"`
	VariesBy    string   `json:"variesBy,omitempty"`
	InlineLimit uint64   `json:"inlineLimit,omitempty"`
	CacheMillis int64    `json:"cacheMillis,omitempty"`
	Blocking    bool     `json:"blocking,omitempty"`
}

// ParseFixtures reads a file of fixtures: YAML or JSON.
func ParseFixtures(text []byte) (*Fixtures, error) {
	var f Fixtures
	if err := yaml.UnmarshalStrict(text, &f, func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }); err != nil {
		return nil, plain(err)
	}
	if len(f.Cases) == 0 {
		return nil, errors.New("cases: there are none")
	}
	seen := map[string]bool{}
	for i := range f.Cases {
		c := &f.Cases[i]
		at := fmt.Sprintf("cases[%d]", i)
		if c.Name == "" {
			return nil, fmt.Errorf("%s: name is missing", at)
		}
		if seen[c.Name] {
			return nil, fmt.Errorf("%s: there is another case called %q", at, c.Name)
		}
		seen[c.Name] = true
		if c.Hook != "" {
			if _, ok := abi.HookNamed(c.Hook); !ok {
				return nil, fmt.Errorf("%s.hook: there is no hook %q: wasm/ABI.md lists them", at, c.Hook)
			}
		}
		if c.Config == nil {
			c.Config = f.Config
		}
		if c.Grants == nil {
			c.Grants = f.Grants
		}
		if c.Keys == nil {
			c.Keys = f.Keys
		}
		if c.HTTP == nil {
			c.HTTP = f.HTTP
		}
		if c.Tools == nil {
			c.Tools = f.Tools
		}
		if err := c.Input.verbatim(); err != nil {
			return nil, fmt.Errorf("%s.input.verbatim%w", at, err)
		}
		if err := c.normal(); err != nil {
			return nil, fmt.Errorf("%s.ops%w", at, err)
		}
	}
	return &f, nil
}

// plain is an error of the decoder without what it says of itself.
func plain(err error) error {
	text := err.Error()
	for _, prefix := range []string{"error unmarshaling JSON: ", "while decoding JSON: ", "error converting YAML to JSON: ", "json: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return errors.New(text)
}

// normal writes out what expected operations leave out, as operations does.
func (c *Case) normal() error {
	for i, op := range c.Ops {
		if len(op) != 1 {
			return fmt.Errorf("[%d]: one operation, with its name: got %d", i, len(op))
		}
		for name, fields := range op {
			at := slices.IndexFunc(verbs[:], func(v verb) bool { return v.name == name })
			if at <= 0 {
				return fmt.Errorf("[%d]: there is no operation %q: wasm/ABI.md lists them", i, name)
			}
			v := verbs[at]
			if fields == nil {
				fields = map[string]any{}
			}
			for field := range fields {
				known := false
				for letter, name := range fieldNames {
					known = known || name == field && strings.ContainsRune(strings.ToLower(v.fields), rune(letter))
				}
				if !known {
					return fmt.Errorf("[%d].%s: it has no %s", i, name, field)
				}
			}
			for letter, field := range fieldNames {
				if strings.IndexByte(v.fields, letter) < 0 || fields[field] != nil {
					continue
				}
				switch letter {
				case 'c':
					fields[field] = codes[0]
				case 'i', 'x':
					fields[field] = json.Number("0")
				}
			}
			op[name] = fields
		}
	}
	return nil
}

// Outcome is what came of one case.
type Outcome struct {
	Case *Case
	Got  []string // differences, empty when it passed
}

// Passed says whether all was as expected.
func (o Outcome) Passed() bool { return len(o.Got) == 0 }

// Run asks a module every case and returns what came of them.
func Run(ctx context.Context, m *wasm.Module, f *Fixtures) []Outcome {
	h := &hosts{module: m, open: map[string]*host{}}
	defer h.close()
	outcomes := make([]Outcome, 0, len(f.Cases))
	for i := range f.Cases {
		c := &f.Cases[i]
		outcomes = append(outcomes, Outcome{c, h.run(ctx, c)})
	}
	return outcomes
}

// hosts are the guests that a file of fixtures needs, by what they are given.
type hosts struct {
	module *wasm.Module
	limits wasm.Limits
	open   map[string]*host
}

// host is one guest and what it may use.
type host struct {
	guest  *wasm.Guest
	err    error // why it did not start
	store  *kv.MemoryStore
	mu     sync.Mutex
	lines  []string
	totals map[string]int64
	others *Others // of the case that is asked
	sent   []string
	events []string
}

func (h *hosts) close() {
	for _, one := range h.open {
		if one.guest != nil {
			one.guest.Close()
		}
		_ = one.store.Close() // it is memory
	}
}

// of returns the guest for a case, and starts it when it is the first.
func (h *hosts) of(ctx context.Context, c *Case) *host {
	key, err := json.Marshal([]any{c.Config, c.Grants, c.Keys})
	if err != nil {
		return &host{err: err}
	}
	if one := h.open[string(key)]; one != nil {
		return one
	}
	one := &host{store: kv.Memory(kv.Limits{}), totals: map[string]int64{}, others: &Others{}}
	h.open[string(key)] = one
	b := wasm.Binding{
		Name: "fixture", Config: c.Config, Grants: c.Grants, Limits: h.limits, Log: slog.New(one), Store: one.store, Metric: one.measure,
		Keys: map[string]edge.Secret{}, Fetch: one.fetch, Tool: one.tool, Emit: one.emit,
	}
	if b.Limits.Timeout == 0 {
		b.Limits.Timeout = time.Second // fuel is what bounds a case: this machine may be busy
	}
	b.Limits.Instances = 1
	for name, secret := range c.Keys {
		b.Keys[name] = edge.Secret(secret)
	}
	one.guest, one.err = h.module.Open(ctx, b)
	return one
}

// run asks one case and returns what is not as expected.
func (h *hosts) run(ctx context.Context, c *Case) (wrong []string) {
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	fails := func(err error) {
		switch {
		case err == nil && c.Error != "":
			fail("no error: expected one with %q", c.Error)
		case err != nil && c.Error == "":
			fail("%v", err)
		case err != nil && !strings.Contains(err.Error(), c.Error):
			fail("%v: expected an error with %q", err, c.Error)
		}
	}
	g := h.of(ctx, c)
	if g.err != nil {
		fails(g.err)
		return wrong
	}
	if c.Subscriptions != nil {
		if got := Subscriptions(g.guest); !reflect.DeepEqual(got, c.Subscriptions) {
			fail("subscriptions: got  %s", line(got))
			fail("subscriptions: want %s", line(c.Subscriptions))
		}
	}
	logged := func() {
		if c.Log != nil && !slices.Equal(g.lines, c.Log) {
			fail("log: got  %s", line(g.lines))
			fail("log: want %s", line(c.Log))
		}
	}
	if c.Hook == "" {
		fails(nil)
		logged()
		return wrong
	}
	hook, _ := abi.HookNamed(c.Hook) // ParseFixtures has looked
	w, matched := wants(g.guest.Subscriptions(), hook, c.Input.filled(hook))
	if want := c.Asked == nil || *c.Asked; matched != want {
		fail("asked is %v: expected %v", matched, want)
		return wrong
	}
	if !matched {
		return wrong
	}
	g.lines, g.sent, g.events, g.others = nil, nil, nil, &c.Others
	record, err := g.guest.Call(ctx, hook, c.Input.Session, wasm.Sender{}, c.Input.filled(hook).record(hook, w), nil)
	ops := []any{}
	if err == nil {
		ops, err = operations(hook, record, len(c.Input.Items))
	}
	fails(err)
	if err == nil {
		wrong = append(wrong, compare(ops, c.Ops)...)
	}
	logged()
	for _, one := range []struct {
		what      string
		got, want []string
	}{{"sent", g.sent, c.Sent}, {"events", g.events, c.Events}} {
		if one.want != nil && !slices.Equal(one.got, one.want) {
			fail("%s: got  %s", one.what, line(one.got))
			fail("%s: want %s", one.what, line(one.want))
		}
	}
	if c.Metrics != nil && !maps.Equal(g.totals, c.Metrics) {
		fail("metrics: got  %s", line(g.totals))
		fail("metrics: want %s", line(c.Metrics))
	}
	return wrong
}

// filled returns the input with the method that its hook implies.
func (in Input) filled(hook abi.Hook) *Input {
	if in.Method == "" && (hook == abi.OnCallRequest || hook == abi.OnCallResponse || hook == abi.OnUpstreamRequest) {
		in.Method = "tools/call"
	}
	return &in
}

// compare returns how operations differ from those that are wanted.
func compare(got []any, want []map[string]map[string]any) (wrong []string) {
	var wanted []any
	text, err := json.Marshal(want)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err = d.Decode(&wanted)
	}
	if err != nil {
		return []string{err.Error()}
	}
	for i := range max(len(got), len(wanted)) {
		switch {
		case i >= len(wanted):
			wrong = append(wrong, fmt.Sprintf("ops[%d]: got  %s, and no more was expected", i, line(got[i])))
		case i >= len(got):
			wrong = append(wrong, fmt.Sprintf("ops[%d]: missing: %s", i, line(wanted[i])))
		case !reflect.DeepEqual(got[i], wanted[i]):
			wrong = append(wrong, fmt.Sprintf("ops[%d]: got  %s", i, line(got[i])), fmt.Sprintf("ops[%d]: want %s", i, line(wanted[i])))
		}
	}
	return wrong
}

// line writes a value on one line.
func line(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}

// Subscriptions returns what a guest asks for.
func Subscriptions(g *wasm.Guest) []Subscription {
	var all []Subscription
	for _, s := range g.Subscriptions() {
		one := Subscription{
			Hook: s.Hook.String(), Methods: s.Methods, Tools: s.Tools, Backends: s.Backends, Headers: s.Headers, Pointers: s.Pointers,
			VariesBy: [...]string{"", "tenant", "groups", "subject"}[s.VariesBy], InlineLimit: s.InlineLimit,
			CacheMillis: s.Cache.Milliseconds(), Blocking: s.Blocking,
		}
		for f := range 64 {
			if s.Fields>>f&1 == 1 {
				one.Fields = append(one.Fields, f)
			}
		}
		all = append(all, one)
	}
	return all
}

// A host is also the log of its guest.

func (h *host) Enabled(context.Context, slog.Level) bool { return true }
func (h *host) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *host) WithGroup(string) slog.Handler            { return h }

// Handle keeps a line.
func (h *host) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, strings.ToLower(r.Level.String())+": "+r.Message)
	return nil
}

func (h *host) measure(name string, gauge bool, delta int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !gauge {
		delta += h.totals[name]
	}
	h.totals[name] = delta
}
