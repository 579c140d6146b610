package serve_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// shut is which of the filters that decide lets nothing through.
type shut string

const (
	nothing    shut = "nothing shut"
	gate       shut = "gate"
	mutating   shut = "mutating webhook"
	validating shut = "validating webhook"
	policies   shut = "policies"
	limits     shut = "limits"
	hidden     shut = "visibility"
)

// hall is an edge with every filter that decides, of which one may be shut.
type hall struct {
	*front
	shut    shut
	alone   bool // its one backend is served as it is
	backs   map[string]*edgetest.Server
	mutates *hook
	looks   *hook

	session *edgetest.Session
	older   *edgetest.OldSession
	sent    int
	absent  map[string]string // marks that no backend may ever see, and what they are of
}

func newHall(t *testing.T, which shut, alone bool, backs map[string]*edgetest.Server) *hall {
	t.Helper()
	h := &hall{shut: which, alone: alone, backs: backs, absent: make(map[string]string)}
	verdict := func(which shut) *hook {
		if which == h.shut {
			return newHook(t, says(200, hookDenies))
		}
		return newHook(t, says(200, hookAllows))
	}
	h.mutates, h.looks = verdict(mutating), verdict(validating)
	tokens, permit, aggregation := 1_000_000, "permit(principal, action, resource);", "conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [old, new]}"
	switch which {
	case limits:
		tokens = 1
	case policies:
		permit = `permit(principal, action, resource) when { resource.name == "none of these" };`
	case hidden:
		aggregation += ", tools: [{workload: old, excludeAll: true}, {workload: new, excludeAll: true}]"
	}
	limit := fmt.Sprintf("rateLimiting: {shared: %s}", bucket(tokens))
	var yaml string
	auth := "incomingAuth: {type: anonymous}"
	if which == gate {
		m := newMint(t)
		auth = fmt.Sprintf("incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, m.URL+"/keys")
	} else if !alone && which != hidden { // which has to say for itself what is not there
		auth = fmt.Sprintf("incomingAuth: {type: anonymous, authz: {type: policy, policies: [%q]}}", permit)
	}
	if alone {
		for _, back := range backs {
			yaml = edgetest.Manifest(back, limit)
		}
	} else {
		yaml = group(backs, "aggregation: {"+aggregation+"}", bestEffort, limit)
	}
	yaml = strings.Replace(yaml, "incomingAuth: {type: anonymous}", auth, 1)
	dir := t.TempDir()
	entries := "validating:\n" + h.looks.entry("look", "fail") + "mutating:\n" + h.mutates.entry("change", "fail")
	hooks := write(t, filepath.Join(dir, "hooks.yaml"), strings.ReplaceAll(entries, "timeout: 1s", "timeout: 30s")) // a busy machine is no failure
	opened := source.Open(write(t, filepath.Join(dir, "weir.yaml"), yaml), source.Webhooks(hooks), source.LocalRateLimits(true))
	if opened.Err() != nil {
		t.Fatal(opened.Findings)
	}
	e := edgetest.StartPlan(t, opened.Plan, edgetest.Settings(func(s *serve.Settings) { s.LocalRateLimits = true }))
	h.front = &front{Edge: e, client: e.NewClient()}
	if which == gate {
		return h
	}
	h.session = e.NewClient().InitializeAs("2025-03-26", "")
	h.older = e.NewClient().OpenSSE()
	h.older.Initialize("")
	edgetest.Until(t, "the lists of all backends", func() bool {
		if alone {
			return true
		}
		all := h.front.client.Modern("1", "resources/templates/list", "{}").Message()
		return which == mutating || which == validating || strings.Count(string(all.Result), "uriTemplate") == len(backs) || which == policies && all.Error == nil
	})
	if which == limits { // takes the one token
		for name := range backs {
			h.front.client.Modern("1", "tools/call", edgetest.CallParams(name+"_tool", "{}"))
		}
	}
	return h
}

// strange reports whether a method is one that only looks like one of the
// protocol's.
func strange(method string) bool {
	return !mcp.MethodOf(method).Known && mcp.Resembles(method)
}

// expect is what becomes of a message: the status and code of its error, and who
// says so; 0 for a message that passes.
func (h *hall) expect(a *edgetest.Asking, e edgetest.Era, f edgetest.Form) (status, code int, who string) {
	noMethod := func() (int, int, string) {
		if e == edgetest.Modern {
			return 404, -32601, "method not found"
		}
		return 200, -32601, "method not found"
	}
	switch {
	case h.shut == gate:
		return 401, 401, ""
	case f.Batch && e == edgetest.Modern:
		return 400, -32600, "batches"
	case f.Swapped:
		return 400, -32600, "id"
	case a.Method == "initialize" && f.Batch:
		return 200, -32600, "batch"
	case a.Method == "initialize" && f.Older:
		return 400, -32600, ""
	case !a.Notification() && !a.In(e) || a.Alone && !h.alone:
		return noMethod()
	case a.Asked(e) && h.shut == mutating:
		return 403, 403, "webhook policy"
	case a.Asked(e) && h.shut == validating:
		return 403, 403, "by policy"
	case a.Policies && h.shut == policies:
		return 403, 403, "authorization policy"
	case a.Limits && h.shut == limits:
		return 429, 429, "Rate limit exceeded"
	case strings.HasPrefix(a.Method, "tasks/") && !h.alone && h.shut != hidden:
		return 403, 403, "authorization policy" // nobody has begun such a task
	case h.shut == hidden && (a.Visible || strings.HasPrefix(a.Method, "tasks/")):
		if e == edgetest.Modern {
			return 400, -32602, "not found"
		}
		return 200, -32602, "not found"
	}
	return 0, 0, ""
}

// send sends a message in a form and returns the status and the error; 0 for none.
func (h *hall) send(t *testing.T, e edgetest.Era, f edgetest.Form, id, body string, header []string) (status, code int, text string) {
	t.Helper()
	var r *edgetest.Response
	switch {
	case f.Older && h.shut == gate:
		r = h.front.client.Do("POST", "/messages?sessionId=x", body)
	case f.Older:
		r = h.older.Do("POST", h.older.Path, body)
		if r.Status == 202 && strings.Contains(body, `"id":`) {
			for {
				if m := h.older.Stream.NextMessage(); string(m.ID) == id {
					if m.Error != nil {
						return 202, m.Error.Code, m.Error.Message
					}
					return 202, 0, ""
				}
			}
		}
	case e == edgetest.Modern:
		r = h.front.client.Post(body, header...)
	case h.shut == gate:
		r = h.front.client.Post(body)
	default:
		r = h.session.Send(body)
	}
	if r.Stream() {
		text = string(r.Next().Data)
		r.Close()
	} else {
		text = string(r.Body)
	}
	if text == "" {
		return r.Status, 0, ""
	}
	one := []edgetest.Message{{}}
	if strings.HasPrefix(text, "[") {
		if err := json.Unmarshal([]byte(text), &one); err != nil || len(one) != 1 {
			t.Fatalf("%v: %s", err, text)
		}
	} else {
		one[0] = edgetest.Parse(t, []byte(text))
	}
	if one[0].Error == nil {
		return r.Status, 0, text
	}
	return r.Status, one[0].Error.Code, one[0].Error.Message
}

// asked is how often each webhook has been asked.
func (h *hall) asked() [2]int { return [2]int{len(h.mutates.methods()), len(h.looks.methods())} }

// try sends one message and holds what becomes of it to what must.
func (h *hall) try(t *testing.T, a *edgetest.Asking, e edgetest.Era, f edgetest.Form, back string) {
	t.Helper()
	h.sent++
	id, mark := fmt.Sprint(h.sent), fmt.Sprintf("mark-%d.", h.sent)
	body, header := a.Marked(e, f, id, back, mark)
	what := fmt.Sprintf("%s, %s client, %s, %s", a.Name(), e, f.Name, body)
	before := h.asked()
	status, code, who := h.expect(a, e, f)
	gotStatus, gotCode, text := h.send(t, e, f, id, body, header)
	if f.Older {
		edgetest.Until(t, "the end of what goes on without an answer", func() bool { return h.Serve.Inflight() == 0 })
	}
	after := h.asked()
	switch {
	case strange(a.Method) && e == edgetest.Modern && h.shut != gate:
		if gotCode >= 0 || gotStatus < 400 { // which of the things that are wrong with it is said first does not matter
			t.Errorf("%s: status %d, code %d: %s", what, gotStatus, gotCode, text)
		}
	case f.Older && status != 401 && (a.Notification() && status != 400 || status == 429 || status == 403 || status == 200):
		status = 202 // the answer is on the stream
		if a.Notification() {
			code = 0
		}
		fallthrough
	case f.Batch && status != 401 && code != 0 && e != edgetest.Modern:
		if status != 400 && status != 202 {
			status = 200
		}
		fallthrough
	default:
		if status == 0 && (a.Notification() || f.Older) {
			status = 202
		} else if status == 0 {
			status = 200
		}
		if gotStatus != status || gotCode != code || code != 0 && !strings.Contains(text, who) {
			t.Errorf("%s: status %d, code %d: %s\nwant %d, %d, %s", what, gotStatus, gotCode, text, status, code, who)
		}
	}
	// Who was asked before it went anywhere.
	var want [2]int
	if _, code, _ := h.expect(a, e, f); a.Asked(e) && code != 401 && code != -32600 && code != -32601 {
		want = [2]int{1, 1}
		if h.shut == mutating {
			want[1] = 0
		}
	}
	if asked := [2]int{after[0] - before[0], after[1] - before[1]}; asked != want {
		t.Errorf("%s: webhooks were asked %v, want %v", what, asked, want)
	}
	// Where it went.
	h.reached(t, what, a, e, f, back, mark)
}

func (h *hall) reached(t *testing.T, what string, a *edgetest.Asking, e edgetest.Era, f edgetest.Form, back, mark string) {
	t.Helper()
	_, code, _ := h.expect(a, e, f)
	told := e != edgetest.Modern && (a.Method == "notifications/progress" || a.Method == "notifications/roots/list_changed")
	if code != 0 || a.Notification() && !told || strange(a.Method) {
		h.absent[mark] = what
		return
	}
	if a.Result == "" || a.Notification() {
		return
	}
	if e != edgetest.Modern && h.backs[back].Era == edgetest.Modern && strings.HasSuffix(a.Method, "subscribe") {
		return // becomes something else
	}
	for name, s := range h.backs {
		want := 0
		if name == back {
			want = 1
		}
		if got := len(s.Saw(mark)); got != want {
			t.Errorf("%s: reached %s %d times, want %d", what, name, got, want)
		}
	}
}

// TestZ02EveryMethodMeetsEveryFilter sends every method of both eras in every form
// to an edge whose filters decide, one of which at a time lets nothing through:
// each is asked, or the message is refused before any is, and then no byte of it
// reaches a backend.
func TestZ02EveryMethodMeetsEveryFilter(t *testing.T) {
	t.Parallel()
	run := func(which shut, alone bool, eras ...edgetest.Era) {
		name := string(which)
		if alone {
			name += ", one " + eras[0].String() + " backend"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backs := make(map[string]*edgetest.Server)
			for _, era := range eras {
				back := map[edgetest.Era]string{edgetest.Legacy: "old", edgetest.Modern: "new"}[era]
				backs[back] = edgetest.NewServer(t, era)
				edgetest.Offer(backs[back], back)
			}
			h := newHall(t, which, alone, backs)
			for _, a := range edgetest.Askings() {
				for _, e := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
					for _, f := range edgetest.Forms(e) {
						if f.Swapped && alone && which != nothing {
							continue // refused before any of them is asked
						}
						for back := range backs {
							h.try(t, &a, e, f, back)
							if !strings.Contains(a.Params, "BACK") {
								break
							}
						}
					}
				}
			}
			for name, s := range backs {
				for _, r := range s.Requests("") {
					for mark, what := range h.absent {
						if strings.Contains(string(r.Body), mark) {
							t.Errorf("%s got %s", name, what)
						}
					}
				}
			}
			t.Logf("%d messages, of which %d were to reach nobody", h.sent, len(h.absent))
		})
	}
	for _, which := range []shut{nothing, gate, mutating, validating, policies, limits, hidden} {
		run(which, false, edgetest.Legacy, edgetest.Modern)
	}
	for _, which := range []shut{nothing, gate, mutating, validating, limits} {
		run(which, true, edgetest.Legacy)
		run(which, true, edgetest.Modern)
	}
}

// TestZ02EveryMethodHasARow fails for a method that the edge knows and the table
// does not, and for one whose eras the two see otherwise.
func TestZ02EveryMethodHasARow(t *testing.T) {
	t.Parallel()
	rows := make(map[string][2]bool)
	for _, a := range edgetest.Askings() {
		in := rows[a.Method]
		rows[a.Method] = [2]bool{in[0] || a.Legacy, in[1] || a.Modern}
	}
	for _, name := range mcp.Methods() {
		in, ok := rows[name]
		if info := mcp.MethodOf(name); !ok || in != [2]bool{info.Legacy, info.Modern} {
			t.Errorf("%s: %+v, and the table says %v, %v", name, info, ok, in)
		}
	}
	for name := range rows {
		if known := mcp.MethodOf(name).Known; known != slices.Contains(mcp.Methods(), name) {
			t.Errorf("%s: known %v", name, known)
		}
	}
}

// TestZ02Records: what was refused for want of an id is recorded as that, and as
// the method that it named.
func TestZ02Records(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	file, yaml := audited(t)
	e := edgetest.Start(t, edgetest.Manifest(back, yaml))
	c := e.NewClient()
	s := c.InitializeAs("2025-03-26", "")
	call := `{"jsonrpc":"2.0","method":"tools/call","params":` + edgetest.CallParams("echo", "{}") + `}`
	fails(t, s.Send(call), 400, -32600, "")
	// Of a batch each message is judged by itself, and the status says that one was none.
	r := s.Send(`[` + strings.Replace(call, `"method"`, `"id":7,"method"`, 1) + `,` + call + `,{"jsonrpc":"2.0","id":8,"method":"notifications/initialized"}]`)
	if want := `[{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"{}"}]}},` +
		`{"jsonrpc":"2.0","error":{"code":-32600,"message":"a request without an id; only notifications have none"}},` +
		`{"jsonrpc":"2.0","id":8,"error":{"code":-32600,"message":"a notification has no id"}}]`; r.Status != 400 || string(r.Body) != want {
		t.Errorf("status %d: %s\nwant %s", r.Status, r.Body, want)
	}
	body, head := edgetest.ModernRequest("", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
	fails(t, c.Post(body, head...), 400, -32600, "")
	if n := back.Count("tools/call"); n != 1 {
		t.Errorf("%d calls", n)
	}
	e.Stop()
	var got []string
	for _, r := range records(t, file) {
		got = append(got, r.Type+" "+r.Outcome+" "+r.extra("error"))
	}
	want := []string{"mcp_initialize success ", "mcp_notification success ", "mcp_tool_call failure invalid", "mcp_tool_call success ", "mcp_tool_call failure invalid", "mcp_notification failure invalid", "mcp_tool_call failure invalid"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestZ02Unasked: answers that nobody waits for, and answers to questions of
// somebody else's, reach no backend and no other session.
func TestZ02Unasked(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		f := newFront(t, era)
		s := f.client.InitializeAs("2025-03-26", asks)
		s.Call("1", "echo", "{}")
		for i, text := range []string{`"id":1,"result":{"mark":"none-%d."}`, `"id":"weir-1","result":{"mark":"none-%d."}`, `"id":2,"error":{"code":1,"message":"none-%d."}`,
			`"error":{"code":1,"message":"none-%d."}`, `"id":null,"error":{"code":1,"message":"none-%d."}`} {
			body := `{"jsonrpc":"2.0",` + fmt.Sprintf(text, i) + `}`
			if r := s.Send(body); r.Status != 202 || len(r.Body) > 0 {
				t.Errorf("%s: status %d: %s", body, r.Status, r.Body)
			}
			if r := s.Send("[" + body + "]"); r.Status != 202 || len(r.Body) > 0 {
				t.Errorf("%s in a batch: status %d: %s", body, r.Status, r.Body)
			}
			fails(t, f.client.Post(body, "MCP-Protocol-Version", edgetest.ModernVersion), 400, -32600, edgetest.Member(strings.Replace(body, `"id":null`, `"x":1`, 1), "id"))
			if n := len(f.back.Saw(fmt.Sprintf("none-%d.", i))); n != 0 {
				t.Errorf("%s reached the backend", body)
			}
		}
	}
}
