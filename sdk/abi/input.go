package abi

// Input is the record of a message that a guest reads at a hook, before it is encoded.
// Fields are JSON text where the ABI says so. Empty ones are left out.
type Input struct {
	Tool, Session, RequestID, Arguments, Result, Error, Claims, Carry, Event []byte

	Backend, Method, Path, Issuer string

	Principal   []byte   // a record: see Principal.Append
	Headers     []Header // those that the guest subscribed to
	Selected    [][]byte // the values behind its pointers, in their order; nil for a missing one
	Items       []Item
	Attrs       []Attr
	ClaimValues [][]byte // the values of the claims that it subscribed to, likewise
	Status      uint64   // of an HTTP answer
	Now         uint64   // milliseconds since 1970

	record []byte // memory for a record inside this one
}

// Reset empties the input, and keeps the memory of its lists for another message but
// nothing of this one.
func (in *Input) Reset() {
	clear(in.Headers[:cap(in.Headers)])
	clear(in.Selected[:cap(in.Selected)])
	clear(in.Items[:cap(in.Items)])
	clear(in.Attrs[:cap(in.Attrs)])
	clear(in.ClaimValues[:cap(in.ClaimValues)])
	*in = Input{
		Headers: in.Headers[:0], Selected: in.Selected[:0], Items: in.Items[:0], Attrs: in.Attrs[:0], ClaimValues: in.ClaimValues[:0],
		record: in.record[:0],
	}
}

// Header is a header line, its name in small letters.
type Header struct{ Name, Value string }

// Item is a tool, prompt or resource of a backend.
type Item struct {
	Name, Backend string
	JSON          []byte
}

// Attr is what a program says of a principal.
type Attr struct{ Name, JSON string }

// Principal is who a client is.
type Principal struct {
	Subject, Tenant, Issuer string
	Groups, Roles, Scopes   []string
}

// Has reports whether a set of fields, a bit for the number of each, has one. No set at all
// is all of them.
func Has(fields uint64, field int) bool { return fields == 0 || fields>>field&1 == 1 }

// Append appends the record, less what is not among the fields that a guest subscribed to.
// To headers, values and claims it subscribes by their names and pointers.
func (in *Input) Append(b []byte, fields uint64) []byte {
	b = some(b, fields, CallTool, in.Tool)
	b = text(b, fields, CallBackend, in.Backend)
	b = text(b, fields, CallMethod, in.Method)
	b = some(b, fields, CallRequestID, in.RequestID)
	b = some(b, fields, CallSession, in.Session)
	b = some(b, fields, CallPrincipal, in.Principal)
	for i := range in.Headers {
		h := &in.Headers[i]
		in.record = AppendString(AppendString(in.record[:0], HeaderName, h.Name), HeaderValue, h.Value)
		b = AppendBytes(b, CallHeader, in.record)
	}
	b = some(b, fields, CallArguments, in.Arguments)
	for _, value := range in.Selected {
		b = AppendBytes(b, CallSelected, value)
	}
	b = some(b, fields, CallResult, in.Result)
	b = some(b, fields, CallError, in.Error)
	for i := range in.Items {
		if one := &in.Items[i]; Has(fields, CallItem) {
			in.record = AppendString(AppendString(in.record[:0], ItemName, one.Name), ItemBackend, one.Backend)
			in.record = AppendBytes(in.record, ItemJSON, one.JSON)
			b = AppendBytes(b, CallItem, in.record)
		}
	}
	b = some(b, fields, CallClaims, in.Claims)
	b = some(b, fields, CallCarry, in.Carry)
	b = number(b, fields, CallStatus, in.Status)
	b = text(b, fields, CallPath, in.Path)
	b = text(b, fields, CallIssuer, in.Issuer)
	b = some(b, fields, CallEvent, in.Event)
	for i := range in.Attrs {
		if one := &in.Attrs[i]; Has(fields, CallAttr) {
			in.record = AppendString(AppendString(in.record[:0], AttrName, one.Name), AttrJSON, one.JSON)
			b = AppendBytes(b, CallAttr, in.record)
		}
	}
	for _, value := range in.ClaimValues {
		b = AppendBytes(b, CallClaim, value)
	}
	return number(b, fields, CallNow, in.Now)
}

func some(b []byte, fields uint64, field int, value []byte) []byte {
	if len(value) == 0 || !Has(fields, field) {
		return b
	}
	return AppendBytes(b, field, value)
}

func text(b []byte, fields uint64, field int, value string) []byte {
	if value == "" || !Has(fields, field) {
		return b
	}
	return AppendString(b, field, value)
}

func number(b []byte, fields uint64, field int, value uint64) []byte {
	if value == 0 || !Has(fields, field) {
		return b
	}
	return AppendUint(b, field, value)
}

// Append appends the record.
func (p *Principal) Append(b []byte) []byte {
	b = text(b, 0, PrincipalSubject, p.Subject)
	b = text(b, 0, PrincipalTenant, p.Tenant)
	for _, names := range []struct {
		field int
		all   []string
	}{{PrincipalGroup, p.Groups}, {PrincipalRole, p.Roles}, {PrincipalScope, p.Scopes}} {
		for _, name := range names.all {
			b = text(b, 0, names.field, name)
		}
	}
	return text(b, 0, PrincipalIssuer, p.Issuer)
}
