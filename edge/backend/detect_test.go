package backend_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
)

// status is what the edge says of its one backend.
type status struct{ Status, Era, Revision, Message string }

func backendStatus(t *testing.T, c *edgetest.Client) status {
	t.Helper()
	var all struct{ DiscoveredBackends []status }
	if err := json.Unmarshal(c.Do("GET", "/status", "").Body, &all); err != nil || len(all.DiscoveredBackends) != 1 {
		t.Fatalf("status: %v, %+v", err, all)
	}
	return all.DiscoveredBackends[0]
}

// What servers answer to the first question of the edge, server/discover, and
// what they are then taken for: what the specification says and what was
// measured of servers that are in use.
func TestEraOfABackend(t *testing.T) {
	t.Parallel()
	fault := func(status int, id string, code int, more string) edgetest.Script {
		return func(c *edgetest.Call) {
			if id == "echo" {
				id = c.ID()
			}
			c.JSON(status, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"m"%s}}`, id, code, more))
		}
	}
	for _, c := range []struct {
		name   string
		era    edgetest.Era // what the server is
		script edgetest.Script
		want   string
	}{
		{"modern: discovered", edgetest.Modern, nil, "modern 2026-07-28"},
		{"modern: no such method, 404", edgetest.Modern, fault(404, "echo", -32601, ""), "modern 2026-07-28"},
		{"modern: no such method, 404, no id", edgetest.Modern, fault(404, "null", -32601, ""), "modern 2026-07-28"},
		{"modern: header mismatch", edgetest.Modern, fault(400, "echo", -32020, ""), "modern 2026-07-28"},
		{"modern: lacking capability", edgetest.Modern, fault(400, "echo", -32021, ""), "modern 2026-07-28"},
		{"modern: version, ours among the supported", edgetest.Modern, fault(400, "echo", -32022, `,"data":{"supported":["2027-01-01","2026-07-28"]}`), "modern 2026-07-28"},
		{"modern: as an event", edgetest.Modern, func(c *edgetest.Call) {
			c.Event(`{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}}`)
		}, "modern 2026-07-28"},
		{"both eras", edgetest.Modern, func(c *edgetest.Call) {
			c.Result(`{"resultType":"complete","supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{}}`)
		}, "modern 2026-07-28"},
		{"legacy: version, only older among the supported", edgetest.Legacy, fault(400, "echo", -32022, `,"data":{"supported":["2025-11-25"]}`), "legacy 2025-11-25"},
		{"legacy: TypeScript SDK, 400 not initialized", edgetest.Legacy, nil, "legacy 2025-11-25"},
		{"legacy: Go SDK, 200 without our version", edgetest.Legacy, func(c *edgetest.Call) {
			c.Result(`{"supportedVersions":["2025-11-25","2025-06-18"],"capabilities":{}}`)
		}, "legacy 2025-11-25"},
		{"legacy: 200 and no such method", edgetest.Legacy, fault(200, "echo", -32601, ""), "legacy 2025-11-25"},
		{"legacy: 200 and code 0", edgetest.Legacy, fault(200, "echo", 0, ""), "legacy 2025-11-25"},
		{"legacy: 400 and nothing", edgetest.Legacy, func(c *edgetest.Call) { c.Text(400, "", "") }, "legacy 2025-11-25"},
		{"legacy: 404 and nothing", edgetest.Legacy, func(c *edgetest.Call) { c.Text(404, "", "") }, "legacy 2025-11-25"},
		{"legacy: 404 and text", edgetest.Legacy, func(c *edgetest.Call) { c.Text(404, "text/plain", "session not found") }, "legacy 2025-11-25"},
		{"legacy: 405", edgetest.Legacy, func(c *edgetest.Call) { c.Text(405, "", "") }, "legacy 2025-11-25"},
		{"legacy: 406", edgetest.Legacy, func(c *edgetest.Call) { c.Text(406, "", "") }, "legacy 2025-11-25"},
		{"legacy: 400 and an invalid request", edgetest.Legacy, fault(400, "null", -32600, ""), "legacy 2025-11-25"},
		{"legacy: 200 and nonsense", edgetest.Legacy, func(c *edgetest.Call) { c.Text(200, "text/html", "<html>") }, "legacy 2025-11-25"},
		{"legacy: the connection is closed", edgetest.Legacy, (*edgetest.Call).Abort, "legacy 2025-11-25"},
		{"older transport: 404 and HTML", edgetest.SSE, nil, "legacy 2024-11-05"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, c.era)
			if c.script != nil {
				back.Always("server/discover", c.script)
			}
			e := edgetest.Start(t, edgetest.ManifestFor(back.URL, compile.StreamableHTTP))
			client := e.NewClient()
			if m := client.Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error != nil {
				t.Errorf("call: %+v", m.Error)
			}
			// The check that makes it ready may come after the first call.
			edgetest.Until(t, "a sign of life", func() bool { return backendStatus(t, client).Status == "ready" })
			if got := backendStatus(t, client); got.Era+" "+got.Revision != c.want {
				t.Errorf("%+v, want %s", got, c.want)
			}
		})
	}
}

// A backend that speaks nothing the edge speaks, or wants a credential, is
// unavailable, and says why in the status.
func TestBackendThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		script edgetest.Script
		says   string
	}{
		{"an unknown revision", func(c *edgetest.Call) {
			c.JSON(400, `{"jsonrpc":"2.0","id":`+c.ID()+`,"error":{"code":-32022,"message":"m","data":{"supported":["2030-01-01"]}}}`)
		}, "2030-01-01"},
		{"401", func(c *edgetest.Call) { c.Text(401, "", "") }, "credential"},
		{"403", func(c *edgetest.Call) { c.Text(403, "", "") }, "refused the edge with HTTP 403"},
		{"403 with a challenge", func(c *edgetest.Call) {
			c.Header().Set("WWW-Authenticate", "Bearer")
			c.Text(403, "", "")
		}, "credential"},
		{"500", func(c *edgetest.Call) { c.Text(500, "", "") }, "HTTP 500"},
		{"307", func(c *edgetest.Call) { c.Header().Set("Location", "/elsewhere"); c.Text(307, "", "") }, "call: answered with HTTP 307, a redirection, which is not followed: name the URL that it leads to"},
		{"no MCP", func(c *edgetest.Call) { c.Text(404, "text/html", "<html>") }, "404"},
		{"an error for initialize", func(c *edgetest.Call) {
			if c.Kind == "initialize" {
				c.JSON(200, `{"jsonrpc":"2.0","id":`+c.ID()+`,"error":{"code":-32603,"message":"API_KEY missing\n at main.py"}}`)
				return
			}
			c.Text(405, "", "")
		}, `call: refuses initialize (error -32603), and says "API_KEY missing"`},
		{"an initialize of another age", func(c *edgetest.Call) {
			if c.Kind == "initialize" {
				c.Result(`{"protocolVersion":"2020-01-01","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
				return
			}
			c.Text(405, "", "")
		}, "2020-01-01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Legacy)
			back.Always("*", c.script)
			e := edgetest.Start(t, edgetest.ManifestFor(back.URL, compile.StreamableHTTP))
			client := e.NewClient()
			m := client.Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Message()
			if m.Error == nil || m.Error.Code != 502 || m.Error.Message != `backend "back" unavailable` {
				t.Errorf("%+v", m)
			}
			if got := backendStatus(t, client); got.Status != "unknown" || !strings.Contains(got.Message, c.says) {
				t.Errorf("%+v does not say %q", got, c.says)
			}
			if n := back.Count("tools/call"); n != 0 {
				t.Errorf("it was called %d times", n)
			}
		})
	}
}

// A backend that is not there when the edge starts is used once it is.
func TestBackendThatComesUpLater(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			address := edgetest.FreeAddress(t)
			url, transport := "http://"+address+"/mcp", compile.StreamableHTTP
			if era == edgetest.SSE {
				url, transport = "http://"+address+"/sse", compile.SSE
			}
			e := edgetest.Start(t, edgetest.ManifestFor(url, transport))
			c := e.NewClient()
			if m := c.Modern("1", "tools/list", "").Message(); m.Error == nil || m.Error.Code != 502 {
				t.Errorf("%+v", m)
			}
			if got := backendStatus(t, c); got.Status != "unknown" || got.Message == "" {
				t.Errorf("%+v", got)
			}
			s := c.Initialize("")
			edgetest.NewServer(t, era, func(s *edgetest.Server) { s.Address = address })
			if m := c.Modern("2", "tools/list", "").Message(); m.Error != nil {
				t.Errorf("%+v", m.Error)
			}
			if m := s.Call("1", "echo", "{}").Message(); m.Error != nil {
				t.Errorf("%+v", m.Error)
			}
			edgetest.Until(t, "a sign of life", func() bool {
				got := backendStatus(t, c).Status
				return got == "ready" || got == "degraded" // the first good check after a bad one says degraded
			})
		})
	}
}

// A backend that goes away and comes back speaking another era is asked again,
// and no client notices.
func TestBackendThatChangesItsEra(t *testing.T) {
	t.Parallel()
	for _, change := range [][2]edgetest.Era{
		{edgetest.Legacy, edgetest.Modern}, {edgetest.Modern, edgetest.Legacy},
	} {
		t.Run(change[0].String()+" to "+change[1].String(), func(t *testing.T) {
			t.Parallel()
			// Without connections to use again the edge cannot meet the end of one.
			address := edgetest.FreeAddress(t)
			first := edgetest.NewServer(t, change[0], func(s *edgetest.Server) { s.Address, s.KeepAlive = address, "timeout=1" })
			e := edgetest.Start(t, edgetest.Manifest(first))
			c := e.NewClient()
			s := c.Initialize("")
			call := func(id string) {
				t.Helper()
				if r := s.Call(id, "echo", `{"n":`+id+`}`); r.Message().Error != nil {
					t.Errorf("legacy client, call %s: %s", id, r.Answer())
				}
				if r := c.Modern(id, "tools/call", edgetest.CallParams("echo", `{"n":`+id+`}`)); r.Message().Error != nil {
					t.Errorf("modern client, call %s: %s", id, r.Answer())
				}
			}
			call("1")
			first.Close()
			second := edgetest.NewServer(t, change[1], func(s *edgetest.Server) { s.Address = address })
			call("2")
			call("3")
			if got := backendStatus(t, c); got.Era != change[1].String() {
				t.Errorf("%+v", got)
			}
			ran := 0
			for _, r := range second.Requests("tools/call") {
				if change[1] == edgetest.Modern || r.Session != "" && second.Session(r.Session) != nil {
					ran++
				}
			}
			if change[1] == edgetest.Legacy && ran != 4 {
				t.Errorf("%d calls ran, 4 were made", ran)
			}
		})
	}
}

// An odd answer of a modern backend does not hide that it is a legacy one soon after.
func TestBackendThatChangesItsEraAfterAnOddAnswer(t *testing.T) {
	t.Parallel()
	address := edgetest.FreeAddress(t)
	first := edgetest.NewServer(t, edgetest.Modern, func(s *edgetest.Server) { s.Address, s.KeepAlive = address, "timeout=1" })
	c := edgetest.Start(t, edgetest.Manifest(first)).NewClient()
	call := func(id string) edgetest.Message {
		return c.Modern(id, "tools/call", edgetest.CallParams("echo", `{"n":`+id+`}`)).Message()
	}
	first.Always("tools/call", func(c *edgetest.Call) {
		c.Text(404, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"own words"}}`)
	})
	if m := call("1"); m.Error == nil || m.Error.Message != "own words" || first.Count("tools/call") != 1 {
		t.Errorf("%+v, %d calls", m, first.Count("tools/call"))
	}
	first.Close()
	second := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Address = address })
	if m := call("2"); m.Error != nil {
		t.Errorf("%+v", m.Error)
	}
	ran := 0
	for _, r := range second.Requests("tools/call") {
		if r.Session != "" && second.Session(r.Session) != nil {
			ran++
		}
	}
	if ran != 1 {
		t.Errorf("the call ran %d times", ran)
	}
}

// A modern client's call that fails with a code of the modern era has failed;
// the backend is not asked what it is for every such call.
func TestFailedCallIsNoReasonToAskAgain(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	e := edgetest.Start(t, edgetest.Manifest(back))
	c := e.NewClient()
	back.Always("tools/call", func(c *edgetest.Call) { c.Error(400, -32602, "no such tool") })
	for i := range 5 {
		if m := c.Modern(fmt.Sprint(i), "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error == nil || m.Error.Code != -32602 {
			t.Errorf("%+v", m)
		}
	}
	if back.Count("server/discover") != 1 || back.Count("tools/call") != 5 {
		t.Errorf("%d questions, %d calls", back.Count("server/discover"), back.Count("tools/call"))
	}
}

// A modern backend that refuses a call as a legacy server might is asked once what it speaks, and
// never sent the call again, which it may have run. What it said reaches the client.
func TestRefusalIsNoReasonToCallAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status     int
		kind, body string
		code       int
	}{
		{400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"the amount must be positive"}}`, -32000},
		{400, "application/json", `{"jsonrpc":"2.0","error":{"code":-32600,"message":"the amount must be positive"}}`, -32600},
		{400, "text/plain", "the amount must be positive", 502},
		{404, "text/plain", "no such order", 502},
		{405, "text/plain", "", 502},
	} {
		t.Run(fmt.Sprint(c.status, c.kind, c.code), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Modern)
			client := edgetest.Start(t, edgetest.Manifest(back)).NewClient()
			s := client.Initialize("")
			back.Always("tools/call", func(call *edgetest.Call) { call.Text(c.status, c.kind, c.body) })
			for i := range 3 {
				id := fmt.Sprint(i)
				for _, m := range []edgetest.Message{
					s.Call(id, "echo", "{}").Message(), client.Modern(id, "tools/call", edgetest.CallParams("echo", "{}")).Message(),
				} {
					if m.Error == nil || m.Error.Code != c.code || c.code < 0 && m.Error.Message != "the amount must be positive" {
						t.Errorf("%+v", m)
					}
				}
			}
			if asked, ran := back.Count("server/discover"), back.Count("tools/call"); asked > 2 || ran != 6 {
				t.Errorf("%d questions, %d calls", asked, ran)
			}
		})
	}
}
