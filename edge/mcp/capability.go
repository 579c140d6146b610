package mcp

// Askable returns the part of a client's capabilities that has questions in
// it, in one canonical form, so that clients that can be asked the same are
// told by the same text; nil when there is nothing that the client can be
// asked. What no revision defines is left out.
func Askable(caps []byte) []byte {
	var set []Member
	if roots := Lookup(caps, "roots"); isObject(roots) {
		set = append(set, With("roots", "{}"))
	}
	for _, kind := range []struct {
		name  string
		parts []string
	}{{"sampling", []string{"context", "tools"}}, {"elicitation", []string{"form", "url"}}} {
		v := Lookup(caps, kind.name)
		if !isObject(v) {
			continue
		}
		var parts []Member
		for _, p := range kind.parts {
			if isObject(Lookup(v, p)) {
				parts = append(parts, With(p, "{}"))
			}
		}
		set = append(set, Raw(kind.name, Change(nil, nil, parts...)))
	}
	if set == nil {
		return nil
	}
	return Change(nil, nil, set...)
}

// appsExtension is the extension by which a client says that it shows apps of servers (MCP Apps).
// Nothing of it is between a client and a server but resources and _meta, which pass as they are.
const appsExtension = "io.modelcontextprotocol/ui"

// Apps returns the part of a client's "extensions" that says which apps it shows, as it wrote
// that; nil for none.
func Apps(caps []byte) []byte {
	v := Lookup(caps, "extensions", appsExtension)
	if !isObject(v) {
		return nil
	}
	return Change(nil, nil, Raw(appsExtension, v))
}

// AppsOfHTML is what Apps returns, in one canonical form, for a client that shows apps of the one kind
// that is defined; "" stands for another client.
func AppsOfHTML(caps []byte) string {
	const kind = "text/html;profile=mcp-app"
	for _, v := range Elements(Lookup(caps, "extensions", appsExtension, "mimeTypes")) {
		if String(v) == kind {
			return `{"` + appsExtension + `":{"mimeTypes":["` + kind + `"]}}`
		}
	}
	return ""
}

// Can reports whether a client of these capabilities can be asked by the
// method with the params, the mode of an elicitation included (2025-11-25,
// client/elicitation: no mode at all stands for form).
func Can(caps []byte, method string, params []byte) bool {
	switch method {
	case "roots/list":
		return isObject(Lookup(caps, "roots"))
	case "sampling/createMessage":
		return isObject(Lookup(caps, "sampling"))
	case "elicitation/create":
		v := Lookup(caps, "elicitation")
		if !isObject(v) {
			return false
		}
		form, url := isObject(Lookup(v, "form")), isObject(Lookup(v, "url"))
		if OpensPage(method, params) {
			return url
		}
		return form || !url
	}
	return false
}

func isObject(v []byte) bool { return len(v) > 0 && v[0] == '{' }
