package guest_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/sdk/abi"
)

// everyHook is a script that has something to say at each hook.
const everyHook = `
subscribe("on_http_request", headers = ["x-a"])
subscribe("authenticate", headers = ["x-key"])
subscribe("on_session_start", headers = ["x-a"])
subscribe("on_call_request", headers = ["x-in"], pointers = ["/text", "/missing"])

def on_http_request(c):
    return [set_header("x-in", "%s %s of %s" % (c.method, c.path, c.headers.get("x-a", "nobody"))), set_attr("via", c.path)]

def authenticate(c):
    if c.headers.get("x-key") == "key-of-robot":
        return set_principal(subject = "robot", tenant = "acme", groups = ["staff"])
    return challenge('Key realm="weir"')

def map_identity(c):
    if c.claims["sub"] == "mallory":
        return deny(403, "not you")
    org = c.claims.get("org", "none")
    return [
        set_principal(subject = c.claims["sub"] + "@" + org, tenant = "acme", issuer = c.issuer, groups = ["staff"], roles = list(c.principal.roles)),
        set_attr("org", {"name": org}),
    ]

def override_tools(c):
    out = []
    for item in c.items:
        if item.name == "secret":
            out.append(hide(item))
        elif item.name == "echo":
            out += [rename(item, "say"), describe(item, "says what %s of %s did" % (item.name, c.backend)), pin_arg(item, "/a", "pinned"), annotate(item, "destructiveHint", True)]
    return out

def override_prompts(c):
    return [describe(item, item.json["name"].upper()) for item in c.items]

def override_resources(c):
    return [rename(item, "the " + item.json["name"]) for item in c.items]

def on_call_request(c):
    return [
        set_arg("/who", "%s of %s in %s" % (c.principal.subject, c.principal.tenant, ",".join(c.principal.groups))),
        set_arg("/saw", {"in": c.headers["x-in"], "attrs": c.attrs, "selected": list(c.selected), "tool": c.tool}),
        log_field("tool", c.tool),
    ]

def outgoing_auth(c):
    return set_header("authorization", "Bearer for-" + c.backend)

def on_upstream_request(c):
    return set_header("x-tool", c.tool)

def on_call_response(c):
    return patch_result("/content/0/text", "%s answered" % c.tool)

def on_message(c):
    if c.method == "prompts/get" and not c.result:
        return deny(404, "no prompt " + c.args["name"])
    if c.method == "resources/read" and c.result:
        return redact("/contents/0/text", "[hidden]")

def on_http_response(c):
    return set_header("x-out", str(c.status))

def on_session_start(c):
    return deny(429, "not now") if c.headers.get("x-a") == "no" else set_attr("begun", True)

def on_session_end(c):
    return set_attr("ended", c.session)

def on_event(c):
    count("events")
    count(c.event["type"])

def on_notification(c):
    if c.method == "notifications/progress":
        return [set_arg("/message", "from the " + c.sender), log_field("told", c.method)]

def on_question(c):
    if c.sender == "server":
        return set_arg("/message", "asked of " + c.principal.subject)
    return redact("/content/said", "[hidden]") if c.result else None
`

// TestScriptAtEveryHook asks one script at all hooks of an edge, before a legacy client that
// brings a token, and sees what it says carried out.
func TestScriptAtEveryHook(t *testing.T) {
	t.Parallel()
	m := edgetest.NewMint(t, "weir")
	back := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) {
		s.Capabilities = `{"tools":{},"prompts":{},"resources":{},"logging":{}}`
		offers(s, "echo", "secret", "plain")
	})
	back.Always("prompts/list", func(c *edgetest.Call) { c.Result(`{"prompts":[{"name":"one"}]}`) })
	back.Always("resources/list", func(c *edgetest.Call) { c.Result(`{"resources":[{"uri":"file:///a","name":"a"}]}`) })
	back.Always("resources/read", func(c *edgetest.Call) { c.Result(`{"contents":[{"uri":"file:///a","text":"` + leak + `"}]}`) })
	back.Always("tools/call", leaks(edgetest.Legacy, tells))
	log := filepath.Join(t.TempDir(), "audit.log")
	f := script{name: "f", text: everyHook, more: "grants: {identity: true, metrics: true}"}
	yaml := scripted(t, backs{"back": back}, []script{f})
	yaml = strings.Replace(yaml, "  config:\n", fmt.Sprintf("  config:\n    audit: {enabled: true, logFile: %q}\n", log), 1)
	e := guarded(t, m, yaml)
	alice := m.BearerOf("alice", map[string]any{"org": "weir"})
	c := e.NewClient()
	c.Header.Set("Authorization", alice[1])
	c.Header.Set("X-A", "alice")
	in := client{c.As(edgetest.Legacy, capable)}

	// Who may come in.
	hello := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	other := e.NewClient()
	if r := other.Post(hello); r.Status != 401 || r.Header.Get("WWW-Authenticate") != `Key realm="weir"` {
		t.Errorf("without a credential: %d %v", r.Status, r.Header)
	}
	if r := other.Post(hello, "X-Key", "key-of-robot"); r.Status != 200 {
		t.Errorf("with a key: %d %s", r.Status, r.Body)
	}
	fails(t, other.Post(hello, m.BearerOf("mallory", map[string]any{"org": "weir"})...), 403, 403, "not you")
	if r := other.Post(hello, append(alice, "X-A", "no")...); r.Status != 429 || !strings.Contains(string(r.Body), "not now") {
		t.Errorf("a session that it refuses: %d %s", r.Status, r.Body)
	}

	// What is offered.
	seen := tools(t, in)
	if say := seen["say"]; len(seen) != 2 || say.Description != "says what echo of back did" || !say.Annotations.DestructiveHint || say.InputSchema.Properties["a"] != nil {
		t.Errorf("the tools are %+v", seen)
	}
	if r := in.request(t, "prompts/list", ""); !strings.Contains(r.Result(), `"description":"ONE"`) {
		t.Errorf("the prompts are %s", r.Body)
	}
	if r := in.request(t, "resources/list", ""); !strings.Contains(r.Result(), `"name":"the a"`) || r.Header.Get("X-Out") != "200" {
		t.Errorf("the resources are %s, with %v", r.Body, r.Header)
	}

	// Messages, and a call with all that passes beside it.
	if r := in.request(t, "resources/read", `{"uri":"file:///a"}`); !strings.Contains(r.Result(), "[hidden]") {
		t.Errorf("a resource: %s", r.Body)
	}
	if r := in.request(t, "prompts/get", `{"name":"one"}`); !strings.Contains(string(r.Body), "no prompt one") {
		t.Errorf("a prompt: %s", r.Body)
	}
	h, err := in.play(1, "say", `{"text":"hi","a":"mine"}`)
	all := strings.Join(h.text, "\n")
	if err != nil || !strings.Contains(string(h.end.Result), "say answered") {
		t.Fatalf("the call: %v: %s", err, all)
	}
	for _, want := range []string{"from the server", "asked of alice@weir"} {
		if !strings.Contains(all, want) {
			t.Errorf("the client was not told %q: %s", want, all)
		}
	}
	asked := back.Requests("tools/call")[0]
	var got struct {
		Params struct {
			Arguments struct {
				A, Who string
				Saw    json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(asked.Body, &got); err != nil {
		t.Fatal(err)
	}
	const saw = `{"in":"POST /mcp of alice","attrs":{"via":"/mcp","begun":true,"org":{"name":"weir"}},"selected":["hi",null],"tool":"say"}`
	a := got.Params.Arguments
	if a.A != "pinned" || a.Who != "alice@weir of acme in staff" || !sameJSON(string(a.Saw), saw) {
		t.Errorf("the backend got %s", asked.Body)
	}
	if asked.Header.Get("Authorization") != "Bearer for-back" || asked.Header.Get("X-Tool") != "say" {
		t.Errorf("the backend got %v", asked.Header)
	}
	for _, r := range back.Requests("response") {
		if strings.Contains(string(r.Body), `"said":"`+private) {
			t.Errorf("the backend was told %s", r.Body)
		}
	}
	if r := c.Do("DELETE", "/mcp", "", "Mcp-Session-Id", in.Session.ID, "MCP-Protocol-Version", in.Session.Version); r.Status != 200 {
		t.Errorf("the end of the session: %d", r.Status)
	}

	// Nothing failed, and no hook was left out.
	var s struct{ Filters []filterStatus }
	edgetest.Until(t, "every hook", func() bool {
		s.Filters = nil
		if err := json.Unmarshal(e.NewClient().Do("GET", "/status", "", alice...).Body, &s); err != nil || len(s.Filters) != 1 {
			t.Fatalf("no status: %v", err)
		}
		called := 0
		for _, h := range s.Filters[0].Hooks {
			if h.Calls > 0 {
				called++
			}
		}
		return called == int(abi.Hooks)
	})
	for _, h := range s.Filters[0].Hooks {
		if h.Failures > 0 {
			t.Errorf("%s failed %d times: %s", h.Hook, h.Failures, e.Log())
		}
	}
}

// sameJSON compares values.
func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	one, _ := json.Marshal(x)
	other, _ := json.Marshal(y)
	return string(one) == string(other)
}
