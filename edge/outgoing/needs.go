package outgoing

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Needs returns what of a call the credential is made of: user reports whether it is a
// token of the user, who then has to be known by one; upstreams are the providers by which
// that token is issued, "" for the first there is, and none where it is the client's own.
func (s *Spec) Needs() (user bool, upstreams []string) {
	own := func(provider string) (bool, []string) {
		if provider == "" {
			return true, nil
		}
		return true, []string{provider}
	}
	if s == nil {
		return false, nil
	}
	if k := s.Kind; k != nil {
		switch {
		case k.Type == v1beta1.AuthTokenExchange && k.TokenExchange != nil:
			return own(k.TokenExchange.SubjectProviderName)
		case k.Type == v1beta1.AuthCloudSTS && k.CloudSTS != nil:
			return own(k.CloudSTS.SubjectProviderName)
		case k.Type == v1beta1.AuthOBO && k.OBO != nil:
			return own(k.OBO.SubjectTokenProviderName)
		case k.Type == v1beta1.AuthUpstreamInject && k.UpstreamInject != nil:
			return true, []string{k.UpstreamInject.ProviderName}
		case k.Type == v1beta1.AuthXAA && k.XAA != nil:
			return true, []string{k.XAA.SubjectProviderName}
		}
	}
	if c := s.Config; c != nil {
		switch {
		case c.Type == v1beta1.StrategyTokenExchange && c.TokenExchange != nil:
			return own(c.TokenExchange.SubjectProviderName)
		case c.Type == v1beta1.StrategyCloudSTS && c.CloudSTS != nil:
			return own(c.CloudSTS.SubjectProviderName)
		case c.Type == v1beta1.StrategyOBO && c.OBO != nil:
			return own(c.OBO.SubjectTokenProviderName)
		case c.Type == v1beta1.StrategyUpstreamInject && c.UpstreamInject != nil:
			return true, []string{c.UpstreamInject.ProviderName}
		case c.Type == v1beta1.StrategyXAA && c.XAA != nil:
			return true, []string{c.XAA.SubjectProviderName}
		}
	}
	return false, nil
}

// With is the Spec with a provider filled in where it takes one and names none: the first
// upstream of its server, "" for no authorization server (external authentication document,
// subjectProviderName).
func (s *Spec) With(first string) *Spec {
	if s == nil || first == "" {
		return s
	}
	with := *s
	fill := func(name *string) {
		if *name == "" {
			*name = first
		}
	}
	if k := s.Kind.DeepCopy(); k != nil {
		with.Kind = k
		switch {
		case k.Type == v1beta1.AuthTokenExchange && k.TokenExchange != nil:
			fill(&k.TokenExchange.SubjectProviderName)
		case k.Type == v1beta1.AuthCloudSTS && k.CloudSTS != nil:
			fill(&k.CloudSTS.SubjectProviderName)
		case k.Type == v1beta1.AuthXAA && k.XAA != nil:
			fill(&k.XAA.SubjectProviderName)
		}
	}
	if c := s.Config.DeepCopy(); c != nil {
		with.Config = c
		switch {
		case c.Type == v1beta1.StrategyTokenExchange && c.TokenExchange != nil:
			fill(&c.TokenExchange.SubjectProviderName)
		case c.Type == v1beta1.StrategyCloudSTS && c.CloudSTS != nil:
			fill(&c.CloudSTS.SubjectProviderName)
		case c.Type == v1beta1.StrategyXAA && c.XAA != nil:
			fill(&c.XAA.SubjectProviderName)
		}
	}
	return &with
}

// endpoint demands the URL of a token endpoint, which the operator names: it may be of http
// where that is allowed.
func (r *reader) endpoint(path *field.Path, text string, http bool) string {
	if text == "" {
		r.required(path)
	} else if _, err := oauth.ParseURL(text, http); err != nil {
		r.add(field.Invalid(path, "(hidden)", err.Error()))
	}
	return text
}

// authority demands the URL of a login host, below which its directories are.
func (r *reader) authority(path *field.Path, text string) string {
	u, err := oauth.ParseURL(text, false)
	if err != nil {
		r.add(field.Invalid(path, "(hidden)", err.Error()))
	} else if u.RawQuery != "" || u.ForceQuery || text[len(text)-1] == '/' {
		r.add(field.Invalid(path, "(hidden)", "must have no query and no trailing slash"))
	}
	return text
}

// placed is a secret in place, or in a variable of the environment; the zero value for none.
func (r *reader) placed(path *field.Path, name, value, env string) source {
	switch {
	case value != "" && env != "":
		r.add(field.Forbidden(path.Child(name+"Env"), "exclusive with "+name))
	case env != "":
		return source{env: env}
	case value != "":
		return source{value: edge.Secret(value)}
	}
	return source{}
}

// idSecret demands the name of a client that has a secret.
func (r *reader) idSecret(path *field.Path, name, id string, secret source) {
	if id == "" && secret != (source{}) {
		r.add(field.Required(path.Child(name), "a client with a secret has one"))
	}
}

// name demands the name of a header that a strategy may set.
func (r *reader) name(path *field.Path, name string) { r.header(path, name, source{}) }
