package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/guest/starlark"
	"github.com/weir-edge/weir/wasm"
)

// Program is what is asked: a module, or a script.
type Program struct {
	Digest string // SHA-256, in hexadecimal
	Size   int    // bytes

	module   *wasm.Module
	compiler *wasm.Compiler    // of the module, where it is the program's own
	script   *starlark.Program // nil for a module
}

// ofModule is the program of a module, which the caller closes.
func ofModule(m *wasm.Module) *Program { return &Program{Digest: m.Digest, Size: m.Size, module: m} }

// IsScript says whether a file is a script by its name.
func IsScript(file string) bool { return strings.EqualFold(filepath.Ext(file), ".star") }

// ScriptOf returns the file of the script in a directory: that with the name of the project,
// "" for none, or the only one there is.
func ScriptOf(dir, name string) (string, error) {
	file := filepath.Join(dir, name+".star")
	if _, err := os.Stat(file); name != "" && err == nil {
		return file, nil
	}
	found, err := filepath.Glob(filepath.Join(escaped(dir), "*.star"))
	if err != nil || len(found) != 1 {
		return "", errors.Join(err, fmt.Errorf("%s: %d scripts: name one file, or have one that is called as the project", dir, len(found)))
	}
	return found[0], nil
}

// Load compiles the module or script of a file as an edge does. The caller closes the program.
// cache is a directory for machine code, "" for none.
func Load(ctx context.Context, file, cache string) (*Program, error) {
	if !IsScript(file) {
		c, m, err := Compile(ctx, file, cache)
		if err != nil {
			return nil, err
		}
		p := ofModule(m)
		p.compiler = c
		return p, nil
	}
	text, err := edge.ReadFile(file, starlark.MaxText)
	if err != nil {
		return nil, err
	}
	s, err := starlark.Compile(file, text)
	if err != nil {
		return nil, err
	}
	return &Program{Digest: s.Digest, Size: len(text), script: s}, nil
}

// kind says what the program is, for people.
func (p *Program) kind() string {
	if p.script != nil {
		return "script"
	}
	return "module"
}

// Close gives up the program, after all that it opened.
func (p *Program) Close() {
	if p.compiler == nil {
		return
	}
	p.module.Close()
	_ = p.compiler.Close() // its module is closed
}

// open starts the program.
func (p *Program) open(ctx context.Context, b wasm.Binding) (guest.Engine, error) {
	if p.script == nil {
		g, err := p.module.Open(ctx, b)
		if err != nil {
			return nil, err // not a *wasm.Guest that is nil
		}
		return g, nil
	}
	conforms := func(schema []byte) error { return guest.ConfigConforms(schema, string(b.Config)) }
	g, err := p.script.Open(ctx, starlark.Options{Binding: b, Conforms: conforms})
	if err != nil {
		return nil, err // likewise
	}
	return g, nil
}

// limits are those given, with what programs of this kind get where they say nothing.
func (p *Program) limits(l wasm.Limits) (wasm.Limits, error) {
	if p.script == nil {
		return p.module.Defaults(l)
	}
	if l.Memory != 0 {
		return l, errors.New("limits.memory: a script has no memory of its own to set")
	}
	return starlark.Defaults(l), nil
}

// grants are those that the program does not open without.
func (p *Program) grants() []string {
	if p.script == nil {
		return p.module.Grants()
	}
	var all []string
	for _, n := range p.script.Needs {
		if !slices.Contains(all, n.Grant) {
			all = append(all, n.Grant)
		}
	}
	return all
}

// memory is that of an instance, in bytes; 0 for a script, which has none.
func memory(g guest.Engine) uint64 {
	if g, ok := g.(*wasm.Guest); ok {
		return g.Memory()
	}
	return 0
}
