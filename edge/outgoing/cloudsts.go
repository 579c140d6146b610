package outgoing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Bounds of a session at a cloud, and of the answer that gives it.
const (
	leastSession   = 900   // seconds
	mostSession    = 43200 // seconds
	defaultSession = 3600  // seconds
	maxSTSAnswer   = 64 << 10
	maxServiceName = 64
)

// cloudSTS takes on a role at a cloud with a token of the user
// (AssumeRoleWithWebIdentity), and signs requests as that role.
type cloudSTS struct {
	personal
	roles    roles
	name     string // the claim that names the session
	duration int    // seconds
	signer
}

// cloudSpec is the section cloudSts as either kind of manifest has it.
type cloudSpec struct {
	region, fallback, claim, service, name, provider string
	duration                                         *int32
	mappings                                         []mapping
}

// mappingsOf are the mappings of either kind: of gives the role, the claim, the matcher and the
// priority of one.
func mappingsOf[M any, N int | int32](all []M, of func(M) (role, claim, matcher string, priority *N)) (out []mapping) {
	for _, m := range all {
		var one mapping
		var priority *N
		if one.role, one.claim, one.matcher, priority = of(m); priority != nil {
			p := int64(*priority)
			one.priority = &p
		}
		out = append(out, one)
	}
	return out
}

// parseCloudSTS is Parse for the section cloudSts.
func (r *reader) parseCloudSTS(path *field.Path, c *v1beta1.CloudSTS) Strategy {
	s := cloudSpec{region: c.Region, fallback: c.FallbackRoleARN, claim: c.RoleClaim, service: c.Service, name: c.SessionNameClaim, provider: c.SubjectProviderName, duration: c.SessionDuration}
	s.mappings = mappingsOf(c.RoleMappings, func(m v1beta1.RoleMapping) (string, string, string, *int32) {
		return m.RoleARN, m.Claim, m.Matcher, m.Priority
	})
	return r.cloudSTS(path, &s, c)
}

// parseCloudSTSConfig is the same for spec.config.outgoingAuth.
func (r *reader) parseCloudSTSConfig(path *field.Path, c *v1beta1.ConfigCloudSTS) Strategy {
	s := cloudSpec{region: c.Region, fallback: c.FallbackRoleARN, claim: c.RoleClaim, service: c.Service, name: c.SessionNameClaim, provider: c.SubjectProviderName, duration: c.SessionDuration}
	s.mappings = mappingsOf(c.RoleMappings, func(m v1beta1.ConfigRoleMapping) (string, string, string, *int) {
		return m.RoleARN, m.Claim, m.Matcher, m.Priority
	})
	return r.cloudSTS(path, &s, c)
}

func (r *reader) cloudSTS(path *field.Path, s *cloudSpec, spec any) Strategy {
	c := &cloudSTS{name: cmp.Or(s.name, "sub"), duration: defaultSession, signer: signer{region: s.region, service: cmp.Or(s.service, "cloud-mcp")}}
	if !regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-\d+$`).MatchString(s.region) {
		r.add(field.Invalid(path.Child("region"), s.region, "must be a region such as eu-west-1"))
	}
	// It stands in a header, and between slashes.
	if len(c.service) > maxServiceName || strings.Trim(c.service, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
		r.add(field.Invalid(path.Child("service"), s.service, fmt.Sprintf("must be the name of a service: at most %d letters, digits, -, _ and .", maxServiceName)))
	}
	if s.duration != nil {
		if c.duration = int(*s.duration); c.duration < leastSession || c.duration > mostSession {
			r.add(field.Invalid(path.Child("sessionDuration"), c.duration, fmt.Sprintf("must be from %d to %d", leastSession, mostSession)))
		}
	}
	c.roles = r.parseRoles(path, s.claim, s.fallback, s.mappings)
	c.personal = personal{strategy: string(v1beta1.AuthCloudSTS), provider: s.provider, claims: true, digest: digest("cloudSts", spec), maker: c.open}
	return c
}

func (c *cloudSTS) Names() []string { return signed[:] }

// Format writes the names for every verb.
func (c *cloudSTS) Format(f fmt.State, _ rune) { show(f, c) }

// Open returns what signs requests with the session of their user. It has to be asked after
// all others that set lines, so that it signs theirs, too: see Join.
func (c *cloudSTS) Open(env edge.Env) (Attach, error) {
	session, err := c.get(env)
	if err != nil {
		return nil, err
	}
	now := env.Clock()
	return func(ctx context.Context, r *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
		value, generation, err := session(ctx, r)
		if value == nil {
			return 0, err
		}
		k, ok := value.(*keys)
		if !ok {
			return 0, unavailable(errors.New("outgoing: cloudSts: a credential of another kind"))
		}
		c.sign(k, now(), &wire{method: r.Method, path: r.URL.EscapedPath(), query: r.URL.RawQuery, lines: r.Lines, body: r.Body}, set)
		return generation, nil
	}, nil
}

func (c *cloudSTS) open(env edge.Env) (Maker, error) {
	client, err := ClientOf(env)
	if err != nil {
		return nil, err
	}
	return &assumer{cloudSTS: c, client: client, now: env.Clock(), endpoint: stsEndpoint(env, c.region)}, nil
}

// stsEndpoint is that of a region, or the one that --sts-endpoint puts in its place.
func stsEndpoint(env edge.Env, region string) string {
	if env.Reach.STS != "" {
		return env.Reach.STS
	}
	host := "https://sts." + region + ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		host += ".cn"
	}
	return host + "/"
}

// assumer is a cloudSTS whose security token service can be asked.
type assumer struct {
	*cloudSTS
	client   *oauth.Client
	now      func() time.Time
	endpoint string
}

// Make chooses the role and takes it on. What it chooses depends on the claims alone: the
// session is kept under the user's own token and under what the claims allow.
func (c *assumer) Make(ctx context.Context, a *Ask) (Fresh, error) {
	// 1. As whom.
	role, err := c.roles.of(ctx, a.Who.Claims)
	if err != nil {
		return Fresh{}, err
	}
	name, err := c.session(a.Who)
	if err != nil {
		return Fresh{}, err
	}

	// 2. The question.
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {role}, "RoleSessionName": {name},
		"WebIdentityToken": {string(a.Subject)}, "DurationSeconds": {strconv.Itoa(c.duration)},
	}
	asked := c.now()
	answer, err := c.client.Do(ctx, oauth.Request{
		Method: http.MethodPost, URL: c.endpoint, Trust: oauth.Named, MaxBody: maxSTSAnswer, Body: []byte(form.Encode()),
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"text/xml"}},
	})
	var slow net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) && slow.Timeout():
		return Fresh{}, fault(edge.Timeout, false, fmt.Errorf("outgoing: cloudSts: %s: no answer in time", c.endpoint))
	case err != nil:
		return Fresh{}, unavailable(fmt.Errorf("outgoing: cloudSts: %w", err))
	}

	// 3. The answer.
	if answer.Status != http.StatusOK {
		return Fresh{}, c.refusal(answer)
	}
	got, err := parseSession(answer.Body)
	switch {
	case err != nil:
		return Fresh{}, unavailable(fmt.Errorf("outgoing: cloudSts: %s: the answer: %w", c.endpoint, err))
	case !got.expires.After(asked):
		return Fresh{}, unavailable(fmt.Errorf("outgoing: cloudSts: %s: the answer: Expiration: it is over", c.endpoint))
	case got.token == string(a.Subject): // it would be sent to the backend
		return Fresh{}, unavailable(fmt.Errorf("outgoing: cloudSts: %s: the answer: SessionToken: it is the user's own token", c.endpoint))
	}
	until := asked.Add(24 * time.Hour)
	if got.expires.Before(until) {
		until = got.expires
	}
	k := &keys{id: got.id, secret: edge.Secret(got.secret), token: edge.Secret(got.token)}
	return Fresh{Value: k, Cost: sizeOfKeys + len(got.id) + len(got.secret) + len(got.token), Expires: until, Skew: defaultSkew}, nil
}

// sizeOfKeys is what keys take in the heap beside their texts, with the key of a day.
const sizeOfKeys = 160

// session is the name of the session of a user.
func (c *assumer) session(who *edge.Identity) (string, error) {
	var text string
	switch v := who.Claims[c.name].(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	}
	if text == "" && c.name == "sub" {
		text = who.Subject
	}
	if text == "" {
		return "", fault(edge.Denied, true, fmt.Errorf("outgoing: cloudSts: the token has no text in the claim %q, which sessionNameClaim names", c.name))
	}
	return sessionName(text), nil
}

// refusal is the error of an answer that is no session, by its code
// (AssumeRoleWithWebIdentity, Errors).
func (c *assumer) refusal(answer *oauth.Response) error {
	code := parseSTSError(answer.Body)
	kind, known := edge.Unavailable, true
	switch code {
	case "ExpiredTokenException", "ExpiredToken", "InvalidIdentityToken":
		kind = edge.Unauthenticated
	case "AccessDenied", "AccessDeniedException", "IDPRejectedClaim":
		kind = edge.Denied
	case "IDPCommunicationError", "MalformedPolicyDocument", "PackedPolicyTooLarge", "RegionDisabledException", "ValidationError", "Throttling":
	default:
		known = false
	}
	status := answer.Status >= 400 && answer.Status < 500
	if !status {
		kind = edge.Unavailable
	}
	if !known {
		code = "no code that it documents"
	}
	return fault(kind, status, fmt.Errorf("outgoing: cloudSts: %s: %s (status %d)", c.endpoint, code, answer.Status))
}
