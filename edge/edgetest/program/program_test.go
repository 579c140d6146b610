package program_test

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/program"
)

// A tail keeps the last of what it was told, and no more than it has room for.
func TestTail(t *testing.T) {
	var said program.Tail
	for range 1000 {
		if n, err := said.Write([]byte("a line of a program\n")); n != 20 || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := said.Write([]byte("the last\n")); err != nil {
		t.Fatal(err)
	}
	if got := said.String(); !strings.HasSuffix(got, "a line of a program\nthe last") || len(got) > 4<<10 {
		t.Errorf("%d bytes: …%q", len(got), got[max(0, len(got)-40):])
	}
}
