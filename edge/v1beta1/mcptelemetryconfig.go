package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPTelemetryConfig says where servers send traces and metrics.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mcptelemetryconfigs,scope=Namespaced,shortName=mcpotel
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.openTelemetry.endpoint`
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=='Valid')].status`
// +kubebuilder:printcolumn:name="Tracing",type=boolean,JSONPath=`.spec.openTelemetry.tracing.enabled`
// +kubebuilder:printcolumn:name="Metrics",type=boolean,JSONPath=`.spec.openTelemetry.metrics.enabled`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MCPTelemetryConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec MCPTelemetryConfigSpec `json:"spec"`

	// Status is what was seen.
	Status MCPTelemetryConfigStatus `json:"status,omitempty"`
}

// MCPTelemetryConfigList is a list of MCPTelemetryConfig.
//
// +kubebuilder:object:root=true
type MCPTelemetryConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MCPTelemetryConfig `json:"items"`
}

// MCPTelemetryConfigSpec says where traces and metrics go.
type MCPTelemetryConfigSpec struct {
	// OpenTelemetry sends to a collector.
	OpenTelemetry *OpenTelemetry `json:"openTelemetry,omitempty"`

	// Prometheus serves metrics to be fetched.
	Prometheus *Prometheus `json:"prometheus,omitempty"`
}

// OpenTelemetry sends traces and metrics to a collector.
type OpenTelemetry struct {
	// Enabled turns it on.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`

	// Endpoint of the collector.
	Endpoint string `json:"endpoint,omitempty"`

	// Insecure allows plain HTTP to the collector.
	// +kubebuilder:default=false
	Insecure bool `json:"insecure,omitempty"`

	// Headers sent to the collector.
	// +weir:form=headers
	Headers map[string]string `json:"headers,omitempty"`

	// SensitiveHeaders sent to the collector, with values from secrets.
	SensitiveHeaders []SensitiveHeader `json:"sensitiveHeaders,omitempty"`

	// ResourceAttributes are added to everything that is sent.
	ResourceAttributes map[string]string `json:"resourceAttributes,omitempty"`

	// CABundleRef names PEM certificates to trust for the collector.
	CABundleRef *CABundleRef `json:"caBundleRef,omitempty"`

	// Tracing says which traces are sent.
	Tracing *Tracing `json:"tracing,omitempty"`

	// Metrics says whether metrics are sent.
	Metrics *Metrics `json:"metrics,omitempty"`

	// UseLegacyAttributes also sends the older attribute names.
	// +kubebuilder:default=true
	UseLegacyAttributes *bool `json:"useLegacyAttributes,omitempty"`
}

// SensitiveHeader is a header whose value is in a secret.
type SensitiveHeader struct {
	// Name of the header.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=header
	Name string `json:"name"`

	// SecretKeyRef is the secret with the value.
	SecretKeyRef SecretRef `json:"secretKeyRef"`
}

// Tracing says which traces are sent.
type Tracing struct {
	// Enabled turns traces on.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`

	// SamplingRate of traces, from 0 to 1.
	// +kubebuilder:default="0.05"
	// +kubebuilder:validation:Pattern=`^(0(\.\d+)?|1(\.0+)?)$`
	SamplingRate string `json:"samplingRate,omitempty"`
}

// Metrics says whether metrics are sent.
type Metrics struct {
	// Enabled turns metrics on.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
}

// Prometheus serves metrics to be fetched.
type Prometheus struct {
	// Enabled serves /metrics.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
}

// MCPTelemetryConfigStatus is what was seen of the resource.
type MCPTelemetryConfigStatus struct {
	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ConfigHash changes when the configuration does.
	ConfigHash string `json:"configHash,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
