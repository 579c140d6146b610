package authz

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/heavy"
)

// readsAll is policies that read an argument in every way that goes through it.
const readsAll = `
	permit(principal, action, resource);
	forbid(principal, action, resource) when { context has arg_a && context.arg_a == [1, "x", {"b": 2}] };
	forbid(principal, action, resource) when { context has arg_a && context has arg_b && context.arg_a == context.arg_b };
	forbid(principal, action, resource) when { resource has arg_a && resource.arg_a == "x" };`

// slack is how much more than the 20 ms for each MiB a test allows, so that it
// fails for what grows wrongly and not for a slow machine.
const slack = 10 * raceFactor

// bound is what a message of so many bytes may cost.
func bound(size int) time.Duration {
	return slack * (5*time.Millisecond + time.Duration(float64(20*time.Millisecond)*float64(size)/(1<<20)))
}

// TestZ03Policies: to judge a call costs in proportion to the size of its
// arguments, whatever their shape.
func TestZ03Policies(t *testing.T) {
	set := policies(t, readsAll)
	for _, shape := range heavy.Shapes() {
		for _, size := range []int{1 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20} {
			for _, depth := range []int{60, 990} {
				if depth > 60 && !heavy.Nests(shape) {
					continue
				}
				text := `{"a":` + heavy.Value(shape, size, depth) + `}`
				h := open(t, set, Options{}, edge.Env{})
				took := heavy.Least(bound(len(text)), func() { h.call(person("alice", nil), "weather", text) })
				if took > bound(len(text)) {
					t.Errorf("%s, %d bytes, %d deep: %v (%s)", shape, len(text), depth, took, h.why.Reason)
				}
				if size == 4<<20 && depth == 60 {
					t.Logf("%-18s %8.2f ms/MiB  %s", shape, took.Seconds()*1e3/(float64(len(text))/(1<<20)), h.why.Reason)
				}
			}
		}
	}
}

// TestZ03Batch: the messages of a batch cost no more together than one may.
func TestZ03Batch(t *testing.T) {
	set := policies(t, readsAll)
	for _, shape := range []string{
		strings.Repeat("[", 60) + "%d" + strings.Repeat("]", 60), strings.Repeat(`{"a":`, 60) + "%d" + strings.Repeat("}", 60), `{"a":[{"b":%d}]}`,
	} {
		for _, parts := range []int{10, 100} {
			var value strings.Builder
			for i := 0; value.Len() < 4<<20/parts-256; i++ {
				fmt.Fprintf(&value, ","+shape, i)
			}
			text := `{"a":[` + value.String()[1:] + `]}`
			h := open(t, set, Options{}, edge.Env{})
			took := heavy.Least(bound(parts*len(text))/2, func() {
				for range parts {
					x := message(t, person("alice", nil), "tools/call", `{"name":"weather","arguments":`+text+`}`)
					x.Batch = parts
					_, _ = h.handler.Handle(t.Context(), x)
				}
			})
			alone := heavy.CPU(func() {
				for range parts {
					message(t, person("alice", nil), "tools/call", `{"name":"weather","arguments":`+text+`}`)
				}
			})
			if took-alone > bound(parts*len(text))/2 {
				t.Errorf("%d of %.20s: %v", parts, shape, took-alone)
			}
		}
	}
	// What they may have together, one may have.
	for _, c := range []struct {
		values, batch int
		fine          bool
	}{{9000, 1, true}, {9000, 2, true}, {9000, 3, false}, {180, 100, true}, {300, 100, false}} {
		h := open(t, set, Options{}, edge.Env{})
		x := message(t, person("alice", nil), "tools/call", `{"name":"weather","arguments":{"a":[`+strings.Repeat("1,", c.values-2)+`1]}}`)
		x.Batch = c.batch
		if _, err := h.handler.Handle(t.Context(), x); (err == nil) != c.fine {
			t.Errorf("%d values in each of %d: %v", c.values, c.batch, err)
		}
	}
}

// TestZ03Completion: what a completion has settled costs in proportion to it.
func TestZ03Completion(t *testing.T) {
	set := policies(t, permitAll, `forbid(principal, action, resource) when { context has arg_c && context.arg_c == "x" };`)
	var settled strings.Builder
	for i := range 290_000 {
		fmt.Fprintf(&settled, `,"k%d":"1"`, i)
	}
	params := `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"},"context":{"arguments":{` + settled.String()[1:] + `}}}`
	h := open(t, set, Options{}, edge.Env{})
	x := message(t, person("alice", nil), "completion/complete", params)
	took := heavy.Least(bound(len(params))/3, func() {
		if _, err := h.handler.Handle(t.Context(), x); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%.1f ms/MiB", took.Seconds()*1e3/(float64(len(params))/(1<<20)))
	if took > bound(len(params))/3 {
		t.Errorf("%d bytes: %v", len(params), took)
	}
}

// TestZ03URIs: to judge the URIs of a subscription costs in proportion to it,
// whatever they are made of.
func TestZ03URIs(t *testing.T) {
	set := policies(t, permitAll, `forbid(principal, action, resource is Resource) when { resource.uri like "*secret*key*" };`)
	for _, filler := range []string{"a", "é", "e\u0301", "ﷺ", "ﬃ", "%C3%A9", "%41", "日", "a;b/", "./", "a/../", "?x", " ", "\U00010400"} {
		for _, each := range []int{40, 1000, 4000} {
			uri := "file://host/" + strings.Repeat(filler, each/len(filler))
			count := min(1000, 2<<20/len(uri))
			var all strings.Builder
			for i := range count {
				fmt.Fprintf(&all, `,"%s%d"`, uri, i)
			}
			params := `{"notifications":{"resourceSubscriptions":[` + all.String()[1:] + `]}}`
			lookup := func(_ *edge.Exchange, thing edge.Thing, name string) *edge.Target {
				return &edge.Target{Thing: thing, Name: name, Original: name, Backend: "b"}
			}
			h := open(t, set, Options{Lookup: lookup}, edge.Env{})
			x := message(t, person("alice", nil), "subscriptions/listen", params)
			// What each URI costs by itself is in no bound of bytes.
			most := bound(len(params)) + bound(1<<20)
			if took := heavy.Least(most, func() { h.passes(x) }); took > most {
				t.Errorf("%d of %q, %d bytes: %v of %v (%s)", count, filler, len(params), took, most, h.why.Reason)
			}
		}
	}
}

// TestZ03Depth: arguments that policies read are judged up to a depth of 64, and
// denied beyond. Those that none reads may be as deep as a message may.
func TestZ03Depth(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	h := open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context has arg_a && context.arg_a == 1 };`), Options{}, edge.Env{})
	for depth, want := range map[int]bool{1: true, 63: true, 64: true, 65: false, 990: false} {
		if got := h.call(person("alice", nil), "weather", `{"a":`+nested(depth)+`}`); got != want || !got && h.why.Reason != ReasonArguments {
			t.Errorf("%d deep: %v, %s", depth, got, h.why)
		}
		if !h.call(person("alice", nil), "weather", `{"a":1,"b":`+nested(depth)+`}`) == (depth != 0) && h.why.Reason == ReasonArguments {
			t.Errorf("an argument that no policy reads, %d deep: %s", depth, h.why)
		}
	}
	if !h.call(person("alice", nil), "weather", `{"a":2,"b":`+nested(990)+`}`) {
		t.Errorf("an argument that no policy reads is held to the depth: %s", h.why)
	}
	// The same for claims.
	h = open(t, policies(t, permitAll, `forbid(principal, action, resource) when { principal has claim_a && principal.claim_a == 1 };`), Options{}, edge.Env{})
	claim := func(n int) (v any) {
		for v = 2; n > 0; n-- {
			v = []any{v}
		}
		return v
	}
	if !h.call(person("alice", map[string]any{"a": claim(64)}), "weather", `{}`) {
		t.Error(h.why)
	}
	if h.call(person("alice", map[string]any{"a": claim(65)}), "weather", `{}`) || h.why.Reason != ReasonClaims {
		t.Error(h.why)
	}
}

// TestZ03Colliding: elements that a stranger chose so that Cedar has to compare
// each with each are denied; ordinary ones are not.
func TestZ03Colliding(t *testing.T) {
	h := open(t, policies(t, readsAll), Options{}, edge.Env{})
	for _, shape := range []string{"colliding sets", "colliding records", "rows"} {
		if h.call(person("alice", nil), "weather", `{"a":`+heavy.Value(shape, 64<<10, 2)+`}`) || h.why.Reason != ReasonArguments {
			t.Errorf("%s: %s", shape, h.why)
		}
	}
	numbers := heavy.Value("wide", 50_000, 2)
	for _, fine := range []string{
		`[1,2,3,4,5]`, `[0.5,1,1.5,2]`, `[[1,4],[2,3]]`, `[[],{},null,0,false,"",1,true]`, numbers,
		heavy.Value("numbers", 30_000, 2), `[` + strings.Repeat(`{"path":"a","text":"b"},`, 500) + `{}]`,
	} {
		if !h.call(person("alice", nil), "weather", `{"a":`+fine+`}`) {
			t.Errorf("%.60s: %s", fine, h.why)
		}
	}
	// Two sets of whole numbers, one in a row, the other of what hashes there.
	var a, b []string
	for i := range 9000 {
		a, b = append(a, itoa(i)), append(b, "0."+fmt.Sprintf("%04d", i))
	}
	row := `{"a":[` + strings.Join(a, ",") + `],"b":[` + strings.Join(b, ",") + `]}`
	h = open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context has arg_a && context.arg_a.containsAny(context.arg_b) };`), Options{}, edge.Env{})
	if took := heavy.Least(bound(len(row)), func() { h.call(person("alice", nil), "weather", row) }); took > bound(len(row)) {
		t.Errorf("containsAny: %v", took)
	}
	if !h.call(person("alice", nil), "weather", `{"a":[1,2,3,4,5,6,7,8],"b":[0.5,9]}`) {
		t.Error(h.why)
	}
}

// nested is sets that collide, in sets that collide: every element of a level has
// the one below in it, and the same hash as the others.
func nested(width, levels int) string {
	inner := "[1]"
	for range levels {
		var all []string
		for j := range width {
			all = append(all, fmt.Sprintf("[%s,%d,%d]", inner, 1000+j, 9000-j))
		}
		inner = "[" + strings.Join(all, ",") + "]"
	}
	return inner
}

// TestZ03NestedColliding: what elements cost that collide at every level is
// counted in steps that bear a proportion to the message, and is denied beyond.
func TestZ03NestedColliding(t *testing.T) {
	h := open(t, policies(t, readsAll), Options{}, edge.Env{})
	for _, of := range [][2]int{{14, 3}, {3, 7}, {2, 11}, {55, 2}} {
		value := nested(of[0], of[1])
		for _, text := range []string{`{"a":` + value + `}`, `{"a":1,"b":` + value + `}`, `{"a":` + value + `,"b":` + value + `}`} {
			denied := false
			took := min(heavy.CPU(func() { h.call(person("alice", nil), "weather", text) }), heavy.CPU(func() {
				denied = !h.call(person("alice", nil), "weather", text) && h.why.Reason == ReasonArguments
			}))
			if t.Logf("%d wide, %d deep, %d bytes: %v, %s", of[0], of[1], len(text), took, h.why); !denied || took > bound(len(text))/2 {
				t.Errorf("%d wide, %d deep, %d bytes: %v, %s", of[0], of[1], len(text), took, h.why)
			}
		}
	}
	// Trees as people write them.
	tree := `["==","kind",1]`
	for i := range 29 {
		tree = fmt.Sprintf(`["all",["in","size",%d],%s]`, i, tree)
	}
	records := `{"name":"x","list":[1,2,3]}`
	for range 10 {
		records = `{"children":[` + records + `,{"name":"leaf","tags":["a","b"]},{"name":"leaf","tags":["a","c"]}],"size":[1,2]}`
	}
	for _, fine := range []string{tree, records, `["` + strings.Repeat("x", 4<<20) + `"]`, `[` + strings.Repeat(`"`+strings.Repeat("y", 5000)+`",`, 100) + `1]`, `[` + strings.Repeat(records+",", 50) + `1]`} {
		if h.call(person("alice", nil), "weather", `{"a":`+fine+`,"b":`+fine+`}`); h.why.Reason == ReasonArguments {
			t.Errorf("%.60s: %s", fine, h.why)
		}
	}
}

// TestZ03Steps: what it takes to compare values, to find them the same or not.
func TestZ03Steps(t *testing.T) {
	for text, want := range map[string]cost{
		`1`: {1, 1}, `[]`: {1, 1}, `[7]`: {2, 2}, `{"a":1,"b":[2]}`: {4, 4}, `["ab","cd"]`: {3, 3}, `["x","y"]`: {3, 4}, `[[1],[2]]`: {5, 7}, `[[0,5],[1,4]]`: {11, 16},
	} {
		c := newConverter()
		if _, err := c.text([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, _, got, err := c.node(0); err != nil || got != want {
			t.Errorf("%s: %v, want %v (%v)", text, got, want, err)
		}
	}
}

// TestZ03Left: who has left is judged no further.
func TestZ03Left(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := open(t, policies(t, readsAll), Options{}, edge.Env{})
	x := message(t, person("alice", nil), "tools/call", `{"name":"weather","arguments":{"a":`+heavy.Value("numbers", 30_000, 2)+`}}`)
	_, err := h.handler.Handle(ctx, x)
	if edge.KindOf(err) != edge.Gone || h.room.calls != 0 {
		t.Errorf("%v, %d calls", err, h.room.calls)
	}
}

// TestZ03Hash: what a value hashes to is what it hashes to in Cedar.
func TestZ03Hash(t *testing.T) {
	for _, text := range []string{
		`1`, `-1`, `9223372036854775807`, `1.5`, `-0.0001`, `1e400`, `true`, `false`, `null`, `""`, `"a"`, `"é\u0000"`, `[]`, `{}`, `[1,2,[3,"x"],{"b":1,"a":[2]}]`,
		`{"a":1}`, `{"b":null,"a":{"c":[1,1.0]}}`, `[[1,4],[2,3],[1,4]]`,
	} {
		c := newConverter()
		value, err := c.text([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		_, hash, _, err := c.node(0)
		if err != nil {
			t.Fatal(err)
		}
		if in := reflect.ValueOf(cedar.NewSet(value)).FieldByName("hashVal"); in.Uint() != hash {
			t.Errorf("%s: %d, and %d in Cedar", text, hash, in.Uint())
		}
	}
}

// FuzzHeavy: whatever an argument is, to judge it costs in proportion to it.
func FuzzHeavy(f *testing.F) {
	set := policies(f, readsAll)
	for _, shape := range heavy.Shapes() {
		f.Add(heavy.Value(shape, 2000, 30), uint16(100))
	}
	f.Fuzz(func(t *testing.T, value string, times uint16) {
		if !mcpValidObject(`{"a":` + value + `}`) {
			return
		}
		n := min(int(times), 1<<20/(len(value)+1))
		text := `{"a":[` + strings.Repeat(value+",", n) + `0],"b":` + value + `}`
		if !mcpValidObject(text) { // such as members of an object
			return
		}
		h := open(t, set, Options{}, edge.Env{})
		most := bound(len(text))
		if took := heavy.Least(most, func() { h.call(person("alice", nil), "weather", text) }); took > most {
			t.Errorf("%d bytes: %v", len(text), took)
		}
	})
}
