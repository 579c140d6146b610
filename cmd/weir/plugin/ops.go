package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/sdk/abi"
)

// An operation is written as an object with one member: its name, and in it
// what it holds, under the names of ABI.md. Codes have names, and a raw value
// is the JSON that it is.

// verb is an operation: its name, and which of its fields it must or may have.
type verb struct {
	name   string
	fields string // letters of fieldLetters; in upper case where it must be there
}

// p pointer, r raw, n name, t text, c code, x index, i item.
var verbs = [...]verb{
	abi.OpSetArg:        {"set_arg", "PR"},
	abi.OpDelArg:        {"del_arg", "P"},
	abi.OpSetArguments:  {"set_arguments", "R"},
	abi.OpSetTool:       {"set_tool", "N"},
	abi.OpSetBackend:    {"set_backend", "N"},
	abi.OpSetHeader:     {"set_header", "Nt"},
	abi.OpDelHeader:     {"del_header", "N"},
	abi.OpRespond:       {"respond", "R"},
	abi.OpDeny:          {"deny", "ctr"},
	abi.OpSetAttr:       {"set_attr", "NR"},
	abi.OpSetCarry:      {"set_carry", "r"},
	abi.OpLogField:      {"log_field", "Nt"},
	abi.OpPatchResult:   {"patch_result", "pR"},
	abi.OpDropContent:   {"drop_content", "x"},
	abi.OpRedact:        {"redact", "pt"},
	abi.OpRename:        {"rename", "iN"},
	abi.OpDescribe:      {"describe", "it"},
	abi.OpHide:          {"hide", "i"},
	abi.OpAnnotate:      {"annotate", "iNR"},
	abi.OpSetSchema:     {"set_schema", "iR"},
	abi.OpPinArg:        {"pin_arg", "iPR"},
	abi.OpHideArg:       {"hide_arg", "iP"},
	abi.OpUseCredential: {"use_credential", "N"},
	abi.OpSetPrincipal:  {"set_principal", "R"},
	abi.OpChallenge:     {"challenge", "T"},
	abi.OpPatchItem:     {"patch_item", "iPR"},
}

var (
	fieldLetters = map[int]byte{abi.ArgPointer: 'p', abi.ArgRaw: 'r', abi.ArgName: 'n', abi.ArgText: 't', abi.ArgCode: 'c', abi.ArgIndex: 'x', abi.ArgItem: 'i'}
	fieldNames   = map[byte]string{'p': "pointer", 'r': "raw", 'n': "name", 't': "text", 'c': "code", 'x': "index", 'i': "item"}
	codes        = []string{"forbidden", "unauthenticated", "invalid", "limited", "not_found"}
)

// allowed is the table of hooks in ABI.md: the operations that each may use.
var allowed = [abi.Hooks][]int{
	abi.OnHTTPRequest:     {abi.OpSetHeader, abi.OpDelHeader, abi.OpRespond, abi.OpDeny, abi.OpSetAttr},
	abi.Authenticate:      {abi.OpSetPrincipal, abi.OpChallenge, abi.OpDeny},
	abi.MapIdentity:       {abi.OpSetPrincipal, abi.OpSetAttr, abi.OpDeny},
	abi.OverrideTools:     overrides,
	abi.OverridePrompts:   overrides,
	abi.OverrideResources: overrides,
	abi.OnCallRequest: {abi.OpSetArg, abi.OpDelArg, abi.OpSetArguments, abi.OpSetTool, abi.OpSetBackend, abi.OpSetHeader, abi.OpDelHeader,
		abi.OpRespond, abi.OpDeny, abi.OpSetAttr, abi.OpSetCarry, abi.OpLogField},
	abi.OutgoingAuth:      {abi.OpUseCredential, abi.OpSetHeader, abi.OpDelHeader, abi.OpDeny},
	abi.OnUpstreamRequest: {abi.OpSetHeader, abi.OpDelHeader},
	abi.OnCallResponse:    {abi.OpPatchResult, abi.OpDropContent, abi.OpRedact, abi.OpRespond, abi.OpDeny, abi.OpLogField},
	abi.OnMessage:         {abi.OpDeny, abi.OpPatchResult, abi.OpRedact},
	abi.OnHTTPResponse:    {abi.OpSetHeader, abi.OpDelHeader},
	abi.OnSessionStart:    {abi.OpSetAttr, abi.OpDeny},
	abi.OnSessionEnd:      {abi.OpSetAttr, abi.OpDeny},
}

var overrides = []int{abi.OpRename, abi.OpDescribe, abi.OpHide, abi.OpAnnotate, abi.OpPatchItem, abi.OpSetSchema, abi.OpPinArg, abi.OpHideArg}

// operations reads what a guest returned. It fails where the edge would call it
// a breach of the ABI. items is how many the input had.
func operations(hook abi.Hook, record []byte, items int) ([]any, error) {
	all := []any{}
	r := abi.Reader{B: record}
	for r.Next() {
		if r.Num != abi.OpsOp {
			continue
		}
		op, err := operation(hook, r.Data, items)
		if err != nil {
			return nil, fmt.Errorf("operation %d: %w", len(all)+1, err)
		}
		all = append(all, op)
	}
	if r.Bad {
		return nil, errors.New("a malformed record of operations")
	}
	return all, nil
}

func operation(hook abi.Hook, record []byte, items int) (any, error) {
	r := abi.Reader{B: record}
	if !r.Next() || r.Num >= len(verbs) || r.Num == 0 || r.Data == nil {
		return nil, errors.New("it is none that there is")
	}
	op, v, content := r.Num, verbs[r.Num], r.Data
	if r.Next() || r.Bad {
		return nil, fmt.Errorf("%s: more than one in one", v.name)
	}
	if !slices.Contains(allowed[hook], op) {
		return nil, fmt.Errorf("%v may not use %s", hook, v.name)
	}
	fields, err := v.read(op, content, items)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.name, err)
	}
	return map[string]any{v.name: fields}, nil
}

// read returns what an operation holds. Numbers that are absent are zero.
func (v verb) read(op int, content []byte, items int) (map[string]any, error) {
	fields := map[string]any{}
	for letter, name := range fieldNames {
		if strings.IndexByte("cxi", letter) >= 0 && strings.IndexByte(v.fields, letter) >= 0 {
			fields[name] = json.Number("0")
			if letter == 'c' {
				fields[name] = codes[0]
			}
		}
	}
	r := abi.Reader{B: content}
	for r.Next() {
		letter, known := fieldLetters[r.Num]
		if !known {
			continue
		}
		name := fieldNames[letter]
		if !strings.ContainsRune(strings.ToLower(v.fields), rune(letter)) {
			return nil, fmt.Errorf("it has no %s", name)
		}
		switch letter {
		case 'r':
			raw, err := rawValue(op, r.Data)
			if err != nil {
				return nil, err
			}
			fields[name] = raw
		case 'c':
			if r.Uint >= uint64(len(codes)) {
				return nil, fmt.Errorf("there is no code %d", r.Uint)
			}
			fields[name] = codes[r.Uint]
		case 'i', 'x':
			if letter == 'i' && r.Uint >= uint64(items) {
				return nil, fmt.Errorf("item %d of %d", r.Uint, items)
			}
			fields[name] = json.Number(fmt.Sprint(r.Uint))
		default:
			if !utf8.Valid(r.Data) {
				return nil, fmt.Errorf("%s is not UTF-8", name)
			}
			fields[name] = string(r.Data)
		}
	}
	if r.Bad {
		return nil, errors.New("malformed")
	}
	for letter, name := range fieldNames {
		if _, there := fields[name]; !there && strings.IndexByte(v.fields, letter-'a'+'A') >= 0 {
			return nil, fmt.Errorf("without %s", name)
		}
	}
	return fields, v.check(op, fields)
}

// check holds an operation to what the edge asks of its content.
func (v verb) check(op int, fields map[string]any) error {
	if p, ok := fields["pointer"].(string); ok && p != "" && p[0] != '/' {
		return fmt.Errorf("%q is no JSON pointer", p)
	}
	switch op {
	case abi.OpSetArguments, abi.OpRespond, abi.OpSetSchema:
		if _, ok := fields["raw"].(map[string]any); !ok {
			return errors.New("raw is not an object")
		}
	case abi.OpSetHeader, abi.OpDelHeader:
		name, _ := fields["name"].(string)
		if !outgoing.IsName(name) {
			return fmt.Errorf("%q is no name of a header", name)
		}
		if outgoing.Restricted(name) {
			return fmt.Errorf("the edge itself sets header %s", name)
		}
	}
	return nil
}

func rawValue(op int, raw []byte) (any, error) {
	switch op {
	case abi.OpSetCarry:
		return string(raw), nil
	case abi.OpSetPrincipal:
		return principalOf(raw)
	}
	if err := mcp.Valid(raw); err != nil {
		return nil, fmt.Errorf("raw is no JSON: %w", err)
	}
	return decode(raw)
}

func principalOf(record []byte) (any, error) {
	var p Principal
	r := abi.Reader{B: record}
	for r.Next() {
		switch s := string(r.Data); r.Num {
		case abi.PrincipalSubject:
			p.Subject = s
		case abi.PrincipalTenant:
			p.Tenant = s
		case abi.PrincipalGroup:
			p.Groups = append(p.Groups, s)
		case abi.PrincipalRole:
			p.Roles = append(p.Roles, s)
		case abi.PrincipalScope:
			p.Scopes = append(p.Scopes, s)
		case abi.PrincipalIssuer:
			p.Issuer = s
		}
	}
	if r.Bad {
		return nil, errors.New("a malformed principal")
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return decode(text)
}

// decode decodes JSON, with numbers as they are written.
func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}
