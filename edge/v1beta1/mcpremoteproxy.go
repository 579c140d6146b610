package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPRemoteProxy is a proxy in front of one remote server.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mcpremoteproxies,scope=Namespaced,shortName=rp;mcprp
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Remote URL",type=string,JSONPath=`.spec.remoteUrl`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MCPRemoteProxy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec MCPRemoteProxySpec `json:"spec"`

	// Status is what was seen.
	Status MCPRemoteProxyStatus `json:"status,omitempty"`
}

// MCPRemoteProxyList is a list of MCPRemoteProxy.
//
// +kubebuilder:object:root=true
type MCPRemoteProxyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MCPRemoteProxy `json:"items"`
}

// MCPRemoteProxySpec is what is wanted of a proxy.
type MCPRemoteProxySpec struct {
	// RemoteURL of the server.
	// +kubebuilder:validation:Pattern=`^https?://`
	// +weir:form=url
	RemoteURL string `json:"remoteUrl"`

	// Transport of the server.
	// +kubebuilder:default=streamable-http
	Transport BackendTransport `json:"transport,omitempty"`

	// ProxyPort that the proxy listens on.
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	ProxyPort *int32 `json:"proxyPort,omitempty"`

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

	// HeaderForward adds headers to the requests to the server.
	HeaderForward *HeaderForward `json:"headerForward,omitempty"`

	// ToolConfigRef names the MCPToolConfig.
	ToolConfigRef *NameRef `json:"toolConfigRef,omitempty"`

	// TelemetryConfigRef names the MCPTelemetryConfig.
	TelemetryConfigRef *TelemetryConfigRef `json:"telemetryConfigRef,omitempty"`

	// Audit logging.
	Audit *AuditSwitch `json:"audit,omitempty"`

	// AllowPrivateEndpoint allows the server to be on a private address.
	// +kubebuilder:default=false
	AllowPrivateEndpoint bool `json:"allowPrivateEndpoint,omitempty"`

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

	// Replicas of the deployment. When unset, an autoscaler may decide.
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

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
	Run *ProxyRun `json:"run,omitempty"`
}

// ProxyPhase is the state of a proxy.
// +kubebuilder:validation:Enum=Pending;Ready;Failed;Terminating
type ProxyPhase string

// The phases of a proxy.
const (
	ProxyPending     ProxyPhase = "Pending"
	ProxyReady       ProxyPhase = "Ready"
	ProxyFailed      ProxyPhase = "Failed"
	ProxyTerminating ProxyPhase = "Terminating"
)

// MCPRemoteProxyStatus is what was seen of a proxy.
type MCPRemoteProxyStatus struct {
	// Phase of the proxy.
	Phase ProxyPhase `json:"phase,omitempty"`

	// Message says more about the phase.
	Message string `json:"message,omitempty"`

	// URL of the proxy inside the cluster.
	URL string `json:"url,omitempty"`

	// ExternalURL of the proxy.
	ExternalURL string `json:"externalUrl,omitempty"`

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

	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
