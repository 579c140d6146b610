package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualMCPServer is one MCP endpoint in front of the servers of a group.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=virtualmcpservers,scope=Namespaced,shortName=vmcp;virtualmcp
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name="Backends",type=integer,JSONPath=`.status.backendCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
type VirtualMCPServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec VirtualMCPServerSpec `json:"spec"`

	// Status is what was seen.
	Status VirtualMCPServerStatus `json:"status,omitempty"`
}

// VirtualMCPServerList is a list of VirtualMCPServer.
//
// +kubebuilder:object:root=true
type VirtualMCPServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMCPServer `json:"items"`
}

// VirtualMCPServerSpec is what is wanted of a virtual server.
type VirtualMCPServerSpec struct {
	// GroupRef names the MCPGroup whose members are the backends.
	GroupRef NameRef `json:"groupRef"`

	// IncomingAuth is the authentication of clients. It must be set; use type
	// anonymous for none. It takes precedence over config.incomingAuth.
	// +required
	IncomingAuth *IncomingAuth `json:"incomingAuth"`

	// OutgoingAuth is the authentication to backends. It takes precedence over
	// config.outgoingAuth.
	OutgoingAuth *OutgoingAuth `json:"outgoingAuth,omitempty"`

	// AuthServerConfig is the embedded authorization server. When set, the
	// server is an OIDC issuer; its issuer must match the provider of
	// incomingAuth.oidcConfigRef. When unset, incoming authentication uses an
	// external identity provider.
	AuthServerConfig *EmbeddedAuthServer `json:"authServerConfig,omitempty"`

	// Config is the configuration of the server.
	Config *ServerConfig `json:"config,omitempty"`

	// EmbeddingServerRef names the EmbeddingServer of the tool optimizer. It
	// cannot be combined with the compat embedding provider.
	EmbeddingServerRef *NameRef `json:"embeddingServerRef,omitempty"`

	// FilterRefs names the EdgeFilters that messages pass, in their order. They
	// come before those of config.filterRefs.
	FilterRefs []NameRef `json:"filterRefs,omitempty"`

	// ImagePullSecrets of the pods and of the managed service account.
	ImagePullSecrets []ImagePullSecret `json:"imagePullSecrets,omitempty"`

	// PassthroughHeaders names the incoming headers that are forwarded unchanged
	// to all backends. It takes precedence over config.passthroughHeaders.
	// Clients can forge such headers unless a trusted proxy in front sets them.
	PassthroughHeaders []string `json:"passthroughHeaders,omitempty"`

	// PodTemplateSpec is a pod template. The container of the server is named
	// vmcp.
	PodTemplateSpec JSONObject `json:"podTemplateSpec,omitempty"`

	// Replicas of the deployment. When unset, an autoscaler may decide.
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// ServiceAccount is the name of an existing service account. One is created
	// when none is given.
	// +weir:form=dns
	ServiceAccount string `json:"serviceAccount,omitempty"`

	// ServiceType is the type of the service.
	// +kubebuilder:default=ClusterIP
	ServiceType ServiceType `json:"serviceType,omitempty"`

	// SessionAffinity of the service.
	// +kubebuilder:default=ClientIP
	SessionAffinity SessionAffinity `json:"sessionAffinity,omitempty"`

	// SessionStorage says where sessions are kept.
	SessionStorage *SessionStorage `json:"sessionStorage,omitempty"`

	// TelemetryConfigRef names the MCPTelemetryConfig.
	TelemetryConfigRef *TelemetryConfigRef `json:"telemetryConfigRef,omitempty"`
}

// IncomingAuthType is how clients authenticate to a VirtualMCPServer.
// +kubebuilder:validation:Enum=anonymous;oidc
type IncomingAuthType string

// The ways in which clients authenticate.
const (
	IncomingAnonymous IncomingAuthType = "anonymous"
	IncomingOIDC      IncomingAuthType = "oidc"
)

// IncomingAuth is the authentication and authorization of clients.
type IncomingAuth struct {
	// Type of the authentication.
	Type IncomingAuthType `json:"type"`

	// OIDCConfigRef names the MCPOIDCConfig. Required when type is oidc.
	OIDCConfigRef *OIDCConfigRef `json:"oidcConfigRef,omitempty"`

	// AuthzConfig is the authorization policy set. Exclusive with authzConfigRef.
	AuthzConfig *AuthzConfig `json:"authzConfig,omitempty"`

	// AuthzConfigRef names an MCPAuthzConfig. Exclusive with authzConfig.
	AuthzConfigRef *NameRef `json:"authzConfigRef,omitempty"`
}

// AuthSource is where a virtual server reads how to authenticate to backends.
// +kubebuilder:validation:Enum=discovered;inline
type AuthSource string

// The places that backend authentication is read from.
const (
	AuthDiscovered AuthSource = "discovered"
	AuthInline     AuthSource = "inline"
)

// OutgoingAuth is the authentication to backends.
type OutgoingAuth struct {
	// Source is discovered to read each backend's externalAuthConfigRef, or
	// inline to use what is written here.
	// +kubebuilder:default=discovered
	Source AuthSource `json:"source,omitempty"`

	// Default applies to backends without an entry of their own.
	Default *BackendAuth `json:"default,omitempty"`

	// Backends holds the entries of single backends, by backend name.
	Backends map[string]BackendAuth `json:"backends,omitempty"`
}

// BackendAuthType is where the authentication of one backend is written.
// +kubebuilder:validation:Enum=discovered;externalAuthConfigRef
type BackendAuthType string

// The places that the authentication of one backend is written in.
const (
	BackendAuthDiscovered BackendAuthType = "discovered"
	BackendAuthByRef      BackendAuthType = "externalAuthConfigRef"
)

// BackendAuth says where the authentication of a backend is written.
type BackendAuth struct {
	// Type is discovered or externalAuthConfigRef.
	Type BackendAuthType `json:"type"`

	// ExternalAuthConfigRef names an MCPExternalAuthConfig. Used when type is
	// externalAuthConfigRef.
	ExternalAuthConfigRef *NameRef `json:"externalAuthConfigRef,omitempty"`
}

// ServerPhase is the state of a virtual server.
// +kubebuilder:validation:Enum=Pending;Ready;Degraded;Failed
type ServerPhase string

// The phases of a virtual server.
const (
	ServerPending  ServerPhase = "Pending"
	ServerReady    ServerPhase = "Ready"
	ServerDegraded ServerPhase = "Degraded"
	ServerFailed   ServerPhase = "Failed"
)

// VirtualMCPServerStatus is what was seen of a virtual server.
type VirtualMCPServerStatus struct {
	// Phase of the server.
	// +kubebuilder:default=Pending
	Phase ServerPhase `json:"phase,omitempty"`

	// Message says more about the phase.
	Message string `json:"message,omitempty"`

	// URL where the server is reachable.
	URL string `json:"url,omitempty"`

	// BackendCount is the number of routable backends: the ready and the
	// unauthenticated ones.
	BackendCount int32 `json:"backendCount,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// DiscoveredBackends are the backends of the group.
	// +listType=map
	// +listMapKey=name
	DiscoveredBackends []DiscoveredBackend `json:"discoveredBackends,omitempty"`

	// AuthzConfigHash is the hash of the referenced authorization config.
	AuthzConfigHash string `json:"authzConfigHash,omitempty"`

	// OIDCConfigHash is the hash of the referenced OIDC config.
	OIDCConfigHash string `json:"oidcConfigHash,omitempty"`

	// TelemetryConfigHash is the hash of the referenced telemetry config.
	TelemetryConfigHash string `json:"telemetryConfigHash,omitempty"`
}

// BackendStatus is the state of a backend.
// +kubebuilder:validation:Enum=ready;degraded;unavailable;unauthenticated;unknown
type BackendStatus string

// The states of a backend.
const (
	BackendReady           BackendStatus = "ready"
	BackendDegraded        BackendStatus = "degraded"
	BackendUnavailable     BackendStatus = "unavailable"
	BackendUnauthenticated BackendStatus = "unauthenticated"
	BackendUnknown         BackendStatus = "unknown"
)

// CircuitState is the state of a backend's circuit breaker.
// +kubebuilder:validation:Enum=closed;open;half-open
type CircuitState string

// The states of a circuit breaker.
const (
	CircuitClosed   CircuitState = "closed"
	CircuitOpen     CircuitState = "open"
	CircuitHalfOpen CircuitState = "half-open"
)

// DiscoveredBackend is what was seen of one backend.
type DiscoveredBackend struct {
	// Name of the backend.
	Name string `json:"name"`

	// URL of the backend.
	URL string `json:"url,omitempty"`

	// Status of the backend.
	Status BackendStatus `json:"status,omitempty"`

	// AuthType is the strategy of the outgoing authentication.
	AuthType string `json:"authType,omitempty"`

	// AuthConfigRef is the name of the discovered MCPExternalAuthConfig.
	AuthConfigRef string `json:"authConfigRef,omitempty"`

	// Message says more about the status.
	Message string `json:"message,omitempty"`

	// LastHealthCheck is the time of the last health check.
	LastHealthCheck *metav1.Time `json:"lastHealthCheck,omitempty"`

	// ConsecutiveFailures of health checks; 0 when healthy.
	ConsecutiveFailures int `json:"consecutiveFailures,omitempty"`

	// CircuitBreakerState is empty when the circuit breaker is off.
	CircuitBreakerState CircuitState `json:"circuitBreakerState,omitempty"`

	// CircuitLastChanged is the time of the last change of the circuit breaker.
	CircuitLastChanged *metav1.Time `json:"circuitLastChanged,omitempty"`
}
