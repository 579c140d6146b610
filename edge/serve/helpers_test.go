package serve_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// front is an edge before one fake server, with clients of both eras.
type front struct {
	*edgetest.Edge
	back   *edgetest.Server
	client *edgetest.Client
}

func newFront(t *testing.T, era edgetest.Era, options ...edgetest.Option) *front {
	t.Helper()
	back := edgetest.NewServer(t, era)
	e := edgetest.Start(t, edgetest.Manifest(back), options...)
	return &front{Edge: e, back: back, client: e.NewClient()}
}

// introduced waits until the edge knows what its backend speaks, so that a
// test may count requests from here on.
func (f *front) introduced(t *testing.T) {
	t.Helper()
	edgetest.Until(t, "the backend's introduction", func() bool {
		return strings.Contains(string(f.client.Do("GET", "/status", "").Body), `"era"`)
	})
	if f.back.Era == edgetest.Legacy {
		f.back.Await("notifications/initialized", 1)
	}
	f.back.Forget()
}

// caller is a client of one era.
type caller struct {
	*edgetest.Client
	session *edgetest.Session // nil for a modern client
}

func (c caller) era() edgetest.Era {
	if c.session == nil {
		return edgetest.Modern
	}
	return edgetest.Legacy
}

// message is the text of a request of the client's era and its header. params
// is JSON text without _meta; meta are members of _meta.
func (c caller) message(id, method, params string, meta ...string) (string, []string) {
	if c.session == nil {
		return edgetest.ModernRequest(id, method, params, edgetest.Meta(meta...))
	}
	head := []string{"Mcp-Session-Id", c.session.ID, "MCP-Protocol-Version", c.session.Version}
	if len(meta) > 0 {
		m := `"_meta":{` + strings.Join(meta, ",") + `}`
		if params == "" || params == "{}" {
			params = "{" + m + "}"
		} else {
			params = params[:len(params)-1] + "," + m + "}"
		}
	}
	text := `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"`
	if params != "" {
		text += `,"params":` + params
	}
	return text + "}", head
}

// request sends a request.
func (c caller) request(t *testing.T, id, method, params string, meta ...string) *edgetest.Response {
	t.Helper()
	body, head := c.message(id, method, params, meta...)
	return c.Post(body, head...)
}

// try is request for any goroutine.
func (c caller) try(id, method, params string, meta ...string) (*edgetest.Response, error) {
	body, head := c.message(id, method, params, meta...)
	return c.Try("POST", "/mcp", body, head...)
}

// call calls the tool echo.
func (c caller) call(t *testing.T, id, arguments string, meta ...string) *edgetest.Response {
	t.Helper()
	return c.request(t, id, "tools/call", edgetest.CallParams("echo", arguments), meta...)
}

// callerOf returns a client of an era. capabilities are declared by either.
func (f *front) callerOf(t *testing.T, era edgetest.Era, capabilities string) caller {
	t.Helper()
	c := caller{Client: f.NewClient()}
	if era != edgetest.Modern {
		c.session = c.Initialize(capabilities)
	}
	return c
}

// cells runs a test for every era of client and backend.
func cells(t *testing.T, test func(t *testing.T, f *front, c caller), options ...edgetest.Option) {
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, back := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
			t.Run(client.String()+" client, "+back.String()+" backend", func(t *testing.T) {
				t.Parallel()
				f := newFront(t, back, options...)
				test(t, f, f.callerOf(t, client, ""))
			})
		}
	}
}

// member is a member of an object with the bytes of its value.
type member struct{ name, value string }

// members returns the members of a JSON object in their order.
func members(t *testing.T, object string) []member {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(object))
	if _, err := d.Token(); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	var out []member
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, object)
		}
		out = append(out, member{name.(string), string(value)})
	}
	return out
}

// without returns the members but those named.
func without(all []member, names ...string) []member {
	var out []member
next:
	for _, m := range all {
		for _, n := range names {
			if m.name == n {
				continue next
			}
		}
		out = append(out, m)
	}
	return out
}

// same checks that two lists of members are equal to the byte.
func same(t *testing.T, what string, got, want []member) {
	t.Helper()
	var g, w bytes.Buffer
	for _, m := range got {
		g.WriteString(m.name + ": " + m.value + "\n")
	}
	for _, m := range want {
		w.WriteString(m.name + ": " + m.value + "\n")
	}
	if g.String() != w.String() {
		t.Errorf("%s:\n%s\nwant\n%s", what, clip(g.String()), clip(w.String()))
	}
}

func clip(s string) string {
	if len(s) > 2000 {
		return s[:2000] + "…"
	}
	return s
}

// bucket is YAML of a bucket that refills in a day: no test sees it.
func bucket(tokens int) string { return fmt.Sprintf("{maxTokens: %d, refillPeriod: 24h}", tokens) }

// local has an edge count rate limits for itself.
var local = edgetest.Settings(func(s *serve.Settings) { s.LocalRateLimits = true })

// limited wants the answer to a call that finds no token.
func limited(t *testing.T, r *edgetest.Response, id string) {
	t.Helper()
	fails(t, r, 429, 429, id)
	m := r.Message()
	after, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || after < 1 || m.Error.Message != "Rate limit exceeded" || string(m.Error.Data) != fmt.Sprintf(`{"retryAfterSeconds":%d}`, after) {
		t.Errorf("Retry-After %q, %q, %s", r.Header.Get("Retry-After"), m.Error.Message, m.Error.Data)
	}
}
