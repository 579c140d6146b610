package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weir-edge/weir/edge"
)

// firstLine is the first line of a text that says something, on one line.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(strings.ReplaceAll(edge.Clean(line), "\t", " "))
}

// writeTable writes rows in columns.
func writeTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return t.Flush()
}
