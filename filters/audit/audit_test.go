package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

func TestParse(t *testing.T) {
	path := field.NewPath("spec", "config", "audit")
	p, errs := Parse(Spec{Path: path})
	if p != nil || len(errs) > 0 {
		t.Error("a log that is not enabled:", p, errs)
	}
	size := -1
	_, errs = Parse(Spec{Path: path, Config: v1beta1.Audit{Enabled: true, MaxDataSize: &size, EventTypes: []string{"mcp_ping", "mcp_tool_cal"}, ExcludeEventTypes: []string{"x"}}})
	var got []string
	for _, e := range errs {
		got = append(got, e.Field)
	}
	want := []string{"spec.config.audit.maxDataSize", "spec.config.audit.eventTypes[1]", "spec.config.audit.excludeEventTypes[0]"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", errs)
	}
}

func TestOpenFails(t *testing.T) {
	p := parse(t, config(t.TempDir()+"/none/audit.log"))
	if _, err := p.Open(edge.Env{Defer: t.Cleanup}); err == nil || !strings.Contains(err.Error(), "logFile") || !strings.HasSuffix(err.Error(), ": make its directory, in which the edge can write, or name another file") {
		t.Error(err)
	}
}

// One record has the keys of the reference, and no other at the top.
func TestRecord(t *testing.T) {
	file := logFileName(t)
	p := parse(t, config(file, func(c *v1beta1.Audit) { c.IncludeRequestData, c.IncludeResponseData = true, true }))
	p.Decision = func(*edge.Exchange) (Decision, bool) {
		return Decision{Allowed: true, Reason: "permitted", Policies: []string{"p1"}, Version: "v"}, true
	}
	at := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	now := func() time.Time { at = at.Add(1500 * time.Microsecond); return at }
	x := call(t, "echo", `{"text":"hi","password":"hunter2"}`)
	x.Session = &edge.Session{Info: []byte(`{"name":"inspector","version":"2.1"}`)}
	oneAt(t, p, now, x, answers(t, 200, good))

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line := string(text)
	id := line[strings.Index(line, `audit_id":"`)+11:][:36]
	want := `{"time":"2026-08-01T12:00:00.003Z","level":"AUDIT","msg":"audit_event","audit_id":"` + id + `","type":"mcp_tool_call",` +
		`"logged_at":"2026-08-01T12:00:00.003Z","outcome":"success","component":"vmcp-server",` +
		`"source":{"type":"network","value":"192.0.2.1","extra":{"user_agent":"test/1","request_id":"r-1"}},` +
		`"subjects":{"user":"Ada","user_id":"u1","issuer":"https://idp","client_name":"inspector","client_version":"2.1"},` +
		`"target":{"endpoint":"/mcp","method":"tools/call","name":"echo","type":"tool"},` +
		`"metadata":{"extra":{"duration_ms":1.5,"transport":"streamable-http","response_size_bytes":75,"server":"s","backend_name":"b","status":200,` +
		`"decision":{"allowed":true,"reason":"permitted","policies":["p1"],"version":"v"}}},` +
		`"data":{"request":{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi","password":"[REDACTED]"}}},` +
		`"response":{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"ok"}]}}}}` + "\n"
	if line != want {
		t.Errorf("\n got %s\nwant %s", line, want)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestTypes(t *testing.T) {
	for method, want := range map[string]string{
		"initialize": "mcp_initialize", "tools/call": "mcp_tool_call", "tools/list": "mcp_tools_list", "resources/read": "mcp_resource_read",
		"resources/list": "mcp_resources_list", "prompts/get": "mcp_prompt_get", "prompts/list": "mcp_prompts_list", "ping": "mcp_ping",
		"logging/setLevel": "mcp_logging", "completion/complete": "mcp_completion", "notifications/roots/list_changed": "mcp_roots_list_changed",
		"notifications/initialized": "mcp_notification", "resources/templates/list": "mcp_request", "x/y": "mcp_request", "server/discover": "mcp_request",
	} {
		if got := typeOf(&mcp.Message{Method: method}).String(); got != want {
			t.Errorf("%s is %s, want %s", method, got, want)
		}
	}
	seen := map[string]bool{}
	for _, name := range Types() {
		if name == "" || seen[name] {
			t.Errorf("the name %q", name)
		}
		seen[name] = true
	}
}

// table is how errors look on the wire, for tests.
func table(k edge.Kind, era mcp.Era) (int, int) {
	switch k {
	case edge.Unauthenticated:
		return 401, 401
	case edge.Denied:
		return 403, 403
	case edge.Limited:
		return 429, 429
	case edge.Unavailable:
		if era == mcp.Legacy {
			return 200, 502
		}
		return 502, 502
	}
	return 500, -32603
}

func TestOutcomes(t *testing.T) {
	failed := `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no\nsuch"}}`
	cases := []struct {
		name    string
		h       edge.Handler
		detect  bool
		outcome string
		extra   map[string]any
	}{
		{"an answer", answers(t, 200, good), true, "success", map[string]any{"status": 200.}},
		{"no answer needed", fails(nil), true, "success", nil},
		{"a tool that fails", answers(t, 200, `{"jsonrpc":"2.0","id":7,"result":{"content":[],"isError":true}}`), true, "application_error", nil},
		{"a tool that fails, unseen", answers(t, 200, `{"jsonrpc":"2.0","id":7,"result":{"content":[],"isError":true}}`), false, "success", nil},
		{"an error of the backend", answers(t, 200, failed), true, "application_error", map[string]any{"jsonrpc_error_code": -32602., "jsonrpc_error_message": "no\nsuch"}},
		{"an error of the backend, unseen", answers(t, 200, failed), false, "success", nil},
		{"an error of the backend with a status", answers(t, 400, failed), true, "failure", map[string]any{"status": 400.}},
		{"a 502", answers(t, 502, failed), false, "error", nil},
		{"a 403", answers(t, 403, failed), false, "denied", nil},
		{"no token", fails(edge.Errorf(edge.Unauthenticated, "incoming", "a token is needed")), true, "denied", map[string]any{"status": 401., "error": "unauthenticated", "jsonrpc_error_code": 401.}},
		{"a policy", fails(edge.Errorf(edge.Denied, "authz", "denied by authorization policy")), true, "denied", map[string]any{"error": "denied", "jsonrpc_error_message": "denied by authorization policy"}},
		{"a limit", fails(edge.Errorf(edge.Limited, "ratelimit", "Rate limit exceeded")), true, "failure", map[string]any{"status": 429., "error": "limited"}},
		{"a backend that is down", fails(edge.Errorf(edge.Unavailable, "backend", "backend \"b\" unavailable")), true, "error", map[string]any{"status": 200., "error": "unavailable", "jsonrpc_error_code": 502.}},
		{"an overload", fails(edge.Errorf(edge.Overload, "", "busy")), true, "error", map[string]any{"error": "overload"}},
		{"a client that left", fails(edge.Errorf(edge.Gone, "", "gone")), true, "failure", map[string]any{"error": "gone"}},
		{"a context that ended", fails(fmt.Errorf("read: %w", context.Canceled)), true, "failure", map[string]any{"error": "gone"}},
		{"a fault", fails(errors.New("a secret of the inside")), true, "error", map[string]any{"error": "internal", "jsonrpc_error_code": -32603., "jsonrpc_error_message": nil}},
	}
	for _, c := range cases {
		p := parse(t, config(logFileName(t), func(a *v1beta1.Audit) { a.DetectApplicationErrors = &c.detect }))
		p.Answer = table
		r := one(t, p, call(t, "echo", `{}`), c.h)
		if r.Outcome != c.outcome {
			t.Errorf("%s: %s, want %s", c.name, r.Outcome, c.outcome)
		}
		for k, v := range c.extra {
			if r.Metadata.Extra[k] != v {
				t.Errorf("%s: %s is %v, want %v", c.name, k, r.Metadata.Extra[k], v)
			}
		}
	}
}

// Whoever is turned away before anybody knows who it is stands in the log as
// well, and a panic is recorded and goes on.
func TestPanic(t *testing.T) {
	file := logFileName(t)
	l, _ := start(t, parse(t, config(file)))
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v", r)
			}
		}()
		_, _ = l.Filter(edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) { panic("boom") })).Handle(t.Context(), call(t, "echo", "{}"))
	}()
	shut(t, l)
	all := read(t, file)
	if len(all) != 1 || all[0].Outcome != "error" || all[0].Metadata.Extra["error"] != "panic" {
		t.Errorf("%+v", all)
	}
}

func TestChoiceOfTypes(t *testing.T) {
	cases := []struct {
		only, not []string
		want      string
	}{
		{nil, nil, "mcp_tool_call mcp_ping sse_connection"},
		{[]string{"mcp_ping", "sse_connection"}, nil, "mcp_ping sse_connection"},
		{nil, []string{"mcp_ping"}, "mcp_tool_call sse_connection"},
		{[]string{"mcp_ping", "mcp_tool_call"}, []string{"mcp_ping"}, "mcp_tool_call"},
	}
	for _, c := range cases {
		file := logFileName(t)
		l, _ := start(t, parse(t, config(file, func(a *v1beta1.Audit) { a.EventTypes, a.ExcludeEventTypes = c.only, c.not })))
		h := l.Filter(answers(t, 200, good))
		for _, x := range []*edge.Exchange{call(t, "echo", `{}`), exchange(t, "ping", `{}`)} {
			if _, err := h.Handle(t.Context(), x); err != nil {
				t.Fatal(err)
			}
		}
		l.Write(Event{Type: SSEConnection, Exchange: &edge.Exchange{Head: edge.Head{Remote: "192.0.2.2"}}, Method: "GET", Status: 200})
		shut(t, l)
		var got []string
		for _, r := range read(t, file) {
			got = append(got, r.Type)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v without %v: %v", c.only, c.not, got)
		}
	}
}

// Steps of workflows are recorded under their own component and type.
func TestEvents(t *testing.T) {
	file := logFileName(t)
	l, _ := start(t, parse(t, config(file)))
	l.Write(Event{Type: StepFailed, Outcome: Error, Exchange: call(t, "deploy", `{}`), Component: Composer, Name: "build", Kind: "step", Reason: "timeout", Took: 3 * time.Second})
	l.Write(Event{Type: HTTPRequest, Outcome: Failure, Method: "POST", Status: 413, Reason: "too_large"})
	shut(t, l)
	all := read(t, file)
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	if r := all[0]; r.Type != "vmcp_workflow_step_failed" || r.Component != "vmcp-composer" || r.Target["name"] != "build" || r.Target["type"] != "step" ||
		r.Subjects["user_id"] != "u1" || r.Metadata.Extra["duration_ms"].(float64) < 3000 {
		t.Errorf("%+v", r)
	}
	if r := all[1]; r.Type != "http_request" || r.Target["method"] != "POST" || r.Metadata.Extra["status"] != 413. {
		t.Errorf("%+v", r)
	}
}

func TestSafeURI(t *testing.T) {
	for in, want := range map[string]string{
		"file:///a/b?c=d":                    "file:///a/b?c=d",
		"https://u:p@host/a":                 "https://[REDACTED]@host/a",
		"https://host/a?x=1&access_token=t&": "https://host/a?x=1&access_token=[REDACTED]&",
		"db://u:p@host":                      "db://[REDACTED]@host",
		"https://h/?to%6ben=t#f":             "https://h/?to%6ben=[REDACTED]#f",
		"urn:a@b":                            "urn:a@b",
		"":                                   "",
	} {
		if got := safeURI(in); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

// The name of the reference is the advertised one, and what the catalog does
// not know is what the client said.
func TestTarget(t *testing.T) {
	x := exchange(t, "resources/read", `{"uri":"https://u:p@h/x?key=1"}`)
	r := one(t, parse(t, config(logFileName(t))), x, fails(edge.Errorf(edge.NotFound, "", "none")))
	if r.Target["name"] != "https://[REDACTED]@h/x?key=[REDACTED]" || r.Target["type"] != "resource" || r.Outcome != "failure" {
		t.Errorf("%+v", r)
	}
	x = exchange(t, "initialize", `{"clientInfo":{"name":"c","version":"1"}}`)
	x.Parent = exchange(t, "initialize", `{"clientInfo":{"name":"c","version":"1"}}`)
	r = one(t, parse(t, config(logFileName(t))), x, answers(t, 200, good))
	if r.Subjects["client_name"] != "c" || r.Metadata.Extra["inner"] != true || r.Subjects["user"] != "anonymous" {
		t.Errorf("%+v", r)
	}
}

func TestJSONOfLongThings(t *testing.T) {
	x := call(t, "echo", `{}`)
	x.Head.Agent = strings.Repeat("é", 500)
	x.Identity.Subject = strings.Repeat("s", 5000)
	r := one(t, parse(t, config(logFileName(t))), x, answers(t, 200, good))
	if got := r.Source.Extra["user_agent"]; len(got) > maxWord+10 || !strings.HasPrefix(got, "éé") || !json.Valid([]byte(`"`+got+`"`)) {
		t.Errorf("%q", got)
	}
	if got := r.Subjects["user_id"]; len(got) > maxWord+10 {
		t.Errorf("%q", got)
	}
}

func TestMilliseconds(t *testing.T) {
	for _, us := range []int64{0, 1, 9, 10, 100, 120, 123, 999, 1000, 1001, 1010, 1100, 1500, 29_999, 30_000, 123_456_789} {
		want := strconv.FormatFloat(float64(us)/1000, 'f', -1, 64)
		if got := string(milliseconds(nil, us)); got != want {
			t.Errorf("%d µs: %s, want %s", us, got, want)
		}
	}
}

func TestTime(t *testing.T) {
	var v line
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Unix(0, 1), time.Unix(1, 0), time.Unix(1, 999_999_999), time.Unix(1, 120_000_000), time.Unix(1_795_291_410, 5_000),
		time.Unix(1_795_291_410, 6_000), time.Unix(-1, 7), time.Date(9999, 12, 31, 23, 59, 59, 10, time.UTC), time.Date(10_000, 1, 1, 0, 0, 0, 1, time.UTC),
		time.Date(2026, 11, 21, 12, 0, 0, 100, time.FixedZone("east", 3600)), time.Date(800, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		want := at.UTC().Format(time.RFC3339Nano)
		for range 2 {
			if got := string(v.time(nil, at)); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
}

// The client of a call in a call that was passed on is in the latter's own words.
func TestClientOfAPassedCall(t *testing.T) {
	said := func(name string) *edge.Exchange {
		return exchange(t, "tools/call", `{"name":"flow","_meta":{"`+mcp.MetaClientInfo+`":{"name":"`+name+`","version":"1"}}}`)
	}
	passed := said("mine")
	passed.Parent, passed.Passed = said("another"), true // whose memory is the next request's by now
	x := call(t, "echo", `{}`)
	x.Parent = passed
	if r := one(t, parse(t, config(logFileName(t))), x, answers(t, 200, good)); r.Subjects["client_name"] != "mine" {
		t.Errorf("%+v", r.Subjects)
	}
}

// The client of a call that may outlive the one it is made for is in what that kept of it.
func TestClientOfACallThatIsLeft(t *testing.T) {
	answered := exchange(t, "tools/call", `{"name":"flow","_meta":{"`+mcp.MetaClientInfo+`":{"name":"another","version":"1"}}}`) // whose memory is the next request's by now
	x := call(t, "echo", `{}`)
	x.Parent = answered
	for info, want := range map[string]string{`{"name":"mine","version":"1"}`: "mine", "": ""} {
		answered.Info = []byte(info)
		if r := one(t, parse(t, config(logFileName(t))), x, answers(t, 200, good)); r.Subjects["client_name"] != want {
			t.Errorf("%q: %+v", info, r.Subjects)
		}
	}
}
