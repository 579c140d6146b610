package scripting

import (
	"fmt"
	"strings"

	"go.starlark.net/lib/json"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// jsonModule is the language's own, bounded as values from tools are: depth, count and
// digits in both directions.
func jsonModule() starlark.Value {
	members := make(starlark.StringDict, len(json.Module.Members))
	for name, member := range json.Module.Members {
		members[name] = starlark.NewBuiltin(member.(*starlark.Builtin).Name(), func(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
			if name != "encode_indent" {
				return jsonCall(thread, name, b.Name(), args, named)
			}
			// The text comes first: it says how many lines there are, and how deep.
			text, err := jsonCall(thread, "encode", b.Name(), args, nil)
			if err != nil {
				return nil, err
			}
			return jsonCall(thread, "indent", b.Name(), starlark.Tuple{text}, named)
		})
	}
	return &starlarkstruct.Module{Name: "json", Members: members}
}

// jsonCall calls a function of the language's module. In its errors it has the name as.
func jsonCall(thread *starlark.Thread, name, as string, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if err := jsonBounds(thread, name, args, named); err != nil {
		return nil, fmt.Errorf("%s: %w", as, err)
	}
	v, err := json.Module.Members[name].(*starlark.Builtin).CallInternal(thread, args, named)
	if err != nil {
		return nil, verb(err, "json."+name+":", as+":")
	}
	if text, ok := v.(starlark.String); ok && name == "encode" && strings.Contains(string(text), `\x7f`) {
		// The language escapes U+007F as JSON does not. A backslash of a text is two, which are
		// kept apart as a NUL: JSON has none.
		apart := strings.ReplaceAll(string(text), `\\`, "\x00")
		v = starlark.String(strings.ReplaceAll(strings.ReplaceAll(apart, `\x7f`, "\x7f"), "\x00", `\\`))
	}
	return v, taskOf(thread).run.charge(v)
}

// jsonBounds looks at what a function of the module is given.
func jsonBounds(thread *starlark.Thread, name string, args starlark.Tuple, named []starlark.Tuple) error {
	r := taskOf(thread).run
	if name == "encode" {
		size := 0
		for _, v := range args {
			w := weigher{left: MaxNodes, json: true, cycles: true, payer: r.meter, thread: thread} // a cycle has its own error
			if err := w.weigh(v, 0); err != nil {
				return err
			}
			size += w.bytes
		}
		return r.runes(thread, size)
	}
	if len(args) == 0 {
		return nil
	}
	text, _ := starlark.AsString(args[0])
	made, err := jsonText(text)
	if err != nil {
		return err
	}
	size := len(text)
	if name == "indent" {
		prefix, indent, given := 0, len("\t"), 0
		for _, pair := range named {
			n := max(0, starlark.Len(pair[1]))
			if given += n; pair[0] == starlark.String("prefix") {
				prefix = n
			} else {
				indent = n
			}
		}
		if given > 64 {
			return fmt.Errorf("prefix and indent are longer than 64 bytes")
		}
		size += made.lines*(len("\n ")+prefix) + made.depths*indent
	} else if r.meter != nil {
		if err := r.meter.allocate(made.size); err != nil {
			return err
		}
		if err := r.meter.work(thread, size/2); err != nil { // as Task.Value
			return err
		}
		if crowded(text) {
			return errCrowded
		}
	}
	return r.runes(thread, size)
}

// jsonMade is what becomes of a JSON text.
type jsonMade struct {
	size   int // of its values in memory, roughly
	lines  int // when it is indented, at the most: each may have a space after a colon
	depths int // of all these lines together
}

// jsonText refuses a text that the decoder would take too long or too deep for.
func jsonText(text string) (made jsonMade, err error) {
	depth, values, digits := 0, 1, 0
	inside, escaped := false, false
	made.size = len(text)
	for i := range len(text) {
		c := text[i]
		if inside {
			switch {
			case escaped:
				escaped = false
			case c == '\\':
				escaped = true
			case c == '"':
				inside = false
			}
			continue
		}
		if c >= '0' && c <= '9' {
			if digits++; digits > MaxDigits {
				return made, errDigits
			}
			continue
		}
		digits = 0
		switch c {
		case '"':
			inside = true
			made.size += sizeText
			continue
		case '[', '{':
			if depth++; depth > MaxDepth {
				return made, errDepth
			}
			values++
			made.size += sizeList
			if c == '{' {
				made.size += sizeDict
			}
		case ']', '}':
			depth--
		case ',':
			made.size += 2 * sizeElement
			if values++; values > MaxNodes {
				return made, errNodes
			}
		default:
			continue
		}
		made.lines++
		made.depths += max(0, depth)
	}
	return made, nil
}
