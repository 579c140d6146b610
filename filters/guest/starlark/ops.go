package starlark

import (
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/sdk/abi"
)

// operation is what a builtin makes that is named as an operation of the ABI: a record of it,
// which the host carries out when the function returns it.
type operation struct {
	spec   *operationSpec
	record []byte // an Op
}

func (o *operation) String() string        { return o.spec.name + "(…)" }
func (o *operation) Type() string          { return "operation" }
func (o *operation) Freeze()               {}
func (o *operation) Truth() starlark.Bool  { return starlark.True }
func (o *operation) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: operation") }

// operationSpec is an operation by its name, with its parameters in their order.
type operationSpec struct {
	name   string
	kind   int // abi.Op…
	params []param
}

// param is a parameter of an operation.
type param struct {
	name     string
	field    int // abi.Arg…
	optional bool
	append   func(t *scripting.Task, record []byte, field int, v starlark.Value) ([]byte, error)
}

func operations() []operationSpec {
	pointer := param{"pointer", abi.ArgPointer, false, appendText}
	value := param{"value", abi.ArgRaw, false, appendJSON}
	name := param{"name", abi.ArgName, false, appendText}
	text := param{"text", abi.ArgText, false, appendText}
	of := param{"item", abi.ArgItem, false, appendItem}
	return []operationSpec{
		{"annotate", abi.OpAnnotate, []param{of, name, value}},
		{"challenge", abi.OpChallenge, []param{text}},
		{"del_arg", abi.OpDelArg, []param{pointer}},
		{"del_header", abi.OpDelHeader, []param{name}},
		{"deny", abi.OpDeny, []param{{"code", abi.ArgCode, false, appendCode}, {"text", abi.ArgText, true, appendText}, {"data", abi.ArgRaw, true, appendJSON}}},
		{"describe", abi.OpDescribe, []param{of, text}},
		{"drop_content", abi.OpDropContent, []param{{"index", abi.ArgIndex, false, appendIndex}}},
		{"hide", abi.OpHide, []param{of}},
		{"hide_arg", abi.OpHideArg, []param{of, pointer}},
		{"log_field", abi.OpLogField, []param{name, text}},
		{"patch_item", abi.OpPatchItem, []param{of, pointer, value}},
		{"patch_result", abi.OpPatchResult, []param{pointer, value}},
		{"pin_arg", abi.OpPinArg, []param{of, pointer, value}},
		{"redact", abi.OpRedact, []param{pointer, {"text", abi.ArgText, true, appendText}}},
		{"rename", abi.OpRename, []param{of, name}},
		{"respond", abi.OpRespond, []param{{"result", abi.ArgRaw, false, appendResult}}},
		{"set_arg", abi.OpSetArg, []param{pointer, value}},
		{"set_arguments", abi.OpSetArguments, []param{{"object", abi.ArgRaw, false, appendJSON}}},
		{"set_attr", abi.OpSetAttr, []param{name, value}},
		{"set_backend", abi.OpSetBackend, []param{name}},
		{"set_carry", abi.OpSetCarry, []param{{"text", abi.ArgRaw, false, appendBytes}}},
		{"set_header", abi.OpSetHeader, []param{name, {"value", abi.ArgText, false, appendText}}},
		{"set_principal", abi.OpSetPrincipal, nil}, // principalRecord
		{"set_schema", abi.OpSetSchema, []param{of, {"schema", abi.ArgRaw, false, appendJSON}}},
		{"set_tool", abi.OpSetTool, []param{name}},
		{"use_credential", abi.OpUseCredential, []param{name}},
	}
}

func operationNamed(name string) *operationSpec {
	for _, o := range operations() {
		if o.name == name {
			return &o
		}
	}
	return nil
}

// maxScratch is how much memory for records is kept for another call, in bytes.
const maxScratch = 4 << 10

// operate makes an operation of the values that its builtin was called with.
func operate(t *scripting.Task, spec *operationSpec, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	c := t.Local().(*call)
	arg, err := c.scratch[:0], error(nil)
	if spec.kind == abi.OpSetPrincipal {
		arg, err = principalRecord(arg, args, named)
	} else {
		arg, err = spec.record(t, arg, args, named)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec.name, err)
	}
	if err := t.Allocate(2*len(arg) + 64); err != nil {
		return nil, err
	}
	if cap(arg) <= maxScratch {
		c.scratch = arg
	}
	return &operation{spec, abi.AppendBytes(make([]byte, 0, len(arg)+8), spec.kind, arg)}, nil
}

// record appends the fields of an OpArg.
func (spec *operationSpec) record(t *scripting.Task, arg []byte, args starlark.Tuple, named []starlark.Tuple) ([]byte, error) {
	if len(args) > len(spec.params) {
		return nil, fmt.Errorf("got %d values, want at most %d: %s", len(args), len(spec.params), spec.signature())
	}
	for _, pair := range named {
		if !spec.takes(string(pair[0].(starlark.String)), len(args)) {
			return nil, fmt.Errorf("unexpected or second %s: %s", pair[0].(starlark.String), spec.signature())
		}
	}
	for i := range spec.params {
		p := &spec.params[i]
		var v starlark.Value
		if i < len(args) {
			v = args[i]
		}
		for _, pair := range named {
			if string(pair[0].(starlark.String)) == p.name {
				v = pair[1]
			}
		}
		if v == nil || v == starlark.None && p.optional {
			if p.optional {
				continue
			}
			return nil, fmt.Errorf("%s is missing: %s", p.name, spec.signature())
		}
		var err error
		if arg, err = p.append(t, arg, p.field, v); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return arg, nil
}

// takes reports whether a name is that of a parameter behind the first ones.
func (spec *operationSpec) takes(name string, given int) bool {
	for _, p := range spec.params[given:] {
		if p.name == name {
			return true
		}
	}
	return false
}

// signature shows how an operation is made.
func (spec *operationSpec) signature() string {
	var names []string
	for _, p := range spec.params {
		if p.optional {
			names = append(names, p.name+"=…")
		} else {
			names = append(names, p.name)
		}
	}
	return spec.name + "(" + strings.Join(names, ", ") + ")"
}

func appendText(_ *scripting.Task, b []byte, field int, v starlark.Value) ([]byte, error) {
	s, ok := starlark.AsString(v)
	if !ok {
		return nil, fmt.Errorf("got %s, want str", v.Type())
	}
	return abi.AppendString(b, field, s), nil
}

func appendBytes(_ *scripting.Task, b []byte, field int, v starlark.Value) ([]byte, error) {
	s, err := bytesOf(v)
	return abi.AppendString(b, field, s), err
}

// bytesOf is the bytes of a text.
func bytesOf(v starlark.Value) (string, error) {
	switch v := v.(type) {
	case starlark.String:
		return string(v), nil
	case starlark.Bytes:
		return string(v), nil
	}
	return "", fmt.Errorf("got %s, want str or bytes", v.Type())
}

func appendJSON(t *scripting.Task, b []byte, field int, v starlark.Value) ([]byte, error) {
	text, err := jsonOf(t, v)
	return abi.AppendBytes(b, field, text), err
}

func jsonOf(t *scripting.Task, v starlark.Value) ([]byte, error) {
	if raw, ok := v.(rawJSON); ok {
		return []byte(raw), t.Allocate(len(raw))
	}
	return t.JSON("value", v)
}

// appendResult writes a result of a tool; of a text one that says it.
func appendResult(t *scripting.Task, b []byte, field int, v starlark.Value) ([]byte, error) {
	if s, ok := v.(starlark.String); ok {
		text, err := jsonOf(t, s)
		if err != nil {
			return nil, err
		}
		whole := append(append([]byte(`{"content":[{"type":"text","text":`), text...), "}]}"...)
		return abi.AppendBytes(b, field, whole), nil
	}
	_, dict := v.(*starlark.Dict)
	if _, raw := v.(rawJSON); !dict && !raw {
		return nil, fmt.Errorf("got %s, want dict or str", v.Type())
	}
	return appendJSON(t, b, field, v)
}

// appendCode writes the code of a denial, which texts write as a status of HTTP.
func appendCode(_ *scripting.Task, b []byte, field int, v starlark.Value) ([]byte, error) {
	if n, ok := v.(starlark.Int); ok {
		status, _ := n.Int64()
		switch status {
		case 403:
			return b, nil // abi.DenyForbidden is 0
		case 401:
			return abi.AppendUint(b, field, abi.DenyUnauthenticated), nil
		case 400:
			return abi.AppendUint(b, field, abi.DenyInvalid), nil
		case 429:
			return abi.AppendUint(b, field, abi.DenyLimited), nil
		case 404:
			return abi.AppendUint(b, field, abi.DenyNotFound), nil
		}
	}
	return nil, errors.New("must be 400, 401, 403, 404 or 429")
}

func appendIndex(_ *scripting.Task, b []byte, field int, v starlark.Value) ([]byte, error) {
	n, ok := v.(starlark.Int)
	i, fits := n.Uint64()
	if !ok || !fits {
		return nil, fmt.Errorf("must be a number of 0 or more")
	}
	if i == 0 {
		return b, nil
	}
	return abi.AppendUint(b, field, i), nil
}

// appendItem writes which item an operation is about: one of c.items, or its place there.
func appendItem(t *scripting.Task, b []byte, field int, v starlark.Value) ([]byte, error) {
	if i, ok := v.(*item); ok {
		v = starlark.MakeInt(i.index)
	}
	if _, ok := v.(starlark.Int); !ok {
		return nil, fmt.Errorf("got %s, want one of c.items, or its place there", v.Type())
	}
	return appendIndex(t, b, field, v)
}

// principalRecord writes who a client is said to be.
func principalRecord(arg []byte, args starlark.Tuple, named []starlark.Tuple) ([]byte, error) {
	if len(args) > 0 {
		return nil, fmt.Errorf("each value has its name: set_principal(%s=…)", strings.Join(principalNames(), "=…, "))
	}
	var p abi.Principal
	for _, pair := range named {
		name := string(pair[0].(starlark.String))
		var one *string
		var several *[]string
		switch name {
		case "subject":
			one = &p.Subject
		case "tenant":
			one = &p.Tenant
		case "issuer":
			one = &p.Issuer
		case "groups":
			several = &p.Groups
		case "roles":
			several = &p.Roles
		case "scopes":
			several = &p.Scopes
		default:
			return nil, fmt.Errorf("a principal has no %s: it has %s", name, strings.Join(principalNames(), ", "))
		}
		var err error
		if one != nil {
			s, ok := starlark.AsString(pair[1])
			if *one = s; !ok {
				err = fmt.Errorf("got %s, want str", pair[1].Type())
			}
		} else {
			*several, err = texts(pair[1])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return abi.AppendBytes(arg, abi.ArgRaw, p.Append(nil)), nil
}

// maxTexts is how many texts a list of a builtin may hold.
const maxTexts = 4096

// texts returns the texts of a list.
func texts(v starlark.Value) ([]string, error) {
	list, ok := v.(starlark.Iterable)
	if n := starlark.Len(v); !ok || n < 0 {
		return nil, fmt.Errorf("got %s, want a list of str", v.Type())
	} else if n > maxTexts {
		return nil, fmt.Errorf("more than %d texts", maxTexts)
	}
	var all []string
	for x := range starlark.Elements(list) {
		s, ok := starlark.AsString(x)
		if !ok {
			return nil, fmt.Errorf("got %s in the list, want str", x.Type())
		}
		all = append(all, s)
	}
	return all, nil
}

// maxOperations is how many operations a function may return: of override hooks those of
// 4,096 items.
const maxOperations = 1 << 16

// appendOps appends the record of what a function returned: None, an operation, or a list of
// them, in which None stands for none.
func appendOps(out []byte, v starlark.Value, most int) ([]byte, error) {
	from, n := len(out), 0
	add := func(v starlark.Value) error {
		if v == starlark.None {
			return nil
		}
		o, ok := v.(*operation)
		if !ok {
			return fmt.Errorf("it returned %s: return None, an operation, or a list of operations", v.Type())
		}
		if n++; n > maxOperations {
			return fmt.Errorf("more than %d operations", maxOperations)
		}
		out = abi.AppendBytes(out, abi.OpsOp, o.record)
		if len(out)-from > most {
			return fmt.Errorf("an answer of more than %d bytes, which is its limit", most)
		}
		return nil
	}
	var list starlark.Indexable
	switch v := v.(type) {
	case *starlark.List:
		list = v
	case starlark.Tuple:
		list = v
	default:
		return out, add(v)
	}
	for i := range list.Len() {
		if err := add(list.Index(i)); err != nil {
			return out, err
		}
	}
	return out, nil
}
