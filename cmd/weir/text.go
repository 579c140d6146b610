package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// clean takes out of a text what would steer a terminal instead of being read:
// everything but line ends and tabs that is a control character.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case r < ' ', r == 0x7f, 0x80 <= r && r < 0xa0:
			return -1
		}
		return r
	}, s)
}

// firstLine is the first line of a text that says something, on one line.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(strings.ReplaceAll(clean(line), "\t", " "))
}

// writeTable writes rows in columns.
func writeTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return t.Flush()
}

// plural writes a number of things: 1 server, 2 servers.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
