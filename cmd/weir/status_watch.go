package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/edge"
)

// watchStatus shows the status of an edge every interval until ctx ends. The
// first look must succeed; later the edge may be away and come back.
func (a *app) watchStatus(ctx context.Context, me string, o client.Options, interval time.Duration, asJSON bool) error {
	var before *look
	s := screen{w: a.out}
	if f, ok := a.out.(*os.File); ok && terminal(f) && !asJSON {
		s.terminal = f
	}
	if err := s.begin(); err != nil {
		return err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		now, err := lookAt(ctx, o)
		switch {
		case ctx.Err() != nil:
			return s.end()
		case err != nil && before == nil:
			_ = s.end() // the other error says more
			return err
		case err != nil:
			err = s.lost(a.err, me+": "+edge.Clean(err.Error()))
		case asJSON:
			err = writeLine(a.out, now.text)
		default:
			err = s.show(now, before)
		}
		if err != nil {
			_ = s.end()
			return err
		}
		if now != nil {
			before = now
		}
		select {
		case <-ctx.Done():
			return s.end()
		case <-tick.C:
		}
	}
}

// writeLine writes JSON text on one line.
func writeLine(w io.Writer, text []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err := w.Write(line.Bytes())
	return err
}

// screen is where --watch shows what it sees: a terminal, whose content it
// replaces, or a file that gets one block after the other.
type screen struct {
	w        io.Writer
	terminal *os.File // nil for none
}

// begin clears the terminal and hides its cursor.
func (s *screen) begin() error { return s.control("\x1b[2J\x1b[?25l") }

// end gives the terminal its cursor back.
func (s *screen) end() error { return s.control("\x1b[?25h") }

func (s *screen) control(sequence string) error {
	if s.terminal == nil {
		return nil
	}
	_, err := io.WriteString(s.w, sequence)
	return err
}

func (s *screen) show(now, before *look) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n", now.at.Format(time.RFC3339))
	if err := writeStatus(&text, now, orSelf(before, now)); err != nil {
		return err
	}
	return s.draw(text.String())
}

// orSelf has the first look shown in the columns of those to come.
func orSelf(before, now *look) *look {
	if before == nil {
		return now
	}
	return before
}

// lost shows that the edge does not answer: in place of the table, or on the
// stream for errors.
func (s *screen) lost(stderr io.Writer, why string) error {
	if s.terminal == nil {
		_, err := fmt.Fprintln(stderr, why)
		return err
	}
	return s.draw(time.Now().Format(time.RFC3339) + "\n\n" + why + "\n")
}

func (s *screen) draw(text string) error {
	if s.terminal != nil {
		width, height, err := term.GetSize(int(s.terminal.Fd()))
		if err != nil {
			width, height = 80, 24
		}
		text = frame(text, width, height)
	} else {
		text += "\n"
	}
	_, err := io.WriteString(s.w, text)
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
