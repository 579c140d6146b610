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

// Table writes rows in columns, each on one line: no cell can say what looks like another row.
func Table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		line := strings.NewReplacer("\n", " ", "\t", " ", "\x00", "\t").Replace(strings.Join(row, "\x00"))
		fmt.Fprintln(t, strings.TrimRight(line, "\t"))
	}
	return t.Flush()
}
