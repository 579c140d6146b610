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
		plain := member.(*starlark.Builtin)
		members[name] = starlark.NewBuiltin(plain.Name(), func(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
			if err := jsonBounds(thread, name, args, named); err != nil {
				return nil, fmt.Errorf("%s: %w", b.Name(), err)
			}
			v, err := plain.CallInternal(thread, args, named)
			if err != nil {
				return nil, err
			}
			return v, taskOf(thread).run.charge(v)
		})
	}
	return &starlarkstruct.Module{Name: "json", Members: members}
}

// jsonBounds looks at what a function of the module is given.
func jsonBounds(thread *starlark.Thread, name string, args starlark.Tuple, named []starlark.Tuple) error {
	r := taskOf(thread).run
	size := 0
	if name == "encode" || name == "encode_indent" {
		for _, v := range args {
			w := weigher{left: MaxNodes, cycles: true, payer: r.meter, thread: thread} // a cycle has its own error
			if err := w.weigh(v, 0); err != nil {
				return err
			}
			size += w.bytes
		}
	} else if len(args) > 0 {
		text, _ := starlark.AsString(args[0])
		size = len(text)
		made, err := jsonText(text)
		if err != nil {
			return err
		}
		if name == "decode" && r.meter != nil {
			if err := r.meter.allocate(made); err != nil {
				return err
			}
			if crowded(text) {
				return errCrowded
			}
		}
	}
	if strings.HasSuffix(name, "indent") {
		// Each value and each bracket may have a line of its own, indented up to the depth.
		line := 0
		for _, pair := range named {
			if text, ok := starlark.AsString(pair[1]); ok {
				line += len(text) * MaxDepth
			}
		}
		if line/MaxDepth > 64 {
			return fmt.Errorf("prefix and indent are longer than 64 bytes")
		}
		size += size / 2 * max(line/MaxDepth, 1)
	}
	return r.work(thread, size, 0)
}

// jsonText refuses a text that the decoder would take too long or too deep for, and returns
// roughly what its values take.
func jsonText(text string) (size int, err error) {
	depth, values, digits := 0, 1, 0
	inside, escaped := false, false
	size = len(text)
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
				return 0, errDigits
			}
			continue
		}
		digits = 0
		switch c {
		case '"':
			inside = true
			size += sizeText
		case '[', '{':
			if depth++; depth > MaxDepth {
				return 0, errDepth
			}
			values++
			size += sizeList
			if c == '{' {
				size += sizeDict
			}
		case ']', '}':
			depth--
		case ',':
			size += 2 * sizeElement
			if values++; values > MaxNodes {
				return 0, errNodes
			}
		}
	}
	return size, nil
}
