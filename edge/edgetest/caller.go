package edgetest

import (
	"encoding/json"
	"strings"
	"testing"
)

// Caller is a client of either era.
type Caller struct {
	*Client
	Session *Session // nil for a modern client
	declare []string // _meta that says what a modern client can be asked; none for nothing
}

// As is the client as one of an era, in a session where the era has them. can is
// JSON text of its capabilities; "" for none.
func (c *Client) As(era Era, can string) Caller {
	c.t.Helper()
	one := Caller{Client: c}
	if era == Legacy {
		one.Session = c.Initialize(can)
	} else if can != "" {
		one.declare = []string{Capabilities(can)}
	}
	return one
}

// Message is the body and the header lines of a request. id is JSON text, and so
// is params, without _meta; "" for none. meta are members of _meta.
func (c Caller) Message(id, method, params string, meta ...string) (body string, header []string) {
	if c.Session == nil {
		return ModernRequest(id, method, params, Meta(append(meta, c.declare...)...))
	}
	if len(meta) > 0 {
		params = withMeta(params, "{"+strings.Join(meta, ",")+"}")
	}
	return request(id, method, params), c.Session.head()
}

// TryAsk sends a request. It may be called from any goroutine.
func (c Caller) TryAsk(id, method, params string, meta ...string) (*Response, error) {
	body, head := c.Message(id, method, params, meta...)
	return c.Try("POST", "/mcp", body, head...)
}

// Ask is TryAsk that fails the test.
func (c Caller) Ask(id, method, params string, meta ...string) *Response {
	c.t.Helper()
	body, head := c.Message(id, method, params, meta...)
	return c.Post(body, head...)
}

// CallTool calls a tool. arguments is JSON text.
func (c Caller) CallTool(id, tool, arguments string, meta ...string) *Response {
	c.t.Helper()
	return c.Ask(id, "tools/call", CallParams(tool, arguments), meta...)
}

// Listed is what the client sees of a kind, "tools" or another: JSON texts by
// name.
func (c Caller) Listed(kind string) map[string]string {
	c.t.Helper()
	var list []json.RawMessage
	text := c.Ask("1", kind+"/list", "").Result()
	if err := json.Unmarshal([]byte(Member(text, kind)), &list); err != nil {
		c.t.Fatalf("%v: %s", err, text)
	}
	all := map[string]string{}
	for _, one := range list {
		var name string
		if err := json.Unmarshal([]byte(Member(string(one), "name")), &name); err != nil {
			c.t.Fatal(err)
		}
		all[name] = string(one)
	}
	return all
}

// Eras runs a test for clients of both eras, before a backend of the other and
// of the same.
func Eras(t *testing.T, test func(t *testing.T, client, back Era)) {
	for _, c := range []Era{Legacy, Modern} {
		for _, b := range []Era{Legacy, Modern} {
			t.Run(c.String()+" client, "+b.String()+" backend", func(t *testing.T) {
				t.Parallel()
				test(t, c, b)
			})
		}
	}
}
