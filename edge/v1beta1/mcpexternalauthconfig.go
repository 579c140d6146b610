package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPExternalAuthConfig says how a server or proxy authenticates to a backend.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mcpexternalauthconfigs,scope=Namespaced,shortName=extauth;mcpextauth
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=='Valid')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MCPExternalAuthConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec MCPExternalAuthConfigSpec `json:"spec"`

	// Status is what was seen.
	Status MCPExternalAuthConfigStatus `json:"status,omitempty"`
}

// MCPExternalAuthConfigList is a list of MCPExternalAuthConfig.
//
// +kubebuilder:object:root=true
type MCPExternalAuthConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MCPExternalAuthConfig `json:"items"`
}

// ExternalAuthType is how a server authenticates to a backend.
// +kubebuilder:validation:Enum=tokenExchange;headerInjection;bearerToken;unauthenticated;embeddedAuthServer;cloudSts;upstreamInject;obo;xaa
type ExternalAuthType string

// The ways to authenticate to a backend.
const (
	AuthTokenExchange      ExternalAuthType = "tokenExchange"
	AuthHeaderInjection    ExternalAuthType = "headerInjection"
	AuthBearerToken        ExternalAuthType = "bearerToken"
	AuthUnauthenticated    ExternalAuthType = "unauthenticated"
	AuthEmbeddedAuthServer ExternalAuthType = "embeddedAuthServer"
	AuthCloudSTS           ExternalAuthType = "cloudSts"
	AuthUpstreamInject     ExternalAuthType = "upstreamInject"
	AuthOBO                ExternalAuthType = "obo"
	AuthXAA                ExternalAuthType = "xaa"
)

// MCPExternalAuthConfigSpec says how to authenticate: the field named by type
// is set and no other.
type MCPExternalAuthConfigSpec struct {
	// Type of the authentication.
	Type ExternalAuthType `json:"type"`

	// TokenExchange is set when type is tokenExchange.
	TokenExchange *TokenExchange `json:"tokenExchange,omitempty"`

	// HeaderInjection is set when type is headerInjection.
	HeaderInjection *HeaderInjection `json:"headerInjection,omitempty"`

	// BearerToken is set when type is bearerToken.
	BearerToken *BearerToken `json:"bearerToken,omitempty"`

	// EmbeddedAuthServer is set when type is embeddedAuthServer.
	EmbeddedAuthServer *EmbeddedAuthServer `json:"embeddedAuthServer,omitempty"`

	// CloudSTS is set when type is cloudSts.
	CloudSTS *CloudSTS `json:"cloudSts,omitempty"`

	// UpstreamInject is set when type is upstreamInject.
	UpstreamInject *UpstreamInject `json:"upstreamInject,omitempty"`

	// OBO is set when type is obo.
	OBO *OBO `json:"obo,omitempty"`

	// XAA is set when type is xaa.
	XAA *XAA `json:"xaa,omitempty"`
}

// TokenExchange exchanges a token for another (RFC 8693).
type TokenExchange struct {
	// TokenURL is the token endpoint.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=url
	TokenURL string `json:"tokenUrl"`

	// Audience of the exchanged token.
	// +kubebuilder:validation:MinLength=1
	Audience string `json:"audience"`

	// ClientID at the token endpoint.
	ClientID string `json:"clientId,omitempty"`

	// ClientSecretRef is the secret with the client secret.
	ClientSecretRef *SecretRef `json:"clientSecretRef,omitempty"`

	// Scopes to request.
	// +weir:form=scope
	Scopes []string `json:"scopes,omitempty"`

	// ExternalTokenHeaderName is the header that carries the exchanged token.
	// When empty, it replaces Authorization.
	// +weir:form=header
	ExternalTokenHeaderName string `json:"externalTokenHeaderName,omitempty"`

	// SubjectProviderName is the upstream whose token is exchanged instead of
	// the client's. The default on a VirtualMCPServer with an embedded
	// authorization server is its first upstream.
	SubjectProviderName string `json:"subjectProviderName,omitempty"`

	// SubjectTokenType of the token that is exchanged, short or as a URN.
	// +kubebuilder:default=access_token
	// +kubebuilder:validation:Pattern=`^(access_token|id_token|jwt|urn:ietf:params:oauth:token-type:(access_token|id_token|jwt))?$`
	SubjectTokenType string `json:"subjectTokenType,omitempty"`
}

// HeaderInjection sends one header whose value is in a secret.
type HeaderInjection struct {
	// HeaderName is the header to send.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=header
	HeaderName string `json:"headerName"`

	// ValueSecretRef is the secret with the value.
	ValueSecretRef SecretRef `json:"valueSecretRef"`
}

// BearerToken sends a bearer token that is in a secret.
type BearerToken struct {
	// TokenSecretRef is the secret with the token.
	TokenSecretRef SecretRef `json:"tokenSecretRef"`
}

// UpstreamInject sends the access token of an upstream as a bearer token.
type UpstreamInject struct {
	// ProviderName is an upstream of the embedded authorization server.
	// +kubebuilder:validation:MinLength=1
	ProviderName string `json:"providerName"`
}

// CloudSTS exchanges a token for cloud credentials and signs requests with
// SigV4.
type CloudSTS struct {
	// Region of the STS endpoint and of the service, such as eu-west-1.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-z]{2}(-[a-z]+)+-\d+$`
	Region string `json:"region"`

	// FallbackRoleARN is assumed when no mapping matches. One of
	// fallbackRoleArn and roleMappings must be set.
	// +kubebuilder:validation:Pattern=`^arn:(aws|aws-cn|aws-us-gov):iam::\d{12}:role/[\w+=,.@\-_/]+$`
	FallbackRoleARN string `json:"fallbackRoleArn,omitempty"`

	// RoleClaim is the token claim that mappings read.
	// +kubebuilder:default=groups
	RoleClaim string `json:"roleClaim,omitempty"`

	// RoleMappings select a role by claims.
	RoleMappings []RoleMapping `json:"roleMappings,omitempty"`

	// Service is the service name for SigV4 signing.
	// +kubebuilder:default="cloud-mcp"
	Service string `json:"service,omitempty"`

	// SessionDuration in seconds.
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=900
	// +kubebuilder:validation:Maximum=43200
	SessionDuration *int32 `json:"sessionDuration,omitempty"`

	// SessionNameClaim is the token claim used as role session name.
	// +kubebuilder:default=sub
	SessionNameClaim string `json:"sessionNameClaim,omitempty"`

	// SubjectProviderName is the upstream whose access token is the web identity
	// token. Only on a VirtualMCPServer; the default with an embedded
	// authorization server is its first upstream, else the client's bearer token.
	SubjectProviderName string `json:"subjectProviderName,omitempty"`
}

// RoleMapping selects a role by claims.
type RoleMapping struct {
	// RoleARN is the role to assume.
	// +kubebuilder:validation:Pattern=`^arn:(aws|aws-cn|aws-us-gov):iam::\d{12}:role/[\w+=,.@\-_/]+$`
	RoleARN string `json:"roleArn"`

	// Claim is a value of the role claim. Exclusive with matcher.
	// +kubebuilder:validation:MinLength=1
	Claim string `json:"claim,omitempty"`

	// Matcher is a CEL expression over the map claims. Exclusive with claim.
	// +kubebuilder:validation:MinLength=1
	Matcher string `json:"matcher,omitempty"`

	// Priority: lower is evaluated first; without it the mapping comes last.
	// Configuration order breaks ties.
	// +kubebuilder:validation:Minimum=0
	Priority *int32 `json:"priority,omitempty"`
}

// OBO is an on-behalf-of exchange with a directory.
type OBO struct {
	// Audience is the target when scopes is empty.
	Audience string `json:"audience,omitempty"`

	// Scopes to request. They take precedence over audience; one of the two must
	// be set.
	// +kubebuilder:validation:MaxItems=20
	// +weir:form=scope
	Scopes []string `json:"scopes,omitempty"`

	// TenantID is the directory's GUID or one of its verified domain names. The
	// aliases common, organizations and consumers are rejected.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,})$`
	TenantID string `json:"tenantId,omitempty"`

	// ClientID of the confidential client.
	ClientID string `json:"clientId,omitempty"`

	// ClientSecretRef is the secret with the client secret.
	ClientSecretRef *SecretRef `json:"clientSecretRef,omitempty"`

	// Authority replaces the default login host, for national clouds: an https
	// URL without user info, query, fragment or trailing slash.
	// +kubebuilder:validation:Pattern=`^https://[^\s?#@]+[^/\s?#@]$`
	// +weir:form=authority
	Authority string `json:"authority,omitempty"`

	// CacheSkew is how long before its expiry a cached token counts as expired, at
	// most half of its lifetime. Absent is 30s, below 0 is 0.
	CacheSkew SignedDuration `json:"cacheSkew,omitempty"`

	// SubjectTokenProviderName is the upstream whose token is exchanged. Without
	// it the client's own token is.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	SubjectTokenProviderName string `json:"subjectTokenProviderName,omitempty"`
}

// XAA is a cross-application access exchange: the identity provider turns an ID
// token into an identity assertion (RFC 8693), and the target turns that into
// an access token (RFC 7523).
type XAA struct {
	// IDPTokenURL is the token endpoint of the identity provider.
	// +kubebuilder:validation:Pattern=`^https://.*$`
	// +weir:form=https
	IDPTokenURL string `json:"idpTokenUrl"`

	// IDPClientID at the identity provider.
	IDPClientID string `json:"idpClientId,omitempty"`

	// IDPClientSecretRef is the secret with the client secret at the identity
	// provider.
	IDPClientSecretRef *SecretRef `json:"idpClientSecretRef,omitempty"`

	// TargetAudience is the URL of the resource's authorization server.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=url
	TargetAudience string `json:"targetAudience"`

	// TargetTokenURL is the token endpoint of the target.
	// +kubebuilder:validation:MinLength=1
	TargetTokenURL string `json:"targetTokenUrl"`

	// TargetClientID at the target.
	TargetClientID string `json:"targetClientId,omitempty"`

	// TargetClientSecretRef is the secret with the client secret at the target.
	TargetClientSecretRef *SecretRef `json:"targetClientSecretRef,omitempty"`

	// TargetResource is the RFC 8707 resource of the first exchange; for an MCP
	// backend the URL of the server.
	// +weir:form=uri
	TargetResource string `json:"targetResource,omitempty"`

	// Scopes of both exchanges.
	// +weir:form=scope
	Scopes []string `json:"scopes,omitempty"`

	// SubjectProviderName is the upstream whose ID token is exchanged. The
	// default with an embedded authorization server is its first upstream.
	SubjectProviderName string `json:"subjectProviderName,omitempty"`

	// SubjectTokenType of the token that is exchanged: only the ID token URN.
	// +kubebuilder:default="urn:ietf:params:oauth:token-type:id_token"
	// +kubebuilder:validation:Enum="urn:ietf:params:oauth:token-type:id_token"
	SubjectTokenType string `json:"subjectTokenType,omitempty"`

	// InsecureTargetTokenURL allows plain HTTP to the target. Development only.
	InsecureTargetTokenURL bool `json:"insecureTargetTokenUrl,omitempty"`
}

// MCPExternalAuthConfigStatus is what was seen of the resource.
type MCPExternalAuthConfigStatus struct {
	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ConfigHash changes when the configuration does.
	ConfigHash string `json:"configHash,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ReferenceCount is the number of workloads that refer to this resource.
	ReferenceCount int32 `json:"referenceCount,omitempty"`

	// ReferencingWorkloads are the workloads that refer to this resource.
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	ReferencingWorkloads []WorkloadReference `json:"referencingWorkloads,omitempty"`
}

// WorkloadReference names a workload that refers to a resource.
type WorkloadReference struct {
	// Kind of the workload.
	// +kubebuilder:validation:Enum=MCPServer;VirtualMCPServer;MCPRemoteProxy
	Kind string `json:"kind"`

	// Name of the workload.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}
