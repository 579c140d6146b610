package serve_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// TestForwardedAddress counts the streams of the client that a trusted proxy
// names, and believes nobody else (row S34).
func TestForwardedAddress(t *testing.T) {
	for name, c := range map[string]struct {
		trusted         []string
		first, second   []string // headers of two clients with a stream each
		secondIsAnother bool
	}{
		"nobody is trusted":               {nil, []string{"X-Forwarded-For", "192.0.2.1"}, []string{"X-Forwarded-For", "192.0.2.2"}, false},
		"another proxy is trusted":        {[]string{"10.0.0.0/8"}, []string{"X-Forwarded-For", "192.0.2.1"}, []string{"X-Forwarded-For", "192.0.2.2"}, false},
		"trusted":                         {[]string{"127.0.0.1"}, []string{"X-Forwarded-For", "192.0.2.1"}, []string{"X-Forwarded-For", "192.0.2.2"}, true},
		"what the client put before":      {[]string{"127.0.0.1"}, []string{"X-Forwarded-For", "1.1.1.1, 192.0.2.1"}, []string{"X-Forwarded-For", "2.2.2.2, 192.0.2.1"}, false},
		"two proxies":                     {[]string{"127.0.0.0/8", "10.0.0.0/8"}, []string{"X-Forwarded-For", "192.0.2.1, 10.1.1.1"}, []string{"X-Forwarded-For", "192.0.2.2, 10.1.1.1"}, true},
		"Forwarded":                       {[]string{"127.0.0.1"}, []string{"Forwarded", `for="[2001:db8::1]:4711";proto=https`}, []string{"Forwarded", "proto=https; For=192.0.2.60"}, true},
		"a Forwarded of the client's own": {[]string{"127.0.0.1"}, []string{"X-Forwarded-For", "192.0.2.1", "Forwarded", "for=x"}, []string{"X-Forwarded-For", "192.0.2.2", "Forwarded", "for=x"}, false},
		"the older of the client's own":   {[]string{"127.0.0.1"}, []string{"X-Forwarded-For", "192.0.2.1", "Forwarded", "for=192.0.2.9"}, []string{"X-Forwarded-For", "192.0.2.2", "Forwarded", "for=192.0.2.9"}, false},
		"two that agree":                  {[]string{"127.0.0.1"}, []string{"X-Forwarded-For", "192.0.2.1", "Forwarded", "for=192.0.2.1"}, []string{"X-Forwarded-For", "192.0.2.2", "Forwarded", "for=192.0.2.2"}, true},
		"several of them":                 {[]string{"127.0.0.1"}, []string{"X-Forwarded-For", "192.0.2.1", "Forwarded", "for=x"}, []string{"X-Forwarded-For", "192.0.2.1", "Forwarded", "for=192.0.2.9"}, false},
		"separators in quotes":            {[]string{"127.0.0.1"}, []string{"Forwarded", `for=192.0.2.1;by="a,b;c\\"`}, []string{"Forwarded", `for=192.0.2.2;by="a,\";for=x,b"`}, true},
		"a quote that a client left open": {[]string{"127.0.0.1"}, []string{"Forwarded", `for=192.0.2.1;by=", for="192.0.2.2"`}, []string{"Forwarded", `for="192.0.2.2"`}, false},
		"nonsense":                        {[]string{"127.0.0.1"}, []string{"X-Forwarded-For", "unknown"}, []string{"X-Forwarded-For", "_hidden"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.TrustedProxies, s.MaxStreams = c.trusted, 1 }))
			open := func(header []string) *edgetest.Response {
				s := f.NewClient().Initialize("")
				return s.Do("GET", "/mcp", "", append([]string{"Accept", "text/event-stream", "Mcp-Session-Id", s.ID, "MCP-Protocol-Version", s.Version}, header...)...)
			}
			one := open(c.first)
			defer one.Close()
			if one.Status != 200 {
				t.Fatalf("status %d", one.Status)
			}
			want := 503
			if c.secondIsAnother {
				want = 200
			}
			two := open(c.second)
			defer two.Close()
			if two.Status != want {
				t.Errorf("status %d, want %d", two.Status, want)
			}
		})
	}
}

// TestForwardedLocal: behind a proxy that is believed, incomingAuth local serves clients of this
// machine alone: nobody whose address the proxy hides, spoils, or says in two ways.
func TestForwardedLocal(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	yaml := strings.Replace(edgetest.Manifest(back), "incomingAuth: {type: anonymous}", "incomingAuth: {type: local}", 1)
	e := edgetest.Start(t, yaml, edgetest.Settings(func(s *serve.Settings) { s.TrustedProxies = []string{"127.0.0.1"} }))
	c := e.NewClient()
	for _, one := range []struct {
		status int
		header []string
	}{
		{200, nil},
		{200, []string{"X-Forwarded-For", "127.0.0.1"}},
		{200, []string{"X-Forwarded-For", "8.8.8.8, ::1"}},
		{200, []string{"Forwarded", "for=127.0.0.1;proto=https", "X-Forwarded-For", "127.0.0.1"}},
		{200, []string{"Forwarded", "proto=https", "X-Forwarded-For", "127.0.0.1"}},
		{200, []string{"Forwarded", `for=127.0.0.1;by="a,b"`, "X-Forwarded-For", "127.0.0.1"}},
		{401, []string{"Forwarded", `for=127.0.0.1;by=", for=8.8.8.8`}},
		{401, []string{"X-Forwarded-For", "8.8.8.8"}},
		{401, []string{"X-Forwarded-For", "127.0.0.1, 8.8.8.8"}},
		{401, []string{"X-Forwarded-For", "unknown"}},
		{401, []string{"X-Forwarded-For", "8.8.8.8, unknown"}},
		{401, []string{"X-Forwarded-For", "8.8.8.8,"}},
		{401, []string{"X-Forwarded-For", "unix:"}},
		{401, []string{"Forwarded", "for=_hidden"}},
		{401, []string{"Forwarded", "for=unknown"}},
		{401, []string{"Forwarded", "for=127.0.0.1, proto=https"}},
		{401, []string{"Forwarded", "for=8.8.8.8", "X-Forwarded-For", "127.0.0.1"}},
		{401, []string{"Forwarded", "for=127.0.0.1", "X-Forwarded-For", "8.8.8.8"}},
		{401, []string{"Forwarded", "for=unknown", "X-Forwarded-For", "127.0.0.1"}},
	} {
		body, head := edgetest.ModernRequest("1", "tools/list", "", edgetest.Meta())
		if r := c.Post(body, append(one.header, head...)...); r.Status != one.status {
			t.Errorf("%v: status %d, want %d: %s", one.header, r.Status, one.status, r.Body)
		}
	}
}

// TestForwardedRegistrations: a client behind a proxy that writes Forwarded alone gets no room at the
// authorization server by an X-Forwarded-For of its own, which records have.
func TestForwardedRegistrations(t *testing.T) {
	t.Parallel()
	log, recorded := audited(t)
	e := edgetest.Start(t, entrance(edgetest.NewServer(t, edgetest.Modern), embedded("", edgetest.NewHub(t, "hub")), `{type: unauthenticated}`, recorded), loopback(), behind)
	c, refused := e.NewClient(), 0
	for n := range 60 { // 5 at once, and one each second
		r := c.Do("POST", "/oauth/register", `{"redirect_uris":["https://client.example/cb"]}`, "Content-Type", "application/json",
			"Forwarded", "for=198.51.100.7", "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", n+1))
		if r.Status == 429 {
			refused++
		} else if r.Status != 201 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
	}
	if refused == 0 {
		t.Error("60 registrations of one client at once, and none was refused")
	}
	c.Do("GET", "/mcp", "", "Forwarded", "for=198.51.100.7", "X-Forwarded-For", "203.0.113.99")
	e.Stop()
	seen := map[string]bool{}
	for _, r := range records(t, log) {
		seen[r.Source.Value] = true
	}
	if seen["unknown"] || !seen["203.0.113.1"] || !seen["203.0.113.99"] {
		t.Errorf("records are of %v", seen)
	}
}

// TestListensCountAsStreams bounds what a modern client may keep open, too.
func TestListensCountAsStreams(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern, edgetest.Settings(func(s *serve.Settings) { s.MaxStreams = 1 }))
	f.back.Always("subscriptions/listen", func(c *edgetest.Call) {
		c.Notify("notifications/subscriptions/acknowledged", `{"notifications":{"toolsListChanged":true}}`)
		c.Wait(nil)
	})
	c := f.callerOf(t, edgetest.Modern, "")
	const want = `{"notifications":{"toolsListChanged":true}}`
	one := c.request(t, "1", "subscriptions/listen", want)
	one.NextMessage()
	fails(t, f.callerOf(t, edgetest.Modern, "").request(t, "2", "subscriptions/listen", want), 503, 503, "2")
	one.Close()
	edgetest.Until(t, "room for another", func() bool {
		r := f.callerOf(t, edgetest.Modern, "").request(t, "3", "subscriptions/listen", want)
		defer r.Close()
		return r.Status == 200
	})
}
