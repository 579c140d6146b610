package mcp

import "slices"

// Caller is what a legacy client says once, when its session begins, and a
// modern one with every request.
type Caller struct {
	Info         []byte // JSON text of clientInfo; nil when unknown
	Capabilities []byte // JSON text of the client's capabilities; nil for none
	LogLevel     string // "" for no log messages
}

// Members returns the members of _meta that a modern request carries for the
// caller.
func (c Caller) Members() []Member {
	caps := c.Capabilities
	if caps == nil {
		caps = ofCapabilities.Value
	}
	out := append(make([]Member, 0, 4), ofVersion, Member{Name: ofCapabilities.Name, Value: caps})
	if c.Info != nil {
		out = append(out, Raw(MetaClientInfo, c.Info))
	}
	if c.LogLevel != "" {
		out = append(out, Raw(MetaLogLevel, Quote(c.LogLevel)))
	}
	return out
}

// What every modern request has.
var ofVersion, ofCapabilities = With(MetaVersion, `"`+V2607+`"`), With(MetaCapabilities, "{}")

// ToModern appends a legacy request or notification as a modern one.
func ToModern(dst []byte, m *Message, c Caller) []byte {
	return Splice(dst, m.Raw, m.WithMeta([]string{MetaLogLevel, MetaClientInfo}, c.Members()...))
}

// ToLegacy appends a modern request as a legacy one with the id and, when the
// request has a progress token, with the token in its place.
func ToLegacy(dst []byte, m *Message, id, token []byte) []byte {
	edits := append(make([]Edit, 0, 4), m.WithID(id))
	var set []Member
	if m.Meta("progressToken").OK() {
		set = append(set, Raw("progressToken", token))
	}
	edits = append(edits, m.WithMeta([]string{MetaVersion, MetaClientInfo, MetaCapabilities, MetaLogLevel}, set...))
	return Splice(dst, m.Raw, append(edits, m.without("inputResponses", "requestState")...)...)
}

// ofComplete is the resultType of a legacy result.
var ofComplete = []byte(`"complete"`)

// ResultToModern appends a legacy answer to the method as a modern one with
// the id: results say that they are complete, cacheable ones that they are
// stale at once and private (2026-07-28, basic, resultType; server/utilities/
// caching), and codes that the modern era gave up are replaced.
func ResultToModern(dst []byte, m *Message, method string, id []byte) []byte {
	edits := append(make([]Edit, 0, 2), m.identity(id))
	switch {
	case m.Kind == Failure && m.Code() == CodeResourceNotFound:
		edits = append(edits, Edit{m.Get("code"), []byte("-32602")})
	case m.Kind == Failure && m.Code() == CodeURLElicitation:
		edits = append(edits, Edit{m.Get("code"), []byte("-32603")})
	case m.Kind == Result && m.Raw[m.Result.Start] == '{':
		var set []byte
		if kind := m.Get("resultType"); !kind.OK() {
			set = append(set, `"resultType":"complete",`...)
		} else if !m.Says("resultType", "complete") { // the legacy era has no other, and nothing was checked as one
			edits = append(edits, Edit{kind, ofComplete})
		}
		if MethodOf(method).Cacheable {
			if !m.Get("ttlMs").OK() {
				set = append(set, `"ttlMs":0,`...)
			}
			if !m.Get("cacheScope").OK() {
				set = append(set, `"cacheScope":"private",`...)
			}
		}
		if m.n == 0 && len(set) > 0 {
			set = set[:len(set)-1]
		}
		at := m.Result.Start + 1
		edits = append(edits, Edit{Span{at, at}, set})
	}
	return Splice(dst, m.Raw, edits...)
}

// ResultToLegacy appends a modern answer to the method as a legacy one with
// the id: what only the modern era defines goes, the rest keeps its bytes.
func ResultToLegacy(dst []byte, m *Message, method string, id []byte) []byte {
	edits := append(make([]Edit, 0, 4), m.identity(id))
	if m.Kind == Failure {
		switch m.Code() {
		case CodeHeaderMismatch, CodeMissingCapability, CodeVersion:
			edits = append(edits, Edit{m.Get("code"), []byte("-32600")})
		}
		return Splice(dst, m.Raw, edits...)
	}
	if m.Raw[m.Result.Start] != '{' {
		return Splice(dst, m.Raw, edits...)
	}
	drop := []string{"resultType"}
	if MethodOf(method).Cacheable {
		drop = append(drop, "ttlMs", "cacheScope")
	}
	if v := m.Get("structuredContent"); method == "tools/call" && v.OK() && m.Raw[v.Start] != '{' {
		drop = append(drop, "structuredContent") // an object in the legacy era (2025-06-18, schema)
	}
	if m.Meta(MetaServerInfo).OK() {
		if meta := m.Get("_meta"); len(Members(meta.Of(m.Raw))) == 1 {
			drop = append(drop, "_meta")
		} else {
			edits = append(edits, Edit{meta, Change(meta.Of(m.Raw), []string{MetaServerInfo})})
		}
	}
	if tools := m.Get("tools"); method == "tools/list" && tools.OK() {
		if text := objectOutputs(tools.Of(m.Raw)); text != nil {
			edits = append(edits, Edit{tools, text})
		}
	}
	return Splice(dst, m.Raw, append(edits, m.without(drop...)...)...)
}

// CallToLegacy returns the result of a tool call, JSON text of an object, as a legacy one.
func CallToLegacy(result []byte) []byte {
	var drop []string
	if String(Lookup(result, "resultType")) == "complete" {
		drop = append(drop, "resultType")
	}
	if v := Lookup(result, "structuredContent"); len(v) > 0 && v[0] != '{' {
		drop = append(drop, "structuredContent")
	}
	if drop == nil {
		return result
	}
	return Change(result, drop)
}

// objectOutputs takes the output schemas that do not describe objects from a
// list of tools: legacy clients refuse a whole list for one of them
// (2025-11-25, schema, Tool.outputSchema). It returns nil when there is none.
func objectOutputs(tools []byte) []byte {
	var edits []Edit
	for _, tool := range elementSpans(tools) {
		text := tool.Of(tools)
		out := Lookup(text, "outputSchema")
		if out == nil || String(Lookup(out, "type")) == "object" {
			continue
		}
		edits = append(edits, Edit{tool, Change(text, []string{"outputSchema"})})
	}
	if edits == nil {
		return nil
	}
	return Splice(nil, tools, edits...)
}

func elementSpans(array []byte) []Span {
	var out []Span
	each(array, '[', func(s *scanner) error {
		from := s.i
		err := s.value()
		out = append(out, Span{uint32(from), uint32(s.i)})
		return err
	})
	return out
}

// identity is WithID, or no edit when the message has no id to replace.
func (m *Message) identity(id []byte) Edit {
	if !m.ID.OK() || id == nil {
		return Edit{}
	}
	return m.WithID(id)
}

// Retokened appends a progress notification with another token in the place of
// its own.
func Retokened(dst []byte, m *Message, token []byte) []byte {
	at := m.Get("progressToken")
	if !at.OK() {
		return append(dst, m.Raw...)
	}
	return Splice(dst, m.Raw, Edit{at, token})
}

// ServerCapabilities returns what a server of one era offers in the words of
// the other: what both eras have keeps its bytes.
func ServerCapabilities(caps []byte, from, to Era) []byte {
	if len(caps) == 0 || caps[0] != '{' {
		return []byte("{}")
	}
	switch {
	case from == to:
		return caps
	case to == Legacy:
		return Change(caps, []string{"extensions"})
	}
	return Change(caps, []string{"tasks"})
}

// Initialized returns the result of initialize (2025-11-25, basic/lifecycle).
// capabilities, info and instructions are JSON text; instructions may be nil.
func Initialized(version string, capabilities, info, instructions []byte) []byte {
	out := AppendString([]byte(`{"protocolVersion":`), version)
	out = append(append(out, `,"capabilities":`...), capabilities...)
	out = append(append(out, `,"serverInfo":`...), info...)
	if instructions != nil {
		out = append(append(out, `,"instructions":`...), instructions...)
	}
	return append(out, '}')
}

// Discovered returns the result of server/discover (2026-07-28, server/discover).
// capabilities, info and instructions are JSON text; instructions may be nil.
func Discovered(capabilities, info, instructions []byte) []byte {
	out := []byte(`{"resultType":"complete","supportedVersions":[`)
	for i, v := range Versions() {
		if i > 0 {
			out = append(out, ',')
		}
		out = AppendString(out, v)
	}
	out = append(append(out, `],"capabilities":`...), capabilities...)
	if instructions != nil {
		out = append(append(out, `,"instructions":`...), instructions...)
	}
	out = append(out, `,"ttlMs":0,"cacheScope":"private","_meta":{"`+MetaServerInfo+`":`...)
	return append(append(out, info...), '}', '}')
}

// Relayable returns the part of a client's capabilities that an edge declares
// to a backend: those in keep, which it is able to relay.
func Relayable(caps []byte, keep ...string) []byte {
	out := []byte{'{'}
	for _, m := range Members(caps) {
		if !slices.ContainsFunc(keep, func(name string) bool { return reads(m.Name, name) }) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, m.whole.Of(caps)...)
	}
	return append(out, '}')
}
