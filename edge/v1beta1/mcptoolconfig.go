package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPToolConfig selects and renames the tools of a server.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mcptoolconfigs,scope=Namespaced,shortName=tc;toolconfig
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=='Valid')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MCPToolConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec MCPToolConfigSpec `json:"spec"`

	// Status is what was seen.
	Status MCPToolConfigStatus `json:"status,omitempty"`
}

// MCPToolConfigList is a list of MCPToolConfig.
//
// +kubebuilder:object:root=true
type MCPToolConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MCPToolConfig `json:"items"`
}

// MCPToolConfigSpec selects and renames tools.
type MCPToolConfigSpec struct {
	// ToolsFilter lists the names that clients see, after overrides. Empty means
	// all.
	// +weir:unique
	ToolsFilter []string `json:"toolsFilter,omitempty"`

	// ToolsOverride by the tool's original name.
	ToolsOverride map[string]ToolOverride `json:"toolsOverride,omitempty"`
}

// MCPToolConfigStatus is what was seen of the resource.
type MCPToolConfigStatus struct {
	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ConfigHash changes when the configuration does.
	ConfigHash string `json:"configHash,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
