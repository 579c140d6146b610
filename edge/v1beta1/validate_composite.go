package v1beta1

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What a workflow may hold. The documents bound the iterations of a forEach;
// the other bounds are those that the executor works with.
const (
	maxSteps         = 100
	maxRetries       = 10
	maxScript        = 64 << 10  // bytes
	maxSchema        = 100 << 10 // bytes of an elicitation's schema
	maxSchemaDepth   = 10
	maxOutputDepth   = 10
	maxCompositeName = 128
	maxStepID        = 128
)

// Validate returns everything that is wrong with the object alone.
func (o *VirtualMCPCompositeToolDefinition) Validate() field.ErrorList {
	f := judged(o)
	f.compositeTool(field.NewPath("spec"), &o.Spec.CompositeTool)
	return f.list
}

// compositeTools judges the workflows of one server: no name twice.
func (f *faults) compositeTools(p *field.Path, tools []CompositeTool) {
	f.distinct(p, "name", len(tools), func(i int) string { return tools[i].Name })
	for i := range tools {
		f.compositeTool(p.Index(i), &tools[i])
	}
}

func (f *faults) compositeTool(p *field.Path, t *CompositeTool) {
	// 1. The tool that clients see.
	if t.Name != "" {
		f.matches(p.Child("name"), t.Name, toolNamePattern, "must be letters, digits, ., _ and -, a letter or digit first")
		f.atMost(p.Child("name"), t.Name, maxCompositeName)
		switch t.Name {
		case "find_tool", "call_tool", "execute_tool_script":
			f.forbidden(p.Child("name"), t.Name+" is a tool of the edge itself")
		}
	}
	f.parameters(p.Child("parameters"), t.Parameters)

	// 2. What it does.
	w := newWorkflow(f, t)
	switch {
	case len(t.Steps) == 0 && t.Script == "":
		f.required(p.Child("steps"), "one of steps and script must be set")
	case len(t.Steps) > 0 && t.Script != "":
		f.forbidden(p.Child("script"), "exclusive with steps")
	}
	if len(t.Script) > maxScript {
		f.add(field.TooLong(p.Child("script"), "", maxScript))
	}
	f.tooMany(p.Child("steps"), len(t.Steps), maxSteps)
	if len(t.Steps) <= maxSteps {
		w.steps(p.Child("steps"))
	}

	// 3. What comes of it.
	if t.Output != nil {
		w.output(p.Child("output"), t.Output)
	}
	w.defaults(p.Child("steps"))
}

// parameters judges a tool's JSON Schema: an object that describes objects. Its
// keywords are judged where it is compiled.
func (f *faults) parameters(p *field.Path, j JSONObject) {
	schema, err := j.Map()
	if err != nil || schema == nil {
		return
	}
	if schema["type"] != "object" {
		f.hidden(p.Child("type"), "must be object")
	}
	if properties, there := schema["properties"]; there {
		if _, ok := properties.(map[string]any); !ok {
			f.hidden(p.Child("properties"), "must be an object")
		}
	}
	if required, there := schema["required"]; there {
		names, ok := required.([]any)
		for _, n := range names {
			if _, isString := n.(string); !isString {
				ok = false
			}
		}
		if !ok {
			f.hidden(p.Child("required"), "must be a list of property names")
		}
	}
}

// workflow judges the steps of one composite tool.
type workflow struct {
	*faults
	tool *CompositeTool
	ids  map[string]int // step id to its first index
	uses []use          // what templates read of the steps
}

func newWorkflow(f *faults, t *CompositeTool) *workflow {
	w := &workflow{faults: f, tool: t, ids: map[string]int{}}
	for i, s := range t.Steps {
		if _, ok := w.ids[s.ID]; !ok && s.ID != "" {
			w.ids[s.ID] = i
		}
	}
	return w
}

func (w *workflow) steps(p *field.Path) {
	for i := range w.tool.Steps {
		s, p := &w.tool.Steps[i], p.Index(i)
		if s.ID != "" {
			w.matches(p.Child("id"), s.ID, stepIDPattern, "must be letters, digits, _ and -")
			w.atMost(p.Child("id"), s.ID, maxStepID)
			if w.ids[s.ID] != i {
				w.add(field.Duplicate(p.Child("id"), s.ID))
			}
		}
		seen := map[string]bool{}
		for j, id := range s.DependsOn {
			switch _, ok := w.ids[id]; {
			case !ok:
				w.invalid(p.Child("dependsOn").Index(j), id, "must be the id of a step")
			case seen[id]:
				w.add(field.Duplicate(p.Child("dependsOn").Index(j), id))
			}
			seen[id] = true
		}
		w.step(p, s)
	}
	w.cycles(p)
}

// step judges one step apart from its place among the others.
func (w *workflow) step(p *field.Path, s *WorkflowStep) {
	if !w.has(p.Child("type")) {
		for _, v := range []variant{
			{"tool", "tool", s.Tool != ""},
			{"tool", "arguments", s.Arguments != ""},
			{"elicitation", "message", s.Message != ""},
			{"elicitation", "schema", s.Schema != ""},
			{"elicitation", "onDecline", s.OnDecline != nil},
			{"elicitation", "onCancel", s.OnCancel != nil},
			{"forEach", "collection", s.Collection != ""},
			{"forEach", "itemVar", s.ItemVar != ""},
			{"forEach", "maxIterations", s.MaxIterations != nil},
			{"forEach", "maxParallel", s.MaxParallel != nil},
			{"forEach", "step", s.Step != nil},
		} {
			if v.there && v.typ != string(s.Type) {
				w.forbidden(p.Child(v.name), "used only when type is "+v.typ)
			}
		}
	}
	switch s.Type {
	case StepTool:
		w.given(p.Child("tool"), s.Tool)
	case StepElicitation:
		w.given(p.Child("message"), s.Message)
	case StepForEach:
		w.given(p.Child("collection"), s.Collection)
		if s.Step == nil {
			w.required(p.Child("step"), "type is forEach")
		}
	}
	w.matches(p.Child("tool"), s.Tool, toolNamePattern, "must be workload.tool_name")
	w.arguments(p.Child("arguments"), s.Arguments, s.ID)
	w.template(p.Child("condition"), s.Condition, s.ID)
	w.template(p.Child("message"), s.Message, s.ID)
	w.template(p.Child("collection"), s.Collection, s.ID)
	w.onError(p.Child("onError"), s.OnError)
	w.schema(p.Child("schema"), s.Schema)
	w.matches(p.Child("itemVar"), s.ItemVar, identifierPattern, "must be a letter or _, then letters, digits and _")
	if s.ItemVar == "index" {
		w.invalid(p.Child("itemVar"), s.ItemVar, "index is the number of the item")
	}
	if i := s.Step; i != nil {
		p := p.Child("step")
		w.matches(p.Child("id"), i.ID, stepIDPattern, "must be letters, digits, _ and -")
		w.matches(p.Child("tool"), i.Tool, toolNamePattern, "must be workload.tool_name")
		w.arguments(p.Child("arguments"), i.Arguments, s.ID)
		w.template(p.Child("condition"), i.Condition, s.ID)
		w.onError(p.Child("onError"), i.OnError)
	}
}

func (w *workflow) onError(p *field.Path, e *OnError) {
	if e == nil {
		return
	}
	if e.Action == ErrorRetry {
		if e.RetryCount == nil {
			w.required(p.Child("retryCount"), "action is retry")
		}
		if e.RetryCount != nil {
			within(w.faults, p.Child("retryCount"), *e.RetryCount, 1, maxRetries)
		}
		return
	}
	if e.RetryCount != nil && *e.RetryCount != 0 {
		w.forbidden(p.Child("retryCount"), "used only when action is retry")
	}
	if e.RetryDelay != "" {
		w.forbidden(p.Child("retryDelay"), "used only when action is retry")
	}
}

// schema judges the schema of a user's answer: it is sent to every client.
func (w *workflow) schema(p *field.Path, j JSONObject) {
	if len(j) > maxSchema {
		w.add(field.TooLong(p, "", maxSchema))
		return
	}
	if m, err := j.Map(); err == nil && depth(m) > maxSchemaDepth {
		w.hidden(p, fmt.Sprintf("must not be nested deeper than %d", maxSchemaDepth))
	}
}

// depth counts how deep objects and lists stand inside of each other.
func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, depth(e))
		}
	case []any:
		for _, e := range v {
			deepest = max(deepest, depth(e))
		}
	default:
		return 0
	}
	return deepest + 1
}

// cycles notes the steps that wait for themselves, each cycle once.
func (w *workflow) cycles(p *field.Path) {
	const (
		unseen = iota
		open   // on the path from the step that the walk began at
		done
	)
	state := make([]int, len(w.tool.Steps))
	var path []string
	var visit func(i int)
	visit = func(i int) {
		s := &w.tool.Steps[i]
		state[i] = open
		path = append(path, s.ID)
		for j, id := range s.DependsOn {
			next, ok := w.ids[id]
			if !ok {
				continue
			}
			switch state[next] {
			case unseen:
				visit(next)
			case open:
				cycle := append(slices.Clone(path[slices.Index(path, id):]), id)
				w.invalid(p.Index(i).Child("dependsOn").Index(j), id, "the steps wait for each other: "+strings.Join(cycle, " → "))
			}
		}
		path = path[:len(path)-1]
		state[i] = done
	}
	for i, s := range w.tool.Steps {
		if state[i] == unseen && w.ids[s.ID] == i && s.ID != "" {
			visit(i)
		}
	}
}

func (w *workflow) output(p *field.Path, o *WorkflowOutput) {
	if len(o.Properties) == 0 {
		w.required(p.Child("properties"), "at least one")
	}
	w.properties(p.Child("properties"), o.Properties, 1)
	for i, name := range o.Required {
		if _, ok := o.Properties[name]; !ok {
			w.invalid(p.Child("required").Index(i), name, "must be one of the properties")
		}
	}
}

func (w *workflow) properties(p *field.Path, properties map[string]OutputProperty, level int) {
	for _, name := range sorted(properties) {
		o, p := properties[name], p.Key(name)
		if level > 1 { // the first level has been judged with all other fields
			w.section(p, reflect.ValueOf(o))
		}
		if o.Value == "" && o.Properties == "" && o.Default == "" {
			w.required(p.Child("value"), "one of value, properties and default must be set")
		}
		w.template(p.Child("value"), o.Value, "")
		if o.Properties == "" {
			continue
		}
		p = p.Child("properties")
		switch {
		case o.Type != OutputObject:
			w.forbidden(p, "used only when type is object")
		case o.Value != "":
			w.forbidden(p, "exclusive with value")
		case level >= maxOutputDepth:
			w.hidden(p, fmt.Sprintf("must not be nested deeper than %d", maxOutputDepth))
		default:
			nested, err := decodeProperties(o.Properties)
			if err != nil {
				w.hidden(p, err.Error())
				continue
			}
			w.properties(p, nested, level+1)
		}
	}
}

// decodeProperties decodes the properties of an object. A field that a property
// does not have is an error.
func decodeProperties(j JSONObject) (map[string]OutputProperty, error) {
	var m map[string]OutputProperty
	dec := json.NewDecoder(strings.NewReader(string(j)))
	dec.DisallowUnknownFields()
	err := dec.Decode(&m)
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) && wrong.Field != "" {
		return nil, fmt.Errorf("must be an object of properties: %s is of the wrong type", wrong.Field)
	}
	if err != nil {
		return nil, fmt.Errorf("must be an object of properties: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("must be an object of properties: text after the object")
	}
	return m, nil
}
