package authz

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"

	"github.com/weir-edge/weir/edge"
)

// heldValues is a store that keeps values and forgets nothing.
type heldValues struct {
	edge.Store
	mu   sync.Mutex
	kept map[string][]byte
	ttl  time.Duration
	down bool
}

func (s *heldValues) Put(_ context.Context, key string, value []byte, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errors.New("down")
	}
	if s.kept == nil {
		s.kept = map[string][]byte{}
	}
	s.kept[key], s.ttl = value, ttl
	return nil
}

func (s *heldValues) Get(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errors.New("down")
	}
	return s.kept[key], nil
}

func TestWhatIsUnknownIsDeniedAsWhatIsForbidden(t *testing.T) {
	h := open(t, policies(t, permitAll), Options{}, edge.Env{})
	for name, change := range map[string]func(*edge.Exchange){
		"no target":                  func(x *edge.Exchange) { x.Target = nil },
		"a target of the edge":       func(x *edge.Exchange) { x.Target = &edge.Target{} },
		"a target of another kind":   func(x *edge.Exchange) { x.Target = &edge.Target{Backend: "b", Thing: edge.Prompt, Name: "t"} },
		"found missing by the route": func(*edge.Exchange) { h.room.err = edge.Errorf(edge.NotFound, "route", "no tool") },
	} {
		x := message(t, person("alice", nil), "tools/call", `{"name":"t"}`)
		h.room.err = nil
		change(x)
		_, err := h.handler.Handle(t.Context(), x)
		if edge.KindOf(err) != edge.Denied || err.(*edge.Error).Err.Error() != refusal || h.why.Reason != ReasonUnknown {
			t.Errorf("%s: %v, %s", name, err, h.why)
		}
	}
	h.room.err = edge.Errorf(edge.Unavailable, "route", "down")
	if _, err := h.handler.Handle(t.Context(), message(t, person("alice", nil), "tools/call", `{"name":"t"}`)); edge.KindOf(err) != edge.Unavailable {
		t.Errorf("another error is changed: %v", err)
	}
}

// TestTargetsNameThings: what is judged is the advertised name, the hidden
// name of a hidden tool, and where a thing comes from.
func TestTargetsNameThings(t *testing.T) {
	h := open(t, policies(t,
		`permit(principal, action, resource == Tool::"work.hidden");`,
		`permit(principal, action, resource in Backend::"open");`,
		`permit(principal, action, resource) when { resource.originalName == "orig" && resource.backend == "b2" && resource.feature == "tool" && resource.operation == "call" };`), Options{}, edge.Env{})
	for name, c := range map[string]struct {
		target edge.Target
		want   bool
	}{
		"hidden":        {edge.Target{Thing: edge.Tool, Name: "work.hidden", Original: "hidden", Backend: "work"}, true},
		"its own name":  {edge.Target{Thing: edge.Tool, Name: "hidden", Original: "hidden", Backend: "work"}, false},
		"by backend":    {edge.Target{Thing: edge.Tool, Name: "x", Original: "x", Backend: "open"}, true},
		"by attributes": {edge.Target{Thing: edge.Tool, Name: "x", Original: "orig", Backend: "b2"}, true},
	} {
		x := message(t, person("alice", nil), "tools/call", `{"name":"whatever"}`)
		x.Target = &c.target
		if h.passes(x) != c.want {
			t.Errorf("%s: %s", name, h.why)
		}
	}
}

func TestLookupPlacesWhatATargetDoesNot(t *testing.T) {
	set := policies(t, permitAll, `forbid(principal, action, resource in Backend::"closed");`)
	listen := func(uris string) *edge.Exchange {
		x := message(t, person("alice", nil), "subscriptions/listen", `{"notifications":{"resourceSubscriptions":[`+uris+`]}}`)
		x.Target = &edge.Target{}
		return x
	}
	h := open(t, set, Options{}, edge.Env{})
	if h.passes(listen(`"x:a"`)) || h.why.Reason != ReasonNoBackend {
		t.Errorf("where it comes from is not known: %s", h.why)
	}
	h = open(t, set, Options{Lookup: func(x *edge.Exchange, thing edge.Thing, name string) *edge.Target {
		if x.Server != "main" || thing != edge.Resource {
			return nil
		}
		backend := map[string]string{"x:a": "good", "x:b": "closed"}[name]
		if backend == "" {
			return nil
		}
		return &edge.Target{Backend: backend, Thing: thing, Name: name, Original: name}
	}}, edge.Env{})
	for uris, want := range map[string]bool{`"x:a"`: true, `"x:a","x:b"`: false, `"x:c"`: false} {
		if h.passes(listen(uris)) != want {
			t.Errorf("%s: %s", uris, h.why)
		}
	}
	x := message(t, person("alice", nil), "completion/complete", `{"ref":{"type":"ref/resource","uri":"x:a"},"argument":{"name":"a","value":""}}`)
	x.Target = nil
	if !h.passes(x) {
		t.Errorf("a completion for a resource: %s", h.why)
	}
	h = open(t, policies(t, permitAll), Options{}, edge.Env{})
	if !h.passes(listen(`"x:a"`)) {
		t.Errorf("no policy asks where it comes from: %s", h.why)
	}
}

func TestCompletionIsJudgedWithItsArguments(t *testing.T) {
	h := open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context has arg_env && context.arg_env == "prod" };`), Options{}, edge.Env{})
	for params, want := range map[string]bool{
		`"argument":{"name":"env","value":"prod"}`: false, `"argument":{"name":"env","value":"dev"}`: true,
		`"argument":{"name":"x","value":"prod"}`: true, `"argument":{"name":"x","value":""},"context":{"arguments":{"env":"prod"}}`: false,
	} {
		x := message(t, person("alice", nil), "completion/complete", `{"ref":{"type":"ref/prompt","name":"p"},`+params+`}`)
		if h.passes(x) != want {
			t.Errorf("%s: %s", params, h.why)
		}
	}
}

// TestZ02Completion: a completion for a resource is judged with its arguments as
// one for a prompt is, and settled arguments that are no object are not left out.
func TestZ02Completion(t *testing.T) {
	h := open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context has arg_env && context.arg_env == "prod" };`), Options{}, edge.Env{})
	for params, want := range map[string]bool{
		`"argument":{"name":"env","value":"prod"}`: false, `"argument":{"name":"env","value":"dev"}`: true, `"argument":{"name":"x","value":"prod"}`: true,
		`"argument":{"name":"x","value":""},"context":{"arguments":{"env":"prod"}}`: false, `"context":{"arguments":{"env":"prod"}}`: false,
		`"argument":{"name":"x","value":""},"context":{"arguments":null}`: true, `"argument":{"name":"x","value":""},"context":{}`: true,
		`"argument":{"name":"x","value":""},"context":{"arguments":["env"]}`: false, `"argument":{"name":"x","value":""},"context":{"arguments":"env"}`: false,
	} {
		for _, ref := range []string{`{"type":"ref/prompt","name":"p"}`, `{"type":"ref/resource","uri":"x:{env}"}`, `{"type":"ref/resource","uri":"x:a"}`} {
			x := message(t, person("alice", nil), "completion/complete", `{"ref":`+ref+`,`+params+`}`)
			if h.passes(x) != want {
				t.Errorf("%s %s: %s", ref, params, h.why)
			}
		}
	}
}

func TestClaimsOfAnUpstreamProvider(t *testing.T) {
	p := parsed(t, Spec{Policies: []string{`permit(principal in THVGroup::"eng", action, resource);`}, PrimaryUpstreamProvider: "corp"})
	h := open(t, p, Options{}, edge.Env{})
	of := func(upstream map[string]any) *edge.Identity {
		id := person("alice", map[string]any{"groups": "ops"})
		id.PolicyClaims = upstream
		return id
	}
	if !h.call(of(map[string]any{"groups": "eng"}), "t", `{}`) {
		t.Error(h.why)
	}
	if h.call(of(map[string]any{"groups": "ops"}), "t", `{}`) { // a new identity, for a new token
		t.Error("the claims of an old token are used")
	}
	own := of(nil) // nothing is known of the upstream: the client's own token does not stand in
	own.Claims = map[string]any{"groups": "eng"}
	if h.call(own, "t", `{}`) {
		t.Error("without the upstream's claims those of the client's token are read")
	}
	x := message(t, own, "tools/list", `{}`)
	if !h.passes(x) || x.View.Allows(&edge.Item{Thing: edge.Tool, Name: "t"}) || x.View.Key() == "" {
		t.Error("without claims something is shown")
	}
	// Where no upstream is named, its claims say nothing.
	plain := open(t, parsed(t, Spec{Policies: []string{`permit(principal in THVGroup::"eng", action, resource);`}}), Options{}, edge.Env{})
	if plain.call(of(map[string]any{"groups": "eng"}), "t", `{}`) {
		t.Error("the claims of an upstream are read that nobody named")
	}
}

func TestMultiValuedClaims(t *testing.T) {
	p := parsed(t, Spec{Policies: []string{`permit(principal, action, resource) when { principal.claimset_scp.contains("mail.read") };`}, MultiValuedClaims: []string{"scp"}})
	for name, c := range map[string]struct {
		claim any
		want  bool
	}{"text": {"a mail.read", true}, "longer word": {"mail.readwrite", false}, "array": {[]any{"mail.read"}, true}, "number": {float64(1), false}} {
		h := open(t, p, Options{}, edge.Env{})
		if h.call(person("alice", map[string]any{"scp": c.claim}), "t", `{}`) != c.want {
			t.Errorf("%s: %s", name, h.why)
		}
	}
}

func TestTasksAreJudgedAsTheCallThatMadeThem(t *testing.T) {
	set := policies(t, `permit(principal, action, resource == Tool::"slow") unless { context has arg_n && context.arg_n == 7 };`)
	store := &heldValues{}
	env := edge.Env{Store: store}
	alice, bob := person("alice", nil), person("bob", nil)
	for _, result := range []string{`{"task":{"taskId":"t1","ttl":60000}}`, `{"resultType":"task","taskId":"t1","ttlMs":60000}`} {
		h := open(t, set, Options{}, env)
		store.kept = nil
		get := func(id *edge.Identity, task string) bool {
			return h.passes(message(t, id, "tasks/get", `{"taskId":"`+task+`"}`))
		}
		if get(alice, "t1") || h.why.Reason != ReasonTask {
			t.Errorf("a task before its call: %s", h.why)
		}
		h.room.result = result
		if !h.call(alice, "slow", `{"n":1}`) {
			t.Fatal(h.why)
		}
		if store.ttl != taskShort+time.Minute {
			t.Errorf("kept for %v", store.ttl)
		}
		h.room.result = ""
		if !get(alice, "t1") || get(bob, "t1") || get(alice, "t2") {
			t.Errorf("%s: %s", result, h.why)
		}
		if !h.passes(message(t, alice, "subscriptions/listen", `{"notifications":{"taskIds":["t1"]}}`)) || h.passes(message(t, alice, "subscriptions/listen", `{"notifications":{"taskIds":["t1","t2"]}}`)) {
			t.Error(h.why)
		}

		// Another set, and the arguments of the call are judged by it.
		h = open(t, policies(t, permitAll, `forbid(principal, action, resource) when { context has arg_n && context.arg_n == 1 };`), Options{}, env)
		if get(alice, "t1") || h.why.Reason != ReasonForbidden {
			t.Errorf("a set that forbids the call: %s", h.why)
		}
		h = open(t, policies(t, permitAll), Options{}, env)
		if !get(alice, "t1") {
			t.Error(h.why)
		}

		// A list shows one's own.
		h.room.result = `{"tasks":[{"taskId":"t0"},{"taskId":"t1","status":"working"},{"taskId":"t2"}],"nextCursor":"c"}`
		r, err := h.handler.Handle(t.Context(), message(t, alice, "tasks/list", `{}`))
		if err != nil || string(r.Result.Of(r.Raw)) != `{"tasks":[{"taskId":"t1","status":"working"}],"nextCursor":"c"}` {
			t.Errorf("%v %s", err, r.Raw)
		}
		r, err = h.handler.Handle(t.Context(), message(t, bob, "tasks/list", `{}`))
		if err != nil || string(r.Result.Of(r.Raw)) != `{"tasks":[],"nextCursor":"c"}` {
			t.Errorf("%v %s", err, r.Raw)
		}
		store.down = true
		if get(alice, "t1") {
			t.Error("allowed without the store")
		}
		store.down = false
	}

	// A call whose arguments no policy read cannot be judged by one that does.
	h := open(t, policies(t, permitAll), Options{}, env)
	h.room.result = `{"task":{"taskId":"t9"}}`
	h.call(alice, "slow", `{"n":1}`)
	if store.ttl != taskLong {
		t.Errorf("kept for %v", store.ttl)
	}
	h = open(t, set, Options{}, env)
	if h.passes(message(t, alice, "tasks/get", `{"taskId":"t9"}`)) {
		t.Error("judged without its arguments")
	}
	h = open(t, set, Options{}, edge.Env{})
	if h.passes(message(t, alice, "tasks/get", `{"taskId":"t9"}`)) {
		t.Error("a task without a store")
	}
	store.down = true
	h = open(t, set, Options{}, env)
	h.room.result = `{"task":{"taskId":"t10"}}`
	if !h.call(alice, "slow", `{}`) {
		t.Error("a call fails since its task cannot be remembered")
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache[int, int](10)
	for i := range 1_000 {
		c.put(i, i)
		if v, ok := c.get(5); i >= 5 && (!ok || v != 5) {
			t.Fatalf("at %d: what is asked for is gone", i)
		}
	}
	if n := len(c.young) + len(c.old); n > 20 {
		t.Errorf("%d values", n)
	}
	if _, ok := c.get(1); ok {
		t.Error("what nobody asks for stays")
	}
	p := policies(t, permitAll)
	j := newCedarJudge(p)
	id := person("alice", nil)
	for i := range 2 * keptDecisions {
		a := ask{server: "main", thing: edge.Target{Thing: edge.Tool, Name: itoa(i)}}
		j.decide(t.Context(), client{id: id}, &a)
	}
	long := make([]byte, keptText+1)
	a := ask{server: "main", thing: edge.Target{Thing: edge.Tool, Name: string(long)}}
	before := len(j.decisions.young)
	j.decide(t.Context(), client{id: id}, &a)
	if len(j.decisions.young) != before || before > keptDecisions || len(j.decisions.old) > keptDecisions {
		t.Errorf("%d and %d decisions", len(j.decisions.young), len(j.decisions.old))
	}
}

func TestRecordHearsEveryDecision(t *testing.T) {
	var heard []string
	h := open(t, policies(t, `@id("weather for all") permit(principal, action, resource == Tool::"weather");`), Options{Record: func(x *edge.Exchange, e *Explanation) {
		heard = append(heard, x.Request.Method+" "+e.String())
	}}, edge.Env{})
	h.call(person("alice", nil), "weather", `{}`)
	h.call(person("alice", nil), "other", `{}`)
	h.passes(message(t, person("alice", nil), "tools/list", `{}`))
	want := []string{"tools/call allow: permitted; by weather for all", "tools/call deny: no policy permits it", "tools/list allow: needs no policy"}
	if len(heard) != 3 || heard[0] != want[0] || heard[1] != want[1] || heard[2] != want[2] {
		t.Errorf("%q", heard)
	}
}

func TestAViewIsNoAnswerForOtherSets(t *testing.T) {
	x := message(t, person("alice", nil), "tools/list", `{}`)
	h := open(t, policies(t, `permit(principal == Client::"alice", action, resource);`), Options{}, edge.Env{})
	h.passes(x)
	alice := x.View
	x = message(t, person("bob", nil), "tools/list", `{}`)
	h.passes(x)
	if alice.Key() == x.View.Key() {
		t.Error("principals that the policies tell apart share a key")
	}
	y := message(t, person("carol", map[string]any{"groups": "eng"}), "tools/list", `{}`)
	h.passes(y)
	if y.View.Key() != x.View.Key() {
		t.Error("principals that the policies cannot tell apart do not share a key")
	}
	for _, m := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
		x := message(t, person("bob", nil), m, `{}`)
		if !h.passes(x) || x.View == nil || x.View.Allows(&edge.Item{Thing: edge.Template, Name: "x:{a}"}) {
			t.Errorf("%s: no view, or one that shows everything", m)
		}
	}
}

var _ edge.Part = (*Policies)(nil)

// TestKeysTellApartWhomEntitiesMention: somebody who stands in no policy, only
// in an attribute of an entity, is not like others.
func TestKeysTellApartWhomEntitiesMention(t *testing.T) {
	p := parsed(t, Spec{
		Policies:     []string{`permit(principal, action, resource) when { resource has owner && resource.owner == principal };`},
		EntitiesJSON: `[{"uid":{"type":"Tool","id":"t"},"attrs":{"owner":{"__entity":{"type":"Client","id":"zoe"}}},"parents":[]}]`,
	})
	h := open(t, p, Options{}, edge.Env{})
	keys := map[string]string{}
	for name, want := range map[string]bool{"zoe": true, "yan": false, "xu": false} {
		id := person(name, nil)
		if h.call(id, "t", `{}`) != want {
			t.Errorf("%s: %s", name, h.why)
		}
		keys[name] = p.principalOf(id, nil, nil).key
	}
	if keys["zoe"] == keys["yan"] || keys["yan"] != keys["xu"] {
		t.Errorf("%v", keys)
	}
}

// TestListsAreTight: what no choice of arguments opens is not shown.
func TestListsAreTight(t *testing.T) {
	for policy, want := range map[string]bool{
		`permit(principal, action, resource) when { context.arg_x == 1 };`:                                                                    true,
		`permit(principal, action, resource) when { context has arg_x && context.arg_x == 1 };`:                                               true,
		`permit(principal, action, resource) when { principal in THVGroup::"ops" && context.arg_x == 1 };`:                                    false,
		`permit(principal, action, resource) when { context.arg_x == 1 && principal in THVGroup::"ops" };`:                                    false,
		`permit(principal, action, resource) when { context.arg_x == 1 || principal in THVGroup::"ops" };`:                                    true,
		`permit(principal, action, resource) unless { context.arg_x == 1 || principal == Client::"alice" };`:                                  false,
		`permit(principal, action, resource) when { !(context.arg_x == 1) };`:                                                                 true,
		`permit(principal, action, resource) when { context.arg_x == 1 } unless { true };`:                                                    false,
		`permit(principal, action, resource) when { if context.arg_x == 1 then false else principal is Robot };`:                              false,
		`permit(principal, action, resource) when { if context.arg_x == 1 then true else false };`:                                            true,
		`permit(principal, action, resource) when { if principal is Client then context has arg_x else false };`:                              true,
		`permit(principal, action, resource) when { principal.claim_none == 1 && context has arg_x };`:                                        false,
		`permit(principal, action, resource); forbid(principal, action, resource) when { context.arg_x == 1 };`:                               true,
		`permit(principal, action, resource); forbid(principal, action, resource) when { context.arg_x == 1 || true };`:                       false,
		`permit(principal, action, resource); forbid(principal, action, resource) when { principal is Client } unless { context has arg_x };`: true,
		`permit(principal, action, resource); forbid(principal, action, resource) when { !(principal.claim_none && context has arg_x) };`:     false,
		`permit(principal, action, resource); permit(principal, action, resource) when { principal.claim_none == 1 && context has arg_x };`:   false,
		`permit(principal, action, resource); forbid(principal, action, resource == Tool::"u") when { context.arg_x == 1 || true };`:          true,
	} {
		x := message(t, person("alice", nil), "tools/list", `{}`)
		if !open(t, policies(t, policy), Options{}, edge.Env{}).passes(x) || x.View.Allows(&edge.Item{Thing: edge.Tool, Name: "t", Backend: "b"}) != want {
			t.Errorf("%s: not %v", policy, want)
		}
	}
}

// TestOutcomes: what and, or, not and if can come to, given what their parts can.
func TestOutcomes(t *testing.T) {
	all := []outcome{isTrue, isFalse, isError, isTrue | isFalse, isTrue | isError, isFalse | isError, anything}
	singles := func(o outcome) (list []outcome) {
		for _, one := range []outcome{isTrue, isFalse, isError} {
			if o&one != 0 {
				list = append(list, one)
			}
		}
		return list
	}
	check := func(name string, got, want outcome) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %03b, not %03b", name, got, want)
		}
	}
	for _, a := range all {
		var negated outcome
		for _, one := range singles(a) {
			negated |= map[outcome]outcome{isTrue: isFalse, isFalse: isTrue, isError: isError}[one]
		}
		check("not", not{fixed(a)}.outcome(nil, cedar.Request{}), negated)
		for _, b := range all {
			var both, either outcome
			for _, one := range singles(a) {
				if one == isTrue {
					both |= b
				} else {
					both |= one
				}
				if one == isFalse {
					either |= b
				} else {
					either |= one
				}
			}
			check("and", and{fixed(a), fixed(b)}.outcome(nil, cedar.Request{}), both)
			check("or", or{fixed(a), fixed(b)}.outcome(nil, cedar.Request{}), either)
			for _, c := range all {
				var chosen outcome
				for _, one := range singles(a) {
					chosen |= map[outcome]outcome{isTrue: b, isFalse: c, isError: isError}[one]
				}
				check("if", choice{fixed(a), fixed(b), fixed(c)}.outcome(nil, cedar.Request{}), chosen)
			}
		}
	}
}

// fixed is a part whose outcomes are given.
type fixed outcome

func (f fixed) outcome(cedar.EntityGetter, cedar.Request) outcome { return outcome(f) }
