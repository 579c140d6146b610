package mcp

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// form is what a value has to be for clients to take the list that it is in: the schemas of the
// official TypeScript SDK, whose clients refuse a whole list for one item that breaks them.
type form struct {
	is      string // in words
	fits    func(v []byte) bool
	members []formed // of an object
	objects *form    // what one whose type is "object" has to be, where that is more
	each    *form    // of the elements of an array or the members of an object
}

// formed is a member that has a form. Null stands for one that is not there.
type formed struct {
	name     string
	required bool
	form     *form
	without  string // the value of a required one that is not there, JSON text; "" for none
}

func opens(with string) func([]byte) bool { return func(v []byte) bool { return v[0] == with[0] } }

func oneOf(words ...string) *form {
	is := strconv.Quote(words[0])
	for _, w := range words[1:] {
		is += " or " + strconv.Quote(w)
	}
	return &form{is: is, fits: func(v []byte) bool { return slices.Contains(words, String(v)) }}
}

func required(name string, f *form) formed { return formed{name: name, required: true, form: f} }

func optional(name string, f *form) formed { return formed{name: name, form: f} }

func objectOf(members ...formed) *form {
	return &form{is: "an object", fits: opens("{"), members: members}
}

func arrayOf(each *form) *form { return &form{is: "an array", fits: opens("["), each: each} }

var (
	aText = &form{is: "a text", fits: opens(`"`)}
	// Clients read a number that is too large for 64 bits as infinite, and refuse that.
	aNumber = &form{is: "a number", fits: func(v []byte) bool {
		if !number(v) {
			return false
		}
		_, err := strconv.ParseFloat(string(v), 64)
		return err == nil
	}}
	aFlag  = &form{is: "true or false", fits: func(v []byte) bool { return v[0] == 't' || v[0] == 'f' }}
	aShare = &form{is: "a number from 0 to 1", fits: func(v []byte) bool {
		n, err := strconv.ParseFloat(string(v), 64)
		return err == nil && 0 <= n && n <= 1
	}}
	aTime = &form{is: "a time as 2025-01-12T15:00:58Z", fits: func(v []byte) bool {
		s := String(v)
		if !isTime.MatchString(s) {
			return false
		}
		_, err := time.Parse(time.DateOnly, s[:len(time.DateOnly)]) // has the month this day?
		return err == nil
	}}
	// A boolean is a schema as well; see LegacyTool.
	aSchema = &form{is: "a schema", fits: func(v []byte) bool { return v[0] == '{' || v[0] == '[' || v[0] == 't' || v[0] == 'f' }}

	isTime = regexp.MustCompile(`^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$`)

	arguments = []formed{
		{name: "$schema", form: aText}, {"type", true, oneOf("object"), `"object"`}, {name: "required", form: arrayOf(aText)},
		{name: "properties", form: &form{is: "an object", fits: opens("{"), each: aSchema}},
	}
	// The results of a tool are of any type; clients look further at those of type "object" alone.
	results = &form{is: "an object", fits: opens("{"), members: arguments[:1], objects: objectOf(arguments...)}
	common  = []formed{
		required("name", aText), optional("title", aText), optional("description", aText), optional("_meta", objectOf()),
		optional("icons", arrayOf(objectOf(required("src", aText), optional("mimeType", aText),
			optional("sizes", arrayOf(aText)), optional("theme", oneOf("light", "dark"))))),
	}
	content = append(slices.Clip(common), optional("mimeType", aText), optional("annotations", objectOf(
		optional("audience", arrayOf(oneOf("user", "assistant"))), optional("priority", aShare), optional("lastModified", aTime))))

	// listed are the forms of what lists hold, by the method of the list.
	listed = map[string]*form{
		"tools/list": objectOf(append(slices.Clip(common),
			formed{"inputSchema", true, objectOf(arguments...), `{"type":"object"}`}, optional("outputSchema", results),
			optional("annotations", objectOf(optional("title", aText), optional("readOnlyHint", aFlag),
				optional("destructiveHint", aFlag), optional("idempotentHint", aFlag), optional("openWorldHint", aFlag))),
			optional("execution", objectOf(optional("taskSupport", oneOf("required", "optional", "forbidden")))))...),
		"prompts/list": objectOf(append(slices.Clip(common), optional("arguments",
			arrayOf(objectOf(required("name", aText), optional("description", aText), optional("required", aFlag)))))...),
		"resources/list":           objectOf(append(slices.Clip(content), required("uri", aText), optional("size", aNumber))...),
		"resources/templates/list": objectOf(append(slices.Clip(content), required("uriTemplate", aText))...),
	}
)

// CheckItem makes one valid item of the list that a method gets one that clients do not refuse
// the whole list for. Optional members that are null or of another form are taken out, and a
// required one that is not there is put in where only one value can be meant: a tool without a
// schema takes no arguments, a resource without a name has its URI, and an argument whose schema is
// none may be anything. changed says what was
// wrong, but for null; "" for nothing. why says what is wrong and cannot be made good. An item
// that nothing is wrong with is returned as it is.
func CheckItem(method string, item []byte) (clean []byte, changed, why string) {
	if uri, template := LookupTwo(item, "uri", "uriTemplate"); method != "tools/list" && method != "prompts/list" {
		if name := Lookup(item, "name"); (name == nil || string(name) == "null") && (uri != nil || template != nil) {
			item = Change(item, nil, Raw("name", []byte(cmp.Or(string(uri), string(template)))))
			changed = "it.name is missing"
		}
	}
	clean, also, why := listed[method].check(item, "it")
	return clean, cmp.Or(changed, also), why
}

func (f *form) check(v []byte, at string) (clean []byte, changed, why string) {
	if !f.fits(v) {
		return v, "", at + " must be " + f.is
	}
	if v[0] == '[' && f.each != nil {
		elements, other := Elements(v), false
		for i, e := range elements {
			one, also, bad := f.each.check(e, at+"["+strconv.Itoa(i)+"]")
			changed, why = cmp.Or(changed, also), cmp.Or(why, bad)
			other = other || !untouched(one, e)
			elements[i] = one
		}
		if other {
			v = append(append([]byte{'['}, bytes.Join(elements, []byte{','})...), ']')
		}
		return v, changed, why
	}
	if f.objects != nil && String(Lookup(v, "type")) == "object" {
		f = f.objects
	}
	if f.each == nil && len(f.members) == 0 {
		return v, "", ""
	}
	var out []string
	var set []Member
	var schemas []Edit // there may be very many, for which Change would take long
	there := 0         // of the members that must be
	for _, m := range Members(v) {
		name := string(Unquote(m.Name))
		n := slices.IndexFunc(f.members, func(o formed) bool { return o.name == name })
		of, must := f.each, true
		if n >= 0 {
			of, must = f.members[n].form, f.members[n].required
		}
		switch null := string(m.Value) == "null"; {
		case n < 0 && of == nil, null && n >= 0 && must && f.members[n].without != "":
			continue
		case null && !must:
			out = append(out, name)
			continue
		case n >= 0:
			there |= 1 << n
		}
		one, also, bad := of.check(m.Value, at+"."+name)
		switch {
		case n < 0 && bad != "": // of a property only its name is known, and it may be anything
			schemas, changed = append(schemas, Edit{Span{m.whole.End - uint32(len(m.Value)), m.whole.End}, []byte("{}")}), cmp.Or(changed, bad)
		case bad == "":
			changed = cmp.Or(changed, also)
			if !untouched(one, m.Value) {
				set = append(set, Member{Name: m.Name, Value: one})
			}
		case must:
			why = cmp.Or(why, bad)
		default:
			out, changed = append(out, name), cmp.Or(changed, bad)
		}
	}
	for n, m := range f.members {
		switch {
		case !m.required || there&(1<<n) != 0:
		case m.without != "":
			set, changed = append(set, Raw(m.name, []byte(m.without))), cmp.Or(changed, at+"."+m.name+" is missing")
		default:
			why = cmp.Or(why, at+"."+m.name+" is missing")
		}
	}
	if schemas != nil {
		v = Splice(nil, v, schemas...)
	}
	if out != nil || set != nil {
		v = Change(v, out, set...)
	}
	return v, changed, why
}

// untouched reports whether a value is the very text that it was.
func untouched(a, b []byte) bool { return len(a) == len(b) && &a[0] == &b[0] }

// LegacyTool returns a tool as clients of the legacy era take it: a property whose schema is true
// or false has the object of the same meaning, which SDK 1 wants, and an output schema that
// describes no object is not there (2025-11-25, schema, Tool). Every other byte stays.
func LegacyTool(tool []byte) []byte {
	var drop []string
	var set []Member
	legacy := func(name string, was, schema []byte) {
		var said []Edit
		properties := Lookup(schema, "properties")
		for _, m := range Members(properties) {
			at := Span{m.whole.End - uint32(len(m.Value)), m.whole.End}
			switch string(m.Value) {
			case "true":
				said = append(said, Edit{at, []byte("{}")})
			case "false":
				said = append(said, Edit{at, []byte(`{"not":{}}`)})
			}
		}
		if said != nil { // there may be very many, for which Change would take long
			schema = Change(schema, nil, Raw("properties", Splice(nil, properties, said...)))
		}
		if !bytes.Equal(schema, was) {
			set = append(set, Raw(name, schema))
		}
	}
	in, out := LookupTwo(tool, "inputSchema", "outputSchema")
	legacy("inputSchema", in, in)
	if out != nil {
		if clean, changed, bad := results.objects.check(out, ""); changed != "" || bad != "" {
			drop = []string{"outputSchema"}
		} else {
			legacy("outputSchema", out, clean)
		}
	}
	if drop == nil && set == nil {
		return tool
	}
	return Change(tool, drop, set...)
}
