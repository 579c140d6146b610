package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// Outcome is what came of one case.
type Outcome struct {
	Case *Case
	Got  []string // differences, empty when it passed
}

// Passed says whether all was as expected.
func (o Outcome) Passed() bool { return len(o.Got) == 0 }

// Run asks a module every case, as RunProgram does.
func Run(ctx context.Context, m *wasm.Module, f *Fixtures) []Outcome {
	return RunProgram(ctx, ofModule(m), f)
}

// RunProgram asks a program every case, each of a guest of its own, and returns what
// came of them.
func RunProgram(ctx context.Context, p *Program, f *Fixtures) []Outcome {
	outcomes := make([]Outcome, 0, len(f.Cases))
	for i := range f.Cases {
		outcomes = append(outcomes, Outcome{&f.Cases[i], f.Cases[i].run(ctx, p, f.optional)})
	}
	return outcomes
}

// host is the guest of one case, and what it may use.
type host struct {
	guest  guest.Engine
	err    error // why it did not start
	store  *kv.MemoryStore
	mu     sync.Mutex
	lines  []string
	totals map[string]int64
	others *Others // of the case that is asked
	sent   []string
	events []string
	lone   int // messages without a session
}

// filterName is the filter's name in what an edge says of it.
const filterName = "fixture"

// start starts the guest of a case, which does without some grants, under limits. The caller must close it.
func (c *Case) start(ctx context.Context, p *Program, optional []string, limits wasm.Limits) *host {
	h := &host{store: kv.Memory(kv.Limits{}), totals: map[string]int64{}, others: &Others{}}
	b := wasm.Binding{
		Name: filterName, Config: c.Config, Grants: c.Grants, Optional: optional, Log: slog.New(h), Store: h.store, Metric: h.measure,
		Keys: map[string]edge.Secret{}, Fetch: h.fetch, Tool: h.tool, Emit: h.emit, Limits: limits,
	}
	switch c.Isolation {
	case string(v1beta1.IsolationPerRequest):
		b.Isolation = wasm.PerRequest
	case string(v1beta1.IsolationPerSession):
		b.Isolation = wasm.PerSession
	}
	for name, secret := range c.Keys {
		b.Keys[name] = edge.Secret(secret)
	}
	if h.guest, h.err = p.open(ctx, b); h.err == nil {
		h.err = guest.JudgeSubscriptions(h.guest, c.Grants, claimsOf(h.guest, c.Grants))
	}
	return h
}

func (h *host) close() {
	if h.guest != nil {
		h.guest.Close()
	}
	_ = h.store.Close() // it is memory
}

// question is what a hook is asked in a case, and whether a subscription
// matches it.
func (h *host) question(c *Case) (hook abi.Hook, record []byte, matched bool) {
	hook, _ = abi.HookNamed(c.Hook) // ParseFixtures has looked
	w, matched := wants(h.guest.Subscriptions(), hook, c.Input.filled(hook))
	return hook, c.Input.filled(hook).record(hook, w), matched
}

// ask asks the hook of a case and returns the operations. The error is a
// failure for which an edge would answer 503.
func (h *host) ask(ctx context.Context, c *Case, hook abi.Hook, record []byte) ([]any, error) {
	h.lines, h.sent, h.events, h.others = nil, nil, nil, &c.Others
	answer, err := h.guest.Call(ctx, hook, h.session(c), wasm.Sender{}, record, nil)
	if err != nil {
		return nil, err
	}
	if err := guest.Judge(filterName, c.Input.asked(hook, c.Grants, h.guest.Version()), answer); err != nil {
		return nil, err
	}
	return operations(answer), nil
}

// claimsOf are the pointers of the grant claims: in fixtures, which have the claims
// that they write, it is granted for all of them.
func claimsOf(g guest.Engine, grants []string) (pointers []string) {
	if !slices.Contains(grants, abi.GrantClaims) {
		return nil
	}
	for _, s := range g.Subscriptions() {
		pointers = append(pointers, s.Claims...)
	}
	return pointers
}

// session is that of a case. Messages without one share memory with nothing
// else where it goes by the session.
func (h *host) session(c *Case) string {
	if c.Input.Session != "" {
		return c.Input.Session
	}
	h.lone++
	return fmt.Sprintf("\x00%d", h.lone)
}

// before asks what comes before a case.
func (h *host) before(ctx context.Context, c *Case) error {
	for _, one := range c.after {
		if one.Hook == "" {
			continue
		}
		hook, record, matched := h.question(one)
		if !matched {
			continue
		}
		if _, err := h.ask(ctx, one, hook, record); err != nil && one.Error == "" {
			return fmt.Errorf("after %q: %w", one.Name, err)
		}
	}
	return nil
}

// run asks one case and returns what is not as expected.
func (c *Case) run(ctx context.Context, p *Program, optional []string) (wrong []string) {
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
	// 1. The guest, as the cases before leave it.
	h := c.start(ctx, p, optional, wasm.Limits{Timeout: time.Second, Instances: 1}) // fuel is what bounds it: this machine may be busy
	defer h.close()
	if h.err != nil {
		fails(h.err)
		return wrong
	}
	if c.Subscriptions != nil {
		if got := Subscriptions(h.guest); !reflect.DeepEqual(got, c.Subscriptions) {
			fail("subscriptions: got  %s", line(got))
			fail("subscriptions: want %s", line(c.Subscriptions))
		}
	}
	if err := h.before(ctx, c); err != nil {
		fail("%v", err)
		return wrong
	}

	// 2. The question.
	logged := func() {
		if c.Log != nil && !slices.Equal(h.lines, c.Log) {
			fail("log: got  %s", line(h.lines))
			fail("log: want %s", line(c.Log))
		}
	}
	if c.Hook == "" {
		fails(nil)
		logged()
		return wrong
	}
	hook, record, matched := h.question(c)
	if want := c.Asked == nil || *c.Asked; matched != want {
		fail("asked is %v: expected %v", matched, want)
		return wrong
	}
	if !matched {
		return wrong
	}
	ops, err := h.ask(ctx, c, hook, record)

	// 3. What came of it.
	fails(err)
	if err == nil {
		wrong = append(wrong, compare(ops, c.ops)...)
	}
	logged()
	for _, one := range []struct {
		what      string
		got, want []string
	}{{"sent", h.sent, c.Sent}, {"events", h.events, c.Events}} {
		if one.want != nil && !slices.Equal(one.got, one.want) {
			fail("%s: got  %s", one.what, line(one.got))
			fail("%s: want %s", one.what, line(one.want))
		}
	}
	if c.Metrics != nil && !maps.Equal(h.totals, c.Metrics) {
		fail("metrics: got  %s", line(h.totals))
		fail("metrics: want %s", line(c.Metrics))
	}
	return wrong
}

// filled returns the input with the method and the sender that its hook implies.
func (in Input) filled(hook abi.Hook) *Input {
	if in.Method == "" && (hook == abi.OnCallRequest || hook == abi.OnCallResponse || hook == abi.OnUpstreamRequest) {
		in.Method = "tools/call"
	}
	switch {
	case in.From != "":
	case hook == abi.OnQuestion && (in.Result != nil || in.Error != nil):
		in.From = "client"
	case hook == abi.OnQuestion || hook == abi.OnNotification:
		in.From = "server"
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
func Subscriptions(g guest.Engine) []Subscription {
	var all []Subscription
	for _, s := range g.Subscriptions() {
		one := Subscription{
			Hook: s.Hook.String(), Methods: s.Methods, Tools: s.Tools, Backends: s.Backends, Headers: s.Headers, Pointers: s.Pointers,
			VariesBy: [...]string{"", "tenant", "groups", "subject"}[s.VariesBy], InlineLimit: s.InlineLimit,
			CacheMillis: s.Cache.Milliseconds(), Blocking: s.Blocking, Hold: s.Hold, Claims: s.Claims,
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
