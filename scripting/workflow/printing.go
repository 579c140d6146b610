package workflow

import (
	"fmt"
	"html"
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge/mcp"
)

// quoted makes a JSON string of the text of a value.
func quoted(r *rendering, v []any) (any, error) {
	s, err := r.printed(v[0])
	if err == nil {
		err = r.spendText(len(s))
	}
	if err != nil {
		return nil, err
	}
	return bounded(string(mcp.AppendString(make([]byte, 0, len(s)+2), s)))
}

// fromJSON makes a value of a JSON text.
func fromJSON(r *rendering, v []any) (any, error) {
	s, err := r.printed(v[0])
	if err == nil {
		err = r.spend(2 * len(s)) // a value may have two bytes
	}
	if err != nil {
		return nil, err
	}
	out, err := read([]byte(s))
	if err != nil {
		return nil, misprinted("fromJson: %s", err)
	}
	return out, nil
}

// printing is a function that prints its values, and then may escape the text.
func printing(print func(...any) string, escape func(string) string) func(*rendering, []any) (any, error) {
	return func(r *rendering, values []any) (any, error) {
		size := 0
		for i, v := range values {
			switch v.(type) {
			case nil, map[string]any, []any, digits:
				s, err := r.printed(v)
				if err != nil {
					return nil, err
				}
				values[i] = s
			}
			size += weigh(values[i], maxRendered)
		}
		if size > 2*maxRendered {
			return nil, misprinted("renders more than %d bytes", maxRendered)
		}
		if err := r.spendText(size); err != nil {
			return nil, err
		}
		s, err := bounded(print(values...))
		if err != nil || escape == nil {
			return s, err
		}
		if err := r.spendText(2 * len(s)); err != nil {
			return nil, err
		}
		return bounded(escape(s))
	}
}

// escapeHTML escapes a text as the language does.
func escapeHTML(s string) string {
	return strings.ReplaceAll(html.EscapeString(s), "\x00", "\uFFFD")
}

// escapeJS escapes a text as the language does, to stand within a JavaScript string.
func escapeJS(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\\' || r == '\'' || r == '"':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || strings.ContainsRune("<>&=", r), r >= utf8.RuneSelf && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// maxWidth bounds a width and a precision of printf.
const maxWidth = 1000

// printf is the language's, with widths of at most 1,000 and each value once, so that the
// length of the text is bounded by those of the values.
func printf(r *rendering, values []any) (any, error) {
	format, ok := values[0].(string)
	if !ok {
		return nil, fmt.Errorf("the format is %s, and must be a string", kindOf(values[0]))
	}
	values = values[1:]
	if err := r.spendText(len(format)); err != nil {
		return nil, err
	}
	verbs, widths, err := verbsOf(format)
	if err != nil {
		return nil, err
	}
	size := len(format) + widths
	for i, v := range values {
		verb := 'v'
		if i < len(verbs) {
			verb = verbs[i]
		}
		switch v := v.(type) {
		case nil, map[string]any, []any:
			s, err := r.printed(v)
			if err != nil {
				return nil, err
			}
			values[i] = s
		case decimal:
			if values[i] = float64(v); verb == 'v' || verb == 's' {
				values[i] = v.String()
			}
		case int64, int, byte:
			if n, _ := whole(v); strings.ContainsRune(fractional, verb) {
				values[i] = floating(big.NewInt(n))
			}
		case digits:
			values[i] = string(v)
			n, ok := new(big.Int).SetString(string(v), 10)
			switch {
			case ok && strings.ContainsRune(fractional, verb):
				values[i] = floating(n)
			case ok && strings.ContainsRune("dboxXO", verb):
				values[i] = n
			}
		}
		size += weigh(values[i], 2*maxRendered)
	}
	if size > 2*maxRendered {
		return nil, misprinted("renders more than %d bytes", maxRendered)
	}
	if err := r.spendText(4 * size); err != nil { // %q and %x make more of a text
		return nil, err
	}
	return bounded(fmt.Sprintf(format, values...))
}

// fractional are the verbs for numbers that need not be whole. One of JSON that is, as 3.0 or 3e0,
// is an integer here.
const fractional = "eEfFgG"

// floating is a whole number as these verbs take it, with all its digits.
func floating(n *big.Int) any {
	f := new(big.Float).SetInt(n)
	if small, how := f.Float64(); how == big.Exact {
		return small
	}
	return f
}

// verbsOf are the verbs of a format that take a value each, in their order, and the sum of
// the widths and precisions.
func verbsOf(format string) (verbs []rune, widths int, err error) {
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		n := 0
		for i++; i < len(format) && strings.IndexByte("+-# 0123456789.*[]", format[i]) >= 0; i++ {
			switch c := format[i]; {
			case c == '*' || c == '[':
				return nil, 0, misprinted("printf: %c is not available", c)
			case c >= '0' && c <= '9':
				last := n
				if n = n*10 + int(c-'0'); n > maxWidth {
					return nil, 0, misprinted("printf: a width of more than %d", maxWidth)
				}
				widths += n - last
			default:
				n = 0
			}
		}
		verb, size := utf8.DecodeRuneInString(format[i:])
		switch {
		case verb == 'T':
			return nil, 0, misprinted("printf: %%T is not available")
		case size > 0 && verb != '%':
			verbs = append(verbs, verb)
		}
		i += max(size-1, 0)
	}
	return verbs, widths, nil
}
