package authz

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	internalast "github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/weir-edge/weir/edge/near"
)

// facts are the attributes that are known to be there at a place of a policy,
// by the numbers that the policy's doubter gave them.
type facts [maxFacts / 64]uint64

// maxFacts is how many attributes of one policy are followed. Where a policy
// asks for more, nothing is said of the others. It keeps a walk linear.
const maxFacts = 256

// always are the facts of a place that is never reached.
func always() facts {
	var f facts
	for i := range f {
		f[i] = ^uint64(0)
	}
	return f
}

func (f facts) with(bit int) facts {
	f[bit/64] |= 1 << (bit % 64)
	return f
}

func (f facts) has(bit int) bool { return f[bit/64]&(1<<(bit%64)) != 0 }

// either is known whichever of two ways was taken.
func (f facts) either(g facts) facts {
	for i := range f {
		f[i] &= g[i]
	}
	return f
}

// place says what an expression is to its policy.
type place struct {
	sure bool // the policy applies to nothing for which this is not evaluated
	must bool // the policy applies to nothing for which this is not true
}

// expression walks an expression at a place where some attributes are known to
// be there, and returns what is known after it came out true and after it came
// out false. Cedar evaluates `&&`, `||` and `if` from the left, and of the rest
// no more than it needs.
func (d *doubter) expression(n internalast.IsNode, known facts, p place) (yes, no facts) {
	inner := place{sure: p.sure}
	switch n := n.(type) {
	case internalast.NodeTypeAnd:
		leftYes, leftNo := d.expression(n.Left, known, p)
		rightYes, rightNo := d.expression(n.Right, leftYes, place{sure: p.must, must: p.must})
		return rightYes, leftNo.either(rightNo)
	case internalast.NodeTypeOr:
		leftYes, leftNo := d.expression(n.Left, known, inner)
		rightYes, rightNo := d.expression(n.Right, leftNo, place{})
		return leftYes.either(rightYes), rightNo
	case internalast.NodeTypeNot:
		yes, no = d.expression(n.Arg, known, inner)
		return no, yes
	case internalast.NodeTypeIfThenElse:
		then, otherwise := d.expression(n.If, known, inner)
		thenYes, thenNo := d.expression(n.Then, then, place{})
		elseYes, elseNo := d.expression(n.Else, otherwise, place{})
		return thenYes.either(elseYes), thenNo.either(elseNo)
	case internalast.NodeTypeEquals:
		for _, pair := range [][2]internalast.IsNode{{n.Left, n.Right}, {n.Right, n.Left}} {
			if v, ok := pair[1].(internalast.NodeValue); ok {
				return d.equalTo(pair[0], v, known, p)
			}
		}
	case internalast.NodeTypeIn:
		d.within(n, known, p)
		return known, known
	case internalast.NodeTypeIs:
		d.is(nameOf(n.Left), n.EntityType, p.must)
	case internalast.NodeTypeIsIn:
		d.is(nameOf(n.Left), n.EntityType, p.must)
		d.expression(n.Left, known, inner)
		if v, ok := n.Entity.(internalast.NodeValue); ok {
			d.value(v.Value, p.must)
		} else {
			d.expression(n.Entity, known, place{})
		}
		return known, known
	case internalast.NodeTypeHas:
		if variable := nameOf(n.Arg); variable != "" {
			return d.asks(variable, string(n.Value), known, p), known
		}
	case internalast.NodeTypeAccess:
		if variable := nameOf(n.Arg); variable != "" {
			d.read(variable, string(n.Value), known, p)
			return known, known
		}
	case internalast.NodeValue:
		d.value(n.Value, p.must)
		if n.Value == cedar.True {
			return known, always()
		}
		if n.Value == cedar.False {
			return always(), known
		}
		return known, known
	}
	for _, one := range children(n) {
		d.expression(one, known, inner)
	}
	return known, known
}

// equalTo walks a comparison with a value.
func (d *doubter) equalTo(n internalast.IsNode, v internalast.NodeValue, known facts, p place) (yes, no facts) {
	if uid, ok := v.Value.(cedar.EntityUID); ok {
		d.equals(nameOf(n), uid, p.must)
	} else {
		d.value(v.Value, false)
	}
	truth, no := d.expression(n, known, place{sure: p.sure, must: p.must && v.Value == cedar.True})
	switch v.Value {
	case cedar.True:
		return truth, no
	case cedar.False:
		return no, truth
	}
	return known, known
}

// within walks a test with "in": of one entity, or of a set of which one will
// do.
func (d *doubter) within(n internalast.NodeTypeIn, known facts, p place) {
	d.expression(n.Left, known, place{sure: p.sure})
	switch right := n.Right.(type) {
	case internalast.NodeValue:
		d.value(right.Value, p.must)
	case internalast.NodeTypeSet:
		var entities []cedar.EntityUID
		for _, one := range right.Elements {
			v, ok := one.(internalast.NodeValue)
			uid, is := v.Value.(cedar.EntityUID)
			if !ok || !is {
				d.expression(n.Right, known, place{sure: p.sure})
				return
			}
			entities = append(entities, uid)
		}
		d.oneOf(entities, p.must)
	default:
		d.expression(n.Right, known, place{sure: p.sure})
	}
}

// value judges the entities in a value.
func (d *doubter) value(v cedar.Value, must bool) {
	switch v := v.(type) {
	case cedar.EntityUID:
		d.entity(v, must)
	case cedar.Set:
		var entities []cedar.EntityUID
		for one := range v.All() {
			if uid, ok := one.(cedar.EntityUID); ok {
				entities = append(entities, uid)
			} else {
				d.value(one, false)
				must = false
			}
		}
		d.oneOf(entities, must)
	case cedar.Record:
		for one := range v.Values() {
			d.value(one, false)
		}
	}
}

// nameOf returns the name of a variable, "" for any other expression.
func nameOf(n internalast.IsNode) string {
	v, _ := n.(internalast.NodeTypeVariable)
	return string(v.Name)
}

// children returns the expressions that an expression is made of.
func children(n internalast.IsNode) (list []internalast.IsNode) {
	first := true
	internalast.Inspect(internalast.NewNode(n), func(one internalast.IsNode) bool {
		if first {
			first = false
			return true
		}
		list = append(list, one)
		return false
	})
	return list
}

// factOf names what is known once a variable has an attribute. Claims are
// attributes of principal and members of context alike, and arguments of
// resource and of context.
func factOf(variable, name string) string {
	if given(name) {
		return name
	}
	return variable + "." + name
}

// given reports whether a message, a token or a program chooses whether an
// attribute is there.
func given(name string) bool {
	return strings.HasPrefix(name, prefixArgument) || strings.HasPrefix(name, prefixAttribute) || strings.HasPrefix(name, prefixClaim) || strings.HasPrefix(name, prefixClaimSet)
}

// asks notes that a policy asks for an attribute, and returns what is known
// where it is there.
func (d *doubter) asks(variable, name string, known facts, p place) facts {
	d.attribute(variable, name, p.must, never)
	for _, fact := range []string{name, strings.TrimSuffix(name, suffixPresent)} {
		fact = factOf(variable, fact)
		bit, numbered := d.bits[fact]
		if !numbered && len(d.bits) < maxFacts {
			bit, numbered = len(d.bits), true
			d.bits[fact] = bit
		}
		if numbered {
			known = known.with(bit)
		}
	}
	return known
}

// read judges an attribute that a policy reads where some are known to be
// there. The subject is there whatever the token says.
func (d *doubter) read(variable, name string, known facts, p place) {
	if known == always() {
		return
	}
	fact := factOf(variable, name)
	if bit, asked := d.bits[fact]; asked && known.has(bit) || !asked && len(d.bits) == maxFacts {
		return
	}
	if !d.attribute(variable, name, p.sure, fails) || !given(name) || d.own(variable, name) || name == prefixClaim+"sub" {
		return
	}
	lacks := "a token without the claim "
	rest, argument := strings.CutPrefix(name, prefixArgument)
	said, attribute := strings.CutPrefix(name, prefixAttribute)
	switch {
	case argument:
		lacks = "a call without the argument "
	case attribute:
		lacks, rest = "a client without the attribute ", said
	default:
		rest = strings.TrimPrefix(strings.TrimPrefix(rest, prefixClaimSet), prefixClaim)
	}
	reading, asked := member(variable, name), variable+" has "+quoted(name)
	d.say("read "+fact, false, "reads %s, which need not be there: %s%s makes the policy fail, and is denied whatever others permit: write `%s && %s …`",
		briefly(reading), lacks, briefly(rest), briefly(asked), briefly(reading))
}

// member writes an attribute of a variable as policies do.
func member(variable, name string) string {
	if identifier.MatchString(name) {
		return variable + "." + name
	}
	return variable + "[" + quoted(name) + "]"
}

// quoted writes the name of an attribute as it stands after "has".
func quoted(name string) string {
	if identifier.MatchString(name) {
		return name
	}
	return string(cedar.String(name).MarshalCedar())
}

// own reports whether an entity of the set's own has an attribute of that name.
func (d *doubter) own(variable, name string) bool {
	return variable != "context" && d.words.attributes[name]
}

// attribute judges the name of an attribute, and reports whether it exists. The
// consequence is that of a grave doubt.
func (d *doubter) attribute(variable, name string, grave bool, consequence string) bool {
	if d.own(variable, name) {
		return true
	}
	claim := strings.HasPrefix(name, prefixClaim)
	set, isSet := strings.CutPrefix(name, prefixClaimSet)
	argument := strings.HasPrefix(name, prefixArgument)
	attribute := strings.HasPrefix(name, prefixAttribute)
	closed := slices.Contains(resourceAttributes(), name)
	switch variable {
	case "principal":
		if claim || attribute {
			return true
		}
	case "resource":
		if argument || closed {
			return true
		}
	case "context":
		if claim || argument {
			return true
		}
	}
	if !d.news(variable+"."+name, grave) {
		return false
	}
	about := variable + " has no attribute " + briefly(name)
	hint := ""
	switch {
	case isSet && variable != "resource" && variable != "action":
		if slices.Contains(d.words.multi, set) {
			return true
		}
		hint = ": name the claim in multi_valued_claims to have it as a set"
	case claim:
		hint = ": a claim is " + briefly(member("principal", name))
	case argument:
		hint = ": an argument is " + briefly(member("context", name))
	case attribute && variable != "action":
		hint = ": what filters say of a client is " + briefly(member("principal", name))
	case closed:
		hint = ": that is " + member("resource", name)
	case variable == "action":
		hint = ": actions have none"
	case variable == "resource":
		hint = d.likely(name, resourceAttributes(), "", "")
		if word, _ := near.Hint(name, resourceAttributes()); word == "" {
			hint = ": it has " + strings.Join(resourceAttributes(), ", ") + "; arguments of a call are " + briefly(member("context", prefixArgument+name))
		}
	case variable == "principal":
		hint = ": a claim is " + briefly(member("principal", prefixClaim+plainName(name)))
	default:
		hint = ": an argument is " + briefly(member("context", prefixArgument+plainName(name))) + ", a claim " + briefly(member("context", prefixClaim+plainName(name)))
	}
	d.say(variable+"."+name, grave, "%s", about+hint)
	if grave {
		doubt := &d.found[d.at[variable+"."+name]]
		doubt.Text = consequence + about + hint
	}
	return false
}

// plainName is a name without a prefix that resembles the one of a claim or an
// argument: dept of claims_dept and of Claim-dept.
func plainName(name string) string {
	before, after, ok := strings.Cut(strings.ReplaceAll(name, "-", "_"), "_")
	if _, like := near.Word(before, []string{"claim", "arg"}); ok && like {
		return after
	}
	return name
}
