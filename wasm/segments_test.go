package wasm

import (
	"fmt"
	"testing"
)

// TestJoined: segments that lie side by side become one that writes the same bytes; those
// that lie over each other, or whose place is not a number, stay as they are.
func TestJoined(t *testing.T) {
	segment := func(at int, text string) dataSegment {
		return dataSegment{offset: constExpr{raw: i32(at), function: -1}, bytes: []byte(text)}
	}
	for _, c := range []struct {
		name string
		in   []dataSegment
		want string
	}{
		{"none", nil, "[]"},
		{"side by side", []dataSegment{segment(8, "ab"), segment(10, "cd")}, `[8:"abcd"]`},
		{"a gap", []dataSegment{segment(8, "ab"), segment(12, "cd")}, `[8:"ab\x00\x00cd"]`},
		{"a large gap", []dataSegment{segment(8, "ab"), segment(10+joinGap+1, "cd")}, `[8:"ab" 75:"cd"]`},
		{"out of order", []dataSegment{segment(10, "cd"), segment(8, "ab")}, `[8:"abcd"]`},
		{"one over another", []dataSegment{segment(8, "abc"), segment(10, "cd")}, `[8:"abc" 10:"cd"]`},
		{"passive", []dataSegment{segment(8, "ab"), {flags: 1, bytes: []byte("cd")}}, `[8:"ab" passive:"cd"]`},
		{"an address above 2 GiB", []dataSegment{segment(-8, "ab"), segment(8, "cd")}, `[8:"cd" 4294967288:"ab"]`},
	} {
		got := []string{}
		for _, s := range joined(c.in) {
			at, ok := place(&s)
			where := fmt.Sprint(at)
			if !ok {
				where = "passive"
			}
			got = append(got, fmt.Sprintf("%s:%q", where, s.bytes))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: got %v, want %s", c.name, got, c.want)
		}
	}
}
