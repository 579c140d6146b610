// Package outgoing holds the ways in which the edge authenticates to a backend.
// A way is parsed from a manifest without touching the world, opened when its
// plan goes live, and from then on attaches a credential to each request. What
// cannot attach its credential fails the call: the client's own credential is
// never sent in its place.
package outgoing

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Strategy is a way to authenticate to a backend, checked and ready to be
// opened. It is immutable.
type Strategy interface {
	// Names are the headers that it sets, as written; nil for none. Lines of
	// these names that come from anybody else have to be left out: see Without.
	Names() []string

	// Personal reports whether what it attaches depends on the user.
	Personal() bool

	// Open reads secrets. It fails for faults that waiting does not cure, such as a
	// missing secret or one that cannot be a header value; the error names the
	// secret and never holds its value.
	Open(edge.Env) (Attach, error)
}

// last is 1 for a way that signs what all others set.
func last(s Strategy) int {
	if _, signs := s.(*cloudSTS); signs {
		return 1
	}
	if j, ok := s.(*joined); ok {
		return last(j.all[len(j.all)-1])
	}
	return 0
}

// Attach adds a credential to one request to a backend: see edge.Credential.
type Attach = edge.Attach

// Parse checks the way that an MCPExternalAuthConfig describes, and returns
// everything that is wrong with it (external authentication document). path is
// where spec stands.
func Parse(path *field.Path, spec *v1beta1.MCPExternalAuthConfigSpec) (Strategy, field.ErrorList) {
	r := &reader{}
	switch spec.Type {
	case v1beta1.AuthUnauthenticated:
		return static(nil), nil
	case v1beta1.AuthHeaderInjection:
		path := path.Child("headerInjection")
		if h := spec.HeaderInjection; h == nil {
			r.required(path)
		} else {
			r.header(path.Child("headerName"), h.HeaderName, r.ref(path.Child("valueSecretRef"), h.ValueSecretRef))
		}
	case v1beta1.AuthBearerToken:
		path := path.Child("bearerToken")
		if b := spec.BearerToken; b == nil {
			r.required(path)
		} else {
			r.bearer(r.ref(path.Child("tokenSecretRef"), b.TokenSecretRef))
		}
	case v1beta1.AuthTokenExchange:
		section(r, path.Child("tokenExchange"), spec.TokenExchange, r.parseTokenExchange)
	case v1beta1.AuthCloudSTS:
		section(r, path.Child("cloudSts"), spec.CloudSTS, r.parseCloudSTS)
	case v1beta1.AuthUpstreamInject:
		section(r, path.Child("upstreamInject"), spec.UpstreamInject, r.parseUpstream)
	case v1beta1.AuthOBO:
		section(r, path.Child("obo"), spec.OBO, r.parseOBO)
	case v1beta1.AuthXAA:
		section(r, path.Child("xaa"), spec.XAA, r.parseXAA)
	default:
		r.unknown(path, spec.Type, v1beta1.AuthUnauthenticated, v1beta1.AuthHeaderInjection, v1beta1.AuthBearerToken,
			v1beta1.AuthTokenExchange, v1beta1.AuthCloudSTS, v1beta1.AuthUpstreamInject, v1beta1.AuthOBO, v1beta1.AuthXAA)
	}
	return r.strategy()
}

// ParseConfig is Parse for spec.config.outgoingAuth: its default, and each of
// its backends (virtual server document).
func ParseConfig(path *field.Path, spec *v1beta1.OutgoingStrategy) (Strategy, field.ErrorList) {
	r := &reader{}
	switch spec.Type {
	case v1beta1.StrategyUnauthenticated:
		return static(nil), nil
	case v1beta1.StrategyHeaderInjection:
		path := path.Child("headerInjection")
		h := spec.HeaderInjection
		switch {
		case h == nil:
			r.required(path)
		case h.HeaderValue != "" && h.HeaderValueEnv != "":
			r.add(field.Forbidden(path.Child("headerValueEnv"), "exclusive with headerValue"))
		case h.HeaderValue != "":
			r.header(path.Child("headerName"), h.HeaderName, r.value(path.Child("headerValue"), h.HeaderValue))
		case h.HeaderValueEnv != "":
			r.header(path.Child("headerName"), h.HeaderName, source{env: h.HeaderValueEnv})
		default:
			r.add(field.Required(path.Child("headerValue"), "one of headerValue and headerValueEnv must be set"))
		}
	case v1beta1.StrategyTokenExchange:
		section(r, path.Child("tokenExchange"), spec.TokenExchange, r.parseTokenExchangeConfig)
	case v1beta1.StrategyCloudSTS:
		section(r, path.Child("cloudSts"), spec.CloudSTS, r.parseCloudSTSConfig)
	case v1beta1.StrategyUpstreamInject:
		section(r, path.Child("upstreamInject"), spec.UpstreamInject, r.parseUpstream)
	case v1beta1.StrategyOBO:
		section(r, path.Child("obo"), spec.OBO, r.parseOBOConfig)
	case v1beta1.StrategyXAA:
		section(r, path.Child("xaa"), spec.XAA, r.parseXAAConfig)
	default:
		r.unknown(path, spec.Type, v1beta1.StrategyUnauthenticated, v1beta1.StrategyHeaderInjection,
			v1beta1.StrategyTokenExchange, v1beta1.StrategyCloudSTS, v1beta1.StrategyUpstreamInject, v1beta1.StrategyOBO, v1beta1.StrategyXAA)
	}
	return r.strategy()
}

// section reads the section of a type, which has to be there.
func section[T any](r *reader, path *field.Path, spec *T, parse func(*field.Path, *T) Strategy) {
	if spec == nil {
		r.required(path)
		return
	}
	r.made = parse(path, spec)
}

// ParseForward is Parse for spec.headerForward of MCPServerEntry and
// MCPRemoteProxy: headers with plain values, and with values in secrets.
func ParseForward(path *field.Path, spec *v1beta1.HeaderForward) (Strategy, field.ErrorList) {
	r := &reader{}
	if spec == nil {
		return static(nil), nil
	}
	plain := path.Child("addPlaintextHeaders")
	for _, name := range sortedNames(spec.AddPlaintextHeaders) {
		r.header(plain.Key(name), name, r.value(plain.Key(name), spec.AddPlaintextHeaders[name]))
	}
	for i, h := range spec.AddHeadersFromSecret {
		path := path.Child("addHeadersFromSecret").Index(i)
		r.header(path.Child("headerName"), h.HeaderName, r.ref(path.Child("valueSecretRef"), h.ValueSecretRef))
	}
	return r.strategy()
}

// Join is several ways at once. It fails when two of them set the same header.
func Join(all ...Strategy) (Strategy, error) {
	all = slices.DeleteFunc(slices.Clone(all), func(s Strategy) bool { return s == nil || len(s.Names()) == 0 })
	if len(all) == 0 {
		return static(nil), nil
	}
	if len(all) == 1 {
		return all[0], nil
	}
	slices.SortStableFunc(all, func(a, b Strategy) int { return cmp.Compare(last(a), last(b)) })
	var names []string
	for _, s := range all {
		for _, name := range s.Names() {
			if has(names, name) {
				return nil, fmt.Errorf("header %s is set twice", name)
			}
			names = append(names, name)
		}
	}
	return &joined{all, names}, nil
}

type joined struct {
	all   []Strategy
	names []string
}

func (j *joined) Names() []string { return slices.Clone(j.names) }

func (j *joined) Personal() bool { return slices.ContainsFunc(j.all, Strategy.Personal) }

// Format writes the names for every verb.
func (j *joined) Format(f fmt.State, _ rune) { show(f, j) }

func show(f fmt.State, s Strategy) {
	// A fmt.State records its own failures.
	_, _ = io.WriteString(f, "outgoing["+strings.Join(s.Names(), " ")+"]")
}

func (j *joined) Open(env edge.Env) (Attach, error) {
	attaches := make([]Attach, len(j.all))
	for i, s := range j.all {
		attach, err := s.Open(env)
		if err != nil {
			return nil, err
		}
		attaches[i] = attach
	}
	signs := last(j.all[len(j.all)-1]) == 1
	return func(ctx context.Context, r *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
		if signs {
			r, set = r.Noted(set)
		}
		var all uint64
		for _, attach := range attaches {
			one, err := attach(ctx, r, set)
			if err != nil {
				return 0, err
			}
			all = edge.Generations(all, one)
		}
		return all, nil
	}, nil
}

// refused is the error of a call without its credential. Its text may reach a client,
// so the cause is not in it, and only unwrapped.
type refused struct{ cause error }

func (*refused) Error() string   { return "no credential for the backend" }
func (e *refused) Unwrap() error { return e.cause }

// unavailable returns the error of an Attach. Only the log shows its cause.
func unavailable(cause error) error {
	return &edge.Error{Kind: edge.Unavailable, Op: cause.Error(), Err: &refused{cause}}
}
