package edge_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

func replaced(t testing.TB, x *edge.Exchange, name string) *edge.Exchange {
	call, err := x.Replace(mcp.Edit{Span: x.Request.Get("name"), With: mcp.Quote(name)})
	if err != nil {
		t.Fatal(err)
	}
	return call
}

// A call that is made in place of another has a message of its own, and nothing of what the
// exchange carried before.
func TestReplace(t *testing.T) {
	outer := func(id, name string) *mcp.Message {
		m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":{}}}`))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	x := &edge.Exchange{Request: outer("1", "call_tool")}
	first := replaced(t, x, "a")
	first.Name, first.Record, first.Notes = "a", "r", []edge.Note{{}}
	first.Answer().Status = 418
	second := replaced(t, x, strings.Repeat("b", 64<<10)) // both are under way
	if got := string(first.Request.Raw); got != `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{}}}` {
		t.Errorf("the first became %s", got)
	}
	if first == second || len(second.Request.Raw) < 64<<10 || first.Parent != x || second.Parent != x || !first.Passed || !second.Passed {
		t.Error("the second is not a call of its own")
	}

	for _, name := range []string{strings.Repeat("c", 64<<10), "d"} {
		x.Reset()
		x.Request = outer(`"2"`, "call_tool")
		again := replaced(t, x, name)
		if got := string(again.Request.Raw); got != `{"jsonrpc":"2.0","id":"2","method":"tools/call","params":{"name":"`+name+`","arguments":{}}}` {
			t.Errorf("again: %.200s", got)
		}
		if again.Parent != x || again.Name != "" || again.Record != "" || again.Notes != nil || again.Answer().Status != 0 {
			t.Errorf("it holds something of the call before: %+v", again)
		}
	}

	m := outer("3", "call_tool")
	edit := mcp.Edit{Span: m.Get("name"), With: mcp.Quote("e")}
	if n := testing.AllocsPerRun(100, func() {
		x.Reset()
		x.Request = m
		if _, err := x.Replace(edit); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a call", n)
	}
}

// Calls that are made for an exchange at the same time have nothing of each other.
func TestInner(t *testing.T) {
	x := &edge.Exchange{}
	for range 2 {
		calls := make([]*edge.Exchange, 16)
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				call, err := x.Inner(func(dst []byte) []byte {
					return mcp.AppendRequest(dst, strconv.AppendInt(nil, int64(i), 10), "ping", nil)
				})
				if err != nil {
					t.Error(err)
					return
				}
				call.Name, calls[i] = strconv.Itoa(i), call
			})
		}
		all.Wait()
		for i, call := range calls {
			if call == nil || call.Parent != x || call.Passed || call.Name != strconv.Itoa(i) || string(call.Request.IDText()) != call.Name {
				t.Errorf("call %d: %+v", i, call)
			}
		}
		x.Reset()
	}
	if _, err := x.Inner(func([]byte) []byte { return []byte("{") }); err == nil {
		t.Error("a text that is no message is one")
	}
}
