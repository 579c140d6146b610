package client

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

func TestQuestions(t *testing.T) {
	const name = `{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","title":"Name","description":"as in the book"}},"required":["name"]}}`
	one := func(property, required string) string {
		return `{"message":"?","requestedSchema":{"type":"object","properties":{"p":` + property + `},"required":[` + required + `]}}`
	}
	for _, test := range []struct {
		name   string
		params string
		typed  string
		want   string
		shown  string // a part of what the user sees
	}{
		{"text", name, "Ada Lovelace\n", `{"action":"accept","content":{"name":"Ada Lovelace"}}`, "The server asks: Who?"},
		{"label", name, "A\n", `{"action":"accept","content":{"name":"A"}}`, "Name (as in the book): "},
		{"an empty line where an answer is needed", name, "\n\nA\n", `{"action":"accept","content":{"name":"A"}}`, "An answer is needed here."},
		{"no more lines", name, "", `{"action":"cancel"}`, ""},
		{"the last line has no end", name, "A", `{"action":"accept","content":{"name":"A"}}`, ""},
		{"quotes", name, "a\"b\\\n", `{"action":"accept","content":{"name":"a\"b\\"}}`, ""},
		{"optional and left out", one(`{"type":"string"}`, ``), "\n", `{"action":"accept","content":{}}`, "p []: "},
		{"default", one(`{"type":"integer","default":7}`, `"p"`), "\n", `{"action":"accept","content":{"p":7}}`, "p [7]: "},
		{"default of text", one(`{"type":"string","default":"x"}`, ``), "\n", `{"action":"accept","content":{"p":"x"}}`, "p [x]: "},
		{"integer", one(`{"type":"integer"}`, `"p"`), "many\n1.5\n12345678901234567890\n", `{"action":"accept","content":{"p":12345678901234567890}}`, "A whole number is needed here."},
		{"number", one(`{"type":"number"}`, `"p"`), "0x10\n-1.50\n", `{"action":"accept","content":{"p":-1.50}}`, "A number is needed here."},
		{"boolean", one(`{"type":"boolean"}`, `"p"`), "maybe\nYes\n", `{"action":"accept","content":{"p":true}}`, "Say yes or no."},
		{"boolean no", one(`{"type":"boolean"}`, `"p"`), "false\n", `{"action":"accept","content":{"p":false}}`, ""},
		{"choice by number", one(`{"type":"string","enum":["red","blue"]}`, `"p"`), "2\n", `{"action":"accept","content":{"p":"blue"}}`, "  2  blue"},
		{"choice by value", one(`{"type":"string","enum":["red","blue"],"enumNames":["Rot","Blau"]}`, `"p"`), "green\nred\n", `{"action":"accept","content":{"p":"red"}}`, `"green" is none of the choices: give a number from 1 to 2.`},
		{"choice by name", one(`{"type":"string","oneOf":[{"const":"r","title":"Red"}]}`, `"p"`), "Red\n", `{"action":"accept","content":{"p":"r"}}`, "  1  Red"},
		{"a value that is the number of another", one(`{"type":"string","enum":["2","1"]}`, `"p"`), "1\n", `{"action":"accept","content":{"p":"1"}}`, ""},
		{"a name that is the value of another", one(`{"type":"string","oneOf":[{"const":"x","title":"y"},{"const":"y","title":"2"}]}`, `"p"`), "y\n", `{"action":"accept","content":{"p":"x"}}`, "  1  y"},
		{"a number that is the hidden value of another", one(`{"type":"string","oneOf":[{"const":"3","title":"Low"},{"const":"2","title":"Mid"},{"const":"1","title":"High"}]}`, `"p"`), "1\n", `{"action":"accept","content":{"p":"3"}}`, "  1  Low"},
		{"a name that is the number of another", one(`{"type":"string","oneOf":[{"const":"x","title":"2"},{"const":"y","title":"z"}]}`, `"p"`), "2\n", `{"action":"accept","content":{"p":"x"}}`, ""},
		{"choices of numbers", one(`{"type":"integer","enum":[5,6]}`, `"p"`), "6\n", `{"action":"accept","content":{"p":6}}`, "  2  6\n"},
		{"choices of numbers by number", one(`{"type":"array","items":{"type":"integer","enum":[5,6]}}`, `"p"`), "1,2\n", `{"action":"accept","content":{"p":[5,6]}}`, ""},
		{"a choice without a name", one(`{"type":"string","oneOf":[{"const":"a"}]}`, `"p"`), "1\n", `{"action":"accept","content":{"p":"a"}}`, "  1  a\n"},
		{"fewer names than choices", one(`{"type":"string","enum":["a","b"],"enumNames":["A"]}`, `"p"`), "A\n", `{"action":"accept","content":{"p":"a"}}`, "  1  A\n  2  b\n"},
		{"several choices", one(`{"type":"array","items":{"anyOf":[{"const":"r","title":"Red"},{"const":"b","title":"Blue"}]}}`, `"p"`), "1, Blue\n", `{"action":"accept","content":{"p":["r","b"]}}`, ""},
		{"a name with a quote", `{"message":"?","requestedSchema":{"type":"object","properties":{"a\"b":{"type":"string"}}}}`, "x\n", `{"action":"accept","content":{"a\"b":"x"}}`, `a"b []: `},
		{"nothing to fill in, yes", `{"message":"Delete?","requestedSchema":{"type":"object","properties":{}}}`, "y\n", `{"action":"accept","content":{}}`, "Do you agree? [y/N] "},
		{"nothing to fill in, no", `{"message":"Delete?","requestedSchema":{"type":"object","properties":{}}}`, "\n", `{"action":"decline"}`, ""},
		{"a page to open", `{"mode":"url","message":"Log in","url":"https://x.example/"}`, "yes\n", `{"action":"accept"}`, "Open https://x.example/ in a browser."},
		{"a page not opened", `{"mode":"url","message":"Log in","url":"https://x.example/"}`, "n\n", `{"action":"decline"}`, ""},
		{"no tricks with the terminal", `{"message":"\u001b[2Jboo","requestedSchema":{"type":"object"}}`, "n\n", `{"action":"decline"}`, "The server asks: [2Jboo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			q := &Questions{out: &out, lines: bufio.NewReader(strings.NewReader(test.typed))}
			got, err := q.Ask(t.Context(), []byte(test.params))
			if err != nil || string(got) != test.want {
				t.Errorf("answers %s, %v; want %s", got, err, test.want)
			}
			if !strings.Contains(out.String(), test.shown) {
				t.Errorf("shows %q, want %q in it", out.String(), test.shown)
			}
		})
	}
}

func TestQuestionsWithoutATerminal(t *testing.T) {
	var out strings.Builder
	got, err := (&Questions{out: &out}).Ask(t.Context(), []byte(`{"message":"Who?"}`))
	if err != nil || string(got) != `{"action":"decline"}` || !strings.Contains(out.String(), "Who?\nDeclined, since standard input is not a terminal.") {
		t.Errorf("answers %s, %v, and says %s", got, err, out.String())
	}
}

// blocked is a terminal at which nobody types until it is closed.
type blocked chan struct{}

func (b blocked) Read([]byte) (int, error) {
	<-b
	return 0, context.Canceled
}

func TestQuestionIsInterrupted(t *testing.T) {
	lines := make(blocked)
	defer close(lines)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	q := &Questions{out: &out, lines: bufio.NewReader(lines)}
	if _, err := q.Ask(ctx, []byte(`{"message":"Delete?"}`)); err != context.Canceled {
		t.Errorf("error %v", err)
	}
}

// TestQuestionsAfterOneThatWasWithdrawn: the line that was waited for answers the next question, and
// one that came between the two answers nothing.
func TestQuestionsAfterOneThatWasWithdrawn(t *testing.T) {
	const name = `{"message":"Who?","requestedSchema":{"properties":{"name":{"type":"string"}},"required":["name"]}}`
	terminal, keys := io.Pipe()
	defer keys.Close()
	var out strings.Builder
	q := &Questions{out: &out, lines: bufio.NewReader(terminal)}
	for range 2 {
		ctx, withdraw := context.WithCancelCause(t.Context())
		withdraw(errWithdrawn)
		if got, err := q.Ask(ctx, []byte(name)); err != errWithdrawn {
			t.Fatalf("answers %s, %v", got, err)
		}
	}
	if n := strings.Count(out.String(), "\nNo answer is needed any more.\n"); n != 2 {
		t.Errorf("says %d times that it was withdrawn: %s", n, out.String())
	}
	fmt.Fprintln(keys, "old")
	for len(q.typed) == 0 {
		runtime.Gosched()
	}
	go fmt.Fprint(keys, "new\nnext\n")
	for _, want := range []string{"new", "next"} {
		if got, err := q.Ask(t.Context(), []byte(name)); err != nil || string(got) != `{"action":"accept","content":{"name":"`+want+`"}}` {
			t.Errorf("answers %s, %v; want %s", got, err, want)
		}
	}
}
