package outgoing

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Spec describes the credential and the headers that the edge adds to requests to one
// backend, with every reference resolved.
type Spec struct {
	Ref     string                             // the name of the MCPExternalAuthConfig; "" for none
	Kind    *v1beta1.MCPExternalAuthConfigSpec // of that object; nil for none
	Config  *v1beta1.OutgoingStrategy          // an entry of spec.config.outgoingAuth, in place of Kind; nil for none
	Forward *v1beta1.HeaderForward             // nil for none
}

// Type returns the type of authentication, as the manifest calls it; "" if it names
// none.
func (s *Spec) Type() string {
	switch {
	case s == nil:
		return ""
	case s.Kind != nil:
		return string(s.Kind.Type)
	case s.Config != nil:
		return string(s.Config.Type)
	}
	return ""
}

// Name returns the name of the MCPExternalAuthConfig; "" for none.
func (s *Spec) Name() string {
	if s == nil {
		return ""
	}
	return s.Ref
}

// Authorizes reports whether it has a credential, whichever header that takes, and not only
// headers that say something else.
func (s *Spec) Authorizes() bool {
	return s != nil && (s.Kind != nil || s.Config != nil || Forwards(nil, s.Forward, "Authorization") != nil)
}

// Forwards is where a header is added by its name, in any case; nil for nowhere.
func Forwards(path *field.Path, spec *v1beta1.HeaderForward, name string) *field.Path {
	if spec == nil {
		return nil
	}
	for _, plain := range sortedNames(spec.AddPlaintextHeaders) {
		if edge.SameHeader(plain, name) {
			return path.Child("addPlaintextHeaders").Key(plain)
		}
	}
	for i, h := range spec.AddHeadersFromSecret {
		if edge.SameHeader(h.HeaderName, name) {
			return path.Child("addHeadersFromSecret").Index(i)
		}
	}
	return nil
}

// Beside is what goes beside the credential, whichever that is.
func (s *Spec) Beside() *Spec {
	if s == nil || s.Forward == nil {
		return nil
	}
	return &Spec{Forward: s.Forward}
}

// Strategy is all of it as one way. It fails for what Parse and its kin refuse,
// and for a header that is set twice.
func (s *Spec) Strategy() (Strategy, error) {
	if s == nil {
		return static(nil), nil
	}
	var way Strategy
	var wrong field.ErrorList
	switch {
	case s.Kind != nil:
		way, wrong = Parse(nil, s.Kind)
	case s.Config != nil:
		way, wrong = ParseConfig(nil, s.Config)
	}
	lines, more := ParseForward(nil, s.Forward)
	if err := append(wrong, more...).ToAggregate(); err != nil {
		return nil, err
	}
	return Join(way, lines)
}

// Endpoints are the URLs that are asked for credentials; nil for none, and for a spec that
// Strategy refuses.
func (s *Spec) Endpoints(env edge.Env) []string {
	way, err := s.Strategy()
	if err != nil {
		return nil
	}
	all := []Strategy{way}
	if j, ok := way.(*joined); ok {
		all = j.all
	}
	var out []string
	for _, one := range all {
		switch one := one.(type) {
		case *personal:
			out = append(out, one.asks...)
		case *cloudSTS:
			out = append(out, stsEndpoint(env, one.region))
		}
	}
	return out
}

// Open opens it; nil says that there is nothing to send.
func (s *Spec) Open(env edge.Env) (*edge.Credential, error) {
	strategy, err := s.Strategy()
	if err != nil {
		return nil, err
	}
	names := strategy.Names()
	if len(names) == 0 {
		return nil, nil
	}
	attach, err := strategy.Open(env)
	if err != nil {
		return nil, err
	}
	return &edge.Credential{Name: s.Name(), Headers: names, Personal: strategy.Personal(), Signs: last(strategy) == 1, Attach: attach}, nil
}

// Format writes what kind of credential it is, for every verb: it may hold one.
func (s *Spec) Format(f fmt.State, _ rune) {
	// A fmt.State records its own failures.
	_, _ = io.WriteString(f, "outgoing["+s.Type()+"]")
}
