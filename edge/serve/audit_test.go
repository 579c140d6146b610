package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/filters"
)

// record is a line of an audit log.
type record struct {
	Msg, Type, Outcome, Component string
	AuditID                       string `json:"audit_id"`
	Source                        struct {
		Value string
		Extra map[string]string
	}
	Subjects, Target map[string]string
	Metadata         struct{ Extra map[string]any }
	Data             map[string]json.RawMessage
}

// extra is a member of metadata.extra as text.
func (r record) extra(name string) string {
	if v, ok := r.Metadata.Extra[name]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

// records reads an audit log. Each line is one whole record.
func records(t testing.TB, file string) []record {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []record
	seen := map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if seen[r.AuditID] {
			t.Errorf("%s is there twice", r.AuditID)
		}
		seen[r.AuditID] = true
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// audited is the YAML of an audit log in a file, with everything in it, and of
// metrics that can be fetched.
func audited(t testing.TB) (file, yaml string) {
	file = filepath.Join(t.TempDir(), "audit.log")
	return file, fmt.Sprintf("audit: {enabled: true, logFile: %q, includeRequestData: true, includeResponseData: true}\ntelemetry: {enablePrometheusMetricsPath: true}\n", file)
}

// figure is the sum of a metric over the series whose text holds all of labels.
func figure(t testing.TB, text, name string, labels ...string) float64 {
	t.Helper()
	sum := 0.0
next:
	for line := range strings.Lines(text) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if bare, _, _ := strings.Cut(series, "{"); bare != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(series, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sum += v
	}
	return sum
}

// TestK18 has every request leave one record, whatever becomes of it: what is
// answered, denied, without a token that holds, unreadable, for a session of
// somebody else, for what is not there. Telemetry counts every message once
// (rows K18, M25, M10, H16 and S32).
func TestK18(t *testing.T) {
	t.Parallel()
	m := newMint(t)
	back := edgetest.NewServer(t, edgetest.Legacy)
	offers(back, "echo", "danger", "broken")
	back.Always("tools/call", func(c *edgetest.Call) {
		if strings.Contains(string(c.Message.Params), "broken") {
			c.Result(`{"content":[],"isError":true}`)
			return
		}
		c.Result(`{"content":[]}`)
	})
	file, yaml := audited(t)
	yaml = strings.Replace(edgetest.Manifest(back, yaml), "incomingAuth: {type: anonymous}", fmt.Sprintf(`incomingAuth:
  type: oidc
  oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}
  authz:
    type: policy
    policies:
    - '@id("all") permit(principal, action, resource);'
    - '@id("no-danger") forbid(principal, action, resource == Tool::"danger");'`, m.URL, m.URL+"/keys"), 1)
	e := edgetest.Start(t, yaml)
	f := &front{Edge: e, back: back, client: e.NewClient()}
	ada := m.token(t, "ada", "weir", map[string]any{"name": "Ada"})
	edgetest.Until(t, "the keys", func() bool {
		return f.client.Do("GET", "/status", "", bearer(ada)...).Status == 200
	})

	type want struct {
		status             int
		typ, outcome, said string            // said is the error of the record
		is                 map[string]string // further members of metadata.extra
		user               string            // "" for ada
	}
	var wants []want
	posts := 0
	c := caller{Client: e.NewClient()}
	send := func(w want, method, path, body string, head ...string) *edgetest.Response {
		t.Helper()
		r := c.Do(method, path, body, append([]string{"X-Request-Id", fmt.Sprintf("r-%d", len(wants)), "User-Agent", "k18/1"}, head...)...)
		if r.Status != w.status {
			t.Errorf("record %d: status %d: %s", len(wants), r.Status, r.Body)
		}
		wants = append(wants, w)
		if method == "POST" && strings.HasSuffix(path, "/mcp") && path != "/servers/other/mcp" {
			posts++
		}
		return r
	}
	with := func(token string, head ...string) []string { return append(bearer(token), head...) }

	// 1. A session from its beginning to its end.
	r := send(want{status: 200, typ: "mcp_initialize", outcome: "success"}, "POST", "/mcp", handshake, with(ada)...)
	id := r.Header.Get("Mcp-Session-Id")
	inside := func(token string, head ...string) []string {
		return with(token, append([]string{"Mcp-Session-Id", id, "MCP-Protocol-Version", "2025-11-25"}, head...)...)
	}
	call := func(name string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + edgetest.CallParams(name, `{"password":"hunter2"}`) + `}`
	}
	send(want{status: 202, typ: "mcp_notification", outcome: "success"}, "POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, inside(ada)...)
	send(want{status: 200, typ: "mcp_tool_call", outcome: "success", is: map[string]string{"backend_name": "back", "decision": "map[allowed:true policies:[all] reason:permitted"}}, "POST", "/mcp", call("echo"), inside(ada)...)
	send(want{status: 200, typ: "mcp_tool_call", outcome: "application_error"}, "POST", "/mcp", call("broken"), inside(ada)...)
	send(want{status: 403, typ: "mcp_tool_call", outcome: "denied", said: "denied", is: map[string]string{"decision": "map[allowed:false policies:[no-danger] reason:forbidden"}}, "POST", "/mcp", call("danger"), inside(ada)...)
	send(want{status: 403, typ: "mcp_tool_call", outcome: "denied", said: "denied", is: map[string]string{"decision": "map[allowed:false policies:[] reason:no such thing"}}, "POST", "/mcp", call("nothing"), inside(ada)...)
	send(want{status: 200, typ: "mcp_request", outcome: "failure", said: "no_method"}, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, inside(ada)...)
	stream := send(want{status: 200, typ: "sse_connection", outcome: "success"}, "GET", "/mcp", "", inside(ada, "Accept", "text/event-stream")...)
	send(want{status: 404, typ: "mcp_ping", outcome: "failure", said: "no_session", user: "eve", is: map[string]string{"cause": "session_owner_mismatch"}},
		"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, inside(m.token(t, "eve", "weir", nil))...)
	send(want{status: 200, typ: "http_request", outcome: "success"}, "DELETE", "/mcp", "", inside(ada)...)
	stream.Close()
	send(want{status: 404, typ: "mcp_ping", outcome: "failure", said: "no_session"}, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, inside(ada)...)

	// 2. A modern client.
	text, head := c.message("7", "tools/call", edgetest.CallParams("echo", "{}"))
	send(want{status: 200, typ: "mcp_tool_call", outcome: "success"}, "POST", "/mcp", text, with(ada, head...)...)
	send(want{status: 400, typ: "mcp_tool_call", outcome: "failure", said: "mismatch"}, "POST", "/mcp", text, with(ada, append(head, "Mcp-Name", "danger")...)...)

	// 3. What is turned away at the door.
	none := want{status: 401, typ: "http_request", outcome: "denied", said: "unauthenticated", user: "anonymous"}
	none.is = map[string]string{"cause": "authenticate: no bearer token"}
	send(none, "POST", "/mcp", text, head...)
	none.is = map[string]string{"cause": "authenticate: "}
	send(none, "POST", "/mcp", text, with(m.token(t, "ada", "another", nil), head...)...)
	none.typ = "sse_connection"
	send(none, "GET", "/mcp", "", "Accept", "text/event-stream")
	send(want{status: 400, typ: "http_request", outcome: "failure", said: "malformed"}, "POST", "/mcp", `{"jsonrpc":`, with(ada, head...)...)
	send(want{status: 415, typ: "http_request", outcome: "failure", said: "media_type"}, "POST", "/mcp", text, with(ada, "Content-Type", "text/plain")...)
	send(want{status: 405, typ: "http_request", outcome: "failure", said: "method_not_allowed"}, "PUT", "/mcp", "", with(ada)...)
	send(want{status: 403, typ: "http_request", outcome: "denied", said: "forbidden", user: "anonymous"}, "GET", "/mcp", "", "Origin", "https://evil.example")
	send(want{status: 404, typ: "http_request", outcome: "failure", said: "not_found", user: "anonymous"}, "POST", "/servers/other/mcp", text, with(ada)...)
	for _, path := range []string{"/", "/nope", "/mcp/"} {
		send(want{status: 404, typ: "http_request", outcome: "failure", said: "not_found", user: "anonymous"}, "POST", path, text, with(ada)...)
	}

	// 4. All of it is counted, and written down when the edge has ended.
	metrics := string(f.client.Do("GET", "/metrics", "").Body)
	// The Origin was refused before it was known what for, and a PUT is no message.
	if got := figure(t, metrics, "weir_mcp_requests_total"); got != float64(posts) {
		t.Errorf("%v messages are counted, %d were sent\n%s", got, posts, metrics)
	}
	twice := raw(t, e, "GET /mcp HTTP/1.1\r\nHost: "+e.Addr()+"\r\nAuthorization: Bearer x\r\nauthorization: Bearer y\r\n\r\n")
	if !strings.HasPrefix(twice, "HTTP/1.1 400 ") {
		t.Errorf("two credentials: %s", twice)
	}
	wants = append(wants, want{status: 400, typ: "http_request", outcome: "failure", said: "invalid", user: "anonymous", is: map[string]string{"cause": "duplicate_credential"}})
	// What has no reading has the status of its answer, and no method.
	bare := len(wants) - 1
	for _, r := range []struct {
		status int
		text   string
	}{
		{405, "TRACE /mcp HTTP/1.1\r\nHost: " + e.Addr() + "\r\n\r\n"},
		{417, "POST /mcp HTTP/1.1\r\nHost: " + e.Addr() + "\r\nExpect: x\r\nContent-Length: 2\r\n\r\n"},
		{431, "POST /mcp HTTP/1.1\r\nHost: " + e.Addr() + "\r\nX: " + strings.Repeat("x", 2*serve.Defaults().MaxHeader) + "\r\n\r\n"},
		{505, "POST /mcp HTTP/3.0\r\nHost: " + e.Addr() + "\r\n\r\n"},
		{400, "POST /mcp HTTP/1.1\r\nHost: " + e.Addr() + "\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n"},
	} {
		if got := raw(t, e, r.text); !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", r.status)) {
			t.Errorf("%.40q: %s", r.text, got)
		}
		wants = append(wants, want{status: r.status, typ: "http_request", outcome: "failure", said: "invalid", user: "anonymous"})
	}
	e.Stop()
	all := records(t, file)
	if len(all) != len(wants) {
		t.Errorf("%d records of %d requests", len(all), len(wants))
	}
	for i, w := range wants[:min(len(wants), len(all))] {
		r := all[i]
		if w.user == "" {
			w.user = "Ada"
		}
		if r.Type != w.typ || r.Outcome != w.outcome || r.extra("error") != w.said || r.Subjects["user"] != w.user || w.status != 202 && r.extra("status") != fmt.Sprint(w.status) {
			t.Errorf("record %d: %s %s %q of %s, status %s; want %+v", i, r.Type, r.Outcome, r.extra("error"), r.Subjects["user"], r.extra("status"), w)
		}
		for name, value := range w.is {
			if !strings.HasPrefix(r.extra(name), value) {
				t.Errorf("record %d: %s: %s, want %s", i, name, r.extra(name), value)
			}
		}
		id := r.Source.Extra["request_id"]
		switch {
		case i >= bare: // which brought none, and no line that could be read
			if r.Target["method"] != "" {
				t.Errorf("record %d: method %q", i, r.Target["method"])
			}
			if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) {
				t.Errorf("request id %q", id)
			}
		case id != fmt.Sprintf("r-%d", i) || r.Source.Extra["user_agent"] != "k18/1" || r.Source.Value != "127.0.0.1":
			t.Errorf("record %d: source %+v", i, r.Source)
		}
	}
	text2, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", ada} {
		if strings.Contains(string(text2), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
	if !strings.Contains(string(text2), `[REDACTED]`) {
		t.Error("nothing is masked")
	}
}

// raw sends bytes to an edge and returns what comes back.
func raw(t *testing.T, e *edgetest.Edge, text string) string {
	t.Helper()
	c := e.Dial()
	c.Write(text)
	h, body := c.Read()
	return h.Proto + " " + h.Status + "\n" + body
}

// The older transport leaves one record of each of its messages, and of its
// stream.
func TestAuditOfSSE(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	file, yaml := audited(t)
	e := edgetest.Start(t, edgetest.Manifest(back, yaml))
	c := e.NewClient()
	stream := c.Do("GET", "/sse", "", "Accept", "text/event-stream")
	at := string(stream.Next().Data)
	at = at[strings.Index(at, "/messages"):]
	for _, text := range []string{handshake, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}}`} {
		if r := c.Do("POST", at, text); r.Status != 202 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		if strings.Contains(text, `"id"`) {
			stream.Next()
		}
	}
	c.Do("POST", "/messages?sessionId=none", handshake)
	e.Stop()
	var got []string
	for _, r := range records(t, file) {
		got = append(got, r.Type+" "+r.Outcome)
		if r.extra("transport") != "sse" {
			t.Errorf("%s: transport %s", r.Type, r.extra("transport"))
		}
	}
	want := "sse_connection success, mcp_initialize success, mcp_notification success, mcp_tool_call success, http_request failure"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
}

// A batch leaves one record of each of its messages.
func TestAuditOfBatch(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	file, yaml := audited(t)
	e := edgetest.Start(t, edgetest.Manifest(back, yaml))
	c := e.NewClient()
	r := c.Post(strings.Replace(handshake, "2025-11-25", "2025-03-26", 1))
	id := r.Header.Get("Mcp-Session-Id")
	r = c.Post(`[{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"initialize"},{"jsonrpc":"2.0"}]`,
		"Mcp-Session-Id", id)
	if r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	e.Stop()
	var got []string
	for _, r := range records(t, file) {
		got = append(got, r.Type+" "+r.Outcome)
	}
	if s := strings.Join(got, ", "); s != "mcp_initialize success, mcp_notification success, mcp_ping success, mcp_initialize failure, http_request failure" {
		t.Error(s)
	}
}

// A log that is moved away is opened anew when the edge is told, and an edge
// without a log does not mind.
func TestReopenLogs(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	file, yaml := audited(t)
	e := edgetest.Start(t, edgetest.Manifest(back, yaml))
	c := caller{Client: e.NewClient()}
	c.call(t, "1", "{}")
	edgetest.Until(t, "the first record", func() bool { return len(records(t, file)) == 1 })
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	e.Serve.ReopenLogs()
	edgetest.Until(t, "the new file", func() bool { _, err := os.Stat(file); return err == nil })
	c.call(t, "2", "{}")
	e.Stop()
	if old, now := records(t, file+".1"), records(t, file); len(old) != 1 || len(now) != 1 {
		t.Errorf("%d and %d records", len(old), len(now))
	}
	newFront(t, edgetest.Modern).Serve.ReopenLogs()
}

// A reload that concerns other things keeps the log and its counters; one that
// concerns it loses no record.
func TestReloadKeepsWhatObserves(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	file, yaml := audited(t)
	manifest := edgetest.Manifest(back, yaml)
	e := edgetest.Start(t, manifest)
	c := caller{Client: e.NewClient()}
	counted := func() float64 {
		return figure(t, string(c.Do("GET", "/metrics", "").Body), "weir_audit_recorded_total")
	}
	reload := func(yaml string) {
		t.Helper()
		if err := e.Serve.Reload(edgetest.Plan(t, yaml)); err != nil {
			t.Fatal(err)
		}
	}
	c.call(t, "1", "{}")
	reload(strings.Replace(manifest, "name: edgetest", "name: edgetest\nmetadata: {a: b}", 1))
	c.call(t, "2", "{}")
	if n := counted(); n != 2 {
		t.Errorf("%v records are counted", n)
	}
	if n := figure(t, string(c.Do("GET", "/metrics", "").Body), "weir_mcp_tool_calls_total"); n != 2 {
		t.Errorf("%v calls are counted", n)
	}
	reload(strings.Replace(manifest, "enabled: true", "enabled: true, component: another", 1))
	c.call(t, "3", "{}")
	reload(edgetest.Manifest(back))
	c.call(t, "4", "{}")
	if r := c.Do("GET", "/metrics", ""); r.Status != 404 {
		t.Errorf("metrics without telemetry: status %d", r.Status)
	}
	e.Stop()
	all, others := records(t, file), 0
	for _, r := range all { // two components write at their own times
		if r.Component == "another" {
			others++
		}
	}
	if len(all) != 3 || others != 1 {
		t.Errorf("records: %+v", all)
	}
}

// A log that cannot be opened keeps the edge from starting, and a reload from
// changing anything.
func TestAuditThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	missing := "audit: {enabled: true, logFile: " + filepath.Join(t.TempDir(), "no", "such", "audit.log") + "}\n"
	e := edgetest.Start(t, edgetest.Manifest(back))
	err := e.Serve.Reload(edgetest.Plan(t, edgetest.Manifest(back, missing)))
	if err == nil || !strings.Contains(err.Error(), "server edgetest: audit: logFile: ") {
		t.Errorf("reload: %v", err)
	}
	c := caller{Client: e.NewClient()}
	if r := c.call(t, "1", "{}"); r.Status != 200 {
		t.Errorf("status %d", r.Status)
	}
}

// A request id that is no id is not taken over.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	file, yaml := audited(t)
	e := edgetest.Start(t, edgetest.Manifest(back, yaml), edgetest.Settings(func(s *serve.Settings) { s.MaxHeader = 8 << 10 }))
	c := caller{Client: e.NewClient()}
	given := []string{"a-b_c.1", strings.Repeat("a", 128), strings.Repeat("a", 129), `a"b`, "a b", "ä", ""}
	for _, id := range given {
		text, head := c.message("1", "ping", "")
		c.Post(text, append(head, "X-Request-Id", id)...)
	}
	e.Stop()
	made := map[string]bool{}
	for i, r := range records(t, file) {
		id := r.Source.Extra["request_id"]
		if i < 2 && id != given[i] || i >= 2 && (!regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) || made[id]) {
			t.Errorf("%q became %q", given[i], id)
		}
		made[id] = true
	}
	if len(made) != len(given) {
		t.Errorf("%d ids", len(made))
	}
}

// The record of a list that many answers share says how large it is, and what
// is in it.
func TestAuditOfAList(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
	offers(a, "echo")
	offers(b, "echo")
	file, yaml := audited(t)
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"a": a, "b": b}, bestEffort+"\n"+strings.Replace(yaml, "enabled: true", "enabled: true, maxDataSize: 100000, eventTypes: [mcp_tools_list]", 1)))
	f := &front{Edge: e, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Modern, "")
	listed(t, c)
	size := len(c.request(t, "7", "tools/list", "").Body)
	e.Stop()
	all := records(t, file)
	last := all[len(all)-1]
	if got := last.extra("response_size_bytes"); got != fmt.Sprint(size) {
		t.Errorf("%s bytes of %d", got, size)
	}
	if text := string(last.Data["response"]); !strings.Contains(text, "a_echo") || !strings.Contains(text, "b_echo") {
		t.Error(text)
	}
}

// What the edge tells a client nothing of stands in the process log, under the
// id of the request, whether anybody keeps records or not.
func TestRequestIDOfErrors(t *testing.T) {
	t.Parallel()
	f := filtered(t, edgetest.Modern, filters.Entry{Place: filters.Guest, Filter: func(edge.Handler) edge.Handler {
		return edge.HandlerFunc(func(_ context.Context, x *edge.Exchange) (*edge.Response, error) {
			if strings.Contains(string(x.Request.Raw), "panic") {
				panic("a fault")
			}
			return nil, errors.New("a fault")
		})
	}})
	c := f.callerOf(t, edgetest.Modern, "")
	for i, arguments := range []string{`{"x":"panic"}`, `{"x":"error"}`} {
		text, head := c.message("1", "tools/call", edgetest.CallParams("echo", arguments))
		fails(t, c.Post(text, append(head, "X-Request-Id", fmt.Sprintf("id-%d", i))...), 500, -32603, "1")
		fails(t, c.Post(text, head...), 500, -32603, "1")
	}
	f.Stop()
	log := f.Log()
	for _, want := range []string{`msg="panic in an exchange" panic="a fault" request=id-0`, `msg="internal error" server=edgetest method=tools/call request=id-1 error="a fault"`} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in\n%s", want, log)
		}
	}
	if n := len(regexp.MustCompile(`request=[0-9a-f]{32} `).FindAllString(log, -1)); n != 2 {
		t.Errorf("%d ids were made", n)
	}
}

// An edge whose collectors and logs take nothing ends all the same, and not
// later for having many servers.
func TestEndWithDeadCollectors(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // which takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	back := edgetest.NewServer(t, edgetest.Modern)
	yaml := ""
	for i := range 6 {
		yaml += strings.Replace(edgetest.Object(fmt.Sprintf("s%d", i), back), "  config:\n", fmt.Sprintf(
			"  config:\n    telemetry: {endpoint: \"http://%s\", insecure: true, tracingEnabled: true, metricsEnabled: true, samplingRate: \"1\"}\n", ln.Addr()), 1)
	}
	e := edgetest.Start(t, yaml)
	c := e.NewClient()
	for i := range 6 {
		text, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
		if r := c.Do("POST", fmt.Sprintf("/servers/s%d/mcp", i), text, head...); r.Status != 200 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
	}
	began := time.Now()
	e.Stop()
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("the end took %s", took)
	}
	if !strings.Contains(e.Log(), "telemetry: not all was sent") {
		t.Error("nothing is said of what is lost")
	}
}
