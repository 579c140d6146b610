package workflow

import (
	"fmt"
	"net/url"
	"strings"
	"text/template"

	"github.com/weir-edge/weir/edge/mcp"
)

// functions are those of templates: json, quote and fromJson, and in place of functions of
// the language that print, such as are bounded and print nothing for nothing.
func (r *rendering) functions() template.FuncMap {
	return template.FuncMap{
		"json": func(v any) (string, error) {
			if weigh(v) > 2*maxRendered {
				return "", misprinted("renders more than %d bytes", maxRendered)
			}
			return bounded(string(appendData(nil, v)))
		},
		"quote": func(v any) (string, error) {
			s, err := printed(v)
			if err != nil {
				return "", err
			}
			return bounded(string(mcp.AppendString(nil, s)))
		},
		"fromJson": func(v any) (any, error) {
			s, err := printed(v)
			if err != nil {
				return nil, err
			}
			out, err := read([]byte(s))
			if err != nil {
				return nil, misprinted("fromJson: %s", err)
			}
			if err := r.late(); err != nil {
				return nil, err
			}
			return out, nil
		},
		"print":    func(args ...any) (string, error) { return r.all("", fmt.Sprint, args) },
		"println":  func(args ...any) (string, error) { return r.all("", fmt.Sprintln, args) },
		"html":     func(args ...any) (string, error) { return r.all("html", fmt.Sprint, args) },
		"js":       func(args ...any) (string, error) { return r.all("js", fmt.Sprint, args) },
		"urlquery": func(args ...any) (string, error) { return r.all("urlquery", fmt.Sprint, args) },
		"printf":   r.printf,
	}
}

// all prints its values, and escapes the text.
func (r *rendering) all(escape string, print func(...any) string, args []any) (string, error) {
	if err := r.late(); err != nil {
		return "", err
	}
	total := 0
	for i, v := range args {
		switch v.(type) {
		case nil, map[string]any, []any, digits:
			s, err := printed(v)
			if err != nil {
				return "", err
			}
			args[i] = s
		}
		if total += weigh(args[i]); total > 2*maxRendered {
			return "", misprinted("renders more than %d bytes", maxRendered)
		}
	}
	s, err := bounded(print(args...))
	if err != nil {
		return "", err
	}
	switch escape {
	case "html":
		s = template.HTMLEscapeString(s)
	case "js":
		s = template.JSEscapeString(s)
	case "urlquery":
		s = url.QueryEscape(s)
	}
	return bounded(s)
}

// maxWidth bounds a width and a precision of printf.
const maxWidth = 1000

// printf is the language's, with widths of at most 1,000 and each value once, so that the
// length of the text is bounded by those of the values.
func (r *rendering) printf(format string, args ...any) (string, error) {
	if err := r.late(); err != nil {
		return "", err
	}
	verbs := 0
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		verbs++
		n := 0
		for i++; i < len(format) && strings.IndexByte("+-# 0123456789.*[]", format[i]) >= 0; i++ {
			switch c := format[i]; {
			case c == '*' || c == '[':
				return "", misprinted("printf: %c is not available", c)
			case c >= '0' && c <= '9':
				if n = n*10 + int(c-'0'); n > maxWidth {
					return "", misprinted("printf: a width of more than %d", maxWidth)
				}
			default:
				n = 0
			}
		}
	}
	total := len(format) + verbs*2*maxWidth
	for i, v := range args {
		switch v.(type) {
		case nil, map[string]any, []any:
			s, err := printed(v)
			if err != nil {
				return "", err
			}
			args[i] = s
		}
		total += weigh(args[i]) * 8
	}
	if total > 16*maxRendered {
		return "", misprinted("printf: its values are longer than %d bytes", 2*maxRendered)
	}
	return bounded(fmt.Sprintf(format, args...))
}
