package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPServer is an MCP server that runs in a container, and the proxy in front of it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mcpservers,scope=Namespaced,shortName=mcpserver;mcpservers
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MCPServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec MCPServerSpec `json:"spec"`

	// Status is what was seen.
	Status MCPServerStatus `json:"status,omitempty"`
}

// MCPServerList is a list of MCPServer.
//
// +kubebuilder:object:root=true
type MCPServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MCPServer `json:"items"`
}

// ServerTransport is how a server in a container is spoken to.
// +kubebuilder:validation:Enum=stdio;streamable-http;sse
type ServerTransport string

// The transports of a server in a container.
const (
	ServerStdio          ServerTransport = "stdio"
	ServerStreamableHTTP ServerTransport = "streamable-http"
	ServerSSE            ServerTransport = "sse"
)

// MCPServerSpec is what is wanted of a server.
type MCPServerSpec struct {
	// Image of the container. Outside of a cluster also what stands for a server to start:
	// exec:///PATH, or a package runner such as npx, for a process of this machine.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`

	// Transport of the server.
	// +kubebuilder:default=stdio
	Transport ServerTransport `json:"transport,omitempty"`

	// ProxyMode is what clients of a stdio server speak.
	// +kubebuilder:default=streamable-http
	ProxyMode BackendTransport `json:"proxyMode,omitempty"`

	// ProxyPort that the proxy listens on.
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	ProxyPort *int32 `json:"proxyPort,omitempty"`

	// MCPPort that the server listens on.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	MCPPort *int32 `json:"mcpPort,omitempty"`

	// Args of the server.
	Args []string `json:"args,omitempty"`

	// Env of the server.
	Env []EnvVar `json:"env,omitempty"`

	// Secrets given to the server as environment variables.
	// +weir:elsewhere
	Secrets []ServerSecret `json:"secrets,omitempty"`

	// Volumes mounted into the container.
	Volumes []HostVolume `json:"volumes,omitempty"`

	// PermissionProfile says what the server may reach.
	PermissionProfile *PermissionProfileRef `json:"permissionProfile,omitempty"`

	// GroupRef names the MCPGroup that the server belongs to.
	GroupRef *NameRef `json:"groupRef,omitempty"`

	// OIDCConfigRef names the MCPOIDCConfig of the clients' authentication.
	OIDCConfigRef *OIDCConfigRef `json:"oidcConfigRef,omitempty"`

	// AuthzConfig is the authorization policy set. Exclusive with authzConfigRef.
	AuthzConfig *AuthzConfig `json:"authzConfig,omitempty"`

	// AuthzConfigRef names an MCPAuthzConfig. Exclusive with authzConfig.
	AuthzConfigRef *NameRef `json:"authzConfigRef,omitempty"`

	// ExternalAuthConfigRef names the MCPExternalAuthConfig of the server.
	ExternalAuthConfigRef *NameRef `json:"externalAuthConfigRef,omitempty"`

	// AuthServerRef names the resource with an embedded authorization server.
	AuthServerRef *AuthServerRef `json:"authServerRef,omitempty"`

	// ToolConfigRef names the MCPToolConfig.
	ToolConfigRef *NameRef `json:"toolConfigRef,omitempty"`

	// TelemetryConfigRef names the MCPTelemetryConfig.
	TelemetryConfigRef *TelemetryConfigRef `json:"telemetryConfigRef,omitempty"`

	// WebhookConfigRef names the MCPWebhookConfig.
	WebhookConfigRef *NameRef `json:"webhookConfigRef,omitempty"`

	// Audit logging.
	Audit *AuditSwitch `json:"audit,omitempty"`

	// RateLimiting limits calls. It needs session storage of provider kvstore.
	RateLimiting *RateLimiting `json:"rateLimiting,omitempty"`

	// SessionStorage says where sessions are kept.
	SessionStorage *SessionStorage `json:"sessionStorage,omitempty"`

	// SessionAffinity of the service.
	// +kubebuilder:default=ClientIP
	SessionAffinity SessionAffinity `json:"sessionAffinity,omitempty"`

	// EndpointPrefix is put before the path of SSE endpoint URLs.
	EndpointPrefix string `json:"endpointPrefix,omitempty"`

	// TrustProxyHeaders believes the X-Forwarded headers of the proxy in front.
	// +kubebuilder:default=false
	TrustProxyHeaders bool `json:"trustProxyHeaders,omitempty"`

	// Replicas of the proxy. When unset, an autoscaler may decide.
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// BackendReplicas of the server. When unset, an autoscaler may decide.
	// +kubebuilder:validation:Minimum=0
	BackendReplicas *int32 `json:"backendReplicas,omitempty"`

	// ServiceAccount is the name of an existing service account.
	// +weir:form=dns
	ServiceAccount string `json:"serviceAccount,omitempty"`

	// Resources of the container.
	Resources *ResourceRequirements `json:"resources,omitempty"`

	// ResourceOverrides changes the Kubernetes objects of the proxy.
	ResourceOverrides *ResourceOverrides `json:"resourceOverrides,omitempty"`

	// PodTemplateSpec is a pod template.
	PodTemplateSpec JSONObject `json:"podTemplateSpec,omitempty"`

	// Run says what shapes the workload outside of a cluster. A field of ours.
	Run *ServerRun `json:"run,omitempty"`
}

// ServerSecret is a secret given to a server as an environment variable.
type ServerSecret struct {
	// Name of the secret.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Key within the secret.
	// +kubebuilder:validation:MinLength=1
	Key string `json:"key"`

	// TargetEnvName is the name of the variable. The default is the key.
	TargetEnvName string `json:"targetEnvName,omitempty"`
}

// HostVolume mounts a path of the host into the container.
type HostVolume struct {
	// Name of the volume.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// HostPath on the host.
	// +kubebuilder:validation:MinLength=1
	HostPath string `json:"hostPath"`

	// MountPath in the container.
	// +kubebuilder:validation:MinLength=1
	MountPath string `json:"mountPath"`

	// ReadOnly forbids writing.
	// +kubebuilder:default=false
	ReadOnly bool `json:"readOnly,omitempty"`
}

// PermissionProfileType is where a permission profile is.
// +kubebuilder:validation:Enum=builtin;configmap
type PermissionProfileType string

// The places that permission profiles are in.
const (
	ProfileBuiltin   PermissionProfileType = "builtin"
	ProfileConfigMap PermissionProfileType = "configmap"
)

// PermissionProfileRef names a permission profile.
type PermissionProfileRef struct {
	// Type says where the profile is.
	// +kubebuilder:default=builtin
	Type PermissionProfileType `json:"type"`

	// Name of the built-in profile or of the config map.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Key within the config map. Required when type is configmap.
	Key string `json:"key,omitempty"`
}

// WorkloadPhase is the state of a server in a container.
// +kubebuilder:validation:Enum=Pending;Ready;Failed;Terminating;Stopped
type WorkloadPhase string

// The phases of a server in a container.
const (
	WorkloadPending     WorkloadPhase = "Pending"
	WorkloadReady       WorkloadPhase = "Ready"
	WorkloadFailed      WorkloadPhase = "Failed"
	WorkloadTerminating WorkloadPhase = "Terminating"
	WorkloadStopped     WorkloadPhase = "Stopped"
)

// MCPServerStatus is what was seen of a server.
type MCPServerStatus struct {
	// Phase of the server.
	Phase WorkloadPhase `json:"phase,omitempty"`

	// Message says more about the phase.
	Message string `json:"message,omitempty"`

	// URL of the proxy.
	URL string `json:"url,omitempty"`

	// ReadyReplicas of the proxy.
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// AuthServerConfigHash is the hash of the referenced config.
	AuthServerConfigHash string `json:"authServerConfigHash,omitempty"`

	// AuthzConfigHash is the hash of the referenced config.
	AuthzConfigHash string `json:"authzConfigHash,omitempty"`

	// ExternalAuthConfigHash is the hash of the referenced config.
	ExternalAuthConfigHash string `json:"externalAuthConfigHash,omitempty"`

	// OIDCConfigHash is the hash of the referenced config.
	OIDCConfigHash string `json:"oidcConfigHash,omitempty"`

	// TelemetryConfigHash is the hash of the referenced config.
	TelemetryConfigHash string `json:"telemetryConfigHash,omitempty"`

	// ToolConfigHash is the hash of the referenced config.
	ToolConfigHash string `json:"toolConfigHash,omitempty"`

	// WebhookConfigHash is the hash of the referenced config.
	WebhookConfigHash string `json:"webhookConfigHash,omitempty"`

	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
