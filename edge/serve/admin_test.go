package serve_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// adminAsk sends bytes to an admin address and returns the answer. HOST stands
// for the port in them.
func adminAsk(t *testing.T, addr, text string) (*http.Response, string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(addr)
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(edgetest.Patience))
	if _, err := io.WriteString(c, strings.ReplaceAll(text, "PORT", port)); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(text, " ")
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body) // of an answer that says its length
	return r, string(body)
}

// adminPaths are what the admin address has, with the method of each.
var adminPaths = map[string]string{
	"/health": "GET", "/readyz": "GET", "/metrics": "GET", "/status": "GET", "/-/reload": "POST", "/debug/pprof/cmdline": "GET", "/debug/pprof/heap": "GET", "/no-such-thing": "GET",
}

// newAdmin is an edge with an admin address, and how often it was reloaded.
func newAdmin(t *testing.T, listen string) (*front, *int) {
	t.Helper()
	n := new(int)
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.AdminListen = listen }),
		edgetest.With(serve.WithPprof()), edgetest.With(serve.WithReload(func() error { *n++; return nil })))
	return f, n
}

// TestZ07AdminAddressOfThisHost: pages in a browser of this host reach nothing of
// the admin address, by whatever name and from whatever place.
func TestZ07AdminAddressOfThisHost(t *testing.T) {
	t.Parallel()
	f, reloads := newAdmin(t, "127.0.0.1:0")
	addr := f.Serve.AdminAddr()
	ask := func(method, path, head string) (*http.Response, string) {
		t.Helper()
		r, body := adminAsk(t, addr, method+" "+path+" HTTP/1.1\r\n"+head+"Content-Length: 0\r\n\r\n")
		for name := range r.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: %s", path, name)
			}
		}
		return r, body
	}
	const own = "Host: 127.0.0.1:PORT\r\n"
	refused := map[string]string{}
	for _, host := range []string{
		"evil.example", "evil.example:PORT", "localhost.evil.example", "evil.localhost", "localhost.", "localhost.:PORT", "127.0.0.1.", "127.0.0.1.:PORT", "127.0.0.1.nip.io:PORT",
		"127.1:PORT", "127.0.0.2:PORT", "2130706433:PORT", "0x7f.0.0.1", "0.0.0.0:PORT", "[::]:PORT", "[::ffff:127.0.0.1]:PORT", "[0:0:0:0:0:0:0:1]", "[::2]",
		"localhost:", "localhost:x", "localhost:-1", "localhost:999999", "127.0.0.1:80:80", "xn--localhost", "localhost%00", "1localhost", "::1",
	} {
		refused["Host "+host] = "Host: " + host + "\r\n"
	}
	for _, origin := range []string{
		"http://evil.example", "https://127.0.0.1:PORT", "http://127.0.0.1", "http://127.0.0.1:1", "http://localhost:PORT", "null", "", "*", "http://127.0.0.1:PORT/", "http://127.0.0.1:PORT http://evil.example", "file://", "chrome-extension://abc", "http://127.0.0.1:PORT.evil.example", "127.0.0.1:PORT",
	} {
		refused["Origin "+origin] = own + "Origin: " + origin + "\r\n"
		refused["small origin "+origin] = own + "origin: " + origin + "\r\n"
	}
	for _, site := range []string{"cross-site", "same-site", "", "None", "same-origin, none", "x"} {
		refused["Sec-Fetch-Site "+site] = own + "Sec-Fetch-Site: " + site + "\r\n"
		refused["Sec-Fetch-Site none and "+site] = own + "Sec-Fetch-Site: none\r\nsec-fetch-site: " + site + "\r\n"
	}
	refused["an Origin and its own Host"] = "Host: evil.example:PORT\r\nOrigin: http://evil.example:PORT\r\nSec-Fetch-Site: same-origin\r\n"
	for path, method := range adminPaths {
		for name, head := range refused {
			r, body := ask(method, path, head)
			if r.StatusCode != 403 && (r.StatusCode != 400 || !strings.HasPrefix(name, "Host ")) {
				t.Errorf("%s with %s: status %d: %.100s", path, name, r.StatusCode, body)
			}
		}
		want := 200
		if path == "/no-such-thing" {
			want = 404
		}
		for _, head := range []string{
			own, "Host: localhost:PORT\r\n", "Host: localhost\r\n", "Host: LocalHost:4484\r\n", "Host: [::1]:PORT\r\n", "Host: [::1]\r\n", "Host: 127.0.0.1\r\n", "Host: 127.0.0.1:9\r\n", // ports are forwarded
			own + "Origin: http://127.0.0.1:PORT\r\nSec-Fetch-Site: same-origin\r\n", "Host: localhost:9000\r\nOrigin: http://localhost:9000\r\n", own + "Sec-Fetch-Site: none\r\n",
		} {
			if r, body := ask(method, path, head); r.StatusCode != want {
				t.Errorf("%s with %q: status %d: %.100s", path, head, r.StatusCode, body)
			}
		}
		for _, other := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
			if want == 404 || other == method {
				continue
			}
			if r, _ := ask(other, path, own); r.StatusCode != 405 || r.Header.Get("Allow") != method {
				t.Errorf("%s %s: status %d, Allow %q", other, path, r.StatusCode, r.Header.Get("Allow"))
			}
		}
	}
	good := *reloads
	if good == 0 {
		t.Error("POST /-/reload with a sound header did nothing")
	}
	// What has two readings, or says of itself where it goes.
	for _, text := range []string{
		"GET /status HTTP/1.0\r\n\r\n",
		"GET /status HTTP/1.1\r\n\r\n",
		"POST /-/reload HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
		"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
		"GET /status HTTP/1.1\r\nHost: evil.example\r\nHost: 127.0.0.1\r\n\r\n",
		"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nhost: 127.0.0.1\r\n\r\n",
		"GET http://evil.example/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"GET http://127.0.0.1/status HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"POST http://127.0.0.1/-/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
		"POST /-/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n\r\n",
		"POST /-/reload HTTP/1.1\r\nHost : 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
		"POST /-/reload HTTP/1.1\r\nHost: a@127.0.0.1\r\nContent-Length: 0\r\n\r\n",
		"POST /x/../-/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
		"POST /%2d/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
		"POST //-/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
	} {
		if r, body := adminAsk(t, addr, text); r.StatusCode != 400 && r.StatusCode != 403 && r.StatusCode != 404 {
			t.Errorf("%q: status %d: %.100s", text, r.StatusCode, body)
		}
	}
	if *reloads != good {
		t.Errorf("%d reloads were not asked for by who may", *reloads-good)
	}
	if strings.Contains(f.Log(), "admin-listen") {
		t.Error("a warning")
	}
}

// TestZ07AdminAddressOfAll: on an address that others reach there is only what
// says nothing of the server, and the start says so.
func TestZ07AdminAddressOfAll(t *testing.T) {
	t.Parallel()
	f, reloads := newAdmin(t, "0.0.0.0:0")
	addr := f.Serve.AdminAddr()
	for path, method := range adminPaths {
		for _, host := range []string{"127.0.0.1:PORT", "localhost", "edge.example:9090"} {
			want := 403
			if path == "/health" || path == "/readyz" || path == "/metrics" {
				want = 200
			}
			r, body := adminAsk(t, addr, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", method, path, host))
			if r.StatusCode != want || want == 403 && !strings.Contains(body, "--admin-listen") {
				t.Errorf("%s at %s: status %d: %.100s", path, host, r.StatusCode, body)
			}
			for _, bad := range []string{"Origin: http://evil.example", "Sec-Fetch-Site: cross-site"} {
				if r, _ := adminAsk(t, addr, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\nContent-Length: 0\r\n\r\n", method, path, host, bad)); r.StatusCode != 403 {
					t.Errorf("%s with %s: status %d", path, bad, r.StatusCode)
				}
			}
		}
	}
	if *reloads != 0 {
		t.Errorf("%d reloads", *reloads)
	}
	if !strings.Contains(f.Log(), "level=WARN") || !strings.Contains(f.Log(), "/health, /readyz and /metrics alone") {
		t.Error("no warning")
	}
}

// TestAdminPanics: a panic in a request to the admin address costs that request alone.
func TestAdminPanics(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }),
		edgetest.With(serve.WithReload(func() error { panic("a reload that is broken") })))
	if r, body := adminAsk(t, f.Serve.AdminAddr(), "POST /-/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"); r.StatusCode != 500 || strings.Contains(body, "broken") {
		t.Errorf("status %d: %s", r.StatusCode, body)
	}
	if r, _ := adminAsk(t, f.Serve.AdminAddr(), "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"); r.StatusCode != 200 {
		t.Errorf("/health: status %d", r.StatusCode)
	}
	if !strings.Contains(f.Log(), "a reload that is broken") {
		t.Error("the log does not tell of it")
	}
}
