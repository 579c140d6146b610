package compile

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// Field is one field of a struct as JSON and YAML see it.
type Field struct {
	Name  string
	Index []int // for reflect.Value.FieldByIndex
}

// Fields returns the fields of the struct type t. Those of an embedded struct
// without a name of its own count as t's.
func Fields(t reflect.Type) []Field {
	var out []Field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "" || slices.Contains(strings.Split(options, ","), "inline"):
			for _, inner := range Fields(f.Type) {
				out = append(out, Field{inner.Name, append([]int{i}, inner.Index...)})
			}
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			out = append(out, Field{name, []int{i}})
		}
	}
	return out
}

// Leaves returns the paths of all fields of t that hold a value rather than
// other fields. An item of a list stands as [], a value of a map as {}:
// spec.config.backends[].metadata{}.
func Leaves(t reflect.Type) []string {
	var out []string
	var walk func(t reflect.Type, path string, inside []reflect.Type)
	walk = func(t reflect.Type, path string, inside []reflect.Type) {
		switch {
		case t.Kind() == reflect.Pointer:
			walk(t.Elem(), path, inside)
		case opaque(t) || slices.Contains(inside, t):
			out = append(out, path)
		case t.Kind() == reflect.Struct:
			for _, f := range Fields(t) {
				walk(t.FieldByIndex(f.Index).Type, dot(path, f.Name), append(slices.Clone(inside), t))
			}
		case t.Kind() == reflect.Slice:
			walk(t.Elem(), path+"[]", inside)
		case t.Kind() == reflect.Map:
			walk(t.Elem(), path+"{}", inside)
		default:
			out = append(out, path)
		}
	}
	walk(t, "", nil)
	return out
}

// opaque reports whether a type has a text form of its own, so that its fields,
// if any, are not fields of a manifest.
func opaque(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) ||
		t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// given is one field that an object gives a value to.
type given struct {
	path    string // spec.config.backends[0].url
	pattern string // spec.config.backends[].url
	value   string // of text, numbers and booleans
	secret  bool   // a section that names a secret and a key of it
	up      *given // the section, list or item that it stands in
}

// above returns the part of g's path that pattern stands for, g's own included.
func (g *given) above(pattern string) *given {
	for ; g != nil; g = g.up {
		if g.pattern == pattern {
			return g
		}
	}
	return nil
}

// givenIn returns the fields that an object gives a value to, in the order of
// its type. A section that is there but empty is given as itself, and so are
// items of lists and values of maps. What equals absence is not given: empty
// text, 0, false, an empty list.
func givenIn(object any) []*given {
	var out []*given
	var walk func(v reflect.Value, g *given)
	present := func(v reflect.Value, g *given) { // g is there, even if v is empty
		before := len(out)
		walk(v, g)
		if len(out) == before {
			g.value = text(v)
			out = append(out, g)
		}
	}
	walk = func(v reflect.Value, g *given) {
		switch {
		case v.Kind() == reflect.Pointer:
			if !v.IsNil() {
				present(v.Elem(), g)
			}
		case opaque(v.Type()):
			if !v.IsZero() {
				g.value = text(v)
				out = append(out, g)
			}
		case v.Kind() == reflect.Struct:
			g.secret = v.Type() == reflect.TypeFor[v1beta1.SecretRef]()
			for _, f := range Fields(v.Type()) {
				walk(v.FieldByIndex(f.Index), &given{path: dot(g.path, f.Name), pattern: dot(g.pattern, f.Name), up: g})
			}
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				present(v.Index(i), &given{path: g.path + "[" + strconv.Itoa(i) + "]", pattern: g.pattern + "[]", up: g})
			}
		case v.Kind() == reflect.Map:
			keys := v.MapKeys()
			slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
			for _, k := range keys {
				present(v.MapIndex(k), &given{path: g.path + "[" + k.String() + "]", pattern: g.pattern + "{}", up: g})
			}
		case !v.IsZero():
			g.value = text(v)
			out = append(out, g)
		}
	}
	walk(reflect.ValueOf(object).Elem(), &given{})
	return out
}

// text is the value of a scalar as a user writes it, "" of anything else.
func text(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Float32, reflect.Float64:
		return fmt.Sprint(v.Interface())
	}
	return ""
}

func dot(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// under reports whether a path or pattern is at or below another.
func under(path, top string) bool {
	return top == "" || strings.HasPrefix(path, top) && (len(path) == len(top) || strings.IndexByte(".[{", path[len(top)]) >= 0)
}
