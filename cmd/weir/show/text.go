package show

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weir-edge/weir/edge"
)

// FirstLine is the first line of a text that says something, on one line.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(strings.ReplaceAll(edge.Clean(line), "\t", " "))
}

// Table writes rows in columns.
func Table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return t.Flush()
}
