package codemode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/progress"
	"github.com/weir-edge/weir/scripting"
)

// Bounds of a call.
const (
	maxArguments = 1 << 20  // bytes
	maxResult    = 4 << 20  // bytes
	maxFault     = 2 << 10  // bytes of what a tool says of its failure
	maxFaultData = 64 << 10 // bytes; longer data of an error is left out
	maxMeant     = 20       // unknown names of a run for which a likely one is looked for: that goes through all tools
)

// run is one run of a script.
type run struct {
	tool  *Tool
	x     *edge.Exchange // the client's call of the tool
	seen  *sight
	call  func(edge.Client) edge.Caller
	outer *progress.Outer
	meant atomic.Int64 // unknown names
}

// answer makes a call for the script. It is the Call of a scripting.Run.
func (r *run) answer(ctx context.Context, c *scripting.Call) scripting.Answer {
	if !r.outer.Spend() {
		return tooMany()
	}
	switch c.Kind {
	case scripting.KindList:
		return scripting.Answer{Value: quoted(nil, slices.Concat([]string{}, r.seen.names))}
	case scripting.KindDescribe:
		return r.describe(c.Tool)
	}
	id, began := r.outer.NextID(), time.Now()
	a := r.ask(r.outer.Within(ctx, id), c)
	r.outer.Called(progress.Call{ID: id, Tool: c.Tool, Attempt: 1, Outcome: outcome(a.Error), Took: time.Since(began)})
	if r.outer.Spent() { // in the steps of a composite tool
		return tooMany()
	}
	return a
}

// tooMany ends a script that makes too many calls.
func tooMany() scripting.Answer {
	return scripting.Answer{Error: &scripting.Fault{Message: fmt.Sprintf("more than %d tool calls", maxCalls), Final: true, Cause: scripting.Budget}}
}

// outcome is what became of a call.
func outcome(f *scripting.Fault) progress.Outcome {
	switch {
	case f == nil:
		return progress.OK
	case f.Final:
		return progress.Cancelled
	}
	return progress.OutcomeOf(f.Code)
}

// describe tells what a tool is.
func (r *run) describe(name string) scripting.Answer {
	definition := r.seen.tools[name]
	if definition == nil {
		return scripting.Answer{Error: r.unknown(name)}
	}
	out := append(mcp.AppendString([]byte(`{"name":`), name), '}')
	var set []mcp.Member
	for _, member := range []string{"title", "description", "inputSchema", "outputSchema", "annotations"} {
		if v := mcp.Lookup(definition, member); v != nil {
			set = append(set, mcp.Raw(member, v))
		}
	}
	return scripting.Answer{Value: mcp.Change(out, nil, set...)}
}

// ask calls a tool as the client would.
func (r *run) ask(ctx context.Context, c *scripting.Call) scripting.Answer {
	if c.Tool == Name {
		return failing(c.Tool, 0, "a script cannot run another")
	}
	arguments, why := r.named(c)
	switch {
	case why != "":
		return failing(c.Tool, mcp.CodeInvalidParams, "%s", why)
	case len(arguments) > maxArguments:
		return failing(c.Tool, mcp.CodeInvalidParams, "arguments longer than %d bytes", maxArguments)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &mute{stop: cancel}
	result, failure := r.call(out)(ctx, r.x, c.Tool, arguments)
	switch {
	case out.asked.Load() || asks(r.x, result, failure):
		return scripting.Answer{Error: &scripting.Fault{Message: "tool " + name(c.Tool) + " asks the user, which a script cannot: call it directly"}}
	case context.Cause(ctx) == context.DeadlineExceeded: // the engine holds the call to its time; that of the run has another cause
		return failing(c.Tool, 504, "timed out after %s", scripting.Seconds(r.tool.o.PerCall))
	case ctx.Err() != nil:
		return scripting.Answer{Error: &scripting.Fault{Message: "cancelled", Final: true, Cause: scripting.Cancelled}}
	case failure != nil:
		return r.failed(c.Tool, failure)
	}
	return valueOf(c.Tool, result, c.Whole)
}

// mute is the way back of a call of a script, where nobody hears and nobody answers.
type mute struct {
	edge.NoClient
	asked atomic.Bool
	stop  func() // ends the call
}

// Ask ends the call, which cannot go on without an answer.
func (m *mute) Ask(ctx context.Context, questions map[string]edge.Question) (map[string]edge.Answer, error) {
	m.Unanswered()
	return m.NoClient.Ask(ctx, questions)
}

// Unanswered is Ask where the client has said that it cannot be asked.
func (m *mute) Unanswered() {
	m.asked.Store(true)
	m.stop()
}

// asks reports whether an answer asks the client for something first.
func asks(x *edge.Exchange, result, failure []byte) bool {
	if failure != nil {
		code, _ := strconv.Atoi(string(mcp.Lookup(failure, "code")))
		return code == mcp.CodeMissingCapability || x.Era == mcp.Legacy && code == mcp.CodeURLElicitation
	}
	return x.Era == mcp.Modern && mcp.String(mcp.Lookup(result, "resultType")) == "input_required"
}

// failing is the answer for a call that failed.
func failing(tool string, code int, format string, args ...any) scripting.Answer {
	return scripting.Answer{Error: &scripting.Fault{Message: fmt.Sprintf("tool %s: ", name(tool)) + fmt.Sprintf(format, args...), Code: code}}
}

// name is the name of a tool in messages.
func name(tool string) string { return strconv.Quote(edge.Brief(tool)) }

// unknown is the error for a tool that the client does not see. Where policies decide what
// that is, it does not tell whether there is one.
func (r *run) unknown(tool string) *scripting.Fault {
	if r.x.View != nil {
		return failing(tool, 403, "%s", denied).Error
	}
	meant := ""
	if r.seen.tools[tool] == nil && r.meant.Add(1) <= maxMeant { // else a reload took it
		meant = r.seen.meant(tool)
	}
	return failing(tool, mcp.CodeInvalidParams, "not found%s", meant).Error
}

const denied = "denied by authorization policy"

// failed makes an error of that of a call, JSON text.
func (r *run) failed(tool string, failure []byte) scripting.Answer {
	code, _ := strconv.Atoi(string(mcp.Lookup(failure, "code")))
	message, data := mcp.String(mcp.Lookup(failure, "message")), mcp.Lookup(failure, "data")
	after := string(mcp.Lookup(data, "retryAfterSeconds"))
	_, known := r.seen.tools[tool]
	var a scripting.Answer
	switch {
	case code == mcp.CodeInvalidParams && (!known || message == fmt.Sprintf("tool %s not found", edge.Printable(strconv.Quote(tool)))):
		a.Error = r.unknown(tool)
	case code == 429 && after != "":
		a = failing(tool, code, "rate limit exceeded, retry after %ss", edge.Brief(after))
	default:
		a = failing(tool, code, "%s", told(message))
	}
	if len(data) <= maxFaultData {
		a.Error.Data = data
	}
	return a
}

// told is what a tool says of its failure, as far as others may have to read it.
func told(s string) string { return edge.Clean(edge.Cut(s, maxFault)) }

// valueOf makes a value of the result of a tool, JSON text.
func valueOf(tool string, result []byte, whole bool) scripting.Answer {
	if len(result) > maxResult {
		return failing(tool, 0, "its result is longer than %d bytes", maxResult)
	}
	if kind := mcp.String(mcp.Lookup(result, "resultType")); kind != "" && kind != "complete" {
		return failing(tool, 0, "its answer is a %s, which a script cannot wait for: call it directly", edge.Brief(kind))
	}
	if whole {
		return scripting.Answer{Value: result}
	}
	content := mcp.Elements(mcp.Lookup(result, "content"))
	first, worded := firstText(content)
	if string(mcp.Lookup(result, "isError")) == "true" {
		if !worded || first == "" {
			first = "it reports a failure without a word"
		}
		return failing(tool, 0, "%s", told(first))
	}
	if structured := mcp.Lookup(result, "structuredContent"); structured != nil {
		return scripting.Answer{Value: lone(structured)}
	}
	switch {
	case worded && json.Valid([]byte(first)):
		return scripting.Answer{Value: []byte(first)}
	case worded:
		return scripting.Answer{Value: mcp.Quote(first)}
	case len(content) == 0:
		return scripting.Answer{Value: []byte("null")}
	}
	return scripting.Answer{Value: append(append([]byte{'['}, bytes.Join(content, []byte{','})...), ']')}
}

// lone returns v of {"result": v}, and any other value as it is.
func lone(structured []byte) []byte {
	if all := mcp.Members(structured); len(all) == 1 && string(mcp.Unquote(all[0].Name)) == "result" {
		return all[0].Value
	}
	return structured
}

// firstText returns the first text among the content of a result.
func firstText(content [][]byte) (string, bool) {
	for _, c := range content {
		if mcp.String(mcp.Lookup(c, "type")) == "text" {
			return mcp.String(mcp.Lookup(c, "text")), true
		}
	}
	return "", false
}

// named returns the arguments of a call, JSON text of an object, with names for the values
// that the script gave without. why says what is wrong with them.
func (r *run) named(c *scripting.Call) (arguments []byte, why string) {
	if len(c.Positional) == 0 {
		if len(c.Arguments) == 0 {
			return []byte("{}"), ""
		}
		return c.Arguments, ""
	}
	definition := r.seen.tools[c.Tool]
	if definition == nil {
		return nil, "values need names here: name(a=1)"
	}
	all := parametersOf(definition)
	if len(c.Positional) > len(all) {
		return nil, fmt.Sprintf("%s without names, and it takes %d%s", edge.Count(len(c.Positional), "value"), len(all), listing(all))
	}
	given, names := mcp.Members(c.Arguments), map[string]bool{}
	for _, m := range given {
		names[string(mcp.Unquote(m.Name))] = true
	}
	out := []byte{'{'}
	for i, v := range c.Positional {
		if names[all[i].name] {
			return nil, fmt.Sprintf("%q is given twice%s", edge.Brief(all[i].name), listing(all))
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(mcp.AppendString(out, all[i].name), ':'), v...)
	}
	for _, m := range given {
		out = append(append(append(append(out, ',', '"'), m.Name...), '"', ':'), m.Value...)
	}
	return append(out, '}'), ""
}

// listing names parameters at the end of a message.
func listing(all []parameter) string {
	if len(all) == 0 {
		return ""
	}
	const most = 20
	var names []string
	for _, p := range all[:min(most, len(all))] {
		names = append(names, edge.Brief(p.name))
	}
	if len(all) > most {
		names = append(names, "…")
	}
	return ": its parameters are " + strings.Join(names, ", ")
}
