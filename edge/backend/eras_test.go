package backend_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
)

// opened is a backend at a URL.
func opened(t *testing.T, url string) *backend.Backend {
	t.Helper()
	b, err := backend.Open(backend.Config{
		Name: "b", URL: url, Private: true, Silence: 10 * time.Second, Cap: time.Minute, MaxMessage: 1 << 20,
		Info: []byte(`{"name":"weir","version":"1"}`), Agent: "weir", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// Whatever a legacy server, or what stands before it, answers to server/discover,
// it is introduced as one, with one question of each kind; and a modern server
// that knows neither server/discover nor initialize is taken for one only by what
// no bridge makes of a legacy server's answers.
func TestZ10AnswersToDiscover(t *testing.T) {
	t.Parallel()
	fault := func(id string, code int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0",%s"error":{"code":%d,"message":"Method not found"}}`, id, code)
	}
	bodies := map[string]string{
		"nothing": "", "text": "Not Found\n", "page": "<!DOCTYPE html><html><body>Cannot POST /mcp</body></html>", "JSON": `{"error":"not found"}`,
		"broken": `{"jsonrpc":"2.0","id":1,"err`, "batch": "[" + fault(`"id":1,`, -32601) + "]", "no message": "null",
	}
	for _, code := range []int{0, -32000, -32001, -32600, -32601, -32602, -32603, -32700, 404} {
		bodies[fmt.Sprint(code)] = fault(`"id":1,`, code)
		bodies[fmt.Sprint(code, " id null")] = fault(`"id":null,`, code)
		bodies[fmt.Sprint(code, " no id")] = fault("", code)
		bodies[fmt.Sprint(code, " id as text")] = fault(`"id":"1",`, code)
	}
	legacy, modern := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
	var answer atomic.Value
	type reply struct {
		status     int
		kind, body string
	}
	answered := func(c *edgetest.Call) {
		r := answer.Load().(reply)
		c.Text(r.status, r.kind, r.body)
	}
	legacy.Always("server/discover", answered)
	modern.Always("server/discover", answered)
	for _, status := range []int{200, 202, 204, 400, 404, 405, 406, 409, 410, 415, 422} {
		for name, body := range bodies {
			if status == 204 && body != "" {
				continue
			}
			for _, kind := range []string{"application/json", "Application/JSON; charset=utf-8", "text/plain", ""} {
				answer.Store(reply{status, kind, body})
				what := fmt.Sprintf("HTTP %d, %q, %s", status, kind, name)
				legacy.Forget()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				b := opened(t, legacy.URL)
				in, err := b.Introduced(ctx, nil)
				if err != nil || in.Era != mcp.Legacy || in.SSE {
					t.Errorf("%s: a legacy server is taken for %+v, %v", what, in, err)
				}
				if d, i := legacy.Count("server/discover"), legacy.Count("initialize"); d != 1 || i != 1 {
					t.Errorf("%s: a legacy server was asked %d times for server/discover and %d times for initialize", what, d, i)
				}
				b.Close()
				if kind != "application/json" {
					cancel()
					continue
				}
				b = opened(t, modern.URL)
				in, err = b.Introduced(ctx, nil)
				isModern := err == nil && in.Era == mcp.Modern
				if want := status == 404 && strings.HasPrefix(name, "-32601"); isModern != want {
					t.Errorf("%s: a modern server is taken for %+v, %v", what, in, err)
				}
				b.Close()
				cancel()
			}
		}
	}
}

// A server that refuses what it does not know and cannot say why initialize
// fails now is not taken for a modern one, nor for any: it is asked again.
func TestZ10InitializeFailsForNow(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]edgetest.Script{
		"HTTP 500":            func(c *edgetest.Call) { c.Text(500, "text/plain", "no") },
		"HTTP 503":            func(c *edgetest.Call) { c.Error(503, -32000, "later") },
		"HTTP 429":            func(c *edgetest.Call) { c.Text(429, "", "") },
		"HTTP 401":            func(c *edgetest.Call) { c.Text(401, "", "") },
		"HTTP 403":            func(c *edgetest.Call) { c.Text(403, "", "") },
		"an internal error":   func(c *edgetest.Call) { c.Error(200, -32603, "MCP server process failed") },
		"the connection ends": (*edgetest.Call).Abort,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Legacy)
			back.Always("server/discover", func(c *edgetest.Call) { c.Error(404, -32601, "Method not found") })
			back.Always("initialize", script)
			b := opened(t, back.URL)
			var e *edge.Error
			if in, err := b.Introduced(t.Context(), nil); !errors.As(err, &e) {
				t.Errorf("%+v, %v", in, err)
			}
			back.Always("initialize", nil)
			if in, err := b.Introduced(t.Context(), nil); err != nil || in.Era != mcp.Legacy || in.Version != "2025-11-25" {
				t.Errorf("%+v, %v", in, err)
			}
		})
	}
}

// A server that never answers what it does not know is introduced by initialize.
func TestZ10DiscoverWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	back.Always("server/discover", func(c *edgetest.Call) { c.Wait(release) })
	began := time.Now()
	in, err := opened(t, back.URL).Introduced(t.Context(), nil)
	if err != nil || in.Era != mcp.Legacy {
		t.Errorf("%+v, %v", in, err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("after %s", took)
	}
}

// What stands behind a URL may become another server: the next look finds out,
// and calls go on.
func TestZ10BridgeBeforeAnotherServer(t *testing.T) {
	t.Parallel()
	const (
		missing = iota // neither server/discover nor initialize
		old            // a legacy server behind a bridge
		modern
	)
	for _, way := range [][]int32{{missing, old}, {missing, modern, old, modern}, {old, modern, old}, {modern, missing, old}} {
		t.Run(fmt.Sprint(way), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Modern)
			var now atomic.Int32
			now.Store(way[0])
			result := func(c *edgetest.Call, of string) {
				c.Result(`{"resultType":"complete","content":[{"type":"text","text":"` + of + `"}]}`)
			}
			back.Always("*", func(c *edgetest.Call) {
				is, inModern := now.Load(), c.Request.Header.Get("Mcp-Method") != ""
				switch {
				case c.Kind == http.MethodGet || c.Kind == http.MethodDelete:
					c.Text(405, "", "")
				case c.Message.ID == nil:
					c.Accept()
				case c.Kind == "server/discover" && is == modern:
					c.Result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
				case c.Kind == "server/discover", c.Kind == "initialize" && is != old:
					c.Error(404, -32601, "Method not found")
				case c.Kind == "initialize":
					c.Result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
				case c.Kind == "ping" && is != old:
					c.Error(404, -32601, "Method not found")
				case c.Kind == "ping":
					c.Result(`{}`)
				case is != old && !inModern:
					c.Error(400, -32020, "Mcp-Method is missing")
				default: // a bridge passes on calls of either era
					result(c, fmt.Sprint(is))
				}
			})
			e := edgetest.Start(t, edgetest.ManifestFor(back.URL, compile.StreamableHTTP, "operational: {failureHandling: {healthCheckInterval: 1s}}"))
			c := e.NewClient()
			for i, is := range way {
				now.Store(is)
				want := map[int32]string{missing: "modern", old: "legacy", modern: "modern"}[is]
				edgetest.Until(t, fmt.Sprintf("step %d: a backend that is %s", i, want), func() bool { return backendStatus(t, c).Era == want })
				if m := c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error != nil || !strings.Contains(string(m.Result), fmt.Sprintf(`"text":"%d"`, is)) {
					t.Errorf("step %d: %+v", i, m)
				}
			}
		})
	}
}
