package client

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Questions puts what a server asks (elicitation/create) to the user.
type Questions struct {
	out   io.Writer
	lines *bufio.Reader // of the terminal; nil without one
	typed chan read     // the line that is waited for; nil for none
}

// read is what came of waiting for a line.
type read struct {
	line string
	err  error
}

// NewQuestions asks on a terminal. lines is what the user types there; nil without a
// terminal, when every question is declined.
func NewQuestions(out io.Writer, lines *bufio.Reader) *Questions {
	return &Questions{out: out, lines: lines}
}

// errNoMore is what readLine returns at the end of input (Ctrl-D).
var errNoMore = errors.New("end of input")

// Ask asks the user and returns the result of elicitation/create. Params are
// those of the request.
func (q *Questions) Ask(ctx context.Context, params []byte) ([]byte, error) {
	message := edge.Clean(mcp.String(mcp.Lookup(params, "message")))
	fmt.Fprintf(q.out, "The server asks: %s\n", message)
	if q.lines == nil {
		fmt.Fprintln(q.out, "Declined, since standard input is not a terminal.")
		return []byte(`{"action":"decline"}`), nil
	}
	var content []byte
	var err error
	if target := mcp.String(mcp.Lookup(params, "url")); target != "" {
		fmt.Fprintf(q.out, "Open %s in a browser.\n", edge.Clean(target))
		err = q.confirm(ctx, "Will you")
	} else {
		content, err = q.form(ctx, mcp.Lookup(params, "requestedSchema"))
	}
	switch {
	case errors.Is(err, errNoMore):
		fmt.Fprintln(q.out)
		return []byte(`{"action":"cancel"}`), nil
	case errors.Is(err, errDeclined):
		return []byte(`{"action":"decline"}`), nil
	case errors.Is(err, errWithdrawn):
		fmt.Fprintln(q.out, "\nNo answer is needed any more.")
		return nil, err
	case err != nil:
		return nil, err
	case content == nil:
		return []byte(`{"action":"accept"}`), nil
	}
	return append(append([]byte(`{"action":"accept","content":`), content...), '}'), nil
}

// errDeclined is what confirm returns when the user says no.
var errDeclined = errors.New("declined")

func (q *Questions) confirm(ctx context.Context, what string) error {
	answer, err := q.readLine(ctx, what+"? [y/N] ")
	if err != nil {
		return err
	}
	if a := strings.ToLower(answer); a != "y" && a != "yes" {
		return errDeclined
	}
	return nil
}

// form asks for each property of a schema, which has no depth (elicitation,
// requested schema), and returns the content.
func (q *Questions) form(ctx context.Context, schema []byte) ([]byte, error) {
	properties := mcp.Members(mcp.Lookup(schema, "properties"))
	if len(properties) == 0 {
		return []byte(`{}`), q.confirm(ctx, "Do you agree")
	}
	var required []string
	for _, name := range mcp.Elements(mcp.Lookup(schema, "required")) {
		required = append(required, mcp.String(name))
	}
	if slices.ContainsFunc(properties, func(p mcp.Member) bool {
		return mcp.Lookup(p.Value, "default") != nil || !slices.Contains(required, string(mcp.Unquote(p.Name)))
	}) {
		fmt.Fprintln(q.out, "An empty line takes what is in brackets.")
	}
	fmt.Fprintln(q.out, "Ctrl-D gives no answer.")
	var set []mcp.Member
	for _, p := range properties {
		value, err := q.property(ctx, p, slices.Contains(required, string(mcp.Unquote(p.Name))))
		if err != nil {
			return nil, err
		}
		if value != nil {
			set = append(set, mcp.Raw(string(p.Name), value))
		}
	}
	return mcp.Change(nil, nil, set...), nil
}

// property asks for one property until the answer fits; nil for none.
func (q *Questions) property(ctx context.Context, p mcp.Member, required bool) ([]byte, error) {
	text := func(name string) string { return edge.Clean(mcp.String(mcp.Lookup(p.Value, name))) }
	label := text("title")
	if label == "" {
		label = edge.Clean(string(mcp.Unquote(p.Name)))
	}
	if d := text("description"); d != "" {
		label += " (" + d + ")"
	}
	choices := choicesOf(p.Value)
	for i, c := range choices {
		fmt.Fprintf(q.out, "  %d  %s\n", i+1, c.said[0])
	}
	fallback := mcp.Lookup(p.Value, "default")
	switch {
	case fallback != nil:
		label += " [" + edge.Clean(plain(fallback)) + "]"
	case !required:
		label += " []"
	}
	for {
		answer, err := q.readLine(ctx, label+": ")
		if err != nil {
			return nil, err
		}
		if answer == "" {
			if fallback != nil || !required {
				return fallback, nil
			}
			fmt.Fprintln(q.out, "An answer is needed here.")
			continue
		}
		value, wrong := parse(p.Value, choices, answer)
		if wrong == "" {
			return value, nil
		}
		fmt.Fprintln(q.out, wrong)
	}
}

// choice is one value of an enumeration, JSON text, and what a user may say for it: what is shown for
// it, its number, the value.
type choice struct {
	value []byte
	said  [3]string
}

// choicesOf returns the values that a property, or the items of one that takes
// several, may have.
func choicesOf(schema []byte) []choice {
	if items := mcp.Lookup(schema, "items"); items != nil {
		schema = items
	}
	var out []choice
	add := func(value, name []byte) {
		if value != nil {
			out = append(out, choice{value, [3]string{edge.Clean(cmp.Or(mcp.String(name), plain(value))), fmt.Sprint(len(out) + 1), plain(value)}})
		}
	}
	values := mcp.Elements(mcp.Lookup(schema, "enum"))
	names := append(mcp.Elements(mcp.Lookup(schema, "enumNames")), make([][]byte, len(values))...) // which may be fewer
	for i, v := range values {
		add(v, names[i])
	}
	for _, keyword := range []string{"oneOf", "anyOf"} {
		for _, v := range mcp.Elements(mcp.Lookup(schema, keyword)) {
			add(mcp.Lookup(v, "const"), mcp.Lookup(v, "title"))
		}
	}
	return out
}

// parse makes JSON text of an answer, or says why it does not fit.
func parse(schema []byte, choices []choice, answer string) (value []byte, wrong string) {
	switch kind := mcp.String(mcp.Lookup(schema, "type")); {
	case kind == "array":
		value = []byte{'['}
		for i, part := range strings.Split(answer, ",") {
			one, wrong := pick(choices, strings.TrimSpace(part))
			if wrong != "" {
				return nil, wrong
			}
			if i > 0 {
				value = append(value, ',')
			}
			value = append(value, one...)
		}
		return append(value, ']'), ""
	case choices != nil:
		return pick(choices, answer)
	case kind == "boolean":
		switch strings.ToLower(answer) {
		case "y", "yes", "true":
			return []byte("true"), ""
		case "n", "no", "false":
			return []byte("false"), ""
		}
		return nil, "Say yes or no."
	case kind == "integer" || kind == "number":
		n, ok := new(big.Float).SetString(answer)
		if !ok || mcp.Valid([]byte(answer)) != nil {
			return nil, "A number is needed here."
		}
		if kind == "integer" && !n.IsInt() {
			return nil, "A whole number is needed here."
		}
		return []byte(answer), ""
	}
	return mcp.Quote(answer), ""
}

// pick finds a choice by what is shown for it, else by its number, else by its value: the value of one
// may be the number of another, and where there are titles the user sees the number alone.
func pick(choices []choice, answer string) (value []byte, wrong string) {
	for way := range len(choice{}.said) {
		for _, c := range choices {
			if answer == c.said[way] {
				return c.value, ""
			}
		}
	}
	if choices == nil {
		return mcp.Quote(answer), ""
	}
	return nil, fmt.Sprintf("%q is none of the choices: give a number from 1 to %d.", answer, len(choices))
}

// plain is a JSON value as somebody would type it.
func plain(value []byte) string {
	if value[0] == '"' {
		return mcp.String(value)
	}
	return string(value)
}

// readLine prompts for a line. It returns early when ctx ends; the goroutine
// that still waits for the line then reads that of the next question, or ends
// with the process.
func (q *Questions) readLine(ctx context.Context, prompt string) (string, error) {
	select {
	case <-q.typed: // what was typed after a question was withdrawn answers no other
		q.typed = nil
	default:
	}
	fmt.Fprint(q.out, prompt)
	if q.typed == nil {
		q.typed = make(chan read, 1)
		go func(typed chan<- read) {
			line, err := q.lines.ReadString('\n')
			typed <- read{line, err}
		}(q.typed)
	}
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-q.typed:
		q.typed = nil
		if r.err != nil && r.line == "" {
			return "", errNoMore
		}
		return strings.TrimSpace(r.line), nil
	}
}
