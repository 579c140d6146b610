package plugin

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/wasm"
)

// Report is what inspect finds out about a module or a script.
type Report struct {
	File          string         `json:"file"`
	Digest        string         `json:"sha256"`
	Size          int            `json:"size"`   // bytes
	Memory        uint64         `json:"memory"` // bytes of one instance after it started; what it begins with when it did not; 0 of a script
	Functions     []string       `json:"functions"`
	Imports       []string       `json:"imports"` // host functions; of a script those behind grants
	Grants        []string       `json:"grants"`  // that it does not open without
	Manifest      *Manifest      `json:"manifest,omitempty"`
	Started       bool           `json:"started"`
	Refused       string         `json:"refused,omitempty"` // why it did not start
	Subscriptions []Subscription `json:"subscriptions"`
}

// Inspect looks into a module or a script. It starts it with a configuration, "" for none,
// and everything granted that it asks for: without that, what it subscribes to
// cannot be known.
func Inspect(ctx context.Context, file, cache, config string) (*Report, error) {
	p, err := Load(ctx, file, cache)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	r := &Report{File: file, Digest: p.Digest, Size: p.Size, Grants: p.grants(), Subscriptions: []Subscription{}, Functions: []string{}}
	if err := r.look(p); err != nil {
		return nil, err
	}
	if r.Imports == nil {
		r.Imports = []string{}
	}
	if r.Grants == nil {
		r.Grants = []string{}
	}
	if r.Manifest != nil {
		r.Grants = slices.DeleteFunc(r.Grants, func(g string) bool { return slices.Contains(r.Manifest.OptionalGrants, g) })
	}
	store := kv.Memory(kv.Limits{})
	defer store.Close()
	b := Lenient("inspect", []byte(config), store)
	if config == "" {
		b.Config = nil
	}
	g, err := p.open(ctx, b)
	if err != nil {
		r.Refused = err.Error()
		return r, nil
	}
	defer g.Close()
	r.Started, r.Subscriptions, r.Memory = true, Subscriptions(g), memory(g)
	return r, nil
}

// look notes what stands in a program.
func (r *Report) look(p *Program) error {
	if p.script != nil {
		r.Functions = p.script.Functions()
		for _, n := range p.script.Needs {
			r.Imports = append(r.Imports, n.Function)
		}
		return nil
	}
	r.Memory, r.Imports = uint64(p.module.Minimum), p.module.Imports
	for _, h := range p.module.Hooks {
		r.Functions = append(r.Functions, h.String())
	}
	var err error
	r.Manifest, err = manifestIn(r.File)
	return err
}

// Lenient is a place for a guest in which everything is granted.
func Lenient(name string, config json.RawMessage, store edge.Store) wasm.Binding {
	return wasm.Binding{
		Name: name, Config: config, Grants: grantNames, Store: store, Log: slog.New(slog.DiscardHandler),
		Keys: map[string]edge.Secret{}, Limits: wasm.Limits{Instances: 1, Timeout: time.Second},
		Metric: func(string, bool, int64) {},
	}
}
