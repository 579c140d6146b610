package source

import (
	"bytes"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Plain is what a person says who has MCP servers and wants one URL in front of
// them.
type Plain struct {
	Name     string // of the server that clients connect to
	Backends []PlainBackend
	Issuer   string // of the OIDC tokens that clients bring; "" lets everybody in
	Audience string // that the tokens must have; needed with Issuer
}

// PlainBackend is an MCP server by its URL.
type PlainBackend struct {
	Name   string // of the kind that Kubernetes takes, at most 63 bytes
	URL    string // http or https
	Bearer bool   // it wants a bearer token, from the secret of its name under the key token
}

// Manifest is the set that serves it, as YAML with comments. It is made of what
// is said alone; whether that is right is seen when the set is compiled.
func (p Plain) Manifest() []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	document := func(comment, kind, name string) {
		if b.Len() > 0 {
			line("---")
		}
		line("%s", comment)
		line("apiVersion: weir.dev/v1beta1\nkind: %s\nmetadata: {name: %s}", kind, word(name))
	}

	// 1. The backends.
	document("# The MCP servers that belong together. Each says below that it is one of them.", "MCPGroup", p.Name)
	for _, k := range p.Backends {
		document("# An MCP server. Its tools are offered at the one URL.", "MCPServerEntry", k.Name)
		line("spec:\n  groupRef: {name: %s}\n  remoteUrl: %s", word(p.Name), strconv.Quote(k.URL))
		if u, err := url.Parse(k.URL); err == nil {
			line("  transport: %s", transportOf(u))
			if private(u.Hostname()) {
				line("  allowPrivateEndpoint: true # it is at an address that only this network knows")
			}
		}
		if k.Bearer {
			line("  externalAuthConfigRef: {name: %s}", word(k.Name))
			document("# Its credential, from WEIR_SECRET_<NAME>_TOKEN or the file NAME/token below --secrets-dir.", "MCPExternalAuthConfig", k.Name)
			line("spec:\n  type: bearerToken\n  bearerToken:\n    tokenSecretRef: {name: %s, key: token}", word(k.Name))
		}
	}

	// 2. The server.
	if p.Issuer != "" {
		document("# Who issues the tokens that clients bring.", "MCPOIDCConfig", p.Name)
		line("spec:\n  type: inline\n  inline:\n    issuer: %s", strconv.Quote(p.Issuer))
	}
	document("# What clients connect to.", "VirtualMCPServer", p.Name)
	line("spec:\n  groupRef: {name: %s}", word(p.Name))
	if p.Issuer != "" {
		line("  incomingAuth:\n    type: oidc\n    oidcConfigRef: {name: %s, audience: %s}", word(p.Name), strconv.Quote(p.Audience))
	} else {
		line("  incomingAuth: {type: anonymous} # whoever reaches the address; oidc asks for tokens")
	}
	line("  config:\n    aggregation:")
	if len(p.Backends) == 1 {
		line("      conflictResolution: priority # tools keep their names")
		line("      conflictResolutionConfig: {priorityOrder: [%s]}", word(p.Backends[0].Name))
	} else {
		line("      conflictResolution: prefix # the tool search of wiki is called wiki_search")
		line("    operational:\n      failureHandling: {partialFailureMode: best_effort} # a server that is away costs the others nothing")
	}
	return b.Bytes()
}

// word is a name as YAML, in quotes where it may be read as something else.
func word(name string) string {
	plain := name != "" && name[0] >= 'a' && name[0] <= 'z'
	switch name {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		plain = false
	}
	if plain {
		return name
	}
	return strconv.Quote(name)
}

// OpenPlain compiles it.
func OpenPlain(p Plain, options ...Option) *Result {
	s, _ := Read("(command line)", p.Manifest())
	for _, o := range options {
		o(s)
	}
	return s.Compile()
}

// transportOf is the transport of the MCP server at a URL, by the custom that
// the older one, HTTP with SSE, has a path that ends in /sse.
func transportOf(u *url.URL) string {
	if strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/sse") {
		return "sse"
	}
	return "streamable-http"
}

// private reports whether a host is said to be one of a network of its own: by
// its address, or by a name that no public name server knows.
func private(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		addr = addr.Unmap()
		return addr.IsLoopback() || addr.IsPrivate()
	}
	if !strings.Contains(host, ".") {
		return true
	}
	for _, suffix := range []string{".localhost", ".local", ".internal", ".lan", ".home.arpa", ".svc"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}
