package outgoing

import (
	"context"
	"maps"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// EnterpriseRequired is the reason of the condition Valid of an object of type obo, where
// the edge has no handler for it (external authentication document, states and transitions).
const EnterpriseRequired = "EnterpriseRequired"

// withoutOBO is the variable of the environment that takes the handler away.
const withoutOBO = "WEIR_DISABLE_OBO"

// defaultAuthority is the login host of the directory.
const defaultAuthority = "https://login.microsoftonline.com"

// obo asks a directory for a token on behalf of the user (RFC 7523 §2.1, with the
// parameters of the directory's v2 token endpoint).
type obo struct {
	party
	form url.Values // but for the user's token
	skew time.Duration
}

// parseOBO is Parse for the section obo.
func (r *reader) parseOBO(path *field.Path, o *v1beta1.OBO) Strategy {
	x := &obo{party: party{method: oauth.AuthBody, clientID: o.ClientID}, skew: defaultSkew}
	if o.ClientSecretRef == nil {
		r.required(path.Child("clientSecretRef"))
	} else {
		x.secret = r.ref(path.Child("clientSecretRef"), *o.ClientSecretRef)
	}
	authority := defaultAuthority
	if o.Authority != "" {
		authority = r.authority(path.Child("authority"), o.Authority)
	}
	switch {
	case o.TenantID == "":
		r.required(path.Child("tenantId"))
	case len(o.TenantID) > 253 || !isTenant(o.TenantID):
		r.add(field.Invalid(path.Child("tenantId"), "(hidden)", "must be the GUID or a verified domain name of one directory"))
	default:
		x.endpoint = authority + "/" + o.TenantID + "/oauth2/v2.0/token"
	}
	if o.CacheSkew != "" {
		skew, err := o.CacheSkew.Parse()
		if err != nil {
			r.add(field.Invalid(path.Child("cacheSkew"), "(hidden)", "must be a length of time"))
		}
		x.skew = skew
	}
	return r.obo(path, x, o.Audience, o.SubjectTokenProviderName, o.Scopes, o)
}

// parseOBOConfig is the same for spec.config.outgoingAuth.
func (r *reader) parseOBOConfig(path *field.Path, o *v1beta1.ConfigOBO) Strategy {
	x := &obo{party: party{method: oauth.AuthBody, clientID: o.ClientID}, skew: time.Duration(o.CacheSkewSeconds) * time.Second}
	x.endpoint = r.endpoint(path.Child("tokenUrl"), o.TokenURL, true)
	if x.secret = r.placed(path, "clientSecret", o.ClientSecret, o.ClientSecretEnv); x.secret == (source{}) && o.ClientSecretEnv == "" {
		r.add(field.Required(path.Child("clientSecret"), "one of clientSecret and clientSecretEnv must be set"))
	}
	return r.obo(path, x, o.Audience, o.SubjectTokenProviderName, o.Scopes, o)
}

// obo is what both kinds have in common.
func (r *reader) obo(path *field.Path, x *obo, audience, provider string, scopes []string, spec any) Strategy {
	if x.clientID == "" {
		r.required(path.Child("clientId"))
	}
	if audience == "" && len(scopes) == 0 {
		r.add(field.Required(path.Child("audience"), "one of audience and scopes must be set"))
	}
	if os.Getenv(withoutOBO) == "1" {
		r.add(field.Forbidden(path, EnterpriseRequired+": "+withoutOBO+" takes the handler for it away"))
	}
	scope := strings.Join(scopes, " ")
	if scope == "" {
		scope = audience + "/.default"
	}
	x.form = url.Values{"grant_type": {grantAssert}, "requested_token_use": {"on_behalf_of"}, "scope": {scope}}
	return &personal{
		strategy: string(v1beta1.AuthOBO), header: "Authorization", provider: provider,
		digest: digest("obo", []any{spec, x.skew}), maker: x.open, asks: []string{x.endpoint},
	}
}

// isTenant reports whether a text names one directory: a GUID, or a domain name, which has
// a dot, as the aliases of many directories have not.
func isTenant(text string) bool {
	return regexp.MustCompile(`^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,})$`).MatchString(text)
}

func (x *obo) open(env edge.Env) (Maker, error) {
	at, err := x.party.open(env)
	return &onBehalf{x, at}, err
}

// onBehalf is an obo whose endpoint can be asked.
type onBehalf struct {
	*obo
	at *oauth.TokenEndpoint
}

func (x *onBehalf) Make(ctx context.Context, a *Ask) (Fresh, error) {
	form := maps.Clone(x.form)
	form.Set("assertion", string(a.Subject))
	token, err := ask(ctx, x.at, form, oauth.Want{}, "obo")
	if err != nil {
		return Fresh{}, err
	}
	return fresh(token.Access, token.Expires, x.skew)
}
