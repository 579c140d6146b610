package oauth_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/oauth"
)

func noProxy(*http.Request) (*url.URL, error) { return nil, nil }

func client(t testing.TB, o oauth.Options) *oauth.Client {
	t.Helper()
	if o.Proxy == nil {
		o.Proxy = noProxy
	}
	c, err := oauth.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// lenient is a client that reaches servers of this machine.
func lenient(t testing.TB) *oauth.Client {
	return client(t, oauth.Options{AllowHTTP: true, AllowPrivate: true, Timeout: 2 * time.Second})
}

func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// TestT01 holds which addresses are dialled for whom.
func TestT01(t *testing.T) {
	for _, tt := range []struct {
		addr           string
		learned, named bool
	}{
		{"93.184.216.34", true, true},
		{"8.8.8.8", true, true},
		{"2606:4700::1111", true, true},
		{"127.0.0.1", false, true},
		{"127.9.9.9", false, true},
		{"::1", false, true},
		{"10.1.2.3", false, true},
		{"172.16.0.1", false, true},
		{"172.31.255.255", false, true},
		{"172.32.0.1", true, true},
		{"192.168.1.1", false, true},
		{"100.64.0.1", false, true},
		{"100.127.255.255", false, true},
		{"0.0.0.0", false, true},
		{"::", false, true},
		{"fd00::1", false, true},
		{"224.0.0.1", false, false},
		{"239.1.1.1", false, true},
		{"255.255.255.255", false, true},
		{"192.0.2.1", false, true},
		{"198.18.0.1", false, true},
		{"240.0.0.1", false, true},
		{"2001:db8::1", false, true},
		{"2002:7f00:1::", false, true},
		{"2001::1", false, true},
		{"ff02::1", false, false},
		// Never, whoever names it.
		{"169.254.169.254", false, false},
		{"169.254.1.1", false, false},
		{"fe80::1", false, false},
		{"fe80::1%eth0", false, false},
		{"100.100.100.200", false, false},
		{"168.63.129.16", false, false},
		{"fd00:ec2::254", false, false},
		// An IPv4 address in disguise is that address.
		{"::ffff:127.0.0.1", false, true},
		{"::ffff:a9fe:a9fe", false, false},
		{"::ffff:8.8.8.8", true, true},
		{"64:ff9b::7f00:1", false, true},
		{"64:ff9b::a9fe:a9fe", false, false},
		{"64:ff9b::808:808", true, true},
		{"64:ff9b:1::7f00:1", false, true},
		{"::127.0.0.1", false, true},
	} {
		addr := netip.MustParseAddr(tt.addr)
		if err := edge.MayDial(addr, false); (err == nil) != tt.learned {
			t.Errorf("%s learned: %v", tt.addr, err)
		}
		if err := edge.MayDial(addr, true); (err == nil) != tt.named {
			t.Errorf("%s named: %v", tt.addr, err)
		}
	}
}

// TestT01T02NoConnection proves on the wire that nothing inward is reached.
func TestT01T02NoConnection(t *testing.T) {
	var hits atomic.Int32
	s := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	port := s.Listener.Addr().(*net.TCPAddr).Port
	strict := client(t, oauth.Options{AllowHTTP: true, Timeout: time.Second})
	for _, host := range []string{
		"127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "0.0.0.0", "[::]", "[fe80::1%25eth0]", "localhost", "LOCALHOST.", "a.localhost",
		"2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0x7f000001", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[::ffff:a9fe:a9fe]", "1.2.3.09",
	} {
		u := fmt.Sprintf("http://%s:%d/", host, port)
		if _, err := strict.Do(t.Context(), oauth.Request{URL: u}); err == nil {
			t.Errorf("%s was reached", u)
		}
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d requests came through", n)
	}
	if _, err := strict.Do(t.Context(), oauth.Request{URL: s.URL, Trust: oauth.Named}); err != nil {
		t.Errorf("named by the operator: %v", err)
	}
	if _, err := strict.Do(t.Context(), oauth.Request{URL: "http://169.254.169.254/", Trust: oauth.Named}); !isAddress(err) {
		t.Errorf("metadata, named: %v", err)
	}
}

func isAddress(err error) bool {
	var a *edge.AddressError
	return errors.As(err, &a)
}

// names is a DNS server that answers each question for A with the next list of
// addresses, the last one for ever, and has no AAAA.
func names(t *testing.T, answers ...[]string) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { pc.Close(); <-ended })
	go func() { // ends when pc is closed
		defer close(ended)
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			q := buf[12:n]
			end := bytes.IndexByte(q, 0) + 5
			reply := append([]byte{}, buf[:2]...)
			var list []string
			if binary.BigEndian.Uint16(q[end-4:]) == 1 {
				list = answers[0]
				if len(answers) > 1 {
					answers = answers[1:]
				}
			}
			reply = append(reply, 0x81, 0x80, 0, 1, 0, byte(len(list)), 0, 0, 0, 0)
			reply = append(reply, q[:end]...)
			for _, a := range list {
				ip := netip.MustParseAddr(a).As4()
				reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				reply = append(reply, ip[:]...)
			}
			_, _ = pc.WriteTo(reply, from) // a lost answer fails the test
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

// TestT03 is a name that leads to another address the second time.
func TestT03(t *testing.T) {
	var hits atomic.Int32
	s := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	c, err := oauth.NewResolving(oauth.Options{AllowHTTP: true, Proxy: noProxy, Timeout: 200 * time.Millisecond}, names(t, []string{"93.184.216.34"}, []string{"127.0.0.1"}))
	if err != nil {
		t.Fatal(err)
	}
	u := fmt.Sprintf("http://rebind.example:%d/", s.Listener.Addr().(*net.TCPAddr).Port)
	if _, err := c.Do(t.Context(), oauth.Request{URL: u}); err == nil || isAddress(err) {
		t.Errorf("the public address was judged: %v", err) // it is not reached: nothing is there
	}
	if _, err := c.Do(t.Context(), oauth.Request{URL: u}); !isAddress(err) {
		t.Errorf("the private address: %v", err)
	}
	if hits.Load() != 0 {
		t.Error("it was reached")
	}
}

// TestT04 is a name with a public and a private address.
func TestT04(t *testing.T) {
	var hits atomic.Int32
	s := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	c, err := oauth.NewResolving(oauth.Options{AllowHTTP: true, Proxy: noProxy, Timeout: 500 * time.Millisecond}, names(t, []string{"127.0.0.1", "93.184.216.34"}))
	if err != nil {
		t.Fatal(err)
	}
	u := fmt.Sprintf("http://both.example:%d/", s.Listener.Addr().(*net.TCPAddr).Port)
	if _, err := c.Do(t.Context(), oauth.Request{URL: u}); err == nil {
		t.Error("it was reached")
	}
	if hits.Load() != 0 {
		t.Error("the private address was dialled")
	}
}

// TestT05 holds how redirects are followed.
func TestT05(t *testing.T) {
	var last atomic.Pointer[http.Request]
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { last.Store(r) })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		last.Store(r)
		var n int
		if _, err := fmt.Sscanf(r.URL.Path, "/again/%d", &n); err == nil && n > 0 {
			http.Redirect(w, r, fmt.Sprintf("/again/%d", n-1), http.StatusFound)
		}
		switch r.URL.Path {
		case "/metadata":
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		case "/other":
			http.Redirect(w, r, other.URL+"/", http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/nowhere":
			w.WriteHeader(http.StatusFound)
		}
	})
	c := lenient(t)
	get := func(path string, most int) error {
		r, err := c.Do(t.Context(), oauth.Request{URL: s.URL + path, Redirects: most, Header: http.Header{"Authorization": {"Bearer secret"}, "Accept": {"x"}}})
		if err == nil && r.Status != 200 {
			return fmt.Errorf("status %d", r.Status)
		}
		return err
	}
	if err := get("/again/3", 3); err != nil {
		t.Errorf("three redirects: %v", err)
	}
	if last.Load().Header.Get("Authorization") == "" {
		t.Error("the credential was dropped on the same host")
	}
	if err := get("/again/4", 3); err == nil {
		t.Error("four redirects were followed")
	}
	if err := get("/again/1", 0); err == nil || err.Error() != "status 302" {
		t.Errorf("redirects off: %v", err)
	}
	if err := get("/metadata", 3); !isAddress(err) {
		t.Errorf("to metadata: %v", err)
	}
	if err := get("/file", 3); err == nil {
		t.Error("file:// was followed")
	}
	if err := get("/nowhere", 3); err == nil {
		t.Error("no Location was followed")
	}
	if err := get("/other", 3); err != nil {
		t.Errorf("to another host: %v", err)
	}
	if h := last.Load().Header; h.Get("Authorization") != "" || h.Get("Accept") != "x" {
		t.Errorf("another host was sent %v", h)
	}
	if _, err := c.Do(t.Context(), oauth.Request{Method: http.MethodPost, URL: s.URL + "/again/1", Redirects: 3}); err == nil {
		t.Error("a POST was redirected")
	}

	// A redirect is learned, whoever named where it starts.
	strict := client(t, oauth.Options{AllowHTTP: true})
	if _, err := strict.Do(t.Context(), oauth.Request{URL: s.URL + "/other", Trust: oauth.Named, Redirects: 3}); !isAddress(err) {
		t.Errorf("a named URL that redirects inward: %v", err)
	}

	// From https to http, never.
	tls := httptest.NewUnstartedServer(http.RedirectHandler(other.URL, http.StatusFound))
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tls.Certificate().Raw})
	c = client(t, oauth.Options{AllowHTTP: true, AllowPrivate: true, CABundle: ca})
	if _, err := c.Do(t.Context(), oauth.Request{URL: tls.URL, Redirects: 3}); err == nil || !strings.Contains(err.Error(), "away from https") {
		t.Errorf("from https to http: %v", err)
	}
	if _, err := lenient(t).Do(t.Context(), oauth.Request{URL: tls.URL}); err == nil {
		t.Error("a certificate that nobody vouches for was accepted")
	}
	if _, err := oauth.New(oauth.Options{CABundle: []byte("nothing")}); err == nil {
		t.Error("a CA bundle without a certificate was accepted")
	}
}

// TestT06 is an error that a stranger's answer must not be read in.
func TestT06(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "inner secret", 500) })
	_, err := lenient(t).Discover(t.Context(), s.URL, oauth.Learned, nil)
	if err == nil || strings.Contains(err.Error(), "inner secret") {
		t.Errorf("%v", err)
	}
}

// TestT07 holds which URLs of a metadata document are used.
func TestT07(t *testing.T) {
	for _, bad := range []string{"file:///etc/passwd", "gopher://x/", "javascript:alert(1)", "http://a.example/", "/relative", "https://", "https://u:p@a.example/", "https://a.example/#f", "https://a.example:0/", "https://a.example:99999/", "--flag", "//a.example/x"} {
		for _, name := range []string{"jwks_uri", "token_endpoint", "registration_endpoint", "introspection_endpoint", "authorization_endpoint"} {
			doc := fmt.Sprintf(`{"issuer":"https://i.example",%q:%q}`, name, bad)
			if _, err := oauth.ParseMetadata([]byte(doc), "https://i.example", false); err == nil {
				t.Errorf("%s: %s was accepted", name, bad)
			}
		}
	}
	if _, err := oauth.ParseMetadata([]byte(`{"issuer":"https://i.example","jwks_uri":["https://a.example"]}`), "https://i.example", false); err == nil {
		t.Error("an array was accepted")
	}
}

// TestT08 holds that a document is used for the very issuer it names.
func TestT08(t *testing.T) {
	for _, issuer := range []string{"", "https://i.example/", "https://I.example", "http://i.example", "https://i.example.evil", "https://evil"} {
		if _, err := oauth.ParseMetadata([]byte(fmt.Sprintf(`{"issuer":%q}`, issuer)), "https://i.example", false); err == nil {
			t.Errorf("%q was taken for https://i.example", issuer)
		}
	}
	for _, doc := range []string{`{}`, `[]`, `null`, `"x"`, `{"issuer":null}`, `{"issuer":"https://evil","issuer":"https://i.example"}`, `{"Issuer":"https://i.example"}`, `{"issuer":"https://i.example"} x`, `<html>`} {
		if _, err := oauth.ParseMetadata([]byte(doc), "https://i.example", false); err == nil {
			t.Errorf("%s was accepted", doc)
		}
	}
	m, err := oauth.ParseMetadata([]byte(`{"issuer":"https://i.example","jwks_uri":"https://k.example/k","code_challenge_methods_supported":["S256"],"scopes_supported":["a"],"client_id_metadata_document_supported":true,"token_endpoint":null}`), "https://i.example", false)
	if err != nil || m.JWKSURI != "https://k.example/k" || len(m.ChallengeMethods) != 1 || len(m.Scopes) != 1 || !m.ClientIDDocuments || m.ResponseIssuer {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestDiscoverOrder holds where metadata are looked for.
func TestDiscoverOrder(t *testing.T) {
	for issuer, want := range map[string]string{
		"https://i.example":        "https://i.example/.well-known/oauth-authorization-server https://i.example/.well-known/openid-configuration",
		"https://i.example/":       "https://i.example/.well-known/oauth-authorization-server https://i.example/.well-known/openid-configuration",
		"https://i.example/a/b":    "https://i.example/.well-known/oauth-authorization-server/a/b https://i.example/.well-known/openid-configuration/a/b https://i.example/a/b/.well-known/openid-configuration",
		"https://i.example:8443/a": "https://i.example:8443/.well-known/oauth-authorization-server/a https://i.example:8443/.well-known/openid-configuration/a https://i.example:8443/a/.well-known/openid-configuration",
	} {
		got, err := oauth.WellKnown(issuer)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v", issuer, got, err)
		}
	}
	for _, bad := range []string{"", "i.example", "https://i.example?x", "https://i.example?", "https://i.example#x", "ftp://i.example"} {
		if _, err := oauth.WellKnown(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}

	// A document of another issuer is passed over, and so is what is no document.
	var s *httptest.Server
	s = serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/oauth-authorization-server/t":
			_, _ = io.WriteString(w, `{"issuer":"https://evil.example","jwks_uri":"https://evil.example/k"}`)
		case "/.well-known/openid-configuration/t":
			_, _ = io.WriteString(w, `<html>welcome</html>`)
		case "/t/.well-known/openid-configuration":
			fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, s.URL+"/t", s.URL+"/k")
		}
	})
	m, err := lenient(t).Discover(t.Context(), s.URL+"/t", oauth.Learned, nil)
	if err != nil || m.JWKSURI != s.URL+"/k" {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestT10 bounds what an answer may be.
func TestT10(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			_, _ = io.CopyN(w, zeros{}, 100<<20)
		case "/slow":
			w.WriteHeader(200)
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte("x")); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(20 * time.Millisecond): // the pace of the peer
				}
			}
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			w.(http.Flusher).Flush()
			z := gzip.NewWriter(w)
			_, _ = io.CopyN(z, zeros{}, 50<<20)
			_ = z.Close()
		case "/header":
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		case "/deep":
			_, _ = io.WriteString(w, strings.Repeat("[", 500_000))
		}
	})
	c := client(t, oauth.Options{AllowHTTP: true, AllowPrivate: true, Timeout: 300 * time.Millisecond})
	for _, path := range []string{"/large", "/slow", "/gzip", "/header"} {
		start := time.Now()
		if _, err := c.Do(t.Context(), oauth.Request{URL: s.URL + path}); err == nil {
			t.Errorf("%s was accepted", path)
		} else if path == "/gzip" && !strings.Contains(err.Error(), "compressed") {
			t.Errorf("%s: %v", path, err)
		} else if strings.Contains(err.Error(), "xxx") {
			t.Errorf("%s: the error holds the answer: %.100s", path, err)
		}
		if d := time.Since(start); d > edgetest.Patience {
			t.Errorf("%s took %s", path, d)
		}
	}
	if r, err := c.Do(t.Context(), oauth.Request{URL: s.URL + "/deep"}); err != nil {
		t.Error(err)
	} else if _, err := oauth.ParseMetadata(r.Body, "x", false); err == nil {
		t.Error("half a million brackets were accepted")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestProxy holds that the proxy of the environment is used, that it may be
// private, and that addresses are judged all the same.
func TestProxy(t *testing.T) {
	var asked atomic.Pointer[string]
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		u := r.URL.String()
		asked.Store(&u)
		_, _ = io.WriteString(w, "through")
	})
	c := client(t, oauth.Options{AllowHTTP: true, Proxy: func(r *http.Request) (*url.URL, error) {
		if r.URL.Hostname() == "direct.example" {
			return nil, nil
		}
		return url.Parse(proxy.URL)
	}})
	r, err := c.Do(t.Context(), oauth.Request{URL: "http://far.example/x"})
	if err != nil || string(r.Body) != "through" || *asked.Load() != "http://far.example/x" {
		t.Errorf("%+v, %v", r, err)
	}
	asked.Store(nil)
	for _, u := range []string{"http://127.0.0.1/", "http://169.254.169.254/", "http://[::1]/", "http://localhost/", "http://2130706433/", "http://0x7f.1/", "http://127.1/", "http://0177.0.0.1/"} {
		if _, err := c.Do(t.Context(), oauth.Request{URL: u}); err == nil || asked.Load() != nil {
			t.Errorf("%s went through the proxy: %v", u, err)
		}
	}
}

// TestParseObject holds that a name is exactly that name, and once.
func TestParseObject(t *testing.T) {
	for _, bad := range []string{``, `null`, `[]`, `1`, `{"a":1,"a":2}`, `{"a":{"b":1,"b":2}}`, `{"a":1}{}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}", `{"a":[[[1]]]}`} {
		if _, err := oauth.ParseObject([]byte(bad), 3); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
	o, err := oauth.ParseObject([]byte(`{"a":"x","A":1,"l":["y"],"m":["y",null],"n":null,"t":true,"s":"true","q":"[[[[{{{{\""}`), 3)
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := o.Text("a"); !ok || a != "x" {
		t.Error("a", a, ok)
	}
	if _, ok := o.Text("A"); ok {
		t.Error("a number is no text")
	}
	if l, ok := o.Texts("l"); !ok || len(l) != 1 {
		t.Error("l", l, ok)
	}
	if _, ok := o.Texts("m"); ok {
		t.Error("null is no text")
	}
	if !o.Has("n") || o.Has("N") || !o.True("t") || o.True("s") || o.True("a") {
		t.Error("members")
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"04N0xi21hshyvBp7I167sbE_bXqyqkAPfefdklMO7wY","y":"UI8exy-C06a7DUnjIdENkxeFtHM4-l_41LqEw9nVgmw","kid":"a"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"oct","k":"AA"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		s, err := oauth.ParseKeys(doc)
		if err == nil && s.Len() == 0 {
			t.Error("a set without keys was accepted")
		}
		if err == nil && !s.Same(s) {
			t.Error("a set is not the same as itself")
		}
	})
}
