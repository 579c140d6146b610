package backend

import (
	"fmt"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// A line that came to every session is whose the first of them to hear it says:
// one that hears it late, after the call that it was of, does not take it for
// its own.
func TestZ11LinesHeardLate(t *testing.T) {
	var g bridge
	one, two, idle := &session{}, &session{}, &session{}
	for _, s := range []*session{one, two, idle} {
		g.enter(s)
	}
	text := func(of int) *mcp.Message {
		m, err := mcp.Decode(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%d}}`, of))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	expect := func(what string, of int, s, want *session) {
		t.Helper()
		if got := g.ownerOf(text(of), s); got != want {
			t.Errorf("%s: %p, want %p", what, got, want)
		}
	}
	first, second := &call{client: edge.NoClient{}}, &call{client: edge.NoClient{}}
	one.add(first)
	two.add(second)
	expect("two call", 1, one, nil)
	one.remove(first)
	expect("two call, heard after the end of one of them", 1, two, nil)
	expect("one calls, and the same text comes again", 1, two, two)
	expect("the other hears it", 1, one, two)
	two.remove(second)
	one.add(first)
	expect("the first, heard when another calls", 1, idle, nil)
	expect("and the second", 1, idle, two)
	if len(g.lines) != 0 || g.hearings != 0 || g.recent.Len() != 0 {
		t.Errorf("%d lines, %d hearings, %d in order are left of what all have heard", len(g.lines), g.hearings, g.recent.Len())
	}

	// What comes too often to be told apart is nobody's, and bounded.
	for range 2 * maxSame {
		g.ownerOf(text(2), one)
	}
	expect("too many of one text", 2, one, nil)
	for i := range 2 * maxHearings {
		g.ownerOf(text(3+i), one)
	}
	expect("too many", 0, one, nil)
	if g.hearings > maxHearings || g.recent.Len() > maxHearings {
		t.Errorf("%d hearings of %d lines", g.hearings, g.recent.Len())
	}
	for e := g.recent.Front(); e != nil; e = e.Next() {
		e.Value.(*line).at = e.Value.(*line).at.Add(-2 * lateLine)
	}
	expect("after a while", 0, one, one)
	if g.hearings != 1 || len(g.lines) != 1 {
		t.Errorf("%d hearings of %d texts are left", g.hearings, len(g.lines))
	}
}
