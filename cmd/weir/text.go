package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weir-edge/weir/cmd/weir/client"
)

// firstLine is the first line of a text that says something, on one line.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(strings.ReplaceAll(client.Clean(line), "\t", " "))
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
