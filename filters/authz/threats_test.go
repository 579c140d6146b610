package authz

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// The names of these tests are the rows of the list of threats to authorization.

const permitAll = `permit(principal, action, resource);`

// TestC01: a policy that cannot be evaluated denies, also one that forbids.
func TestC01(t *testing.T) {
	for name, forbid := range map[string]string{
		"missing attribute": `forbid(principal, action, resource) when { principal.claim_missing == "x" };`,
		"type error":        `forbid(principal, action, resource) when { context.arg_n > "a" };`,
		"overflow":          `forbid(principal, action, resource) when { context.arg_n * 9223372036854775807 > 1 };`,
		"a permit":          `permit(principal, action, resource) when { principal.claim_missing == "x" };`,
	} {
		h := open(t, policies(t, permitAll, forbid), Options{}, edge.Env{})
		if h.call(person("alice", nil), "weather", `{"n":2}`) {
			t.Errorf("%s: allowed", name)
		}
		if h.why.Reason != ReasonError || len(h.why.Errors) != 1 || h.why.Errors[0].Policy != "policy1" {
			t.Errorf("%s: %s", name, h.why)
		}
	}
}

// TestC02: a set without policies is refused, and so never allows all nor takes
// the place of a good one.
func TestC02(t *testing.T) {
	for name, texts := range map[string][]string{
		"none": nil, "empty": {""}, "comments": {"// nothing\n/* here */"}, "one of two empty": {permitAll, " "}, "truncated": {"permit(principal, action, reso"},
	} {
		if p, errs := Parse(Spec{Policies: texts}, field.NewPath("authz")); len(errs) == 0 || p != nil {
			t.Errorf("%s: %v %v", name, p, errs)
		}
	}
	for name, text := range map[string]string{"emptied": "", "no set": `{"version":"1.0","type":"policyv1"}`, "null": "null"} {
		if _, errs := FromDocument([]byte(text), field.NewPath("data")); len(errs) == 0 {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestC03: arguments are plain data, whatever they look like.
func TestC03(t *testing.T) {
	set := policies(t, permitAll,
		`forbid(principal, action, resource) when { context.arg_a == User::"admin" };`,
		`forbid(principal, action, resource) when { context.arg_a == ip("10.0.0.1") };`,
		`forbid(principal, action, resource) when { resource.arg_a == User::"admin" };`)
	for _, v := range []string{
		`{"__entity":{"type":"User","id":"admin"}}`, `{"type":"User","id":"admin"}`,
		`{"__extn":{"fn":"ip","arg":"10.0.0.1"}}`, `{"__expr":"User::\"admin\""}`,
	} {
		h := open(t, set, Options{}, edge.Env{})
		if !h.call(person("alice", nil), "weather", `{"a":`+v+`}`) {
			t.Errorf("%s is not plain data: %s", v, h.why)
		}
		value, err := newConverter().text([]byte(v))
		if _, plain := value.(cedar.Record); err != nil || !plain {
			t.Errorf("%s: %T %v", v, value, err)
		}
	}
	// The same in a set: an element that looks like an entity is none.
	h := open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context.arg_a.contains(User::"admin") };`), Options{}, edge.Env{})
	if !h.call(person("alice", nil), "weather", `{"a":[{"__entity":{"type":"User","id":"admin"}}]}`) {
		t.Error(h.why)
	}
}

// TestC04: every JSON value has a documented place, and none is dropped so that
// has says no.
func TestC04(t *testing.T) {
	odd := func(s string) cedar.Value { return cedar.NewRecord(cedar.RecordMap{"number": cedar.String(s)}) }
	decimal := func(i int64, e int) cedar.Value {
		d, err := cedar.NewDecimal(i, e)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for text, want := range map[string]cedar.Value{
		`1`: cedar.Long(1), `-7`: cedar.Long(-7), `1.0`: cedar.Long(1), `1e3`: cedar.Long(1000), `-0`: cedar.Long(0), `0.0`: cedar.Long(0),
		`9223372036854775807`: cedar.Long(1<<63 - 1), `-9223372036854775808`: cedar.Long(-1 << 63),
		`9223372036854775808`: odd(`9223372036854775808`), `1e400`: odd(`1e400`), `1e999999999`: odd(`1e999999999`), `1e-999999999`: odd(`1e-999999999`),
		`1.5`: decimal(15, -1), `-0.0001`: decimal(-1, -4), `15e-1`: decimal(15, -1), `1.50000`: decimal(15, -1),
		`1.00001`: odd(`1.00001`), `922337203685477.5807`: decimal(9223372036854775807, -4), `922337203685477.5808`: odd(`922337203685477.5808`),
		`null`: cedar.Record{}, `true`: cedar.True, `"a\u0000\""`: cedar.String("a\x00\""),
		`[1,1.0,"1"]`:                cedar.NewSet(cedar.Long(1), cedar.String("1")),
		`{"a":{"b":[]}}`:             cedar.NewRecord(cedar.RecordMap{"a": cedar.NewRecord(cedar.RecordMap{"b": cedar.NewSet()})}),
		strings.Repeat("9", 100_000): odd(strings.Repeat("9", 100_000)),
	} {
		got, err := newConverter().text([]byte(text))
		if err != nil || !got.Equal(want) {
			t.Errorf("%.40s: %v %v", text, got, err)
		}
	}

	h := open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context has arg_a };`), Options{}, edge.Env{})
	for _, v := range []string{`1.00001`, `null`, `9223372036854775808`, `[]`, `{}`, `""`, `false`, `"` + strings.Repeat("x", 10<<20) + `"`, strings.Repeat("[", 990) + strings.Repeat("]", 990)} {
		if h.call(person("alice", nil), "weather", `{"a":`+v+`}`) {
			t.Errorf("%.40s: has says no", v)
		}
	}
	// What the language cannot hold cannot be compared by order, and so denies.
	h = open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context.arg_a > 100 };`), Options{}, edge.Env{})
	for _, v := range []string{`9223372036854775808`, `100.5`, `null`, `"101"`, `101.0`, `1.01e2`} {
		if h.call(person("alice", nil), "weather", `{"a":`+v+`}`) {
			t.Errorf("%s: allowed", v)
		}
	}
	if !h.call(person("alice", nil), "weather", `{"a":100.0}`) {
		t.Error(h.why)
	}
	// Too many values are denied, at little cost, where policies read them.
	many := make([]string, 100_000)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%d":%d`, i, i)
	}
	start := time.Now()
	if h.call(person("alice", nil), "weather", `{"a":{`+strings.Join(many, ",")+`}}`) || h.why.Reason != ReasonArguments {
		t.Error(h.why)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("100,000 keys took %v", took)
	}
	if !h.call(person("alice", nil), "weather", `{"a":1,"other":{`+strings.Join(many, ",")+`}}`) {
		t.Errorf("an argument that no policy reads is counted: %s", h.why)
	}
	for _, v := range []string{`[1]`, `"x"`, `7`} {
		if h.call(person("alice", nil), "weather", v) {
			t.Errorf("arguments %s: allowed", v)
		}
	}
	// What is no scalar is also marked as present, as the reference does.
	h = open(t, policies(t, `permit(principal, action, resource) when { context has arg_a_present && context.arg_a_present };`), Options{}, edge.Env{})
	for v, want := range map[string]bool{`[]`: true, `{}`: true, `null`: true, `1`: false, `"x"`: false} {
		if h.call(person("alice", nil), "weather", `{"a":`+v+`}`) != want {
			t.Errorf("arg_a_present with %s: %s", v, h.why)
		}
	}
}

// TestZ03Numbers: a number that no policy can name exactly, and that a reader may
// round to one that a policy forbids, is denied where policies read it; one that
// can be named is that number however it is written.
func TestZ03Numbers(t *testing.T) {
	h := open(t, policies(t, permitAll,
		`forbid(principal, action, resource) when { context has arg_level && context.arg_level == 10 };`,
		`forbid(principal, action, resource) when { context has arg_many && [[10], [0], [decimal("0.5")]].contains(context.arg_many) };`,
		`forbid(principal, action, resource) when { context has arg_deep && context.arg_deep == {"a": 10} };`,
		`forbid(principal, action, resource) when { context has arg_null && context.arg_null == 0 };`), Options{}, edge.Env{})
	long := strings.Repeat("0", 67)
	for arguments, reason := range map[string]string{
		`{"level":10.00000000000000000001}`: ReasonArguments, `{"level":9.9999999999999999999}`: ReasonArguments, `{"level":10.00001}`: ReasonArguments,
		`{"level":1e400}`: ReasonArguments, `{"level":9223372036854775808}`: ReasonArguments, `{"level":1e999999999999999999999}`: ReasonArguments,
		`{"level":10.` + long + `}`: ReasonForbidden, `{"level":1e1}`: ReasonForbidden, `{"level":1` + long + `e-66}`: ReasonForbidden,
		`{"level":0.` + long + `1e69}`: ReasonForbidden, `{"level":10.` + long + `1}`: ReasonArguments, `{"level":1000e-0000000000000000000000002}`: ReasonForbidden,
		`{"many":[9.9999999999999999999]}`: ReasonArguments, `{"many":[10.` + long + `]}`: ReasonForbidden, `{"many":[0.5` + long + `]}`: ReasonForbidden,
		`{"many":[1,{"x":[0.00001]}]}`: ReasonArguments, `{"deep":{"a":10.00000000000000000001}}`: ReasonArguments, `{"deep":{"a":10.0}}`: ReasonForbidden,
		`{"null":1e-400}`: ReasonArguments, `{"null":-1e-400}`: ReasonArguments, `{"null":0e-400}`: ReasonForbidden, `{"null":-0.` + long + `}`: ReasonForbidden,
		`{"level":11.5,"many":[1,2.25],"deep":{"b":9007199254740993},"null":-1}`: ReasonPermitted, `{"other":10.00000000000000000001}`: ReasonPermitted,
		`{"level":-9223372036854775808,"null":9223372036854775807}`: ReasonPermitted, `{"level":922337203685477.5807}`: ReasonPermitted, `{"level":922337203685477.5808}`: ReasonArguments,
		`{"level":"10.00000000000000000001"}`: ReasonPermitted,
	} {
		if allowed := h.call(person("alice", nil), "weather", arguments); allowed != (reason == ReasonPermitted) || h.why.Reason != reason {
			t.Errorf("%s: %s", arguments, h.why)
		}
	}
	h.call(person("alice", nil), "weather", `{"deep":{"a":1e-400}}`)
	if want := `argument "deep": the number 1e-400, which is neither a Long nor a decimal`; len(h.why.Errors) != 1 || h.why.Errors[0].What != want {
		t.Errorf("%s, not %s", h.why, want)
	}
	// A number of ten million digits costs no more than it takes to read: what grew with the
	// square of its length would take hours.
	start := time.Now()
	if h.call(person("alice", nil), "weather", `{"level":10.`+strings.Repeat("0", 10<<20)+`}`) || h.why.Reason != ReasonForbidden {
		t.Error(h.why)
	}
	most := 2 * time.Second
	if raceEnabled {
		most *= 10
	}
	if took := time.Since(start); took > most {
		t.Errorf("took %v", took)
	}
	// What an issuer says of somebody stays what it is.
	h = open(t, policies(t, `permit(principal, action, resource) when { principal has claim_iat };`), Options{}, edge.Env{})
	if !h.call(person("alice", map[string]any{"iat": json.Number("1700000000.123456")}), "weather", `{}`) {
		t.Error(h.why)
	}
}

// TestZ03Folding: an argument that a reader which ignores case takes for one that
// policies read, and that they do not see, is denied.
func TestZ03Folding(t *testing.T) {
	try := func(h *hall, cases map[string]string) {
		t.Helper()
		for arguments, reason := range cases {
			if allowed := h.call(person("alice", nil), "weather", arguments); allowed != (reason == ReasonPermitted) || h.why.Reason != reason {
				t.Errorf("%s: %s", arguments, h.why)
			}
		}
	}
	h := open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context has arg_path && context.arg_path like "/secret/*" };`,
		`forbid(principal, action, resource) when { resource has arg_key && resource.arg_key == "s" };`,
		`forbid(principal, action, resource) when { context has arg_tasks_present };`), Options{}, edge.Env{})
	try(h, map[string]string{
		`{"path":"/public/a"}`: ReasonPermitted, `{"path":"/secret/k"}`: ReasonForbidden, `{"p\u0061th":"/secret/k"}`: ReasonForbidden,
		`{"path":"/public/a","Path":"/secret/k"}`: ReasonArguments, `{"Path":"/secret/k"}`: ReasonArguments, `{"PATH":"/public/a","path":"/public/a"}`: ReasonArguments,
		`{"\u0050ath":"/secret/k"}`: ReasonArguments, `{"\u212aey":"s"}`: ReasonArguments, "{\"\u212aey\":\"s\"}": ReasonArguments, `{"kEy":"s"}`: ReasonArguments,
		`{"ta\u017fks":[]}`: ReasonArguments, `{"taſks":1}`: ReasonArguments, `{"tasks":1}`: ReasonPermitted, `{"Tasks_Present":1}`: ReasonArguments,
		`{"path":{"Path":"/secret/k"}}`: ReasonError, `{"key":{"Key":1},"Other":1,"other":2,"paths":3,"pa-th":4,"pàth":5}`: ReasonPermitted,
	})
	h.call(person("alice", nil), "weather", `{"Path":"/secret/k"}`)
	if want := `argument "Path": a reader that ignores case takes it for "path", which policies read`; len(h.why.Errors) != 1 || h.why.Errors[0].What != want {
		t.Errorf("%s, not %s", h.why, want)
	}
	// Two that are both read are two.
	h = open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context has arg_id && context.arg_id == 7 || context has arg_ID && context.arg_ID == 7 };`), Options{}, edge.Env{})
	try(h, map[string]string{`{"id":1,"ID":2}`: ReasonPermitted, `{"ID":2}`: ReasonPermitted, `{"id":1,"ID":7}`: ReasonForbidden, `{"id":1,"ID":2,"Id":7}`: ReasonArguments})
	// Where policies read arguments as a whole, any two may be one.
	h = open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context == {"claim_sub": "alice", "arg_path": "s"} };`), Options{}, edge.Env{})
	try(h, map[string]string{
		`{"path":"s"}`: ReasonForbidden, `{"path":"t"}`: ReasonPermitted, `{"Path":"s"}`: ReasonArguments, `{"path":"t","Path":"s"}`: ReasonArguments,
		`{"x":1,"y":2}`: ReasonPermitted, `{"x":1,"X":2}`: ReasonArguments, `{"X":1}`: ReasonPermitted,
	})
	// The same for the arguments of prompts and of completions.
	h = open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context has arg_env && context.arg_env == "prod" };`), Options{}, edge.Env{})
	for params, method := range map[string]string{
		`{"name":"p","arguments":{"Env":"prod"}}`:                                                                                                   "prompts/get",
		`{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"Env","value":"prod"}}`:                                                         "completion/complete",
		`{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"env","value":"dev"},"context":{"arguments":{"ENV":"prod"}}}`:                   "completion/complete",
		`{"ref":{"type":"ref/resource","uri":"x:{env}"},"argument":{"name":"other","value":""},"context":{"arguments":{"ENV":"prod","env":"dev"}}}`: "completion/complete",
	} {
		if h.passes(message(t, person("alice", nil), method, params)) || h.why.Reason != ReasonArguments {
			t.Errorf("%s: %s", params, h.why)
		}
	}
}

// TestZ03Present: no argument takes the place of what says that another argument
// is there, be it that it is there or that it is not.
func TestZ03Present(t *testing.T) {
	h := open(t, policies(t, permitAll, `forbid(principal, action, resource) unless { context has arg_approver_present };`), Options{}, edge.Env{})
	for arguments, reason := range map[string]string{
		`{"approver":{"name":"bob"}}`: ReasonPermitted, `{"approver":["bob"]}`: ReasonPermitted, `{}`: ReasonForbidden, `{"approver":"bob"}`: ReasonForbidden,
		`{"approver_present":true}`: ReasonArguments, `{"approver_present":{}}`: ReasonArguments, `{"approver":"bob","approver_present":true}`: ReasonArguments,
		`{"approver":{},"approver_present":false}`: ReasonArguments, `{"approver_pre\u0073ent":true}`: ReasonArguments,
		`{"approver":{},"other_present":true}`: ReasonPermitted, `{"approver":{},"approver_present_present":true}`: ReasonPermitted,
	} {
		if allowed := h.call(person("alice", nil), "weather", arguments); allowed != (reason == ReasonPermitted) || h.why.Reason != reason {
			t.Errorf("%s: %s", arguments, h.why)
		}
	}
	h = open(t, policies(t, permitAll, `forbid(principal, action, resource) when { resource has arg_file_present };`), Options{}, edge.Env{})
	for arguments, want := range map[string]bool{`{"file":null}`: false, `{"file_present":1}`: false, `{"file":"a"}`: true, `{"_present":1}`: true} {
		if h.call(person("alice", nil), "weather", arguments) != want {
			t.Errorf("%s: %s", arguments, h.why)
		}
	}
	// Policies that read arguments as a whole read them all.
	h = open(t, policies(t, permitAll, `forbid(principal, action, resource) unless { context == {"claim_sub": "alice", "arg_a": {}, "arg_a_present": true} };`), Options{}, edge.Env{})
	for arguments, want := range map[string]bool{`{"a":{}}`: true, `{"a":{},"a_present":true}`: false, `{"a":{},"b_present":true}`: false} {
		if h.call(person("alice", nil), "weather", arguments) != want {
			t.Errorf("%s: %s", arguments, h.why)
		}
	}
	h.call(person("alice", nil), "weather", `{"b_present":true}`)
	if h.why.Reason != ReasonArguments {
		t.Error(h.why)
	}
}

// TestC05: names are data.
func TestC05(t *testing.T) {
	h := open(t, policies(t, `permit(principal, action, resource == Tool::"evil");`), Options{}, edge.Env{})
	for _, name := range []string{
		`evil"; permit(principal, action, resource); //`, "evil\x00", "еvil", "Evil", "evil ", " evil", `evil\`, `Tool::"evil"`, strings.Repeat("evil", 2560), "",
	} {
		if h.call(person("alice", nil), name, `{}`) {
			t.Errorf("%.20q: allowed", name)
		}
	}
	if !h.call(person("alice", nil), "evil", `{}`) {
		t.Error(h.why)
	}
	h = open(t, policies(t, `permit(principal == Client::"alice", action, resource);`), Options{}, edge.Env{})
	for _, sub := range []string{`alice" || true`, "Alice", "alice\x00", ""} {
		if h.call(person(sub, nil), "evil", `{}`) {
			t.Errorf("subject %q: allowed", sub)
		}
	}
}

// TestC06: a group claim in any shape is read or denies, and ten thousand groups
// cost little.
func TestC06(t *testing.T) {
	set := policies(t, permitAll, `forbid(principal in THVGroup::"banned", action, resource);`)
	allowed := func(claims map[string]any) bool {
		return open(t, set, Options{}, edge.Env{}).call(person("alice", claims), "weather", `{}`)
	}
	for name, c := range map[string]struct {
		claim any
		want  bool
	}{
		"string": {"banned", false}, "other string": {"good", true}, "array": {[]any{"good", "banned"}, false}, "strings": {[]string{"banned"}, false},
		"number": {json.Number("7"), false}, "nested": {[]any{[]any{"banned"}}, false}, "array with a number": {[]any{"good", json.Number("1")}, false},
		"object": {map[string]any{"banned": true}, false}, "boolean": {true, false}, "null": {nil, true}, "empty": {[]any{}, true},
	} {
		if got := allowed(map[string]any{"groups": c.claim}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	many := make([]any, 10_000)
	for i := range many {
		many[i] = "group" + itoa(i)
	}
	best := time.Hour
	for range 5 {
		id := person("alice", map[string]any{"groups": slices.Clone(many)})
		h := open(t, set, Options{}, edge.Env{})
		x := message(t, id, "tools/call", `{"name":"weather"}`)
		start := time.Now()
		ok := h.passes(x)
		best = min(best, time.Since(start))
		if !ok {
			t.Fatal(h.why)
		}
	}
	t.Logf("10,000 groups: %v", best)
	if best > 5*time.Millisecond && !raceEnabled {
		t.Errorf("10,000 groups took %v", best)
	}
	if allowed(map[string]any{"groups": append(slices.Clone(many), "banned")}) {
		t.Error("one of many groups is not seen")
	}
	if allowed(map[string]any{"groups": append(slices.Clone(many), many...)}) {
		t.Error("more groups than the bound are not denied")
	}
}

// TestGroupClaims: which claims make groups.
func TestGroupClaims(t *testing.T) {
	for name, c := range map[string]struct {
		spec   Spec
		claims map[string]any
		want   bool
	}{
		"groups":                           {Spec{}, map[string]any{"groups": "eng"}, true},
		"roles":                            {Spec{}, map[string]any{"roles": "eng"}, true},
		"cognito:groups":                   {Spec{}, map[string]any{"cognito:groups": []any{"eng"}}, true},
		"the first there is":               {Spec{}, map[string]any{"groups": []any{}, "roles": "eng"}, false},
		"a name of one's own":              {Spec{GroupClaimName: "team"}, map[string]any{"team": "eng"}, true},
		"it comes first":                   {Spec{GroupClaimName: "team"}, map[string]any{"team": "ops", "groups": "eng"}, false},
		"without it the others":            {Spec{GroupClaimName: "team"}, map[string]any{"groups": "eng"}, true},
		"a URL as a name":                  {Spec{GroupClaimName: "https://x.example/groups"}, map[string]any{"https://x.example/groups": "eng"}, true},
		"a path":                           {Spec{GroupClaimName: "realm_access.roles"}, map[string]any{"realm_access": map[string]any{"roles": []any{"eng"}}}, true},
		"a path that ends early":           {Spec{GroupClaimName: "a.b"}, map[string]any{"a": "eng"}, false},
		"roles beside groups":              {Spec{RoleClaimName: "title"}, map[string]any{"title": "eng", "groups": "ops"}, true},
		"roles that cannot be read":        {Spec{RoleClaimName: "title"}, map[string]any{"title": json.Number("1"), "groups": "eng"}, false},
		"another entity type":              {Spec{GroupEntityType: "Team"}, map[string]any{"groups": "eng"}, false},
		"no claims":                        {Spec{}, nil, false},
		"the set's own parents of a group": {Spec{EntitiesJSON: `[{"uid":{"type":"THVGroup","id":"kernel"},"attrs":{},"parents":[{"type":"THVGroup","id":"eng"}]}]`}, map[string]any{"groups": "kernel"}, true},
		"the set's own groups of a client": {Spec{EntitiesJSON: `[{"uid":{"type":"Client","id":"alice"},"attrs":{},"parents":[{"type":"THVGroup","id":"eng"}]}]`}, nil, true},
	} {
		c.spec.Policies = []string{`permit(principal in THVGroup::"eng", action, resource);`}
		h := open(t, parsed(t, c.spec), Options{}, edge.Env{})
		if got := h.call(person("alice", c.claims), "weather", `{}`); got != c.want {
			t.Errorf("%s: %v (%s)", name, got, h.why)
		}
	}
}

// TestC07: what a client says of itself is not a claim.
func TestC07(t *testing.T) {
	h := open(t, policies(t,
		`permit(principal in THVGroup::"admin", action, resource);`,
		`permit(principal, action, resource) when { principal has claim_role && principal.claim_role == "admin" };`,
		`permit(principal, action, resource) when { context has claim_role && context.claim_role == "admin" };`), Options{}, edge.Env{})
	x := message(t, person("alice", map[string]any{"role": "user"}), "tools/call",
		`{"name":"weather","arguments":{"groups":["admin"],"claim_role":"admin","role":"admin"},"_meta":{"groups":["admin"],"claims":{"role":"admin"}}}`)
	x.Head.Params = []edge.Header{{Name: "Mcp-Param-Groups", Value: "admin"}}
	x.Forward = []edge.Header{{Name: "X-Groups", Value: "admin"}, {Name: "groups", Value: "admin"}}
	if h.passes(x) {
		t.Error("a client's word was taken for a claim")
	}
	x = message(t, person("alice", map[string]any{"role": "admin"}), "tools/call", `{"name":"weather"}`)
	if !h.passes(x) {
		t.Error(h.why)
	}
	x.Identity = nil
	if h.passes(x) {
		t.Error("nobody is allowed")
	}
}

// TestC08: what every method needs.
func TestC08(t *testing.T) {
	set := policies(t,
		`permit(principal, action == Action::"call_tool", resource == Tool::"yes");`,
		`permit(principal, action == Action::"get_prompt", resource == Prompt::"yes");`,
		`permit(principal, action == Action::"read_resource", resource == Resource::"x:yes");`)
	for _, c := range []struct {
		method, params string
		want           bool
	}{
		{"initialize", `{}`, true}, {"ping", `{}`, true}, {"server/discover", `{}`, true}, {"logging/setLevel", `{"level":"info"}`, true},
		{"tools/list", `{}`, true}, {"prompts/list", `{}`, true}, {"resources/list", `{}`, true}, {"resources/templates/list", `{}`, true}, {"tasks/list", `{}`, true},
		{"tools/call", `{"name":"yes"}`, true}, {"tools/call", `{"name":"no"}`, false}, {"tools/call", `{}`, false},
		{"prompts/get", `{"name":"yes"}`, true}, {"prompts/get", `{"name":"no"}`, false},
		{"resources/read", `{"uri":"x:yes"}`, true}, {"resources/read", `{"uri":"x:no"}`, false},
		{"resources/subscribe", `{"uri":"x:yes"}`, true}, {"resources/subscribe", `{"uri":"x:no"}`, false},
		{"resources/unsubscribe", `{"uri":"x:yes"}`, true}, {"resources/unsubscribe", `{"uri":"x:no"}`, false},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"yes"},"argument":{"name":"a","value":""}}`, true},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"no"},"argument":{"name":"a","value":""}}`, false},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"x:yes"},"argument":{"name":"a","value":""}}`, true},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"x:no"},"argument":{"name":"a","value":""}}`, false},
		{"completion/complete", `{"ref":{"type":"ref/tool","name":"yes"},"argument":{"name":"a","value":""}}`, false},
		{"completion/complete", `{}`, false},
		{"subscriptions/listen", `{"notifications":{}}`, true}, {"subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`, true},
		{"subscriptions/listen", `{"notifications":{"resourceSubscriptions":["x:yes"]}}`, true},
		{"subscriptions/listen", `{"notifications":{"resourceSubscriptions":["x:yes","x:no"]}}`, false},
		{"subscriptions/listen", `{"notifications":{"resourceSubscriptions":[7]}}`, false},
		{"subscriptions/listen", `{"notifications":{"taskIds":["t"]}}`, false},
		{"tasks/get", `{"taskId":"t"}`, false}, {"tasks/result", `{"taskId":"t"}`, false}, {"tasks/cancel", `{"taskId":"t"}`, false}, {"tasks/update", `{"taskId":"t"}`, false},
		{"vendor/anything", `{}`, false}, {"tools/callx", `{"name":"yes"}`, false}, {"roots/list", `{}`, false}, {"sampling/createMessage", `{}`, false},
	} {
		h := open(t, set, Options{}, edge.Env{})
		if got := h.passes(message(t, person("alice", nil), c.method, c.params)); got != c.want {
			t.Errorf("%s %s: %v (%s)", c.method, c.params, got, h.why)
		}
	}
	h := open(t, set, Options{}, edge.Env{})
	many := strings.TrimSuffix(strings.Repeat(`"x:yes",`, maxAtOnce+1), ",")
	if h.passes(message(t, person("alice", nil), "subscriptions/listen", `{"notifications":{"resourceSubscriptions":[`+many+`]}}`)) {
		t.Error("more things at once than the bound")
	}
	for _, text := range []string{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","method":"notifications/vendor"}`} {
		m, err := mcp.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if !h.passes(&edge.Exchange{Request: m}) {
			t.Errorf("%s: a notification needs no policy", text)
		}
	}
}

// TestZ02: what is sent as something other than it is is denied, whatever the
// policies say: a request without an id, a notification with one.
func TestZ02(t *testing.T) {
	h := open(t, policies(t, `permit(principal, action, resource);`), Options{}, edge.Env{})
	for _, method := range append(mcp.Methods(), "vendor/anything", "Notifications/x") {
		for _, id := range []string{"", `"id":1,`} {
			if mcp.Notifies(method) == (id == "") {
				continue
			}
			m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0",` + id + `"method":"` + method + `","params":{"name":"yes","uri":"x:yes"}}`))
			if err != nil {
				t.Fatal(err)
			}
			if h.passes(&edge.Exchange{Server: "main", Request: m, Identity: person("alice", nil), Target: &edge.Target{Backend: "b"}}) {
				t.Errorf("%s %spasses", method, id)
			}
		}
	}
}

// TestC09: a view hides what a call would be denied, also from tools that look
// for tools.
func TestC09(t *testing.T) {
	h := open(t, policies(t, `permit(principal, action, resource in MCP::"main") unless { resource == Tool::"secret" };`), Options{}, edge.Env{})
	x := message(t, person("alice", nil), "tools/call", `{"name":"find_tool","arguments":{"tool_description":"secret"}}`)
	x.Target = &edge.Target{Thing: edge.Tool, Name: "find_tool"}
	if !h.passes(x) {
		t.Fatal(h.why)
	}
	view := h.room.last.View
	if view == nil || view.Allows(&edge.Item{Thing: edge.Tool, Name: "secret"}) || !view.Allows(&edge.Item{Thing: edge.Tool, Name: "weather"}) {
		t.Error("find_tool has no view, or one that shows what is denied")
	}
	if view.Allows(&edge.Item{Name: "weather"}) {
		t.Error("a thing of no kind is shown")
	}
}

// TestC10: an inner call is judged as the client's own would be.
func TestC10(t *testing.T) {
	h := open(t, policies(t, `permit(principal, action == Action::"call_tool", resource) when { resource.name == "call_tool" || principal in THVGroup::"eng" };`), Options{}, edge.Env{})
	alice := person("alice", nil)
	outer := message(t, alice, "tools/call", `{"name":"call_tool","arguments":{"tool_name":"weather"}}`)
	outer.Target = &edge.Target{Thing: edge.Tool, Name: "call_tool"}
	if !h.passes(outer) {
		t.Fatal(h.why)
	}
	inner := message(t, alice, "tools/call", `{"name":"weather"}`)
	inner.Parent, inner.Target = outer, &edge.Target{Thing: edge.Tool, Name: "weather", Original: "w", Backend: "b"}
	if h.passes(inner) {
		t.Error("an inner call is allowed since the outer one was")
	}
	inner.Identity = person("bob", map[string]any{"groups": "eng"})
	if !h.passes(inner) {
		t.Error(h.why)
	}
}

// TestC11: a URI is judged as written and in its canonical form.
func TestC11(t *testing.T) {
	h := open(t, policies(t,
		`permit(principal, action, resource is Resource) when { resource.uri like "file:///pub/*" || resource.uri like "*://host/*" || resource.uri like "*:*" && resource.uri like "HTTPS*" };`,
		`forbid(principal, action, resource) when { resource.uri like "*secret*" };`), Options{}, edge.Env{})
	for uri, want := range map[string]bool{
		"file:///pub/a": true, "file:///pub/./a": true, "file:///pub/b/../a": true,
		"file:///pub/../etc": false, "file:///pub/%2e%2e/etc": false, "file:///pub/..%2fetc": false, "file:///pub/%2e%2e%2fetc": false, "file:///pub/%252e%252e%252fetc": false,
		`file:///pub/..\etc`: false, "file:///pub/..%5cetc": false, "file:///pub/a%00b": false, "file:///pub/a\x00": false, "file:///pub/%zz": false, "file:///pub/%4": false,
		"file:///pub/s%65cret": false, "file:///pub/%73%65%63%72%65%74": false, "file:///pub/secret": false, "file:///pub/a%20b": true,
		"FILE:///pub/a": false, "FILE:///pub/secret": false,
		"http://HOST/x": false, "http://host/x": true, "http://host:80/x": false, "HTTPS://host:443/x": true, "": false,
		"file:///pub/a?x=../y": true, "file:///pub/a#../y": true,
	} {
		params, err := json.Marshal(map[string]string{"uri": uri})
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{"resources/read", "resources/subscribe"} {
			x := message(t, person("alice", nil), method, string(params))
			if got := h.passes(x); got != want {
				t.Errorf("%s %q: %v (%s)", method, uri, got, h.why)
			} else if got && h.room.last.Request.Text("uri") != uri {
				t.Errorf("%q: another URI is sent than the one judged", uri)
			}
		}
	}
	for from, to := range map[string]string{
		"a/b": "a/b", "weather": "weather", "HTTP://User@Host:80/%7eA/./b/../c/?q=%2f#F": "http://User@host/~A/c/?q=%2F#F",
		"urn:X:Y": "urn:X:Y", "file:///a/b/..": "file:///a/", "file:///..": "file:///", "x:///{path}": "x:///{path}", "http://h": "http://h", "ws://h:/": "ws://h/",
	} {
		if got, ok := mcp.ReadURI(from); !ok || got.Canonical != to {
			t.Errorf("%s: %s %v", from, got.Canonical, ok)
		}
	}
}

// TestC12: hints are the backend's word; an entity of the set says otherwise.
func TestC12(t *testing.T) {
	yes := true
	allowed := func(entities string) bool {
		h := open(t, parsed(t, Spec{Policies: []string{`permit(principal, action, resource) when { resource has readOnlyHint && resource.readOnlyHint };`}, EntitiesJSON: entities}), Options{}, edge.Env{})
		x := message(t, person("alice", nil), "tools/call", `{"name":"delete","arguments":{"readOnlyHint":true}}`)
		x.Target = &edge.Target{Thing: edge.Tool, Name: "delete", Backend: "b", ReadOnly: &yes}
		return h.passes(x)
	}
	if !allowed("") {
		t.Error("the backend's hint is not seen")
	}
	if allowed(`[{"uid":{"type":"Tool","id":"delete"},"attrs":{"readOnlyHint":false},"parents":[]}]`) {
		t.Error("the backend's hint beats the operator's word")
	}
	h := open(t, policies(t, `permit(principal, action, resource) when { resource.readOnlyHint };`), Options{}, edge.Env{})
	if h.call(person("alice", nil), "delete", `{}`) || h.why.Reason != ReasonError {
		t.Errorf("a hint that is not given: %s", h.why)
	}
}

// TestC14: while sets are exchanged, every message is judged by exactly one of
// them, and its record names it.
func TestC14(t *testing.T) {
	sets := []*Policies{
		policies(t, permitAll),
		policies(t, `permit(principal, action, resource) when { resource.name == "other" };`),
	}
	var wrong atomic.Int64
	var now atomic.Pointer[edge.Handler]
	type result struct {
		version string
		allowed bool
	}
	handlers := make([]edge.Handler, 2)
	results := [2]result{{sets[0].version, true}, {sets[1].version, false}}
	for i, set := range sets {
		want := results[i]
		filter, err := set.With(Options{Record: func(_ *edge.Exchange, why *Explanation) {
			if (result{why.Version, why.Allowed}) != want {
				wrong.Add(1)
			}
		}}).Open(edge.Env{})
		if err != nil {
			t.Fatal(err)
		}
		handlers[i] = filter(edge.HandlerFunc((&sink{}).handle))
	}
	if sets[0].version == sets[1].version || sets[0].version == "" {
		t.Error("two sets have one version")
	}
	now.Store(&handlers[0])
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for range 2_000 {
				x := message(t, person("alice", nil), "tools/call", `{"name":"weather"}`)
				_, _ = (*now.Load()).Handle(t.Context(), x) // judged by Record
			}
		})
	}
	for i := range 500 {
		now.Store(&handlers[i%2])
	}
	load.Wait()
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d decisions were not those of one set", n)
	}
}

// TestC16: what is too large or too deep is refused before it is parsed.
func TestC16(t *testing.T) {
	var hundred strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&hundred, "permit(principal,action,resource==T::\"%d\");", i)
	}
	around := func(open, close string, n int) []string {
		return []string{"permit(principal,action,resource) when {" + strings.Repeat(open, n) + "true" + strings.Repeat(close, n) + "};"}
	}
	for name, texts := range map[string][]string{
		"10 MiB":              {permitAll + "//" + strings.Repeat("x", 10<<20)},
		"a million brackets":  around("(", ")", 1_000_000),
		"100,000 brackets":    around("(", ")", 100_000),
		"unclosed brackets":   around("(", "", 100_000),
		"1,001 brackets":      around("(", ")", 1_001),
		"arrays":              around("[", "]", 100_000),
		"records":             around("{a:", "}", 100_000),
		"negations":           around("!", "", 100_000),
		"members":             around("", ".a", 100_000),
		"conditions":          {"permit(principal,action,resource)" + strings.Repeat("when{true}", 50_000) + ";"},
		"choices":             around("if true then true else ", "", 50_000),
		"calls":               around("", ".contains(1)", 50_000),
		"behind a comment":    around("/* ( */(", ")", 50_000),
		"behind a string":     {`permit(principal,action,resource) when {"\"(" == "" && ` + strings.Repeat("(", 50_000) + "};"},
		"100,000 policies":    {hundred.String()},
		"many small policies": slices.Repeat([]string{"permit(principal,action,resource);"}, maxPolicies+1),
		"not UTF-8":           {"permit(principal,action,resource) when {\"\xff\" == \"\"};"},
	} {
		start := time.Now()
		if _, errs := Parse(Spec{Policies: texts}, field.NewPath("authz")); len(errs) == 0 {
			t.Errorf("%s: accepted", name)
		}
		if took := time.Since(start); took > time.Second && !raceEnabled {
			t.Errorf("%s: took %v", name, took)
		}
	}
	for name, texts := range map[string][]string{
		"999 brackets":           around("(", ")", 990),
		"brackets in strings":    {`permit(principal,action,resource) when {"` + strings.Repeat("(", 100_000) + `" != "\""};`},
		"brackets in comments":   {permitAll + "//" + strings.Repeat("(", 100_000) + "\n/*" + strings.Repeat("(\n", 100_000) + "/*/"},
		"a long list":            {"permit(principal,action in [" + strings.TrimSuffix(strings.Repeat(`Action::"a",`, 5_000), ",") + "],resource);"},
		"a long or":              {"permit(principal,action,resource) when {" + strings.Repeat(`false||`, 4_000) + "true};"},
		"10,000 policies of one": {strings.Repeat("permit(principal,action,resource);", 10_000)},
	} {
		if _, errs := Parse(Spec{Policies: texts}, field.NewPath("authz")); len(errs) > 0 {
			t.Errorf("%s: %.200s", name, errs.ToAggregate())
		}
	}
	for name, text := range map[string]string{
		"large": `[]` + strings.Repeat(" ", maxEntityText), "deep": strings.Repeat("[", 100_000), "deep attributes": `[{"uid":{"type":"T","id":""},"parents":[],"attrs":{"a":` + strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000) + `}}]`,
	} {
		if _, errs := Parse(Spec{Policies: []string{permitAll}, EntitiesJSON: text}, field.NewPath("authz")); len(errs) == 0 {
			t.Errorf("entities, %s: accepted", name)
		}
	}
}

// TestC17: a pattern with many stars is matched in little time.
func TestC17(t *testing.T) {
	pattern := "*" + strings.Repeat("a*", 30) + "b"
	set := policies(t, `permit(principal, action, resource) when { context.arg_q like "`+pattern+`" };`)
	j := newCedarJudge(set)
	a := ask{server: "main", thing: edge.Target{Thing: edge.Tool, Name: "t"}, arguments: []byte(`{"q":"` + strings.Repeat("a", 5_000) + `"}`)}
	best := time.Hour
	for range 20 {
		start := time.Now()
		read, err := j.arguments(&a)
		if err != nil {
			t.Fatal(err)
		}
		e := set.decide(t.Context(), set.principalOf(person("alice", nil), nil, nil), &a, read)
		best = min(best, time.Since(start))
		if e.Allowed {
			t.Fatal("the pattern ends in b")
		}
	}
	t.Logf("%v", best)
	if best > time.Millisecond && !raceEnabled {
		t.Errorf("took %v", best)
	}
}

// TestF12: entities that would silently be something else are refused.
func TestF12(t *testing.T) {
	for name, text := range map[string]string{
		"implicit reference":         `[{"uid":{"type":"Tool","id":"a"},"attrs":{"owner":{"type":"Client","id":"x"}},"parents":[]}]`,
		"the other way round":        `[{"uid":{"type":"Tool","id":"a"},"attrs":{"owner":{"id":"x","type":"Client"}},"parents":[]}]`,
		"in a set":                   `[{"uid":{"type":"Tool","id":"a"},"attrs":{"owners":[{"type":"Client","id":"x"}]},"parents":[]}]`,
		"in a record":                `[{"uid":{"type":"Tool","id":"a"},"attrs":{"by":{"owner":{"type":"Client","id":"x"},"n":1}},"parents":[]}]`,
		"in tags":                    `[{"uid":{"type":"Tool","id":"a"},"attrs":{},"tags":{"owner":{"type":"Client","id":"x"}},"parents":[]}]`,
		"escaped":                    `[{"uid":{"type":"Tool","id":"a"},"attrs":{"owner":{"\u0074ype":"Client","id":"x"}},"parents":[]}]`,
		"misspelt member":            `[{"uid":{"type":"Tool","id":"a"},"attributes":{},"attrs":{},"parents":[]}]`,
		"no uid":                     `[{"attrs":{},"parents":[]}]`,
		"no attributes":              `[{"uid":{"type":"Tool","id":"a"},"parents":[]}]`,
		"given twice":                `[{"uid":{"type":"Tool","id":"a"},"attrs":{},"parents":[]},{"uid":{"type":"Tool","id":"a"},"attrs":{},"parents":[]}]`,
		"its own ancestor":           `[{"uid":{"type":"G","id":"a"},"attrs":{},"parents":[{"type":"G","id":"b"}]},{"uid":{"type":"G","id":"b"},"attrs":{},"parents":[{"type":"G","id":"a"}]}]`,
		"its own parent":             `[{"uid":{"type":"G","id":"a"},"attrs":{},"parents":[{"type":"G","id":"a"}]}]`,
		"a float":                    `[{"uid":{"type":"Tool","id":"a"},"attrs":{"n":1.5},"parents":[]}]`,
		"null":                       `[{"uid":{"type":"Tool","id":"a"},"attrs":{"n":null},"parents":[]}]`,
		"repeated name":              `[{"uid":{"type":"Tool","id":"a"},"attrs":{"n":1,"n":2},"parents":[]}]`,
		"no array":                   `{}`,
		"null instead of the array":  `null`,
		"an entity type of no type":  `[{"uid":{"type":"a b","id":"a"},"attrs":{},"parents":[]}]`,
		"an unknown extension value": `[{"uid":{"type":"Tool","id":"a"},"attrs":{"n":{"__extn":{"fn":"nope","arg":"1"}}},"parents":[]}]`,
	} {
		if _, errs := Parse(Spec{Policies: []string{permitAll}, EntitiesJSON: text}, field.NewPath("authz")); len(errs) != 1 || errs[0].Field != "authz.entitiesJson" {
			t.Errorf("%s: %v", name, errs)
		}
	}
	good := `[{"uid":{"__entity":{"type":"Tool","id":"a"}},"attrs":{"owner":{"__entity":{"type":"Client","id":"alice"}},"ip":{"__extn":{"fn":"ip","arg":"10.0.0.1"}},"d":{"type":"x","id":"y","more":1}},"parents":[{"type":"Kit","id":"k"}]}]`
	h := open(t, parsed(t, Spec{Policies: []string{`permit(principal, action, resource in Kit::"k") when { resource.owner == principal };`}, EntitiesJSON: good}), Options{}, edge.Env{})
	if !h.call(person("alice", nil), "a", `{}`) || h.call(person("bob", nil), "a", `{}`) {
		t.Error(h.why)
	}
}

// TestF4: a message that two readers could take for two is none, so what was
// judged is what is sent.
func TestF4(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1,"x":2}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1,"\u0078":2}}}`,
	} {
		if _, err := mcp.Decode([]byte(text)); err == nil {
			t.Errorf("accepted: %s", text)
		}
	}
}

// TestManyColliding: arguments chosen by a stranger to collide cost little.
func TestManyColliding(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	elements := make([]string, maxValues-10)
	for i := range elements {
		elements[i] = itoa(r.IntN(4)) // long runs of equal hashes
	}
	start := time.Now()
	if _, err := newConverter().text([]byte("[" + strings.Join(elements, ",") + "]")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func TestErrorsNamePolicyAndPlace(t *testing.T) {
	_, errs := Parse(Spec{
		Policies:        []string{permitAll, permitAll + "\n" + permitAll + "\npermit(principal, action resource);", "permit(principal, action, resource) when { nope(1) };"},
		EntitiesJSON:    "{}",
		GroupEntityType: "A::B",
	}, field.NewPath("spec", "config", "incomingAuth", "authz"))
	var got []string
	for _, e := range errs {
		got = append(got, e.Error())
	}
	want := []string{
		`spec.config.incomingAuth.authz.groupEntityType: Invalid value: "A::B": must be a letter or _, then letters, digits and _, at most 63`,
		`policies[1]: Invalid value: "": policy 2: parse error at <input>:3:`, `policies[2]: Invalid value: "": policy 0: parse error at <input>:1:`,
		`entitiesJson: Invalid value: "": must be a JSON array`,
	}
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%s\nwant %s", got[i], want[i])
		}
	}
	for _, name := range []string{"Tool", "Client", "MCP", "Backend", "in", "true", "a b", "1a", strings.Repeat("a", 64)} {
		if _, errs := Parse(Spec{Policies: []string{permitAll}, GroupEntityType: name}, field.NewPath("authz")); len(errs) != 1 {
			t.Errorf("groupEntityType %s: %v", name, errs)
		}
	}
}

func TestPoliciesHaveNames(t *testing.T) {
	p := policies(t, permitAll, `@id("own") `+permitAll+permitAll, `@id("twice") `+permitAll, `@id("twice") `+permitAll, `@id("policy0") `+permitAll)
	var got []string
	for _, one := range p.policies {
		got = append(got, string(one.id))
	}
	if want := []string{"policy0", "own", "policy1.1", "policy2", "policy3", "policy4"}; !slices.Equal(got, want) {
		t.Error(got)
	}
	seen := map[string]bool{}
	for _, id := range got {
		seen[id] = true
	}
	if len(slices.Collect(maps.Keys(seen))) != len(got) {
		t.Error("two policies have one name")
	}
}
