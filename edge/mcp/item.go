package mcp

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
)

// form is what a value has to be for clients to take the list that it is in: the schemas of the
// official TypeScript SDK, whose clients refuse a whole list for one item that breaks them.
type form struct {
	is      string // in words
	fits    func(v []byte) bool
	members []formed // of an object
	each    *form    // of the elements of an array or the members of an object
}

// formed is a member that has a form. Null stands for one that is not there.
type formed struct {
	name     string
	required bool
	form     *form
}

func opens(with string) func([]byte) bool { return func(v []byte) bool { return v[0] == with[0] } }

func oneOf(words ...string) *form {
	is := strconv.Quote(words[0])
	for _, w := range words[1:] {
		is += " or " + strconv.Quote(w)
	}
	return &form{is: is, fits: func(v []byte) bool { return slices.Contains(words, String(v)) }}
}

func objectOf(members ...formed) *form {
	return &form{is: "an object", fits: opens("{"), members: members}
}

func arrayOf(each *form) *form { return &form{is: "an array", fits: opens("["), each: each} }

var (
	aText   = &form{is: "a text", fits: opens(`"`)}
	aNumber = &form{is: "a number", fits: number}
	aFlag   = &form{is: "true or false", fits: func(v []byte) bool { return v[0] == 't' || v[0] == 'f' }}
	aShare  = &form{is: "a number from 0 to 1", fits: func(v []byte) bool {
		n, err := strconv.ParseFloat(string(v), 64)
		return err == nil && 0 <= n && n <= 1
	}}
	aTime = &form{is: "a time as 2025-01-12T15:00:58Z", fits: func(v []byte) bool { return isTime.MatchString(String(v)) }}
	// A boolean is a schema as well; see LegacyTool.
	aSchema = &form{is: "a schema", fits: func(v []byte) bool { return v[0] == '{' || v[0] == '[' || v[0] == 't' || v[0] == 'f' }}

	isTime = regexp.MustCompile(`^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$`)

	arguments = []formed{
		{"$schema", false, aText}, {"type", true, oneOf("object")}, {"required", false, arrayOf(aText)},
		{"properties", false, &form{is: "an object", fits: opens("{"), each: aSchema}},
	}
	common = []formed{
		{"name", true, aText}, {"title", false, aText}, {"description", false, aText}, {"_meta", false, objectOf()},
		{"icons", false, arrayOf(objectOf(formed{"src", true, aText}, formed{"mimeType", false, aText},
			formed{"sizes", false, arrayOf(aText)}, formed{"theme", false, oneOf("light", "dark")}))},
	}
	content = append(slices.Clip(common), formed{"mimeType", false, aText}, formed{"annotations", false, objectOf(
		formed{"audience", false, arrayOf(oneOf("user", "assistant"))}, formed{"priority", false, aShare}, formed{"lastModified", false, aTime})})

	// listed are the forms of what lists hold, by the method of the list.
	listed = map[string]*form{
		"tools/list": objectOf(append(slices.Clip(common),
			formed{"inputSchema", true, objectOf(arguments...)}, formed{"outputSchema", false, objectOf(arguments[0])},
			formed{"annotations", false, objectOf(formed{"title", false, aText}, formed{"readOnlyHint", false, aFlag},
				formed{"destructiveHint", false, aFlag}, formed{"idempotentHint", false, aFlag}, formed{"openWorldHint", false, aFlag})},
			formed{"execution", false, objectOf(formed{"taskSupport", false, oneOf("required", "optional", "forbidden")})})...),
		"prompts/list": objectOf(append(slices.Clip(common), formed{"arguments", false,
			arrayOf(objectOf(formed{"name", true, aText}, formed{"description", false, aText}, formed{"required", false, aFlag}))})...),
		"resources/list":           objectOf(append(slices.Clip(content), formed{"uri", true, aText}, formed{"size", false, aNumber})...),
		"resources/templates/list": objectOf(append(slices.Clip(content), formed{"uriTemplate", true, aText})...),
	}
)

// CheckItem says what clients refuse of one valid item of the list that a method gets, and with it
// the whole list; "" for nothing. The item is returned without the optional members that are null,
// which clients refuse as well: without any, it is the same text.
func CheckItem(method string, item []byte) (clean []byte, why string) {
	return listed[method].check(item, "it")
}

func (f *form) check(v []byte, at string) (clean []byte, why string) {
	if !f.fits(v) {
		return v, at + " must be " + f.is
	}
	note := func(bad string) {
		if why == "" {
			why = bad
		}
	}
	if v[0] == '[' && f.each != nil {
		elements, changed := Elements(v), false
		for i, e := range elements {
			one, bad := f.each.check(e, at+"["+strconv.Itoa(i)+"]")
			note(bad)
			changed = changed || len(one) != len(e)
			elements[i] = one
		}
		if changed {
			v = append(append([]byte{'['}, bytes.Join(elements, []byte{','})...), ']')
		}
		return v, why
	}
	if f.each == nil && len(f.members) == 0 {
		return v, ""
	}
	var nulls []string
	var set []Member
	there := 0 // of the members that must be
	for _, m := range Members(v) {
		name := string(Unquote(m.Name))
		n := slices.IndexFunc(f.members, func(o formed) bool { return o.name == name })
		of := f.each
		switch {
		case n >= 0 && f.members[n].required:
			there |= 1 << n
			of = f.members[n].form
		case n >= 0 && string(m.Value) == "null":
			nulls = append(nulls, name)
			continue
		case n >= 0:
			of = f.members[n].form
		}
		if of == nil {
			continue
		}
		one, bad := of.check(m.Value, at+"."+name)
		note(bad)
		if len(one) != len(m.Value) {
			set = append(set, Member{Name: m.Name, Value: one})
		}
	}
	for n, m := range f.members {
		if m.required && there&(1<<n) == 0 {
			note(at + "." + m.name + " is missing")
		}
	}
	if nulls != nil || set != nil {
		v = Change(v, nulls, set...)
	}
	return v, why
}

// LegacyTool returns a tool as clients of the legacy era take it: a property whose schema is true
// or false has the object of the same meaning, which SDK 1 wants, and an output schema that
// describes no object is not there (2025-11-25, schema, Tool). Every other byte stays.
func LegacyTool(tool []byte) []byte {
	var drop []string
	var set []Member
	in, out := LookupTwo(tool, "inputSchema", "outputSchema")
	if out != nil {
		if _, bad := objectOf(arguments...).check(out, ""); bad != "" {
			drop, out = []string{"outputSchema"}, nil
		}
	}
	for name, schema := range map[string][]byte{"inputSchema": in, "outputSchema": out} {
		var said []Member
		properties := Lookup(schema, "properties")
		for _, m := range Members(properties) {
			switch string(m.Value) {
			case "true":
				said = append(said, Member{Name: m.Name, Value: []byte("{}")})
			case "false":
				said = append(said, Member{Name: m.Name, Value: []byte(`{"not":{}}`)})
			}
		}
		if said != nil {
			set = append(set, Raw(name, Change(schema, nil, Raw("properties", Change(properties, nil, said...)))))
		}
	}
	if drop == nil && set == nil {
		return tool
	}
	return Change(tool, drop, set...)
}
