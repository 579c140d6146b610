package workflow

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"text/template"
	"text/template/parse"
)

// The language's own package is the judge of ours. It is given what is our own in it: the
// text of objects, arrays and numbers, and that to print nothing is an error.

// number prints as ours do with v and s, and as the language's with other verbs.
type number float64

func (n number) Format(s fmt.State, verb rune) {
	var v any = float64(n)
	if verb == 'v' || verb == 's' {
		v = decimal(n).String()
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), v)
}

// integer prints as a number of JSON does to the language with the verbs for such, of which ours
// says that it is whole, and as the language's with other verbs.
type integer struct{ plain any }

func (n integer) Format(s fmt.State, verb rune) {
	v := n.plain
	switch verb {
	case 'e', 'E', 'f', 'F', 'g', 'G':
		n, _ := whole(v)
		v = float64(n)
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), v)
}

var errNothing = errors.New("nothing has no text")

// judged is a value as the language's functions are to print it.
func judged(v any, numbers bool) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, errNothing
	case map[string]any, []any:
		return string(appendData(nil, v)), nil
	case digits:
		return string(v), nil
	case decimal:
		if numbers {
			return number(v), nil
		}
	case float64: // a constant
		return judged(decimal(v), numbers)
	case int64, int, byte:
		if numbers {
			return integer{v}, nil
		}
	}
	return v, nil
}

func judgedAll(args []any, numbers bool, print func(...any) string) (string, error) {
	out := make([]any, len(args))
	for i, v := range args {
		var err error
		if out[i], err = judged(v, numbers); err != nil {
			return "", err
		}
	}
	return print(out...), nil
}

// judgedFunctions notes whether printf had values too many, or others that are printed with the
// names of their types.
func judgedFunctions(extra *bool) template.FuncMap {
	printing := func(print func(...any) string) any {
		return func(args ...any) (string, error) { return judgedAll(args, false, print) }
	}
	return template.FuncMap{
		"_print":   func(v any) (any, error) { return judged(v, false) },
		"print":    printing(fmt.Sprint),
		"println":  printing(fmt.Sprintln),
		"html":     printing(template.HTMLEscaper),
		"js":       printing(template.JSEscaper),
		"urlquery": printing(template.URLQueryEscaper),
		"printf": func(format string, args ...any) (string, error) {
			return judgedAll(args, true, func(args ...any) string {
				s := fmt.Sprintf(format, args...)
				*extra = *extra || strings.Contains(s, "EXTRA") || strings.Contains(s, "(workflow.")
				return s
			})
		},
		"json": func(v any) string {
			if f, ok := v.(float64); ok {
				v = decimal(f)
			}
			return string(appendData(nil, v))
		},
		"quote": func(v any) (string, error) {
			s, err := judgedAll([]any{v}, false, fmt.Sprint)
			return string(appendData(nil, s)), err
		},
		"fromJson": func(v any) (any, error) {
			s, err := judgedAll([]any{v}, false, fmt.Sprint)
			if err != nil {
				return nil, err
			}
			return read([]byte(s))
		},
	}
}

// printers has what a list prints go through _print.
func printers(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.ActionNode:
			if len(n.Pipe.Decl) == 0 {
				n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Args: []parse.Node{parse.NewIdentifier("_print")}})
			}
		case *parse.IfNode:
			printers(n.List)
			printers(n.ElseList)
		case *parse.WithNode:
			printers(n.List)
			printers(n.ElseList)
		case *parse.RangeNode:
			printers(n.List)
			printers(n.ElseList)
		}
	}
}

// judge is what the language's package says: a text, whether printf had values too many, an
// error of parsing, or one of running.
func judge(s string, data map[string]any) (out string, extra bool, parsed, ran error) {
	t, err := template.New(mainTree).Funcs(judgedFunctions(&extra)).Option("missingkey=error").Parse(s)
	if err != nil {
		return "", false, err, nil
	}
	for _, each := range t.Templates() {
		printers(each.Root)
	}
	var b strings.Builder
	err = t.Execute(&limited{&b, 4 * maxRendered}, data)
	return b.String(), extra, nil, err
}

// limited is a writer of a number of bytes.
type limited struct {
	io.Writer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, io.ErrShortWrite
	}
	return l.Writer.Write(b)
}

// beyond says whether an error is one of our own bounds, of which the language knows nothing.
func beyond(err error) bool {
	for _, bound := range []string{"steps of a template", "takes longer than", "turns of range", "renders more than", " deep", "a width of more", "is not available"} {
		if strings.Contains(err.Error(), bound) {
			return true
		}
	}
	return false
}

// differs says whether a template reaches what we mean to have otherwise: a large integer
// is a number to printf, and a part of one is a text; numbers have no methods.
func differs(s string) bool {
	large := strings.Contains(s, "big") || strings.Contains(s, "fromJson")
	return large && (strings.Contains(s, "slice") || strings.Contains(s, "printf")) || strings.Contains(s, "String") || strings.Contains(s, "_print")
}

// compare renders a template by both, and returns whether they gave a text.
func compare(t *testing.T, s string, data map[string]any) bool {
	t.Helper()
	ours, parsed := parseTemplate(s)
	if parsed == nil {
		got, err := ours.render(data, nil)
		if err != nil && beyond(err) {
			return false
		}
		want, extra, bad, failed := judge(s, data)
		switch {
		case bad != nil:
			t.Errorf("%s\nis refused by the language: %s", s, bad)
		case extra:
			return false
		case failed != nil && strings.Contains(failed.Error(), "cannot index slice/array with type interface {}"):
			return false // slice .word .n: the language forgets to look at what .n is, unless it is (.n)
		case failed != nil && strings.Contains(failed.Error(), "incompatible types for comparison"):
			return false // of an integer and a number, which we compare
		case (err == nil) != (failed == nil):
			t.Errorf("%s\n got %q, %v\nwant %q, %v", s, got, err, want, failed)
		case err == nil && got != want:
			t.Errorf("%s\n got %q\nwant %q", s, got, want)
		}
		return err == nil
	}
	if _, _, bad, _ := judge(s, data); bad == nil && len(s) <= maxTemplate {
		t.Errorf("%s\nis refused by us alone: %s", s, parsed)
	}
	return false
}
