// Package webhook asks webhooks about messages: mutating ones may refuse or
// change a message, validating ones may refuse it.
//
// It stands between authentication and authorization. A message that was
// changed is decoded again, so that routing and policies judge the message that
// is sent, and not the one that came.
package webhook

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Bounds of what webhooks are told and tell. Sizes are bytes.
const (
	maxHooks   = 16 // of either type: they are asked one after the other
	maxBody    = 1 << 20
	maxTimeout = 30 * time.Second
	minTimeout = time.Second
	fallback   = 10 * time.Second // where no timeout is given
)

// Spec is what the webhooks of one server are made from. FromKind and File.Spec
// make it.
type Spec struct {
	Namespace            string // "" outside a cluster
	Mutating, Validating []Webhook

	path  *field.Path // of the lists, for Parse to say where something is wrong
	names *names
}

// Webhook is one webhook: as an MCPWebhookConfig has it, or with files in place
// of the secrets of its TLS.
type Webhook struct {
	v1beta1.Webhook
	CAFile, CertFile, KeyFile string // of PEM text; "" for none
}

// FromKind is the Spec of an MCPWebhookConfig, whose spec stands at path.
func FromKind(namespace string, path *field.Path, c v1beta1.MCPWebhookConfigSpec) Spec {
	s := Spec{Namespace: namespace, path: path, names: kindNames()}
	for _, h := range c.Mutating {
		s.Mutating = append(s.Mutating, Webhook{Webhook: h})
	}
	for _, h := range c.Validating {
		s.Validating = append(s.Validating, Webhook{Webhook: h})
	}
	return s
}

// Need is a field of a webhook that refers to a secret.
type Need struct {
	Webhook, Field string
	Secret         v1beta1.SecretRef
}

// Needs are the secrets without which the webhooks cannot be opened.
func (s Spec) Needs() (all []Need) {
	n := s.names
	if n == nil {
		n = kindNames()
	}
	for _, h := range slices.Concat(s.Mutating, s.Validating) {
		note := func(field string, ref *v1beta1.SecretRef) {
			if ref != nil {
				all = append(all, Need{h.Name, field, *ref})
			}
		}
		note(n.hmac, h.HMACSecretRef)
		if t := h.TLSConfig; t != nil {
			note(n.tls+"."+n.ca, t.CASecretRef)
			note(n.tls+"."+n.cert, t.ClientCertSecretRef)
			note(n.tls+"."+n.key, t.ClientKeySecretRef)
		}
	}
	return all
}

// names are what a webhook's fields are called where it is written.
type names struct{ timeout, policy, hmac, tls, ca, cert, key, insecure string }

func kindNames() *names {
	return &names{"timeout", "failurePolicy", "hmacSecretRef", "tlsConfig", "caSecretRef", "clientCertSecretRef", "clientKeySecretRef", "insecureSkipVerify"}
}

// Part is the webhooks of one server.
type Part struct {
	// Resolve returns where an exchange goes whose message was changed; nil for
	// nowhere. It is the lookup that x.Target came from, and its error is the
	// answer to the exchange. It is set before Open, and needed where there are
	// mutating webhooks.
	Resolve func(context.Context, *edge.Exchange) (*edge.Target, error)

	namespace            string
	mutating, validating []*hook
}

// hook is one webhook, as its manifest describes it, and its counts.
type hook struct {
	name    string
	mutates bool
	url     string
	timeout time.Duration
	ignore  bool // a message goes on when the webhook cannot be asked
	hmac    *v1beta1.SecretRef
	tls     v1beta1.WebhookTLS
	files   [3]string // in place of the secrets of tls: certificates to trust, certificate, key

	counts counts
}

type counts struct{ asked, denied, changed, failed, ignored, nanoseconds atomic.Uint64 }

// Counters are what one webhook has counted since it was parsed.
type Counters struct {
	Name    string
	Type    string        // "mutating" or "validating"
	Asked   uint64        // requests to the webhook
	Denied  uint64        // messages that it refused
	Changed uint64        // messages that it changed
	Failed  uint64        // requests without a sound answer
	Ignored uint64        // of those, the ones whose message went on
	Time    time.Duration // that messages waited for it, in all
}

// Counters returns what has been counted, in the order in which webhooks are
// asked.
func (p *Part) Counters() []Counters {
	var all []Counters
	for _, hooks := range [][]*hook{p.mutating, p.validating} {
		for _, h := range hooks {
			all = append(all, Counters{
				Name: h.name, Type: h.kind(), Asked: h.counts.asked.Load(), Denied: h.counts.denied.Load(), Changed: h.counts.changed.Load(),
				Failed: h.counts.failed.Load(), Ignored: h.counts.ignored.Load(), Time: time.Duration(h.counts.nanoseconds.Load()),
			})
		}
	}
	return all
}

// Collect is edge.Collector.Collect.
func (p *Part) Collect(m edge.Emitter) {
	for _, c := range p.Counters() {
		m := m.With("webhook", c.Name).With("type", c.Type)
		m.Counter("weir_webhook_asked", "Requests to the webhook.", float64(c.Asked))
		m.Counter("weir_webhook_denied", "Messages that it refused.", float64(c.Denied))
		m.Counter("weir_webhook_changed", "Messages that it changed.", float64(c.Changed))
		m.Counter("weir_webhook_failed", "Requests without a sound answer.", float64(c.Failed))
		m.Counter("weir_webhook_ignored", "Of those, the ones whose message went on.", float64(c.Ignored))
		m.Counter("weir_webhook_seconds", "Time that messages waited for it.", c.Time.Seconds())
	}
}

func (h *hook) kind() string {
	if h.mutates {
		return "mutating"
	}
	return "validating"
}

// Parse makes the webhooks of a server, or says everything that is wrong with
// them.
func Parse(s Spec) (*Part, field.ErrorList) {
	r := reader{names: s.names}
	if r.names == nil {
		r.names = kindNames()
	}
	p := &Part{namespace: s.Namespace}
	if len(s.Mutating)+len(s.Validating) == 0 {
		none := field.Required(s.path, "one of validating and mutating must hold a webhook")
		if s.path == nil {
			none.Field = ""
		}
		r.add(none)
	}
	p.mutating = r.hooks(s.path.Child("mutating"), s.Mutating, true)
	p.validating = r.hooks(s.path.Child("validating"), s.Validating, false)
	if len(r.errs) > 0 {
		return nil, r.errs
	}
	return p, nil
}

// Mutating is the mutating webhooks alone; nil for none. With Validating it is
// for a hallway in which something may change a message in between.
func (p *Part) Mutating() *Part {
	if len(p.mutating) == 0 {
		return nil
	}
	return &Part{Resolve: p.Resolve, namespace: p.namespace, mutating: p.mutating}
}

// Validating is the validating webhooks alone; nil for none.
func (p *Part) Validating() *Part {
	if len(p.validating) == 0 {
		return nil
	}
	return &Part{namespace: p.namespace, validating: p.validating}
}

// reader reads webhooks and collects what is wrong with them.
type reader struct {
	names *names
	errs  field.ErrorList
}

func (r *reader) add(e *field.Error) { r.errs = append(r.errs, e) }

func (r *reader) hooks(path *field.Path, specs []Webhook, mutates bool) []*hook {
	if len(specs) > maxHooks {
		r.add(field.TooMany(path, len(specs), maxHooks))
		return nil
	}
	var hooks []*hook
	seen := map[string]bool{}
	for i, s := range specs {
		path := path.Index(i)
		h := &hook{name: s.Name, mutates: mutates, url: s.URL, timeout: fallback, hmac: s.HMACSecretRef, files: [3]string{s.CAFile, s.CertFile, s.KeyFile}}
		switch {
		case s.Name == "":
			r.add(field.Required(path.Child("name"), ""))
		case seen[s.Name]:
			r.add(field.Duplicate(path.Child("name"), s.Name))
		}
		seen[s.Name] = true
		if s.TLSConfig != nil {
			h.tls = *s.TLSConfig
		}
		r.url(path.Child("url"), s.URL, h.tls.InsecureSkipVerify)
		if s.Timeout != "" {
			d, err := s.Timeout.Parse()
			switch {
			case err != nil:
				r.add(field.Invalid(path.Child(r.names.timeout), string(s.Timeout), err.Error()))
			case d < minTimeout || d > maxTimeout:
				r.add(field.Invalid(path.Child(r.names.timeout), string(s.Timeout), fmt.Sprintf("must be from %s to %s", minTimeout, maxTimeout)))
			}
			h.timeout = d
		}
		switch s.FailurePolicy {
		case "", v1beta1.FailClosed:
		case v1beta1.FailIgnore:
			h.ignore = true
		default:
			r.add(field.NotSupported(path.Child(r.names.policy), s.FailurePolicy, []v1beta1.FailurePolicy{v1beta1.FailClosed, v1beta1.FailIgnore}))
		}
		r.ref(path.Child(r.names.hmac), s.HMACSecretRef)
		r.tls(path.Child(r.names.tls), h)
		hooks = append(hooks, h)
	}
	return hooks
}

func (r *reader) url(path *field.Path, text string, insecure bool) {
	if text == "" {
		r.add(field.Required(path, ""))
	} else if _, err := oauth.ParseURL(text, true); err != nil {
		r.add(field.Invalid(path, "(hidden)", err.Error())) // it may hold a password
	} else if _, err := oauth.ParseURL(text, insecure); err != nil {
		r.add(field.Invalid(path, text, fmt.Sprintf("must be https, unless %s.%s is true", r.names.tls, r.names.insecure)))
	}
}

func (r *reader) tls(path *field.Path, h *hook) {
	t := &h.tls
	r.ref(path.Child(r.names.ca), t.CASecretRef)
	r.ref(path.Child(r.names.cert), t.ClientCertSecretRef)
	r.ref(path.Child(r.names.key), t.ClientKeySecretRef)
	cert, key := t.ClientCertSecretRef != nil || h.files[1] != "", t.ClientKeySecretRef != nil || h.files[2] != ""
	switch {
	case cert && !key:
		r.add(field.Required(path.Child(r.names.key), "goes with "+r.names.cert))
	case key && !cert:
		r.add(field.Required(path.Child(r.names.cert), "goes with "+r.names.key))
	}
}

func (r *reader) ref(path *field.Path, ref *v1beta1.SecretRef) {
	if ref == nil {
		return
	}
	if ref.Name == "" {
		r.add(field.Required(path.Child("name"), ""))
	}
	if ref.Key == "" {
		r.add(field.Required(path.Child("key"), ""))
	}
}
