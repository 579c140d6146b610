package backend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// listOf is a page of tools that want headers: each its own, by a name of so
// many bytes.
func listOf(t *testing.T, next string, size int, tools ...string) *mcp.Message {
	t.Helper()
	var all []string
	for _, name := range tools {
		header := ""
		if size > 0 {
			header = `,"x-mcp-header":"` + strings.Repeat("H", size) + `"`
		}
		all = append(all, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object","properties":{"a":{"type":"string"%s}}}}`, name, header))
	}
	if next != "" {
		next = `,"nextCursor":"` + next + `"`
	}
	m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.Join(all, ",") + `]` + next + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A header of a number is compared as one, and that of a string byte for byte: else it would say
// another argument than the tool gets.
func TestParamsOfStringsAndNumbers(t *testing.T) {
	b := &Backend{}
	b.params.page(principal{}, nil, listOf(t, "", 1, "tool"))
	for _, one := range []struct {
		argument, header string
		same             bool
	}{
		{`1`, "1", true}, {`1`, "1.0", true}, {`100`, "1e2", true}, {`1`, "2", false}, {`1`, "one", false}, {`5`, "05", false}, {`5`, "0x5", false},
		{`9007199254740993`, "9007199254740993", true}, {`9007199254740993`, "9007199254740992", false},
		{`"1"`, "1", true}, {`"1"`, "=?base64?MQ==?=", true}, {`"1"`, "1.0", false}, {`"1"`, "01", false}, {`"1e2"`, "100", false},
		{`true`, "true", true}, {`true`, "false", false}, {`null`, "null", false}, {`{}`, "{}", false},
	} {
		m, err := mcp.Decode(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool","arguments":{"a":%s}}}`, one.argument))
		if err != nil {
			t.Fatal(err)
		}
		x := &edge.Exchange{Request: m, Head: edge.Head{Params: []edge.Header{{Name: "Mcp-Param-H", Value: one.header}}}}
		if err := b.checkParams(x, principal{}); (err == nil) != one.same || err != nil && edge.KindOf(err) != edge.Mismatch {
			t.Errorf("%s and %s: %v", one.argument, one.header, err)
		}
	}
}

func numbered(prefix string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

// TestZ09HeaderNamesAreBounded: what a backend lists of header names is replaced
// by its next whole list, and bounded in number and length, for one principal and
// for all of them.
func TestZ09HeaderNamesAreBounded(t *testing.T) {
	var all paramsOf
	alice := principal{"i", "alice"}
	wants := func(who principal, tool string) bool { return len(all.of(who, tool)) > 0 }

	// Whole lists, and lists of pages, each in place of the one before.
	all.page(alice, nil, listOf(t, "", 5, "one", "two"))
	all.page(alice, nil, listOf(t, "", 5, "two"))
	if wants(alice, "one") || !wants(alice, "two") {
		t.Error("a whole list does not replace the one before")
	}
	all.page(alice, nil, listOf(t, "p2", 5, "three"))
	if !wants(alice, "three") || !wants(alice, "two") {
		t.Error("a first page does not hold beside the list before")
	}
	all.page(alice, []byte(`"p2"`), listOf(t, "p3", 5, "four"))
	all.page(alice, []byte(`"p3"`), listOf(t, "", 5, "five"))
	if wants(alice, "two") || !wants(alice, "three") || !wants(alice, "four") || !wants(alice, "five") {
		t.Error("a list of pages does not replace the one before")
	}
	all.page(alice, []byte(`"other"`), listOf(t, "", 0, "five")) // of another walk
	if wants(alice, "five") || !wants(alice, "four") {
		t.Error("a page of another walk does not say what it says of its tools")
	}
	if wants(principal{"i", "bob"}, "four") {
		t.Error("what one was told counts for another")
	}
	all.page(alice, nil, listOf(t, "", 0, "three"))
	if all.any.Load() || all.of(alice, "three") != nil {
		t.Error("a list without header names leaves some behind")
	}

	// Other tools with each list, for ever.
	bounded := func(when string) {
		t.Helper()
		bytes := 0
		for e := all.order.Front(); e != nil; e = e.Next() {
			l := e.Value.(*listed)
			for _, p := range []params{l.now, l.pages} {
				if n := len(p.tools); n > maxHeaderTools || p.bytes > maxParamsBytes || p.bytes < 0 {
					t.Fatalf("%s: %d tools, %d bytes", when, n, p.bytes)
				}
			}
			bytes += l.size()
		}
		if len(all.lists) != all.order.Len() || all.order.Len() > maxParamsLists || bytes != all.bytes || bytes > maxParamsAll {
			t.Fatalf("%s: %d lists, %d bytes (%d)", when, all.order.Len(), bytes, all.bytes)
		}
	}
	for i := range 50 {
		all.page(alice, nil, listOf(t, "", 100, numbered(fmt.Sprint("list", i, "-"), 100)...))
		bounded("lists of other tools")
	}
	for i := range 50 {
		var cursor []byte
		if i > 0 {
			cursor = fmt.Appendf(nil, `"c%d"`, i)
		}
		all.page(alice, cursor, listOf(t, fmt.Sprint("c", i+1), 100, numbered(fmt.Sprint("page", i, "-"), 1000)...))
		bounded("a walk without end")
	}
	all.page(alice, nil, listOf(t, "", 1<<20, "long"))
	all.page(alice, nil, listOf(t, "", 5, strings.Repeat("n", 1<<20)))
	if all.any.Load() {
		t.Error("a name too long is kept")
	}
	for i := range 3 * maxParamsLists {
		all.page(principal{"i", fmt.Sprint(i)}, nil, listOf(t, "", 100, numbered("t", 1+i%200)...))
	}
	bounded("many principals")
	if wants(alice, "t0") || !wants(principal{"i", fmt.Sprint(3*maxParamsLists - 1)}, "t0") {
		t.Error("not the last ones are kept")
	}
}
