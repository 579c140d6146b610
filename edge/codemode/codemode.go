// Package codemode is the tool execute_tool_script: an agent sends a script that calls
// tools of the server, and gets what the script makes of their answers.
//
// A text is compiled in this process, and runs in the Engine. What it calls comes back here
// and walks the hallway as any call of the client does.
package codemode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/progress"
	"github.com/weir-edge/weir/scripting"
)

// Name is the name of the tool.
const Name = catalog.Script

// file is the name of a script in positions.
const file = "script.star"

// Engine runs a script for a holder. An error of kind Overload says that there is no room for one more,
// or not yet; any other is a defect of the engine. What a script does wrong is in the
// outcome.
type Engine func(ctx context.Context, holder string, r *scripting.Run) (*scripting.Outcome, error)

// What an Engine that cannot take a script says, in an error of kind Overload.
var (
	ErrBusy     = errors.New("too many scripts at a time")
	ErrNotReady = errors.New("the interpreter of scripts is not ready yet")
)

// Spec describes the code mode of one server: spec.config.codeMode, with its defaults
// filled in.
type Spec struct {
	Parallel int           // calls of one script at once
	Steps    int64         // of one script
	PerCall  time.Duration // for one call
}

// Options are what the tool works with.
type Options struct {
	Spec
	Process *Process
	Cache   edge.Cache // of compiled scripts and of what clients see

	// Catalog returns the catalog for an identity, for calls; see catalog.Book.
	Catalog func(context.Context, *edge.Identity) (*catalog.Catalog, error)

	// Missing names the backends whose tools are not known, since they do not answer.
	Missing func() []string

	Counters *Counters
}

// Tool is the tool of one server. It is safe for concurrent use.
type Tool struct{ o Options }

// New returns the tool.
func New(o Options) *Tool { return &Tool{o: o} }

// Target is what policies may know of the tool besides its name: its annotations.
func Target() edge.Target {
	yes, no := true, false
	return edge.Target{ReadOnly: &no, Destructive: &yes, Idempotent: &no, OpenWorld: &yes}
}

// Run runs the script of a call of the tool. It is a route.LocalTool.
func (t *Tool) Run(ctx context.Context, x *edge.Exchange, arguments []byte, call func(edge.Client) edge.Caller) (*edge.Response, error) {
	// 1. What is to run. A wrong argument is told to the model, which can mend its call.
	if len(arguments) > 0 && arguments[0] != '{' && arguments[0] != 'n' {
		return nil, edge.Errorf(edge.Params, "script", "params.arguments is not an object")
	}
	q, why := read(arguments)
	if why != "" {
		return t.misused(x, why)
	}
	// 2. The tools that the client may see, which are functions to the script.
	seen, err := t.seen(ctx, x)
	if err != nil {
		return nil, err
	}
	if why := q.taken(seen); why != "" {
		return t.misused(x, why)
	}
	// 3. The program of the text.
	holder := edge.Holder(x.Identity, x.Head.Remote)
	p, err := t.program(ctx, holder, q, seen)
	var fault *scripting.Error
	switch {
	case errors.As(err, &fault):
		fault = t.explained(fault)
		t.o.Counters.ended(&scripting.Outcome{Error: fault}, 0)
		return t.answer(x, &scripting.Outcome{Error: fault})
	case err != nil:
		t.o.Counters.refused(err)
		return nil, err
	}
	// 4. Its run. Of what it calls, nothing goes on when it ends.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	r := &run{tool: t, x: x, seen: seen, call: call, outer: progress.NewOuter(x, maxCalls)}
	var runs int64 // 1 once it has a place
	out, err := t.o.Process.run(ctx, holder, &scripting.Run{
		Program: p, Data: q.data, Call: r.answer, Progress: r.outer.Progress,
		Began: func() {
			runs = 1
			t.o.Counters.running.Add(runs)
		},
		Limits: scripting.Limits{Steps: uint64(t.o.Steps), Parallel: t.o.Parallel, Calls: maxCalls, PerCall: t.o.PerCall},
	})
	t.o.Counters.running.Add(-runs)
	took := time.Since(began)
	r.outer.End()
	// 5. What became of it.
	switch {
	case err == nil && ctx.Err() != nil, err != nil && ctx.Err() != nil:
		t.o.Counters.cancelled(out, took)
		return nil, edge.Errorf(edge.Gone, "script", "%w", context.Cause(ctx))
	case err != nil:
		t.o.Counters.refused(err)
		return nil, err
	}
	t.o.Counters.ended(out, took)
	return t.answer(x, out)
}

// explained says of a name that is not there that it may be a tool which is not known.
func (t *Tool) explained(fault *scripting.Error) *scripting.Error {
	missing := t.o.Missing()
	if len(missing) == 0 || !strings.HasPrefix(fault.Message, "undefined: ") {
		return fault
	}
	e := *fault
	e.Message += fmt.Sprintf("; what the backends %s have is not known: they do not answer", strings.Join(missing, ", "))
	return &e
}

// maxCalls is how many calls a script may make, with the steps of the composite tools that it
// calls.
const maxCalls = 1000

// misused answers a call with a wrong argument.
func (t *Tool) misused(x *edge.Exchange, why string) (*edge.Response, error) {
	t.o.Counters.misused.Add(1)
	return reply(x, appendText(nil, "invalid arguments: "+why), nil, true)
}

// program returns the program of a script, compiled for what its client sees.
func (t *Tool) program(ctx context.Context, holder string, q *request, seen *sight) (*scripting.Program, error) {
	h := sha256.New()
	h.Write([]byte("starlark 1\x00"))
	h.Write(seen.key[:])
	for _, k := range q.keys {
		h.Write([]byte(k + "\x00"))
	}
	h.Write([]byte{0})
	h.Write([]byte(q.script))
	key, now := edge.Key(h.Sum(nil)), time.Now()
	if p, ok := t.o.Cache.Get(key, now).(*scripting.Program); ok {
		return p, nil
	}
	p, err := t.o.Process.compile(ctx, holder, q.script, scripting.Scope{Tool: seen.function, Near: seen.functions, Data: q.keys})
	if err != nil {
		return nil, err
	}
	t.o.Cache.Put(key, p, int64(4<<10+16*len(q.script)), time.Time{})
	return p, nil
}

// Digest returns the SHA-256 of the script that an exchange asks to have run, in
// hexadecimal; "" where it asks for none.
func Digest(x *edge.Exchange) string {
	t := x.Target
	if t == nil || t.Backend != "" || t.Thing != edge.Tool || t.Name != Name || x.Request.Method != "tools/call" {
		return ""
	}
	script, ok := text(mcp.Lookup(x.Request.Get("arguments").Of(x.Request.Raw), "script"))
	if !ok {
		return ""
	}
	sum := sha256.Sum256([]byte(script))
	return hex.EncodeToString(sum[:])
}

// text returns what JSON text of a string says.
func text(value []byte) (string, bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false
	}
	return mcp.String(value), true
}

// quoted appends a value as JSON text.
func quoted(dst []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return append(dst, "null"...)
	}
	return append(dst, text...)
}
