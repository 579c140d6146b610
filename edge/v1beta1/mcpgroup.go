package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPGroup is a set of servers that are reached through one endpoint.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mcpgroups,scope=Namespaced,shortName=mcpg;mcpgroup
// +kubebuilder:printcolumn:name="Servers",type=integer,JSONPath=`.status.serverCount`
// +kubebuilder:printcolumn:name="Proxies",type=integer,JSONPath=`.status.remoteProxyCount`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Checked",type=string,JSONPath=`.status.conditions[?(@.type=='MCPServersChecked')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MCPGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec MCPGroupSpec `json:"spec"`

	// Status is what was seen.
	Status MCPGroupStatus `json:"status,omitempty"`
}

// MCPGroupList is a list of MCPGroup.
//
// +kubebuilder:object:root=true
type MCPGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MCPGroup `json:"items"`
}

// MCPGroupSpec is what is wanted of a group. Its members name the group, not
// the other way round.
type MCPGroupSpec struct {
	// Description of the group.
	Description string `json:"description,omitempty"`
}

// GroupPhase is the state of a group.
// +kubebuilder:validation:Enum=Ready;Pending;Failed
type GroupPhase string

// The phases of a group.
const (
	GroupReady   GroupPhase = "Ready"
	GroupPending GroupPhase = "Pending"
	GroupFailed  GroupPhase = "Failed"
)

// MCPGroupStatus is what was seen of a group.
type MCPGroupStatus struct {
	// Phase of the group.
	// +kubebuilder:default=Pending
	Phase GroupPhase `json:"phase,omitempty"`

	// Servers are the names of the MCPServers of the group.
	Servers []string `json:"servers,omitempty"`

	// ServerCount is the number of MCPServers.
	ServerCount int32 `json:"serverCount,omitempty"`

	// RemoteProxies are the names of the MCPRemoteProxies of the group.
	RemoteProxies []string `json:"remoteProxies,omitempty"`

	// RemoteProxyCount is the number of MCPRemoteProxies.
	RemoteProxyCount int32 `json:"remoteProxyCount,omitempty"`

	// Entries are the names of the MCPServerEntries of the group.
	Entries []string `json:"entries,omitempty"`

	// EntryCount is the number of MCPServerEntries.
	EntryCount int32 `json:"entryCount,omitempty"`

	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
