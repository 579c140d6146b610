package v1beta1

// NameRef names a resource of the same namespace.
type NameRef struct {
	// Name of the resource.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=dns
	Name string `json:"name"`
}

// SecretRef names one key of a secret of the same namespace.
type SecretRef struct {
	// Name of the secret.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Key within the secret.
	// +kubebuilder:validation:MinLength=1
	Key string `json:"key"`
}

// ImagePullSecret names a secret that holds credentials of an image registry.
type ImagePullSecret struct {
	// Name of the secret.
	// +kubebuilder:default=""
	// +weir:form=secretName
	Name string `json:"name,omitempty"`
}

// EnvVar is one environment variable with a plain value.
type EnvVar struct {
	// Name of the variable.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Value of the variable.
	Value string `json:"value"`
}

// ConfigMapKeyRef names one key of a config map of the same namespace.
type ConfigMapKeyRef struct {
	// Name of the config map.
	// +kubebuilder:default=""
	Name string `json:"name,omitempty"`

	// Key within the config map.
	// +kubebuilder:validation:MinLength=1
	Key string `json:"key"`

	// Optional says that the config map or the key may be missing.
	Optional *bool `json:"optional,omitempty"`
}

// CABundleRef names PEM certificates to trust.
type CABundleRef struct {
	// ConfigMapRef is the config map key that holds the certificates.
	ConfigMapRef *ConfigMapKeyRef `json:"configMapRef,omitempty"`
}

// OIDCConfigRef names an MCPOIDCConfig and says what is particular to the
// server that uses it.
type OIDCConfigRef struct {
	// Name of the MCPOIDCConfig.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=dns
	Name string `json:"name"`

	// Audience that tokens must carry. It must be unique per server, so that a
	// token for one server cannot be replayed at another.
	// +kubebuilder:validation:MinLength=1
	Audience string `json:"audience"`

	// ResourceURL is the public URL of the server for the protected resource
	// metadata (RFC 9728). The default is the internal service URL.
	// +weir:form=url
	ResourceURL string `json:"resourceUrl,omitempty"`

	// Scopes advertised in the protected resource metadata.
	// +kubebuilder:default={openid}
	// +weir:form=scope
	Scopes []string `json:"scopes,omitempty"`

	// RequiredScopes are those that every token must carry: a client without
	// them is told which to ask for. A field of ours.
	// +weir:form=scope
	RequiredScopes []string `json:"requiredScopes,omitempty"`
}

// TelemetryConfigRef names an MCPTelemetryConfig and says what is particular to
// the server that uses it.
type TelemetryConfigRef struct {
	// Name of the MCPTelemetryConfig.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=dns
	Name string `json:"name"`

	// ServiceName overrides the telemetry service name. It must be unique per
	// server. The default is the server name with a prefix.
	ServiceName string `json:"serviceName,omitempty"`
}

// AuthzSource says where an authorization policy set comes from.
// +kubebuilder:validation:Enum=configMap;inline
type AuthzSource string

// The places that authorization policies come from.
const (
	AuthzFromConfigMap AuthzSource = "configMap"
	AuthzInline        AuthzSource = "inline"
)

// AuthzConfig is an authorization policy set, inline or in a config map.
type AuthzConfig struct {
	// Type says which of configMap and inline holds the policies.
	// +kubebuilder:default=configMap
	Type AuthzSource `json:"type"`

	// ConfigMap holds the policies when type is configMap.
	ConfigMap *AuthzConfigMap `json:"configMap,omitempty"`

	// Inline holds the policies when type is inline.
	Inline *AuthzPolicies `json:"inline,omitempty"`

	// GroupClaimName is the token claim with the principal's groups. It takes
	// priority over the defaults groups, roles and cognito:groups, and over the
	// entry of a config map.
	// +kubebuilder:validation:MaxLength=253
	GroupClaimName string `json:"groupClaimName,omitempty"`

	// RoleClaimName is the token claim with the principal's roles. It takes
	// priority over the entry of a config map.
	// +kubebuilder:validation:MaxLength=253
	RoleClaimName string `json:"roleClaimName,omitempty"`

	// GroupEntityType is the entity type of groups in policies: a plain
	// identifier without namespace. Without it an inline set uses THVGroup.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	GroupEntityType string `json:"groupEntityType,omitempty"`
}

// AuthzConfigMap names the config map entry with a policy set.
type AuthzConfigMap struct {
	// Name of the config map.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=dns
	Name string `json:"name"`

	// Key within the config map.
	// +kubebuilder:default="authz.json"
	// +weir:form=dataKey
	Key string `json:"key,omitempty"`
}

// AuthzPolicies is a policy set written into the object.
type AuthzPolicies struct {
	// Policies in the policy language, one or more per string.
	// +kubebuilder:validation:MinItems=1
	Policies []string `json:"policies"`

	// EntitiesJSON is a JSON array of entities that policies may refer to.
	// +kubebuilder:default="[]"
	// +weir:form=entities
	EntitiesJSON string `json:"entitiesJson,omitempty"`

	// PrimaryUpstreamProvider is deprecated: use
	// spec.authServerConfig.primaryUpstreamProvider of the VirtualMCPServer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	PrimaryUpstreamProvider string `json:"primaryUpstreamProvider,omitempty"`
}

// AuthServerRef names the resource with an embedded authorization server.
type AuthServerRef struct {
	// Kind of the resource.
	// +kubebuilder:default=MCPExternalAuthConfig
	// +kubebuilder:validation:Enum=MCPExternalAuthConfig
	Kind string `json:"kind"`

	// Name of the resource.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=dns
	Name string `json:"name"`
}

// SessionProvider is where sessions are kept.
// +kubebuilder:validation:Enum=memory;kvstore
type SessionProvider string

// The places that sessions are kept in.
const (
	SessionsInMemory  SessionProvider = "memory"
	SessionsInKVStore SessionProvider = "kvstore"
)

// SessionStorage says where sessions are kept.
type SessionStorage struct {
	// Provider of the storage.
	Provider SessionProvider `json:"provider"`

	// Address of the store. Required when provider is kvstore: host:port, or a URL
	// of redis://, redis-cluster:// or redis-sentinel:// (rediss for TLS).
	// +kubebuilder:validation:MinLength=1
	Address string `json:"address,omitempty"`

	// DB is the number of the database.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	DB int32 `json:"db,omitempty"`

	// KeyPrefix of all keys.
	KeyPrefix string `json:"keyPrefix,omitempty"`

	// PasswordRef is the secret with the password of the store.
	PasswordRef *SecretRef `json:"passwordRef,omitempty"`
}

// RateLimiting limits the calls to a server and to its tools. A call must pass
// every bucket that applies to it.
type RateLimiting struct {
	// Shared is one bucket for all users.
	Shared *RateBucket `json:"shared,omitempty"`

	// PerUser is a bucket for each authenticated user. It needs authentication.
	PerUser *RateBucket `json:"perUser,omitempty"`

	// Tools limits single tools, by the name that clients see.
	Tools []ToolRateLimit `json:"tools,omitempty"`
}

// ToolRateLimit limits the calls to one tool.
type ToolRateLimit struct {
	// Name of the tool.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// PerUser is a bucket for each authenticated user. It needs authentication.
	PerUser *RateBucket `json:"perUser,omitempty"`

	// Shared is one bucket for all users.
	Shared *RateBucket `json:"shared,omitempty"`
}

// RateBucket is a token bucket: maxTokens calls at once, refilled evenly so that
// an empty bucket is full after refillPeriod.
type RateBucket struct {
	// MaxTokens is the capacity and the size of a burst.
	// +kubebuilder:validation:Minimum=1
	MaxTokens int32 `json:"maxTokens"`

	// RefillPeriod is the time to a full refill.
	RefillPeriod Duration `json:"refillPeriod"`
}

// ToolAnnotations are the hints of the protocol about a tool. A hint that is
// not given is left as the tool has it.
type ToolAnnotations struct {
	// Title for people.
	Title *string `json:"title,omitempty"`

	// ReadOnlyHint says that the tool changes nothing.
	ReadOnlyHint *bool `json:"readOnlyHint,omitempty"`

	// DestructiveHint says that the tool may destroy something.
	DestructiveHint *bool `json:"destructiveHint,omitempty"`

	// IdempotentHint says that calling again with the same arguments changes
	// nothing more.
	IdempotentHint *bool `json:"idempotentHint,omitempty"`

	// OpenWorldHint says that the tool reaches things outside its own domain.
	OpenWorldHint *bool `json:"openWorldHint,omitempty"`
}

// ToolOverride changes how a tool is shown and called. What is not given stays.
type ToolOverride struct {
	// Name that clients see and call.
	Name string `json:"name,omitempty"`

	// Description that clients see.
	Description string `json:"description,omitempty"`

	// Annotations to set.
	Annotations *ToolAnnotations `json:"annotations,omitempty"`
}

// HeaderForward adds headers to the requests to a remote server.
type HeaderForward struct {
	// AddPlaintextHeaders maps header names to plain values.
	// +weir:form=headers
	AddPlaintextHeaders map[string]string `json:"addPlaintextHeaders,omitempty"`

	// AddHeadersFromSecret adds headers whose values are in secrets.
	AddHeadersFromSecret []SecretHeader `json:"addHeadersFromSecret,omitempty"`
}

// SecretHeader is a header whose value is in a secret.
type SecretHeader struct {
	// HeaderName is the name of the header.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +weir:form=header
	HeaderName string `json:"headerName"`

	// ValueSecretRef is the secret with the value.
	ValueSecretRef SecretRef `json:"valueSecretRef"`
}

// AuditSwitch turns audit logging on.
type AuditSwitch struct {
	// Enabled turns audit logging on.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
}

// ServiceType is the type of a Kubernetes service.
// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
type ServiceType string

// SessionAffinity is the session affinity of a Kubernetes service.
// +kubebuilder:validation:Enum=ClientIP;None
type SessionAffinity string

// BackendTransport is how a server is spoken to over HTTP.
// +kubebuilder:validation:Enum=sse;streamable-http
type BackendTransport string

// The transports over HTTP.
const (
	TransportSSE            BackendTransport = "sse"
	TransportStreamableHTTP BackendTransport = "streamable-http"
)

// ResourceRequirements are the limits and requests of a container.
type ResourceRequirements struct {
	// Limits that the container may not exceed, such as cpu and memory.
	Limits map[string]Quantity `json:"limits,omitempty"`

	// Requests that the container is sure to get, such as cpu and memory.
	Requests map[string]Quantity `json:"requests,omitempty"`
}

// MetadataOverrides are labels and annotations to add to an object.
type MetadataOverrides struct {
	// Annotations to add.
	Annotations map[string]string `json:"annotations,omitempty"`

	// Labels to add.
	Labels map[string]string `json:"labels,omitempty"`
}

// ResourceOverrides changes the Kubernetes objects of a proxy.
type ResourceOverrides struct {
	// ProxyDeployment changes the deployment.
	ProxyDeployment *DeploymentOverrides `json:"proxyDeployment,omitempty"`

	// ProxyService changes the service.
	ProxyService *MetadataOverrides `json:"proxyService,omitempty"`
}

// DeploymentOverrides changes a deployment.
type DeploymentOverrides struct {
	MetadataOverrides `json:",inline"`

	// PodTemplateMetadataOverrides changes the metadata of the pods.
	PodTemplateMetadataOverrides *MetadataOverrides `json:"podTemplateMetadataOverrides,omitempty"`

	// Env adds environment variables to the proxy container.
	Env []EnvVar `json:"env,omitempty"`

	// ImagePullSecrets of the pods.
	ImagePullSecrets []ImagePullSecret `json:"imagePullSecrets,omitempty"`
}
