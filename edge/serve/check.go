package serve

import (
	"errors"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/session"
)

// Which era a message is of, and whether its header and its body agree.

// era decides the era of a message by its body, then by its header.
func era(m *mcp.Message, req *request) mcp.Era {
	if m.Meta(mcp.MetaVersion).OK() {
		return mcp.Modern
	}
	return headEra(req)
}

// headEra decides by the header alone.
func headEra(req *request) mcp.Era {
	if string(req.version) == mcp.V2607 {
		return mcp.Modern
	}
	if req.hasVersion && !req.hasSession && !mcp.LegacyVersion(string(req.version)) {
		return mcp.Modern
	}
	return mcp.Legacy
}

// checkModern compares a modern message with its header and its own _meta, and returns the
// name of the thing that it asks for, if any (2026-07-28, basic/transports/streamable-http,
// header validation).
func checkModern(m *mcp.Message, req *request) (name string, err error) {
	version := m.Meta(mcp.MetaVersion)
	if m.Kind == mcp.Result || m.Kind == mcp.Failure {
		return "", edge.Errorf(edge.Invalid, "check", "a client of %s sends no answers", mcp.V2607)
	}
	if m.Kind == mcp.Request && !version.OK() {
		if !mcp.MethodOf(m.Method).In(mcp.Modern) {
			return "", route.ErrNoMethod(m)
		}
		if string(req.version) != mcp.V2607 {
			return "", badVersion(string(req.version))
		}
		return "", edge.Errorf(edge.Params, "check", "params._meta lacks %s", mcp.MetaVersion)
	}
	if !req.hasVersion || version.OK() && !m.MetaSays(mcp.MetaVersion, string(req.version)) {
		return "", mismatch(mcp.HeaderVersion, string(req.version), m.MetaText(mcp.MetaVersion))
	}
	if string(req.version) != mcp.V2607 {
		return "", badVersion(string(req.version))
	}
	if !req.hasMethod && m.Kind == mcp.Request || req.hasMethod && string(req.method) != m.Method {
		return "", mismatch(mcp.HeaderMethod, string(req.method), m.Method)
	}
	info := mcp.MethodOf(m.Method)
	if len(m.Raw) > session.MaxSaid { // else there is no need to look
		info, caps := m.Meta(mcp.MetaClientInfo), m.Meta(mcp.MetaCapabilities)
		if err := session.ErrSaidMuch(mcp.MetaClientInfo+" and "+mcp.MetaCapabilities+" in params._meta", len(info.Of(m.Raw)), len(caps.Of(m.Raw))); err != nil {
			return "", err
		}
	}
	if m.Kind == mcp.Notification {
		return "", nil
	}
	if !info.In(mcp.Modern) {
		return "", route.ErrNoMethod(m)
	}
	if caps := m.Meta(mcp.MetaCapabilities); !caps.OK() || m.Raw[caps.Start] != '{' {
		return "", edge.Errorf(edge.Params, "check", "params._meta lacks %s, an object", mcp.MetaCapabilities)
	}
	if info.Target != "" {
		target := m.Get(info.Target)
		if !target.OK() || m.Raw[target.Start] != '"' {
			return "", edge.Errorf(edge.Params, "check", "params.%s is not a string", info.Target)
		}
		name = m.Text(info.Target)
		if !req.hasName {
			return "", mismatch(mcp.HeaderName, "", name)
		}
		if string(req.name) != name || strings.HasPrefix(name, "=?base64?") {
			if said, err := mcp.DecodeHeader(string(req.name)); err != nil || said != name {
				return "", mismatch(mcp.HeaderName, string(req.name), name)
			}
		}
	}
	if level := m.Meta(mcp.MetaLogLevel); level.OK() && !mcp.LogLevel(mcp.String(level.Of(m.Raw))) {
		return "", edge.Errorf(edge.Params, "check", "params._meta.%s is no log level", mcp.MetaLogLevel)
	}
	for i, p := range req.params {
		if slices.ContainsFunc(req.params[:i], func(h edge.Header) bool { return strings.EqualFold(h.Name, p.Name) }) {
			return "", edge.Errorf(edge.Mismatch, "check", "header %s is there twice", p.Name)
		}
		if _, err := mcp.DecodeHeader(p.Value); err != nil {
			return "", &edge.Error{Kind: edge.Mismatch, Op: "check", Err: errors.New(p.Name + " has " + err.Error())}
		}
	}
	return name, nil
}

func badVersion(requested string) error {
	data := []byte(`{"supported":[`)
	for i, v := range mcp.Versions() {
		if i > 0 {
			data = append(data, ',')
		}
		data = mcp.AppendString(data, v)
	}
	data = mcp.AppendString(append(data, `],"requested":`...), edge.Printable(requested))
	return &edge.Error{Kind: edge.Version, Op: "check", Data: append(data, '}'),
		Err: errors.New("unsupported protocol version; supported are 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05")}
}

func mismatch(header, headerValue, bodyValue string) error {
	data := mcp.AppendString([]byte(`{"header":`), header)
	data = mcp.AppendString(append(data, `,"headerValue":`...), edge.Printable(headerValue))
	data = mcp.AppendString(append(data, `,"bodyValue":`...), edge.Printable(bodyValue))
	text := "header " + header + " does not match the body"
	if headerValue == "" {
		text = "header " + header + " is missing"
	}
	return &edge.Error{Kind: edge.Mismatch, Op: "check", Data: append(data, '}'), Err: errors.New(text)}
}
