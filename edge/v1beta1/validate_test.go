package v1beta1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// at is the values that a case puts into a good manifest, by path.
type at map[string]any

type (
	obj = map[string]any
	arr = []any
)

// wrong is one case: a good manifest, what is changed in it, and the fields
// that the errors must name, all of them and no other.
type wrong struct {
	name  string
	base  string // a path that the manifest must have
	edits at
	want  []string
}

func runWrong(t *testing.T, kind string, cases []wrong) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := one(t, kind, c.base)
			var v any = d.value
			for _, path := range sorted(c.edits) {
				v = edit(v, split(path), c.edits[path])
			}
			errs := judge(t, kind, v)
			have, want := paths(errs), slices.Clone(c.want)
			slices.Sort(have)
			slices.Sort(want)
			if !slices.Equal(have, want) {
				t.Errorf("errors at %q, want %q:\n%v", have, want, errs.ToAggregate())
			}
		})
	}
}

func TestMetadata(t *testing.T) {
	for _, k := range Kinds() {
		d := one(t, k.Name, "metadata.name")
		for name, want := range map[string][]string{
			"":          {"metadata.name"},
			"Upper":     {"metadata.name"},
			"a_b":       {"metadata.name"},
			"../escape": {"metadata.name"},
			"a.b-c":     nil,
		} {
			if have := paths(judge(t, k.Name, edit(d.value, []string{"metadata", "name"}, name))); !slices.Equal(have, want) {
				t.Errorf("%s named %q: errors at %q, want %q", k.Name, name, have, want)
			}
		}
	}
}

func TestVirtualMCPServer(t *testing.T) {
	const (
		everything = "spec.config.rateLimiting"
		compat     = "spec.config.optimizer.embeddingModel"
	)
	runWrong(t, "VirtualMCPServer", []wrong{
		{"no incoming authentication", "", at{"spec.incomingAuth": gone{}}, []string{"spec.incomingAuth"}},
		{"everything at once", "", at{"spec": obj{"replicas": -1, "serviceType": "Other"}}, []string{"spec.groupRef.name", "spec.incomingAuth", "spec.replicas", "spec.serviceType"}},
		{"oidc without a provider", "", at{"spec.incomingAuth.type": "oidc"}, []string{"spec.incomingAuth.oidcConfigRef"}},
		{"anonymous with a provider", "", at{"spec.incomingAuth.oidcConfigRef": obj{"name": "a", "audience": "b"}}, []string{"spec.incomingAuth.oidcConfigRef"}},
		{"no audience", everything, at{"spec.incomingAuth.oidcConfigRef.audience": ""}, []string{"spec.incomingAuth.oidcConfigRef.audience"}},
		{"two policy sets", everything, at{"spec.incomingAuth.authzConfigRef": obj{"name": "policies"}}, []string{"spec.incomingAuth.authzConfigRef"}},
		{"policies of another type", everything, at{"spec.incomingAuth.authzConfig.type": "configMap"}, []string{"spec.incomingAuth.authzConfig.configMap", "spec.incomingAuth.authzConfig.inline"}},
		{"no policies", everything, at{"spec.incomingAuth.authzConfig.inline.policies": arr{}}, []string{"spec.incomingAuth.authzConfig.inline.policies"}},
		{"entities that are no array", everything, at{"spec.incomingAuth.authzConfig.inline.entitiesJson": "{}"}, []string{"spec.incomingAuth.authzConfig.inline.entitiesJson"}},
		{"a namespaced entity type", everything, at{"spec.incomingAuth.authzConfig.groupEntityType": "A::B"}, []string{"spec.incomingAuth.authzConfig.groupEntityType"}},
		{"a deprecated upstream that is none", everything, at{"spec.incomingAuth.authzConfig.inline.primaryUpstreamProvider": "other"}, []string{"spec.incomingAuth.authzConfig.inline.primaryUpstreamProvider"}},
		{"a primary upstream that is none", everything, at{"spec.authServerConfig.primaryUpstreamProvider": "other"}, []string{"spec.authServerConfig.primaryUpstreamProvider"}},
		{"a backend that refers to nothing", everything, at{"spec.outgoingAuth.backends[github].externalAuthConfigRef": gone{}}, []string{"spec.outgoingAuth.backends[github].externalAuthConfigRef"}},
		{"a discovered default that refers", everything, at{"spec.outgoingAuth.default.externalAuthConfigRef": obj{"name": "a"}}, []string{"spec.outgoingAuth.default.externalAuthConfigRef"}},
		{"compat with an embedding server", compat, at{"spec.embeddingServerRef": obj{"name": "a"}, "spec.config.optimizer.embeddingProvider": "compat"}, []string{"spec.embeddingServerRef"}},
		{"restricted headers", everything, at{"spec.passthroughHeaders": arr{"Host", "x-forwarded-proto", "Connection", "Authorization", "cookie", "Bad Name", "", "X-A", "x-a", "Mcp-Session-Id"}},
			[]string{"spec.passthroughHeaders[0]", "spec.passthroughHeaders[1]", "spec.passthroughHeaders[2]", "spec.passthroughHeaders[3]", "spec.passthroughHeaders[4]", "spec.passthroughHeaders[5]", "spec.passthroughHeaders[6]", "spec.passthroughHeaders[8]", "spec.passthroughHeaders[9]"}},
		{"restricted headers in config", everything, at{"spec.config.passthroughHeaders": arr{"Upgrade"}}, []string{"spec.config.passthroughHeaders[0]"}},
		{"a filter twice", everything, at{"spec.filterRefs": arr{obj{"name": "a"}, obj{"name": "a"}, obj{"name": ""}}}, []string{"spec.filterRefs[1].name", "spec.filterRefs[2].name"}},
		{"a pod template that is a list", everything, at{"spec.podTemplateSpec": arr{}}, []string{"spec.podTemplateSpec"}},
		{"a store without an address", everything, at{"spec.sessionStorage.address": gone{}}, []string{"spec.sessionStorage.address"}},
		{"an address without a port", everything, at{"spec.sessionStorage.address": "store"}, []string{"spec.sessionStorage.address"}},
		{"rate limits without a store", everything, at{"spec.sessionStorage": obj{"provider": "memory"}}, []string{"spec.config.rateLimiting"}},
		{"rate limits with the store of the config", everything, at{"spec.sessionStorage": gone{}, "spec.config.sessionStorage": obj{"provider": "kvstore", "address": "a:1"}}, nil},
		{"rate limits for nobody", everything, at{"spec.incomingAuth": obj{"type": "anonymous"}}, []string{"spec.config.rateLimiting.perUser", "spec.config.rateLimiting.tools[0].perUser"}},
		{"rate limits of nothing", everything, at{"spec.config.rateLimiting": obj{"tools": arr{obj{"name": "a"}, obj{"name": "a", "shared": obj{"maxTokens": 1, "refillPeriod": "0s"}}}}},
			[]string{"spec.config.rateLimiting.tools[0]", "spec.config.rateLimiting.tools[1].name", "spec.config.rateLimiting.tools[1].shared.refillPeriod"}},
		{"no rate limit at all", everything, at{"spec.config.rateLimiting": obj{}}, []string{"spec.config.rateLimiting"}},
		{"a bucket without a period", everything, at{"spec.config.rateLimiting.shared": obj{"maxTokens": 0}}, []string{"spec.config.rateLimiting.shared.maxTokens", "spec.config.rateLimiting.shared.refillPeriod"}},
		{"backends", everything, at{"spec.config.backends": arr{
			obj{"name": "a", "url": "ftp://a", "transport": "stdio"},
			obj{"name": "a", "url": "https://user:pass@a", "transport": "sse", "caBundlePath": "/ca"},
			obj{"name": "", "url": "https://", "transport": "", "type": "container"},
		}}, []string{"spec.config.backends[0].url", "spec.config.backends[0].transport", "spec.config.backends[1].name", "spec.config.backends[1].url", "spec.config.backends[1].caBundlePath",
			"spec.config.backends[2].name", "spec.config.backends[2].url", "spec.config.backends[2].transport", "spec.config.backends[2].type"}},
		{"a prefix that stands for nothing", everything, at{"spec.config.aggregation.conflictResolutionConfig.prefixFormat": "{server}_"}, []string{"spec.config.aggregation.conflictResolutionConfig.prefixFormat"}},
		{"a prefix without the workload", everything, at{"spec.config.aggregation.conflictResolutionConfig.prefixFormat": "x_", "spec.config.aggregation.conflictResolution": "prefix"}, []string{"spec.config.aggregation.conflictResolutionConfig.prefixFormat"}},
		{"an order with one twice", everything, at{"spec.config.aggregation.conflictResolutionConfig.priorityOrder": arr{"a", "a", ""}},
			[]string{"spec.config.aggregation.conflictResolutionConfig.priorityOrder[1]", "spec.config.aggregation.conflictResolutionConfig.priorityOrder[2]"}},
		{"tools of one workload twice", everything, at{"spec.config.aggregation.tools[1].workload": "github"}, []string{"spec.config.aggregation.tools[1].workload"}},
		{"an override of nothing", everything, at{"spec.config.aggregation.tools[0].overrides": obj{"x": obj{}}}, []string{"spec.config.aggregation.tools[0].overrides[x]"}},
		{"composite tools of one name", everything, at{"spec.config.compositeTools": arr{obj{"name": "a", "script": "x"}, obj{"name": "a", "script": "x"}}}, []string{"spec.config.compositeTools[1].name"}},
		{"one definition twice", everything, at{"spec.config.compositeToolRefs": arr{obj{"name": "a"}, obj{"name": "a"}}}, []string{"spec.config.compositeToolRefs[1].name"}},
		{"config oidc without a provider", everything, at{"spec.config.incomingAuth.oidc": gone{}}, []string{"spec.config.incomingAuth.oidc"}},
		{"config local with a provider", everything, at{"spec.config.incomingAuth.type": "local"}, []string{"spec.config.incomingAuth.oidc"}},
		{"a policy set without policies", everything, at{"spec.config.incomingAuth.authz.policies": arr{}}, []string{"spec.config.incomingAuth.authz.policies"}},
		{"policies that do not count", everything, at{"spec.config.incomingAuth.authz.type": "none"}, []string{"spec.config.incomingAuth.authz.policies"}},
		{"audit", everything, at{"spec.config.audit.maxDataSize": -1}, []string{"spec.config.audit.maxDataSize"}},
		{"a zero timeout", everything, at{"spec.config.operational.timeouts.perWorkload": obj{"a": "0s", "b": "", "c": "1 m"}},
			[]string{"spec.config.operational.timeouts.perWorkload[a]", "spec.config.operational.timeouts.perWorkload[b]", "spec.config.operational.timeouts.perWorkload[c]"}},
		{"a duration in object form", everything, at{"spec.config.operational.timeouts.default": obj{"duration": "2m"}}, nil},
		{"a threshold of nothing", everything, at{"spec.config.operational.failureHandling.unhealthyThreshold": 0}, []string{"spec.config.operational.failureHandling.unhealthyThreshold"}},
		{"a circuit breaker that hardly opens", everything, at{"spec.config.operational.failureHandling.circuitBreaker.timeout": "999ms"}, []string{"spec.config.operational.failureHandling.circuitBreaker.timeout"}},
		{"compat without a service and a model", everything, at{"spec.embeddingServerRef": gone{}, "spec.config.optimizer": obj{"embeddingProvider": "compat"}}, []string{"spec.config.optimizer.embeddingService", "spec.config.optimizer.embeddingModel"}},
		{"headers without compat", everything, at{"spec.config.optimizer.embeddingHeaders": obj{"X-A": "b"}}, []string{"spec.config.optimizer.embeddingHeaders"}},
		{"headers of the edge", compat, at{"spec.embeddingServerRef": gone{}, "spec.config.optimizer.embeddingProvider": "compat", "spec.config.optimizer.embeddingHeaders": obj{"authorization": "b", "Content-type": "c", "bad name": "d", "X-Break": "e\nf"}},
			[]string{"spec.config.optimizer.embeddingHeaders[authorization]", "spec.config.optimizer.embeddingHeaders[Content-type]", "spec.config.optimizer.embeddingHeaders[bad name]", "spec.config.optimizer.embeddingHeaders[X-Break]"}},
		{"ratios", everything, at{"spec.config.optimizer.hybridSearchSemanticRatio": "1.1", "spec.config.optimizer.semanticDistanceThreshold": "2.5"}, []string{"spec.config.optimizer.hybridSearchSemanticRatio", "spec.config.optimizer.semanticDistanceThreshold"}},
		{"too many tools", everything, at{"spec.config.optimizer.maxToolsToReturn": 0}, []string{"spec.config.optimizer.maxToolsToReturn"}},
		{"code mode", everything, at{"spec.config.codeMode": obj{"parallelMaxConcurrency": 0, "stepLimit": 0, "toolCallTimeout": "0s"}}, []string{"spec.config.codeMode.parallelMaxConcurrency", "spec.config.codeMode.stepLimit", "spec.config.codeMode.toolCallTimeout"}},
		{"config storage without an address", everything, at{"spec.config.sessionStorage": obj{"provider": "kvstore"}}, []string{"spec.config.sessionStorage.address"}},
		{"telemetry", everything, at{"spec.config.telemetry": obj{"samplingRate": "2", "headers": obj{"X": "a\r\nb"}, "environmentVariables": arr{"A=B"}}},
			[]string{"spec.config.telemetry.samplingRate", "spec.config.telemetry.headers[X]", "spec.config.telemetry.environmentVariables[0]"}},
	})
}

func TestOutgoingStrategies(t *testing.T) {
	const p = "spec.config.outgoingAuth.backends[x]"
	ref := func(strategy obj, want ...string) wrong {
		full := make([]string, len(want))
		for i, w := range want {
			full[i] = strings.TrimSuffix(p+"."+w, ".")
		}
		name, _ := json.Marshal(strategy)
		return wrong{string(name), "spec.config.rateLimiting", at{"spec.config.outgoingAuth.backends": obj{"x": strategy}}, full}
	}
	arn := "arn:aws:iam::123456789012:role/a"
	runWrong(t, "VirtualMCPServer", []wrong{
		ref(obj{"type": "none"}, "type"),
		ref(obj{}, "type"),
		ref(obj{"type": "unauthenticated", "obo": obj{"tokenUrl": "https://a"}}, "obo"),
		ref(obj{"type": "header_injection"}, "headerInjection"),
		ref(obj{"type": "header_injection", "headerInjection": obj{"headerName": "X-A"}}, "headerInjection.headerValue"),
		ref(obj{"type": "header_injection", "headerInjection": obj{"headerName": "X-A", "headerValue": "a", "headerValueEnv": "B"}}, "headerInjection.headerValueEnv"),
		ref(obj{"type": "header_injection", "headerInjection": obj{"headerName": "Transfer-Encoding", "headerValue": "a\nb"}}, "headerInjection.headerName", "headerInjection.headerValue"),
		ref(obj{"type": "header_injection", "headerInjection": obj{"headerName": "X-A", "headerValueEnv": "not a name"}}, "headerInjection.headerValueEnv"),
		ref(obj{"type": "token_exchange", "tokenExchange": obj{"tokenUrl": "a", "clientSecret": "a", "clientSecretEnv": "B", "subjectTokenType": "saml", "scopes": arr{"a b"}}},
			"tokenExchange.tokenUrl", "tokenExchange.clientSecretEnv", "tokenExchange.subjectTokenType", "tokenExchange.scopes[0]"),
		ref(obj{"type": "token_exchange", "tokenExchange": obj{"tokenUrl": "https://a", "subjectProviderName": "other"}}, "tokenExchange.subjectProviderName"),
		ref(obj{"type": "upstream_inject", "upstreamInject": obj{"providerName": ""}}, "upstreamInject.providerName"),
		ref(obj{"type": "upstream_inject", "upstreamInject": obj{"providerName": "other"}}, "upstreamInject.providerName"),
		ref(obj{"type": "cloud_sts", "cloudSts": obj{"region": "here"}}, "cloudSts.region", "cloudSts.fallbackRoleArn"),
		ref(obj{"type": "cloud_sts", "cloudSts": obj{"region": "eu-west-1", "fallbackRoleArn": "arn", "sessionDuration": 60, "subjectProviderName": "other"}},
			"cloudSts.fallbackRoleArn", "cloudSts.sessionDuration", "cloudSts.subjectProviderName"),
		ref(obj{"type": "cloud_sts", "cloudSts": obj{"region": "eu-west-1", "roleMappings": arr{obj{"roleArn": "x", "claim": "a", "matcher": "b"}, obj{"roleArn": arn, "priority": -1}}}},
			"cloudSts.roleMappings[0].roleArn", "cloudSts.roleMappings[0].matcher", "cloudSts.roleMappings[1].claim", "cloudSts.roleMappings[1].priority"),
		ref(obj{"type": "obo", "obo": obj{"clientSecret": "a", "clientSecretEnv": "B", "subjectTokenProviderName": "other"}}, "obo.tokenUrl", "obo.clientSecretEnv", "obo.subjectTokenProviderName"),
		ref(obj{"type": "xaa", "xaa": obj{"idpTokenUrl": "http://a", "targetAudience": "x", "targetTokenUrl": "http://a", "subjectTokenType": TokenTypeAccess, "targetResource": "relative"}},
			"xaa.idpTokenUrl", "xaa.targetAudience", "xaa.targetTokenUrl", "xaa.subjectTokenType", "xaa.targetResource"),
		ref(obj{"type": "xaa", "xaa": obj{"idpTokenUrl": "https://a", "targetAudience": "https://b", "targetTokenUrl": "http://a", "insecureTargetTokenUrl": true, "targetResource": "urn:x"}}),
		{"a default", "spec.config.rateLimiting", at{"spec.config.outgoingAuth.default": obj{"type": "xaa"}}, []string{"spec.config.outgoingAuth.default.xaa"}},
		{"an upstream without a server", "spec.config.rateLimiting", at{"spec.authServerConfig": gone{}, "spec.config.outgoingAuth.backends": obj{"x": obj{"type": "upstream_inject", "upstreamInject": obj{"providerName": "github"}}}}, []string{p + ".upstreamInject.providerName"}},
		{"exchange of a token that is withheld", "spec.config.rateLimiting", at{"spec.authServerConfig.disableUpstreamTokenInjection": true, "spec.config.outgoingAuth.backends": obj{"x": obj{"type": "token_exchange", "tokenExchange": obj{"tokenUrl": "https://a"}}}}, []string{p + ".type"}},
	})
}

func TestMCPExternalAuthConfig(t *testing.T) {
	runWrong(t, "MCPExternalAuthConfig", []wrong{
		{"no type", "spec.bearerToken", at{"spec.type": gone{}}, []string{"spec.type"}},
		{"another type", "spec.bearerToken", at{"spec.type": "basic"}, []string{"spec.type"}},
		{"the section of another type", "spec.bearerToken", at{"spec.type": "headerInjection"}, []string{"spec.bearerToken", "spec.headerInjection"}},
		{"unauthenticated with a section", "spec.bearerToken", at{"spec.type": "unauthenticated"}, []string{"spec.bearerToken"}},
		{"two sections", "spec.bearerToken", at{"spec.upstreamInject": obj{"providerName": "x"}}, []string{"spec.upstreamInject"}},
		{"token url", "spec.tokenExchange", at{"spec.tokenExchange.tokenUrl": "login.example.com"}, []string{"spec.tokenExchange.tokenUrl"}},
		{"token url with a fragment", "spec.tokenExchange", at{"spec.tokenExchange.tokenUrl": "https://a/b#c"}, []string{"spec.tokenExchange.tokenUrl"}},
		{"token url with a user", "spec.tokenExchange", at{"spec.tokenExchange.tokenUrl": "https://a:b@c"}, []string{"spec.tokenExchange.tokenUrl"}},
		{"no audience", "spec.tokenExchange", at{"spec.tokenExchange.audience": gone{}}, []string{"spec.tokenExchange.audience"}},
		{"a header of the edge", "spec.tokenExchange", at{"spec.tokenExchange.externalTokenHeaderName": "Content-Length"}, []string{"spec.tokenExchange.externalTokenHeaderName"}},
		{"a token type", "spec.tokenExchange", at{"spec.tokenExchange.subjectTokenType": "urn:ietf:params:oauth:token-type:saml2"}, []string{"spec.tokenExchange.subjectTokenType"}},
		{"no secret", "spec.headerInjection", at{"spec.headerInjection.valueSecretRef": gone{}}, []string{"spec.headerInjection.valueSecretRef"}},
		{"half a secret", "spec.headerInjection", at{"spec.headerInjection.valueSecretRef": obj{"name": "a"}}, []string{"spec.headerInjection.valueSecretRef.key"}},
		{"a secret outside of the directory", "spec.headerInjection", at{"spec.headerInjection.valueSecretRef": obj{"name": "../a", "key": "../b"}}, []string{"spec.headerInjection.valueSecretRef.name", "spec.headerInjection.valueSecretRef.key"}},
		{"no header", "spec.headerInjection", at{"spec.headerInjection.headerName": ""}, []string{"spec.headerInjection.headerName"}},
		{"no role", "spec.cloudSts", at{"spec.cloudSts.fallbackRoleArn": gone{}, "spec.cloudSts.roleMappings": gone{}}, []string{"spec.cloudSts.fallbackRoleArn"}},
		{"one kind of role is enough", "spec.cloudSts", at{"spec.cloudSts.fallbackRoleArn": gone{}}, nil},
		{"claim and matcher", "spec.cloudSts", at{"spec.cloudSts.roleMappings[0].matcher": "true"}, []string{"spec.cloudSts.roleMappings[0].matcher"}},
		{"neither claim nor matcher", "spec.cloudSts", at{"spec.cloudSts.roleMappings[0].claim": gone{}}, []string{"spec.cloudSts.roleMappings[0].claim"}},
		{"a short session", "spec.cloudSts", at{"spec.cloudSts.sessionDuration": 899}, []string{"spec.cloudSts.sessionDuration"}},
		{"a long session", "spec.cloudSts", at{"spec.cloudSts.sessionDuration": 43201}, []string{"spec.cloudSts.sessionDuration"}},
		{"tenant common", "spec.obo.authority", at{"spec.obo.tenantId": "common"}, []string{"spec.obo.tenantId"}},
		{"tenant organizations", "spec.obo.authority", at{"spec.obo.tenantId": "organizations"}, []string{"spec.obo.tenantId"}},
		{"tenant consumers", "spec.obo.authority", at{"spec.obo.tenantId": "consumers"}, []string{"spec.obo.tenantId"}},
		{"tenant with a path", "spec.obo.authority", at{"spec.obo.tenantId": "a.com/../b"}, []string{"spec.obo.tenantId"}},
		{"authority in plain text", "spec.obo.authority", at{"spec.obo.authority": "http://a"}, []string{"spec.obo.authority"}},
		{"authority with a slash", "spec.obo.authority", at{"spec.obo.authority": "https://a/"}, []string{"spec.obo.authority"}},
		{"authority with a query", "spec.obo.authority", at{"spec.obo.authority": "https://a?b"}, []string{"spec.obo.authority"}},
		{"what obo needs is left to reconcile", "spec.obo.authority", at{"spec.obo": obj{}}, nil},
		{"a skew that is none", "spec.obo.authority", at{"spec.obo.cacheSkew": "soon"}, []string{"spec.obo.cacheSkew"}},
		{"a sign alone", "spec.obo.authority", at{"spec.obo.cacheSkew": "-"}, []string{"spec.obo.cacheSkew"}},
		{"idp in plain text", "spec.xaa", at{"spec.xaa.idpTokenUrl": "http://a"}, []string{"spec.xaa.idpTokenUrl"}},
		{"target in plain text", "spec.xaa", at{"spec.xaa.insecureTargetTokenUrl": false}, []string{"spec.xaa.targetTokenUrl"}},
		{"a token type of xaa", "spec.xaa", at{"spec.xaa.subjectTokenType": TokenTypeAccess}, []string{"spec.xaa.subjectTokenType"}},
		{"no provider", "spec.upstreamInject", at{"spec.upstreamInject.providerName": gone{}}, []string{"spec.upstreamInject.providerName"}},
	})
}

func TestEmbeddedAuthServer(t *testing.T) {
	const p = "spec.embeddedAuthServer"
	const company, github, slack, direct = p + ".upstreamProviders[0]", p + ".upstreamProviders[1]", p + ".upstreamProviders[2]", p + ".upstreamProviders[3]"
	const kv = p + ".storage.kvstore"
	const sentinels = kv + ".sentinelConfig.sentinelAddrs"
	runWrong(t, "MCPExternalAuthConfig", []wrong{
		{"no issuer", p, at{p + ".issuer": gone{}}, []string{p + ".issuer"}},
		{"an issuer with a slash", p, at{p + ".issuer": "https://a/b/"}, []string{p + ".issuer"}},
		{"an issuer with a query", p, at{p + ".issuer": "https://a/b?c"}, []string{p + ".issuer"}},
		{"an issuer of another scheme", p, at{p + ".issuer": "ftp://a"}, []string{p + ".issuer"}},
		{"a wrong issuer is told once", p, at{p + ".issuer": "a", p + ".authorizationEndpointBaseUrl": gone{}}, []string{p + ".issuer"}},
		{"an http issuer is left to reconcile", p, at{p + ".issuer": "http://a.example.com", p + ".insecureAllowHTTP": false}, nil},
		{"base url", p, at{p + ".authorizationEndpointBaseUrl": "https://a/"}, []string{p + ".authorizationEndpointBaseUrl"}},
		{"a scope with a space", p, at{p + ".baselineClientScopes": arr{"a b"}}, []string{p + ".baselineClientScopes[0]"}},
		{"no providers", p, at{p + ".upstreamProviders": arr{}}, []string{p + ".primaryUpstreamProvider", p + ".upstreamProviders"}},
		{"a provider twice", p, at{github + ".name": "company"}, []string{github + ".name"}},
		{"an oidc provider without its section", p, at{company + ".oidcConfig": gone{}}, []string{company + ".oidcConfig"}},
		{"a provider of another type", p, at{company + ".type": "oauth2"}, []string{company + ".oauth2Config", company + ".oidcConfig"}},
		{"an upstream in plain text", p, at{company + ".oidcConfig.issuerUrl": "http://a"}, []string{company + ".oidcConfig.issuerUrl"}},
		{"forbidden parameters", p, at{company + ".oidcConfig.additionalAuthorizationParams": obj{
			"response_type": "a", "client_id": "a", "redirect_uri": "a", "scope": "a", "state": "a", "code_challenge": "a", "code_challenge_method": "a", "nonce": "a", "prompt": "a"}},
			[]string{company + ".oidcConfig.additionalAuthorizationParams[client_id]", company + ".oidcConfig.additionalAuthorizationParams[code_challenge]",
				company + ".oidcConfig.additionalAuthorizationParams[code_challenge_method]", company + ".oidcConfig.additionalAuthorizationParams[nonce]",
				company + ".oidcConfig.additionalAuthorizationParams[redirect_uri]", company + ".oidcConfig.additionalAuthorizationParams[response_type]",
				company + ".oidcConfig.additionalAuthorizationParams[scope]", company + ".oidcConfig.additionalAuthorizationParams[state]"}},
		{"forbidden parameters of oauth2", p, at{github + ".oauth2Config.additionalAuthorizationParams": obj{"state": "a"}}, []string{github + ".oauth2Config.additionalAuthorizationParams[state]"}},
		{"a claim with a dot", p, at{company + ".oidcConfig.subjectClaim": "a.b"}, []string{company + ".oidcConfig.subjectClaim"}},
		{"no client", p, at{github + ".oauth2Config.clientId": gone{}}, []string{github + ".oauth2Config.clientId"}},
		{"a client and a registration", p, at{slack + ".oauth2Config.clientId": "a"}, []string{slack + ".oauth2Config.clientId"}},
		{"a secret and a registration", p, at{slack + ".oauth2Config.clientSecretRef": obj{"name": "a", "key": "b"}}, []string{slack + ".oauth2Config.clientSecretRef"}},
		{"discovery and registration", p, at{direct + ".oauth2Config.dcrConfig.discoveryUrl": "https://a.example.com"}, []string{direct + ".oauth2Config.dcrConfig.registrationEndpoint"}},
		{"neither discovery nor registration", p, at{slack + ".oauth2Config.dcrConfig.discoveryUrl": gone{}}, []string{slack + ".oauth2Config.dcrConfig.discoveryUrl"}},
		{"registration without scopes", p, at{direct + ".oauth2Config.scopes": gone{}}, []string{direct + ".oauth2Config.scopes"}},
		{"discovery in plain text", p, at{slack + ".oauth2Config.dcrConfig.discoveryUrl": "http://a"}, []string{slack + ".oauth2Config.dcrConfig.discoveryUrl"}},
		{"discovery with a query", p, at{slack + ".oauth2Config.dcrConfig.discoveryUrl": "https://a?b"}, []string{slack + ".oauth2Config.dcrConfig.discoveryUrl"}},
		{"a redirect that is relative", p, at{github + ".oauth2Config.redirectUri": "/callback"}, []string{github + ".oauth2Config.redirectUri"}},
		{"user info", p, at{github + ".oauth2Config.userInfo": obj{"endpointUrl": "a", "httpMethod": "PUT", "additionalHeaders": obj{"Authorization": "x", "Host": "y", "X-A": "a\r\nB: c"}, "fieldMapping": obj{"subjectFields": arr{""}}}},
			[]string{github + ".oauth2Config.userInfo.endpointUrl", github + ".oauth2Config.userInfo.httpMethod", github + ".oauth2Config.userInfo.additionalHeaders[Authorization]",
				github + ".oauth2Config.userInfo.additionalHeaders[Host]", github + ".oauth2Config.userInfo.additionalHeaders[X-A]", github + ".oauth2Config.userInfo.fieldMapping.subjectFields[0]"}},
		{"a store without credentials", p, at{kv + ".aclUserConfig": gone{}}, []string{kv + ".aclUserConfig"}},
		{"a store without a place", p, at{kv + ".addr": gone{}}, []string{kv + ".addr", kv + ".clusterMode"}},
		{"a store in two places", p, at{kv + ".sentinelConfig": obj{"masterName": "m", "sentinelAddrs": arr{"a:1"}}}, []string{kv + ".sentinelConfig"}},
		{"TLS to sentinels that are not", p, at{kv + ".sentinelTls": obj{}}, []string{kv + ".sentinelTls"}},
		{"an address that is none", p, at{kv + ".addr": "https://a:1"}, []string{kv + ".addr"}},
		{"kvstore without its section", p, at{kv: gone{}}, []string{kv}},
		{"memory with a kvstore", p, at{p + ".storage.type": "memory"}, []string{kv}},
		{"sentinels twice", sentinels, at{kv + ".sentinelConfig.sentinelService": obj{"name": "a"}}, []string{kv + ".sentinelConfig.sentinelService"}},
		{"no sentinels", sentinels, at{sentinels: gone{}}, []string{sentinels}},
		{"a sentinel without a port", sentinels, at{sentinels: arr{"a"}}, []string{sentinels + "[0]"}},
		{"a database below zero", sentinels, at{kv + ".sentinelConfig.db": -1}, []string{kv + ".sentinelConfig.db"}},
		{"cluster and sentinels", sentinels, at{kv + ".clusterMode": true}, []string{kv + ".clusterMode"}},
		{"a zero lifespan", p, at{p + ".tokenLifespans.accessTokenLifespan": "0s"}, []string{p + ".tokenLifespans.accessTokenLifespan"}},
		{"an endless lifespan", p, at{p + ".tokenLifespans.refreshTokenLifespan": "99999999999h"}, []string{p + ".tokenLifespans.refreshTokenLifespan"}},
		{"cimd", p, at{p + ".cimd.cacheMaxSize": 0, p + ".cimd.cacheFallbackTtl": "0s"}, []string{p + ".cimd.cacheFallbackTtl", p + ".cimd.cacheMaxSize"}},
	})
}

func TestMCPServerEntry(t *testing.T) {
	const h = "spec.headerForward.addHeadersFromSecret"
	runWrong(t, "MCPServerEntry", []wrong{
		{"no url", h, at{"spec.remoteUrl": gone{}}, []string{"spec.remoteUrl"}},
		{"a url without a host", h, at{"spec.remoteUrl": "https:///mcp"}, []string{"spec.remoteUrl"}},
		{"a url with a space at its end", h, at{"spec.remoteUrl": "https://example.com/mcp "}, []string{"spec.remoteUrl"}},
		{"a port that there is not", h, at{"spec.remoteUrl": "https://example.com:99999/mcp"}, []string{"spec.remoteUrl"}},
		{"port 0", h, at{"spec.remoteUrl": "https://[::1]:0/mcp"}, []string{"spec.remoteUrl"}},
		{"an escape that would be lost", h, at{"spec.remoteUrl": "https://example.com/a%2Fb/ü/mcp"}, []string{"spec.remoteUrl"}},
		{"escapes that stay", h, at{"spec.remoteUrl": "https://example.com/a%2Fb/%C3%BC/mcp"}, nil},
		{"a path without escapes", h, at{"spec.remoteUrl": "https://example.com/ü/mcp"}, nil},
		{"the last port", h, at{"spec.remoteUrl": "https://[::1]:65535/mcp"}, nil},
		{"stdio", h, at{"spec.transport": "stdio"}, []string{"spec.transport"}},
		{"no group", h, at{"spec.groupRef": gone{}}, []string{"spec.groupRef.name"}},
		{"restricted headers", h, at{"spec.headerForward.addPlaintextHeaders": obj{"Host": "a", "X-Line": "a\nb"}}, []string{"spec.headerForward.addPlaintextHeaders[Host]", "spec.headerForward.addPlaintextHeaders[X-Line]"}},
		{"a header twice", h, at{"spec.headerForward.addPlaintextHeaders": obj{"x-api-key": "a"}}, []string{h + "[0].headerName"}},
		{"a static credential is allowed", h, at{h + "[0].headerName": "Authorization"}, nil},
		{"certificates of nothing", h, at{"spec.caBundleRef": obj{}}, []string{"spec.caBundleRef.configMapRef"}},
		{"certificates without a name", h, at{"spec.caBundleRef.configMapRef.name": ""}, []string{"spec.caBundleRef.configMapRef.name"}},
	})
}

func TestMCPRemoteProxy(t *testing.T) {
	const p = "spec.resourceOverrides"
	runWrong(t, "MCPRemoteProxy", []wrong{
		{"a url", p, at{"spec.remoteUrl": "weather"}, []string{"spec.remoteUrl"}},
		{"two policy sets", p, at{"spec.authzConfigRef": obj{"name": "a"}}, []string{"spec.authzConfigRef"}},
		{"a config map without a name", p, at{"spec.authzConfig.configMap.name": ""}, []string{"spec.authzConfig.configMap.name"}},
		{"a store without an address", p, at{"spec.sessionStorage.address": gone{}}, []string{"spec.sessionStorage.address"}},
		{"another kind of authorization server", p, at{"spec.authServerRef.kind": "VirtualMCPServer"}, []string{"spec.authServerRef.kind"}},
		{"quantities", p, at{"spec.resources.limits": obj{"cpu": "lots", "memory": "-1Mi"}}, []string{"spec.resources.limits[cpu]", "spec.resources.limits[memory]"}},
		{"a variable twice", p, at{"spec.resourceOverrides.proxyDeployment.env": arr{obj{"name": "A", "value": "x"}, obj{"name": "A", "value": "y"}, obj{"name": "", "value": ""}}},
			[]string{"spec.resourceOverrides.proxyDeployment.env[1].name", "spec.resourceOverrides.proxyDeployment.env[2].name"}},
		{"ports", p, at{"spec.proxyPort": 0, "spec.replicas": -1}, []string{"spec.proxyPort", "spec.replicas"}},
	})
}

func TestMCPServer(t *testing.T) {
	const p = "spec.rateLimiting"
	runWrong(t, "MCPServer", []wrong{
		{"no image", p, at{"spec.image": gone{}}, []string{"spec.image"}},
		{"rate limits without a store", p, at{"spec.sessionStorage": gone{}}, []string{"spec.rateLimiting"}},
		{"rate limits for nobody", p, at{"spec.oidcConfigRef": gone{}, "spec.externalAuthConfigRef": gone{}}, []string{"spec.rateLimiting.perUser", "spec.rateLimiting.tools[0].perUser"}},
		{"rate limits with external authentication", p, at{"spec.oidcConfigRef": gone{}}, nil},
		{"no rate limit", p, at{"spec.rateLimiting": obj{}}, []string{"spec.rateLimiting"}},
		{"a profile without a key", p, at{"spec.permissionProfile.key": gone{}}, []string{"spec.permissionProfile.key"}},
		{"volumes", p, at{"spec.volumes": arr{obj{"name": "a", "hostPath": "/a", "mountPath": "data"}, obj{"name": "a", "hostPath": "/a", "mountPath": "data"}}},
			[]string{"spec.volumes[0].mountPath", "spec.volumes[1].mountPath", "spec.volumes[1].mountPath", "spec.volumes[1].name"}},
		{"variables", p, at{"spec.env": arr{obj{"name": "A=B", "value": "x"}}, "spec.secrets[0].targetEnvName": "="}, []string{"spec.env[0].name", "spec.secrets[0].targetEnvName"}},
		{"two policy sets", p, at{"spec.authzConfigRef": obj{"name": "a"}}, []string{"spec.authzConfigRef"}},
	})
}

// What weir run gives besides is judged as its flags are.
func TestRun(t *testing.T) {
	const p = "spec.run.publish"
	runWrong(t, "MCPServer", []wrong{
		{"a host with a port", p, at{"spec.run.proxyHost": "localhost:80", "spec.run.targetHost": "a b"}, []string{"spec.run.proxyHost", "spec.run.targetHost"}},
		{"origins", p, at{"spec.run.allowedOrigins": arr{"https://a.example/x", "*", "https://a.example"}}, []string{"spec.run.allowedOrigins[0]", "spec.run.allowedOrigins[1]"}},
		{"ports", p, at{"spec.run.publish": arr{"0:1", "1:65536", "80", "a:80:80", "::1:80:80", "80:80/udp"}},
			[]string{"spec.run.publish[0]", "spec.run.publish[1]", "spec.run.publish[2]", "spec.run.publish[3]", "spec.run.publish[4]", "spec.run.publish[5]"}},
		{"a port twice", p, at{"spec.run.publish": arr{"80:1", "127.0.0.1:80:2", "[::1]:80:2"}}, []string{"spec.run.publish[1]"}},
		{"labels", p, at{"spec.run.labels": obj{"weir.dev/name": "x", "a b": "x", "team": "a\nb"}}, []string{"spec.run.labels[a b]", "spec.run.labels[team]", "spec.run.labels[weir.dev/name]"}},
		{"a time that is none", p, at{"spec.run.sessionTTL": "-1s"}, []string{"spec.run.sessionTTL"}},
		{"numbers", p, at{"spec.run.maxProcesses": 0, "spec.run.memory": "1Ki", "spec.run.cpus": "many"}, []string{"spec.run.cpus", "spec.run.maxProcesses", "spec.run.memory"}},
		{"words", p, at{"spec.run.processes": "many", "spec.run.restart": "sometimes", "spec.run.sandbox": "jail", "spec.run.imageVerification": "no"},
			[]string{"spec.run.imageVerification", "spec.run.processes", "spec.run.restart", "spec.run.sandbox"}},
		{"paths", p, at{"spec.run.writable": arr{"cache", "/", "/a/../b"}}, []string{"spec.run.writable[0]", "spec.run.writable[1]", "spec.run.writable[2]"}},
		{"a user", p, at{"spec.run.runAs": "root"}, []string{"spec.run.runAs"}},
		{"a digest", p, at{"spec.run.registry.digest": "sha256:x"}, []string{"spec.run.registry.digest"}},
		{"a gateway that nothing blocks", p, at{"spec.run.isolateNetwork": false}, []string{"spec.run.allowContainerGateway"}},
		{"a prefix", p, at{"spec.endpointPrefix": "fetch"}, []string{"spec.endpointPrefix"}},
		{"a prefix with a slash at its end", p, at{"spec.endpointPrefix": "/fetch/"}, []string{"spec.endpointPrefix"}},
		{"a prefix that leads out", p, at{"spec.endpointPrefix": "/a/../b"}, []string{"spec.endpointPrefix"}},
	})
	runWrong(t, "MCPRemoteProxy", []wrong{
		{"a prefix", "spec.run.labels", at{"spec.endpointPrefix": "//x"}, []string{"spec.endpointPrefix"}},
		{"labels", "spec.run.labels", at{"spec.run.labels": obj{"weir.dev/x": "y"}}, []string{"spec.run.labels[weir.dev/x]"}},
	})
}

func TestParsePublished(t *testing.T) {
	for text, want := range map[string]string{"80:81": "127.0.0.1:80 81", "0.0.0.0:80:81": "0.0.0.0:80 81", "[::1]:80:81": "[::1]:80 81"} {
		p, ok := ParsePublished(text)
		if got := fmt.Sprint(p.Address(), " ", p.Container); !ok || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, ok, want)
		}
	}
}

// A profile is read strictly, and what is wrong is named.
func TestParseProfile(t *testing.T) {
	p, err := ParseProfile([]byte(`{"name":"x","read":["/srv","/a:/b","volume://data:/data"],"write":["/w"],"network":{"mode":"bridge","outbound":{"allow_host":["example.com",".example.org","10.0.0.0/8","::1","Example.NET."],"allow_port":[443]},"inbound":{"allow_host":["a.example"]}},"privileged":false}`))
	if err != nil || p.Offline() || len(p.Network.Outbound.AllowHost) != 5 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := ParseProfile([]byte("\ufeff" + `{"name":"marked"}`)); err != nil || p.Name != "marked" {
		t.Errorf("behind a byte order mark: %+v, %v", p, err)
	}
	if p, err := ParseProfile([]byte(`{"network":{"outbound":{"allow_port":[80]}}}`)); err != nil || !p.Offline() {
		t.Errorf("ports without hosts: %+v, %v", p, err)
	}
	for text, want := range map[string]string{
		"{\"name\":\"a\xffb\"}": "no UTF-8", ``: "empty", `null`: "no object", `"x"`: "no object", `{"Name":"x"}`: `unknown field "Name"`, `{"network":{"outbound":{"Insecure_Allow_All":true}}}`: `unknown field "Insecure_Allow_All"`,
		`{"name":"x","name":"y"}`: "name: it is there twice", `{"network":{"outbound":{"allow_host":["a.b"]}},"network":{}}`: "network: it is there twice",
		`{"network":{"outbound":{"allow_host":["a.b"],"allow_port":[1],"allow_host":[]}}}`: "network.outbound.allow_host: it is there twice", `{"name":`: "unexpected",
		`{"reed":[]}`: "reed", `{} {}`: "behind", `[]`: "another type", `{"network":{"outbound":{"allow_port":[0]}}}`: "allow_port[0]",
		`{"network":{"outbound":{"allow_port":["80"]}}}`: "allow_port", `{"network":{"outbound":{"allow_host":["a b"]}}}`: "allow_host[0]",
		`{"network":{"outbound":{"allow_host":["http://a"]}}}`: "allow_host[0]", `{"network":{"inbound":{"allow_host":[".a"]}}}`: "inbound.allow_host[0]",
		`{"read":["/a"],"write":["/b:/a"]}`: "write[0]", `{"read":["a"]}`: "read[0]", `{"read":["/a:/b:/c"]}`: "read[0]", `{"read":["volume://x"]}`: "read[0]",
	} {
		if _, err := ParseProfile([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := ParseProfile([]byte(`{"read":["/name","/read"],"network":{"outbound":{"allow_host":["mode","name"]},"inbound":{"allow_host":["name"]}},"name":"read","write":["/write"]}`)); err != nil {
		t.Errorf("values that are names of fields: %v", err)
	}
	if _, err := ParseProfile(bytes.Repeat([]byte(" "), maxProfile+1)); err == nil {
		t.Error("a profile above the limit was read")
	}
	for _, name := range []string{ProfileNone, ProfileAnywhere} {
		if p, ok := BuiltinProfile(name); !ok || p.Offline() != (name == ProfileNone) {
			t.Errorf("%s: %+v, %v", name, p, ok)
		}
	}
}

func FuzzProfile(f *testing.F) {
	f.Add([]byte(`{"read":["/a:/b"],"network":{"outbound":{"allow_host":["a.example"],"allow_port":[1]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseProfile(text)
		if err != nil {
			return
		}
		for _, m := range append(p.Read, p.Write...) {
			if _, err := ParseMount(m); err != nil {
				t.Errorf("%q passed as a mount: %v", m, err)
			}
		}
	})
}

func TestOtherKinds(t *testing.T) {
	runWrong(t, "MCPOIDCConfig", []wrong{
		{"inline without its section", "spec.inline", at{"spec.inline": gone{}}, []string{"spec.inline"}},
		{"two sections", "spec.inline", at{"spec.kubernetesServiceAccount": obj{}}, []string{"spec.kubernetesServiceAccount"}},
		{"an empty issuer", "spec.inline", at{"spec.inline.issuer": "", "spec.inline.introspectionUrl": gone{}}, []string{"spec.inline.issuer"}},
		{"nobody who knows tokens", "spec.inline", at{"spec.inline.issuer": gone{}, "spec.inline.introspectionUrl": gone{}}, []string{"spec.inline.issuer"}},
		{"urls", "spec.inline", at{"spec.inline.issuer": "a", "spec.inline.jwksUrl": "b", "spec.inline.introspectionUrl": "c"}, []string{"spec.inline.introspectionUrl", "spec.inline.issuer", "spec.inline.jwksUrl"}},
	})
	runWrong(t, "MCPAuthzConfig", []wrong{
		{"no type", "", at{"spec.type": ""}, []string{"spec.type"}},
		{"no config", "", at{"spec.config": gone{}}, []string{"spec.config"}},
		{"a config that is text", "", at{"spec.config": "x"}, []string{"spec.config"}},
	})
	runWrong(t, "MCPToolConfig", []wrong{
		{"a tool twice", "", at{"spec.toolsFilter": arr{"a", "", "a"}}, []string{"spec.toolsFilter[1]", "spec.toolsFilter[2]"}},
		{"an override of nothing", "", at{"spec.toolsOverride": obj{"a": obj{}}}, []string{"spec.toolsOverride[a]"}},
	})
	runWrong(t, "MCPTelemetryConfig", []wrong{
		{"a header in both lists", "", at{"spec.openTelemetry.headers": obj{"authorization": "x"}}, []string{"spec.openTelemetry.sensitiveHeaders[0].name"}},
		{"a sampling rate", "", at{"spec.openTelemetry.tracing.samplingRate": "1.5"}, []string{"spec.openTelemetry.tracing.samplingRate"}},
		{"certificates of nothing", "", at{"spec.openTelemetry.caBundleRef": obj{}}, []string{"spec.openTelemetry.caBundleRef.configMapRef"}},
	})
	runWrong(t, "MCPWebhookConfig", []wrong{
		{"no webhook", "", at{"spec": obj{}}, []string{"spec"}},
		{"one twice", "", at{"spec.validating[1]": obj{"name": "policy", "url": "https://a"}}, []string{"spec.validating[1].name"}},
		{"plain text", "", at{"spec.validating[0].url": "http://a"}, []string{"spec.validating[0].url"}},
		{"timeouts", "", at{"spec.validating[0].timeout": "500ms", "spec.mutating[0].timeout": "31s"}, []string{"spec.mutating[0].timeout", "spec.validating[0].timeout"}},
		{"a certificate without a key", "", at{"spec.validating[0].tlsConfig.clientKeySecretRef": gone{}}, []string{"spec.validating[0].tlsConfig.clientKeySecretRef"}},
		{"a key without a certificate", "", at{"spec.validating[0].tlsConfig.clientCertSecretRef": gone{}}, []string{"spec.validating[0].tlsConfig.clientCertSecretRef"}},
	})
	runWrong(t, "EmbeddingServer", []wrong{
		{"a size", "spec.modelCache", at{"spec.modelCache.size": "big"}, []string{"spec.modelCache.size"}},
		{"no replicas", "spec.modelCache", at{"spec.replicas": 0}, []string{"spec.replicas"}},
	})
	runWrong(t, "EdgeFilter", []wrong{
		{"no source", "spec.grants", at{"spec.source": obj{}}, []string{"spec.source"}},
		{"two sources", "spec.grants", at{"spec.source.configMapRef": obj{"name": "a", "key": "b"}}, []string{"spec.source"}},
		{"a module in place that is no base64", "spec.grants", at{"spec.source": obj{"inline": "x"}}, []string{"spec.source.inline"}},
		{"a module in place that is too large", "spec.grants", at{"spec.source": obj{"inline": strings.Repeat("AAAA", maxFilterInline/3+1)}}, []string{"spec.source.inline"}},
		{"a script that is too large", "spec.source.inline", at{"spec.source.inline": strings.Repeat("#", maxScript+1)}, []string{"spec.source.inline"}},
		{"a URL without a digest", "spec.grants", at{"spec.source": obj{"url": "https://example.com/a.wasm"}, "spec.sha256": gone{}}, []string{"spec.sha256"}},
		{"a URL in the clear", "spec.grants", at{"spec.source": obj{"url": "http://example.com/a.wasm"}}, []string{"spec.source.url"}},
		{"a mode", "spec.grants", at{"spec.mode": "watch"}, []string{"spec.mode"}},
		{"a digest", "spec.grants", at{"spec.sha256": "ABC"}, []string{"spec.sha256"}},
		{"limits of a module for a script", "spec.source.inline", at{"spec.limits": obj{"memory": "1Mi", "instances": 1, "isolation": "shared"}}, []string{"spec.limits.instances", "spec.limits.isolation", "spec.limits.memory"}},
		{"limits", "spec.grants", at{"spec.limits": obj{"timeout": "2m", "fuel": 0, "memory": "1Ki", "output": "1Gi", "instances": 0}},
			[]string{"spec.limits.fuel", "spec.limits.instances", "spec.limits.memory", "spec.limits.output", "spec.limits.timeout"}},
		{"hosts", "spec.grants", at{"spec.grants.http": arr{"*", "https://a", "a:0", "a/b", "", "a b", "http://a/b", "http://", "http://*.a", "http://http://a"}},
			[]string{"spec.grants.http[0]", "spec.grants.http[1]", "spec.grants.http[2]", "spec.grants.http[3]", "spec.grants.http[4]", "spec.grants.http[5]",
				"spec.grants.http[6]", "spec.grants.http[7]", "spec.grants.http[8]", "spec.grants.http[9]"}},
		{"keys", "spec.grants", at{"spec.grants.keys": obj{"a": obj{"name": "b"}}}, []string{"spec.grants.keys[a].key"}},
		{"a config that is a list", "spec.grants", at{"spec.config": arr{}}, []string{"spec.config"}},
	})
}

// TestTheStoreOfRateLimitsHasAnOrigin: an edge that limits in its own process
// can tell this error from all others.
func TestTheStoreOfRateLimitsHasAnOrigin(t *testing.T) {
	d := one(t, "VirtualMCPServer", "spec.config.rateLimiting")
	errs := judge(t, d.kind, edit(d.value, split("spec.sessionStorage"), obj{"provider": "memory"}))
	if len(errs) != 1 || errs[0].Origin != OriginRateLimitStore {
		t.Errorf("errors %v with origin %q", errs, errs[0].Origin)
	}
}

// TestErrorsHoldNoSecrets puts a text into every field that holds a secret, or
// into which people put one by mistake, in forms that are wrong in as many ways
// as the rules know: no error may repeat it.
func TestErrorsHoldNoSecrets(t *testing.T) {
	const secret = "hunter2"
	fields := regexp.MustCompile(`(?i)(secret|token|password|key)s?(ref|refs)?(\[\d+\])?\.(name|key)$|` +
		`\.(headerValue|headerValueEnv|[a-zA-Z]*[cC]lientSecret|[a-zA-Z]*[cC]lientSecretEnv|softwareStatement)$|` +
		`\.(headers|embeddingHeaders|addPlaintextHeaders|additionalHeaders|additionalAuthorizationParams|customAttributes|resourceAttributes|keys)\[[^]]*\](\.name|\.key)?$|` +
		`\.env\[\d+\]\.value$|\.config\[?[^.]*\]?$|\.entitiesJson$|\.parameters$|\.arguments$|\.schema$|\.defaultResults$`)
	urls := regexp.MustCompile(`(?i)(url|uri|endpoint|issuer|address|addr|service|authority|resource)$|\.http\[\d+\]$|sentinelAddrs\[\d+\]$`)
	maps := regexp.MustCompile(`(?i)(headers|params|attributes|keys)$`)
	tried, errors := map[string]bool{}, 0
	var walk func(d document, v any, path []string, name string)
	try := func(d document, path []string, name string, to any) {
		o, err := object(d.kind, edit(d.value, path, to))
		if err != nil {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: decoding %s shows the secret: %v", d.name, name, err)
			}
			return
		}
		o.Default()
		for _, e := range o.Validate() {
			errors++
			if strings.Contains(e.Error(), secret) {
				t.Errorf("%s: %s shows the secret: %v", d.name, name, e)
			}
		}
		tried[d.kind+" "+name] = true
	}
	walk = func(d document, v any, path []string, name string) {
		again := tried[d.kind+" "+name] // by an earlier manifest of the kind
		if !again && fields.MatchString(name) {
			for _, form := range []string{secret, secret + "\r\n", "/" + secret, secret + "=", "{{" + secret, strings.Repeat(secret, 40)} {
				try(d, path, name, form)
			}
		}
		if !again && urls.MatchString(name) {
			for _, form := range []string{"https://user:" + secret + "@", "ftp://" + secret + "@host", "https://host/?token=" + secret, "https://host/?token=" + secret + "#x", ":" + secret + "@host/", "https://a b/?" + secret, "https://u:" + secret + "@host/%zz"} {
				try(d, path, name, form)
			}
		}
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				at := name + "." + k
				if maps.MatchString(name) {
					at = name + "[" + k + "]"
				}
				walk(d, e, append(slices.Clone(path), k), at)
			}
		case []any:
			for i, e := range v {
				walk(d, e, append(slices.Clone(path), fmt.Sprint(i)), fmt.Sprintf("%s[%d]", name, i))
			}
		}
	}
	for _, d := range grafted(t) {
		walk(d, d.value["spec"], []string{"spec"}, "spec")
	}
	if len(tried) < 150 || errors < 500 {
		t.Errorf("%d fields were tried and gave %d errors: the patterns miss some", len(tried), errors)
	}
	for _, must := range []string{
		"MCPExternalAuthConfig spec.headerInjection.valueSecretRef.name",
		"MCPExternalAuthConfig spec.tokenExchange.tokenUrl",
		"MCPExternalAuthConfig spec.embeddedAuthServer.upstreamProviders[2].oauth2Config.dcrConfig.softwareStatement",
		"VirtualMCPServer spec.config.outgoingAuth.backends.header.headerInjection.headerValue",
		"VirtualMCPServer spec.config.outgoingAuth.backends.exchange.tokenExchange.clientSecret",
		"VirtualMCPServer spec.config.outgoingAuth.backends.cross.xaa.idpClientSecret",
		"VirtualMCPServer spec.config.telemetry.headers[X-Team]",
		"VirtualMCPServer spec.config.optimizer.embeddingHeaders[X-Org]",
		"MCPServer spec.env[1].value",
		"MCPServerEntry spec.headerForward.addPlaintextHeaders[X-Team]",
		"EdgeFilter spec.grants.keys[sign].name",
	} {
		if !tried[must] {
			t.Errorf("%s was not tried", must)
		}
	}
}
