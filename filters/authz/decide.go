package authz

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"weak"

	"github.com/cedar-policy/cedar-go"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// ask is a question about one thing: may somebody do this to it.
type ask struct {
	server    string
	thing     edge.Target // by value; Thing, Name, Original, Backend and hints
	unplaced  bool        // where the thing comes from is not known
	arguments []byte      // JSON text of an object; nil for none
	open      bool        // arguments are not known yet
	batch     int         // how many messages share what policies may read of it; 0 for one alone
	readings  *int        // bytes of other readings that may be judged with it and with what is asked beside it; nil for no bound
}

// verb is an action as the policies and the decision point name it.
type verb struct{ action, kind, feature, operation string }

// verbOf returns what is done to a thing of a kind; the zero verb for nothing.
func verbOf(t edge.Thing) verb {
	switch t {
	case edge.Tool:
		return verb{"call_tool", typeTool, "tool", "call"}
	case edge.Prompt:
		return verb{"get_prompt", typePrompt, "prompt", "get"}
	case edge.Resource, edge.Template:
		return verb{"read_resource", typeResource, "resource", "read"}
	}
	return verb{}
}

// The bounds of what a filter keeps.
const (
	keptPrincipals = 2_048
	keptDecisions  = 8_192
	keptText       = 1_024     // bytes of names in a decision that is kept
	keptArguments  = 16 * 1024 // bytes of arguments in one
)

// decision is what a decision depends on.
type decision struct {
	principal                       [sha256.Size]byte
	server, name, original, backend string
	thing                           edge.Thing
	hints                           uint8
	unplaced, open                  bool
	arguments                       [sha256.Size]byte // of what policies read of them
}

// known is what a principal is made of: an identity, which never changes, and a
// digest of what programs say of it as to a message; zero where they say nothing
// that policies read.
type known struct {
	id   weak.Pointer[edge.Identity]
	said [sha256.Size]byte
}

// cedarJudge judges by a policy set, and keeps decisions.
type cedarJudge struct {
	set        *Policies
	principals *cache[known, *principal]
	decisions  *cache[decision, *Explanation] // about calls
	listed     *cache[decision, *Explanation] // about items of lists, which are many at once
}

func newCedarJudge(p *Policies) *cedarJudge {
	return &cedarJudge{
		set:        p,
		principals: newCache[known, *principal](keptPrincipals),
		decisions:  newCache[decision, *Explanation](keptDecisions),
		listed:     newCache[decision, *Explanation](keptDecisions),
	}
}

func (j *cedarJudge) readsArguments() bool {
	return j.set.reads.allArguments || len(j.set.reads.arguments) > 0
}

// who returns the principal of a client. An identity never changes, so its
// principal is kept, unless its claims are those of another token.
func (j *cedarJudge) who(c client) *principal {
	key := known{id: weak.Make(c.id)}
	if len(c.said) > 0 {
		key.said = j.set.reads.digestAttributes(c.said)
	}
	if p, ok := j.principals.get(key); ok {
		return p
	}
	claims := c.id.Claims
	if j.set.provider != "" {
		claims = c.id.PolicyClaims
	}
	p := j.set.principalOf(c.id, claims, c.id.Attributes.With(c.said))
	j.principals.put(key, p)
	return p
}

func (j *cedarJudge) decide(ctx context.Context, who client, a *ask) *Explanation {
	return j.judge(ctx, j.who(who), a)
}

func (j *cedarJudge) judge(ctx context.Context, who *principal, a *ask) *Explanation {
	if who.fault != nil {
		return j.stamp(deny(ReasonClaims, Fault{What: who.fault.Error()}))
	}
	if a.unplaced && j.set.reads.backend {
		return j.stamp(deny(ReasonNoBackend))
	}
	arguments, err := j.arguments(a)
	if err != nil {
		return j.stamp(deny(ReasonArguments, Fault{What: err.Error()}))
	}
	kept := j.decisions
	if a.open {
		kept = j.listed
	}
	key, keep := keyOf(who, a, arguments)
	if keep {
		if e, ok := kept.get(key); ok {
			return e
		}
	}
	if c := j.set.options.Counters; c != nil {
		c.Evaluated.Add(1)
	}
	e := j.stamp(j.set.decide(ctx, who, a, arguments))
	if keep && len(e.Errors) == 0 { // errors name the principal, and another may have the same decision
		// A key that lives long must not hold on to the message that it came from.
		key.name, key.original = strings.Clone(key.name), strings.Clone(key.original)
		kept.put(key, e)
	}
	return e
}

func (j *cedarJudge) stamp(e *Explanation) *Explanation {
	e.Version = j.set.version
	return e
}

// arguments returns those that policies read. It is an error when policies would
// take one for what it is not.
func (j *cedarJudge) arguments(a *ask) (read []mcp.Member, err error) {
	r := &j.set.reads
	if a.open || len(a.arguments) == 0 || !r.allArguments && len(r.arguments) == 0 {
		return nil, nil
	}
	var room [64]byte
	var others map[string]struct{} // what those fold to that are read as part of the whole
	mcp.Each(a.arguments, func(name, value []byte) bool {
		said := mcp.Unquote(name)
		if _, named := r.arguments[string(said)]; !named {
			folded := mcp.AppendFold(room[:0], said)
			if wanted, like := r.folded[string(folded)]; like {
				err = fmt.Errorf("argument %.100q: a reader that ignores case takes it for %q, which policies read", said, wanted)
				return false
			}
			if !r.allArguments {
				return true
			}
			if _, twice := others[string(folded)]; twice {
				err = fmt.Errorf("argument %.100q: a reader that ignores case takes it for another", said)
				return false
			}
			if others == nil {
				others = map[string]struct{}{}
			}
			others[string(folded)] = struct{}{}
		}
		if bytes.HasSuffix(said, []byte(suffixPresent)) {
			err = fmt.Errorf("argument %.100q: what policies read by this name says that another argument is there", said)
			return false
		}
		if len(read) == maxValues {
			err = errTooManyValues
			return false
		}
		read = append(read, mcp.Member{Name: name, Value: value})
		return true
	})
	return read, err
}

// keyOf returns what a decision depends on, and whether it is worth keeping.
func keyOf(who *principal, a *ask, arguments []mcp.Member) (decision, bool) {
	d := decision{
		principal: who.digest, server: a.server, thing: a.thing.Thing, unplaced: a.unplaced, open: a.open,
		name: a.thing.Name, original: a.thing.Original, backend: a.thing.Backend, hints: hintBits(&a.thing),
	}
	if len(d.name)+len(d.original)+len(d.backend) > keptText {
		return d, false
	}
	if len(arguments) > 0 {
		size := 0
		for _, m := range arguments {
			size += len(m.Name) + len(m.Value)
		}
		if size > keptArguments {
			return d, false
		}
		h := sha256.New()
		for _, m := range arguments {
			write(h, string(m.Name), string(m.Value))
		}
		h.Sum(d.arguments[:0])
	}
	return d, true
}

func hintBits(t *edge.Target) (bits uint8) {
	for i, h := range []*bool{t.ReadOnly, t.Destructive, t.Idempotent, t.OpenWorld} {
		if h != nil {
			bits |= 1 << (2 * i)
			if *h {
				bits |= 2 << (2 * i)
			}
		}
	}
	return bits
}

// decide evaluates the policies that can say something of the request.
func (p *Policies) decide(ctx context.Context, who *principal, a *ask, arguments []mcp.Member) *Explanation {
	values, err := p.argumentAttributes(ctx, arguments, a.batch)
	if err != nil {
		return deny(ReasonArguments, Fault{What: err.Error()})
	}
	v := verbOf(a.thing.Thing)
	resource := p.resourceOf(a, v, values)
	w := &world{static: p.static.all, principal: &who.entity, resource: &resource}
	given := who.context
	if len(values) > 0 {
		m := given.Map()
		if m == nil {
			m = make(cedar.RecordMap, len(values))
		}
		maps.Copy(m, values)
		given = cedar.NewRecord(m)
	}
	action := p.actions[v.action]
	r := cedar.Request{Principal: who.entity.UID, Action: action.self, Resource: resource.UID, Context: given}
	thing := lineageOf(w, r.Resource)
	e := p.evaluate(w, r, &who.lineage, action, &thing, a.open)
	e.Action, e.Resource = `Action::"`+v.action+`"`, r.Resource.String()
	return e
}

// resourceOf makes the entity of the thing that is asked for. The set's own
// entity of that name adds parents and attributes; where both say something the
// request is believed, except for the hints, which are a backend's word against
// the operator's. Attributes that no policy reads are left out.
func (p *Policies) resourceOf(a *ask, v verb, arguments cedar.RecordMap) cedar.Entity {
	t := &a.thing
	uid := cedar.NewEntityUID(cedar.EntityType(v.kind), cedar.String(t.Name))
	static := p.static.all[uid]
	attributes := cedar.RecordMap{}
	say := func(name string, v cedar.Value) {
		if _, read := p.reads.names[name]; read {
			attributes[cedar.String(name)] = v
		}
	}
	hint := func(name string, b *bool) {
		if b != nil {
			say(name, cedar.Boolean(*b))
		}
	}
	hint("readOnlyHint", t.ReadOnly)
	hint("destructiveHint", t.Destructive)
	hint("idempotentHint", t.Idempotent)
	hint("openWorldHint", t.OpenWorld)
	maps.Insert(attributes, static.Attributes.All())
	maps.Copy(attributes, arguments)
	say("name", cedar.String(t.Name))
	say("operation", cedar.String(v.operation))
	say("feature", cedar.String(v.feature))
	say("backend", cedar.String(t.Backend))
	say("originalName", cedar.String(t.Original))
	if v.kind == typeResource {
		say("uri", cedar.String(t.Name))
	}
	parents := append(static.Parents.Slice(), cedar.NewEntityUID(typeServer, cedar.String(a.server)))
	if t.Backend != "" {
		parents = append(parents, cedar.NewEntityUID(typeBackend, cedar.String(t.Backend)))
	}
	return cedar.Entity{
		UID: uid, Parents: cedar.NewEntityUIDSet(parents...),
		Attributes: cedar.NewRecord(attributes), Tags: static.Tags,
	}
}

// argumentAttributes makes the attributes of arguments: arg_<name> is the
// value, and of what is no string, number or boolean arg_<name>_present says
// that it is there. batch is how many messages share what may be read.
func (p *Policies) argumentAttributes(ctx context.Context, arguments []mcp.Member, batch int) (cedar.RecordMap, error) {
	if len(arguments) == 0 {
		return nil, nil
	}
	c := newConverter()
	c.left, c.steps = c.left/max(1, batch), c.steps/max(1, batch)
	c.stop, c.exact, c.overlap = ctx.Err, true, p.reads.overlap
	attributes := make(cedar.RecordMap, len(arguments))
	var present []cedar.String
	for _, m := range arguments {
		said := string(mcp.Unquote(m.Name))
		value, err := c.text(m.Value)
		if err != nil {
			return nil, fmt.Errorf("argument %.100q: %w", said, err)
		}
		name := cedar.String(prefixArgument + said)
		attributes[name] = value
		if strings.IndexByte("[{n", m.Value[0]) >= 0 {
			present = append(present, name+suffixPresent)
		}
	}
	for _, name := range present {
		attributes[name] = cedar.True
	}
	return attributes, nil
}

type policySeq = iter.Seq2[cedar.PolicyID, *cedar.Policy]

// candidates are policies of a set, by number.
type candidates struct {
	set     *Policies
	numbers []int32
}

// All is what the policy language's evaluation goes through.
func (c candidates) All() policySeq {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, n := range c.numbers {
			if p := &c.set.policies[n]; !yield(p.id, p.compiled) {
				return
			}
		}
	}
}

// evaluate decides a request: allowed when a policy permits it, none forbids
// it, and none of those that could say something fails. While arguments are
// open, it is allowed unless every choice of them would be denied, as far as
// each policy can say for itself.
func (p *Policies) evaluate(g cedar.EntityGetter, r cedar.Request, principal, action, resource *lineage, open bool) *Explanation {
	var room [16]int32
	found := p.index.find(room[:0], principal, action, resource)
	var unsure []int32
	if open {
		known := found[:0]
		for _, n := range found {
			if p.policies[n].open != nil {
				unsure = append(unsure, n)
			} else {
				known = append(known, n)
			}
		}
		found = known
	}
	allow, d := cedar.Authorize(candidates{p, found}, g, r)
	e := &Explanation{Policies: ids(d.Reasons)}
	for _, f := range d.Errors {
		e.Errors = append(e.Errors, Fault{string(f.PolicyID), f.Message})
	}
	permitted := allow == cedar.Allow
	switch {
	case len(e.Errors) > 0:
		e.Reason = ReasonError
		return e
	case !permitted && len(d.Reasons) > 0:
		e.Reason = ReasonForbidden
		return e
	}
	for _, n := range unsure {
		one := &p.policies[n]
		o := one.open.outcome(g, r)
		switch {
		case o == isError:
			e.Errors, e.Reason = append(e.Errors, Fault{string(one.id), "fails whatever the arguments are"}), ReasonError
			return e
		case one.forbids && o&isFalse == 0:
			e.Policies, e.Reason = []string{string(one.id)}, ReasonForbidden
			return e
		case o != isFalse:
			e.Open = append(e.Open, string(one.id))
			permitted = permitted || !one.forbids && o&isTrue != 0
		}
	}
	e.Allowed = permitted
	switch {
	case !permitted:
		e.Reason = ReasonNoPermit
	case len(e.Open) > 0:
		e.Reason = ReasonOpen
	default:
		e.Reason = ReasonPermitted
	}
	return e
}

func ids(reasons []cedar.DiagnosticReason) []string {
	if len(reasons) == 0 {
		return nil
	}
	list := make([]string, len(reasons))
	for i, r := range reasons {
		list[i] = string(r.PolicyID)
	}
	slices.Sort(list)
	return list
}

func (j *cedarJudge) view(ctx context.Context, server string, who client) edge.View {
	return &cedarView{judge: j, server: server, who: j.who(who)}
}

// cedarView is what of lists a principal may see.
type cedarView struct {
	judge  *cedarJudge
	server string
	who    *principal
}

// Key is equal for principals that the policies cannot tell apart.
func (v *cedarView) Key() string {
	if v.who.fault != nil {
		return "authz:none"
	}
	return v.who.key
}

// Allows reports whether the item could be asked for with some arguments. What
// it says is kept for others, and does not hang on who asked first.
func (v *cedarView) Allows(item *edge.Item) bool {
	ctx := context.Background()
	a := ask{server: v.server, thing: *item, open: true}
	return verbOf(item.Thing) != (verb{}) && bothWays(&a, func(a *ask) *Explanation { return v.judge.judge(ctx, v.who, a) }).Allowed
}
