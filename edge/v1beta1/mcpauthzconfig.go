package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPAuthzConfig is an authorization policy set that servers share.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mcpauthzconfigs,scope=Namespaced,shortName=authzcfg
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=='Valid')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MCPAuthzConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec MCPAuthzConfigSpec `json:"spec"`

	// Status is what was seen.
	Status MCPAuthzConfigStatus `json:"status,omitempty"`
}

// MCPAuthzConfigList is a list of MCPAuthzConfig.
//
// +kubebuilder:object:root=true
type MCPAuthzConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MCPAuthzConfig `json:"items"`
}

// AuthzTypePolicy is the type of a policy-language authorization config, the
// only one that a VirtualMCPServer supports.
const AuthzTypePolicy = "policyv1"

// MCPAuthzConfigSpec is an authorization policy set.
type MCPAuthzConfigSpec struct {
	// Type of the config, such as policyv1.
	// +kubebuilder:validation:MinLength=1
	Type string `json:"type"`

	// Config in the form that the type asks for.
	// +required
	Config JSONObject `json:"config"`
}

// MCPAuthzConfigStatus is what was seen of the resource.
type MCPAuthzConfigStatus struct {
	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ConfigHash changes when the configuration does.
	ConfigHash string `json:"configHash,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
