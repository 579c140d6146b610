package plugin

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/filters/guest"
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
	From      string            `json:"from,omitempty"` // client or server

	Attrs map[string]json.RawMessage `json:"attrs,omitempty"` // what filters said of the client

	// Verbatim are JSON texts by the names of fields above. They are handed over
	// as they are written, with the spaces and escapes that YAML would not keep.
	Verbatim map[string]string `json:"verbatim,omitempty"`
}

// verbatim puts the texts of Verbatim, which stand at a path, into their fields.
func (in *Input) verbatim(path string, d *source.Document) {
	for _, name := range slices.Sorted(maps.Keys(in.Verbatim)) {
		text := in.Verbatim[name]
		fields := map[string]*json.RawMessage{
			"requestId": &in.RequestID, "arguments": &in.Arguments, "result": &in.Result, "error": &in.Error, "claims": &in.Claims, "event": &in.Event,
		}
		to := fields[name]
		if to == nil {
			d.Fault(path+"."+name, "it is no field with JSON text%s", meant(name, slices.Sorted(maps.Keys(fields))))
			continue
		}
		if err := mcp.Valid([]byte(text)); err != nil {
			d.Fault(path+"."+name, "not JSON: %v", err)
			continue
		}
		*to = json.RawMessage(text)
	}
}

// asked is an input as the edge judges answers to it.
func (in *Input) asked(hook abi.Hook, grants []string, version uint32) *guest.Asked {
	q := &guest.Asked{Version: version, Hook: hook, Tool: in.Tool, Arguments: in.Arguments, Result: in.Result, Failed: in.Error != nil, Grants: grants, Method: in.Method}
	for _, item := range in.Items {
		if item.JSON == nil {
			item.JSON = json.RawMessage("{}")
		}
		q.Items = append(q.Items, item.JSON)
	}
	for name, value := range in.Attrs {
		q.Attributes = q.Attributes.Set(name, string(value))
	}
	if p := in.Principal; p != nil && p.Subject != "" {
		q.Identity = &edge.Identity{Subject: p.Subject, Issuer: p.Issuer}
	}
	return q
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
	claims   []string
	inline   uint64
	varies   uint8
	keep     uint64 // milliseconds that its answer is kept for others; 0 for not
}

// wants says whether a guest is asked about an input, and what it sees of it:
// the subscriptions to a hook count as one, of which one has to match.
func wants(asked []wasm.Subscription, hook abi.Hook, in *Input) (w wanted, matched bool) {
	first := true
	for _, s := range asked {
		if s.Hook != hook {
			continue
		}
		if first || s.InlineLimit == 0 || w.inline != 0 && s.InlineLimit > w.inline {
			w.inline = s.InlineLimit // 0 is the host's limit, and the largest
		}
		if ms := uint64(s.Cache.Milliseconds()); first || ms < w.keep {
			w.keep = ms
		}
		w.varies = max(w.varies, s.VariesBy)
		first = false
		if s.Fields == 0 {
			w.fields = ^uint64(0)
		}
		w.fields |= s.Fields
		w.headers = append(w.headers, s.Headers...)
		w.pointers = append(w.pointers, s.Pointers...)
		w.claims = append(w.claims, s.Claims...)
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

// senders are who sends what passes beside a call, by name.
var senders = map[string]uint64{"client": abi.FromClient, "server": abi.FromServer}

// record encodes an input for a guest.
func (in *Input) record(hook abi.Hook, w wanted) []byte {
	switch hook {
	case abi.OverrideTools, abi.OverridePrompts, abi.OverrideResources:
		in = in.shared(w.varies)
	case abi.OutgoingAuth:
		if w.keep > 0 {
			in = in.shared(w.varies)
		}
	}
	say := abi.Input{
		Tool: []byte(in.Tool), Backend: in.Backend, Session: []byte(in.Session), Method: in.Method, RequestID: in.RequestID,
		Result: in.Result, Error: in.Error, Carry: []byte(in.Carry), Status: in.Status, Path: in.Path,
		Issuer: in.Issuer, Event: in.Event, Now: in.Now, From: senders[in.From],
	}
	if p := in.Principal; p != nil {
		who := abi.Principal{Subject: p.Subject, Tenant: p.Tenant, Issuer: p.Issuer, Groups: p.Groups, Roles: p.Roles, Scopes: p.Scopes}
		say.Principal = who.Append(nil)
	}
	names := slices.Sorted(maps.Keys(in.Headers))
	for _, name := range names {
		if lower := strings.ToLower(name); slices.Contains(w.headers, lower) {
			say.Headers = append(say.Headers, abi.Header{Name: lower, Value: in.Headers[name]})
		}
	}
	if w.inline == 0 || uint64(len(in.Arguments)) <= w.inline {
		say.Arguments = in.Arguments
	}
	of := in.Arguments
	if hook == abi.OnCallResponse || len(of) == 0 || hook == abi.OnQuestion && (in.Result != nil || in.Error != nil) {
		of = in.Result
	}
	if hook == abi.OnEvent {
		of = in.Event
	}
	for _, p := range w.pointers {
		say.Selected = append(say.Selected, at(of, p))
	}
	if hook == abi.MapIdentity {
		say.Claims = in.Claims
	}
	for _, p := range w.claims {
		say.ClaimValues = append(say.ClaimValues, at(in.Claims, p))
	}
	for _, name := range slices.Sorted(maps.Keys(in.Attrs)) {
		say.Attrs = append(say.Attrs, abi.Attr{Name: name, JSON: string(in.Attrs[name])})
	}
	for _, item := range in.Items {
		say.Items = append(say.Items, abi.Item{Name: item.Name, Backend: item.Backend, JSON: item.JSON})
	}
	return say.Append(nil, w.fields)
}

// shared is what a guest sees whose answer is kept for all clients that VariesBy puts together.
func (in *Input) shared(varies uint8) *Input {
	out := &Input{Backend: in.Backend, Items: in.Items, Now: in.Now}
	if p := in.Principal; p != nil && varies != abi.VariesByNone {
		out.Principal = &Principal{Tenant: p.Tenant}
		if varies >= abi.VariesByGroups {
			out.Principal.Groups, out.Principal.Roles = p.Groups, p.Roles
		}
		if varies >= abi.VariesBySubject {
			out.Principal.Subject, out.Principal.Issuer = p.Subject, p.Issuer
		}
	}
	return out
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
