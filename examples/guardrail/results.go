package main

import (
	"strings"

	weir "github.com/weir-edge/weir/sdk"
)

// result looks at what a call came to.
func result(c *weir.CallResult) {
	e := &edit{rules: &inResults, backend: c.Backend().String()}
	of := "call of " + readable(c.Tool().String())
	if c.Error().Exists() {
		// An error has no place for another text: what is to be redacted in it is
		// not shown at all.
		_, changed := rewrite(c.Error().View().Bytes(), e.text)
		e.finish(c, of, changed, "")
		return
	}
	out, changed := e.result(c.Result())
	if inResults[schema] != off {
		if structured := c.Result().Get("structuredContent"); structured.Exists() && !c.Result().Get("isError").IsTrue() {
			e.judge(c, of, structured)
		}
	}
	e.finish(c, of, changed, weir.JSON(out))
}

// finish answers. Without another result to show there is none.
func (e *edit) finish(c *weir.CallResult, of string, changed bool, to weir.JSON) {
	worst := e.found.worst(e.rules)
	if worst == off {
		return
	}
	if worst == block || changed && to == "" {
		e.found.report("results", of, "blocked")
		c.LogField("guardrail", e.found.String())
		c.Deny(weir.Forbidden, "the guardrail withholds the answer: "+e.found.String())
		return
	}
	becomes := "flagged"
	if changed {
		becomes = "redacted"
		c.Respond(to)
	}
	e.found.report("results", of, becomes)
	c.LogField("guardrail", e.found.String())
}

// result writes a result anew, without what is to be redacted. Blocks of content
// are looked at one by one: a link that leads inwards goes as a whole.
func (e *edit) result(v weir.Value) (out []byte, changed bool) {
	return e.object(v, func(name string, value weir.Value) ([]byte, bool) {
		if name == "requestState" {
			return value.View().Bytes(), false // the client hands it back as it is
		}
		if name != "content" || !value.IsArray() {
			return e.member(name, value)
		}
		var b []byte
		all := false
		for block := range value.Array() {
			one, is := e.block(block)
			if all = all || is; one == nil {
				continue
			}
			if len(b) > 0 {
				b = append(b, ',')
			}
			b = append(b, one...)
		}
		return append(append([]byte{'['}, b...), ']'), all
	})
}

// block writes a block of content anew, nil for one that is dropped.
func (e *edit) block(v weir.Value) ([]byte, bool) {
	if e.rules[urls] != off && v.Get("type").Is("resource_link") {
		if uri := plain(v.Get("uri").Text()); (inward(uri) || !hasFold(uri, "file:") && harmful(uri)) && e.find(urls) == redact {
			return nil, true
		}
	}
	if !v.IsObject() {
		return rewrite(v.View().Bytes(), e.text)
	}
	return e.object(v, e.member)
}

// object writes an object anew with what member makes of each of its values.
func (e *edit) object(v weir.Value, member func(string, weir.Value) ([]byte, bool)) ([]byte, bool) {
	out, changed := []byte{'{'}, false
	for name, value := range v.Object() {
		to, is := member(name.Text(), value)
		key, renamed := rewrite(name.View().Bytes(), func(s string, _ bool) (string, bool) { return e.text(s, true) })
		changed = changed || is || renamed
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), to...)
	}
	return append(out, '}'), changed
}

// judge holds structured content to the schema that the tool was listed with.
func (e *edit) judge(c *weir.CallResult, of string, structured weir.Value) {
	text, known := kin(e.backend, c.Tool().String())
	if !known {
		weir.Info(of + ": the schema of its results is not known: it was listed under another name, or longer than a day ago")
		return
	}
	v := judge{budget: maxSteps}
	if wrong := v.value(weir.Parse(text), structured, "", 0); wrong != "" {
		e.find(schema)
		weir.Info(of + ": structuredContent" + readable(wrong))
	}
}

const day = 24 * 60 * 60 * 1000

// keep leaves the schema of a tool's results where a call finds it; null is that
// of a tool without one.
func keep(backend, tool string, s weir.Value) {
	text := []byte("null")
	if s.IsObject() {
		text = s.View().Bytes()
	}
	if err := weir.KVSet(key(backend, tool), text, day); err != nil {
		weir.Warn("the schema of results of " + backend + "/" + readable(tool) + " cannot be kept: " + err.Error())
	}
}

// kin finds the schema of a tool by the name that clients see, which may have
// the name of the backend before it.
func kin(backend, tool string) ([]byte, bool) {
	for _, name := range []string{tool, bare(backend, tool)} {
		if name == "" {
			continue
		}
		if text, err := weir.KVGet(key(backend, name), nil); err == nil {
			_ = weir.KVSet(key(backend, name), text, day) // it fitted before
			return text, true
		}
	}
	return nil, false
}

func bare(backend, tool string) string {
	rest, ok := strings.CutPrefix(tool, backend)
	if !ok || rest == "" {
		return ""
	}
	return strings.TrimLeft(rest[:1], "_-./") + rest[1:]
}

// key is of a length that a store takes, whatever a name is.
func key(backend, tool string) string {
	sum := weir.SHA256([]byte(backend + "\x00" + tool))
	return "schema-" + string(hex(sum[:16]))
}

func hex(b []byte) []byte {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 2*len(b))
	for _, c := range b {
		out = append(out, digits[c>>4], digits[c&15])
	}
	return out
}
