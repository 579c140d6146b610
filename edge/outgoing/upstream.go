package outgoing

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// upstreamLine is how long the header's value that is made of an upstream's token is kept.
// Whether the token is good is for the upstream to say, at each call.
const upstreamLine = 24 * time.Hour

// parseUpstream is Parse for the section upstreamInject, of both kinds.
func (r *reader) parseUpstream(path *field.Path, u *v1beta1.UpstreamInject) Strategy {
	if u.ProviderName == "" {
		r.required(path.Child("providerName"))
	}
	return &personal{
		strategy: string(v1beta1.AuthUpstreamInject), header: "Authorization", provider: u.ProviderName, same: true,
		digest: digest("upstreamInject", u),
		maker:  func(env edge.Env) (Maker, error) { return passOn{env.Clock()}, nil },
	}
}

// passOn makes the header's value of a token.
type passOn struct{ now func() time.Time }

func (p passOn) Make(_ context.Context, a *Ask) (Fresh, error) {
	return fresh(a.Subject, p.now().Add(upstreamLine), 0)
}
