package authz

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
)

// Policies is a policy set, compiled. It is immutable.
type Policies struct {
	policies []policy
	static   *entities
	index    branch
	actions  map[string]*lineage
	reads    reads
	groups   []string // claims of groups, the first that a token has counts
	roles    string   // "" for none
	group    cedar.EntityType
	multi    []string
	provider string
	version  string // of what is decided by: equal for equal sets
	options  Options
}

// policy is one policy of a set.
type policy struct {
	id       cedar.PolicyID // as told to people: unique in the set
	text     int            // the number of the string that it is written in
	compiled *cedar.Policy
	forbids  bool
	open     tree // what is left of it when arguments are not known; nil when it reads none
}

// The types of entities that requests are made of. Groups cannot have one of
// them.
const (
	typeClient   = "Client"
	typeAction   = "Action"
	typeTool     = "Tool"
	typePrompt   = "Prompt"
	typeResource = "Resource"
	typeFeature  = "FeatureType"
	typeServer   = "MCP"
	typeBackend  = "Backend"
)

func builtInTypes() []string {
	return []string{typeClient, typeAction, typeTool, typePrompt, typeResource, typeFeature, typeServer, typeBackend}
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Parse compiles a policy set. It is pure, and returns everything that it finds
// wrong; at is the field that holds the set, and names of its members are those
// of VirtualMCPServer, spec.config.incomingAuth.authz. An empty set is none:
// it would deny everything, and is more likely a file that lost its content.
func Parse(spec Spec, at *field.Path) (*Policies, field.ErrorList) {
	p, errs := readSet(spec, at)
	if len(errs) > 0 {
		return nil, errs
	}
	p.version = versionOf(spec)
	p.reads = readsOf(p.policies, p.static)
	p.actions = map[string]*lineage{}
	for _, thing := range []edge.Thing{edge.Tool, edge.Prompt, edge.Resource} {
		name := verbOf(thing).action
		l := lineageOf(p.static.all, cedar.NewEntityUID(typeAction, cedar.String(name)))
		p.actions[name] = &l
	}
	for i := range p.policies {
		p.index.add(p.policies[i].compiled.AST(), int32(i))
		if p.reads.argumentsOf[i] {
			p.policies[i].open = openTree(p.policies[i].compiled)
		}
	}
	return p, nil
}

// readSet parses policies and entities. Beside what is wrong it returns what is
// not; entities that are wrong are nil.
func readSet(spec Spec, at *field.Path) (*Policies, field.ErrorList) {
	p := &Policies{
		roles:    spec.RoleClaimName,
		group:    cedar.EntityType(spec.GroupEntityType),
		multi:    spec.MultiValuedClaims,
		provider: spec.PrimaryUpstreamProvider,
	}
	if spec.GroupClaimName != "" {
		p.groups = append(p.groups, spec.GroupClaimName)
	}
	p.groups = append(p.groups, "groups", "roles", "cognito:groups")
	if p.group == "" {
		p.group = DefaultGroupEntityType
	}

	var errs field.ErrorList
	if e := checkGroupType(string(p.group), at.Child("groupEntityType")); e != nil {
		errs = append(errs, e)
	}
	errs = append(errs, p.parsePolicies(spec.Policies, at.Child("policies"))...)
	static, err := parseEntities(spec.EntitiesJSON)
	if err != nil {
		errs = append(errs, field.Invalid(at.Child("entitiesJson"), "", err.Error()))
		static = nil
	}
	p.static = static
	return p, errs
}

// versionLen is how many hex digits name a policy set.
const versionLen = 12

// versionOf names a policy set by all that is in it.
func versionOf(spec Spec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // strings are always JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:versionLen]
}

func checkGroupType(name string, at *field.Path) *field.Error {
	switch {
	case !identifier.MatchString(name) || len(name) > 63:
		return field.Invalid(at, name, "must be a letter or _, then letters, digits and _, at most 63")
	case slices.Contains(builtInTypes(), name):
		return field.Invalid(at, name, "is the type of other entities")
	}
	var probe cedar.Policy
	if probe.UnmarshalCedar([]byte("permit(principal in "+name+`::"",action,resource);`)) != nil {
		return field.Invalid(at, name, "is a word of the policy language")
	}
	return nil
}

// parsePolicies reads the policy texts. A policy is known by its annotation @id
// where no other has the same, else by the number of its text, policy<n>, and
// where a text holds several by policy<n>.<m>.
func (p *Policies) parsePolicies(texts []string, at *field.Path) (errs field.ErrorList) {
	size, count := 0, 0
	for _, text := range texts {
		size += len(text)
	}
	if size > maxPolicyText {
		return field.ErrorList{field.TooLong(at, "", maxPolicyText)}
	}
	refused := make([]bool, len(texts))
	for i, text := range texts {
		n, err := bounded(text)
		if err != nil {
			refused[i], errs = true, append(errs, field.Invalid(at.Index(i), "", err.Error()))
		}
		count += n
	}
	if count > maxPolicies {
		return append(errs, field.TooMany(at, count, maxPolicies))
	}
	for i, text := range texts {
		if refused[i] {
			continue
		}
		at := at.Index(i)
		list, err := policiesOf(text)
		if err != nil {
			errs = append(errs, field.Invalid(at, "", fmt.Sprintf("policy %d: %v", len(list), err)))
			continue
		}
		if len(list) == 0 {
			errs = append(errs, field.Invalid(at, "", "holds no policy"))
		}
		for j, one := range list {
			id := cedar.PolicyID("policy" + strconv.Itoa(i))
			if len(list) > 1 {
				id += cedar.PolicyID("." + strconv.Itoa(j))
			}
			p.policies = append(p.policies, policy{id: id, text: i, compiled: one, forbids: one.Effect() == cedar.Forbid})
		}
	}
	if len(errs) == 0 && len(p.policies) == 0 {
		return append(errs, field.Required(at, "at least one policy: a set without any denies everything"))
	}
	p.name()
	return errs
}

// policiesOf parses a text. With an error it returns the policies before the
// one that does not parse.
func policiesOf(text string) ([]*cedar.Policy, error) {
	var list []*cedar.Policy
	for d := cedar.NewDecoder(strings.NewReader(text)); ; {
		one := new(cedar.Policy)
		if err := d.Decode(one); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return list, err
		}
		list = append(list, one)
	}
}

// name gives policies the names that their authors gave them.
func (p *Policies) name() {
	names := map[cedar.PolicyID]int{}
	for _, one := range p.policies {
		names[one.id]++
		if id := one.compiled.Annotations()["id"]; id != "" {
			names[cedar.PolicyID(id)]++
		}
	}
	for i := range p.policies {
		if id := cedar.PolicyID(p.policies[i].compiled.Annotations()["id"]); id != "" && names[id] == 1 {
			p.policies[i].id = id
		}
	}
}

// Len returns how many policies the set has.
func (p *Policies) Len() int { return len(p.policies) }

// With returns a copy of the set that opens with the options.
func (p *Policies) With(o Options) Engine {
	c := *p
	c.options = o
	return &c
}

// Open returns the filter of the set.
func (p *Policies) Open(env edge.Env) (edge.Filter, error) {
	return newFilter(newCedarJudge(p), env, p.options), nil
}
