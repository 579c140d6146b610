package guest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
)

// response asks a program about an answer and applies its operations.
func (h *openFilters) response(ctx context.Context, x *edge.Exchange, w *scratch, hook abi.Hook, a *subscriber, r *edge.Response) error {
	s := w.about(x)
	if !a.matches(a.want, s.method, s.tool, s.backend) || a.calls(ctx, x) {
		return nil
	}
	s.tool = a.told(a.want, &s)
	raw := r.Whole()
	switch r.Kind {
	case mcp.Result:
		s.result = r.Result.Of(raw)
	case mcp.Failure:
		s.failure = r.Error.Of(raw)
	default:
		return nil
	}
	s.values, s.carry = s.result, w.left(a.program)
	ops, out, err := a.ask(a.within(ctx, hook, x), hook, a.sessionOf(w, x), senderOf(x), w.input(a.want, x, &s), w.out[:0], may(hook), maxOps)
	if w.out = out; err != nil || len(ops) == 0 {
		return err
	}
	result := draft{text: s.result}
	denied, err := reviseAll(x, &result, ops)
	switch {
	case err != nil:
		return a.broke(hook, senderOf(x), err)
	case denied != nil:
		a.denied[hook].Add(1)
		a.tell(x, hook, ops)
		return denied.denial(a.spec.Name, hook)
	}
	if err := misshapen(hook, s.result, result.whole()); err != nil {
		return a.broke(hook, senderOf(x), err)
	}
	a.tell(x, hook, ops)
	return replace(x, r, result.whole())
}

// misshapen returns why what a program made of the result of a tool call is none.
// What a backend did to it before is not the program's.
func misshapen(hook abi.Hook, was, is []byte) error {
	if hook != abi.OnCallResponse || is == nil || callResult(was) != nil {
		return nil
	}
	return callResult(is)
}

// callResult returns what keeps JSON text from being the result of a tool call
// (schema.ts, CallToolResult). One that asks the client for input has another
// shape. Nothing is not judged: the call failed.
func callResult(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if text[0] != '{' {
		return errors.New("the result is not an object")
	}
	if kind := mcp.Lookup(text, "resultType"); kind != nil && string(kind) != `"complete"` {
		return nil
	}
	content := mcp.Lookup(text, "content")
	if len(content) == 0 || content[0] != '[' {
		return errors.New("the result has no list of content")
	}
	for i, block := range mcp.Elements(content) {
		if len(block) == 0 || block[0] != '{' || mcp.String(mcp.Lookup(block, "type")) == "" {
			return fmt.Errorf("content %d of the result is not an object with a type", i)
		}
	}
	if failed := string(mcp.Lookup(text, "isError")); failed != "" && failed != "true" && failed != "false" {
		return errors.New("isError of the result is neither true nor false")
	}
	return nil
}

// reviseAll applies the operations of an answer to a result, or returns the one that denies it.
// Content is dropped by its place in what the program saw, so last, and from behind.
func reviseAll(x *edge.Exchange, result *draft, ops []op) (denied *op, err error) {
	var drops []uint64
	for i := range ops {
		o := &ops[i]
		switch o.kind {
		case abi.OpDeny:
			return o, nil
		case abi.OpRespond:
			drops = nil
		case abi.OpDropContent:
			if len(result.text) > 0 {
				drops = append(drops, o.index)
				continue
			}
		}
		if err := revise(x, result, o); err != nil {
			return nil, fmt.Errorf("%s: %w", opNames[o.kind], err)
		}
	}
	slices.Sort(drops)
	for _, n := range slices.Backward(slices.Compact(drops)) {
		if err := revise(x, result, &op{kind: abi.OpDropContent, index: n}); err != nil {
			return nil, fmt.Errorf("%s: %w", opNames[abi.OpDropContent], err)
		}
	}
	return nil, nil
}

// revise applies one operation to a result.
func revise(x *edge.Exchange, result *draft, o *op) error {
	switch o.kind {
	case abi.OpLogField:
		return nil
	case abi.OpRespond:
		result.set(slices.Clone(inEra(x, o.raw)))
		return nil
	}
	if len(result.text) == 0 {
		return errors.New("there is no result: the call failed")
	}
	switch o.kind {
	case abi.OpDropContent:
		return result.cut([]string{"content", fmt.Sprint(o.index)})
	case abi.OpPatchResult, abi.OpRedact:
		tokens, err := tokensOf(o.pointer)
		if err != nil {
			return err
		}
		if o.kind == abi.OpPatchResult {
			return result.put(tokens, o.raw)
		}
		if !result.has(tokens...) {
			return nil // a missing value needs no hiding
		}
		return result.put(tokens, mcp.Quote(o.text))
	}
	return errors.New("not for an answer")
}

// replace puts another result in an answer.
func replace(x *edge.Exchange, r *edge.Response, result []byte) error {
	if result == nil {
		return nil
	}
	status := r.Status
	if r.Kind == mcp.Failure {
		status = 200 // the error's own status means failure
	}
	if err := r.Decode(mcp.AppendResult(nil, slices.Clone(x.Request.IDText()), result)); err != nil {
		return edge.Errorf(edge.Internal, "guest", "%w", err)
	}
	r.Status = status
	return nil
}
