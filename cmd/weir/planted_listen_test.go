package main

import (
	"bufio"
	"io"
	"strings"
	"sync"
)

// ear keeps the lines that somebody says.
type ear struct {
	mu    sync.Mutex
	lines []string
	ended chan struct{}
}

// listen hears somebody to the end.
func (g *garden) listen(who string, r io.Reader) *ear {
	e := &ear{ended: make(chan struct{})}
	go func() { // ends with who speaks
		defer close(e.ended)
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			g.hear(who, line)
			e.mu.Lock()
			e.lines = append(e.lines, line)
			e.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return e
}

// line is the first line with a text in it; "" for none.
func (e *ear) line(text string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, line := range e.lines {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// end waits until all is heard.
func (e *ear) end() { <-e.ended }
