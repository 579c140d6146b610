package v1beta1

// ConfigIncomingType is how clients authenticate, in spec.config.
// +kubebuilder:validation:Enum=oidc;local;anonymous
type ConfigIncomingType string

// The ways in which clients authenticate, in spec.config.
const (
	ConfigIncomingOIDC      ConfigIncomingType = "oidc"
	ConfigIncomingLocal     ConfigIncomingType = "local"
	ConfigIncomingAnonymous ConfigIncomingType = "anonymous"
)

// ConfigIncomingAuth is the authentication and authorization of clients, in
// spec.config.
type ConfigIncomingAuth struct {
	// Type of the authentication.
	Type ConfigIncomingType `json:"type"`

	// OIDC holds the identity provider when type is oidc.
	OIDC *ConfigOIDC `json:"oidc,omitempty"`

	// Authz is the authorization policy set.
	Authz *ConfigAuthz `json:"authz,omitempty"`
}

// ConfigOIDC is an identity provider whose tokens are accepted.
type ConfigOIDC struct {
	// Issuer of the tokens.
	// +kubebuilder:validation:Pattern=`^https?://`
	// +weir:form=url
	Issuer string `json:"issuer"`

	// Audience that tokens must carry.
	// +kubebuilder:validation:MinLength=1
	Audience string `json:"audience"`

	// ClientID of this server at the provider.
	// +kubebuilder:validation:MinLength=1
	ClientID string `json:"clientId"`

	// ClientSecretEnv is the name of an environment variable with the client
	// secret.
	// +weir:form=env
	ClientSecretEnv string `json:"clientSecretEnv,omitempty"`

	// IntrospectionURL is where opaque tokens are introspected (RFC 7662).
	// +weir:form=url
	IntrospectionURL string `json:"introspectionUrl,omitempty"`

	// JWKSURL is where the keys are. Without it they are discovered.
	// +weir:form=url
	JWKSURL string `json:"jwksUrl,omitempty"`

	// JWKSAllowPrivateIP allows the key URL to be on a private address.
	JWKSAllowPrivateIP bool `json:"jwksAllowPrivateIp,omitempty"`

	// ProtectedResourceAllowPrivateIP allows the protected resource metadata to
	// be on a private address.
	ProtectedResourceAllowPrivateIP bool `json:"protectedResourceAllowPrivateIp,omitempty"`

	// InsecureAllowHTTP allows plain HTTP to the provider. Development only.
	InsecureAllowHTTP bool `json:"insecureAllowHttp,omitempty"`

	// Resource is the RFC 8707 indicator of this server, for WWW-Authenticate
	// and RFC 9728 metadata. The default is the audience.
	Resource string `json:"resource,omitempty"`

	// Scopes advertised in the protected resource metadata.
	// +weir:form=scope
	Scopes []string `json:"scopes,omitempty"`

	// RequiredScopes are those that every token must carry: a client without
	// them is told which to ask for. A field of ours.
	// +weir:form=scope
	RequiredScopes []string `json:"requiredScopes,omitempty"`

	// CABundlePath is a file of PEM certificates to trust for the provider.
	CABundlePath string `json:"caBundlePath,omitempty"`
}

// ConfigAuthzType is policy or none.
// +kubebuilder:validation:Enum=policy;none
type ConfigAuthzType string

// The types of authorization in spec.config.
const (
	AuthzPolicy ConfigAuthzType = "policy"
	AuthzNone   ConfigAuthzType = "none"
)

// ConfigAuthz is an authorization policy set, in spec.config.
type ConfigAuthz struct {
	// Type is policy, or none to allow everything.
	Type ConfigAuthzType `json:"type"`

	// Policies in the policy language, one or more per string.
	Policies []string `json:"policies,omitempty"`

	// EntitiesJSON is a JSON array of entities that policies may refer to.
	// +kubebuilder:default="[]"
	// +weir:form=entities
	EntitiesJSON string `json:"entitiesJson,omitempty"`

	// GroupClaimName is the token claim with the principal's groups.
	// +weir:maxLength=253
	GroupClaimName string `json:"groupClaimName,omitempty"`

	// RoleClaimName is the token claim with the principal's roles.
	// +weir:maxLength=253
	RoleClaimName string `json:"roleClaimName,omitempty"`

	// GroupEntityType is the entity type of groups in policies.
	// +kubebuilder:default=THVGroup
	// +weir:form=identifier
	// +weir:maxLength=63
	GroupEntityType string `json:"groupEntityType,omitempty"`

	// PrimaryUpstreamProvider is the upstream whose token's claims policies read.
	// Empty means the claims of the token that this service issued. Only with
	// the embedded authorization server.
	PrimaryUpstreamProvider string `json:"primaryUpstreamProvider,omitempty"`
}

// ConfigOutgoingAuth is the authentication to backends, in spec.config.
type ConfigOutgoingAuth struct {
	// Source is inline or discovered.
	Source AuthSource `json:"source"`

	// Default applies to backends without an entry of their own.
	Default *OutgoingStrategy `json:"default,omitempty"`

	// Backends holds the entries of single backends, by backend name.
	Backends map[string]OutgoingStrategy `json:"backends,omitempty"`
}

// StrategyType is how the edge authenticates to a backend.
// +kubebuilder:validation:Enum=unauthenticated;header_injection;token_exchange;upstream_inject;cloud_sts;obo;xaa
type StrategyType string

// The ways to authenticate to a backend, in spec.config.
const (
	StrategyUnauthenticated StrategyType = "unauthenticated"
	StrategyHeaderInjection StrategyType = "header_injection"
	StrategyTokenExchange   StrategyType = "token_exchange"
	StrategyUpstreamInject  StrategyType = "upstream_inject"
	StrategyCloudSTS        StrategyType = "cloud_sts"
	StrategyOBO             StrategyType = "obo"
	StrategyXAA             StrategyType = "xaa"
)

// OutgoingStrategy is the authentication to a backend, in spec.config.
type OutgoingStrategy struct {
	// Type of the strategy.
	Type StrategyType `json:"type"`

	// CloudSTS is used when type is cloud_sts.
	CloudSTS *ConfigCloudSTS `json:"cloudSts,omitempty"`

	// HeaderInjection is used when type is header_injection.
	HeaderInjection *ConfigHeaderInjection `json:"headerInjection,omitempty"`

	// TokenExchange is used when type is token_exchange.
	TokenExchange *ConfigTokenExchange `json:"tokenExchange,omitempty"`

	// UpstreamInject is used when type is upstream_inject.
	UpstreamInject *UpstreamInject `json:"upstreamInject,omitempty"`

	// OBO is used when type is obo.
	OBO *ConfigOBO `json:"obo,omitempty"`

	// XAA is used when type is xaa.
	XAA *ConfigXAA `json:"xaa,omitempty"`
}

// ConfigCloudSTS exchanges a token for cloud credentials and signs requests.
type ConfigCloudSTS struct {
	// Region of the STS endpoint and of the service.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=region
	Region string `json:"region"`

	// FallbackRoleARN is assumed when no mapping matches.
	// +weir:form=role
	FallbackRoleARN string `json:"fallbackRoleArn,omitempty"`

	// RoleClaim is the token claim that mappings read.
	// +kubebuilder:default=groups
	RoleClaim string `json:"roleClaim,omitempty"`

	// RoleMappings select a role by claims.
	RoleMappings []ConfigRoleMapping `json:"roleMappings,omitempty"`

	// Service is the service name for SigV4 signing.
	// +kubebuilder:default="cloud-mcp"
	Service string `json:"service,omitempty"`

	// SessionDuration in seconds, from 900 to 43200.
	// +kubebuilder:default=3600
	// +weir:low=900
	// +weir:high=43200
	SessionDuration *int32 `json:"sessionDuration,omitempty"`

	// SessionNameClaim is the token claim used as role session name.
	// +kubebuilder:default=sub
	SessionNameClaim string `json:"sessionNameClaim,omitempty"`

	// SubjectProviderName is the upstream whose access token is the web identity
	// token. Without it the client's bearer token is.
	SubjectProviderName string `json:"subjectProviderName,omitempty"`
}

// ConfigRoleMapping selects a role by claims.
type ConfigRoleMapping struct {
	// RoleARN is the role to assume.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=role
	RoleARN string `json:"roleArn"`

	// Claim is a value of the role claim. Exclusive with matcher.
	Claim string `json:"claim,omitempty"`

	// Matcher is a CEL expression over the map claims. Exclusive with claim.
	Matcher string `json:"matcher,omitempty"`

	// Priority: lower is evaluated first; without it the mapping comes last.
	// +weir:low=0
	Priority *int `json:"priority,omitempty"`
}

// ConfigHeaderInjection sends one header to the backend.
type ConfigHeaderInjection struct {
	// HeaderName is the header to send.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=header
	HeaderName string `json:"headerName"`

	// HeaderValue is the value. Exclusive with headerValueEnv.
	HeaderValue string `json:"headerValue,omitempty"`

	// HeaderValueEnv is the name of an environment variable with the value.
	// Exclusive with headerValue.
	// +weir:form=env
	HeaderValueEnv string `json:"headerValueEnv,omitempty"`
}

// ConfigTokenExchange exchanges a token for another (RFC 8693).
type ConfigTokenExchange struct {
	// TokenURL is the token endpoint.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=url
	TokenURL string `json:"tokenUrl"`

	// Audience of the exchanged token.
	Audience string `json:"audience,omitempty"`

	// ClientID at the token endpoint.
	ClientID string `json:"clientId,omitempty"`

	// ClientSecret at the token endpoint. Exclusive with clientSecretEnv.
	ClientSecret string `json:"clientSecret,omitempty"`

	// ClientSecretEnv is the name of an environment variable with the secret.
	// +weir:form=env
	ClientSecretEnv string `json:"clientSecretEnv,omitempty"`

	// Scopes to request.
	// +weir:form=scope
	Scopes []string `json:"scopes,omitempty"`

	// SubjectProviderName is the upstream whose token is exchanged. Without it
	// the first upstream of an embedded authorization server is used, or else
	// the client's own token.
	SubjectProviderName string `json:"subjectProviderName,omitempty"`

	// SubjectTokenType of the token that is exchanged.
	// +kubebuilder:default="urn:ietf:params:oauth:token-type:access_token"
	// +weir:form=tokenType
	SubjectTokenType string `json:"subjectTokenType,omitempty"`
}

// ConfigOBO is an on-behalf-of exchange with a directory.
type ConfigOBO struct {
	// TokenURL is the token endpoint.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=url
	TokenURL string `json:"tokenUrl"`

	// Audience is the target when scopes is empty.
	Audience string `json:"audience,omitempty"`

	// Scopes to request. They take precedence over audience.
	// +weir:form=scope
	Scopes []string `json:"scopes,omitempty"`

	// ClientID of the confidential client.
	ClientID string `json:"clientId,omitempty"`

	// ClientSecret of the confidential client. Exclusive with clientSecretEnv.
	ClientSecret string `json:"clientSecret,omitempty"`

	// ClientSecretEnv is the name of an environment variable with the secret.
	// +weir:form=env
	ClientSecretEnv string `json:"clientSecretEnv,omitempty"`

	// CacheSkewSeconds is how long before its expiry a cached token counts as
	// expired, at most half of its lifetime. Absent or below 0 is 0.
	CacheSkewSeconds int32 `json:"cacheSkewSeconds,omitempty"`

	// SubjectTokenProviderName is the upstream whose token is exchanged. Without
	// it the client's own token is.
	SubjectTokenProviderName string `json:"subjectTokenProviderName,omitempty"`
}

// ConfigXAA is a cross-application access exchange in two steps.
type ConfigXAA struct {
	// IDPTokenURL is the token endpoint of the identity provider.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=https
	IDPTokenURL string `json:"idpTokenUrl"`

	// IDPClientID at the identity provider.
	IDPClientID string `json:"idpClientId,omitempty"`

	// IDPClientSecret at the identity provider. Exclusive with
	// idpClientSecretEnv.
	IDPClientSecret string `json:"idpClientSecret,omitempty"`

	// IDPClientSecretEnv is the name of an environment variable with the secret.
	// +weir:form=env
	IDPClientSecretEnv string `json:"idpClientSecretEnv,omitempty"`

	// TargetAudience is the URL of the resource's authorization server.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=url
	TargetAudience string `json:"targetAudience"`

	// TargetTokenURL is the token endpoint of the target (RFC 7523).
	// +kubebuilder:validation:MinLength=1
	TargetTokenURL string `json:"targetTokenUrl"`

	// TargetClientID at the target.
	TargetClientID string `json:"targetClientId,omitempty"`

	// TargetClientSecret at the target. Exclusive with targetClientSecretEnv.
	TargetClientSecret string `json:"targetClientSecret,omitempty"`

	// TargetClientSecretEnv is the name of an environment variable with the
	// secret.
	// +weir:form=env
	TargetClientSecretEnv string `json:"targetClientSecretEnv,omitempty"`

	// TargetResource is the RFC 8707 resource of the first exchange.
	// +weir:form=uri
	TargetResource string `json:"targetResource,omitempty"`

	// Scopes of both exchanges.
	// +weir:form=scope
	Scopes []string `json:"scopes,omitempty"`

	// SubjectProviderName is the upstream whose ID token is exchanged.
	SubjectProviderName string `json:"subjectProviderName,omitempty"`

	// SubjectTokenType of the token that is exchanged: only the ID token URN.
	// +kubebuilder:default="urn:ietf:params:oauth:token-type:id_token"
	// +weir:enum="urn:ietf:params:oauth:token-type:id_token"
	SubjectTokenType string `json:"subjectTokenType,omitempty"`

	// InsecureTargetTokenURL allows plain HTTP to the target. Development only.
	InsecureTargetTokenURL bool `json:"insecureTargetTokenUrl,omitempty"`
}
