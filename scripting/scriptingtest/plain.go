package scriptingtest

import (
	"strings"

	"go.starlark.net/lib/json"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Result is what a program came to.
type Result struct {
	Value string // JSON text, as the interpreter's own module writes it; "" for an error
	Error string // its message
	Line  int    // of the error
	Logs  []string
	Steps uint64
}

// Plain runs a text in the interpreter alone, with nothing of ours but `print`: as the body
// of a function, in the dialect of scripts.
func Plain(text string, steps uint64) Result {
	var r Result
	fail := func(err error) Result {
		r.Error = err.Error()
		switch e := err.(type) {
		case syntax.Error:
			r.Line = int(e.Pos.Line)
		case *starlark.EvalError:
			for i := range e.CallStack {
				if pos := e.CallStack.At(i).Pos; pos.Filename() == "script.star" {
					r.Line = int(pos.Line)
					break
				}
			}
		}
		return r
	}
	f, err := (&syntax.FileOptions{Set: true, While: true, TopLevelControl: true}).Parse("script.star", text, 0)
	if err != nil {
		return fail(err)
	}
	start := syntax.MakePosition(&f.Path, 1, 1)
	f.Stmts = []syntax.Stmt{&syntax.DefStmt{Def: start, Name: &syntax.Ident{NamePos: start, Name: "__main__"}, Body: f.Stmts}}
	program, err := starlark.FileProgram(f, func(string) bool { return false })
	if err != nil {
		return fail(err)
	}
	thread := &starlark.Thread{Print: func(_ *starlark.Thread, text string) { r.Logs = append(r.Logs, strings.Split(text, "\n")...) }}
	thread.SetMaxExecutionSteps(steps)
	globals, err := program.Init(thread, nil)
	var v starlark.Value
	if err == nil {
		v, err = starlark.Call(thread, globals["__main__"], nil, nil)
	}
	r.Steps = thread.Steps
	if err == nil {
		v, err = starlark.Call(&starlark.Thread{}, json.Module.Members["encode"], starlark.Tuple{v}, nil)
	}
	if err != nil {
		return fail(err)
	}
	r.Value, _ = starlark.AsString(v)
	return r
}
