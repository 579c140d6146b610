package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// Input is what a hook is asked about, as fixtures write it. What a guest did
// not subscribe to is left out when it is handed over, and what it selects is
// taken out of the arguments or the result, as the edge does.
type Input struct {
	Tool      string            `json:"tool,omitempty"`
	Backend   string            `json:"backend,omitempty"`
	Session   string            `json:"session,omitempty"`
	Method    string            `json:"method,omitempty"` // tools/call in hooks of calls
	RequestID json.RawMessage   `json:"requestId,omitempty"`
	Principal *Principal        `json:"principal,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Arguments json.RawMessage   `json:"arguments,omitempty"`
	Now       uint64            `json:"now,omitempty"` // milliseconds since 1970
	Result    json.RawMessage   `json:"result,omitempty"`
	Error     json.RawMessage   `json:"error,omitempty"`
	Items     []Item            `json:"items,omitempty"`
	Claims    json.RawMessage   `json:"claims,omitempty"`
	Carry     string            `json:"carry,omitempty"`
	Status    uint64            `json:"status,omitempty"`
	Path      string            `json:"path,omitempty"`
	Issuer    string            `json:"issuer,omitempty"`
	Event     json.RawMessage   `json:"event,omitempty"`

	// Verbatim are JSON texts by the names of fields above. They are handed over
	// as they are written, with the spaces and escapes that YAML would not keep.
	Verbatim map[string]string `json:"verbatim,omitempty"`
}

// verbatim puts the texts of Verbatim into their fields.
func (in *Input) verbatim() error {
	for name, text := range in.Verbatim {
		to := map[string]*json.RawMessage{
			"requestId": &in.RequestID, "arguments": &in.Arguments, "result": &in.Result, "error": &in.Error, "claims": &in.Claims, "event": &in.Event,
		}[name]
		if to == nil {
			return fmt.Errorf(".%s: it is no field with JSON text", name)
		}
		if err := mcp.Valid([]byte(text)); err != nil {
			return fmt.Errorf(".%s: %w", name, err)
		}
		*to = json.RawMessage(text)
	}
	return nil
}

// Principal is who a client is.
type Principal struct {
	Subject string   `json:"subject,omitempty"`
	Tenant  string   `json:"tenant,omitempty"`
	Groups  []string `json:"groups,omitempty"`
	Roles   []string `json:"roles,omitempty"`
	Scopes  []string `json:"scopes,omitempty"`
	Issuer  string   `json:"issuer,omitempty"`
}

// Item is a tool, prompt or resource of a backend.
type Item struct {
	Name    string          `json:"name"`
	Backend string          `json:"backend,omitempty"`
	JSON    json.RawMessage `json:"json,omitempty"`
}

// wanted is what the subscriptions that match an input ask for.
type wanted struct {
	fields   uint64
	headers  []string
	pointers []string
	inline   uint64
}

// wants says whether a guest is asked about an input, and what it sees of it:
// the subscriptions to a hook count as one, of which one has to match.
func wants(asked []wasm.Subscription, hook abi.Hook, in *Input) (w wanted, matched bool) {
	for _, s := range asked {
		if s.Hook != hook {
			continue
		}
		if s.Fields == 0 {
			w.fields = ^uint64(0)
		}
		w.fields |= s.Fields
		w.headers = append(w.headers, s.Headers...)
		w.pointers = append(w.pointers, s.Pointers...)
		w.inline = max(w.inline, s.InlineLimit)
		matched = matched || anyGlob(s.Tools, in.Tool) && anyGlob(s.Backends, in.Backend) && anyGlob(s.Methods, in.Method)
	}
	return w, matched
}

// anyGlob says whether one of the globs matches. A hook without such a name in
// its input is asked whatever the globs are.
func anyGlob(globs []string, name string) bool {
	return len(globs) == 0 || name == "" || slices.ContainsFunc(globs, func(g string) bool { return glob(g, name) })
}

// glob says whether a pattern, in which * stands for any characters, matches
// all of a name.
func glob(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

// record encodes an input for a guest.
func (in *Input) record(hook abi.Hook, w wanted) []byte {
	var b []byte
	has := func(field int) bool { return w.fields>>field&1 == 1 }
	text := func(field int, s string) {
		if s != "" && has(field) {
			b = abi.AppendString(b, field, s)
		}
	}
	text(abi.CallTool, in.Tool)
	text(abi.CallBackend, in.Backend)
	text(abi.CallSession, in.Session)
	text(abi.CallMethod, in.Method)
	text(abi.CallRequestID, string(in.RequestID))
	if p := in.Principal; p != nil && has(abi.CallPrincipal) {
		b = abi.AppendBytes(b, abi.CallPrincipal, p.record())
	}
	if has(abi.CallHeader) {
		names := make([]string, 0, len(in.Headers))
		for name := range in.Headers {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			if lower := strings.ToLower(name); slices.Contains(w.headers, lower) {
				h := abi.AppendString(nil, abi.HeaderName, lower)
				b = abi.AppendBytes(b, abi.CallHeader, abi.AppendString(h, abi.HeaderValue, in.Headers[name]))
			}
		}
	}
	if w.inline == 0 || uint64(len(in.Arguments)) <= w.inline {
		text(abi.CallArguments, string(in.Arguments))
	}
	if has(abi.CallSelected) {
		of := in.Arguments
		if hook == abi.OnCallResponse || len(of) == 0 {
			of = in.Result
		}
		for _, p := range w.pointers {
			b = abi.AppendBytes(b, abi.CallSelected, at(of, p))
		}
	}
	if in.Now != 0 && has(abi.CallNow) {
		b = abi.AppendUint(b, abi.CallNow, in.Now)
	}
	text(abi.CallResult, string(in.Result))
	text(abi.CallError, string(in.Error))
	if has(abi.CallItem) {
		for _, item := range in.Items {
			r := abi.AppendString(nil, abi.ItemName, item.Name)
			r = abi.AppendString(r, abi.ItemBackend, item.Backend)
			b = abi.AppendBytes(b, abi.CallItem, abi.AppendBytes(r, abi.ItemJSON, item.JSON))
		}
	}
	text(abi.CallClaims, string(in.Claims))
	text(abi.CallCarry, in.Carry)
	if in.Status != 0 && has(abi.CallStatus) {
		b = abi.AppendUint(b, abi.CallStatus, in.Status)
	}
	text(abi.CallPath, in.Path)
	text(abi.CallIssuer, in.Issuer)
	text(abi.CallEvent, string(in.Event))
	return b
}

func (p *Principal) record() []byte {
	var b []byte
	text := func(field int, values ...string) {
		for _, s := range values {
			if s != "" {
				b = abi.AppendString(b, field, s)
			}
		}
	}
	text(abi.PrincipalSubject, p.Subject)
	text(abi.PrincipalTenant, p.Tenant)
	text(abi.PrincipalGroup, p.Groups...)
	text(abi.PrincipalRole, p.Roles...)
	text(abi.PrincipalScope, p.Scopes...)
	text(abi.PrincipalIssuer, p.Issuer)
	return b
}

// at returns the value of JSON text behind a pointer (RFC 6901); nil where
// there is none.
func at(value []byte, pointer string) []byte {
	if pointer == "" {
		return value
	}
	for _, token := range strings.Split(pointer[1:], "/") {
		if len(value) == 0 {
			return nil
		}
		if value[0] == '[' {
			elements := mcp.Elements(value)
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(elements) || strconv.Itoa(i) != token {
				return nil
			}
			value = elements[i]
			continue
		}
		value = mcp.Lookup(value, strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~"))
	}
	return value
}
