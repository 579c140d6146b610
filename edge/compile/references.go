package compile

// reference is a field that names an object of the same set.
type reference struct {
	kind string // of the object that refers
	path string // of the field with the name
	to   string // kind of the object that is meant

	// key is the field beside path that names a key of a ConfigMap; empty when
	// the whole object is meant.
	key string

	// usual is the key that is meant where none is given; empty for none.
	usual string

	// when is a field beside path that must have the value is for the field to
	// be a reference at all.
	when, is string
}

// references is every field that names an object whose absence can be seen. A
// SecretRef is none of them: its value may come from a directory or from the
// environment, which the part that opens it will see.
func references() []reference {
	refs := []reference{
		{kind: "VirtualMCPServer", path: "spec.groupRef.name", to: "MCPGroup"},
		{kind: "VirtualMCPServer", path: "spec.incomingAuth.oidcConfigRef.name", to: "MCPOIDCConfig"},
		{kind: "VirtualMCPServer", path: "spec.incomingAuth.authzConfigRef.name", to: "MCPAuthzConfig"},
		{kind: "VirtualMCPServer", path: "spec.incomingAuth.authzConfig.configMap.name", to: "ConfigMap", key: "key", usual: "authz.json"},
		{kind: "VirtualMCPServer", path: "spec.outgoingAuth.default.externalAuthConfigRef.name", to: "MCPExternalAuthConfig"},
		{kind: "VirtualMCPServer", path: "spec.outgoingAuth.backends{}.externalAuthConfigRef.name", to: "MCPExternalAuthConfig"},
		{kind: "VirtualMCPServer", path: "spec.embeddingServerRef.name", to: "EmbeddingServer"},
		{kind: "VirtualMCPServer", path: "spec.filterRefs[].name", to: "EdgeFilter"},
		{kind: "VirtualMCPServer", path: "spec.telemetryConfigRef.name", to: "MCPTelemetryConfig"},
		{kind: "VirtualMCPServer", path: "spec.config.filterRefs[].name", to: "EdgeFilter"},
		{kind: "VirtualMCPServer", path: "spec.config.compositeToolRefs[].name", to: "VirtualMCPCompositeToolDefinition"},
		{kind: "VirtualMCPServer", path: "spec.config.aggregation.tools[].toolConfigRef.name", to: "MCPToolConfig"},

		{kind: "MCPServerEntry", path: "spec.groupRef.name", to: "MCPGroup"},
		{kind: "MCPServerEntry", path: "spec.externalAuthConfigRef.name", to: "MCPExternalAuthConfig"},
		{kind: "MCPServerEntry", path: "spec.caBundleRef.configMapRef.name", to: "ConfigMap", key: "key"},

		{kind: "MCPServer", path: "spec.permissionProfile.name", to: "ConfigMap", key: "key", when: "type", is: "configmap"},
		{kind: "MCPServer", path: "spec.webhookConfigRef.name", to: "MCPWebhookConfig"},
		{kind: "MCPServer", path: "spec.run.webhookConfigRef.name", to: "MCPWebhookConfig"},
		{kind: "MCPRemoteProxy", path: "spec.run.webhookConfigRef.name", to: "MCPWebhookConfig"},

		{kind: "MCPOIDCConfig", path: "spec.inline.caBundleRef.configMapRef.name", to: "ConfigMap", key: "key"},
		{kind: "MCPTelemetryConfig", path: "spec.openTelemetry.caBundleRef.configMapRef.name", to: "ConfigMap", key: "key"},
		{kind: "EdgeFilter", path: "spec.source.configMapRef.name", to: "ConfigMap", key: "key"},
		{kind: "EdgeFilter", path: "spec.grants.credentials[].name", to: "MCPExternalAuthConfig"},
	}
	for _, kind := range []string{"MCPServer", "MCPRemoteProxy"} {
		refs = append(refs,
			reference{kind: kind, path: "spec.groupRef.name", to: "MCPGroup"},
			reference{kind: kind, path: "spec.oidcConfigRef.name", to: "MCPOIDCConfig"},
			reference{kind: kind, path: "spec.authzConfig.configMap.name", to: "ConfigMap", key: "key", usual: "authz.json"},
			reference{kind: kind, path: "spec.authzConfigRef.name", to: "MCPAuthzConfig"},
			reference{kind: kind, path: "spec.externalAuthConfigRef.name", to: "MCPExternalAuthConfig"},
			reference{kind: kind, path: "spec.authServerRef.name", to: "MCPExternalAuthConfig"},
			reference{kind: kind, path: "spec.toolConfigRef.name", to: "MCPToolConfig"},
			reference{kind: kind, path: "spec.telemetryConfigRef.name", to: "MCPTelemetryConfig"},
		)
	}
	return refs
}
