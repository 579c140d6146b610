package weir

import "github.com/weir-edge/weir/sdk/abi"

// Code says what kind of refusal a denial is.
type Code uint64

// The codes.
const (
	Forbidden       Code = abi.DenyForbidden
	Unauthenticated Code = abi.DenyUnauthenticated
	Invalid         Code = abi.DenyInvalid
	Limited         Code = abi.DenyLimited
	NotFound        Code = abi.DenyNotFound
)

// arg is what an operation holds. What is empty is left out, which reads the
// same.
type arg struct {
	pointer, raw, name, text string
	code, index, item        uint64
}

// add writes an operation behind those of the call under way. Lengths come
// before what they measure: they are reckoned first, so that nothing is
// written twice.
func add(op int, a arg) {
	n := size(a.pointer) + size(a.raw) + size(a.name) + size(a.text) + number(a.code) + number(a.index) + number(a.item)
	b := call.out
	b = head(b, abi.OpsOp, uvarint(uint64(op)<<3|2)+uvarint(uint64(n))+n)
	b = head(b, op, n)
	b = appendString(b, abi.ArgPointer, a.pointer)
	b = appendString(b, abi.ArgRaw, a.raw)
	b = appendString(b, abi.ArgName, a.name)
	b = appendString(b, abi.ArgText, a.text)
	b = appendNumber(b, abi.ArgCode, a.code)
	b = appendNumber(b, abi.ArgIndex, a.index)
	b = appendNumber(b, abi.ArgItem, a.item)
	call.out = b
}

// head appends the key and the length of a record.
func head(b []byte, field, n int) []byte {
	b = appendUvarint(b, uint64(field)<<3|2)
	return appendUvarint(b, uint64(n))
}

func appendUvarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func uvarint(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// All fields of an operation's record have keys of one byte.
func size(s string) int {
	if s == "" {
		return 0
	}
	return 1 + uvarint(uint64(len(s))) + len(s)
}

func number(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + uvarint(v)
}

func appendString(b []byte, field int, s string) []byte {
	if s == "" {
		return b
	}
	return abi.AppendString(b, field, s)
}

func appendNumber(b []byte, field int, v uint64) []byte {
	if v == 0 {
		return b
	}
	return abi.AppendUint(b, field, v)
}

// What operations of several hooks have in common.
type (
	// Refusal refuses the message.
	Refusal struct{}
	// Answer answers in the place of the backend.
	Answer struct{}
	// HeaderEdits change the headers of the request or response.
	HeaderEdits struct{}
	// ArgumentEdits change what a tool is called with.
	ArgumentEdits struct{}
	// ResultEdits change a result.
	ResultEdits struct{}
	// Attributes are noted for later filters and rules.
	Attributes struct{}
	// LogFields are noted in the record of the message.
	LogFields struct{}
	// Assertion says who a client is.
	Assertion struct{}
)

// Deny refuses the message, with a text that the client sees. Functions after
// this one are not asked.
func (Refusal) Deny(code Code, text string) { Refusal{}.DenyWith(code, text, "") }

// DenyWith refuses the message with data for the error's object, besides the
// text.
func (Refusal) DenyWith(code Code, text string, data JSON) {
	add(abi.OpDeny, arg{code: uint64(code), text: text, raw: string(data)})
	call.refused = true
}

// Respond answers with a result.
func (Answer) Respond(result JSON) { add(abi.OpRespond, arg{raw: string(result)}) }

// SetHeader sets a header.
func (HeaderEdits) SetHeader(name, value string) {
	add(abi.OpSetHeader, arg{name: name, text: value})
}

// DelHeader removes a header.
func (HeaderEdits) DelHeader(name string) { add(abi.OpDelHeader, arg{name: name}) }

// Set sets the argument behind a JSON pointer.
func (ArgumentEdits) Set(pointer string, value JSON) {
	add(abi.OpSetArg, arg{pointer: pointer, raw: string(value)})
}

// Del removes the argument behind a JSON pointer.
func (ArgumentEdits) Del(pointer string) { add(abi.OpDelArg, arg{pointer: pointer}) }

// SetArguments replaces all arguments by those of an object.
func (ArgumentEdits) SetArguments(object JSON) { add(abi.OpSetArguments, arg{raw: string(object)}) }

// SetTool calls another tool, by the name that clients see.
func (ArgumentEdits) SetTool(name string) { add(abi.OpSetTool, arg{name: name}) }

// SetBackend calls another backend.
func (ArgumentEdits) SetBackend(name string) { add(abi.OpSetBackend, arg{name: name}) }

// Patch replaces the value of the result behind a JSON pointer.
func (ResultEdits) Patch(pointer string, value JSON) {
	add(abi.OpPatchResult, arg{pointer: pointer, raw: string(value)})
}

// Redact puts a text into the place of the value behind a JSON pointer.
func (ResultEdits) Redact(pointer, text string) {
	add(abi.OpRedact, arg{pointer: pointer, text: text})
}

// SetAttr notes a value under a name.
func (Attributes) SetAttr(name string, value JSON) {
	add(abi.OpSetAttr, arg{name: name, raw: string(value)})
}

// LogField notes a text under a name.
func (LogFields) LogField(name, text string) { add(abi.OpLogField, arg{name: name, text: text}) }

// Identity is who a client is said to be.
type Identity struct {
	Subject, Tenant, Issuer string
	Groups, Roles, Scopes   []string
}

// SetPrincipal says who the client is.
func (Assertion) SetPrincipal(who Identity) {
	b := appendString(nil, abi.PrincipalSubject, who.Subject)
	b = appendString(b, abi.PrincipalTenant, who.Tenant)
	for _, list := range []struct {
		field  int
		values []string
	}{{abi.PrincipalGroup, who.Groups}, {abi.PrincipalRole, who.Roles}, {abi.PrincipalScope, who.Scopes}} {
		for _, v := range list.values {
			b = abi.AppendString(b, list.field, v)
		}
	}
	b = appendString(b, abi.PrincipalIssuer, who.Issuer)
	add(abi.OpSetPrincipal, arg{raw: string(b)})
}
