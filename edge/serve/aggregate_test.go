package serve_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
)

// group is the YAML of a server before several backends, by name.
func group(backends map[string]*edgetest.Server, more ...string) string {
	var b strings.Builder
	b.WriteString("name: edgetest\ngroupRef: edgetest\nincomingAuth: {type: anonymous}\nbackends:\n")
	for name, s := range backends {
		transport := compile.StreamableHTTP
		if s.Era == edgetest.SSE {
			transport = compile.SSE
		}
		fmt.Fprintf(&b, "- {name: %s, url: %q, transport: %s}\n", name, s.URL, transport)
	}
	b.WriteString(strings.Join(more, "\n"))
	return b.String()
}

const (
	bestEffort = "operational: {failureHandling: {partialFailureMode: best_effort}}"
	priority   = "aggregation: {conflictResolution: priority}"
)

// offers has a fake server list these tools.
func offers(s *edgetest.Server, tools ...string) {
	var all []string
	for _, name := range tools {
		all = append(all, fmt.Sprintf(`{"name":%q,"description":"of %s","inputSchema":{"type":"object"}}`, name, s.Era))
	}
	list := `{"tools":[` + strings.Join(all, ",") + `]}`
	if s.Era == edgetest.Modern {
		list = `{"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[` + strings.Join(all, ",") + `]}`
	}
	s.Always("tools/list", func(c *edgetest.Call) { c.Result(list) })
}

// listed returns the names of the tools that a client sees.
func listed(t *testing.T, c caller) []string {
	t.Helper()
	var out struct{ Tools []struct{ Name string } }
	text := c.request(t, "77", "tools/list", "").Result()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var names []string
	for _, tool := range out.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// three is an edge before a backend of each kind, with a client of each era.
type three struct {
	*front
	backs map[string]*edgetest.Server
}

func newThree(t *testing.T, more ...string) *three {
	t.Helper()
	backs := map[string]*edgetest.Server{
		"old": edgetest.NewServer(t, edgetest.Legacy), "new": edgetest.NewServer(t, edgetest.Modern), "sse": edgetest.NewServer(t, edgetest.SSE),
	}
	for _, s := range backs {
		offers(s, "echo", "own_"+s.Era.String())
	}
	e := edgetest.Start(t, group(backs, more...))
	return &three{front: &front{Edge: e, client: e.NewClient()}, backs: backs}
}

// TestAggregate has clients of both eras reach every backend by its names.
func TestAggregate(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newThree(t, bestEffort)
			c := f.callerOf(t, era, "")
			want := "new_echo new_own_modern old_echo old_own_legacy sse_echo sse_own_sse"
			if got := strings.Join(listed(t, c), " "); got != want {
				t.Errorf("tools: %s, want %s", got, want)
			}
			for name, back := range f.backs {
				r := c.request(t, "5", "tools/call", edgetest.CallParams(name+"_echo", `{"n":12345678901234567890}`))
				if r.Status != 200 {
					t.Errorf("%s: status %d: %s", name, r.Status, r.Body)
				}
				got := back.Requests("tools/call")
				if len(got) != 1 || edgetest.Member(string(got[0].Message.Params), "name") != `"echo"` || edgetest.Member(string(got[0].Message.Params), "arguments", "n") != "12345678901234567890" {
					t.Fatalf("%s got %d calls", name, len(got))
				}
				if name == "new" && got[0].Header.Get("Mcp-Name") != "echo" {
					t.Errorf("Mcp-Name: %q", got[0].Header.Get("Mcp-Name"))
				}
			}
			status, code := 200, -32602
			if era == edgetest.Modern {
				status = 400
			}
			fails(t, c.request(t, "6", "tools/call", edgetest.CallParams("echo", "{}")), status, code, "6")
			fails(t, c.request(t, "7", "tools/call", edgetest.CallParams("old_own_modern", "{}")), status, code, "7")
		})
	}
}

// TestAggregateListsOnce has many lists cost each backend one request.
func TestAggregateListsOnce(t *testing.T) {
	t.Parallel()
	f := newThree(t, bestEffort)
	c := f.callerOf(t, edgetest.Modern, "")
	for range 20 {
		listed(t, c)
	}
	for name, back := range f.backs {
		if n := back.Count("tools/list"); n != 1 {
			t.Errorf("%s was asked %d times", name, n)
		}
	}
}

// TestAggregateChanges tells clients of both eras once when a backend's tools
// change.
func TestAggregateChanges(t *testing.T) {
	t.Parallel()
	f := newThree(t, bestEffort)
	legacy, modern := f.callerOf(t, edgetest.Legacy, ""), f.callerOf(t, edgetest.Modern, "")
	listed(t, legacy)
	stream := legacy.session.Listen()
	subscription := modern.request(t, `"sub"`, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
	if m := subscription.NextMessage(); m.Method != "notifications/subscriptions/acknowledged" {
		t.Fatalf("%+v", m)
	}
	old := f.backs["old"]
	// Sessions for calls and of the client have streams, too. The one that listens
	// is the edge's own, and can answer nothing.
	edgetest.Until(t, "the edge's own stream", func() bool {
		return slices.ContainsFunc(old.Sessions(), func(s *edgetest.ServerSession) bool {
			return s.Listening() && edgetest.Member(s.Params, "capabilities") == "{}" && edgetest.Member(s.Params, "clientInfo", "name") == `"weir"`
		})
	})
	offers(old, "echo", "fresh")
	for _, s := range old.Sessions() {
		if s.Listening() {
			s.Push(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
	}
	if m := stream.NextMessage(); m.Method != "notifications/tools/list_changed" {
		t.Errorf("legacy: %+v", m)
	}
	if m := subscription.NextMessage(); m.Method != "notifications/tools/list_changed" || edgetest.Member(string(m.Params), "_meta", "io.modelcontextprotocol/subscriptionId") != `"sub"` {
		t.Errorf("modern: %+v", m)
	}
	want := "new_echo new_own_modern old_echo old_fresh sse_echo sse_own_sse"
	if got := strings.Join(listed(t, modern), " "); got != want {
		t.Errorf("tools: %s, want %s", got, want)
	}
}

// TestAggregateAsks has questions of a backend of either era reach the client
// that made the call, and the answers reach the backend.
func TestAggregateAsks(t *testing.T) {
	const asked = `{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}`
	const can = `{"elicitation":{"form":{}}}`
	t.Run("modern client, legacy backend", func(t *testing.T) {
		t.Parallel()
		f := newThree(t, bestEffort)
		f.backs["old"].Once("tools/call", func(c *edgetest.Call) {
			m := c.Ask("9", "elicitation/create", asked)
			c.Result(`{"content":[],"said":` + string(m.Result) + `}`)
		})
		c := f.callerOf(t, edgetest.Modern, "")
		params := edgetest.CallParams("old_echo", "{}")
		first := c.request(t, "1", "tools/call", params, edgetest.Capabilities(can)).Result()
		if edgetest.Member(first, "resultType") != `"input_required"` {
			t.Fatal(first)
		}
		state := edgetest.Member(first, "requestState")
		retry := params[:len(params)-1] + `,"requestState":` + state + `,"inputResponses":{"input_1":{"action":"accept","content":{"a":1}}}}`
		if out := c.request(t, "2", "tools/call", retry, edgetest.Capabilities(can)).Result(); edgetest.Member(out, "said", "content", "a") != "1" {
			t.Error(out)
		}
	})
	t.Run("modern client, modern backend", func(t *testing.T) {
		t.Parallel()
		f := newThree(t, bestEffort)
		back := f.backs["new"]
		back.Once("tools/call", func(c *edgetest.Call) {
			c.Result(`{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":` + asked + `}},"requestState":"the backend's own"}`)
		})
		c := f.callerOf(t, edgetest.Modern, "")
		params := edgetest.CallParams("new_echo", "{}")
		first := c.request(t, "1", "tools/call", params, edgetest.Capabilities(can)).Result()
		state := edgetest.Member(first, "requestState")
		if state == "" || strings.Contains(state, "backend") {
			t.Fatalf("the state is not sealed: %s", first)
		}
		answers := `,"inputResponses":{"q":{"action":"accept","content":{}}}}`
		// It leads back to the backend that made it, and from no other call.
		other, changed := edgetest.CallParams("old_echo", "{}"), edgetest.CallParams("new_echo", `{"b":1}`)
		fails(t, c.request(t, "2", "tools/call", other[:len(other)-1]+`,"requestState":`+state+answers, edgetest.Capabilities(can)), 400, -32602, "2")
		fails(t, c.request(t, "3", "tools/call", changed[:len(changed)-1]+`,"requestState":`+state+answers, edgetest.Capabilities(can)), 400, -32602, "3")
		fails(t, c.request(t, "4", "tools/call", params[:len(params)-1]+`,"requestState":"the backend's own"`+answers, edgetest.Capabilities(can)), 400, -32602, "4")
		if r := c.request(t, "5", "tools/call", params[:len(params)-1]+`,"requestState":`+state+answers, edgetest.Capabilities(can)); r.Status != 200 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		got := back.Requests("tools/call")
		if last := string(got[len(got)-1].Message.Params); edgetest.Member(last, "requestState") != `"the backend's own"` {
			t.Errorf("the backend got %s", last)
		}
	})
	t.Run("legacy client, modern backend", func(t *testing.T) {
		t.Parallel()
		f := newThree(t, bestEffort)
		f.backs["new"].Once("tools/call", func(c *edgetest.Call) {
			c.Result(`{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":` + asked + `}},"requestState":"s"}`)
		})
		c := f.callerOf(t, edgetest.Legacy, can)
		r := c.request(t, "1", "tools/call", edgetest.CallParams("new_echo", "{}"))
		m := r.NextMessage()
		if m.Method != "elicitation/create" {
			t.Fatalf("%+v", m)
		}
		c.session.Reply(m.ID, `{"action":"decline"}`)
		if m := r.NextMessage(); m.Result == nil {
			t.Errorf("%+v", m)
		}
	})
}

// TestAggregateResources reads, subscribes and completes by URI and reference.
// The progress of a question is told to the backend that asks, and to no other.
func TestAggregateProgressOfAQuestion(t *testing.T) {
	t.Parallel()
	first, second := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"first": first, "second": second}, bestEffort))
	c := (&front{Edge: e, client: e.NewClient()}).callerOf(t, edgetest.Legacy, `{"sampling":{}}`)
	ask := func(back *edgetest.Server, token, id, tool string) (*edgetest.Response, []byte) {
		back.Once("tools/call", func(c *edgetest.Call) {
			c.Ask("7", "sampling/createMessage", `{"messages":[],"maxTokens":1,"_meta":{"progressToken":`+token+`}}`)
			c.Result(`{"content":[]}`)
		})
		r := c.request(t, id, "tools/call", edgetest.CallParams(tool, "{}"))
		return r, r.NextMessage().ID
	}
	one, asked := ask(first, "1", "11", "first_echo")
	other, askedToo := ask(second, `"t"`, "12", "second_echo")
	c.session.Notify("notifications/progress", `{"progressToken":1,"progress":1}`)
	c.session.Notify("notifications/progress", `{"progressToken":"t","progress":2}`)
	first.Await("notifications/progress", 1)
	second.Await("notifications/progress", 1)
	for i, id := range [][]byte{asked, askedToo} {
		c.session.Reply(id, `{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`)
		[]*edgetest.Response{one, other}[i].Rest()
	}
	for back, want := range map[*edgetest.Server]string{first: "1", second: "2"} {
		got := back.Requests("notifications/progress")
		if len(got) != 1 || edgetest.Member(string(got[0].Message.Params), "progress") != want {
			t.Errorf("%d times progress: %+v", len(got), got)
		}
	}

	// Of a question that has been answered it may still be told, as of a task: nobody knows whose it is.
	c.session.Notify("notifications/progress", `{"progressToken":1,"progress":3}`)
	first.Await("notifications/progress", 2)
}

func TestAggregateResources(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
	long := strings.Repeat("/long", 240)
	for s, uri := range map[*edgetest.Server]string{a: "test://a", b: "test://b"} {
		list := `{"resources":[{"uri":"` + uri + `","name":"r"},{"uri":"` + uri + long + `","name":"l"}]`
		if s.Era == edgetest.Modern {
			list += `,"resultType":"complete","ttlMs":1000,"cacheScope":"public"`
		}
		s.Always("resources/list", func(c *edgetest.Call) { c.Result(list + "}") })
		done := ""
		if s.Era == edgetest.Modern {
			done = `"resultType":"complete","ttlMs":1000,"cacheScope":"public",`
		}
		s.Always("resources/read", func(c *edgetest.Call) { c.Result(`{` + done + `"contents":[{"uri":"` + uri + `","text":"x"}]}`) })
		s.Always("prompts/list", func(c *edgetest.Call) { c.Result(`{` + done + `"prompts":[{"name":"p"}]}`) })
		s.Always("completion/complete", func(c *edgetest.Call) {
			if s.Era == edgetest.Modern {
				c.Result(`{"resultType":"complete","completion":{"values":["v"]}}`)
				return
			}
			c.Result(`{"completion":{"values":["v"]}}`)
		})
		s.Always("resources/subscribe", func(c *edgetest.Call) { c.Result("{}") })
		s.Always("resources/unsubscribe", func(c *edgetest.Call) { c.Result("{}") })
	}
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"a": a, "b": b}, bestEffort))
	f := &front{Edge: e, client: e.NewClient()}
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		c := f.callerOf(t, era, "")
		for _, uri := range []string{"test://a", "test://b"} {
			if out := c.request(t, "1", "resources/read", `{"uri":"`+uri+`"}`).Result(); !strings.Contains(out, uri) {
				t.Errorf("%s: %s", uri, out)
			}
		}
		r := c.request(t, "2", "resources/read", `{"uri":"test://none"}`)
		if m := r.Message(); m.Error == nil || m.Error.Code != -32602 || !strings.Contains(string(r.Answer()), `"uri":"test://none"`) {
			t.Errorf("unknown resource: %s", r.Answer())
		}
		for _, name := range []string{"a", "b"} {
			if out := c.request(t, "3", "completion/complete", `{"ref":{"type":"ref/prompt","name":"`+name+`_p"},"argument":{"name":"x","value":"v"}}`).Result(); !strings.Contains(out, `"v"`) {
				t.Errorf("completion: %s", out)
			}
		}
	}
	for _, s := range []*edgetest.Server{a, b} {
		for _, r := range s.Requests("completion/complete") {
			if got := edgetest.Member(string(r.Message.Params), "ref", "name"); got != `"p"` {
				t.Errorf("the backend was asked for %s", got)
			}
		}
	}
	// Two modern clients that wait for one resource cost one subscription.
	c := f.callerOf(t, edgetest.Modern, "")
	want := `{"notifications":{"resourceSubscriptions":["test://a","test://none"]}}`
	one, two := c.request(t, "1", "subscriptions/listen", want), f.callerOf(t, edgetest.Modern, "").request(t, "2", "subscriptions/listen", want)
	for _, r := range []*edgetest.Response{one, two} {
		if m := r.NextMessage(); edgetest.Member(string(m.Params), "notifications", "resourceSubscriptions") != `["test://a"]` {
			t.Errorf("%+v", m)
		}
	}
	if n := a.Count("resources/subscribe"); n != 1 {
		t.Errorf("%d subscriptions, want 1", n)
	}
	own := a.Session(a.Requests("resources/subscribe")[0].Session) // whose stream opens beside that
	edgetest.Until(t, "the edge's own stream", own.Listening)
	for _, s := range a.Sessions() {
		if s.Listening() {
			s.Push(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a"}}`)
		}
	}
	for id, r := range map[string]*edgetest.Response{"1": one, "2": two} {
		if m := r.NextMessage(); m.Method != "notifications/resources/updated" || edgetest.Member(string(m.Params), "_meta", "io.modelcontextprotocol/subscriptionId") != id {
			t.Errorf("%+v", m)
		}
	}
	one.Close()
	if n := a.Count("resources/unsubscribe"); n != 0 {
		t.Errorf("%d unsubscribed while another waits", n)
	}
	two.Close()
	a.Await("resources/unsubscribe", 1)
	three := c.request(t, "3", "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["test://a`+long+`"]}}`)
	if got := edgetest.Member(string(three.NextMessage().Params), "notifications", "resourceSubscriptions"); got != `["test://a`+long+`"]` {
		t.Errorf("a long URI: %s", got)
	}
	three.Close()
}

// TestAggregateResourcesInNoList reads pages that tools show and resources that answers name to a
// client, which backends need not list: at the backend whose they are, and as policies say.
func TestAggregateResourcesInNoList(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			backs := map[string]*edgetest.Server{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.Modern)}
			for name, s := range backs {
				done := ""
				if s.Era == edgetest.Modern {
					done = `"resultType":"complete","ttlMs":60000,"cacheScope":"private",`
				}
				s.Always("tools/list", func(c *edgetest.Call) {
					c.Result(`{` + done + `"tools":[{"name":"show","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://` + name + `/view"}}},
						{"name":"older","inputSchema":{"type":"object"},"_meta":{"ui/resourceUri":"ui://` + name + `/older"}},
						{"name":"wide","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"x://` + name + `/page"}}}]}`)
				})
				s.Always("resources/templates/list", func(c *edgetest.Call) {
					c.Result(`{` + done + `"resourceTemplates":[{"uriTemplate":"w://{id}","name":"t"}]}`)
				})
				s.Always("tools/call", func(c *edgetest.Call) {
					c.Result(`{` + strings.Replace(done, `"ttlMs":60000,"cacheScope":"private",`, "", 1) + `"content":[{"type":"resource_link","uri":"x://` + name + `","name":"l"},
						{"type":"resource","resource":{"uri":"y://` + name + `","text":"t"}},{"type":"resource_link","uri":"x://both","name":"l"},{"type":"resource_link","uri":"w://` + name + `","name":"l"},{"type":"resource_link","uri":"x://denied","name":"l"}]}`)
				})
				s.Always("prompts/list", func(c *edgetest.Call) { c.Result(`{` + done + `"prompts":[{"name":"p"}]}`) })
				s.Always("prompts/get", func(c *edgetest.Call) {
					c.Result(`{` + strings.Replace(done, `"ttlMs":60000,"cacheScope":"private",`, "", 1) + `"messages":[{"role":"user","content":{"type":"resource_link","uri":"z://` + name + `","name":"l"}}]}`)
				})
				s.Always("resources/read", func(c *edgetest.Call) {
					c.Result(`{` + done + `"contents":[{"uri":"` + strings.Trim(edgetest.Member(string(c.Message.Params), "uri"), `"`) + `","text":"of ` + name + `"}]}`)
				})
			}
			const policies = `incomingAuth:
  type: anonymous
  authz:
    type: policy
    policies:
    - permit(principal, action, resource) unless { resource == Resource::"x://denied" };
`
			e := edgetest.Start(t, strings.Replace(group(backs), "incomingAuth: {type: anonymous}\n", policies, 1))
			f := &front{Edge: e, client: e.NewClient()}
			c := f.callerOf(t, era, "")
			read := func(c caller, uri string) *edgetest.Response {
				return c.request(t, "1", "resources/read", `{"uri":"`+uri+`"}`)
			}
			unknown := func(c caller, uri string) {
				t.Helper()
				fails(t, read(c, uri), 403, 403, "1") // as what is denied
			}
			of := func(uri, name string) {
				t.Helper()
				if r := read(c, uri); r.Status != 200 || !strings.Contains(string(r.Answer()), "of "+name) {
					t.Errorf("%s: status %d: %s", uri, r.Status, r.Answer())
				}
			}
			of("ui://b/view", "b") // before anybody has asked for the tools
			c.request(t, "4", "resources/templates/list", "").Result()
			for name := range backs {
				of("ui://"+name+"/view", name)
				of("ui://"+name+"/older", name)
				unknown(c, "x://"+name+"/page")
				for _, uri := range []string{"x://", "y://", "z://"} {
					unknown(c, uri+name)
				}
			}
			of("w://b", "a") // by its template, until b says that it is one of its own
			f.callerOf(t, era, "").request(t, "2", "tools/call", edgetest.CallParams("b_show", "{}")).Result()
			of("w://b", "a") // b said so to another client
			for name := range backs {
				c.request(t, "2", "tools/call", edgetest.CallParams(name+"_show", "{}")).Result()
				c.request(t, "3", "prompts/get", `{"name":"`+name+`_p"}`).Result()
				for _, uri := range []string{"x://", "y://", "z://"} {
					of(uri+name, name)
				}
				if era == edgetest.Modern { // without a name, b may have said so to anybody
					of("w://"+name, "a")
				} else {
					of("w://"+name, name)
				}
				unknown(c, "x://denied")
			}
			unknown(c, "x://both") // whose it is nobody can say
			if era == edgetest.Legacy {
				unknown(f.callerOf(t, era, ""), "y://a") // another client was not told of it
			}
		})
	}
}

// TestAggregateBackendDown has a backend that is away cost the others nothing.
func TestAggregateBackendDown(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"fail", "best_effort"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			up, down := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
			offers(up, "echo")
			down.Close()
			e := edgetest.Start(t, group(map[string]*edgetest.Server{"up": up, "down": down}, "operational: {failureHandling: {partialFailureMode: "+mode+"}}"))
			f := &front{Edge: e, client: e.NewClient()}
			c := f.callerOf(t, edgetest.Modern, "")
			if r := c.request(t, "1", "tools/call", edgetest.CallParams("up_echo", "{}")); r.Status != 200 {
				t.Errorf("a call of the other: status %d: %s", r.Status, r.Body)
			}
			r := c.request(t, "2", "tools/list", "")
			if mode == "best_effort" {
				if got := strings.Join(listed(t, c), " "); got != "up_echo" {
					t.Errorf("tools: %s", got)
				}
				return
			}
			if r.Status != 502 || !strings.Contains(string(r.Body), `"missing":["down"]`) {
				t.Errorf("status %d: %s", r.Status, r.Body)
			}
		})
	}
}

// TestAggregateNeverListed: what a backend may have that could never be asked for its lists is
// not said to be nowhere. A policy denies it like all that nobody knows.
func TestAggregateNeverListed(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ more, policy, unknown string }{
		"prefix":        {unknown: "up_nothing"},
		"priority":      {more: priority},
		"with a policy": {more: priority, policy: `permit(principal, action, resource) when { resource.name == "echo" };`},
		"manual":        {more: "aggregation: {conflictResolution: manual}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up, down := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
			offers(up, "echo")
			down.Close()
			yaml := group(map[string]*edgetest.Server{"up": up, "down": down}, of.more)
			if of.policy != "" {
				yaml = strings.Replace(yaml, "{type: anonymous}", fmt.Sprintf("{type: anonymous, authz: {type: policy, policies: [%q]}}", of.policy), 1)
			}
			e := edgetest.Start(t, yaml)
			f := &front{Edge: e, client: e.NewClient()}
			c := f.callerOf(t, edgetest.Modern, "")
			ask := func(want int, method, params string) {
				t.Helper()
				r := c.request(t, "1", method, params)
				if named := strings.Contains(string(r.Body), `backend \"down\" unavailable`); r.Status != want || named != (want == 502) {
					t.Errorf("%s %s: status %d, want %d: %s", method, params, r.Status, want, r.Body)
				}
			}
			away := 502
			if of.policy != "" {
				away = 403
			}
			ask(away, "resources/read", `{"uri":"test://nowhere"}`)
			if of.unknown != "" {
				ask(400, "tools/call", edgetest.CallParams(of.unknown, "{}"))
				return
			}
			ask(away, "tools/call", edgetest.CallParams("nothing", "{}"))
			ask(200, "tools/call", edgetest.CallParams("echo", "{}"))
		})
	}
}

// TestStatusReport logs a status that has changed, as often as it is told to.
func TestStatusReport(t *testing.T) {
	t.Parallel()
	up := edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"up": up}, "operational: {failureHandling: {statusReportingInterval: 10s}}"))
	now := time.Now()
	e.Serve.Beat(now)
	edgetest.Until(t, "a ready backend", func() bool { return strings.Contains(e.Log(), "status=ready") })
	if n := strings.Count(e.Log(), "msg=status "); n > 1 {
		t.Fatalf("%d reports at once", n)
	}
	e.Serve.Beat(now.Add(5 * time.Second))
	before := strings.Count(e.Log(), "msg=status ")
	e.Serve.Beat(now.Add(11 * time.Second))
	if !strings.Contains(e.Log(), "phase=Ready") {
		t.Errorf("%d reports before: %s", before, e.Log())
	}
	after := strings.Count(e.Log(), "msg=status ")
	e.Serve.Beat(now.Add(22 * time.Second))
	if n := strings.Count(e.Log(), "msg=status "); n != after {
		t.Error("a status that is as it was is reported again")
	}
}

// TestAggregateTasks leads a task's id back to the backend that began it, for
// whoever began it and nobody else.
func TestAggregateTasks(t *testing.T) {
	t.Parallel()
	f := newThree(t, bestEffort)
	f.backs["old"].Always("tools/call", func(c *edgetest.Call) {
		c.Result(`{"task":{"taskId":"t1","status":"working","ttl":1000}}`)
	})
	f.backs["new"].Always("tools/call", func(c *edgetest.Call) {
		c.Result(`{"resultType":"task","taskId":"t2","status":"working"}`)
	})
	f.backs["old"].Always("tasks/get", func(c *edgetest.Call) { c.Result(`{"taskId":"t1","status":"completed"}`) })
	f.backs["new"].Always("tasks/get", func(c *edgetest.Call) {
		c.Result(`{"resultType":"complete","taskId":"t2","status":"completed"}`)
	})
	legacy, modern := f.callerOf(t, edgetest.Legacy, ""), f.callerOf(t, edgetest.Modern, "")
	legacy.request(t, "1", "tools/call", edgetest.CallParams("old_echo", "{}")).Result()
	modern.request(t, "1", "tools/call", edgetest.CallParams("new_echo", "{}")).Result()
	if out := legacy.request(t, "2", "tasks/get", `{"taskId":"t1"}`).Result(); !strings.Contains(out, "completed") {
		t.Error(out)
	}
	if out := modern.request(t, "2", "tasks/get", `{"taskId":"t2"}`).Result(); !strings.Contains(out, "completed") {
		t.Error(out)
	}
	if n := f.backs["old"].Count("tasks/get") + f.backs["sse"].Count("tasks/get"); n != 1 {
		t.Errorf("the other backends were asked %d times", n-1)
	}
	stranger := f.callerOf(t, edgetest.Legacy, "")
	fails(t, stranger.request(t, "3", "tasks/get", `{"taskId":"t1"}`), 200, -32602, "3")
	fails(t, modern.request(t, "4", "tasks/get", `{"taskId":"t3"}`), 400, -32602, "4")
}

// TestAggregateLogLevel has every backend that logs hear of a legacy session's
// level, whether it has met the session before or not.
func TestAggregateLogLevel(t *testing.T) {
	t.Parallel()
	a, b, quiet := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
	for _, s := range []*edgetest.Server{a, b, quiet} {
		offers(s, "echo")
	}
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"a": a, "b": b, "m": quiet}, bestEffort))
	f := &front{Edge: e, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Legacy, "")
	c.request(t, "1", "tools/call", edgetest.CallParams("a_echo", "{}")).Result()
	c.request(t, "2", "logging/setLevel", `{"level":"warning"}`).Result()
	if got := a.Await("logging/setLevel", 1); edgetest.Member(string(got.Message.Params), "level") != `"warning"` {
		t.Errorf("%s", got.Message.Params)
	}
	if n := b.Count("logging/setLevel"); n != 0 {
		t.Errorf("a backend that the session has not met was told %d times", n)
	}
	c.request(t, "3", "tools/call", edgetest.CallParams("b_echo", "{}")).Result()
	b.Await("logging/setLevel", 1)
	c.request(t, "4", "tools/call", edgetest.CallParams("m_echo", "{}")).Result()
	for _, r := range quiet.Requests("tools/call") {
		if got := edgetest.Member(string(r.Message.Params), "_meta", "io.modelcontextprotocol/logLevel"); got != `"warning"` {
			t.Errorf("the modern backend was told %s", got)
		}
	}
}

// TestAggregateOlderBackendThatRestarts: behind a server of several, lists of a backend of the
// older transport are fetched again when its stream has ended: what it told meanwhile nobody heard.
func TestAggregateOlderBackendThatRestarts(t *testing.T) {
	t.Parallel()
	older, other := edgetest.NewServer(t, edgetest.SSE), edgetest.NewServer(t, edgetest.Modern)
	offers(older, "first")
	offers(other, "echo")
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"older": older, "other": other}, "operational: {failureHandling: {partialFailureMode: best_effort, healthCheckInterval: 1h}}")) // else they are fetched again every 30 s
	f := &front{Edge: e, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Modern, "")
	has := func(name string) func() bool {
		return func() bool { return slices.Contains(listed(t, c), name) }
	}
	edgetest.Until(t, "the lists", has("older_first"))
	edgetest.Until(t, "a session that only listens", func() bool { return slices.ContainsFunc(older.Requests("initialize"), listensOnly) })
	offers(older, "second") // which it tells nobody
	older.Drop()
	edgetest.Until(t, "the list of after the restart", has("older_second"))
}

// TestAggregateOlderBackendThatRestartsAtTheStart has it restart, with other lists, while the
// edge introduces itself to listen.
func TestAggregateOlderBackendThatRestartsAtTheStart(t *testing.T) {
	t.Parallel()
	older, other := edgetest.NewServer(t, edgetest.SSE), edgetest.NewServer(t, edgetest.Modern)
	offers(older, "first")
	offers(other, "echo")
	restart := make(chan struct{})
	var restarted atomic.Bool
	older.Always("initialize", func(c *edgetest.Call) {
		if listensOnly(c.Request) && !restarted.Swap(true) {
			c.Wait(restart)
			older.Drop()
			c.Abort()
		}
		c.Result(`{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"older","version":"1"}}`)
	})
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"older": older, "other": other}, "operational: {failureHandling: {partialFailureMode: best_effort, healthCheckInterval: 1h}}"))
	f := &front{Edge: e, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Modern, "")
	edgetest.Until(t, "the lists", func() bool { return slices.Contains(listed(t, c), "older_first") })
	edgetest.Until(t, "a session that only listens", restarted.Load)
	offers(older, "second")
	close(restart)
	edgetest.Until(t, "the list of after the restart", func() bool { return slices.Contains(listed(t, c), "older_second") })
}

// listensOnly reports whether an introduction to a server of the older transport is of the
// session on which the edge listens: the others say the version of that transport.
func listensOnly(r *edgetest.Request) bool {
	return strings.Contains(string(r.Body), mcp.V2511)
}

// TestAggregateBackendThatHangs has calls of the others wait for nothing, right
// after the start and after a reload. It runs alone: times are asserted.
func TestAggregateBackendThatHangs(t *testing.T) {
	up, hangs := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	offers(up, "echo")
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for _, kind := range []string{"initialize", "server/discover", "tools/list"} {
		hangs.Always(kind, func(c *edgetest.Call) { c.Wait(release) })
	}
	backs := map[string]*edgetest.Server{"up": up, "hangs": hangs}
	e := edgetest.Start(t, group(backs, bestEffort))
	f := &front{Edge: e, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Modern, "")
	call := func(when string) {
		began := time.Now()
		if r := c.request(t, "1", "tools/call", edgetest.CallParams("up_echo", "{}")); r.Status != 200 {
			t.Errorf("%s: status %d: %s", when, r.Status, r.Body)
		}
		// The bound on waiting for a list is two seconds.
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("%s: the call took %s", when, took)
		}
	}
	call("after the start")
	listed(t, c)
	if err := e.Serve.Reload(edgetest.Plan(t, group(backs, "operational: {failureHandling: {partialFailureMode: best_effort, statusReportingInterval: 1s}}"))); err != nil {
		t.Fatal(err)
	}
	call("after a reload")
	began := time.Now()
	if got := strings.Join(listed(t, c), " "); got != "up_echo" || time.Since(began) > 1500*time.Millisecond {
		t.Errorf("after a reload the list was %q, in %s", got, time.Since(began))
	}
}

// TestBackendThatHangsAtFirstIsUsed: a backend that answered nothing at the start is used as soon
// as a check is answered, while who asked at the start still waits.
func TestBackendThatHangsAtFirstIsUsed(t *testing.T) {
	t.Parallel()
	up, hangs := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)
	offers(up, "echo")
	offers(hangs, "echo")
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	var waits atomic.Bool
	hangs.Always("server/discover", func(c *edgetest.Call) { c.Wait(release) })
	hangs.Always("initialize", func(c *edgetest.Call) { waits.Store(true); c.Wait(release) })
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"up": up, "hangs": hangs},
		"operational: {timeouts: {default: 10m}, failureHandling: {partialFailureMode: best_effort, healthCheckInterval: 2s, healthCheckTimeout: 1s}}"))
	c := (&front{Edge: e, client: e.NewClient()}).callerOf(t, edgetest.Modern, "")
	edgetest.Until(t, "an introduction that waits", waits.Load)
	hangs.Always("server/discover", nil)
	hangs.Always("initialize", nil)
	edgetest.Until(t, "its tools", func() bool { return slices.Contains(listed(t, c), "hangs_echo") })
	if m := c.request(t, "1", "tools/call", edgetest.CallParams("hangs_echo", "{}")).Message(); m.Error != nil {
		t.Errorf("%+v", m.Error)
	}
}
