package main

import (
	"fmt"
	"io"
)

// style is how a text stands out on a terminal (ECMA-48 §8.3.117).
type style string

const (
	bold   style = "1"  // names
	dim    style = "2"  // what matters less
	wrong  style = "31" // red
	advice style = "32" // green
)

// paint returns text in a style where out shows colours: on a terminal that
// TERM does not call dumb, unless NO_COLOR is set (no-color.org).
func (a *app) paint(out io.Writer, s style, text string) string {
	kind, _ := lookup(a.environ, "TERM")
	never, _ := lookup(a.environ, "NO_COLOR")
	if text == "" || kind == "" || kind == "dumb" || never != "" || !terminal(out) {
		return text
	}
	return fmt.Sprintf("\x1b[%sm%s\x1b[0m", s, text)
}
