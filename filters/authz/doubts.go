package authz

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	internalast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/near"
)

// Doubt is a place of a policy that its author can hardly mean.
type Doubt struct {
	Field string // that holds the policy
	Never bool   // the policy applies to nothing because of it
	Text  string // what is wrong and what to write
}

// maxDoubts is how many doubts of a set are told.
const maxDoubts = 100

// Judge returns everything that is wrong with a policy set and what is doubtful
// about those of its policies that parse.
func Judge(spec Spec, at *field.Path) ([]Doubt, field.ErrorList) {
	p, errs := readSet(spec, at)
	if p.static == nil {
		return nil, errs // what exists is not known
	}
	return p.Doubts(at), errs
}

// Doubts returns what policies say of actions, types of entities and attributes
// that do not exist, and where they read a claim or an argument without asking
// whether it is there. at is the field that holds the set. What the set's own
// entities name exists.
//
// Each policy is walked once, and each thing is said once of a policy. Of many
// doubts the first maxDoubts are returned.
func (p *Policies) Doubts(at *field.Path) []Doubt {
	w := vocabularyOf(p)
	var all []Doubt
	for i := range p.policies {
		one := &p.policies[i]
		d := doubter{words: w, at: map[string]int{}, bits: map[string]int{}}
		d.policy(one.compiled.AST())
		place := one.compiled.Position()
		for _, found := range d.found {
			if len(all) == maxDoubts {
				return all
			}
			found.Field = at.Child("policies").Index(one.text).String()
			found.Text = fmt.Sprintf("policy %.100s, line %d, column %d: %s", one.id, place.Line, place.Column, found.Text)
			all = append(all, found)
		}
	}
	return all
}

// vocabulary is what policies of a set may speak of.
type vocabulary struct {
	types      map[cedar.EntityType]bool // true for those of the set's own entities
	actions    map[string]bool           // likewise
	attributes map[string]bool           // of the set's own entities
	group      cedar.EntityType
	multi      []string
}

func vocabularyOf(p *Policies) *vocabulary {
	w := &vocabulary{
		types: map[cedar.EntityType]bool{p.group: false}, actions: map[string]bool{}, attributes: map[string]bool{},
		group: p.group, multi: p.multi,
	}
	for _, t := range builtInTypes() {
		w.types[cedar.EntityType(t)] = false
	}
	for _, name := range slices.Concat(judgedActions(), listActions()) {
		w.actions[name] = false
	}
	note := func(uid cedar.EntityUID) {
		w.types[uid.Type] = true
		if uid.Type == typeAction {
			w.actions[string(uid.ID)] = true
		}
	}
	for uid, e := range p.static.all {
		note(uid)
		for name := range e.Attributes.Keys() {
			w.attributes[string(name)] = true
		}
	}
	for uid := range p.static.mentioned {
		note(uid)
	}
	return w
}

// judgedActions are those that messages are judged by.
func judgedActions() []string { return []string{"call_tool", "get_prompt", "read_resource"} }

// listActions are those that lists have elsewhere. Here every list is admitted.
func listActions() []string { return []string{"list_tools", "list_prompts", "list_resources"} }

// resourceAttributes are those that the edge gives to what is asked for, those
// of arguments aside.
func resourceAttributes() []string {
	return []string{"name", "originalName", "backend", "feature", "operation", "uri", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
}

// doubter walks one policy.
type doubter struct {
	words *vocabulary
	found []Doubt
	at    map[string]int // what was said already, by what it is about
	bits  map[string]int // the number of each attribute that the policy asks for
}

// What becomes of a policy.
const (
	never = "applies to nothing: "
	fails = "fails where it is evaluated, which denies whatever others permit: "
)

// news reports whether a doubt about something is still to be noted. Of two
// about the same thing the graver one stays.
func (d *doubter) news(about string, grave bool) bool {
	i, said := d.at[about]
	return !said && len(d.found) < maxDoubts || said && grave && !d.found[i].Never
}

// say notes a doubt.
func (d *doubter) say(about string, grave bool, format string, args ...any) {
	if !d.news(about, grave) {
		return
	}
	doubt := Doubt{Never: grave, Text: fmt.Sprintf(format, args...)}
	if grave {
		doubt.Text = never + doubt.Text
	}
	if i, said := d.at[about]; said {
		d.found[i] = doubt
		return
	}
	d.at[about] = len(d.found)
	d.found = append(d.found, doubt)
}

// policy walks the scope, then the conditions in the order in which they are
// evaluated: each of them knows what those before it asked for.
func (d *doubter) policy(p *ast.Policy) {
	for _, scope := range []struct {
		variable string
		node     internalast.IsScopeNode
	}{{"principal", p.Principal}, {"action", p.Action}, {"resource", p.Resource}} {
		switch s := scope.node.(type) {
		case internalast.ScopeTypeEq:
			d.equals(scope.variable, s.Entity, true)
		case internalast.ScopeTypeIn:
			d.entity(s.Entity, true)
		case internalast.ScopeTypeIs:
			d.is(scope.variable, s.Type, true)
		case internalast.ScopeTypeIsIn:
			d.is(scope.variable, s.Type, true)
			d.entity(s.Entity, true)
		case internalast.ScopeTypeInSet:
			d.oneOf(s.Entities, true)
		}
	}
	var known facts
	for _, c := range p.Conditions {
		when := c.Condition == internalast.ConditionWhen
		yes, no := d.expression(c.Body, known, place{sure: true, must: when})
		if known = no; when {
			known = yes
		}
	}
}

// oneOf judges the entities of a set of which one has to be met. Where none of
// them exists nothing meets it.
func (d *doubter) oneOf(entities []cedar.EntityUID, must bool) {
	must = must && len(entities) > 0 && !slices.ContainsFunc(entities, d.exists)
	for _, uid := range entities {
		d.entity(uid, must)
	}
}

// exists reports whether an entity may be part of a request.
func (d *doubter) exists(uid cedar.EntityUID) bool {
	if uid.Type == typeAction {
		_, ok := d.words.actions[string(uid.ID)]
		return ok
	}
	_, ok := d.words.types[uid.Type]
	return ok
}

// entity judges an entity that is written in a policy.
func (d *doubter) entity(uid cedar.EntityUID, must bool) {
	id := string(uid.ID)
	switch {
	case uid.Type != typeAction:
		d.entityType(uid.Type, must)
	case slices.Contains(listActions(), id) && !d.words.actions[id]:
		d.say(uid.String(), false, `%s decides nothing here: every list is admitted, and shows what Action::"call_tool", Action::"get_prompt" or Action::"read_resource" would be allowed`, uid)
	case !d.exists(uid) && d.news(uid.String(), must):
		d.say(uid.String(), must, "there is no %s%s", briefly(uid.String()), d.likely(id, d.actionNames(), `Action::"`, `"`))
	}
}

// maxNames is how many names of the set's own are compared with one that is
// unknown.
const maxNames = 200

// actionNames are the actions that may be meant.
func (d *doubter) actionNames() []string {
	names := judgedActions()
	if len(d.words.actions) > maxNames {
		return names
	}
	for name, own := range d.words.actions {
		if own && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (d *doubter) entityType(t cedar.EntityType, must bool) {
	if _, known := d.words.types[t]; known || !d.news(string(t), must) {
		return
	}
	about := "there is no type " + briefly(string(t))
	if t == DefaultGroupEntityType {
		d.say(string(t), must, "%s: groupEntityType says that groups are %s here", about, d.words.group)
		return
	}
	switch t {
	case "User", "Principal", "Subject":
		d.say(string(t), must, "%s, it is called %s here", about, typeClient)
		return
	case "Group", "Role":
		d.say(string(t), must, "%s, it is called %s here", about, d.words.group)
		return
	case "Server":
		d.say(string(t), must, "%s, it is called %s here", about, typeServer)
		return
	}
	names := append(builtInTypes(), string(d.words.group))
	if len(d.words.types) <= maxNames {
		for name, own := range d.words.types {
			if own && !slices.Contains(names, string(name)) {
				names = append(names, string(name))
			}
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == typeFeature })
	d.say(string(t), must, "%s%s", about, d.likely(string(t), names, "", ""))
}

// likely ends a message about a name that is none of names.
func (d *doubter) likely(name string, names []string, before, after string) string {
	slices.Sort(names)
	if word, hint := near.Hint(name, names); word != "" {
		return ", " + strings.Replace(hint, word, before+briefly(word)+after, 1)
	}
	if len(names) > 12 {
		names = append(names[:12:12], "…")
	}
	return ": there is " + briefly(strings.Join(names, ", "))
}

// is judges a test of what a variable is. A principal is always a client, and
// what is asked for a tool, a prompt or a resource: of what they are in, a
// policy asks by "in".
func (d *doubter) is(variable string, t cedar.EntityType, must bool) {
	_, known := d.words.types[t]
	if !known || d.possible(variable, t) {
		d.entityType(t, must)
		return
	}
	d.say(variable+" is "+string(t), must, "%s", d.impossible(variable, t, string(t)+`::"…"`))
}

func (d *doubter) equals(variable string, uid cedar.EntityUID, must bool) {
	if !d.exists(uid) || d.possible(variable, uid.Type) {
		d.entity(uid, must)
		return
	}
	d.say(variable+" == "+uid.String(), must, "%s", d.impossible(variable, uid.Type, briefly(uid.String())))
}

// impossible words that a variable is never an entity of a type.
func (d *doubter) impossible(variable string, t cedar.EntityType, whole string) string {
	kinds, in := "always a Client", t == d.words.group
	switch variable {
	case "action":
		kinds, in = "always an Action", false
	case "resource":
		kinds, in = "a Tool, a Prompt or a Resource", t == typeServer || t == typeBackend
	}
	text := fmt.Sprintf("%s is %s, never a %s", variable, kinds, briefly(string(t)))
	if in {
		text += fmt.Sprintf(": write `%s in %s`", variable, whole)
	}
	return text
}

// possible reports whether a variable may be an entity of a type that exists.
// Of what an operator's entities name nothing is said.
func (d *doubter) possible(variable string, t cedar.EntityType) bool {
	if own := d.words.types[t]; own && !slices.Contains(builtInTypes(), string(t)) && t != d.words.group {
		return true
	}
	switch variable {
	case "principal":
		return t == typeClient
	case "action":
		return t == typeAction
	case "resource":
		return t == typeTool || t == typePrompt || t == typeResource || t == typeFeature
	}
	return true
}

// briefly cuts a name of a policy to what fits into a message.
func briefly(s string) string {
	const most = 200
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
