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
	// Attributes are what the guest says of the client: policies read them as
	// principal.attr_NAME, and later filters see them.
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
	add(abi.OpDeny, &arg{text: text, raw: string(data), code: uint64(code)})
	call.refused = true
}

// Respond answers with a result.
func (Answer) Respond(result JSON) { add(abi.OpRespond, &arg{raw: string(result)}) }

// SetHeader sets a header.
func (HeaderEdits) SetHeader(name, value string) {
	add(abi.OpSetHeader, &arg{name: name, text: value})
}

// DelHeader removes a header.
func (HeaderEdits) DelHeader(name string) { add(abi.OpDelHeader, &arg{name: name}) }

// Set sets the argument behind a JSON pointer.
func (ArgumentEdits) Set(pointer string, value JSON) {
	add(abi.OpSetArg, &arg{pointer: pointer, raw: string(value)})
}

// Del removes the argument behind a JSON pointer.
func (ArgumentEdits) Del(pointer string) {
	add(abi.OpDelArg, &arg{pointer: pointer})
}

// SetArguments replaces all arguments by those of an object.
func (ArgumentEdits) SetArguments(object JSON) {
	add(abi.OpSetArguments, &arg{raw: string(object)})
}

// SetTool calls another tool, by the name that clients see.
func (ArgumentEdits) SetTool(name string) { add(abi.OpSetTool, &arg{name: name}) }

// SetBackend calls another backend.
func (ArgumentEdits) SetBackend(name string) {
	add(abi.OpSetBackend, &arg{name: name})
}

// Patch replaces the value of the result behind a JSON pointer.
func (ResultEdits) Patch(pointer string, value JSON) {
	add(abi.OpPatchResult, &arg{pointer: pointer, raw: string(value)})
}

// Redact puts a text into the place of the value behind a JSON pointer.
func (ResultEdits) Redact(pointer, text string) {
	add(abi.OpRedact, &arg{pointer: pointer, text: text})
}

// SetAttr says something of the client under a name of 1 to 64 of a-z, 0-9 and _: in
// OnIdentity as long as its token is remembered, in OnSessionStart for the session,
// and elsewhere for this message. A value has at most 1 KiB.
func (Attributes) SetAttr(name string, value JSON) {
	add(abi.OpSetAttr, &arg{name: name, raw: string(value)})
}

// LogField notes a text under a name.
func (LogFields) LogField(name, text string) {
	add(abi.OpLogField, &arg{name: name, text: text})
}

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
	add(abi.OpSetPrincipal, &arg{raw: string(b)})
}

func appendString(b []byte, field int, s string) []byte {
	if s == "" {
		return b
	}
	return abi.AppendString(b, field, s)
}
