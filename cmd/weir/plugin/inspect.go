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
