package show

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// Screen is where --watch shows what it sees: a terminal, whose content it
// replaces, or a file that gets one block after the other.
type Screen struct {
	W        io.Writer
	Terminal *os.File // W when it is one; nil for none
}

// Begin clears the terminal and hides its cursor.
func (s *Screen) Begin() error { return s.control("\x1b[2J\x1b[?25l") }

// End gives the terminal its cursor back.
func (s *Screen) End() error { return s.control("\x1b[?25h") }

func (s *Screen) control(sequence string) error {
	if s.Terminal == nil {
		return nil
	}
	_, err := io.WriteString(s.W, sequence)
	return err
}

// Show shows a look; with the one before it, also how busy the backends were since. That is
// nil for the first one.
func (s *Screen) Show(now, before *Look) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n", now.At.Format(time.RFC3339))
	if err := Status(&text, now, orSelf(before, now)); err != nil {
		return err
	}
	return s.draw(text.String())
}

// orSelf has the first look shown in the columns of those to come.
func orSelf(before, now *Look) *Look {
	if before == nil {
		return now
	}
	return before
}

// Lost shows that the edge does not answer: in place of the table, or on the
// stream for errors.
func (s *Screen) Lost(stderr io.Writer, why string) error {
	if s.Terminal == nil {
		_, err := fmt.Fprintln(stderr, why)
		return err
	}
	return s.draw(time.Now().Format(time.RFC3339) + "\n\n" + why + "\n")
}

func (s *Screen) draw(text string) error {
	if s.Terminal != nil {
		width, height, err := term.GetSize(int(s.Terminal.Fd()))
		if err != nil {
			width, height = 80, 24
		}
		text = frame(text, width, height)
	} else {
		text += "\n"
	}
	_, err := io.WriteString(s.W, text)
	return err
}

// frame makes of a text what replaces the content of a terminal: as many lines,
// and as much of each, as fit, without a moment in which nothing is there. The
// last column stays free: what is erased after a line in it differs by terminal.
func frame(text string, width, height int) string {
	width--
	var b strings.Builder
	b.WriteString("\x1b[H")
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines[:min(len(lines), max(height, 1))] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:max(width-1, 0)]) + "…"
		}
		b.WriteString(line)
		b.WriteString("\x1b[K")
	}
	b.WriteString("\x1b[J")
	return b.String()
}
