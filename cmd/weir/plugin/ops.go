package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

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

// has says whether an operation has a field.
func (v verb) has(letter byte) bool {
	return strings.ContainsRune(strings.ToLower(v.fields), rune(letter))
}

// names are those of the fields of an operation.
func (v verb) names() []string {
	var all []string
	for i := range v.fields {
		all = append(all, fieldNames[strings.ToLower(v.fields)[i]])
	}
	return all
}

func verbNames() []string {
	var all []string
	for _, v := range verbs {
		if v.name != "" {
			all = append(all, v.name)
		}
	}
	return all
}

// operations reads what a guest answered and the edge would carry out.
func operations(answer []byte) []any {
	all := []any{}
	r := abi.Reader{B: answer}
	for r.Next() {
		if r.Num != abi.OpsOp {
			continue
		}
		op := abi.Reader{B: r.Data}
		for op.Next() {
			if op.Num > 0 && op.Num < len(verbs) {
				all = append(all, map[string]any{verbs[op.Num].name: verbs[op.Num].read(op.Num, op.Data)})
			}
		}
	}
	return all
}

// read returns what an operation holds. Numbers that are absent are zero, and
// fields that the operation does not have are left out, as the edge does.
func (v verb) read(op int, content []byte) map[string]any {
	fields := map[string]any{}
	for letter, name := range fieldNames {
		switch {
		case !v.has(letter):
		case letter == 'c':
			fields[name] = codes[0]
		case letter == 'x' || letter == 'i':
			fields[name] = json.Number("0")
		}
	}
	r := abi.Reader{B: content}
	for r.Next() {
		letter, known := fieldLetters[r.Num]
		if !known || !v.has(letter) {
			continue
		}
		name := fieldNames[letter]
		switch letter {
		case 'r':
			fields[name] = rawValue(op, r.Data)
		case 'c':
			fields[name] = codes[0] // as the edge takes a code that is none
			if r.Uint < uint64(len(codes)) {
				fields[name] = codes[r.Uint]
			}
		case 'i', 'x':
			fields[name] = json.Number(fmt.Sprint(r.Uint))
		default:
			fields[name] = string(r.Data)
		}
	}
	return fields
}

// rawValue returns the value of a field raw, which the edge has accepted.
func rawValue(op int, raw []byte) any {
	switch op {
	case abi.OpSetCarry:
		return string(raw)
	case abi.OpSetPrincipal:
		raw = []byte(line(principalOf(raw)))
	}
	v, err := decode(raw)
	if err != nil {
		return string(raw)
	}
	return v
}

func principalOf(record []byte) Principal {
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
	return p
}

// decode decodes JSON, with numbers as they are written.
func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}
