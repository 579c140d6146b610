package authz

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth"
)

// PointSpec is an outside decision point, as the type httpv1 gives it.
type PointSpec struct {
	HTTP struct {
		URL                string `json:"url"`
		Timeout            int    `json:"timeout"` // seconds; 0 for 30
		InsecureSkipVerify bool   `json:"insecure_skip_verify"`
	} `json:"http"`
	ClaimMapping string `json:"claim_mapping"` // mpe or standard
	Context      struct {
		IncludeArgs      bool `json:"include_args"`
		IncludeOperation bool `json:"include_operation"`
	} `json:"context"`
}

// The bounds of talking to a decision point.
const (
	pointTimeout    = 30 // seconds
	maxPointTimeout = 300
	maxPointAnswer  = 64 << 10 // bytes
)

// Point is an outside decision point. It is immutable.
type Point struct {
	spec    PointSpec
	url     string
	options Options
}

// ParsePoint judges the configuration of a decision point; at is the field that
// holds it.
func ParsePoint(spec PointSpec, at *field.Path) (*Point, field.ErrorList) {
	var errs field.ErrorList
	if _, err := oauth.ParseURL(spec.HTTP.URL, true); err != nil {
		errs = append(errs, field.Invalid(at.Child("http", "url"), spec.HTTP.URL, err.Error()))
	}
	if spec.HTTP.Timeout == 0 {
		spec.HTTP.Timeout = pointTimeout
	}
	if spec.HTTP.Timeout < 0 || spec.HTTP.Timeout > maxPointTimeout {
		errs = append(errs, field.Invalid(at.Child("http", "timeout"), spec.HTTP.Timeout, "must be 1 to "+strconv.Itoa(maxPointTimeout)+" seconds"))
	}
	if spec.HTTP.InsecureSkipVerify {
		errs = append(errs, field.Invalid(at.Child("http", "insecure_skip_verify"), true, "is not supported: use a certificate that the system trusts, or http"))
	}
	switch spec.ClaimMapping {
	case "mpe", "standard":
	case "":
		errs = append(errs, field.Required(at.Child("claim_mapping"), "mpe or standard"))
	default:
		errs = append(errs, field.NotSupported(at.Child("claim_mapping"), spec.ClaimMapping, []string{"mpe", "standard"}))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return &Point{spec: spec, url: strings.TrimRight(spec.HTTP.URL, "/") + "/decision"}, nil
}

// With returns a copy that opens with the options.
func (p *Point) With(o Options) Engine {
	c := *p
	c.options = o
	return &c
}

// Open returns the filter of the decision point. It does not wait for it.
func (p *Point) Open(env edge.Env) (edge.Filter, error) {
	client, err := oauth.New(oauth.Options{AllowHTTP: true, Timeout: p.timeout(), Reach: env.Reach})
	if err != nil {
		return nil, edge.Errorf(edge.Internal, "authz", "decision point: %w", err)
	}
	if env.Defer != nil {
		env.Defer(client.Close)
	}
	return newFilter(&pointJudge{point: p, client: client}, env, p.options), nil
}

func (p *Point) timeout() time.Duration { return time.Duration(p.spec.HTTP.Timeout) * time.Second }

// pointJudge asks the decision point about everything, and keeps nothing: its
// mind is its own.
type pointJudge struct {
	point  *Point
	client *oauth.Client
	views  atomic.Uint64
}

func (j *pointJudge) readsArguments() bool { return j.point.spec.Context.IncludeArgs }

// decide asks the decision point. Anything but an answer of status 200 that
// says {"allow": true} denies.
func (j *pointJudge) decide(ctx context.Context, who client, a *ask) *Explanation {
	fail := func(what string) *Explanation { return deny(ReasonPoint, Fault{Policy: "decision point", What: what}) }
	body, err := json.Marshal(j.point.question(who.id, a))
	if err != nil {
		return fail("the question: " + err.Error())
	}
	r, err := j.client.Do(ctx, oauth.Request{
		Method: "POST", URL: j.point.url, Trust: oauth.Named, Body: body, MaxBody: maxPointAnswer,
		Header: map[string][]string{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
	})
	switch {
	case err != nil:
		return fail(err.Error())
	case r.Status != 200:
		return fail("status " + strconv.Itoa(r.Status))
	case mcp.Valid(r.Body) != nil:
		return fail("its answer is not JSON")
	}
	e := &Explanation{Reason: ReasonPointSays}
	e.Allowed = string(mcp.Lookup(r.Body, "allow")) == "true"
	return e
}

// question is what the decision point is asked: principal, operation, resource
// and context.
func (p *Point) question(id *edge.Identity, a *ask) map[string]any {
	v := verbOf(a.thing.Thing)
	about := map[string]any{}
	if p.spec.Context.IncludeOperation {
		about["feature"], about["operation"], about["resource_id"] = v.feature, v.operation, a.thing.Name
		hints := map[string]bool{}
		for name, h := range map[string]*bool{
			"readOnlyHint": a.thing.ReadOnly, "destructiveHint": a.thing.Destructive,
			"idempotentHint": a.thing.Idempotent, "openWorldHint": a.thing.OpenWorld,
		} {
			if h != nil {
				hints[name] = *h
			}
		}
		if len(hints) > 0 {
			about["annotations"] = hints
		}
	}
	if p.spec.Context.IncludeArgs && len(a.arguments) > 0 {
		about["args"] = json.RawMessage(a.arguments)
	}
	given := map[string]any{}
	if len(about) > 0 {
		given["mcp"] = about
	}
	return map[string]any{
		"principal": p.principal(id),
		"operation": "mcp:" + v.feature + ":" + v.operation,
		"resource":  "mrn:mcp:" + a.server + ":" + v.feature + ":" + a.thing.Name,
		"context":   given,
	}
}

// principal maps claims to what the decision point reads: by mpe to sub,
// mroles, mgroups, scopes, mclearance and mannotations, by standard to sub,
// roles, groups and scopes.
func (p *Point) principal(id *edge.Identity) map[string]any {
	who := map[string]any{"sub": id.Subject}
	from := func(to string, names ...string) bool {
		for _, name := range names {
			if v, ok := id.Claims[name]; ok {
				who[to] = v
				return true
			}
		}
		return false
	}
	from("scopes", "scopes", "scope")
	if p.spec.ClaimMapping == "standard" {
		from("roles", "roles")
		from("groups", "groups")
		return who
	}
	from("mroles", "mroles", "roles")
	from("mgroups", "mgroups", "groups")
	from("mclearance", "mclearance", "clearance")
	if !from("mannotations", "mannotations", "annotations") {
		who["mannotations"] = map[string]any{} // its identity phase wants one
	}
	return who
}

func (j *pointJudge) view(ctx context.Context, server string, who client) edge.View {
	return &pointView{
		ctx: ctx, judge: j, server: server, who: who, left: maxAtOnce,
		until: time.Now().Add(j.point.timeout()),
		key:   "authz:point:" + strconv.FormatUint(j.views.Add(1), 10),
	}
}

// pointView is what one list shows. The decision point may answer otherwise the
// next time, so no two views have the same key. All of a list is asked for
// within the time of one answer; what is not decided by then is not shown.
type pointView struct {
	ctx    context.Context // of the exchange that asks for the list
	judge  *pointJudge
	server string
	who    client
	left   int
	until  time.Time
	key    string
}

// Key is the view's own.
func (v *pointView) Key() string { return v.key }

// Allows asks about one item, without arguments.
func (v *pointView) Allows(item *edge.Item) bool {
	if v.left--; v.left < 0 {
		return false
	}
	ctx, cancel := context.WithDeadline(v.ctx, v.until)
	defer cancel()
	a := ask{server: v.server, thing: *item, open: true}
	return verbOf(item.Thing) != (verb{}) && bothWays(&a, func(a *ask) *Explanation { return v.judge.decide(ctx, v.who, a) }).Allowed
}
