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

// Spec is what the webhooks of one server are made from.
type Spec struct {
	Namespace string      // "" outside a cluster
	Path      *field.Path // of Webhooks
	Webhooks  v1beta1.MCPWebhookConfigSpec
}

// Part is the webhooks of one server.
type Part struct {
	// Resolve returns where an exchange goes whose message was changed; nil for
	// nowhere. It is the lookup that x.Target came from. It is set before Open,
	// and needed where there are mutating webhooks.
	Resolve func(context.Context, *edge.Exchange) *edge.Target

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

func (h *hook) kind() string {
	if h.mutates {
		return "mutating"
	}
	return "validating"
}

// Parse makes the webhooks of a server, or says everything that is wrong with
// them (MCPWebhookConfig).
func Parse(s Spec) (*Part, field.ErrorList) {
	r := reader{}
	p := &Part{namespace: s.Namespace}
	if len(s.Webhooks.Mutating)+len(s.Webhooks.Validating) == 0 {
		r.errs = append(r.errs, field.Required(s.Path, "one of validating and mutating must hold a webhook"))
	}
	p.mutating = r.hooks(s.Path.Child("mutating"), s.Webhooks.Mutating, true)
	p.validating = r.hooks(s.Path.Child("validating"), s.Webhooks.Validating, false)
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
type reader struct{ errs field.ErrorList }

func (r *reader) add(e *field.Error) { r.errs = append(r.errs, e) }

func (r *reader) hooks(path *field.Path, specs []v1beta1.Webhook, mutates bool) []*hook {
	if len(specs) > maxHooks {
		r.add(field.TooMany(path, len(specs), maxHooks))
		return nil
	}
	var hooks []*hook
	seen := map[string]bool{}
	for i, s := range specs {
		path := path.Index(i)
		h := &hook{name: s.Name, mutates: mutates, url: s.URL, timeout: fallback, hmac: s.HMACSecretRef}
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
				r.add(field.Invalid(path.Child("timeout"), string(s.Timeout), err.Error()))
			case d < minTimeout || d > maxTimeout:
				r.add(field.Invalid(path.Child("timeout"), string(s.Timeout), fmt.Sprintf("must be from %s to %s", minTimeout, maxTimeout)))
			}
			h.timeout = d
		}
		switch s.FailurePolicy {
		case "", v1beta1.FailClosed:
		case v1beta1.FailIgnore:
			h.ignore = true
		default:
			r.add(field.NotSupported(path.Child("failurePolicy"), s.FailurePolicy, []v1beta1.FailurePolicy{v1beta1.FailClosed, v1beta1.FailIgnore}))
		}
		r.ref(path.Child("hmacSecretRef"), s.HMACSecretRef)
		r.tls(path.Child("tlsConfig"), &h.tls)
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
		r.add(field.Invalid(path, text, "must be https, unless tlsConfig.insecureSkipVerify is true"))
	}
}

func (r *reader) tls(path *field.Path, t *v1beta1.WebhookTLS) {
	r.ref(path.Child("caSecretRef"), t.CASecretRef)
	r.ref(path.Child("clientCertSecretRef"), t.ClientCertSecretRef)
	r.ref(path.Child("clientKeySecretRef"), t.ClientKeySecretRef)
	switch {
	case t.ClientCertSecretRef != nil && t.ClientKeySecretRef == nil:
		r.add(field.Required(path.Child("clientKeySecretRef"), "goes with clientCertSecretRef"))
	case t.ClientCertSecretRef == nil && t.ClientKeySecretRef != nil:
		r.add(field.Required(path.Child("clientCertSecretRef"), "goes with clientKeySecretRef"))
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
