package serve_test

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// The rows of the table of Host, path and Origin (H) on a loopback address.
func TestHostsAndPaths(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	good := w.framed("", echo)
	_, port, _ := strings.Cut(w.Addr(), ":")
	host := func(v string) string { return strings.Replace(good, "Host: "+w.Addr(), "Host: "+v, 1) }
	target := func(v string) string { return strings.Replace(good, " /mcp ", " "+v+" ", 1) }
	method := func(v string) string { return strings.Replace(good, "POST ", v+" ", 1) }
	origin := func(v string) string { return w.framed("Origin:"+v+"\r\n", echo) }
	for _, row := range []struct {
		id       string
		statuses []int
		raws     []string
	}{
		{"H01", []int{403}, []string{host("evil.example"), host("evil.example:" + port)}},
		{"H02", []int{403}, []string{
			host("127.0.0.1.nip.io:" + port), host("localhost.evil:" + port), host("LOCALHOST:" + port), host("127.1:" + port), host("0x7f000001:" + port),
			host("2130706433:" + port), host("localhost.:" + port), host("[::1]:1"), host("localhost"), host("[::ffff:127.0.0.1]:" + port)}},
		{"H03", []int{403}, []string{origin(" http://evil.example")}},
		{"H04", []int{403}, []string{
			origin(" null"), origin(""), origin(" http://localhost.evil"), origin(" http://localhost:" + port + ".evil"), origin(" file://"), origin(" http://localhost:" + port + ",http://evil")}},
		{"H06", []int{403}, []string{
			origin(" http://LOCALHOST:" + port), origin(" HTTP://localhost:" + port), origin(" http://localhost:" + port + "/"), origin(" http://localhost"), origin(" https://localhost:" + port)}},
		{"H09", []int{400}, []string{host("good@evil"), host("evil@" + w.Addr()), host(w.Addr() + "@evil")}},
		{"H10", []int{400}, []string{target("http://evil/mcp"), target("http://" + w.Addr() + "/mcp"), target("mcp"), target("*")}},
		{"H11", []int{400}, []string{
			host("a, b"), host(w.Addr() + "\r\nHost: " + w.Addr()), strings.Replace(good, "Host: "+w.Addr()+"\r\n", "", 1), host("a/b"), host("localhost:99999"),
			host(""), host("localhost:"), host("localhost:+1"), host("[::1"), host("[::1]x"), host("localhost:0"), host("a b")}},
		{"H12", []int{400}, []string{target("/mcp/../admin"), target("/mcp/%2e%2e/admin"), target("/mcp;/../admin"), target("/admin/../mcp"), target("/./mcp"), target("/mcp/.."), target("/mcp/.")}},
		{"H13", []int{400}, []string{target("/mcp%2fadmin"), target("/mcp%2F"), target("%2fmcp")}},
		{"H14", []int{400}, []string{target("/%2561dmin"), target("/%6dcp"), target("/%256dcp")}},
		{"H15", []int{400}, []string{
			target("/mcp%00.json"), target("/mcp\x5c..\x5c"), target("/mcpé"), target("//mcp//x"), target("//mcp"), target("/mcp//"), target("/mcp#x"), target("/mcp?a#b"), target("/mcp\x00")}},
		{"H17", []int{400, 405, 431}, []string{method("CONNECT"), method("TRACE"), method("post"), method("Post"), method("PROPFIND"), method(strings.Repeat("P", 64<<10))}},
	} {
		t.Run(row.id, func(t *testing.T) {
			for _, raw := range row.raws {
				if row.statuses[0] != 403 {
					w.refused(t, raw, row.statuses...)
					continue
				}
				// The request can be read: its connection may stay.
				got := w.send(t, raw)
				if len(got) != 1 || got[0].status != 403 || strings.Contains(got[0].body, `"id"`) {
					t.Errorf("%q: %+v", raw, got)
				}
				if n := len(w.tap.requests(t)); n != 0 {
					t.Errorf("%q: the backend got %d requests", raw, n)
				}
			}
		})
	}
	t.Run("H02 and H05, allowed", func(t *testing.T) {
		for _, one := range []string{"localhost:", "127.0.0.1:", "[::1]:"} {
			w.passed(t, host(one+port))
			w.passed(t, origin(" http://"+one+port))
		}
	})
	t.Run("H07", func(t *testing.T) {
		for _, kind := range []string{"text/plain", "text/plain; application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/json-seq"} {
			got := w.send(t, strings.Replace(good, "Content-Type: application/json", "Content-Type: "+kind, 1))
			if len(got) != 1 || got[0].status != 415 {
				t.Errorf("%q: %+v", kind, got)
			}
		}
	})
	t.Run("H08", func(t *testing.T) {
		for _, one := range []string{"http://evil.example", "null", "http://localhost:1"} {
			r := w.client.Do("OPTIONS", "/mcp", "", "Origin", one, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "mcp-session-id")
			for name := range r.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s: %s", one, name)
				}
			}
		}
		r := w.client.Do("OPTIONS", "/mcp", "", "Origin", "http://localhost:"+port, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "mcp-session-id")
		if r.Header.Get("Access-Control-Allow-Origin") != "http://localhost:"+port || r.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%v", r.Header)
		}
	})
	t.Run("H16", func(t *testing.T) {
		for _, path := range []string{"/mcp/other", "/servers/x/mcp", "/other", "/mcp/", "/MCP"} {
			got := w.send(t, target(path))
			if len(got) != 1 || got[0].status != 404 || strings.Contains(got[0].body, "tools") {
				t.Errorf("%s: %+v", path, got)
			}
		}
	})
	t.Run("H18", func(t *testing.T) {
		for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/vars", "/admin"} {
			if r := w.client.Do("GET", path, ""); r.Status != 404 {
				t.Errorf("%s: status %d", path, r.Status)
			}
		}
	})
	if n := len(w.tap.requests(t)); n != 0 {
		t.Errorf("the backend got %d requests", n)
	}
}

// On an address of the network the door tells nothing of itself but that it is
// there.
func TestH18(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.Listen = "0.0.0.0:0" }))
	_, port, _ := strings.Cut(strings.TrimPrefix(f.Addr(), "[::]"), ":")
	c := edgetest.NewClient(t, "http://127.0.0.1:"+port)
	for path, status := range map[string]int{"/metrics": 404, "/debug/pprof/": 404, "/status": 404, "/health": 200} {
		if r := c.Do("GET", path, ""); r.Status != status {
			t.Errorf("%s: status %d", path, r.Status)
		}
	}
}
