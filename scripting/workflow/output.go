package workflow

import (
	"errors"
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting"
)

// outputSpec says how the result of a workflow is made.
type outputSpec struct {
	properties []*property
	required   []string
}

// property is one of a result, and what prop() returns.
type property struct {
	name       string
	kind       v1beta1.OutputType
	template   string
	templated  bool
	def        []byte // JSON text of the type; nil for none
	properties []*property
}

func (p *property) String() string        { return "prop(" + quote(string(p.kind)) + ")" }
func (p *property) Type() string          { return "prop" }
func (p *property) Freeze()               {}
func (p *property) Truth() starlark.Bool  { return starlark.True }
func (p *property) Hash() (uint32, error) { return 0, errors.New("unhashable type: prop") }

// prop is one property of an output: prop("string", "…", default=…).
func (r *run) prop(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		kind       string
		text, def  starlark.Value
		properties *starlark.Dict
	)
	if err := starlark.UnpackArgs("prop", args, named, "type", &kind, "value??", &text, "default??", &def, "properties?", &properties); err != nil {
		return nil, err
	}
	p := &property{kind: v1beta1.OutputType(kind)}
	switch p.kind {
	case v1beta1.OutputString, v1beta1.OutputInteger, v1beta1.OutputNumber, v1beta1.OutputBoolean, v1beta1.OutputObject, v1beta1.OutputArray:
	default:
		return nil, fmt.Errorf("prop: no type is called %s", shown(kind))
	}
	if text != nil && text != starlark.None {
		if p.template, p.templated = starlark.AsString(text); !p.templated {
			return nil, fmt.Errorf("prop: the template is %s, and must be string", text.Type())
		}
	}
	if def != nil && def != starlark.None {
		value, err := scripting.JSON("default", def)
		if err != nil {
			return nil, fmt.Errorf("prop: %w", err)
		}
		if p.def, err = fits(p.kind, value); err != nil {
			return nil, fmt.Errorf("prop: default: %w", err)
		}
	}
	if properties != nil {
		if p.kind != v1beta1.OutputObject || p.templated {
			return nil, errors.New("prop: properties are those of an object without a template")
		}
		var err error
		if p.properties, err = props("prop", properties); err != nil {
			return nil, err
		}
		if p.properties == nil {
			p.properties = []*property{}
		}
	}
	return p, nil
}

// props are the properties of a dict.
func props(builtin string, d *starlark.Dict) (out []*property, err error) {
	for key, v := range d.Entries() {
		name, ok := starlark.AsString(key)
		p, isProp := v.(*property)
		if !ok || !isProp {
			return nil, fmt.Errorf("%s: the properties are a dict of texts to prop()", builtin)
		}
		one := *p
		one.name = name
		out = append(out, &one)
	}
	return out, nil
}

// outputOf makes the result: output({"p": prop("string", "…")}, required=["p"]).
func (r *run) outputOf(t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		properties *starlark.Dict
		required   *starlark.List
		spec       outputSpec
		err        error
	)
	if err := starlark.UnpackArgs("output", args, named, "properties", &properties, "required?", &required); err != nil {
		return nil, err
	}
	if aroundOf(t).step != nil {
		return nil, errors.New("output: stands outside of the steps")
	}
	if spec.properties, err = props("output", properties); err != nil {
		return nil, err
	}
	if required != nil {
		for v := range starlark.Elements(required) {
			name, _ := starlark.AsString(v)
			if !slices.ContainsFunc(spec.properties, func(p *property) bool { return p.name == name }) {
				return nil, fmt.Errorf("output: required: %s is none of the properties", shown(name))
			}
			spec.required = append(spec.required, name)
		}
	}
	r.wait(t)
	if f := t.Ended(); f != nil {
		return nil, f
	}
	return r.resultOf(t, &spec)
}

// resultOf makes the result that an output describes.
func (r *run) resultOf(t *scripting.Task, spec *outputSpec) (starlark.Value, error) {
	value, err := r.objectOf(t, "output", spec.properties, spec.required)
	if err != nil {
		return nil, err
	}
	v, err := t.Value(value)
	if err != nil {
		return nil, failed("output: %s", err)
	}
	return v, nil
}

// maxLeftOut bounds how many of the properties that are left out are told.
const maxLeftOut = 100

// objectOf is the JSON text of an object of properties. What has no value and no default is
// left out, and an error when it is required.
func (r *run) objectOf(t *scripting.Task, path string, properties []*property, required []string) ([]byte, error) {
	b := []byte{'{'}
	for _, p := range properties {
		value, why := r.valueOf(t, path, p)
		if value == nil {
			if slices.Contains(required, p.name) {
				return nil, failed("output: %s is required: %s", short(p.name), why)
			}
			if len(r.leftOut) < maxLeftOut {
				r.leftOut = append(r.leftOut, LeftOut{path + "." + short(p.name), why.Error()})
			}
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(mcp.AppendString(b, p.name), ':'), value...)
	}
	return append(b, '}'), nil
}

// valueOf is the JSON text of a property; nil for none, and why.
func (r *run) valueOf(t *scripting.Task, path string, p *property) ([]byte, error) {
	var why error
	switch {
	case p.properties != nil:
		value, err := r.objectOf(t, path+"."+short(p.name), p.properties, nil)
		if err == nil && p.def != nil && string(value) == "{}" { // none of them has a value
			return p.def, nil
		}
		return value, err
	case p.templated:
		s, err := r.render(t, p.template)
		if err == nil {
			var value []byte
			if value, err = coerce(p.kind, s); err == nil {
				return value, nil
			}
		}
		why = errors.New(r.message(err))
	default:
		why = errors.New("it has no value")
	}
	return p.def, why
}
