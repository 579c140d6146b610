package compile

import "strings"

// tableField is a field of a kind; the kind * stands for every kind.
type tableField struct{ kind, path string }

// supportedFields is the one list of what the edge serves. Each is a field that
// holds a value, without the [] or {} of its items.
func supportedFields() []tableField {
	return []tableField{
		{"*", "apiVersion"},
		{"*", "kind"},
		{"*", "metadata.name"},
		{"*", "metadata.namespace"},
		{"*", "metadata.labels"},
		{"*", "metadata.annotations"},

		{"VirtualMCPServer", "spec.groupRef.name"},
		{"VirtualMCPServer", "spec.incomingAuth.type"},
		{"VirtualMCPServer", "spec.incomingAuth.oidcConfigRef.name"},
		{"VirtualMCPServer", "spec.incomingAuth.oidcConfigRef.audience"},
		{"VirtualMCPServer", "spec.incomingAuth.oidcConfigRef.resourceUrl"},
		{"VirtualMCPServer", "spec.incomingAuth.oidcConfigRef.scopes"},
		{"VirtualMCPServer", "spec.incomingAuth.oidcConfigRef.requiredScopes"},
		{"VirtualMCPServer", "spec.config.incomingAuth.type"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.issuer"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.audience"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.clientId"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.clientSecretEnv"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.introspectionUrl"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.jwksUrl"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.jwksAllowPrivateIp"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.protectedResourceAllowPrivateIp"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.insecureAllowHttp"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.resource"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.scopes"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.requiredScopes"},
		{"VirtualMCPServer", "spec.config.incomingAuth.oidc.caBundlePath"},
		{"VirtualMCPServer", "spec.incomingAuth.authzConfig.type"},
		{"VirtualMCPServer", "spec.incomingAuth.authzConfig.configMap.name"},
		{"VirtualMCPServer", "spec.incomingAuth.authzConfig.configMap.key"},
		{"VirtualMCPServer", "spec.incomingAuth.authzConfig.inline.policies"},
		{"VirtualMCPServer", "spec.incomingAuth.authzConfig.inline.entitiesJson"},
		{"VirtualMCPServer", "spec.incomingAuth.authzConfig.groupClaimName"},
		{"VirtualMCPServer", "spec.incomingAuth.authzConfig.roleClaimName"},
		{"VirtualMCPServer", "spec.incomingAuth.authzConfig.groupEntityType"},
		{"VirtualMCPServer", "spec.incomingAuth.authzConfigRef.name"},
		{"VirtualMCPServer", "spec.config.incomingAuth.authz.type"},
		{"VirtualMCPServer", "spec.config.incomingAuth.authz.policies"},
		{"VirtualMCPServer", "spec.config.incomingAuth.authz.entitiesJson"},
		{"VirtualMCPServer", "spec.config.incomingAuth.authz.groupClaimName"},
		{"VirtualMCPServer", "spec.config.incomingAuth.authz.roleClaimName"},
		{"VirtualMCPServer", "spec.config.incomingAuth.authz.groupEntityType"},
		{"VirtualMCPServer", "spec.outgoingAuth.source"},
		{"VirtualMCPServer", "spec.outgoingAuth.default.type"},
		{"VirtualMCPServer", "spec.outgoingAuth.default.externalAuthConfigRef.name"},
		{"VirtualMCPServer", "spec.outgoingAuth.backends{}.type"},
		{"VirtualMCPServer", "spec.outgoingAuth.backends{}.externalAuthConfigRef.name"},
		{"VirtualMCPServer", "spec.config.name"},
		{"VirtualMCPServer", "spec.config.groupRef"},
		{"VirtualMCPServer", "spec.config.metadata"},
		{"VirtualMCPServer", "spec.config.backends[].name"},
		{"VirtualMCPServer", "spec.config.backends[].url"},
		{"VirtualMCPServer", "spec.config.backends[].transport"},
		{"VirtualMCPServer", "spec.config.backends[].type"},
		{"VirtualMCPServer", "spec.config.backends[].caBundlePath"},
		{"VirtualMCPServer", "spec.config.backends[].metadata"},
		{"VirtualMCPServer", "spec.filterRefs[].name"},
		{"VirtualMCPServer", "spec.config.filterRefs[].name"},
		{"VirtualMCPServer", "spec.passthroughHeaders"},
		{"VirtualMCPServer", "spec.config.passthroughHeaders"},
		{"VirtualMCPServer", "spec.config.aggregation.conflictResolution"},
		{"VirtualMCPServer", "spec.config.aggregation.conflictResolutionConfig.prefixFormat"},
		{"VirtualMCPServer", "spec.config.aggregation.conflictResolutionConfig.priorityOrder"},
		{"VirtualMCPServer", "spec.config.aggregation.excludeAllTools"},
		{"VirtualMCPServer", "spec.config.aggregation.tools[].workload"},
		{"VirtualMCPServer", "spec.config.aggregation.tools[].excludeAll"},
		{"VirtualMCPServer", "spec.config.aggregation.tools[].filter"},
		{"VirtualMCPServer", "spec.config.aggregation.tools[].toolConfigRef.name"},
		{"VirtualMCPServer", "spec.config.aggregation.tools[].overrides{}.name"},
		{"VirtualMCPServer", "spec.config.aggregation.tools[].overrides{}.description"},
		{"VirtualMCPServer", "spec.config.aggregation.tools[].overrides{}.annotations.title"},
		{"VirtualMCPServer", "spec.config.aggregation.tools[].overrides{}.annotations.readOnlyHint"},
		{"VirtualMCPServer", "spec.config.aggregation.tools[].overrides{}.annotations.destructiveHint"},
		{"VirtualMCPServer", "spec.config.aggregation.tools[].overrides{}.annotations.idempotentHint"},
		{"VirtualMCPServer", "spec.config.aggregation.tools[].overrides{}.annotations.openWorldHint"},
		{"VirtualMCPServer", "spec.config.outgoingAuth.source"},
		{"VirtualMCPServer", "spec.config.outgoingAuth.default.headerInjection.headerName"},
		{"VirtualMCPServer", "spec.config.outgoingAuth.default.headerInjection.headerValue"},
		{"VirtualMCPServer", "spec.config.outgoingAuth.default.headerInjection.headerValueEnv"},
		{"VirtualMCPServer", "spec.config.outgoingAuth.backends{}.headerInjection.headerName"},
		{"VirtualMCPServer", "spec.config.outgoingAuth.backends{}.headerInjection.headerValue"},
		{"VirtualMCPServer", "spec.config.outgoingAuth.backends{}.headerInjection.headerValueEnv"},
		{"VirtualMCPServer", "spec.config.operational.timeouts.default"},
		{"VirtualMCPServer", "spec.config.operational.timeouts.perWorkload"},
		{"VirtualMCPServer", "spec.config.operational.failureHandling.healthCheckInterval"},
		{"VirtualMCPServer", "spec.config.operational.failureHandling.healthCheckTimeout"},
		{"VirtualMCPServer", "spec.config.operational.failureHandling.unhealthyThreshold"},
		{"VirtualMCPServer", "spec.config.operational.failureHandling.partialFailureMode"},
		{"VirtualMCPServer", "spec.config.operational.failureHandling.statusReportingInterval"},
		{"VirtualMCPServer", "spec.config.operational.failureHandling.circuitBreaker.enabled"},
		{"VirtualMCPServer", "spec.config.operational.failureHandling.circuitBreaker.failureThreshold"},
		{"VirtualMCPServer", "spec.config.operational.failureHandling.circuitBreaker.timeout"},
		{"VirtualMCPServer", "spec.config.rateLimiting.shared.maxTokens"},
		{"VirtualMCPServer", "spec.config.rateLimiting.shared.refillPeriod"},
		{"VirtualMCPServer", "spec.config.rateLimiting.perUser.maxTokens"},
		{"VirtualMCPServer", "spec.config.rateLimiting.perUser.refillPeriod"},
		{"VirtualMCPServer", "spec.config.rateLimiting.tools[].name"},
		{"VirtualMCPServer", "spec.config.rateLimiting.tools[].shared.maxTokens"},
		{"VirtualMCPServer", "spec.config.rateLimiting.tools[].shared.refillPeriod"},
		{"VirtualMCPServer", "spec.config.rateLimiting.tools[].perUser.maxTokens"},
		{"VirtualMCPServer", "spec.config.rateLimiting.tools[].perUser.refillPeriod"},
		{"VirtualMCPServer", "spec.sessionStorage.provider"},
		{"VirtualMCPServer", "spec.sessionStorage.address"},
		{"VirtualMCPServer", "spec.sessionStorage.db"},
		{"VirtualMCPServer", "spec.sessionStorage.keyPrefix"},
		{"VirtualMCPServer", "spec.sessionStorage.passwordRef.name"},
		{"VirtualMCPServer", "spec.sessionStorage.passwordRef.key"},
		{"VirtualMCPServer", "spec.config.sessionStorage.provider"},
		{"VirtualMCPServer", "spec.config.sessionStorage.address"},
		{"VirtualMCPServer", "spec.config.sessionStorage.db"},
		{"VirtualMCPServer", "spec.config.sessionStorage.keyPrefix"},
		{"VirtualMCPServer", "spec.config.audit.enabled"},
		{"VirtualMCPServer", "spec.config.audit.component"},
		{"VirtualMCPServer", "spec.config.audit.eventTypes"},
		{"VirtualMCPServer", "spec.config.audit.excludeEventTypes"},
		{"VirtualMCPServer", "spec.config.audit.includeRequestData"},
		{"VirtualMCPServer", "spec.config.audit.includeResponseData"},
		{"VirtualMCPServer", "spec.config.audit.maxDataSize"},
		{"VirtualMCPServer", "spec.config.audit.logFile"},
		{"VirtualMCPServer", "spec.config.audit.detectApplicationErrors"},
		{"VirtualMCPServer", "spec.config.telemetry.endpoint"},
		{"VirtualMCPServer", "spec.config.telemetry.headers"},
		{"VirtualMCPServer", "spec.config.telemetry.insecure"},
		{"VirtualMCPServer", "spec.config.telemetry.tracingEnabled"},
		{"VirtualMCPServer", "spec.config.telemetry.metricsEnabled"},
		{"VirtualMCPServer", "spec.config.telemetry.samplingRate"},
		{"VirtualMCPServer", "spec.config.telemetry.serviceName"},
		{"VirtualMCPServer", "spec.config.telemetry.serviceVersion"},
		{"VirtualMCPServer", "spec.config.telemetry.caCertPath"},
		{"VirtualMCPServer", "spec.config.telemetry.customAttributes"},
		{"VirtualMCPServer", "spec.config.telemetry.environmentVariables"},
		{"VirtualMCPServer", "spec.config.telemetry.enablePrometheusMetricsPath"},
		{"VirtualMCPServer", "spec.config.telemetry.useLegacyAttributes"},
		{"VirtualMCPServer", "spec.telemetryConfigRef.name"},
		{"VirtualMCPServer", "spec.telemetryConfigRef.serviceName"},
		{"VirtualMCPServer", "spec.config.operational.logLevel"},

		{"MCPGroup", "spec.description"},

		{"MCPAuthzConfig", "spec.type"},
		{"MCPAuthzConfig", "spec.config"},

		{"MCPOIDCConfig", "spec.type"},
		{"MCPOIDCConfig", "spec.inline.issuer"},
		{"MCPOIDCConfig", "spec.inline.clientId"},
		{"MCPOIDCConfig", "spec.inline.clientSecretRef.name"},
		{"MCPOIDCConfig", "spec.inline.clientSecretRef.key"},
		{"MCPOIDCConfig", "spec.inline.introspectionUrl"},
		{"MCPOIDCConfig", "spec.inline.jwksUrl"},
		{"MCPOIDCConfig", "spec.inline.jwksAuthTokenPath"},
		{"MCPOIDCConfig", "spec.inline.jwksAllowPrivateIP"},
		{"MCPOIDCConfig", "spec.inline.protectedResourceAllowPrivateIP"},
		{"MCPOIDCConfig", "spec.inline.insecureAllowHTTP"},
		{"MCPOIDCConfig", "spec.inline.caBundleRef.configMapRef.name"},
		{"MCPOIDCConfig", "spec.inline.caBundleRef.configMapRef.key"},
		{"MCPOIDCConfig", "spec.inline.caBundleRef.configMapRef.optional"},
		{"MCPOIDCConfig", "spec.kubernetesServiceAccount.issuer"},
		{"MCPOIDCConfig", "spec.kubernetesServiceAccount.jwksUrl"},
		{"MCPOIDCConfig", "spec.kubernetesServiceAccount.introspectionUrl"},
		{"MCPOIDCConfig", "spec.kubernetesServiceAccount.namespace"},
		{"MCPOIDCConfig", "spec.kubernetesServiceAccount.serviceAccount"},
		{"MCPOIDCConfig", "spec.kubernetesServiceAccount.useClusterAuth"},

		{"MCPTelemetryConfig", "spec.openTelemetry.enabled"},
		{"MCPTelemetryConfig", "spec.openTelemetry.endpoint"},
		{"MCPTelemetryConfig", "spec.openTelemetry.insecure"},
		{"MCPTelemetryConfig", "spec.openTelemetry.headers"},
		{"MCPTelemetryConfig", "spec.openTelemetry.sensitiveHeaders[].name"},
		{"MCPTelemetryConfig", "spec.openTelemetry.sensitiveHeaders[].secretKeyRef.name"},
		{"MCPTelemetryConfig", "spec.openTelemetry.sensitiveHeaders[].secretKeyRef.key"},
		{"MCPTelemetryConfig", "spec.openTelemetry.resourceAttributes"},
		{"MCPTelemetryConfig", "spec.openTelemetry.caBundleRef.configMapRef.name"},
		{"MCPTelemetryConfig", "spec.openTelemetry.caBundleRef.configMapRef.key"},
		{"MCPTelemetryConfig", "spec.openTelemetry.caBundleRef.configMapRef.optional"},
		{"MCPTelemetryConfig", "spec.openTelemetry.tracing.enabled"},
		{"MCPTelemetryConfig", "spec.openTelemetry.tracing.samplingRate"},
		{"MCPTelemetryConfig", "spec.openTelemetry.metrics.enabled"},
		{"MCPTelemetryConfig", "spec.openTelemetry.useLegacyAttributes"},
		{"MCPTelemetryConfig", "spec.prometheus.enabled"},

		{"MCPToolConfig", "spec.toolsFilter"},
		{"MCPToolConfig", "spec.toolsOverride{}.name"},
		{"MCPToolConfig", "spec.toolsOverride{}.description"},
		{"MCPToolConfig", "spec.toolsOverride{}.annotations.title"},
		{"MCPToolConfig", "spec.toolsOverride{}.annotations.readOnlyHint"},
		{"MCPToolConfig", "spec.toolsOverride{}.annotations.destructiveHint"},
		{"MCPToolConfig", "spec.toolsOverride{}.annotations.idempotentHint"},
		{"MCPToolConfig", "spec.toolsOverride{}.annotations.openWorldHint"},

		{"MCPExternalAuthConfig", "spec.headerInjection.headerName"},
		{"MCPExternalAuthConfig", "spec.headerInjection.valueSecretRef.name"},
		{"MCPExternalAuthConfig", "spec.headerInjection.valueSecretRef.key"},
		{"MCPExternalAuthConfig", "spec.bearerToken.tokenSecretRef.name"},
		{"MCPExternalAuthConfig", "spec.bearerToken.tokenSecretRef.key"},

		{"MCPRemoteProxy", "spec.groupRef.name"},
		{"MCPRemoteProxy", "spec.remoteUrl"},
		{"MCPRemoteProxy", "spec.transport"},
		{"MCPRemoteProxy", "spec.externalAuthConfigRef.name"},
		{"MCPRemoteProxy", "spec.toolConfigRef.name"},
		{"MCPRemoteProxy", "spec.headerForward.addPlaintextHeaders"},
		{"MCPRemoteProxy", "spec.headerForward.addHeadersFromSecret[].headerName"},
		{"MCPRemoteProxy", "spec.headerForward.addHeadersFromSecret[].valueSecretRef.name"},
		{"MCPRemoteProxy", "spec.headerForward.addHeadersFromSecret[].valueSecretRef.key"},
		{"MCPRemoteProxy", "spec.allowPrivateEndpoint"},

		{"MCPServerEntry", "spec.groupRef.name"},
		{"MCPServerEntry", "spec.headerForward.addPlaintextHeaders"},
		{"MCPServerEntry", "spec.headerForward.addHeadersFromSecret[].headerName"},
		{"MCPServerEntry", "spec.headerForward.addHeadersFromSecret[].valueSecretRef.name"},
		{"MCPServerEntry", "spec.headerForward.addHeadersFromSecret[].valueSecretRef.key"},
		{"MCPServerEntry", "spec.allowPrivateEndpoint"},
		{"MCPServerEntry", "spec.remoteUrl"},
		{"MCPServerEntry", "spec.transport"},
		{"MCPServerEntry", "spec.externalAuthConfigRef.name"},
		{"MCPServerEntry", "spec.caBundleRef.configMapRef.name"},
		{"MCPServerEntry", "spec.caBundleRef.configMapRef.key"},
		{"MCPServerEntry", "spec.caBundleRef.configMapRef.optional"},

		{"EdgeFilter", "spec.source.inline"},
		{"EdgeFilter", "spec.source.path"},
		{"EdgeFilter", "spec.source.configMapRef.name"},
		{"EdgeFilter", "spec.source.configMapRef.key"},
		{"EdgeFilter", "spec.source.url"},
		{"EdgeFilter", "spec.sha256"},
		{"EdgeFilter", "spec.config"},
		{"EdgeFilter", "spec.mode"},
		{"EdgeFilter", "spec.match.methods"},
		{"EdgeFilter", "spec.match.tools"},
		{"EdgeFilter", "spec.match.backends"},
		{"EdgeFilter", "spec.onError"},
		{"EdgeFilter", "spec.limits.timeout"},
		{"EdgeFilter", "spec.limits.fuel"},
		{"EdgeFilter", "spec.limits.memory"},
		{"EdgeFilter", "spec.limits.output"},
		{"EdgeFilter", "spec.limits.instances"},
		{"EdgeFilter", "spec.limits.isolation"},
		{"EdgeFilter", "spec.grants.random"},
		{"EdgeFilter", "spec.grants.kv"},
		{"EdgeFilter", "spec.grants.metrics"},
		{"EdgeFilter", "spec.grants.identity"},
		{"EdgeFilter", "spec.grants.keys{}.name"},
		{"EdgeFilter", "spec.grants.keys{}.key"},
		{"EdgeFilter", "spec.grants.credentials[].name"},
		{"EdgeFilter", "spec.grants.http"},
		{"EdgeFilter", "spec.grants.tools"},
		{"EdgeFilter", "spec.grants.events"},
	}
}

// clusterFields is the one list of fields, and sections, that only shape
// Kubernetes objects or that a cluster writes. They are validated and then
// listed once.
func clusterFields() []tableField {
	return []tableField{
		{"*", "status"},
		{"*", "metadata.generateName"},
		{"*", "metadata.selfLink"},
		{"*", "metadata.uid"},
		{"*", "metadata.resourceVersion"},
		{"*", "metadata.generation"},
		{"*", "metadata.creationTimestamp"},
		{"*", "metadata.deletionTimestamp"},
		{"*", "metadata.deletionGracePeriodSeconds"},
		{"*", "metadata.ownerReferences"},
		{"*", "metadata.finalizers"},
		{"*", "metadata.managedFields"},

		{"VirtualMCPServer", "spec.replicas"},
		{"VirtualMCPServer", "spec.serviceType"},
		{"VirtualMCPServer", "spec.sessionAffinity"},
		{"VirtualMCPServer", "spec.podTemplateSpec"},
		{"VirtualMCPServer", "spec.imagePullSecrets"},
		{"VirtualMCPServer", "spec.serviceAccount"},

		{"MCPServer", "spec.replicas"},
		{"MCPServer", "spec.backendReplicas"},
		{"MCPServer", "spec.sessionAffinity"},
		{"MCPServer", "spec.podTemplateSpec"},
		{"MCPServer", "spec.serviceAccount"},
		{"MCPServer", "spec.resources"},
		{"MCPServer", "spec.resourceOverrides"},

		{"MCPRemoteProxy", "spec.proxyPort"},
		{"MCPRemoteProxy", "spec.replicas"},
		{"MCPRemoteProxy", "spec.sessionAffinity"},
		{"MCPRemoteProxy", "spec.podTemplateSpec"},
		{"MCPRemoteProxy", "spec.serviceAccount"},
		{"MCPRemoteProxy", "spec.resources"},
		{"MCPRemoteProxy", "spec.resourceOverrides"},

		{"EmbeddingServer", "spec.replicas"},
		{"EmbeddingServer", "spec.imagePullPolicy"},
		{"EmbeddingServer", "spec.modelCache"},
		{"EmbeddingServer", "spec.podTemplateSpec"},
		{"EmbeddingServer", "spec.resources"},
		{"EmbeddingServer", "spec.resourceOverrides"},
	}
}

// class is what becomes of a field.
type class int

const (
	classUnknown     class = iota // in no table: a section around fields of several classes, or a mistake of ours
	classSupported                // the edge does what it says
	classClusterOnly              // it only shapes Kubernetes objects
	classUnsupported              // refused
)

// tables answers for each field of each kind what becomes of it.
type tables struct {
	entries map[string][]entry // by kind
}

type entry struct {
	path  string
	class class
	rule  *unsupported // of classUnsupported
}

func newTables() tables {
	t := tables{entries: map[string][]entry{}}
	for _, f := range supportedFields() {
		t.entries[f.kind] = append(t.entries[f.kind], entry{path: f.path, class: classSupported})
	}
	for _, f := range clusterFields() {
		t.entries[f.kind] = append(t.entries[f.kind], entry{path: f.path, class: classClusterOnly})
	}
	for _, u := range unsupportedFields() {
		t.entries[u.kind] = append(t.entries[u.kind], entry{path: u.path, class: classUnsupported, rule: &u})
	}
	return t
}

// find returns the entry for the field at pattern: of those at or above it the
// one that says most.
func (t tables) find(kind, pattern string) entry {
	var best entry
	for _, k := range []string{kind, "*"} {
		for _, e := range t.entries[k] {
			if under(pattern, e.path) && len(e.path) > len(best.path) {
				best = e
			}
		}
	}
	return best
}

// around reports whether pattern is a section that an entry stands inside of,
// such as spec.config.operational.
func (t tables) around(kind, pattern string) bool {
	for _, k := range []string{kind, "*"} {
		for _, e := range t.entries[k] {
			if strings.HasPrefix(e.path, pattern) && under(e.path, pattern) {
				return true
			}
		}
	}
	return false
}
