package webhook

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// File is a file of webhooks, for whoever has no cluster: the names of its
// fields are those of the run command's --webhook-config, and certificates come
// from files.
type File struct {
	Validating []Entry `json:"validating,omitempty"`
	Mutating   []Entry `json:"mutating,omitempty"`
}

// Entry is one webhook of a File.
type Entry struct {
	Name          string                `json:"name"`
	URL           string                `json:"url"`
	Timeout       v1beta1.Duration      `json:"timeout,omitempty"` // 10s when empty
	FailurePolicy v1beta1.FailurePolicy `json:"failure_policy"`    // required: nobody should have to guess
	TLS           *EntryTLS             `json:"tls_config,omitempty"`
	HMAC          *v1beta1.SecretRef    `json:"hmac_secret_ref,omitempty"`
}

// EntryTLS is TLS to a webhook of a File. The paths are of PEM files, which are
// read again for every request.
type EntryTLS struct {
	CA       string `json:"ca_bundle_path,omitempty"`
	Cert     string `json:"client_cert_path,omitempty"`
	Key      string `json:"client_key_path,omitempty"`
	Insecure bool   `json:"insecure_skip_verify,omitempty"`
}

// Spec is the Spec of a file, and what of it only a file demands.
func (f File) Spec() (Spec, field.ErrorList) {
	s := Spec{names: &names{"timeout", "failure_policy", "hmac_secret_ref", "tls_config", "ca_bundle_path", "client_cert_path", "client_key_path", "insecure_skip_verify"}}
	var wrong field.ErrorList
	list := func(name string, entries []Entry) (hooks []Webhook) {
		for i, e := range entries {
			if e.FailurePolicy == "" {
				wrong = append(wrong, field.Required(field.NewPath(name).Index(i).Child("failure_policy"), "say fail or ignore"))
			}
			h := Webhook{Webhook: v1beta1.Webhook{Name: e.Name, URL: e.URL, Timeout: e.Timeout, FailurePolicy: e.FailurePolicy, HMACSecretRef: e.HMAC}}
			if t := e.TLS; t != nil {
				h.TLSConfig = &v1beta1.WebhookTLS{InsecureSkipVerify: t.Insecure}
				h.CAFile, h.CertFile, h.KeyFile = t.CA, t.Cert, t.Key
			}
			hooks = append(hooks, h)
		}
		return hooks
	}
	s.Mutating, s.Validating = list("mutating", f.Mutating), list("validating", f.Validating)
	return s, wrong
}

// With is the webhooks of s and then those of another: one whose name s has
// already takes its place in the order.
func (s Spec) With(other Spec) Spec {
	if s.names == nil {
		s.names = other.names
	}
	return Spec{
		Namespace: s.Namespace, path: s.path, names: s.names,
		Mutating: merge(s.Mutating, other.Mutating), Validating: merge(s.Validating, other.Validating),
	}
}

func merge(first, more []Webhook) []Webhook {
	all := slices.Clone(first)
	for _, h := range more {
		if i := slices.IndexFunc(all, func(one Webhook) bool { return one.Name == h.Name }); i >= 0 {
			all[i] = h
		} else {
			all = append(all, h)
		}
	}
	return all
}
