package guest

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/sdk/abi"
)

// Limits on a program's answer.
const (
	maxOps    = 256      // of one call; of override hooks 16 for each item, 64 for any one
	maxName   = 1 << 10  // bytes of a name
	maxText   = 1 << 10  // bytes of a text for a client or a log
	maxValue  = 8 << 10  // bytes of a header value
	maxCarry  = 64 << 10 // bytes carried from a request to its response
	maxFields = 16       // of a log line
)

// op is one operation of a program's answer. Its bytes share the answer's
// memory.
type op struct {
	kind                int // abi.Op…
	pointer, name, text string
	raw                 []byte
	code, index, item   uint64
}

var opNames = [...]string{
	abi.OpSetArg: "set_arg", abi.OpDelArg: "del_arg", abi.OpSetArguments: "set_arguments", abi.OpSetTool: "set_tool", abi.OpSetBackend: "set_backend",
	abi.OpSetHeader: "set_header", abi.OpDelHeader: "del_header", abi.OpRespond: "respond", abi.OpDeny: "deny", abi.OpSetAttr: "set_attr",
	abi.OpSetCarry: "set_carry", abi.OpLogField: "log_field", abi.OpPatchResult: "patch_result", abi.OpDropContent: "drop_content", abi.OpRedact: "redact",
	abi.OpRename: "rename", abi.OpDescribe: "describe", abi.OpHide: "hide", abi.OpAnnotate: "annotate", abi.OpSetSchema: "set_schema",
	abi.OpPinArg: "pin_arg", abi.OpHideArg: "hide_arg", abi.OpUseCredential: "use_credential", abi.OpSetPrincipal: "set_principal", abi.OpChallenge: "challenge",
	abi.OpPatchItem: "patch_item",
}

// verbs is the set of operations that an answer may hold.
type verbs uint32

func these(kinds ...int) verbs {
	var v verbs
	for _, k := range kinds {
		v |= 1 << k
	}
	return v
}

// The operations of on_question about a question and about its answer.
const (
	questionVerbs = verbs(1<<abi.OpSetArg | 1<<abi.OpDelArg | 1<<abi.OpRedact | 1<<abi.OpDeny | 1<<abi.OpLogField)
	answerVerbs   = verbs(1<<abi.OpPatchResult | 1<<abi.OpRedact | 1<<abi.OpDeny | 1<<abi.OpLogField)
)

// may returns the operations of a hook (wasm/ABI.md, hooks). For on_message
// these are the ones allowed about a response.
func may(h abi.Hook) verbs {
	switch h {
	case abi.OnHTTPRequest:
		return these(abi.OpSetHeader, abi.OpDelHeader, abi.OpRespond, abi.OpDeny, abi.OpSetAttr)
	case abi.OnHTTPResponse:
		return these(abi.OpSetHeader, abi.OpDelHeader)
	case abi.OnCallRequest:
		return these(abi.OpSetArg, abi.OpDelArg, abi.OpSetArguments, abi.OpSetTool, abi.OpSetBackend, abi.OpSetHeader, abi.OpDelHeader,
			abi.OpRespond, abi.OpDeny, abi.OpSetAttr, abi.OpSetCarry, abi.OpLogField)
	case abi.OnCallResponse:
		return these(abi.OpPatchResult, abi.OpDropContent, abi.OpRedact, abi.OpRespond, abi.OpDeny, abi.OpLogField)
	case abi.OnMessage:
		return these(abi.OpDeny, abi.OpPatchResult, abi.OpRedact)
	case abi.OverrideTools, abi.OverridePrompts, abi.OverrideResources:
		return these(abi.OpRename, abi.OpDescribe, abi.OpHide, abi.OpAnnotate, abi.OpPatchItem, abi.OpSetSchema, abi.OpPinArg, abi.OpHideArg)
	case abi.Authenticate:
		return these(abi.OpSetPrincipal, abi.OpChallenge, abi.OpDeny)
	case abi.MapIdentity:
		return these(abi.OpSetPrincipal, abi.OpSetAttr, abi.OpDeny)
	case abi.OutgoingAuth:
		return these(abi.OpUseCredential, abi.OpSetHeader, abi.OpDelHeader, abi.OpDeny)
	case abi.OnUpstreamRequest:
		return these(abi.OpSetHeader, abi.OpDelHeader)
	case abi.OnNotification:
		return questionVerbs
	case abi.OnQuestion:
		return questionVerbs | answerVerbs
	case abi.OnSessionStart:
		return these(abi.OpSetAttr, abi.OpDeny)
	case abi.OnSessionEnd:
		return these(abi.OpSetAttr)
	}
	return 0
}

// opsOf parses an answer. Unless all of it is well-formed and allowed, it
// returns an error that says what is not.
func opsOf(record []byte, allowed verbs, most int) ([]op, error) {
	var all []op
	r := abi.Reader{B: record}
	for r.Next() {
		if r.Num != abi.OpsOp {
			continue
		}
		o, err := opOf(r.Data)
		switch {
		case err != nil:
			return nil, err
		case allowed&(1<<o.kind) == 0:
			return nil, fmt.Errorf("operation %s is not allowed at this hook", opNames[o.kind])
		case len(all) == most:
			return nil, fmt.Errorf("more than %d operations", most)
		}
		all = append(all, o)
	}
	if r.Bad {
		return nil, fmt.Errorf("a malformed answer")
	}
	return all, nil
}

func opOf(record []byte) (op, error) {
	var o op
	r := abi.Reader{B: record}
	for r.Next() {
		if r.Num >= len(opNames) || r.Data == nil {
			return o, fmt.Errorf("unknown operation %d", r.Num)
		}
		if o.kind != 0 {
			return o, fmt.Errorf("two operations in one")
		}
		o.kind = r.Num
		if err := o.arguments(r.Data); err != nil {
			return o, fmt.Errorf("%s: %w", opNames[o.kind], err)
		}
	}
	if r.Bad || o.kind == 0 {
		return o, fmt.Errorf("a malformed operation")
	}
	return o, nil
}

func (o *op) arguments(record []byte) error {
	r := abi.Reader{B: record}
	for r.Next() {
		var text *string
		switch r.Num {
		case abi.ArgPointer:
			text = &o.pointer
		case abi.ArgRaw:
			o.raw = r.Data
		case abi.ArgName:
			text = &o.name
		case abi.ArgText:
			text = &o.text
		case abi.ArgCode:
			o.code = r.Uint
		case abi.ArgIndex:
			o.index = r.Uint
		case abi.ArgItem:
			o.item = r.Uint
		}
		if text != nil {
			if !utf8.Valid(r.Data) {
				return fmt.Errorf("the text is not UTF-8")
			}
			*text = string(r.Data)
		}
	}
	if r.Bad {
		return fmt.Errorf("malformed")
	}
	return o.judge()
}

// judge checks the arguments of an operation against its kind.
func (o *op) judge() error {
	if len(o.name) > maxName {
		return fmt.Errorf("a name of %d bytes", len(o.name))
	}
	if o.kind != abi.OpSetCarry && o.kind != abi.OpSetPrincipal {
		o.raw = bytes.TrimSpace(o.raw)
	}
	json := func(optional bool) error {
		if optional && len(o.raw) == 0 {
			return nil
		}
		if err := mcp.Valid(o.raw); err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
		return nil
	}
	switch o.kind {
	case abi.OpSetArg, abi.OpPatchResult, abi.OpPatchItem, abi.OpAnnotate, abi.OpSetSchema, abi.OpPinArg, abi.OpSetAttr:
		return json(false)
	case abi.OpSetArguments, abi.OpRespond:
		if err := json(false); err != nil {
			return err
		}
		if o.raw[0] != '{' {
			return fmt.Errorf("not a JSON object")
		}
	case abi.OpDeny:
		return json(true)
	case abi.OpSetTool, abi.OpSetBackend, abi.OpRename, abi.OpUseCredential:
		if o.name == "" {
			return fmt.Errorf("no name")
		}
	case abi.OpSetHeader, abi.OpChallenge:
		if len(o.text) > maxValue || strings.ContainsFunc(o.text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			return fmt.Errorf("%.100q: not a header value: at most %d bytes without control characters", cmp.Or(o.name, "WWW-Authenticate"), maxValue)
		}
		if o.kind == abi.OpSetHeader {
			return headerName(o.name)
		}
	case abi.OpDelHeader:
		return headerName(o.name)
	case abi.OpSetCarry:
		if len(o.raw) > maxCarry {
			return fmt.Errorf("%d bytes to carry", len(o.raw))
		}
	}
	return nil
}

// headerName checks the name of a header that a program sets or removes
// towards backends.
func headerName(name string) error {
	switch {
	case !outgoing.IsName(name):
		return fmt.Errorf("%q is not a header name", name)
	case outgoing.Restricted(name):
		return fmt.Errorf("header %s is set by the edge itself", name)
	}
	return nil
}

// denial returns the error for a deny.
func (o *op) denial(filter string, h abi.Hook) error {
	text := o.text
	if text == "" {
		text = fmt.Sprintf("denied by filter %q", filter)
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	kind := edge.Denied
	switch o.code {
	case abi.DenyUnauthenticated:
		kind = edge.Unauthenticated
	case abi.DenyInvalid:
		kind = edge.Params
	case abi.DenyLimited:
		kind = edge.Limited
	case abi.DenyNotFound:
		kind = edge.NotFound
	}
	e := edge.Errorf(kind, fmt.Sprintf("filter %q: %v", filter, h), "%s", text)
	if len(o.raw) > 0 {
		e.Data = append([]byte{}, o.raw...)
	}
	return e
}
