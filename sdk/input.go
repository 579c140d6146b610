package weir

import (
	"iter"
	"strings"
	"unsafe"

	"github.com/weir-edge/weir/sdk/abi"
)

// View is text of the input, without a copy. It is valid until the function
// of the hook returns; String makes a copy that stays.
type View struct{ b []byte }

// String returns a copy.
func (v View) String() string { return string(v.b) }

// Is says whether the text is s.
func (v View) Is(s string) bool { return string(v.b) == s }

// Empty says whether there is no text.
func (v View) Empty() bool { return len(v.b) == 0 }

// Len is the length in bytes.
func (v View) Len() int { return len(v.b) }

// HasPrefix says whether the text begins with s.
func (v View) HasPrefix(s string) bool { return len(v.b) >= len(s) && string(v.b[:len(s)]) == s }

// HasSuffix says whether the text ends with s.
func (v View) HasSuffix(s string) bool {
	return len(v.b) >= len(s) && string(v.b[len(v.b)-len(s):]) == s
}

// Contains says whether s is a part of the text.
func (v View) Contains(s string) bool {
	return len(s) == 0 || len(v.b) > 0 && strings.Contains(unsafe.String(&v.b[0], len(v.b)), s) // which lives no longer than the call
}

// Matches says whether a pattern, in which * stands for any characters,
// matches all of the text.
func (v View) Matches(pattern string) bool { return glob(pattern, v.b) }

// Bytes returns the text itself, to be read, until the function of the hook
// returns.
func (v View) Bytes() []byte { return v.b[:len(v.b):len(v.b)] }

func data(field int) []byte {
	c := &call
	if c.has>>field&1 == 0 {
		return nil
	}
	at := c.field[field]
	return c.record[at.from:at.to]
}

func text(field int) View   { return View{data(field)} }
func value(field int) Value { return Value{data(field)} }
func who() Principal        { return Principal{data(abi.CallPrincipal)} }

// Principal is who a client is. It is valid until the function of the hook
// returns.
type Principal struct{ record []byte }

// Known says whether there is one: false for an anonymous client.
func (p Principal) Known() bool { return len(p.record) > 0 }

// Subject identifies the client at its issuer.
func (p Principal) Subject() View { return View{p.first(abi.PrincipalSubject)} }

// Tenant that the client belongs to.
func (p Principal) Tenant() View { return View{p.first(abi.PrincipalTenant)} }

// Issuer of the client's token.
func (p Principal) Issuer() View { return View{p.first(abi.PrincipalIssuer)} }

// InGroup says whether the client is in a group.
func (p Principal) InGroup(name string) bool { return p.has(abi.PrincipalGroup, name) }

// HasRole says whether the client has a role.
func (p Principal) HasRole(name string) bool { return p.has(abi.PrincipalRole, name) }

// HasScope says whether the client's token has a scope.
func (p Principal) HasScope(name string) bool { return p.has(abi.PrincipalScope, name) }

// Groups of the client.
func (p Principal) Groups() iter.Seq[View] { return p.all(abi.PrincipalGroup) }

// Roles of the client.
func (p Principal) Roles() iter.Seq[View] { return p.all(abi.PrincipalRole) }

// Scopes of the client's token.
func (p Principal) Scopes() iter.Seq[View] { return p.all(abi.PrincipalScope) }

func (p Principal) first(field int) []byte {
	return first(p.record, field)
}

func (p Principal) has(field int, name string) bool {
	b := p.record
	for short(b) {
		n := 2 + int(b[1])
		if int(b[0]>>3) == field && string(b[2:n]) == name {
			return true
		}
		b = b[n:]
	}
	r := reader{b: b}
	for r.next() {
		if r.field == field && string(r.data()) == name {
			return true
		}
	}
	return false
}

func (p Principal) all(field int) iter.Seq[View] {
	return func(yield func(View) bool) {
		r := reader{b: p.record}
		for r.next() {
			if r.field == field && !yield(View{r.data()}) {
				return
			}
		}
	}
}

// Item is a tool, a prompt or a resource of a backend.
type Item struct {
	record []byte
	index  uint64
}

// Name is the backend's name for it.
func (i Item) Name() View { return View{first(i.record, abi.ItemName)} }

// Backend that has it.
func (i Item) Backend() View { return View{first(i.record, abi.ItemBackend)} }

// JSON is what the backend says of it: an object with name, description,
// inputSchema and so on.
func (i Item) JSON() Value { return Value{first(i.record, abi.ItemJSON)} }

// What inputs of several hooks have in common.
type (
	// Request is the message, and who sent it.
	Request struct{}
	// HTTP is the HTTP request that a message came in.
	HTTP struct{}
)

// Tool is the name that the client uses.
func (Request) Tool() View { return text(abi.CallTool) }

// Backend that the message is for.
func (Request) Backend() View { return text(abi.CallBackend) }

// Session is an opaque key of the client's session, empty without one.
func (Request) Session() View { return text(abi.CallSession) }

// Method of the message, such as tools/call.
func (Request) Method() View { return text(abi.CallMethod) }

// ID of the message.
func (Request) ID() Value { return value(abi.CallRequestID) }

// Principal is who sent the message.
func (Request) Principal() Principal { return who() }

// Header returns the first value of a header that was asked for with the
// option Headers. The name is in lower case.
func (Request) Header(name string) View { return header(name) }

// Attr returns what a filter said of the client under a name with SetAttr, which no
// token can say. It does not exist where none did.
func (Request) Attr(name string) Value { return attr(name) }

// Now is the time, in milliseconds since 1970 UTC.
func (Request) Now() uint64 { return call.now }

// Method is the HTTP method, where the host tells it.
func (HTTP) Method() View { return text(abi.CallMethod) }

// Path of the request, without its query.
func (HTTP) Path() View { return text(abi.CallPath) }

// Session is an opaque key of the client's session, empty where none is known.
func (HTTP) Session() View { return text(abi.CallSession) }

// Header returns the first value of a header that was asked for with the
// option Headers. The name is in lower case.
func (HTTP) Header(name string) View { return header(name) }

// Attr returns what a filter said of the client under a name with SetAttr, as far as
// it is known here. It does not exist where none did.
func (HTTP) Attr(name string) Value { return attr(name) }

// Now is the time, in milliseconds since 1970 UTC.
func (HTTP) Now() uint64 { return call.now }

func header(name string) View {
	r := reader{b: call.record}
	for r.next() {
		if r.field == abi.CallHeader && string(first(r.data(), abi.HeaderName)) == name {
			return View{first(r.data(), abi.HeaderValue)}
		}
	}
	return View{}
}

func attr(name string) Value {
	r := reader{b: call.record}
	for r.next() {
		if r.field == abi.CallAttr && string(first(r.data(), abi.AttrName)) == name {
			return Value{first(r.data(), abi.AttrJSON)}
		}
	}
	return Value{}
}

// claim returns the value at pointer i of the option Claims. It does not exist
// where the client has no such claim.
func claim(i int) Value {
	if i < 0 || i >= call.claims {
		return Value{}
	}
	r, at := reader{b: call.record}, call.claimBase+i
	for r.next() {
		if r.field != abi.CallClaim {
			continue
		}
		if at == 0 {
			return Value{r.data()}
		}
		at--
	}
	return Value{}
}

// selected returns the value at pointer i of the option Pointers. It does not
// exist where the arguments, or the result, have nothing there.
func selected(i int) Value {
	if i < 0 || i >= call.pointers || call.base+i >= len(call.selected) {
		return Value{}
	}
	at := call.selected[call.base+i]
	return Value{call.record[at.from:at.to]}
}
