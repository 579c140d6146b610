package guest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/filters/guest/starlark"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// Asked is what a program was asked about, for Judge: the fields of the input
// that operations change.
type Asked struct {
	Hook      abi.Hook
	Tool      string
	Arguments []byte         // JSON text of an object; nil for none
	Result    []byte         // JSON text of an object; nil for none
	Failed    bool           // the answer is an error
	Items     [][]byte       // JSON texts of objects
	Method    string         // of a notification or a question; "" for a call
	Identity  *edge.Identity // nil where it is not known
	Grants    []string       // of the filter

	Version    uint32          // of the ABI that the program is made for
	Attributes edge.Attributes // that the principal has
}

// Judge returns why a server would answer 503 in place of carrying out what a
// program named filter answered, as the failure that it would log; nil where it
// carries it out. It applies the answer as the server does, to a message that
// has what was asked about.
//
// What only a server knows is not judged: whether there is the tool, the backend
// or the credential that the program names.
func Judge(filter string, q *Asked, answer []byte) error {
	if err := q.judge(filter, answer); err != nil {
		return &wasm.Failure{Guest: filter, Hook: q.Hook, Reason: wasm.Broken, Detail: err.Error()}
	}
	return nil
}

// JudgeSubscriptions returns why a server would not start a program with these
// grants for what it subscribed to; nil where it starts it. claims are the pointers
// of the grant claims.
func JudgeSubscriptions(g Engine, grants, claims []string) error {
	_, script := g.(*starlark.Guest)
	p := program{spec: &Spec{Grants: grants, Claims: claims, Script: script}, guest: g}
	return p.subscribe()
}

func (q *Asked) judge(filter string, answer []byte) error {
	answered := q.Failed || q.Result != nil
	allowed, most := may(q.Hook), maxOps
	switch q.Hook {
	case abi.OnMessage:
		if !answered {
			allowed = these(abi.OpDeny)
		}
	case abi.OnNotification, abi.OnQuestion:
		allowed = q.aside().verbs()
	case abi.OverrideTools, abi.OverridePrompts, abi.OverrideResources:
		most = maxItemOps * len(q.Items)
	}
	ops, err := opsOf(answer, allowed, most)
	if err != nil || len(ops) == 0 {
		return err
	}
	denies := slices.ContainsFunc(ops, func(o op) bool { return o.kind == abi.OpDeny })
	if !denies && sets(q.Version, q.Hook) {
		if _, err := attributesOf(q.Attributes, ops); err != nil {
			return err
		}
	}
	switch q.Hook {
	case abi.OnCallRequest:
		if denies {
			return nil
		}
		return q.call(ops)
	case abi.OnCallResponse, abi.OnMessage:
		return q.answer(ops)
	case abi.OnNotification, abi.OnQuestion:
		if !denies {
			_, err = q.aside().apply(ops)
		}
	case abi.OverrideTools, abi.OverridePrompts, abi.OverrideResources:
		return q.offer(ops)
	case abi.Authenticate, abi.MapIdentity:
		return q.identity(filter, ops)
	case abi.OutgoingAuth, abi.OnUpstreamRequest:
		return q.leaving(ops)
	case abi.OnHTTPRequest, abi.OnHTTPResponse:
		if denies {
			return nil
		}
		_, _, err = lined(q.Hook, edge.Lines{}, ops)
	}
	return err
}

// exchange is a call with the arguments that were asked about.
func (q *Asked) exchange() (*edge.Exchange, error) {
	params := slices.Concat([]byte(`{"name":`), mcp.Quote(q.Tool))
	if len(q.Arguments) > 0 {
		params = slices.Concat(params, []byte(`,"arguments":`), q.Arguments)
	}
	m, err := mcp.Decode(slices.Concat([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`), params, []byte("}}")))
	if err != nil {
		return nil, fmt.Errorf("what it is asked about is no call: %w", err)
	}
	return &edge.Exchange{Request: m, Era: mcp.Legacy}, nil
}

// call is openFilters.change without the way to the tool.
func (q *Asked) call(ops []op) error {
	x, err := q.exchange()
	if err != nil {
		return err
	}
	c := change{arguments: draft{text: q.Arguments}}
	for i := range ops {
		if err := c.take(&ops[i]); err != nil {
			return fmt.Errorf("%s: %w", opNames[ops[i].kind], err)
		}
	}
	if c.edited || c.tool != "" {
		if x.Request, err = c.message(x.Request); err != nil {
			return err
		}
	}
	if c.result != nil {
		if _, err := answered(x, c.result); err != nil {
			return fmt.Errorf("respond: %w", err)
		}
	}
	return nil
}

// answer is openFilters.response for an answer that is there.
func (q *Asked) answer(ops []op) error {
	x, err := q.exchange()
	if err != nil {
		return err
	}
	result := draft{text: q.Result}
	if denied, err := reviseAll(x, &result, ops); err != nil || denied != nil {
		return err
	}
	if err := misshapen(q.Hook, q.Result, result.whole()); err != nil {
		return err
	}
	return replace(x, &edge.Response{Status: 200, Message: mcp.Message{Kind: mcp.Result}}, result.whole())
}

// aside is what passes beside a call.
func (q *Asked) aside() *aside {
	p := &aside{hook: q.Hook, method: q.Method, params: q.Arguments}
	if q.Hook == abi.OnQuestion && (q.Failed || q.Result != nil) {
		p.answer = &edge.Answer{Result: q.Result}
	}
	return p
}

// offer is what overrideAll does with one batch.
func (q *Asked) offer(ops []op) error {
	thing := map[abi.Hook]edge.Thing{abi.OverrideTools: edge.Tool, abi.OverridePrompts: edge.Prompt, abi.OverrideResources: edge.Resource}[q.Hook]
	var all []edge.Override
	var batch []int
	for i, item := range q.Items {
		all, batch = append(all, edge.Override{Item: item}), append(batch, i)
	}
	return apply(thing, all, batch, ops)
}

// identity is what identify and authenticate do with a principal.
func (q *Asked) identity(filter string, ops []op) error {
	p := program{spec: &Spec{Name: filter, Grants: q.Grants}}
	was := q.Identity
	switch {
	case q.Hook == abi.Authenticate:
		was = &edge.Identity{Issuer: "weir-filter-" + filter}
	case was == nil: // whether it is another principal cannot be said
		was, p.spec.Grants = &edge.Identity{}, append(slices.Clip(q.Grants), abi.GrantIdentity)
	}
	for i := range ops {
		switch o := &ops[i]; o.kind {
		case abi.OpDeny:
			return nil
		case abi.OpSetPrincipal:
			id, err := p.principal(was, o.raw)
			if err == nil && q.Hook == abi.Authenticate && id.Subject == "" {
				err = errors.New("no principal: it has no subject")
			}
			if err != nil {
				return fmt.Errorf("set_principal: %w", err)
			}
			if was = id; q.Hook == abi.Authenticate {
				return nil
			}
		}
	}
	return nil
}

// leaving is subscriber.headers with every credential granted.
func (q *Asked) leaving(ops []op) error {
	a := subscriber{program: &program{spec: &Spec{Grants: q.Grants}}}
	var lines []edge.Header
	for i := range ops {
		o := &ops[i]
		switch o.kind {
		case abi.OpDeny:
			return nil
		case abi.OpUseCredential:
			continue
		}
		err := a.mayName(q.Hook, o.name)
		if err == nil {
			lines, err = withHeader(lines, o)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", opNames[o.kind], err)
		}
	}
	return nil
}
