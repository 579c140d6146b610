package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPWebhookConfig names the webhooks that see a server's requests.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=mcpwebhookconfigs,scope=Namespaced,shortName=mwc
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=='Valid')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MCPWebhookConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec MCPWebhookConfigSpec `json:"spec"`

	// Status is what was seen.
	Status MCPWebhookConfigStatus `json:"status,omitempty"`
}

// MCPWebhookConfigList is a list of MCPWebhookConfig.
//
// +kubebuilder:object:root=true
type MCPWebhookConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MCPWebhookConfig `json:"items"`
}

// MCPWebhookConfigSpec names webhooks. There is at least one.
type MCPWebhookConfigSpec struct {
	// Validating webhooks may refuse a request.
	Validating []Webhook `json:"validating,omitempty"`

	// Mutating webhooks may refuse or change a request. They run before the
	// validating ones.
	Mutating []Webhook `json:"mutating,omitempty"`
}

// URLs are the addresses of all of them.
func (s *MCPWebhookConfigSpec) URLs() (all []*string) {
	for _, hooks := range [][]Webhook{s.Mutating, s.Validating} {
		for i := range hooks {
			all = append(all, &hooks[i].URL)
		}
	}
	return all
}

// FailurePolicy is what happens when a webhook cannot be asked.
// +kubebuilder:validation:Enum=fail;ignore
type FailurePolicy string

// What may happen when a webhook cannot be asked.
const (
	FailClosed FailurePolicy = "fail"
	FailIgnore FailurePolicy = "ignore"
)

// Webhook is one webhook.
type Webhook struct {
	// Name of the webhook, unique within its list.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// URL of the webhook: https, or http with tlsConfig.insecureSkipVerify.
	// +kubebuilder:validation:Format=uri
	// +weir:form=url
	URL string `json:"url"`

	// Timeout of one request, from 1s to 30s.
	// +kubebuilder:default="10s"
	// +weir:least=1s
	Timeout Duration `json:"timeout,omitempty"`

	// FailurePolicy is fail to refuse the request when the webhook cannot be
	// asked, or ignore to go on.
	// +kubebuilder:default=fail
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// TLSConfig of the connection.
	TLSConfig *WebhookTLS `json:"tlsConfig,omitempty"`

	// HMACSecretRef is the secret that signs requests.
	HMACSecretRef *SecretRef `json:"hmacSecretRef,omitempty"`
}

// WebhookTLS is TLS to a webhook.
type WebhookTLS struct {
	// CASecretRef is the secret with PEM certificates to trust.
	CASecretRef *SecretRef `json:"caSecretRef,omitempty"`

	// ClientCertSecretRef is the secret with the client certificate. It goes
	// with clientKeySecretRef.
	ClientCertSecretRef *SecretRef `json:"clientCertSecretRef,omitempty"`

	// ClientKeySecretRef is the secret with the client key.
	ClientKeySecretRef *SecretRef `json:"clientKeySecretRef,omitempty"`

	// InsecureSkipVerify accepts any certificate and plain HTTP. Development
	// only.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// MCPWebhookConfigStatus is what was seen of the resource.
type MCPWebhookConfigStatus struct {
	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ConfigHash changes when the configuration does.
	ConfigHash string `json:"configHash,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
