package main

import (
	"strings"

	weir "github.com/weir-edge/weir/sdk"
)

const withheld = "[withheld by the guardrail]"

// mostChanges is how many members of an item are written anew: the edge takes so
// many operations for each, and an item with more of them is no honest one.
const mostChanges = 12

// list looks at what a backend offers.
func list(what string, c *weir.Catalog) {
	for item := range c.Items() {
		e := &edit{rules: &inLists, backend: item.Backend().String(), list: true}
		of := what + " " + e.backend + "/" + readable(item.Name().String())
		if disguised(item.Name().String()) || disguised(item.JSON().Get("name").Text()) {
			e.found[names] = true
		}
		type change struct {
			name string
			to   []byte
		}
		var changes []change
		for name, value := range item.JSON().Object() {
			member := name.Text()
			switch member {
			case "name", "uri", "uriTemplate":
				continue // what it is known by cannot be another
			}
			if to, changed := e.member(member, value); changed {
				changes = append(changes, change{member, to})
			}
		}
		if what == "tool" && inResults[schema] != off {
			keep(e.backend, item.Name().String(), item.JSON().Get("outputSchema"))
		}
		worst := e.found.worst(e.rules)
		if e.stuck || len(changes) > mostChanges {
			worst = block
		}
		switch worst {
		case off:
			continue
		case block:
			item.Hide()
			e.found.report("lists", of, "hidden")
			continue
		}
		for _, one := range changes {
			item.Patch("/"+weir.Token(one.name), weir.JSON(one.to))
		}
		item.Annotate("guardrail", weir.Text(e.found.String()))
		e.found.report("lists", of, []string{flag: "flagged", redact: "redacted"}[worst])
	}
}

// readable writes a name for a log, where nobody should be taken in by it.
func readable(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 200 {
			return b.String() + "…"
		}
		if r < 0x7f && r >= ' ' {
			b.WriteRune(r)
		} else {
			b.WriteByte('?')
		}
	}
	return b.String()
}

// edit looks through one item or result, and writes it anew without what is to
// be redacted.
type edit struct {
	rules   *rules
	found   findings
	backend string
	list    bool // what is offered, not a result
	stuck   bool // something that is to be redacted cannot be
	keys    int  // how many names of members have been redacted
}

// member looks at a member of an item, a result, or a block of content.
func (e *edit) member(name string, value weir.Value) ([]byte, bool) {
	json := value.View().Bytes()
	stripped := false
	if name == "icons" || name == "_meta" {
		json, stripped = e.cleaned(value, name == "icons")
	}
	out, changed := rewrite(json, e.text)
	return out, changed || stripped
}

// text looks at one text.
func (e *edit) text(s string, key bool) (string, bool) {
	was := s
	seen, hidden := strip(s)
	if hidden && e.find(characters) == redact {
		s = seen
	}
	if e.rules[instructions] != off && instructs(seen, e.list) && e.find(instructions) == redact {
		s, seen = withheld, ""
	}
	if e.list && e.rules[shadowing] != off && e.mentions(seen) && e.find(shadowing) == redact {
		s = withheld
	}
	if !e.list {
		s = e.resultText(s, seen)
	}
	switch {
	case s == was:
		return s, false
	case !key:
		return s, true
	case e.list:
		e.stuck = true // arguments of other names would be unknown to the backend
		return s, false
	}
	e.keys++
	return s + " " + string(weir.Int(int64(e.keys))), true // so that no two are the same
}

// resultText looks at a text of a result for what matters there alone.
func (e *edit) resultText(s, seen string) string {
	if e.rules[calls] != off && calling(seen) && e.find(calls) == redact {
		s, seen = "[withheld: it held a call of a tool]", ""
	}
	if e.rules[urls] != off {
		if to, is := pictures(seen); is && e.find(urls) == redact {
			s, seen = to, to
		}
	}
	if e.rules[secrets] != off {
		if to, is := hide(seen); is && e.find(secrets) == redact {
			s = to
		}
	}
	return s
}

// find notes what was found and says what becomes of it.
func (e *edit) find(k kind) action {
	if e.rules[k] != off {
		e.found[k] = true
	}
	return e.rules[k]
}

// mentions says whether a text names a tool of another backend.
func (e *edit) mentions(s string) bool {
	if len(toolsOf) == 0 {
		return false
	}
	for i := 0; i < len(s); {
		for i < len(s) && !inName(s[i]) {
			i++
		}
		start := i
		for i < len(s) && inName(s[i]) {
			i++
		}
		if i == start || i-start > 128 {
			continue
		}
		name := strings.ToLower(strings.Trim(s[start:i], ".-"))
		for backend, tools := range toolsOf {
			if backend != e.backend && tools[name] && !toolsOf[e.backend][name] {
				return true
			}
		}
	}
	return false
}

func inName(c byte) bool { return dashed(c) || c == '.' }

// cleaned takes away what has a harmful URL: icons, and members of metadata.
func (e *edit) cleaned(v weir.Value, icons bool) ([]byte, bool) {
	if e.rules[urls] == off {
		return v.View().Bytes(), false
	}
	out, n, dropped := []byte{}, 0, false
	add := func(name, value weir.Value) {
		bad := false
		rewrite(value.View().Bytes(), func(s string, key bool) (string, bool) {
			bad = bad || harmful(s) || icons && executes(s)
			return s, false
		})
		if bad {
			dropped = true
			return
		}
		if n++; n > 1 {
			out = append(out, ',')
		}
		if name.Exists() {
			out = append(append(out, name.View().Bytes()...), ':')
		}
		out = append(out, value.View().Bytes()...)
	}
	switch {
	case v.IsArray():
		out = append(out, '[')
		for one := range v.Array() {
			add(weir.Value{}, one)
		}
		out = append(out, ']')
	case v.IsObject():
		out = append(out, '{')
		for name, one := range v.Object() {
			add(name, one)
		}
		out = append(out, '}')
	default:
		return v.View().Bytes(), false
	}
	if !dropped || e.find(urls) != redact {
		return v.View().Bytes(), false
	}
	return out, true
}

// executes says whether a text is a URL of a scheme that icons may not have
// (MCP 2025-11-25, icons: https and data, of images).
func executes(s string) bool {
	s = plain(s)
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || scheme == "" || len(scheme) > 32 {
		return false
	}
	switch strings.ToLower(scheme) {
	case "https", "http":
		return false
	case "data":
		return !hasFold(rest, "image/")
	}
	for _, c := range []byte(scheme) {
		if !alnum(c) && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}
