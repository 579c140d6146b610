package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/scripting"
)

// What templates read is made of nil, bool, string, int64, digits, decimal, []any and
// map[string]any. Constants and functions of templates add int, byte (of index into a text)
// and complex128.

// digits are those of an integer beyond int64.
type digits string

// decimal is a number that is not whole.
type decimal float64

// String writes the number without an exponent below 1e21.
func (d decimal) String() string {
	if d > -1e21 && d < 1e21 {
		return strconv.FormatFloat(float64(d), 'f', -1, 64)
	}
	return strconv.FormatFloat(float64(d), 'g', -1, 64)
}

// maxData bounds how many values one step shows to templates.
const maxData = scripting.MaxNodes

// dataOf makes what templates read of a value of the language.
func dataOf(v starlark.Value) (any, error) {
	c := converter{left: maxData}
	return c.value(v, 0)
}

// readable is the error of dataOf, without what it makes: most outputs are read by no template.
func readable(v starlark.Value) error {
	c := converter{left: maxData, dry: true}
	_, err := c.value(v, 0)
	return err
}

// heldBy is about how many bytes a value that templates read takes in memory.
func heldBy(v any) (bytes int64) {
	switch v := v.(type) {
	case map[string]any:
		bytes = 48
		if len(v) > 0 {
			bytes += 288 + 40*int64(max(0, len(v)-8))
		}
		for name, x := range v {
			bytes += int64(len(name)) + heldBy(x)
		}
	case []any:
		bytes = 24 + 16*int64(len(v))
		for _, x := range v {
			bytes += heldBy(x)
		}
	case string:
		bytes = 16 + int64(len(v))
	case digits:
		bytes = 16 + int64(len(v))
	case nil, bool:
	default:
		bytes = 8
	}
	return bytes
}

type converter struct {
	left int
	dry  bool // nothing is made
}

func (c *converter) value(v starlark.Value, depth int) (any, error) {
	if c.left--; c.left < 0 {
		return nil, fmt.Errorf("more than %d values", maxData)
	}
	switch v := v.(type) {
	case starlark.NoneType:
		return nil, nil
	case starlark.Bool:
		return bool(v), nil
	case starlark.String:
		if c.dry {
			return nil, nil
		}
		return string(v), nil
	case starlark.Int:
		if n, ok := v.Int64(); ok {
			return n, nil
		}
		if v.BigInt().BitLen() > 14_000 { // beyond the digits that JSON may have
			return nil, fmt.Errorf("an integer of more than %d digits", scripting.MaxDigits)
		}
		return digits(v.String()), nil
	case starlark.Float:
		return decimal(v), nil
	}
	if depth == scripting.MaxDepth {
		return nil, fmt.Errorf("deeper than %d", scripting.MaxDepth)
	}
	switch v := v.(type) {
	case *starlark.Dict:
		var m map[string]any
		if !c.dry {
			m = make(map[string]any, v.Len())
		}
		for key, x := range v.Entries() {
			name, ok := starlark.AsString(key)
			if n, isInt := key.(starlark.Int); isInt {
				if small, fits := n.Int64(); fits {
					name, ok = strconv.FormatInt(small, 10), true
				}
			}
			if !ok {
				return nil, fmt.Errorf("a key of type %s has no JSON form", key.Type())
			}
			value, err := c.value(x, depth+1)
			if err != nil {
				return nil, err
			}
			if !c.dry {
				m[name] = value
			}
		}
		return m, nil
	case starlark.Sequence:
		var list []any
		if !c.dry {
			list = make([]any, 0, min(v.Len(), c.left+1))
		}
		for x := range starlark.Elements(v) {
			e, err := c.value(x, depth+1)
			if err != nil {
				return nil, err
			}
			if !c.dry {
				list = append(list, e)
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("%s has no JSON form", v.Type())
}

// read makes what templates read of a JSON text, within the bounds of a value.
func read(text []byte) (any, error) {
	v, err := scripting.Plain(text)
	if err != nil {
		return nil, err
	}
	return numbers(v), nil
}

// normal is a JSON text with one name once, and numbers in range.
func normal(text []byte) ([]byte, error) {
	wire, err := scripting.FromJSON(text)
	if err != nil {
		return nil, err
	}
	return scripting.ToJSON(wire)
}

// numbers puts numbers of our own in place of those of the decoder.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n
		}
		if strings.ContainsAny(string(v), ".eE") {
			f, _ := v.Float64() // in range, as normal has seen
			return decimal(f)
		}
		return digits(v)
	case map[string]any:
		for k, x := range v {
			v[k] = numbers(x)
		}
	case []any:
		for i, x := range v {
			v[i] = numbers(x)
		}
		return slices.Clip(v) // slice may go up to the capacity, as in the language
	}
	return v
}

// appendData writes the JSON text of what templates read, names in order.
func appendData(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return mcp.AppendString(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case byte:
		return strconv.AppendUint(b, uint64(v), 10)
	case digits:
		return append(b, v...)
	case json.Number: // of the decoder
		return append(b, v...)
	case decimal:
		text, _ := json.Marshal(float64(v)) // finite
		return append(b, text...)
	case []any:
		b = append(b, '[')
		for i, x := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendData(b, x)
		}
		return append(b, ']')
	case map[string]any:
		b = append(b, '{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendData(append(mcp.AppendString(b, k), ':'), v[k])
		}
		return append(b, '}')
	}
	return mcp.AppendString(b, fmt.Sprint(v))
}

// weigh is about how long the text of a value is. It stops when that is more than most.
func weigh(v any, most int) int {
	switch v := v.(type) {
	case string:
		return len(v) + 2
	case digits:
		return len(v)
	case nil, bool:
		return 5
	case int64:
		var digits [20]byte
		return len(strconv.AppendInt(digits[:0], v, 10))
	case []any:
		n := 2
		for _, x := range v {
			if n += 1 + weigh(x, most-n); n > most {
				break
			}
		}
		return n
	case map[string]any:
		n := 2
		for k, x := range v {
			if n += 4 + len(k) + weigh(x, most-n); n > most {
				break
			}
		}
		return n
	}
	return 24
}
