package show

import (
	"strings"
	"testing"
)

// TestTable: a row is a line, whatever stands in its cells.
func TestTable(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, [][]string{{"NAME", "OF"}, {"a\nb\tc", "d"}, {"e", ""}}); err != nil || b.String() != "NAME   OF\na b c  d\ne\n" {
		t.Errorf("%v:\n%s", err, b.String())
	}
}
