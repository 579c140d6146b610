package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPOIDCConfig is an identity provider whose tokens servers accept.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mcpoidcconfigs,scope=Namespaced,shortName=mcpoidc
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=='Valid')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MCPOIDCConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec MCPOIDCConfigSpec `json:"spec"`

	// Status is what was seen.
	Status MCPOIDCConfigStatus `json:"status,omitempty"`
}

// MCPOIDCConfigList is a list of MCPOIDCConfig.
//
// +kubebuilder:object:root=true
type MCPOIDCConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MCPOIDCConfig `json:"items"`
}

// OIDCSource is where an identity provider is described.
// +kubebuilder:validation:Enum=kubernetesServiceAccount;inline
type OIDCSource string

// The places that identity providers are described in.
const (
	OIDCServiceAccount OIDCSource = "kubernetesServiceAccount"
	OIDCInline         OIDCSource = "inline"
)

// MCPOIDCConfigSpec describes an identity provider: the field named by type is
// set and no other.
type MCPOIDCConfigSpec struct {
	// Type of the description.
	Type OIDCSource `json:"type"`

	// Inline is set when type is inline.
	Inline *InlineOIDC `json:"inline,omitempty"`

	// KubernetesServiceAccount is set when type is kubernetesServiceAccount.
	KubernetesServiceAccount *ServiceAccountOIDC `json:"kubernetesServiceAccount,omitempty"`
}

// InlineOIDC is an identity provider.
type InlineOIDC struct {
	// Issuer of the tokens. Without it introspectionUrl is asked about every token.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=url
	// +optional
	Issuer string `json:"issuer,omitempty"`

	// JWKSURL is where the keys are. Without it they are discovered.
	// +weir:form=url
	JWKSURL string `json:"jwksUrl,omitempty"`

	// IntrospectionURL is where opaque tokens are introspected (RFC 7662).
	// +weir:form=url
	IntrospectionURL string `json:"introspectionUrl,omitempty"`

	// ClientID of the introspection.
	ClientID string `json:"clientId,omitempty"`

	// ClientSecretRef is the secret with the client secret of the introspection.
	ClientSecretRef *SecretRef `json:"clientSecretRef,omitempty"`

	// CABundleRef names PEM certificates to trust for the provider.
	CABundleRef *CABundleRef `json:"caBundleRef,omitempty"`

	// JWKSAuthTokenPath is a file with a bearer token for the key URL.
	JWKSAuthTokenPath string `json:"jwksAuthTokenPath,omitempty"`

	// JWKSAllowPrivateIP allows the key URL to be on a private address.
	// +kubebuilder:default=false
	JWKSAllowPrivateIP bool `json:"jwksAllowPrivateIP,omitempty"`

	// ProtectedResourceAllowPrivateIP allows the protected resource metadata to
	// be on a private address.
	// +kubebuilder:default=false
	ProtectedResourceAllowPrivateIP bool `json:"protectedResourceAllowPrivateIP,omitempty"`

	// InsecureAllowHTTP allows plain HTTP to the provider. Development only.
	// +kubebuilder:default=false
	InsecureAllowHTTP bool `json:"insecureAllowHTTP,omitempty"`
}

// ServiceAccountOIDC is the cluster as identity provider of its service
// accounts.
type ServiceAccountOIDC struct {
	// Issuer of the tokens.
	// +kubebuilder:default="https://kubernetes.default.svc"
	// +weir:form=url
	Issuer string `json:"issuer,omitempty"`

	// JWKSURL is where the keys are. Without it they are discovered.
	// +weir:form=url
	JWKSURL string `json:"jwksUrl,omitempty"`

	// IntrospectionURL is where tokens are introspected.
	// +weir:form=url
	IntrospectionURL string `json:"introspectionUrl,omitempty"`

	// Namespace of the service account.
	Namespace string `json:"namespace,omitempty"`

	// ServiceAccount whose tokens are accepted.
	ServiceAccount string `json:"serviceAccount,omitempty"`

	// UseClusterAuth authenticates to the cluster with the pod's own service
	// account.
	UseClusterAuth *bool `json:"useClusterAuth,omitempty"`
}

// MCPOIDCConfigStatus is what was seen of the resource.
type MCPOIDCConfigStatus struct {
	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ConfigHash changes when the configuration does.
	ConfigHash string `json:"configHash,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
