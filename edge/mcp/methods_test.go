package mcp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestZ02Methods: what MethodOf knows is what Methods lists, each once.
func TestZ02Methods(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "revision.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "MethodOf" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CaseClause)
			if !ok {
				return true
			}
			for _, e := range c.List {
				name, err := strconv.Unquote(e.(*ast.BasicLit).Value)
				if err != nil {
					t.Error(err)
				}
				known = append(known, name)
			}
			return true
		})
	}
	listed := Methods()
	slices.Sort(known)
	slices.Sort(listed)
	if len(known) == 0 || !slices.Equal(known, listed) || len(slices.Compact(slices.Clone(listed))) != len(listed) {
		t.Errorf("MethodOf knows %q\nMethods lists %q", known, listed)
	}
	for _, name := range listed {
		if m := MethodOf(name); !m.Known || Notifies(name) && m.Target != "" || !Resembles(name) {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestZ02CheckID: what has no id is a notification by its name, and what has one is
// none.
func TestZ02CheckID(t *testing.T) {
	odd := []string{"vendor/x", "Notifications/initialized", "notifications", "notification/x", " notifications/cancelled", "rpc.x", "tools/call "}
	for _, name := range append(Methods(), append(odd, "notifications/", "notifications/x", "notifications/initialized ")...) {
		for _, id := range []string{`"id":1,`, `"id":"",`, ``} {
			m, err := Decode([]byte(`{"jsonrpc":"2.0",` + id + `"method":` + string(Quote(name)) + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.CheckID(); (err == nil) != (strings.HasPrefix(name, "notifications/") == (id == "")) {
				t.Errorf("%s%q: %v", id, name, err)
			}
		}
	}
	for _, answer := range []string{`"id":1,"result":{}`, `"id":1,"error":{}`, `"error":{}`, `"id":null,"error":{}`} {
		m, err := Decode([]byte(`{"jsonrpc":"2.0",` + answer + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.CheckID(); err != nil {
			t.Errorf("%s: %v", answer, err)
		}
	}
	for _, name := range []string{"id", "ID"} { // null is no id, and not the same as none
		if m, err := Decode([]byte(`{"jsonrpc":"2.0","` + name + `":null,"method":"tools/call"}`)); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestZ02Resembles: a method that would be taken for another is no vendor's.
func TestZ02Resembles(t *testing.T) {
	for _, name := range []string{"Tools/Call", "tools/call ", " tools/call", "/tools/call", "tools/call/", "tools/call\n", "tools/call\x00", "\ufefftools/call", "tools/call\u00a0", "TASKS/GET", "tas\u212as/get", "Notifications/Initialized"} {
		if !Resembles(name) {
			t.Errorf("%q resembles nothing", name)
		}
	}
	for _, name := range []string{"vendor/method", "no/such", "example.com/tools/call", "tools/callx", "tools", ""} {
		if Resembles(name) {
			t.Errorf("%q resembles a method", name)
		}
	}
}
