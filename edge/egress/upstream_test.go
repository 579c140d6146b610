package egress

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// corporate is a proxy that this machine needs. It echoes what comes through a tunnel.
type corporate struct {
	mu    sync.Mutex
	asked []string // targets
	auth  string   // of the last one
	how   string   // "": it serves; else what it answers with
	at    *url.URL
}

func startCorporate(t *testing.T) *corporate {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); work.Wait() })
	k := &corporate{at: &url.URL{Scheme: "http", Host: ln.Addr().String(), User: url.UserPassword("me", "hunter2secret")}}
	work.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				read := bufio.NewReader(c)
				r, err := http.ReadRequest(read)
				if err != nil {
					return
				}
				k.mu.Lock()
				k.asked, k.auth = append(k.asked, r.Method+" "+r.RequestURI+" "+r.Host), r.Header.Get("Proxy-Authorization")
				how := k.how
				k.mu.Unlock()
				switch how {
				case "silent":
					_, _ = io.Copy(io.Discard, read)
					return
				case "":
					_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\nfirst ")
					_, _ = io.Copy(c, read)
					return
				}
				_, _ = io.WriteString(c, how)
			})
		}
	})
	return k
}

// TestUpstream: where this machine needs a proxy, names are asked of that, also those that
// nobody here knows, after all that can be judged here; addresses are not.
func TestUpstream(t *testing.T) {
	w := open(t, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test", "inside.test", "loop.test", ".below.test", "direct.test", "93.184.216.0/24"}, AllowPort: []int{80, 8080}}, Options{})
	w.names["loop.test"] = []string{"127.0.0.1"}
	w.names["x.below.test"] = []string{"10.0.0.8"}
	w.names["direct.test"] = []string{"93.184.216.35"}
	here := w.host("93.184.216.35:8080", echo)
	k := startCorporate(t)
	w.p.upstream = func(to *url.URL) (*url.URL, error) {
		if to.Hostname() == "direct.test" { // NO_PROXY
			return nil, nil
		}
		return k.at, nil
	}
	for target, want := range map[string]int{
		"allowed.test:8080": 200, "inside.test:8080": 200, "unknown.below.test:8080": 200, "direct.test:8080": 200,
		"loop.test:8080": 403, "x.below.test:8080": 403, "93.184.216.34:8080": 403, "evil.test:8080": 403, "allowed.test:22": 403,
		"127.0.0.1:8080": 403, "host.docker.internal:8080": 403,
	} {
		k.mu.Lock()
		k.asked = nil
		k.mu.Unlock()
		c := w.proxy()
		_, _ = io.WriteString(c, connectTo(target))
		read := bufio.NewReader(c)
		answer, err := read.ReadString('\n')
		if err != nil || status(answer) != want {
			t.Errorf("%s: %q %v; want %d", target, answer, err, want)
		}
		k.mu.Lock()
		asked, auth := strings.Join(k.asked, "; "), k.auth
		k.mu.Unlock()
		switch {
		case want != 200 || target == "direct.test:8080":
			if asked != "" {
				t.Errorf("%s: the proxy of this machine was asked: %s", target, asked)
			}
		case asked != "CONNECT "+target+" "+target || auth != "Basic bWU6aHVudGVyMnNlY3JldA==":
			t.Errorf("%s: it was asked %q with %q", target, asked, auth)
		default:
			_, _ = read.ReadString('\n')
			_, _ = io.WriteString(c, "second")
			got := make([]byte, len("first second"))
			if _, err := io.ReadFull(read, got); err != nil || string(got) != "first second" {
				t.Errorf("%s: through the tunnel came %q %v", target, got, err)
			}
		}
		_ = c.Close()
	}
	here.awaits(t, 1)
	if n := here.reached.Load(); n != 1 {
		t.Errorf("what NO_PROXY names was reached %d times", n)
	}
	for _, to := range w.dialed {
		if to != "93.184.216.35:8080" {
			t.Errorf("%s was dialled", to)
		}
	}
}

// TestUpstreamLets: any 2xx of a proxy of this machine opens a tunnel, also behind interim answers,
// and nothing of its head is the host's.
func TestUpstreamLets(t *testing.T) {
	w := open(t, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}, AllowPort: []int{8080}}, Options{})
	k := startCorporate(t)
	w.p.upstream = func(*url.URL) (*url.URL, error) { return k.at, nil }
	for _, head := range []string{
		"HTTP/1.1 201 Created\r\nContent-Length: 6\r\n\r\n", "HTTP/1.0 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 102 Processing\r\nA: b\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 299 Yes\r\n\r\n",
	} {
		k.mu.Lock()
		k.how = head + "first"
		k.mu.Unlock()
		c := w.tunnel("allowed.test:8080")
		if b, err := io.ReadAll(c); err != nil || string(b) != "first" {
			t.Errorf("%q: %q, %v", head, b, err)
		}
		_ = c.Close()
	}
}

// TestUpstreamFails: a proxy of this machine that does not let anybody through is an error
// without its password, and does not hold anybody.
func TestUpstreamFails(t *testing.T) {
	w := open(t, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}, AllowPort: []int{8080}}, Options{})
	w.p.times.dial = 500 * time.Millisecond
	k := startCorporate(t)
	var wrong error
	w.p.upstream = func(*url.URL) (*url.URL, error) { return k.at, wrong }
	for how, want := range map[string]string{
		"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n": "answers 407",
		"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n":                       "answers 302",
		"SSH-2.0-OpenSSH\r\n\r\n":                                                 "answers with no HTTP",
		"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 10_000):                "answers with no HTTP",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n":                                "answers 101",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 Forbidden\r\n\r\n":             "answers 403",
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 1000):                     "answers with no HTTP",
		"silent": "does not answer",
		"none":   "does not answer",
		"tls":    "does not answer", // it speaks none
		"socks":  "is no URL of an HTTP proxy",
		"error":  "is no URL of an HTTP proxy",
	} {
		k.mu.Lock()
		k.how = how
		k.mu.Unlock()
		at := k.at
		switch how {
		case "none":
			k.at = &url.URL{Scheme: "http", Host: "127.0.0.1:1", User: k.at.User}
		case "tls":
			k.at = &url.URL{Scheme: "https", Host: k.at.Host, User: k.at.User}
		case "socks":
			k.at = &url.URL{Scheme: "socks5", Host: k.at.Host, User: k.at.User}
		case "error":
			wrong = errors.New("parse http://me:hunter2secret@")
		}
		c := w.proxy()
		_, _ = io.WriteString(c, connectTo("allowed.test:8080"))
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%.40q: %v", how, err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = c.Close()
		if answer.StatusCode != 502 || !strings.Contains(string(text), want) || strings.Contains(string(text), "hunter2") {
			t.Errorf("%.40q: %q %v; want %q", how, text, err, want)
		}
		k.at, wrong = at, nil
	}
	if log := w.log(); strings.Contains(log, "hunter2") || !strings.Contains(log, "unreachable") {
		t.Errorf("the log:\n%s", log)
	}
}
