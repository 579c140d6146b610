package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualMCPCompositeToolDefinition is a workflow that virtual servers share.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=virtualmcpcompositetooldefinitions,scope=Namespaced,shortName=vmcpctd;compositetool
// +kubebuilder:printcolumn:name="Workflow",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.validationStatus`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
type VirtualMCPCompositeToolDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec VirtualMCPCompositeToolDefinitionSpec `json:"spec"`

	// Status is what was seen.
	Status VirtualMCPCompositeToolDefinitionStatus `json:"status,omitempty"`
}

// VirtualMCPCompositeToolDefinitionList is a list of VirtualMCPCompositeToolDefinition.
//
// +kubebuilder:object:root=true
type VirtualMCPCompositeToolDefinitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMCPCompositeToolDefinition `json:"items"`
}

// VirtualMCPCompositeToolDefinitionSpec is the workflow.
type VirtualMCPCompositeToolDefinitionSpec struct {
	CompositeTool `json:",inline"`
}

// ValidationStatus is what came of checking a definition.
// +kubebuilder:validation:Enum=Valid;Invalid;Unknown
type ValidationStatus string

// What may come of checking a definition.
const (
	DefinitionValid   ValidationStatus = "Valid"
	DefinitionInvalid ValidationStatus = "Invalid"
	DefinitionUnknown ValidationStatus = "Unknown"
)

// VirtualMCPCompositeToolDefinitionStatus is what was seen of a definition.
type VirtualMCPCompositeToolDefinitionStatus struct {
	// ValidationStatus of the workflow.
	ValidationStatus ValidationStatus `json:"validationStatus,omitempty"`

	// ValidationErrors say what is wrong with the workflow.
	ValidationErrors []string `json:"validationErrors,omitempty"`

	// ReferencingVirtualServers are the names of the VirtualMCPServers that use
	// the workflow.
	ReferencingVirtualServers []string `json:"referencingVirtualServers,omitempty"`

	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
