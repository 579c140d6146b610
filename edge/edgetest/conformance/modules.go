package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// compiled is a program that is built twice, natively and as a module of WASI preview 1. The
// suite has to find the same of both.
type compiled struct {
	name   string
	of     []cell // what is measured with it
	native func(ctx context.Context, h *harness) (file string, err error)
	module func(ctx context.Context, h *harness) (file string, err error)
}

// rustSource is the crate of the server in Rust, as seen from the root of the work tree. It
// speaks 2025-11-25 alone.
const rustSource = "edge/edgetest/conformance/testdata/everything"

// compiledServers are the conformance server of the go-sdk, which speaks both eras and is asked
// for the modern one first, and one in Rust.
var compiledServers = []compiled{
	{
		name: "Go",
		of:   []cell{{legacySet, peers.Modern}, {modernSet, peers.Modern}},
		native: func(ctx context.Context, h *harness) (string, error) {
			out := filepath.Join(h.dir, "go")
			return out, h.buildGo(ctx, nil, out)
		},
		module: func(ctx context.Context, h *harness) (string, error) {
			out := filepath.Join(h.dir, "go.wasm")
			return out, h.buildGo(ctx, []string{"GOOS=wasip1", "GOARCH=wasm"}, out)
		},
	},
	{
		name: "Rust",
		of:   []cell{{legacySet, peers.Legacy}},
		native: func(ctx context.Context, h *harness) (string, error) {
			out := filepath.Join(h.dir, "rust")
			err := h.build(ctx, nil, "cargo", "build", "--release", "--quiet", "--locked", "--manifest-path", filepath.Join(rustSource, "Cargo.toml"), "--target-dir", out)
			return filepath.Join(out, "release", "everything"), err
		},
		module: func(ctx context.Context, h *harness) (string, error) {
			out := filepath.Join(h.dir, "rust.wasm")
			return out, h.build(ctx, nil, h.weir, "plugin", "build", "--server", rustSource, "-o", out)
		},
	},
}

// compiledNamed is the one of a name; false where there is none.
func compiledNamed(name string) (compiled, bool) {
	i := slices.IndexFunc(compiledServers, func(c compiled) bool { return c.name == name })
	if i < 0 {
		return compiled{}, false
	}
	return compiledServers[i], true
}

// listening is where the server of the go-sdk listens when it is told to. A module with it
// imports sockets, which there are none of.
const listening = "http.ListenAndServe(*httpAddr, handler)"

// buildGo builds the server of the go-sdk without what listens.
func (h *harness) buildGo(ctx context.Context, env []string, out string) error {
	cmd := peers.Command(ctx, "go", "list", "-f", "{{.Dir}}", peers.GoServerPackage)
	cmd.Dir = h.Root
	dir, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "main.go"))
	if err != nil {
		return err
	}
	if strings.Count(string(text), listening) != 1 {
		return fmt.Errorf("%s: there is not one %s", peers.GoServerPackage, listening)
	}
	source := filepath.Join(h.dir, "main.go")
	if err := os.WriteFile(source, []byte(strings.Replace(string(text), listening, "handler", 1)), 0o600); err != nil {
		return err
	}
	return h.build(ctx, env, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, source)
}

// build runs a compiler in the root of the work tree.
func (h *harness) build(ctx context.Context, env []string, name string, args ...string) error {
	cmd := peers.Command(ctx, name, args...)
	cmd.Dir, cmd.Env = h.Root, append(cmd.Env, env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(said)))
	}
	return nil
}

// modules measures a cell with a program that the edge starts natively, and then with the same
// one as a module.
func (h *harness) modules(ctx context.Context, r *run) error {
	c, _ := compiledNamed(r.leg)
	if err := h.scenariosOf(ctx, r); err != nil {
		return err
	}
	for _, form := range []struct {
		scheme, name string
		build        func(context.Context, *harness) (string, error)
		into         *results
	}{{"exec", "natively", c.native, &r.direct}, {"wasm", "module", c.module, &r.edge}} {
		file, err := form.build(ctx, h)
		if err != nil {
			return err
		}
		dir := filepath.Join(h.output, fmt.Sprintf("%s-%s-%s-%s", r.cell.set, r.cell.backend, c.name, form.name))
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		edge, url, err := h.startLocal(ctx, h.weir, form.scheme, file, "")
		if err != nil {
			return err
		}
		// The machine code of a module is made once, which takes longer than a scenario may.
		err = answers(ctx, url, h.weir)
		if err == nil {
			*form.into, err = h.suite.servers(ctx, r.cell.set, url, dir, r.scenarios)
		}
		if err != nil {
			return fmt.Errorf("%s, %s: %w: %s", c.name, form.name, err, edge.Said())
		}
		h.stop(edge, dir)
	}
	return nil
}

// answers waits until the tools behind an edge are listed.
func answers(ctx context.Context, url, weir string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		said, err := peers.Command(ctx, weir, "tools", url).CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the tools are not listed: %w: %s", err, strings.TrimSpace(string(said)))
		case <-time.After(time.Second):
		}
	}
}
