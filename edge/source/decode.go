package source

import (
	"cmp"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/near"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// decoder fills a Go value from a node, strictly: every member must be a field
// of the type and every value of the field's type. It notes every fault that
// it finds and goes on.
type decoder struct {
	doc    *document
	kind   reflect.Type // the type of the whole object, to look for a field's right place
	prefix string       // path in kind of the value that the document holds
	secret bool         // a Secret: no text of a value may be shown
	brief  bool         // so much is wrong with the set that looking for what was meant would take long
	fields map[reflect.Type][]compile.Field
}

func (d *decoder) fault(n *node, path, reason, format string, args ...any) {
	d.doc.fault(n, path, reason, format, args...)
}

// decode sets v, which must be settable, to the value of n. A null is the same
// as no value.
func (d *decoder) decode(n *node, v reflect.Value, path string) {
	if n.null() {
		return
	}
	if done := d.custom(n, v, path); done {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		p, before := reflect.New(v.Type().Elem()), len(d.doc.faults)
		d.decode(n, p.Elem(), path)
		if p.Elem().Kind() == reflect.Struct || len(d.doc.faults) == before {
			v.Set(p)
		}
	case reflect.Struct:
		d.mapping(n, v, path)
	case reflect.Map:
		if n.kind != mapping {
			d.wrong(n, v.Type(), path)
			return
		}
		m := reflect.MakeMapWithSize(v.Type(), len(n.members))
		for _, f := range n.members {
			at := path + "[" + d.key(f.key) + "]"
			if f.value.null() {
				d.fault(&node{line: f.line, column: f.column}, at, compile.ReasonWrongType, "want %s, got nothing: give a value, or take the key out", d.want(v.Type().Elem(), path))
				continue
			}
			e := reflect.New(v.Type().Elem()).Elem()
			d.decode(f.value, e, at)
			m.SetMapIndex(reflect.ValueOf(f.key).Convert(v.Type().Key()), e)
		}
		v.Set(m)
	case reflect.Slice:
		if n.kind != list {
			d.wrong(n, v.Type(), path)
			return
		}
		s := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
		for i, item := range n.items {
			if item.null() {
				d.fault(item, index(path, i), compile.ReasonWrongType, "want %s, got nothing: give a value, or take the item out", want(v.Type().Elem()))
				continue
			}
			d.decode(item, s.Index(i), index(path, i))
		}
		v.Set(s)
	default:
		d.scalar(n, v, path)
	}
}

// custom decodes a type that has a JSON or text form of its own.
func (d *decoder) custom(n *node, v reflect.Value, path string) bool {
	if !v.CanAddr() {
		return false
	}
	switch u := v.Addr().Interface().(type) {
	case json.Unmarshaler:
		text, bad := n.json()
		if bad != nil {
			d.fault(bad, path, compile.ReasonWrongType, "a number that JSON has no form for: give a finite one, or text in quotes")
		} else if err := u.UnmarshalJSON(text); err != nil {
			d.fault(n, path, compile.ReasonWrongType, "%s, got %s", d.cause(err, v.Type()), n.describe())
		}
		return true
	case encoding.TextUnmarshaler:
		if n.kind != scalar || n.tag != tagText {
			d.wrong(n, v.Type(), path)
		} else if err := u.UnmarshalText([]byte(n.text)); err != nil {
			d.fault(n, path, compile.ReasonWrongType, "%s", d.cause(err, v.Type()))
		}
		return true
	case *compile.Hidden:
		if plain := strings.HasPrefix(path, "stringData"); plain {
			if n.kind != scalar || n.tag != tagText {
				d.wrong(n, reflect.TypeFor[string](), path)
			}
			*u = compile.Hidden(n.text)
			return true
		}
		value, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.text), ""))
		if n.kind != scalar || n.tag != tagText {
			d.wrong(n, v.Type(), path)
		} else if err != nil {
			d.fault(n, path, compile.ReasonWrongType, "not base64: encode the value, or give it as it is under stringData")
		} else {
			*u = value
		}
		return true
	case *[]byte:
		value, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.text), ""))
		if n.kind != scalar || n.tag != tagText || err != nil {
			d.fault(n, path, compile.ReasonWrongType, "want base64 text")
		}
		v.SetBytes(value)
		return true
	}
	return false
}

// cause words the error of a type's own decoder. Errors of the standard library
// may quote the value and speak of Go types, so only those of the model's types
// are shown, and none in a secret.
func (d *decoder) cause(err error, t reflect.Type) string {
	if d.secret || t.PkgPath() != reflect.TypeFor[v1beta1.Duration]().PkgPath() {
		return "want " + want(t)
	}
	return err.Error()
}

// mapping decodes the members of n into the fields of a struct.
func (d *decoder) mapping(n *node, v reflect.Value, path string) {
	if n.kind != mapping {
		d.wrong(n, v.Type(), path)
		return
	}
	fields := d.fieldsOf(v.Type())
	for _, m := range n.members {
		i := slices.IndexFunc(fields, func(f compile.Field) bool { return f.Name == m.key })
		if i < 0 {
			d.unknown(m, fields, path)
			continue
		}
		d.decode(m.value, v.FieldByIndex(fields[i].Index), join(path, m.key))
	}
}

func (d *decoder) fieldsOf(t reflect.Type) []compile.Field {
	if f, ok := d.fields[t]; ok {
		return f
	}
	if d.fields == nil {
		d.fields = map[reflect.Type][]compile.Field{}
	}
	d.fields[t] = compile.Fields(t)
	return d.fields[t]
}

// unknown notes a member that is no field: the nearest field of the same
// mapping, else the one place of the object where a field has that name, else
// all the fields there are.
func (d *decoder) unknown(m member, fields []compile.Field, path string) {
	if len(d.doc.faults) >= maxFaults {
		return
	}
	var names []string
	for _, f := range fields {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	hint, meant := "", ""
	if d.brief {
		hint, meant = ": take it out", path
		if path == "" {
			meant = "…"
		}
	} else if word, likely := near.Hint(m.key, names); word != "" {
		hint, meant = ", "+likely, join(path, word)
	} else if m.key == "namespace" && (strings.HasSuffix(path, "Ref") || strings.HasSuffix(path, "]")) {
		hint = ": references stay in the namespace of their object, take it out"
	} else if places := d.placesOf(m.key); len(places) == 1 {
		hint, meant = ", it belongs at "+places[0], places[0]
	} else if len(names) <= 24 {
		hint = ": the fields here are " + strings.Join(names, ", ")
	} else {
		hint = ", and nothing here is called like it: take it out"
	}
	d.fault(&node{line: m.line, column: m.column}, join(path, m.key), compile.ReasonUnknownField, "unknown field%s", hint)
	d.doc.faults[len(d.doc.faults)-1].meant = meant
}

// placesOf returns the paths in the object's type of the fields called name.
func (d *decoder) placesOf(name string) []string {
	found := map[string]bool{}
	for _, f := range compile.Leaves(d.kind) {
		for path := f; path != ""; {
			rest, last := cutLast(path)
			if strings.TrimRight(last, "[]{}") == name && strings.HasPrefix(path, cmp.Or(d.prefix, "spec.")) {
				found[strings.TrimPrefix(strings.TrimRight(path, "[]{}"), d.prefix)] = true
			}
			path = rest
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func cutLast(path string) (rest, last string) {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// scalar decodes text, numbers and booleans.
func (d *decoder) scalar(n *node, v reflect.Value, path string) {
	if n.kind != scalar {
		d.wrong(n, v.Type(), path)
		return
	}
	switch v.Kind() {
	case reflect.String:
		if n.tag != tagText {
			d.wrong(n, v.Type(), path)
			return
		}
		v.SetString(n.text)
	case reflect.Bool:
		if n.tag != tagBool {
			d.wrong(n, v.Type(), path)
			return
		}
		v.SetBool(n.text == "true")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i, err := whole(n)
		if n.tag != tagWhole {
			d.wrong(n, v.Type(), path)
		} else if err != nil || v.OverflowInt(i) {
			d.fault(n, path, compile.ReasonWrongType, "the number is out of range: it must fit %d bits", v.Type().Bits())
		} else {
			v.SetInt(i)
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		i, err := whole(n)
		if n.tag != tagWhole {
			d.wrong(n, v.Type(), path)
		} else if err != nil || i < 0 || v.OverflowUint(uint64(i)) {
			d.fault(n, path, compile.ReasonWrongType, "the number is out of range: it must be 0 or more and fit %d bits", v.Type().Bits())
		} else {
			v.SetUint(uint64(i))
		}
	case reflect.Float32, reflect.Float64:
		text, err := jsonNumber(n)
		if n.tag != tagWhole && n.tag != tagFloat || err != nil {
			d.wrong(n, v.Type(), path)
			return
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			d.wrong(n, v.Type(), path)
			return
		}
		v.SetFloat(f)
	default:
		d.fault(n, path, compile.ReasonWrongType, "want %s, got %s", want(v.Type()), n.describe())
	}
}

// wrong notes a value of the wrong type and what to do about it.
func (d *decoder) wrong(n *node, t reflect.Type, path string) {
	got, hint := n.describe(), ""
	if d.secret && n.kind == scalar && n.tag == tagBool {
		got = "true or false"
	}
	switch {
	case t.Kind() == reflect.String && n.kind == scalar:
		hint = ": put it in quotes"
	case t.Kind() == reflect.Slice && n.kind == scalar:
		hint = ": put \"- \" before it"
	case t.Kind() == reflect.Struct && n.kind == scalar:
		for _, f := range d.fieldsOf(t) {
			if f.Name == "name" || f.Name == "type" {
				hint = ": write it as {" + f.Name + ": …}"
				break
			}
		}
	case t.Kind() == reflect.Bool && n.kind == scalar && n.tag == tagText && !d.secret:
		switch strings.ToLower(n.text) {
		case "yes", "on", "y", "true":
			hint = ": write true, without quotes"
		case "no", "off", "n", "false":
			hint = ": write false, without quotes"
		}
	case isWhole(t) && n.kind == scalar && n.tag == tagText && !d.secret:
		if _, err := strconv.Atoi(n.text); err == nil {
			hint = ": take the quotes away"
		}
	}
	d.fault(n, path, compile.ReasonWrongType, "want %s, got %s%s", want(t), got, hint)
}

// key shows a key of a map. One that cannot be a key of a Secret may be a part
// of its value that slipped out of place.
func (d *decoder) key(key string) string {
	if d.secret {
		for _, c := range key {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
				return "…"
			}
		}
	}
	return cut(key, 80)
}

// want says what a type takes at path.
func (d *decoder) want(t reflect.Type, path string) string {
	if strings.HasPrefix(path, "stringData") {
		return "text"
	}
	return want(t)
}

func isWhole(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 }

// want says what a type takes, in the words of describe.
func want(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage](), t == reflect.TypeFor[v1beta1.JSONValue]():
		return "a value"
	case t == reflect.TypeFor[compile.Hidden]():
		return "base64 text"
	case t.Kind() == reflect.String, reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return "text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case isWhole(t):
		return "a whole number"
	case t.Kind() == reflect.Float32, t.Kind() == reflect.Float64:
		return "a number"
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return "a " + strings.ToLower(t.Name())
	case t.Kind() == reflect.Slice:
		return "a list"
	}
	return "a mapping"
}
