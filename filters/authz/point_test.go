package authz

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
)

// decider is a decision point.
type decider struct {
	t        *testing.T
	answer   string
	status   int
	question map[string]any
	path     string
	asked    int
}

func (d *decider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	d.question = nil
	if err != nil || json.Unmarshal(body, &d.question) != nil || r.Header.Get("Content-Type") != "application/json" || r.Method != "POST" {
		d.t.Errorf("%s %v %s", r.Method, err, body)
	}
	d.path, d.asked = r.URL.Path, d.asked+1
	w.WriteHeader(d.status)
	_, _ = io.WriteString(w, d.answer) // a client that does not wait is part of the test
}

func point(t *testing.T, d *decider, change func(*PointSpec)) (*hall, func()) {
	t.Helper()
	server := httptest.NewServer(d)
	var spec PointSpec
	spec.HTTP.URL, spec.ClaimMapping = server.URL+"/pdp/", "mpe"
	spec.Context.IncludeArgs, spec.Context.IncludeOperation = true, true
	if change != nil {
		change(&spec)
	}
	p, errs := ParsePoint(spec, field.NewPath("pdp"))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	var retire []func()
	h := open(t, p, Options{}, edge.Env{Defer: func(f func()) { retire = append(retire, f) }})
	return h, func() {
		for _, f := range retire {
			f()
		}
		server.Close()
	}
}

func TestDecisionPoint(t *testing.T) {
	d := &decider{t: t, status: 200, answer: `{"allow":true}`}
	h, end := point(t, d, nil)
	defer end()
	no := false
	x := message(t, person("alice", map[string]any{"groups": []any{"eng"}, "roles": "dev", "scope": "a b", "email": "a@x"}), "tools/call", `{"name":"weather","arguments":{"city":"Bern","n":12345678901234567890}}`)
	x.Target = &edge.Target{Thing: edge.Tool, Name: "weather", Backend: "b", ReadOnly: &no}
	if !h.passes(x) {
		t.Fatal(h.why)
	}
	text, err := json.Marshal(d.question)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"context":{"mcp":{"annotations":{"readOnlyHint":false},"args":{"city":"Bern","n":12345678901234567000},"feature":"tool","operation":"call","resource_id":"weather"}},` +
		`"operation":"mcp:tool:call","principal":{"mannotations":{},"mgroups":["eng"],"mroles":"dev","scopes":"a b","sub":"alice"},"resource":"mrn:mcp:main:tool:weather"}`
	if string(text) != want || d.path != "/pdp/decision" {
		t.Errorf("%s\n%s\nwant %s", d.path, text, want)
	}
	if h.passes(message(t, person("alice", nil), "vendor/x", `{}`)) {
		t.Error("a method without an action is asked about")
	}
}

func TestDecisionPointAsksNoMoreThanItIsTold(t *testing.T) {
	d := &decider{t: t, status: 200, answer: `{"allow":true}`}
	h, end := point(t, d, func(s *PointSpec) {
		s.ClaimMapping, s.Context.IncludeArgs, s.Context.IncludeOperation = "standard", false, false
	})
	defer end()
	if !h.call(person("alice", map[string]any{"groups": []any{"eng"}, "roles": "dev", "scopes": []any{"a"}, "clearance": "top"}), "weather", `{"a":1}`) {
		t.Fatal(h.why)
	}
	text, err := json.Marshal(d.question)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"context":{},"operation":"mcp:tool:call","principal":{"groups":["eng"],"roles":"dev","scopes":["a"],"sub":"alice"},"resource":"mrn:mcp:main:tool:weather"}`; string(text) != want {
		t.Errorf("%s", text)
	}
}

func TestDecisionPointThatDoesNotSayYesDenies(t *testing.T) {
	d := &decider{t: t}
	h, end := point(t, d, nil)
	defer end()
	for answer, status := range map[string]int{
		`{"allow":false}`: 200, `{}`: 200, `{"allow":"true"}`: 200, `{"allow":1}`: 200, `{"Allow":true}`: 200, `{"allow":true,"allow":false}`: 200, `{"allow":true`: 200, ``: 200, `true`: 200,
		`{"allow":true} `: 500, `{"allow":true}  `: 201, `{"allow":true}   `: 302,
		`{"allow":true,"x":"` + strings.Repeat("x", maxPointAnswer) + `"}`: 200,
	} {
		d.answer, d.status = answer, status
		if h.call(person("alice", nil), "weather", `{}`) {
			t.Errorf("%d %.40s: allowed", status, answer)
		}
	}
	end()
	if h.call(person("alice", nil), "weather", `{}`) || h.why.Reason != ReasonPoint {
		t.Errorf("a decision point that is away: %s", h.why)
	}
}

func TestDecisionPointFiltersLists(t *testing.T) {
	d := &decider{t: t, status: 200, answer: `{"allow":true}`}
	h, end := point(t, d, nil)
	defer end()
	x := message(t, person("alice", nil), "tools/list", `{}`)
	if !h.passes(x) {
		t.Fatal(h.why)
	}
	if !x.View.Allows(&edge.Item{Thing: edge.Prompt, Name: "p"}) || d.question["operation"] != "mcp:prompt:get" {
		t.Errorf("%v", d.question)
	}
	d.answer = `{"allow":false}`
	if x.View.Allows(&edge.Item{Thing: edge.Prompt, Name: "p"}) {
		t.Error("an answer was kept")
	}
	d.answer, d.asked = `{"allow":true}`, 0
	for range maxAtOnce + 10 {
		x.View.Allows(&edge.Item{Thing: edge.Tool, Name: "t"})
	}
	if d.asked > maxAtOnce || x.View.Allows(&edge.Item{Thing: edge.Tool, Name: "t"}) {
		t.Errorf("asked %d times for one list", d.asked)
	}
	y := message(t, person("alice", nil), "tools/list", `{}`)
	if !h.passes(y) || x.View.Key() == y.View.Key() {
		t.Error("two lists share a view, though the decision point may change its mind")
	}
}

func TestParsePoint(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*PointSpec)
		field  string
	}{
		"no url":             {func(s *PointSpec) { s.HTTP.URL = "" }, "pdp.http.url"},
		"another scheme":     {func(s *PointSpec) { s.HTTP.URL = "ftp://x" }, "pdp.http.url"},
		"a password in it":   {func(s *PointSpec) { s.HTTP.URL = "http://u:p@x" }, "pdp.http.url"},
		"no mapping":         {func(s *PointSpec) { s.ClaimMapping = "" }, "pdp.claim_mapping"},
		"an unknown mapping": {func(s *PointSpec) { s.ClaimMapping = "other" }, "pdp.claim_mapping"},
		"too long a time":    {func(s *PointSpec) { s.HTTP.Timeout = 301 }, "pdp.http.timeout"},
		"time backwards":     {func(s *PointSpec) { s.HTTP.Timeout = -1 }, "pdp.http.timeout"},
		"no verification":    {func(s *PointSpec) { s.HTTP.InsecureSkipVerify = true }, "pdp.http.insecure_skip_verify"},
	} {
		var spec PointSpec
		spec.HTTP.URL, spec.ClaimMapping = "https://pdp.example", "mpe"
		c.change(&spec)
		if _, errs := ParsePoint(spec, field.NewPath("pdp")); len(errs) != 1 || errs[0].Field != c.field {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
