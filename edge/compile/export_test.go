package compile

import "slices"

// Ahead is Compile for an edge in which authorization servers are wired.
func Ahead(set Set) (*Plan, *Report) {
	return compile(set, newTables(slices.DeleteFunc(unsupportedFields(), func(u unsupported) bool {
		switch u.path {
		case "spec.authServerConfig", "spec.authServerRef", "spec.embeddedAuthServer",
			"spec.config.incomingAuth.authz.primaryUpstreamProvider", "spec.incomingAuth.authzConfig.inline.primaryUpstreamProvider", "spec.authzConfig.inline.primaryUpstreamProvider":
			return true
		}
		return u.kind == "MCPExternalAuthConfig" && u.path == "spec.type"
	})))
}
