package outgoing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
)

// Bounds of what is worked out of a user's claims.
const (
	matcherCost    = 100_000 // of one evaluation, as CEL counts it
	matcherChecks  = 100     // steps of a comprehension between two looks at the time
	maxMatcher     = 8 << 10 // bytes
	cutSessionName = 55      // characters; with its digest a name has 64 (AssumeRoleWithWebIdentity, RoleSessionName)
)

// roles choose the role that a user takes on at a cloud.
type roles struct {
	claim    string // that a rule without matcher reads
	rules    []rule // in the order in which they are asked
	fallback string // "" for none
}

// rule is one mapping: to a role, by a value of the claim or by an expression.
type rule struct {
	role, value, matcher string
	priority             *int64 // nil comes last
	program              cel.Program
}

// mapping is a rule as either kind of manifest has it.
type mapping struct {
	role, claim, matcher string
	priority             *int64
}

// parseRoles reads the mappings of a cloudSts section, path.
func (r *reader) parseRoles(path *field.Path, claim, fallback string, all []mapping) roles {
	out := roles{claim: cmp.Or(claim, "groups"), fallback: fallback}
	if fallback == "" && len(all) == 0 {
		r.add(field.Required(path.Child("fallbackRoleArn"), "one of fallbackRoleArn and roleMappings must be set"))
	}
	var env *cel.Env
	for i, m := range all {
		path := path.Child("roleMappings").Index(i)
		one := rule{role: m.role, value: m.claim, matcher: m.matcher, priority: m.priority}
		switch {
		case m.role == "":
			r.required(path.Child("roleArn"))
		case m.claim == "" && m.matcher == "":
			r.add(field.Required(path.Child("claim"), "one of claim and matcher must be set"))
		case m.claim != "" && m.matcher != "":
			r.add(field.Forbidden(path.Child("matcher"), "exclusive with claim"))
		case m.matcher != "":
			var err error
			if env == nil {
				env, err = newMatchers()
			}
			if err == nil {
				one.program, err = newMatcher(env, m.matcher)
			}
			if err != nil {
				r.add(field.Invalid(path.Child("matcher"), m.matcher, err.Error()))
			}
		}
		out.rules = append(out.rules, one)
	}
	slices.SortStableFunc(out.rules, func(a, b rule) int {
		switch {
		case a.priority == nil && b.priority == nil:
			return 0
		case a.priority == nil:
			return 1
		case b.priority == nil:
			return -1
		}
		return cmp.Compare(*a.priority, *b.priority)
	})
	return out
}

// newMatchers returns what expressions over the map claims are compiled with.
func newMatchers() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("claims", cel.MapType(cel.StringType, cel.DynType)), cel.CustomTypeAdapter(adapter{types.DefaultTypeAdapter}))
}

// newMatcher compiles an expression, and the regular expressions in it. Its errors say where in it they are.
func newMatcher(env *cel.Env, text string) (cel.Program, error) {
	if len(text) > maxMatcher {
		return nil, fmt.Errorf("must have at most %d bytes", maxMatcher)
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		var all []string
		for _, e := range issues.Errors() {
			all = append(all, fmt.Sprintf("line %d, column %d: %s", e.Location.Line(), e.Location.Column()+1, e.Message))
		}
		return nil, fmt.Errorf("must be a CEL expression: %s", strings.Join(all, "; "))
	}
	if out := ast.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("must be an expression of type bool, not %s", out)
	}
	return env.Program(ast, cel.OptimizeRegex(interpreter.MatchesRegexOptimization), cel.CostLimit(matcherCost), cel.CostTracking(texts{}), cel.InterruptCheckFrequency(matcherChecks))
}

// texts counts what a function of an expression costs by the texts that it reads and makes.
// Where types are known to nobody before, as those of claims, CEL counts any call as 1,
// and 300 texts of 1 MiB are put together for 300.
type texts struct{}

func (texts) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	if function == overloads.Matches {
		return nil // its text is counted, and its pattern
	}
	bytes, items := 0, 1
	for _, v := range append(slices.Clip(args), result) {
		switch v := v.(type) {
		case types.String:
			bytes += len(v)
		case types.Bytes:
			bytes += len(v)
		case traits.Lister:
			if n, ok := v.Size().(types.Int); ok && function == operators.In {
				items += int(n)
			}
		}
	}
	cost := uint64(items + bytes/10)
	return &cost
}

// adapter makes values of CEL out of claims, whose numbers are texts.
type adapter struct{ types.Adapter }

func (a adapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return types.Int(i)
		}
		f, err := v.Float64()
		if err != nil {
			return types.NewErr("a number is out of range")
		}
		return types.Double(f)
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	}
	return a.Adapter.NativeToValue(v)
}

// of returns the role of a user, by the claims of its token. The error is an *edge.Error of
// kind Denied: no rule matches, or one cannot say.
func (r *roles) of(ctx context.Context, claims map[string]any) (string, error) {
	for i := range r.rules {
		one := &r.rules[i]
		if one.program == nil {
			if member(claims[r.claim], one.value) {
				return one.role, nil
			}
			continue
		}
		ok, err := one.matches(ctx, claims)
		if err != nil {
			return "", fault(edge.Denied, true, fmt.Errorf("outgoing: the matcher of role %s: %w", one.role, err))
		}
		if ok {
			return one.role, nil
		}
	}
	if r.fallback == "" {
		return "", fault(edge.Denied, true, errors.New("outgoing: no role mapping matches the user, and there is no fallbackRoleArn"))
	}
	return r.fallback, nil
}

// member reports whether a claim is a value, or a list with it.
func member(claim any, value string) bool {
	switch claim := claim.(type) {
	case string:
		return claim == value
	case []any:
		return slices.ContainsFunc(claim, func(one any) bool { return one == value })
	}
	return false
}

// matches evaluates the expression of a rule. A key that the claims lack is no match;
// errors hold no claim.
func (r *rule) matches(ctx context.Context, claims map[string]any) (bool, error) {
	if claims == nil {
		claims = map[string]any{}
	}
	v, _, err := r.program.ContextEval(ctx, map[string]any{"claims": claims})
	var over interpreter.EvalCancelledError
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "no such key: "):
		return false, nil
	case errors.As(err, &over) && over.Cause == interpreter.CostLimitExceeded:
		return false, fmt.Errorf("it costs more than %d", matcherCost)
	case err != nil && ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		return false, errors.New("it has no value for these claims")
	}
	is, ok := v.Value().(bool)
	if !ok {
		return false, fmt.Errorf("its value is of type %s, not bool", v.Type().TypeName())
	}
	return is, nil
}

// sessionName is the name of a role's session, made of a claim: what it may not hold is
// replaced, and whatever was changed or cut has a digest behind it, so that no two users
// have one name.
func sessionName(claim string) string {
	changed := false
	name := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.ContainsRune("_+=,.@-", c):
			return c
		}
		changed = true
		return '-'
	}, claim)
	if len(name) > cutSessionName {
		name, changed = name[:cutSessionName], true
	}
	if changed || len(name) < 2 || digested(name) { // 2 is the least that a name may have
		sum := sha256.Sum256([]byte(claim))
		name += "-" + hex.EncodeToString(sum[:4])
	}
	return name
}

// digested reports whether a name ends as one with a digest does: as it is it might be the
// name of another claim.
func digested(name string) bool {
	at := len(name) - 9
	return at >= 0 && name[at] == '-' && strings.Trim(name[at+1:], "0123456789abcdef") == ""
}
