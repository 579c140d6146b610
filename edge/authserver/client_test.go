package authserver_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/oauth"
)

// TestRedirects is O11 to O13: what is matched, and what may be registered.
func TestRedirects(t *testing.T) {
	registered := []string{"https://good.example/cb", "https://good.example/q?a=1", "http://127.0.0.1/cb", "http://localhost:3000/cb", "http://[::1]/cb", "com.example.app:/cb", "cursor://anysphere/cb", "https://127.0.0.1/cb"}
	for _, text := range registered {
		if !authserver.MayRegister(text) || !authserver.MatchRedirect(registered, text) {
			t.Errorf("%s: it does not match itself", text)
		}
	}
	for _, text := range []string{"http://127.0.0.1:1/cb", "http://127.0.0.1:65535/cb", "http://localhost/cb", "http://localhost:49152/cb", "http://[::1]:8080/cb"} {
		if !authserver.MatchRedirect(registered, text) {
			t.Errorf("O12: %s: it does not match", text)
		}
	}
	for _, text := range []string{
		"https://good.example/cb/x", "https://good.example/cb?x", "https://good.example/cb?x=1", "https://good.example/cb#f", "https://good.example/cb/", "https://GOOD.example/cb",
		"https://good.example/%2e%2e/cb", "https://good.example/x/../cb", "https://good@evil.example/cb", "https://good.example@evil.example/cb", "https://good.evil/cb", "//evil.example/cb",
		"https:\\\\good.example/cb", "https://good.example\\@evil.example/cb", "https://gооd.example/cb", "https://good.example:443/cb", "https://good.example:8443/cb", "http://good.example/cb",
		"https://good.example/CB", "https://good.example/cb ", " https://good.example/cb", "https://good.example/c%62", "https://good.example/q?a=2", "https://good.example/q?a=1&b=2", "",
		"http://127.0.0.1.evil.example/cb", "http://127.0.0.1:x/cb", "http://127.0.0.1:/cb", "http://127.0.0.1:80@evil.example/cb", "http://127.0.0.2/cb", "http://localhost.evil.example/cb",
		"http://[::1]:1/other", "https://localhost:3000/cb", "http://127.1/cb", "http://0x7f.1/cb", "http://[::ffff:127.0.0.1]/cb", "com.example.app:/cb2", "com.example.app://cb", "cursor://evil/cb",
		"http://127.0.0.1:99999/cb", "http://127.0.0.1:-1/cb", "http://127.0.0.1:1%2fevil/cb",
	} {
		if authserver.MatchRedirect(registered, text) {
			t.Errorf("O11: %q matches", text)
		}
	}
	for _, text := range []string{
		"javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "file:///etc/passwd", "intent://x#Intent;end", "intent:x", "blob:x", "about:blank", "ws://x/", "wss://x/", "ftp://x/", "mailto:a@b.example",
		"http://good.example/cb", "https:///cb", "https:cb", "myapp://cb", "*://x/", "https://*.example/cb", "https://u@x.example/", "https://x.example/#", "vbscript:x", "x.y:", "https://x.example/\x00", "https://x.example/" + strings.Repeat("x", 512),
	} {
		if authserver.MayRegister(text) {
			t.Errorf("O13: %q may be registered", text)
		}
	}
	r := open(t, options{})
	for _, text := range []string{"javascript:alert(1)", "data:text/html,x", "file:///x", "intent://x"} {
		refused(t, "O13 "+text, r.registers(map[string]any{"redirect_uris": []string{text}}), 400, "invalid_redirect_uri")
	}
	for redirect, want := range map[string]string{"https://x.example": "https://x.example?a=b+%26", "https://x.example/?": "https://x.example/?a=b+%26", "https://x.example/?c=%20d": "https://x.example/?c=%20d&a=b+%26"} {
		if got := authserver.WithQuery(redirect, "a", "b &"); got != want {
			t.Errorf("%s: %s", redirect, got)
		}
	}
}

// TestRegister is O25, O26, A19: what is kept, and what is refused.
func TestRegister(t *testing.T) {
	r := open(t, options{config: func(c *authserver.Spec) { c.Baseline = []string{"mail.read"} }})
	w := r.registers(map[string]any{"scope": "openid", "jwks_uri": "http://10.0.0.1/", "logo_uri": "http://10.0.0.1/", "client_uri": "https://client.example", "unknown": 1})
	got := answer(t, w)
	if w.Code != http.StatusCreated || got["scope"] != "openid mail.read" || got["token_endpoint_auth_method"] != "none" || got["client_name"] != "Test program" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("status %d: %v", w.Code, got)
	}
	for _, name := range []string{"jwks_uri", "logo_uri", "unknown", "client_secret"} {
		if _, ok := got[name]; ok {
			t.Errorf("%s came back", name)
		}
	}
	id, _ := got["client_id"].(string)
	q := asking(id)
	q.Set("scope", "openid mail.read") // the baseline may be asked for
	r.code(q)
	unknown := answer(t, r.registers(map[string]any{"scope": "root openid mcp:tools"}))
	if unknown["scope"] != "openid mail.read" {
		t.Errorf("scopes that do not exist: %v", unknown["scope"])
	}
	id, _ = unknown["client_id"].(string)
	q = asking(id)
	q.Set("scope", fmt.Sprint(unknown["scope"]))
	r.code(q)
	if _, secret := r.register(map[string]any{"token_endpoint_auth_method": "client_secret_basic"}); len(secret) != 43 {
		t.Errorf("secret %q", secret)
	}

	// What an extension would grant is left out, and the answer says what was kept.
	beyond := answer(t, r.registers(map[string]any{"grant_types": []string{"authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer"}}))
	if kept := fmt.Sprint(beyond["grant_types"]); kept != "[authorization_code refresh_token]" {
		t.Errorf("grant types kept: %s", kept)
	}

	many := make([]string, 11)
	for i := range many {
		many[i] = fmt.Sprintf("https://x.example/%d", i)
	}
	for name, one := range map[string]struct {
		change map[string]any
		want   string
	}{
		"no redirect_uris":        {map[string]any{"redirect_uris": []string{}}, "invalid_redirect_uri"},
		"11 redirect_uris":        {map[string]any{"redirect_uris": many}, "invalid_redirect_uri"},
		"redirect_uris of 513":    {map[string]any{"redirect_uris": []string{"https://x.example/" + strings.Repeat("x", 495)}}, "invalid_redirect_uri"},
		"a name of 65":            {map[string]any{"client_name": strings.Repeat("n", 65)}, "invalid_client_metadata"},
		"a URI of 257":            {map[string]any{"client_uri": "https://x.example/" + strings.Repeat("n", 239)}, "invalid_client_metadata"},
		"a URI that is none":      {map[string]any{"client_uri": "javascript:x"}, "invalid_client_metadata"},
		"a scope of 513":          {map[string]any{"scope": strings.Repeat("n", 513)}, "invalid_client_metadata"},
		"O26 client_credentials":  {map[string]any{"grant_types": []string{"client_credentials"}}, "invalid_client_metadata"},
		"and client_credentials":  {map[string]any{"grant_types": []string{"authorization_code", "client_credentials"}}, "invalid_client_metadata"},
		"an extension alone":      {map[string]any{"grant_types": []string{"urn:ietf:params:oauth:grant-type:jwt-bearer"}}, "invalid_client_metadata"},
		"refresh_token alone":     {map[string]any{"grant_types": []string{"refresh_token"}}, "invalid_client_metadata"},
		"response type token":     {map[string]any{"response_types": []string{"token"}}, "invalid_client_metadata"},
		"private_key_jwt":         {map[string]any{"token_endpoint_auth_method": "private_key_jwt"}, "invalid_client_metadata"},
		"a name that is a number": {map[string]any{"client_name": 1}, "invalid_client_metadata"},
		"A19 all of them":         {map[string]any{"client_name": strings.Repeat("n", 64), "client_uri": "https://x.example/" + strings.Repeat("n", 238), "scope": strings.Repeat("n", 512), "redirect_uris": []string{"https://x.example/" + strings.Repeat("x", 494), "https://x.example/" + strings.Repeat("x", 50)}}, "invalid_client_metadata"},
	} {
		refused(t, name, r.registers(one.change), 400, one.want)
	}
	for name, text := range map[string]string{"no JSON": "x", "an array": "[]", "twice": `{"redirect_uris":["https://x.example/"],"redirect_uris":["https://y.example/"]}`, "O25 17 KiB": `{"x":"` + strings.Repeat("x", 17<<10) + `"}`, "deep": strings.Repeat("[", 1e4)} {
		refused(t, name, r.registersText(text), 400, "invalid_client_metadata")
	}

	// A19: at the bound of the sum, of whatever bytes, an id fits.
	for _, c := range []string{"n", "\u0001", "\""} {
		redirects := []string{"https://x.example/" + strings.Repeat("x", 494), "https://x.example/" + strings.Repeat("x", 494)}
		sum := 1024 + 64
		id, _ := r.register(map[string]any{"client_name": strings.Repeat(c, 64), "redirect_uris": redirects, "client_uri": "https://x.example/" + strings.Repeat("n", 1400-sum-18-100), "scope": strings.Repeat("s", 100)})
		if len(id) > 2048 || len(id) < 1800 {
			t.Errorf("A19: an id of %d", len(id))
		}
		refused(t, "A19 one byte more", r.registers(map[string]any{"client_name": strings.Repeat("n", 64), "redirect_uris": redirects, "client_uri": "https://x.example/" + strings.Repeat("n", 1400-sum-18-100), "scope": strings.Repeat("s", 101)}), 400, "invalid_client_metadata")
	}
	if n := r.store.calls.Load(); n > 20 {
		t.Errorf("the store was called %d times", n)
	}
}

// TestLimits is O25, A17: what one address may ask for.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, options{})
		client, _ := r.register(nil)
		from := func(remote, path string) *httptest.ResponseRecorder {
			req := httptest.NewRequest(http.MethodGet, path, nil)
			if strings.HasSuffix(path, "register") {
				req = httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"redirect_uris":["https://x.example/"]}`))
				req.Header.Set("Content-Type", "application/json")
			}
			req.RemoteAddr = remote
			return r.do(req)
		}
		for path, burst := range map[string]int{"/oauth/register": 5, "/oauth/authorize?" + asking(client).Encode(): 50, "/oauth/callback?state=x": 50} {
			for i := range burst + 1 {
				w := from("198.51.100.7", path)
				if limited := w.Code == http.StatusTooManyRequests; limited != (i == burst) || limited && w.Header().Get("Retry-After") != "1" {
					t.Fatalf("%.20s: request %d: status %d, Retry-After %q", path, i+1, w.Code, w.Header().Get("Retry-After"))
				}
			}
			if w := from("198.51.100.8", path); w.Code == http.StatusTooManyRequests {
				t.Errorf("%.20s: another address is limited", path)
			}
			time.Sleep(time.Second)
			if w := from("198.51.100.7", path); w.Code == http.StatusTooManyRequests {
				t.Errorf("%.20s: a second later it is limited", path)
			}
		}
		codes := map[int]int{}
		for i := range 12 {
			codes[from(fmt.Sprintf("2001:db8:0:1::%x", i+1), "/oauth/register").Code]++
		}
		if codes[429] != 7 {
			t.Errorf("one network of IPv6: %v", codes)
		}
		if n := r.store.calls.Load(); n > 2 {
			t.Errorf("A17: the store was called %d times", n)
		}
	})
}

// TestA17: 10,000 requests wait at most; those under way finish.
func TestA17(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(nil)
	first := r.browser()
	state := first.allows(asking(client))
	b := r.browser()
	sealed := form(t, b.authorize(asking(client)))
	status := 0
	for range 10_000 {
		delete(b.cookies, "x")
		for name := range b.cookies { // a browser would have so many only with an attacker's help
			if strings.Contains(name, "login") {
				delete(b.cookies, name)
			}
		}
		status = b.answers(sealed, "allow").Code
		if status != http.StatusSeeOther {
			break
		}
	}
	if status != http.StatusServiceUnavailable {
		t.Errorf("status %d", status)
	}
	if _, got := led(t, first.returns(state)); got.Get("code") == "" {
		t.Error("a login under way did not finish")
	}
	if status = b.answers(sealed, "allow").Code; status != http.StatusSeeOther {
		t.Errorf("after one has left: status %d", status)
	}
}

// TestWaitingOfOneAddress: one address that stays within its limits takes an eighth of the requests
// that may wait, and has it back when its users return. Nobody else is kept from signing in.
func TestWaitingOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, options{clock: &clock{}})
		r.clock.stops() // no request ends by itself
		client, _ := r.register(nil)
		b := r.browser()
		sealed := form(t, b.authorize(asking(client)))
		allow := func(from string) *httptest.ResponseRecorder {
			req := httptest.NewRequest(http.MethodPost, "/oauth/consent", strings.NewReader(url.Values{"form": {sealed}, "answer": {"allow"}}.Encode()))
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set("Sec-Fetch-Site", "same-origin")
			req.RemoteAddr = from
			for name := range b.cookies { // of the logins before: a browser drops the oldest
				if strings.Contains(name, "login") {
					delete(b.cookies, name)
				}
			}
			return b.do(req)
		}
		n, state := 0, ""
		login := map[string]string{} // the cookies of the last login
		for {
			w := allow(fmt.Sprintf("[2001:db8::%x]:1", n+1)) // one network
			if w.Code == http.StatusTooManyRequests {
				time.Sleep(time.Second)
				continue
			}
			if w.Code != http.StatusSeeOther || n == 2000 {
				if w.Code != http.StatusServiceUnavailable || n != 1250 {
					t.Errorf("request %d: status %d", n+1, w.Code)
				}
				break
			}
			n, state, login = n+1, stateOf(t, w), maps.Clone(b.cookies)
		}
		if w := allow("198.51.100.8:1"); w.Code != http.StatusSeeOther {
			t.Errorf("another address: status %d", w.Code)
		}
		b.cookies = maps.Clone(login)
		if _, got := led(t, b.returns(state)); got.Get("code") == "" {
			t.Error("a login under way did not finish")
		}
		b.cookies = login // the form's is among them
		time.Sleep(time.Second)
		if w := allow("[2001:db8::1]:1"); w.Code != http.StatusSeeOther {
			t.Errorf("after one has returned: status %d", w.Code)
		}
	})
}

// TestMetadata is O33: the documents and where they are.
func TestMetadata(t *testing.T) {
	for _, path := range []string{"", "/tenant/a"} {
		r := open(t, options{config: func(c *authserver.Spec) { c.Issuer, c.Base = issuer+path, issuer+path }})
		for _, at := range []string{"/.well-known/oauth-authorization-server" + path, "/.well-known/openid-configuration" + path, path + "/.well-known/openid-configuration"} {
			w := r.get(at)
			doc := answer(t, w)
			if doc["issuer"] != issuer+path || fmt.Sprint(doc["code_challenge_methods_supported"]) != "[S256]" || doc["authorization_response_iss_parameter_supported"] != true ||
				doc["token_endpoint"] != issuer+path+"/oauth/token" || doc["client_id_metadata_document_supported"] != false {
				t.Errorf("%s: %v", at, doc)
			}
			if _, openid := doc["subject_types_supported"]; openid != strings.Contains(at, "openid") {
				t.Errorf("%s: %v", at, doc)
			}
			if h := w.Header(); h.Get("Cache-Control") != "public, max-age=300" || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Strict-Transport-Security") == "" {
				t.Errorf("%s: %v", at, h)
			}
		}
		bad := []string{"/.well-known/oauth-authorization-server" + path + "/", "/.well-known/oauth-authorization-server" + path + "/x"}
		if path != "" {
			bad = append(bad, path+"/.well-known/oauth-authorization-server")
		}
		for _, at := range bad {
			if w := r.get(at); w.Code != http.StatusNotFound {
				t.Errorf("%s: status %d", at, w.Code)
			}
		}
		keys := r.get(path + "/.well-known/jwks.json")
		if _, err := oauth.ParseKeys(keys.Body.Bytes()); err != nil || strings.Contains(keys.Body.String(), `"d"`) {
			t.Errorf("keys: %v: %s", err, keys.Body)
		}
		w := r.do(httptest.NewRequest(http.MethodOptions, path+"/oauth/token", nil))
		if w.Code != http.StatusNoContent || w.Header().Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("preflight: status %d", w.Code)
		}
		if w := r.do(httptest.NewRequest(http.MethodOptions, path+"/oauth/authorize", nil)); w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Error("authorize is for all sites")
		}
		if w := r.get(path + "/oauth/token"); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("GET token: status %d", w.Code)
		}
	}
}

// documents serves metadata documents over TLS.
type documents struct {
	*httptest.Server
	hits atomic.Int64
	text func(id string) (kind, text string, status int)
}

func newDocuments(t *testing.T) (*documents, edge.Reach) {
	d := &documents{}
	d.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.hits.Add(1)
		kind, text, status := d.text(d.URL + r.URL.RequestURI())
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Location", "https://evil.example/")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(d.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.Certificate().Raw})
	d.text = func(id string) (string, string, int) { return "application/json", sound(id, nil), 200 }
	return d, edge.Reach{CAs: ca, DevLoopback: true}
}

func sound(id string, more map[string]any) string {
	doc := map[string]any{"client_id": id, "client_name": "Documented", "redirect_uris": []string{callback}, "grant_types": []string{"authorization_code", "refresh_token"}}
	for k, v := range more {
		if doc[k] = v; v == nil {
			delete(doc, k)
		}
	}
	text, _ := json.Marshal(doc)
	return string(text)
}

func cimd(c *authserver.Spec) { c.CIMD = &authserver.CIMD{Life: 5 * time.Minute, Size: 256} }

// TestCIMD is O27 and A07: clients by their documents.
func TestCIMD(t *testing.T) {
	d, reach := newDocuments(t)
	r := open(t, options{config: cimd, reach: reach})
	id := d.URL + "/client.json?v=1"
	w := r.browser().authorize(asking(id))
	if text := w.Body.String(); w.Code != 200 || !strings.Contains(text, "described at <strong>127.0.0.1</strong>") {
		t.Errorf("status %d: %s", w.Code, text)
	}
	got := r.tokens(r.post("/oauth/token", redeeming(id, r.code(asking(id)))))
	if c := r.claims(got.Access); c["client_id"] != id {
		t.Errorf("client_id: %v", c["client_id"])
	}
	hits := d.hits.Load()
	d.text = func(string) (string, string, int) { return "text/html", "", 404 } // A07
	got = r.tokens(r.post("/oauth/token", refreshing(id, got.Refresh)))
	r.code(asking(id)) // from the cache
	if d.hits.Load() != hits {
		t.Error("A07: a refresh fetched the document")
	}
	r.clock.moves(6 * time.Minute)
	if w := r.browser().authorize(asking(id)); w.Code != 400 {
		t.Errorf("A07: after the cache: status %d", w.Code)
	}
	if r.browser().authorize(asking(id)); d.hits.Load() != hits+1 {
		t.Errorf("a failure was fetched again")
	}
	r.tokens(r.post("/oauth/token", refreshing(id, got.Refresh)))

	for name, text := range map[string]func(id string) (string, string, int){
		"another client_id": func(string) (string, string, int) { return "application/json", sound("https://x.example/y", nil), 200 },
		"a redirect":        func(id string) (string, string, int) { return "application/json", sound(id, nil), 302 },
		"10 KiB and more": func(id string) (string, string, int) {
			return "application/json", sound(id, map[string]any{"x": strings.Repeat("x", 10<<10)}), 200
		},
		"text/html": func(id string) (string, string, int) { return "text/html", sound(id, nil), 200 },
		"no redirect_uris": func(id string) (string, string, int) {
			return "application/json", sound(id, map[string]any{"redirect_uris": nil}), 200
		},
		"a client_secret": func(id string) (string, string, int) {
			return "application/json", sound(id, map[string]any{"client_secret": "x"}), 200
		},
		"a method of a secret": func(id string) (string, string, int) {
			return "application/json", sound(id, map[string]any{"token_endpoint_auth_method": "client_secret_post"}), 200
		},
		"201":     func(id string) (string, string, int) { return "application/json", sound(id, nil), 201 },
		"no JSON": func(string) (string, string, int) { return "application/json", "x", 200 },
	} {
		r := open(t, options{config: cimd, reach: reach})
		d.text = text
		if w := r.browser().authorize(asking(id)); w.Code != 400 || w.Header().Get("Location") != "" {
			t.Errorf("O27 %s: status %d", name, w.Code)
		}
	}
	for _, bad := range []string{"http://x.example/y", "https://x.example", "https://x.example/", "https://x.example/y#f", "https://u@x.example/y", "https://x.example/a/../y", "https://x.example/%2e%2e/y", "https://x.example/./y", "https://x.example/" + strings.Repeat("y", 2048), "https:///y"} {
		if authserver.IsDocumentURL(bad) && strings.HasPrefix(bad, "https") {
			t.Errorf("O27: %.40s is taken", bad)
		}
		if w := r.browser().authorize(asking(bad)); w.Code != 400 {
			t.Errorf("O27: %.40s: status %d", bad, w.Code)
		}
	}
	r = open(t, options{config: cimd})
	before := d.hits.Load()
	for _, inward := range []string{d.URL + "/x", "https://10.0.0.1/x", "https://169.254.169.254/x", "https://localhost/x"} {
		if w := r.browser().authorize(asking(inward)); w.Code != 400 {
			t.Errorf("O27: %s: status %d", inward, w.Code)
		}
	}
	if d.hits.Load() != before {
		t.Error("O27: an address inside was asked")
	}
}

// TestDocumentsForAllServers: a document is written for all authorization servers. What it lists
// beside what is served here is left out, and the log says why one is not used.
func TestDocumentsForAllServers(t *testing.T) {
	d, reach := newDocuments(t)
	for name, one := range map[string]struct {
		more map[string]any
		logs string // "" for a document that serves
	}{
		"an editor's": {more: map[string]any{
			"grant_types": []string{"authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"}, "response_types": []string{"code"},
			"token_endpoint_auth_method": "none", "application_type": "native",
		}},
		"a chat's":             {more: map[string]any{"grant_types": []string{"urn:ietf:params:oauth:grant-type:jwt-bearer", "authorization_code", "refresh_token"}, "response_types": []string{"code", "none"}}},
		"another address":      {more: map[string]any{"redirect_uris": []string{"odd://callback", callback}}},
		"no code":              {map[string]any{"grant_types": []string{"client_credentials", "refresh_token"}}, "grant_types: "},
		"no response type":     {map[string]any{"response_types": []string{"token"}}, "response_types: "},
		"no address of use":    {map[string]any{"redirect_uris": []string{"javascript:x", "odd://callback"}}, "redirect_uris[1]: "},
		"a key of its own":     {map[string]any{"token_endpoint_auth_method": "private_key_jwt"}, "token_endpoint_auth_method: only none is served"},
		"a secret in a file":   {map[string]any{"token_endpoint_auth_method": "client_secret_post"}, "token_endpoint_auth_method: only none is served"},
		"another's client_id":  {map[string]any{"client_id": "https://x.example/y"}, "client_id: "},
		"a secret that is not": {map[string]any{"client_secret": "planted-secret"}, "client_secret: "},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, options{config: cimd, reach: reach})
			d.text = func(id string) (string, string, int) { return "application/json", sound(id, one.more), 200 }
			id := d.URL + "/client.json"
			if one.logs != "" {
				w := r.browser().authorize(asking(id))
				if logs := r.log.String(); w.Code != http.StatusBadRequest || !strings.Contains(logs, one.logs) || strings.Contains(logs, "planted-secret") {
					t.Errorf("status %d; log: %s", w.Code, logs)
				}
				return
			}
			if got := r.tokens(r.post("/oauth/token", redeeming(id, r.code(asking(id))))); got.Refresh == "" {
				t.Error("it has no refresh token")
			}
			if q := asking(id); name == "another address" {
				q.Set("redirect_uri", "odd://callback")
				if w := r.browser().authorize(q); w.Code != http.StatusBadRequest || w.Header().Get("Location") != "" {
					t.Errorf("an address that nobody may register: status %d", w.Code)
				}
			}
		})
	}
}

// TestO28: many documents cost few fetches, and none for a request that is wrong anyhow.
func TestO28(t *testing.T) {
	d, reach := newDocuments(t)
	r := open(t, options{config: func(c *authserver.Spec) { cimd(c); c.CIMD.Size = 4 }, reach: reach})
	q := asking(d.URL + "/wrong")
	q.Set("code_challenge_method", "plain")
	if w := r.browser().authorize(q); w.Code != 400 || d.hits.Load() != 0 {
		t.Errorf("a wrong request: status %d, %d fetches", w.Code, d.hits.Load())
	}
	busy := 0
	began := time.Now()
	for i := range 200 {
		if w := r.browser().authorize(asking(fmt.Sprintf("%s/%d", d.URL, i))); w.Code == http.StatusServiceUnavailable {
			busy++
		}
	}
	if most := int64(21 + 5*time.Since(began).Seconds()); d.hits.Load() > most || busy == 0 {
		t.Errorf("%d fetches (at most %d), %d told to wait", d.hits.Load(), most, busy)
	}
	for _, path := range []string{"/oauth/token", "/oauth/revoke"} {
		before := d.hits.Load()
		r.post(path, redeeming(d.URL+"/never", "x"))
		if d.hits.Load() != before {
			t.Errorf("%s fetched a document", path)
		}
	}
}

// TestDocumentsOfOneAddress: who asks for many documents is told to wait, and keeps nobody else
// from theirs.
func TestDocumentsOfOneAddress(t *testing.T) {
	d, reach := newDocuments(t)
	r := open(t, options{config: cimd, reach: reach})
	asks := func(from, id string) int {
		req := httptest.NewRequest(http.MethodGet, "/oauth/authorize?"+asking(id).Encode(), nil)
		req.RemoteAddr = from
		return r.do(req).Code
	}
	statuses, began := map[int]int{}, time.Now()
	for i := range 40 {
		statuses[asks("10.9.9.9:1", fmt.Sprintf("%s/greedy/%d", d.URL, i))]++
	}
	if most := 6 + int(time.Since(began).Seconds()); statuses[http.StatusOK] < 5 || statuses[http.StatusOK] > most || statuses[http.StatusOK]+statuses[http.StatusTooManyRequests] != 40 {
		t.Errorf("statuses of one who asks for 40, of which %d may be had: %v", most, statuses)
	}
	if status := asks("10.9.9.9:1", d.URL+"/greedy/0"); status != http.StatusOK {
		t.Errorf("a document in the cache: status %d", status)
	}
	for i := range 5 {
		if status := asks(fmt.Sprintf("10.9.8.%d:1", i), fmt.Sprintf("%s/%d", d.URL, i)); status != http.StatusOK {
			t.Errorf("another address: status %d", status)
		}
	}
}

// TestWaitsForDocuments: who waits for a document that does not come takes half of the places of
// an authorization server, however many addresses ask for it.
func TestWaitsForDocuments(t *testing.T) {
	d, reach := newDocuments(t)
	hold := make(chan struct{})
	d.text = func(id string) (string, string, int) {
		<-hold
		return "application/json", sound(id, nil), 200
	}
	r := open(t, options{config: cimd, reach: reach})
	var statuses [600]atomic.Int64
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			req := httptest.NewRequest(http.MethodGet, "/oauth/authorize?"+asking(d.URL+"/slow").Encode(), nil)
			req.RemoteAddr = fmt.Sprintf("10.7.%d.1:1", i)
			statuses[r.do(req).Code].Add(1)
		})
	}
	edgetest.Until(t, "refusals while the document does not come", func() bool { return statuses[http.StatusServiceUnavailable].Load() == 32 })
	close(hold)
	all.Wait()
	if n := statuses[http.StatusOK].Load(); n != 32 {
		t.Errorf("%d of those who waited were answered", n)
	}
	if n := d.hits.Load(); n != 1 {
		t.Errorf("the document was fetched %d times", n)
	}
}

// TestFaultyFetch: a fault in a fetch costs that fetch alone, and nobody waits for it for ever.
func TestFaultyFetch(t *testing.T) {
	d, reach := newDocuments(t)
	r := open(t, options{config: cimd, reach: reach})
	r.FaultyFetches()
	if w := r.browser().authorize(asking(d.URL + "/x")); w.Code != http.StatusBadRequest {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// TestVisible is O24, A18: names as they are shown.
func TestVisible(t *testing.T) {
	for name, want := range map[string]string{
		"Claude": "Claude", "a\u202eb\u200bc\u2066d\ufeff": "abcd", " a \n\t b ": "a b", "\x00\x1b[31mred": "[31mred", "e\u0301": "é", strings.Repeat("x", 100): strings.Repeat("x", 64), "\xff": "�",
		"\u3164\u2800": "", "a" + strings.Repeat("\u0308\u0323", 50): "", "\U000e0041x": "x",
	} {
		got := authserver.Visible(name)
		if want != "" && got != want || utf8.RuneCountInString(got) > 64 {
			t.Errorf("%q: %q", name, got)
		}
	}
	if got := authserver.Visible("a" + strings.Repeat("\u0320", 50)); utf8.RuneCountInString(got) > 3 {
		t.Errorf("a tower of marks: %q", got)
	}
	if got := authserver.Visible(strings.Repeat("x", 9<<10)); len(got) != 64 {
		t.Errorf("9 KiB: %d", len(got))
	}
}

// TestO30: no payload of a list leads off the registered addresses.
func TestO30(t *testing.T) {
	text, err := os.ReadFile("testdata/openredirects.txt")
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, options{})
	client, _ := r.register(nil)
	n := 0
	for line := range strings.Lines(string(text)) {
		payload := strings.TrimRight(line, "\r\n")
		if n++; authserver.MatchRedirect([]string{callback}, payload) {
			t.Errorf("%q matches", payload)
		}
		q := asking(client)
		q.Set("redirect_uri", payload)
		if w := r.browser().authorize(q); w.Header().Get("Location") != "" {
			t.Errorf("%q: location %q", payload, w.Header().Get("Location"))
		}
		q = asking(client)
		q.Set("state", payload)
		q.Set("rd", payload)
		q.Set("prompt", "none")
		if to := r.browser().authorize(q).Header().Get("Location"); !strings.HasPrefix(to, callback+"&") {
			t.Errorf("state %q: location %q", payload, to)
		}
	}
	if n < 500 {
		t.Errorf("only %d payloads", n)
	}
}
