package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPServerEntry is a remote server that a group reaches directly.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mcpserverentries,scope=Namespaced,shortName=mcpentry
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Transport",type=string,JSONPath=`.spec.transport`
// +kubebuilder:printcolumn:name="Remote URL",type=string,JSONPath=`.spec.remoteUrl`
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.groupRef.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MCPServerEntry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec MCPServerEntrySpec `json:"spec"`

	// Status is what was seen.
	Status MCPServerEntryStatus `json:"status,omitempty"`
}

// MCPServerEntryList is a list of MCPServerEntry.
//
// +kubebuilder:object:root=true
type MCPServerEntryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MCPServerEntry `json:"items"`
}

// MCPServerEntrySpec is where a remote server is and how to reach it.
type MCPServerEntrySpec struct {
	// GroupRef names the MCPGroup that the server belongs to.
	GroupRef NameRef `json:"groupRef"`

	// RemoteURL of the server.
	// +kubebuilder:validation:Pattern=`^https?://`
	// +weir:form=url
	RemoteURL string `json:"remoteUrl"`

	// Transport of the server.
	Transport BackendTransport `json:"transport"`

	// ExternalAuthConfigRef names the MCPExternalAuthConfig of the server.
	ExternalAuthConfigRef *NameRef `json:"externalAuthConfigRef,omitempty"`

	// HeaderForward adds headers to the requests to the server.
	HeaderForward *HeaderForward `json:"headerForward,omitempty"`

	// CABundleRef names PEM certificates to trust for the server.
	CABundleRef *CABundleRef `json:"caBundleRef,omitempty"`

	// AllowPrivateEndpoint allows the server to be on a private address.
	// +kubebuilder:default=false
	AllowPrivateEndpoint bool `json:"allowPrivateEndpoint,omitempty"`
}

// EntryPhase is the state of a server entry.
// +kubebuilder:validation:Enum=Valid;Pending;Failed
type EntryPhase string

// The phases of a server entry.
const (
	EntryValid   EntryPhase = "Valid"
	EntryPending EntryPhase = "Pending"
	EntryFailed  EntryPhase = "Failed"
)

// MCPServerEntryStatus is what was seen of a server entry.
type MCPServerEntryStatus struct {
	// Phase of the entry.
	// +kubebuilder:default=Pending
	Phase EntryPhase `json:"phase,omitempty"`

	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
