package scripting

import (
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/lib/math"
	"go.starlark.net/starlark"
)

// builtins puts into a scope what a program uses of this package.
func builtins(scope starlark.StringDict, names *Names) {
	scope["print"] = starlark.NewBuiltin("print", printLine)
	scope["fail"] = starlark.NewBuiltin("fail", fail)
	scope[fnLacking] = starlark.NewBuiltin("operator", func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		return nil, lacking(string(args[0].(starlark.String)))
	})
	for _, name := range names.Ours {
		scope[name] = own(name)
	}
}

func own(name string) starlark.Value {
	switch name {
	case "attempt":
		return starlark.NewBuiltin(name, attempt)
	case "call_tool":
		return starlark.NewBuiltin(name, callTool)
	case "call_tool_result":
		return starlark.NewBuiltin(name, callToolResult)
	case "describe_tool":
		return starlark.NewBuiltin(name, describeTool)
	case "json":
		return jsonModule()
	case "list_tools":
		return starlark.NewBuiltin(name, listTools)
	case "math":
		return math.Module
	case "parallel":
		return starlark.NewBuiltin(name, parallel)
	case "progress":
		return starlark.NewBuiltin(name, progress)
	}
	return starlark.None
}

// toolFunction is a tool as a function.
func toolFunction(t Tool) starlark.Value {
	return starlark.NewBuiltin(t.Name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
		return taskOf(thread).tool(t.Advertised, args, named, false)
	})
}

func callTool(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	name, err := toolName(b, args)
	if err != nil {
		return nil, err
	}
	return taskOf(thread).tool(name, nil, named, false)
}

func callToolResult(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	name, err := toolName(b, args)
	if err != nil {
		return nil, err
	}
	return taskOf(thread).tool(name, nil, named, true)
}

func describeTool(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	name, err := toolName(b, args)
	if err != nil {
		return nil, err
	}
	if len(named) > 0 {
		return nil, fmt.Errorf("%s: unexpected keyword arguments", b.Name())
	}
	return taskOf(thread).asked(KindDescribe, name, nil)
}

func listTools(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if len(args)+len(named) > 0 {
		return nil, fmt.Errorf("%s: unexpected arguments", b.Name())
	}
	return taskOf(thread).asked(KindList, "", nil)
}

// maxToolName is the most bytes of a tool's name.
const maxToolName = 256

// toolName is the one value without a name that call_tool and its kin take.
func toolName(b *starlark.Builtin, args starlark.Tuple) (string, error) {
	if len(args) != 1 {
		return "", fmt.Errorf("%s: got %d positional arguments, want 1: the tool's name", b.Name(), len(args))
	}
	name, ok := starlark.AsString(args[0])
	if !ok {
		return "", fmt.Errorf("%s: the tool's name is %s, want string", b.Name(), args[0].Type())
	}
	if len(name) > maxToolName {
		return "", fmt.Errorf("%s: the tool's name is longer than %d bytes", b.Name(), maxToolName)
	}
	return name, nil
}

// tool calls a tool.
func (t *task) tool(name string, args starlark.Tuple, named []starlark.Tuple, whole bool) (starlark.Value, error) {
	wire, err := encodeCall(args, named, whole)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", name, err)
	}
	return t.asked(KindCall, name, wire)
}

// asked makes a call, and its answer a value.
func (t *task) asked(kind Kind, tool string, args []byte) (starlark.Value, error) {
	answer, err := t.ask(kind, tool, args)
	if err != nil {
		return nil, err
	}
	value, fault, err := decodeAnswer(answer, t.run.meter)
	if err != nil {
		if t.run.final != nil {
			return nil, t.run.final
		}
		return nil, fmt.Errorf("tool %q: %w", tool, err)
	}
	if fault == nil {
		return value, nil
	}
	if fault.Final {
		return nil, t.run.end(&Fault{Message: fault.Message, Code: fault.Code, Cause: fault.Cause})
	}
	return nil, &raised{fault: fault.Fault, tool: tool, data: value}
}

// raised is an error that attempt() catches: of a tool, of a host, or of fail().
type raised struct {
	fault  Fault
	tool   string         // "" for none
	data   starlark.Value // nil for none
	failed bool           // by fail()
}

func (e *raised) Error() string {
	if e.failed {
		return "fail: " + e.fault.Message
	}
	return e.fault.Message
}

// fail is the language's own, with an error that attempt() knows.
func fail(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	text, err := joined(thread, b, args, named)
	if err != nil {
		return nil, err
	}
	return nil, &raised{fault: Fault{Message: text}, failed: true}
}

func printLine(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	text, err := joined(thread, b, args, named)
	if err != nil {
		return nil, err
	}
	taskOf(thread).run.host.Print(text)
	return starlark.None, nil
}

// joined is what print and fail say.
func joined(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (string, error) {
	sep := " "
	if err := starlark.UnpackArgs(b.Name(), nil, named, "sep?", &sep); err != nil {
		return "", err
	}
	r := taskOf(thread).run
	var text strings.Builder
	for i, v := range args {
		if i > 0 {
			text.WriteString(sep)
		}
		s, ok := starlark.AsString(v)
		if !ok {
			if err := r.printable(thread, v); err != nil {
				return "", err
			}
			s = v.String()
		}
		size := text.Len() + len(s)
		if size <= maxValueBytes { // else it is refused
			size = len(sep) + len(s)
		}
		if err := r.work(thread, size, 0); err != nil {
			return "", err
		}
		text.WriteString(s)
	}
	return text.String(), nil
}

func attempt(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var f starlark.Callable
	if err := starlark.UnpackPositionalArgs(b.Name(), args, named, 1, &f); err != nil {
		return nil, err
	}
	r := taskOf(thread).run
	v, err := starlark.Call(thread, f, nil, nil)
	if err == nil {
		return dict("ok", starlark.True, "value", v), nil
	}
	if r.final != nil {
		return nil, r.final
	}
	var e *raised
	if !errors.As(err, &e) {
		return nil, err
	}
	message, child := e.fault.Message, (*inChild)(nil)
	if errors.As(err, &child) {
		message += child.suffix()
	}
	told := dict("message", starlark.String(message), "tool", starlark.None, "code", starlark.None, "data", starlark.None)
	if e.tool != "" {
		_ = told.SetKey(starlark.String("tool"), starlark.String(e.tool))
	}
	if e.fault.Code != 0 {
		_ = told.SetKey(starlark.String("code"), starlark.MakeInt(e.fault.Code))
	}
	if e.data != nil {
		_ = told.SetKey(starlark.String("data"), e.data)
	}
	return dict("ok", starlark.False, "error", told), nil
}

// dict makes a dict of names and values in turn.
func dict(pairs ...any) *starlark.Dict {
	d := starlark.NewDict(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		_ = d.SetKey(starlark.String(pairs[i].(string)), pairs[i+1].(starlark.Value)) // a text hashes, a new dict is not frozen
	}
	return d
}

func parallel(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var list starlark.Iterable
	if err := starlark.UnpackPositionalArgs(b.Name(), args, named, 1, &list); err != nil {
		return nil, err
	}
	if n := starlark.Len(list); n > maxCallables {
		return nil, fmt.Errorf("parallel: %d functions, at most %d", n, maxCallables)
	}
	var callables []starlark.Callable
	for v := range starlark.Elements(list) {
		f, ok := v.(starlark.Callable)
		if !ok {
			return nil, fmt.Errorf("parallel: element %d is %s, want function", len(callables), v.Type())
		}
		callables = append(callables, f)
	}
	return taskOf(thread).parallel(callables)
}

func progress(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		done, total starlark.Float
		message     string
	)
	given := [2]starlark.Value{starlark.MakeInt(0), starlark.MakeInt(0)}
	if err := starlark.UnpackArgs(b.Name(), args, named, "done", &given[0], "total?", &given[1], "message?", &message); err != nil {
		return nil, err
	}
	for i, f := range []*starlark.Float{&done, &total} {
		if given[i] == starlark.None {
			continue
		}
		n, ok := starlark.AsFloat(given[i])
		if !ok || n-n != 0 {
			return nil, fmt.Errorf("progress: %s is %s, want a finite number", [2]string{"done", "total"}[i], given[i].Type())
		}
		*f = starlark.Float(n)
	}
	taskOf(thread).run.host.Progress(float64(done), float64(total), Clean(message))
	return starlark.None, nil
}
