// Package starlark runs filters that are written in Starlark: one text, whose functions are
// called about messages as the functions of a guest in WebAssembly are. It takes the records
// of the ABI (sdk/abi) and returns them, so that whoever asks a filter need not know in what
// language it is written.
//
// Compile judges a text without running it. Open runs it once, which tells what it subscribes
// to, and freezes what it made. Calls of its functions run at once, each on a thread of its
// own, within bounds of steps, time and memory (package scripting, trusted engine).
package starlark

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// MaxText is the most that a text may have, in bytes.
const MaxText = scripting.MaxText

// Program is a text that was compiled. It is immutable.
type Program struct {
	Digest string      // SHA-256 of the text, in hexadecimal
	Needs  []wasm.Need // builtins that stand behind grants, in the order of their first use

	file     string
	compiled *scripting.Program
	hooks    [abi.Hooks]function
}

// function is what the text says of the function for a hook.
type function struct {
	there  bool
	fields uint64 // a bit for each field of the input that it reads; 0 where that cannot be said
}

// Functions are the names of the hooks that the text has functions for.
func (p *Program) Functions() []string {
	names := []string{}
	for h, f := range p.hooks {
		if f.there {
			names = append(names, abi.Hook(h).String())
		}
	}
	return names
}

// Fault is something that is wrong with a text.
type Fault struct {
	File         string
	Line, Column int // from 1; 0 where there is no place
	Message      string
	Config       bool // the configuration is at fault, not the text
}

// Error is the fault with its place in front: `filter.star:3:12: undefined: foo`.
func (f *Fault) Error() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
}

// Faults is everything that is wrong with a text, in its order.
type Faults []*Fault

// Error returns all of them, one a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Compile compiles a text, and judges what can be judged without running it. file stands for
// it in errors. The error is Faults.
func Compile(file string, text []byte) (*Program, error) {
	sum := sha256.Sum256(text)
	p := &Program{Digest: hex.EncodeToString(sum[:]), file: file}
	tree, e := scripting.Parse(file, string(text))
	if e != nil {
		return nil, Faults{p.fault(e)}
	}
	l := &linter{p: p}
	l.file(tree)
	compiled, err := scripting.Compile(file, string(text), scripting.Scope{Whole: true, Extra: builtins(), Data: []string{"config", "filter_name"}})
	if err != nil {
		e, _ := err.(*scripting.Error)
		l.faults = append(l.faults, p.fault(e))
	}
	if len(l.faults) > 0 {
		return nil, l.sorted()
	}
	p.compiled = compiled
	for _, name := range compiled.Names().Extra {
		if grant := grantOf(name); grant != "" {
			p.Needs = append(p.Needs, wasm.Need{Function: name, Grant: grant})
		}
	}
	return p, nil
}

func (p *Program) fault(e *scripting.Error) *Fault {
	return &Fault{File: p.file, Line: e.Line, Column: e.Column, Message: e.Message}
}
