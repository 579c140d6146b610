package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// Report is what inspect finds out about a module.
type Report struct {
	File          string         `json:"file"`
	Digest        string         `json:"sha256"`
	Size          int            `json:"size"`   // bytes
	Memory        uint64         `json:"memory"` // bytes of one instance after it started; what it begins with when it did not
	Functions     []string       `json:"functions"`
	Imports       []string       `json:"imports"`
	Grants        []string       `json:"grants"` // that it does not open without
	Manifest      *Manifest      `json:"manifest,omitempty"`
	Started       bool           `json:"started"`
	Refused       string         `json:"refused,omitempty"` // why it did not start
	Subscriptions []Subscription `json:"subscriptions"`
}

// Inspect looks into a module. It starts it with a configuration, "" for none,
// and everything granted that it asks for: without that, what it subscribes to
// cannot be known.
func Inspect(ctx context.Context, file, cache, config string) (*Report, error) {
	binary, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c, m, err := Compile(ctx, file, cache)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer m.Close()
	r := &Report{
		File: file, Digest: m.Digest, Size: m.Size, Memory: uint64(m.Minimum), Imports: m.Imports, Grants: m.Grants(),
		Subscriptions: []Subscription{}, Functions: []string{},
	}
	for _, h := range m.Hooks {
		r.Functions = append(r.Functions, h.String())
	}
	if r.Imports == nil {
		r.Imports = []string{}
	}
	if r.Grants == nil {
		r.Grants = []string{}
	}
	if r.Manifest, err = ManifestOf(binary); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.Manifest != nil {
		r.Grants = slices.DeleteFunc(r.Grants, func(g string) bool { return contains(r.Manifest.OptionalGrants, g) })
	}
	store := kv.Memory(kv.Limits{})
	defer store.Close()
	b := Lenient("inspect", []byte(config), store)
	if config == "" {
		b.Config = nil
	}
	g, err := m.Open(ctx, b)
	if err != nil {
		r.Refused = err.Error()
		return r, nil
	}
	defer g.Close()
	r.Started, r.Subscriptions, r.Memory = true, Subscriptions(g), g.Memory()
	return r, nil
}

// Lenient is a place for a guest in which everything is granted.
func Lenient(name string, config json.RawMessage, store edge.Store) wasm.Binding {
	return wasm.Binding{
		Name: name, Config: config, Grants: grantNames, Store: store, Log: slog.New(slog.DiscardHandler),
		Keys: map[string]edge.Secret{}, Limits: wasm.Limits{Instances: 1, Timeout: time.Second},
		Metric: func(string, bool, int64) {},
	}
}

// Figures are what one case of fixtures costs.
type Figures struct {
	Case   string        `json:"case"`
	Hook   string        `json:"hook"`
	Calls  int           `json:"calls"`
	Time   time.Duration `json:"nanoseconds"` // of one call, the least of several rounds
	Fuel   uint64        `json:"fuel"`        // of one call
	Memory uint64        `json:"memory"`      // bytes of the instance after all calls
	Bytes  int           `json:"bytes"`       // of the input
}

// rounds is how often Measure measures.
const rounds = 5

// Measure asks a module each case of fixtures again and again, for about the
// time given, and returns what it costs. Cases that expect an error, or not to
// be asked, are left out.
func Measure(ctx context.Context, m *wasm.Module, f *Fixtures, each time.Duration) ([]Figures, error) {
	var all []Figures
	for i := range f.Cases {
		c := &f.Cases[i]
		if c.Hook == "" || c.Error != "" {
			continue
		}
		one, err := c.measure(ctx, m, each, f.optional)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		if one != nil {
			all = append(all, *one)
		}
	}
	return all, nil
}

// measure measures a case of a guest of its own; nil for one that it is not
// asked.
func (c *Case) measure(ctx context.Context, m *wasm.Module, each time.Duration, optional []string) (*Figures, error) {
	h := c.start(ctx, m, optional)
	defer h.close()
	if h.err != nil {
		return nil, h.err
	}
	if err := h.before(ctx, c); err != nil {
		return nil, err
	}
	hook, record, matched := h.question(c)
	if !matched {
		return nil, nil
	}
	h.others = &c.Others
	one, err := measure(ctx, h.guest, hook, h.session(c), record, each)
	one.Case, one.Hook = c.Name, c.Hook
	return &one, err
}

func measure(ctx context.Context, g *wasm.Guest, hook abi.Hook, session string, in []byte, each time.Duration) (Figures, error) {
	f := Figures{Bytes: len(in)}
	out := make([]byte, 0, 64<<10)
	calls := func(n int) (time.Duration, error) {
		start := time.Now()
		for range n {
			if _, err := g.Call(ctx, hook, session, wasm.Sender{}, in, out); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
	// 1. How many calls fill a round.
	n := 1
	for {
		took, err := calls(n)
		if err != nil {
			return f, err
		}
		if took >= each/rounds/10 || n >= 1<<20 {
			n = max(int(int64(n)*int64(each/rounds)/max(int64(took), 1)), 1)
			break
		}
		n *= 2
	}
	// 2. The rounds.
	fuel, done := g.Stats().Fuel, 0
	for range rounds {
		took, err := calls(n)
		if err != nil {
			return f, err
		}
		done += n
		if one := took / time.Duration(n); f.Time == 0 || one < f.Time {
			f.Time = one
		}
	}
	f.Calls, f.Fuel, f.Memory = done, (g.Stats().Fuel-fuel)/uint64(done), g.Memory()
	return f, nil
}
