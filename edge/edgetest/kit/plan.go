package kit

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
)

// Plan is what an edge is to serve: one server, called ServerName.
type Plan struct {
	Backends []string // addresses; they are called backend-1, backend-2 and so on
	Prefixed bool     // tools are called by their backend's name and their own; else there is one backend, served as it is
	Incoming string   // spec.incomingAuth, YAML on one line; empty for anonymous
	Before   string   // manifests that it refers to; empty for none
	Spec     string   // further YAML of the server's spec, whole lines
	Config   string   // further YAML of spec.config, whole lines
}

// ServerName is what everything in a plan is called, and the audience of the
// tokens that it takes.
const ServerName = "tools"

// PlanOf is nothing but backends.
func PlanOf(backends ...string) Plan { return Plan{Backends: backends} }

// NameOf is what a backend is called; the first is 0.
func NameOf(backend int) string { return "backend-" + strconv.Itoa(backend+1) }

// ToolOf is what a tool of a backend is called where names are prefixed.
func ToolOf(backend int, tool string) string { return NameOf(backend) + "_" + tool }

// Guarded is the plan with tokens of an issuer wanted. auth is further YAML of
// spec.incomingAuth in flow style, and oidc such of the issuer's configuration;
// each begins with a comma.
func (p Plan) Guarded(i *issuer.Issuer, auth, oidc string) Plan {
	p.Incoming = "{type: oidc, oidcConfigRef: {name: " + ServerName + ", audience: " + ServerName + "}" + auth + "}"
	p.Before += fmt.Sprintf("apiVersion: weir.dev/v1beta1\nkind: MCPOIDCConfig\nmetadata: {name: %s}\nspec: {type: inline, inline: {issuer: %q, insecureAllowHTTP: true, jwksAllowPrivateIP: true%s}}\n---\n",
		ServerName, i.URL, oidc)
	return p
}

// Through is the plan with a program that all calls go through, of a type of
// EdgeFilter. source is YAML in flow style.
func (p Plan) Through(kind, source string) Plan {
	p.Before += "apiVersion: weir.dev/v1beta1\nkind: EdgeFilter\nmetadata: {name: " + ServerName + "}\nspec: {type: " + kind + ", source: " + source + "}\n---\n"
	p.Spec += "  filterRefs: [{name: " + ServerName + "}]\n"
	return p
}

// Text is the plan as manifests.
func (p Plan) Text() string {
	incoming, resolution := "{type: anonymous}", "priority"
	if p.Incoming != "" {
		incoming = p.Incoming
	}
	if p.Prefixed {
		resolution = "prefix"
	}
	var m strings.Builder
	fmt.Fprintf(&m, `%sapiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: %[2]s}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: %[2]s}
spec:
  groupRef: {name: %[2]s}
  incomingAuth: %s
%s  config:
    aggregation: {conflictResolution: %s}
%s    backends:
`, p.Before, ServerName, incoming, p.Spec, resolution, p.Config)
	for i, addr := range p.Backends {
		fmt.Fprintf(&m, "    - {name: %s, url: http://%s/mcp, transport: streamable-http}\n", NameOf(i), addr)
	}
	return m.String()
}

// Write writes the plan into a new directory below dir, and returns the file.
func (p Plan) Write(dir string) (path string, err error) { return WriteManifest(dir, p.Text()) }

// WriteManifest writes manifests into a new directory below dir, and returns the
// file.
func WriteManifest(dir, text string) (path string, err error) {
	own, err := os.MkdirTemp(dir, "edge-")
	if err != nil {
		return "", fmt.Errorf("manifest: %w", err)
	}
	path = filepath.Join(own, "edge.yaml")
	return path, os.WriteFile(path, []byte(text), 0o600)
}
