package cli

import (
	"fmt"
	"io"
)

// Style is how a text stands out on a terminal (ECMA-48 §8.3.117).
type Style string

const (
	Bold   Style = "1"  // names
	Dim    Style = "2"  // what matters less
	Wrong  Style = "31" // red
	Advice Style = "32" // green
)

// Paint returns text in a style where out shows colours: on a terminal that
// TERM does not call dumb, unless NO_COLOR is set (no-color.org).
func (a *App) Paint(out io.Writer, s Style, text string) string {
	kind, _ := Lookup(a.Environ, "TERM")
	never, _ := Lookup(a.Environ, "NO_COLOR")
	if text == "" || kind == "" || kind == "dumb" || never != "" || !Terminal(out) {
		return text
	}
	return fmt.Sprintf("\x1b[%sm%s\x1b[0m", s, text)
}
