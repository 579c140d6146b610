package guest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/heavy"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// TestZ03Operations: what a guest says of a large value costs no more than to
// read it, however many operations there are.
func TestZ03Operations(t *testing.T) {
	for _, shape := range []string{"arrays", "objects", "empty arrays", "wide", "numbers", "comb"} {
		value := heavy.Value(shape, 4<<20, 60)
		result := []byte(`{"content":[],"a":` + value + `}`)
		took := heavy.Least(4*time.Second, func() {
			d := draft{text: result}
			for i := range maxOps {
				for _, pointer := range []string{"/a/0/0/0/0", "/a/1", fmt.Sprintf("/a/%d", i), "/x", "/a/0/a/a/a"} {
					tokens, err := tokensOf(pointer)
					if err != nil {
						t.Fatal(err)
					}
					if d.has(tokens...) {
						_ = d.put(tokens, []byte(`{"b":1}`))
					}
				}
				_ = d.put([]string{fmt.Sprint("new", i)}, []byte("1"))
			}
			if mcp.Valid(d.whole()) != nil {
				t.Errorf("%s: no JSON", shape)
			}
		})
		t.Logf("%s: %v for %d operations on %d MiB", shape, took, 6*maxOps, len(result)>>20)
		if took > 4*time.Second {
			t.Errorf("%s: %v", shape, took)
		}
	}
}

// TestZ03Fixed: arguments that are not the client's to choose are set in one walk.
func TestZ03Fixed(t *testing.T) {
	x := &edge.Exchange{Target: &edge.Target{}}
	for i := range 64 {
		x.Target.Fixed = append(x.Target.Fixed, edge.Fixed{Pointer: []string{"o", "p", "q", fmt.Sprint("r", i)}, Value: []byte("1")}, edge.Fixed{Pointer: []string{"a", fmt.Sprint(i)}})
	}
	for _, shape := range []string{"wide", "objects", "empty arrays"} {
		arguments := []byte(`{"a":` + heavy.Value(shape, 4<<20, 900) + `}`)
		took := heavy.Least(2*time.Second, func() {
			if out, err := fix(x, arguments); err != nil || mcp.Valid(out) != nil {
				t.Errorf("%s: %v", shape, err)
			}
		})
		if t.Logf("%s: %v", shape, took); took > 2*time.Second {
			t.Errorf("%s: %v", shape, took)
		}
	}
}

// TestZ03HideArg: to take many arguments out of a large schema costs little more
// than to take out one, and no list of required arguments is read for ever.
func TestZ03HideArg(t *testing.T) {
	var properties, required []string
	for i := range 20_000 {
		properties, required = append(properties, fmt.Sprintf(`"a%d":{}`, i)), append(required, fmt.Sprintf(`"a%d"`, i))
	}
	item := fmt.Sprintf(`{"name":"t","inputSchema":{"type":"object","properties":{%s},"required":[%s]}}`, strings.Join(properties, ","), strings.Join(required, ","))
	hide := func(n int, between string) (text []byte, err error) {
		left := maxListed
		to := edited{item: draft{text: []byte(item)}, left: &left}
		for i := range n {
			if err = edit(&to, edge.Tool, &op{kind: abi.OpHideArg, pointer: fmt.Sprint("/a", 19_999-i)}); err != nil {
				return nil, err
			}
			if between == "" {
				continue
			}
			if err = edit(&to, edge.Tool, &op{kind: abi.OpPatchItem, pointer: between, raw: []byte("1")}); err != nil {
				return nil, err
			}
		}
		if err = to.settle(); err != nil {
			return nil, err
		}
		return to.item.whole(), nil
	}
	took := func(n int) time.Duration { return heavy.CPU(func() { _, _ = hide(n, "") }) }
	few, many := min(took(2), took(2)), min(took(800), took(800))
	if t.Logf("2: %v, 800: %v", few, many); many > 10*few+20*time.Millisecond {
		t.Errorf("to hide 2 takes %v, 800 %v", few, many)
	}
	text, err := hide(19_000, "")
	if err != nil {
		t.Fatal(err)
	}
	schema := mcp.Lookup(text, "inputSchema")
	if p, r := mcp.Members(mcp.Lookup(schema, "properties")), mcp.Elements(mcp.Lookup(schema, "required")); len(p) != 1000 || len(r) != 1000 || string(r[999]) != `"a999"` {
		t.Errorf("%d properties, %d required", len(p), len(r))
	}
	if text, err = hide(3, "/inputSchema/x"); err != nil || len(mcp.Elements(mcp.Lookup(mcp.Lookup(text, "inputSchema"), "required"))) != 19_997 {
		t.Error(err)
	}
	if _, err = hide(60, "/inputSchema/x"); err == nil {
		t.Error("a list is read 60 times")
	}
	if text, err = hide(20_000, ""); err != nil || mcp.Lookup(mcp.Lookup(text, "inputSchema"), "required") != nil {
		t.Errorf("%v: %.200s", err, text)
	}
}

// TestHideArgInside takes arguments out of what they stand in, in any order.
func TestHideArgInside(t *testing.T) {
	const item = `{"name":"t","inputSchema":{"properties":{"a":{"properties":{"b":{},"c":{}},"required":["b", "c"]},"d":{}},"required":["a","d",1]}}`
	for pointers, want := range map[string]string{
		"/a/b /d":   `{"name":"t","inputSchema":{"properties":{"a":{"properties":{"c":{}},"required":["c"]}},"required":["a",1]}}`,
		"/a/b /a":   `{"name":"t","inputSchema":{"properties":{"d":{}},"required":["d",1]}}`,
		"/a /a/b":   `{"name":"t","inputSchema":{"properties":{"d":{}},"required":["d",1]}}`,
		"/x /y/z":   `{"name":"t","inputSchema":{"properties":{"a":{"properties":{"b":{},"c":{}},"required":["b", "c"]},"d":{}},"required":["a","d",1]}}`,
		"/a/c /a/b": `{"name":"t","inputSchema":{"properties":{"a":{"properties":{}},"d":{}},"required":["a","d",1]}}`,
	} {
		left := maxListed
		to := edited{item: draft{text: []byte(item)}, left: &left}
		for p := range strings.FieldsSeq(pointers) {
			if err := edit(&to, edge.Tool, &op{kind: abi.OpHideArg, pointer: p}); err != nil {
				t.Fatal(err)
			}
		}
		if err := to.settle(); err != nil || string(to.item.whole()) != want {
			t.Errorf("%s: %s, want %s (%v)", pointers, to.item.whole(), want, err)
		}
	}
}

// TestZ03DropContent: to drop many items of a large result costs little more than
// to drop one, and leaves the others.
func TestZ03DropContent(t *testing.T) {
	x := &edge.Exchange{}
	text := []byte(`{"content":[` + strings.Repeat("0,", 2<<20) + `1]}`)
	drop := func(n int) time.Duration {
		return heavy.CPU(func() {
			result := draft{text: text}
			for range n {
				if err := revise(x, &result, &op{kind: abi.OpDropContent}); err != nil {
					t.Fatal(err)
				}
			}
			if got := result.whole(); len(got) != len(text)-2*n {
				t.Errorf("%d bytes are left of %d", len(got), len(text))
			}
		})
	}
	few, many := min(drop(2), drop(2)), min(drop(maxOps), drop(maxOps))
	if t.Logf("2: %v, %d: %v", few, maxOps, many); many > 5*few+20*time.Millisecond {
		t.Errorf("to drop 2 takes %v, %d %v", few, maxOps, many)
	}
}

// TestZ03Folding: what a client sends for a pinned or hidden argument in another
// case does not reach a backend that ignores case, at no level.
func TestZ03Folding(t *testing.T) {
	fixed := func(pointer string, value string) edge.Fixed {
		tokens, err := tokensOf(pointer)
		if err != nil {
			t.Fatal(err)
		}
		f := edge.Fixed{Pointer: tokens}
		if value != "" {
			f.Value = []byte(value)
		}
		return f
	}
	for _, c := range []struct {
		fixed    []edge.Fixed
		in, want string
	}{
		{[]edge.Fixed{fixed("/tenant", `"mine"`)}, `{"Tenant":"other"}`, `{"tenant":"mine"}`},
		{[]edge.Fixed{fixed("/tenant", `"mine"`)}, `{"tenant":"a","TENANT":"b","tenants":1,"T\u0065nant":"c","x":{"Tenant":"d"}}`, `{"tenant":"mine","tenants":1,"x":{"Tenant":"d"}}`},
		{[]edge.Fixed{fixed("/key", `1`)}, "{\"\u212aey\":2,\"\\u212aey\":3}", `{"key":1}`},
		{[]edge.Fixed{fixed("/tenant", "")}, `{"Tenant":"other","x":1}`, `{"x":1}`},
		{[]edge.Fixed{fixed("/o/p", `1`)}, `{"O":{"p":2},"o":{"P":3,"q":4}}`, `{"o":{"p":1,"q":4}}`},
		{[]edge.Fixed{fixed("/o/p", `1`)}, `{"O":{"p":2}}`, `{"o":{"p":1}}`},
		{[]edge.Fixed{fixed("/o/p", "")}, `{"O":{"p":2},"o":{"P":3,"q":4}}`, `{"o":{"q":4}}`},
		{[]edge.Fixed{fixed("/l/0/p", `1`)}, `{"l":[{"P":2},{"P":3}]}`, `{"l":[{"p":1},{"P":3}]}`},
		// Names that are fixed themselves are not each other's.
		{[]edge.Fixed{fixed("/id", `1`), fixed("/ID", `2`)}, `{"id":3,"ID":4,"Id":5}`, `{"id":1,"ID":2}`},
		{[]edge.Fixed{fixed("/id", `1`), fixed("/ID/x", `2`)}, `{"ID":{"X":3,"y":4},"Id":5}`, `{"id":1,"ID":{"x":2,"y":4}}`},
	} {
		got, err := fix(&edge.Exchange{Target: &edge.Target{Fixed: c.fixed}}, []byte(c.in))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, not %s (%v)", c.in, got, c.want, err)
		}
	}
}

// TestZ03Selected: pointers lead to the same values in a small message and in a
// large one, and many of them cost one walk.
func TestZ03Selected(t *testing.T) {
	var pointers [][]string
	for _, p := range []string{"", "/a", "/a/0", "/a/2/b", "/none", "/a/9", "/c~1d", "/a/x"} {
		tokens, err := tokensOf(p)
		if err != nil {
			t.Fatal(err)
		}
		pointers = append(pointers, tokens)
	}
	small := `{"a":[1, [], {"b":"x"}],"c/d":null,"pad":"`
	few := selected(nil, pointers[1:], []byte(small+`"}`))
	many := selected(nil, pointers[1:], []byte(small+strings.Repeat("y", 2*fewBytes)+`"}`))
	if !slices.EqualFunc(few, many, bytes.Equal) || len(few) == 0 {
		t.Errorf("%q\n%q", few, many)
	}
	for range 6 {
		pointers = append(pointers, pointers...)
	}
	values := []byte(`{"a":` + heavy.Value("objects", 2<<20, 900) + `}`)
	if took := heavy.Least(2*time.Second, func() { selected(nil, pointers[1:64], values) }); took > 2*time.Second {
		t.Error(took)
	}
	// One wide object: to look for many members is little more than for two.
	values, pointers = []byte(heavy.Value("wide", 4<<20, 1)), nil
	for i := range 64 {
		pointers = append(pointers, []string{fmt.Sprint("none", i)})
	}
	took := func(n int) time.Duration { return heavy.CPU(func() { selected(nil, pointers[:n], values) }) }
	two, all := min(took(2), took(2)), min(took(64), took(64))
	if t.Logf("2 pointers: %v, 64: %v", two, all); all > 5*two+20*time.Millisecond {
		t.Errorf("2 pointers take %v, 64 %v", two, all)
	}
}

// TestZ05Globs: a program that wants to be asked about resources by a glob is
// asked whatever the URI is called, and about those that can be anything.
func TestZ05Globs(t *testing.T) {
	globs := []string{"file:///secret/*"}
	for uri, want := range map[string]bool{
		"file:///secret/x": true, "FILE:///secret/x": true, "file:/secret/x": true, "file:///public/../secret/x": true, "file:///%73ecret/x": true, "file:///secret/x#y": true,
		"file:///public//../secret": true, "file:///public/%2e%2e/secret": true, "file:///public/x": false, "https://h/secret/x": false, "secret": false, "": false,
	} {
		if fits(globs, []byte(uri)) != want {
			t.Errorf("%s: not %v", uri, want)
		}
	}
}

// TestZ05Told: a program is told the name of a resource that the globs of its functions match,
// however the client has written it.
func TestZ05Told(t *testing.T) {
	globs := []string{"file:///secret/*"}
	p, w := &program{spec: &Spec{}}, &want{on: []wasm.Subscription{{Hook: abi.OnMessage, Tools: globs}}}
	for _, uri := range []string{"file:///secret/x", "FILE:///secret/x", "file:/secret/x", "file:///public/../secret/x", "file:///%73ecret/x", "file:///secret/x#y", "file:///public/%2e%2e/secret"} {
		if told := p.told(w, &subject{tool: []byte(uri), uri: true}); len(told) > 0 && !anyGlob(globs, told) {
			t.Errorf("%s is told as %s, which the guest's own look refuses", uri, told)
		}
	}
	for _, raw := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"file:///secret/x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"file:///secret/x"},"argument":{"name":"a","value":""}}}`,
	} {
		m, err := mcp.Decode([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		w := newScratch()
		if s := w.about(&edge.Exchange{Request: m, Target: &edge.Target{Backend: "b"}}); string(s.tool) != "file:///secret/x" || !s.uri {
			t.Errorf("%s: named %q", m.Method, s.tool)
		}
		w.free()
	}
}

// asking is an engine that says what its program subscribes to, and no more.
type asking struct {
	Engine
	list []wasm.Subscription
}

func (a asking) Subscriptions() []wasm.Subscription { return a.list }

// No subscription takes from another what that is to be told.
func TestInlineLimits(t *testing.T) {
	for _, c := range []struct{ a, b, want uint64 }{{0, 1000, 0}, {1000, 0, 0}, {10, 20, 20}, {20, 10, 20}, {0, 0, 0}} {
		p := program{spec: &Spec{}, guest: asking{list: []wasm.Subscription{{Hook: abi.OnCallRequest, InlineLimit: c.a}, {Hook: abi.OnCallRequest, InlineLimit: c.b}}}}
		if err := p.subscribe(); err != nil || p.wants[abi.OnCallRequest].limit != c.want {
			t.Errorf("%d and %d: %d, %v", c.a, c.b, p.wants[abi.OnCallRequest].limit, err)
		}
	}
}

// Whom a program sees as two the cache does, too.
func TestKeyOfTenants(t *testing.T) {
	one := &edge.Identity{Claims: map[string]any{"tenant": "a"}}
	list := &edge.Identity{Claims: map[string]any{"tenant": []any{"a"}}}
	if keyOf(one, abi.VariesByTenant) == keyOf(list, abi.VariesByTenant) {
		t.Error("a program sees two clients, and the cache one")
	}
}
