package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EmbeddingServer is a server of text embeddings for the tool optimizer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=embeddingservers,scope=Namespaced,shortName=emb;embedding
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.model`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EmbeddingServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec EmbeddingServerSpec `json:"spec"`

	// Status is what was seen.
	Status EmbeddingServerStatus `json:"status,omitempty"`
}

// EmbeddingServerList is a list of EmbeddingServer.
//
// +kubebuilder:object:root=true
type EmbeddingServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EmbeddingServer `json:"items"`
}

// EmbeddingServerSpec is what is wanted of an embedding server.
type EmbeddingServerSpec struct {
	// Model that makes the embeddings.
	// +kubebuilder:default="BAAI/bge-small-en-v1.5"
	Model string `json:"model,omitempty"`

	// Image of the container.
	// +kubebuilder:default="ghcr.io/huggingface/text-embeddings-inference:cpu-latest"
	Image string `json:"image,omitempty"`

	// ImagePullPolicy of the container.
	// +kubebuilder:default=IfNotPresent
	ImagePullPolicy PullPolicy `json:"imagePullPolicy,omitempty"`

	// Port that the server listens on.
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Replicas of the server.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	Replicas *int32 `json:"replicas,omitempty"`

	// Args of the server.
	Args []string `json:"args,omitempty"`

	// Env of the server.
	Env []EnvVar `json:"env,omitempty"`

	// HFTokenSecretRef is the secret with the token for the model hub.
	HFTokenSecretRef *SecretRef `json:"hfTokenSecretRef,omitempty"`

	// ModelCache keeps the model on a volume.
	ModelCache *ModelCache `json:"modelCache,omitempty"`

	// Resources of the container.
	Resources *ResourceRequirements `json:"resources,omitempty"`

	// ResourceOverrides changes the Kubernetes objects of the server.
	ResourceOverrides *EmbeddingOverrides `json:"resourceOverrides,omitempty"`

	// PodTemplateSpec is a pod template.
	PodTemplateSpec JSONObject `json:"podTemplateSpec,omitempty"`
}

// PullPolicy says when an image is pulled.
// +kubebuilder:validation:Enum=Always;Never;IfNotPresent
type PullPolicy string

// AccessMode of a volume.
// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteMany;ReadOnlyMany
type AccessMode string

// ModelCache keeps a model on a volume.
type ModelCache struct {
	// Enabled turns the cache on.
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// Size of the volume.
	// +kubebuilder:default="10Gi"
	// +weir:form=size
	Size string `json:"size,omitempty"`

	// AccessMode of the volume.
	// +kubebuilder:default=ReadWriteOnce
	AccessMode AccessMode `json:"accessMode,omitempty"`

	// StorageClassName of the volume.
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// EmbeddingOverrides changes the Kubernetes objects of an embedding server.
type EmbeddingOverrides struct {
	// StatefulSet changes the stateful set.
	StatefulSet *StatefulSetOverrides `json:"statefulSet,omitempty"`

	// Service changes the service.
	Service *MetadataOverrides `json:"service,omitempty"`

	// PersistentVolumeClaim changes the claim.
	PersistentVolumeClaim *MetadataOverrides `json:"persistentVolumeClaim,omitempty"`
}

// StatefulSetOverrides changes a stateful set.
type StatefulSetOverrides struct {
	MetadataOverrides `json:",inline"`

	// PodTemplateMetadataOverrides changes the metadata of the pods.
	PodTemplateMetadataOverrides *MetadataOverrides `json:"podTemplateMetadataOverrides,omitempty"`
}

// EmbeddingPhase is the state of an embedding server.
// +kubebuilder:validation:Enum=Pending;Downloading;Ready;Failed;Terminating
type EmbeddingPhase string

// The phases of an embedding server.
const (
	EmbeddingPending     EmbeddingPhase = "Pending"
	EmbeddingDownloading EmbeddingPhase = "Downloading"
	EmbeddingReady       EmbeddingPhase = "Ready"
	EmbeddingFailed      EmbeddingPhase = "Failed"
	EmbeddingTerminating EmbeddingPhase = "Terminating"
)

// EmbeddingServerStatus is what was seen of an embedding server.
type EmbeddingServerStatus struct {
	// Phase of the server.
	Phase EmbeddingPhase `json:"phase,omitempty"`

	// Message says more about the phase.
	Message string `json:"message,omitempty"`

	// URL of the server.
	URL string `json:"url,omitempty"`

	// ReadyReplicas of the server.
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
