package authserver_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// TestLogin is a whole login, a refresh and a revocation, as they should be.
func TestLogin(t *testing.T) {
	onBoth(t, func(t *testing.T, store edge.Store) {
		r := open(t, options{store: store, names: []string{"corp", "hub"}})
		client, got := r.signIn()

		// 1. The access token.
		c := r.claims(got.Access)
		for name, want := range map[string]any{"iss": issuer, "sub": "corp:alice", "aud": audience, "scope": "openid profile", "name": "PLANTED Alice", "email": "PLANTED@example.com"} {
			if c[name] != want {
				t.Errorf("%s of the access token: %v, not %v", name, c[name], want)
			}
		}
		if id, _ := c["client_id"].(string); !strings.HasPrefix(id, "weir1-") || len(id) != 38 {
			t.Errorf("client_id: %q", id)
		}

		// 2. The ID token.
		id := r.claims(got.ID)
		if id["aud"] != client || id["nonce"] != "the-nonce" || id["sub"] != "corp:alice" || id["tsid"] != nil {
			t.Errorf("ID token: %v", id)
		}

		// 3. A refresh, and the end.
		next := r.tokens(r.post("/oauth/token", refreshing(client, got.Refresh)))
		if next.Refresh == got.Refresh || !r.alive(next.Access) {
			t.Error("the refresh brought nothing new, or its grant is dead")
		}
		if w := r.post("/oauth/revoke", url.Values{"token": {next.Refresh}, "client_id": {client}}); w.Code != http.StatusOK || w.Body.Len() > 0 {
			t.Errorf("revoke: status %d: %s", w.Code, w.Body)
		}
		if r.alive(next.Access) {
			t.Error("a revoked grant lives")
		}
		refused(t, "a refresh after revocation", r.post("/oauth/token", refreshing(client, next.Refresh)), 400, "invalid_grant")
	})
}

// TestWhatAuthorizeRefuses is the requests that get an error, by a page or to the client.
func TestWhatAuthorizeRefuses(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(nil)
	scoped, _ := r.register(map[string]any{"scope": "openid"})
	for name, one := range map[string]struct {
		change func(url.Values)
		want   string // the error; "" for a page
	}{
		"O01 no code_challenge":           {func(q url.Values) { q.Del("code_challenge") }, "invalid_request"},
		"O01 the same, foreign redirect":  {func(q url.Values) { q.Del("code_challenge"); q.Set("redirect_uri", "https://evil.example/") }, ""},
		"O02 plain":                       {func(q url.Values) { q.Set("code_challenge_method", "plain") }, "invalid_request"},
		"O02 no method":                   {func(q url.Values) { q.Del("code_challenge_method") }, "invalid_request"},
		"O02 a challenge of 42":           {func(q url.Values) { q.Set("code_challenge", challenge[:42]) }, "invalid_request"},
		"O14 redirect_uri twice":          {func(q url.Values) { q.Add("redirect_uri", callback) }, ""},
		"O14 client_id twice":             {func(q url.Values) { q.Add("client_id", client) }, ""},
		"O14 resource twice":              {func(q url.Values) { q.Add("resource", audience) }, ""},
		"O15 token":                       {func(q url.Values) { q.Set("response_type", "token") }, "unsupported_response_type"},
		"O15 id_token":                    {func(q url.Values) { q.Set("response_type", "id_token") }, "unsupported_response_type"},
		"O15 code token":                  {func(q url.Values) { q.Set("response_type", "code token") }, "unsupported_response_type"},
		"no response_type":                {func(q url.Values) { q.Del("response_type") }, "invalid_request"},
		"a response_mode":                 {func(q url.Values) { q.Set("response_mode", "fragment") }, "invalid_request"},
		"a request object":                {func(q url.Values) { q.Set("request", "x") }, "invalid_request"},
		"a request_uri":                   {func(q url.Values) { q.Set("request_uri", "https://evil.example") }, "invalid_request"},
		"max_age":                         {func(q url.Values) { q.Set("max_age", "60") }, "invalid_request"},
		"prompt=none":                     {func(q url.Values) { q.Set("prompt", "none") }, "login_required"},
		"a state of 2 KiB and a byte":     {func(q url.Values) { q.Set("state", strings.Repeat("s", 2049)) }, "invalid_request"},
		"a state of 9 KiB":                {func(q url.Values) { q.Set("state", strings.Repeat("s", 9<<10)) }, ""},
		"O31 an unknown resource":         {func(q url.Values) { q.Set("resource", "https://other.example/mcp") }, "invalid_target"},
		"O31 a fragment":                  {func(q url.Values) { q.Set("resource", audience+"#x") }, "invalid_target"},
		"O31 another case":                {func(q url.Values) { q.Set("resource", "https://EDGE.example/mcp") }, "invalid_target"},
		"an unknown scope":                {func(q url.Values) { q.Set("scope", "openid root") }, "invalid_scope"},
		"a scope beyond registration":     {func(q url.Values) { q.Set("client_id", scoped) }, "invalid_scope"},
		"no client":                       {func(q url.Values) { q.Del("client_id") }, ""},
		"an unknown client":               {func(q url.Values) { q.Set("client_id", "abc") }, ""},
		"A08 a client that does not open": {func(q url.Values) { q.Set("client_id", client[:len(client)-2]+"AA") }, ""},
		"a document where CIMD is off":    {func(q url.Values) { q.Set("client_id", "https://client.example/id") }, ""},
		"no redirect_uri":                 {func(q url.Values) { q.Del("redirect_uri") }, ""},
	} {
		q := asking(client)
		one.change(q)
		w := r.browser().authorize(q)
		location := w.Header().Get("Location")
		switch {
		case one.want == "" && (w.Code != http.StatusBadRequest || location != ""):
			t.Errorf("%s: status %d, location %q: not a page", name, w.Code, location)
		case one.want == "":
			page(t, name, w)
		case w.Code != http.StatusSeeOther || !strings.HasPrefix(location, callback+"&"):
			t.Errorf("%s: status %d, location %q", name, w.Code, location)
		default:
			to, err := url.Parse(location)
			if err != nil {
				t.Fatal(err)
			}
			got := to.Query()
			if got.Get("error") != one.want || got.Get("iss") != issuer || got.Get("code") != "" { // O21
				t.Errorf("%s: %v", name, got)
			}
			if s := q.Get("state"); len(s) <= 2048 && got.Get("state") != s {
				t.Errorf("%s: state %q", name, got.Get("state"))
			}
		}
	}
	if n := r.store.calls.Load(); n != 0 {
		t.Errorf("the store was called %d times", n)
	}
	if !strings.Contains(r.browser().authorize(url.Values{"client_id": {client[:len(client)-2] + "AA"}, "redirect_uri": {callback}}).Body.String(), "Remove this server from the program and add it again") {
		t.Error("A08: the page does not say what to do")
	}
}

// TestPrompts is a client that wants its user to sign in anew, which upstreams alone can do.
func TestPrompts(t *testing.T) {
	r := open(t, options{names: []string{"corp", "hub"}})
	client, _ := r.register(nil)
	for asked, want := range map[string]string{"": "", "consent": "", "login": "login", "select_account login login create": "login select_account"} {
		q := asking(client)
		q.Set("prompt", asked)
		b := r.browser()
		at := b.answers(form(t, b.authorize(q)), "allow").Header().Get("Location")
		for i, name := range []string{"corp", "hub"} {
			to, err := url.Parse(at)
			if err != nil || to.Path != "/"+name || to.Query().Get("prompt") != want {
				t.Errorf("prompt %q: sent to %s, not to %s with prompt %q", asked, at, name, want)
			}
			if w := b.returns(to.Query().Get("state")); i == 0 {
				at, _ = led(t, w)
			}
		}
	}
}

// page holds a page to what every page has (O23, O39).
func page(t testing.TB, name string, w *httptest.ResponseRecorder) {
	t.Helper()
	h := w.Header()
	for header, want := range map[string]string{"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"} {
		if h.Get(header) != want {
			t.Errorf("%s: %s: %q", name, header, h.Get(header))
		}
	}
	if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("%s: policy %q", name, csp)
	}
	if text := w.Body.String(); !strings.Contains(text, `<html lang="en">`) || strings.Count(text, "<h1>") != 1 || strings.Contains(text, "<script") {
		t.Errorf("%s: %s", name, text)
	}
}

// TestStateMayBeAbsent: PKCE and iss stand in for it, and what there is comes back byte for byte.
func TestStateMayBeAbsent(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(nil)
	for _, state := range []string{"", "-", "ü&=?#%20+\"<", "x"} {
		b, q := r.browser(), asking(client)
		if state == "-" {
			q.Del("state")
		} else {
			q.Set("state", state)
		}
		to, got := led(t, b.returns(b.allows(q)))
		if got.Get("code") == "" || got.Get("iss") != issuer || got.Has("state") != q.Has("state") || got.Get("state") != q.Get("state") || !strings.HasPrefix(to, callback+"&") {
			t.Errorf("state %q: %v", state, got)
		}
	}
}

// TestConsentPage is O22 to O24, O29: what a user sees before anything else happens.
func TestConsentPage(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(map[string]any{"client_name": "<script>alert(1)</script>\u202eevil\u200b", "redirect_uris": []string{callback, "http://127.0.0.1/cb", "cursor://x/y"}})
	b := r.browser()
	w := b.authorize(asking(client))
	text := w.Body.String()
	page(t, "consent", w)
	for _, want := range []string{"&lt;script&gt;alert(1)&lt;/script&gt;evil</strong>", "client.example", "nobody vouches for it", "<code>openid</code>", "<li>corp</li>", ">Allow<", ">Deny<"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q: %s", want, text)
		}
	}
	if r.store.calls.Load() != 0 || len(r.providers[0].sent) != 0 {
		t.Error("O22: something happened before the user agreed")
	}
	for name := range b.cookies {
		if !strings.HasPrefix(name, "__Host-weir-form-") {
			t.Errorf("O23: cookie %s before approval", name)
		}
	}
	for _, redirect := range []string{"http://127.0.0.1:9999/cb", "cursor://x/y"} {
		q := asking(client)
		q.Set("redirect_uri", redirect)
		if text := r.browser().authorize(q).Body.String(); !strings.Contains(text, "a program on this computer") || !strings.Contains(text, "could take its place") {
			t.Errorf("O29: %s: no warning: %s", redirect, text)
		}
	}
}

// TestConsentAnswers is O23, O40, A04: only the browser that saw the page answers it.
func TestConsentAnswers(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(nil)
	mine, other := r.browser(), r.browser()
	mine.authorize(asking(client)) // another form of the same browser
	sealed := form(t, mine.authorize(asking(client)))
	foreign := form(t, other.authorize(asking(client)))
	for name, w := range map[string]*httptest.ResponseRecorder{
		"A04 the attacker's own form":    mine.answers(foreign, "allow"),
		"A04 another site":               mine.answers(sealed, "allow", "Sec-Fetch-Site", "cross-site", "Origin", issuer),
		"A04 a site beside":              mine.answers(sealed, "allow", "Sec-Fetch-Site", "same-site"),
		"an Origin of another":           mine.answers(sealed, "allow", "Origin", "https://evil.example"),
		"neither of the two":             mine.answers(sealed, "allow", "X-None", "1"),
		"no form":                        mine.answers("", "allow"),
		"O23 a form that is not ours":    mine.answers(strings.Repeat("A", 200), "allow"),
		"a client id in place of a form": mine.answers(strings.TrimPrefix(client, "weir1."), "allow"),
	} {
		if w.Code != http.StatusForbidden || strings.Contains(w.Header().Get("Set-Cookie"), "login") {
			t.Errorf("%s: status %d, cookie %q", name, w.Code, w.Header().Get("Set-Cookie"))
		}
	}
	if n := r.store.calls.Load(); n != 0 {
		t.Errorf("the store was called %d times", n)
	}
	for _, header := range [][]string{{"Sec-Fetch-Site", "same-origin", "Origin", "null"}, {"Origin", "null"}, {"Origin", issuer}} {
		if w := mine.answers(sealed, "allow", header...); w.Code != http.StatusSeeOther {
			t.Errorf("%v: status %d", header, w.Code)
		}
	}
	r.clock.moves(11 * 60e9)
	if w := mine.answers(sealed, "allow"); w.Code != http.StatusForbidden {
		t.Errorf("a late form: status %d", w.Code)
	}
}

// TestDeny sends the user back with access_denied, and keeps nothing.
func TestDeny(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(nil)
	b := r.browser()
	to, got := led(t, b.answers(form(t, b.authorize(asking(client))), "deny"))
	if got.Get("error") != "access_denied" || got.Get("iss") != issuer || got.Get("state") != "the state & more" || !strings.HasPrefix(to, callback+"&") {
		t.Errorf("deny: %v", got)
	}
	if n := r.store.calls.Load(); n != 0 {
		t.Errorf("the store was called %d times", n)
	}
}

// TestCallback is O16, O18, O40: a state is used once, soon, and by its own browser.
func TestCallback(t *testing.T) {
	onBoth(t, func(t *testing.T, store edge.Store) {
		r := open(t, options{store: store})
		client, _ := r.register(nil)
		b := r.browser()
		fails := func(name string, w *httptest.ResponseRecorder) {
			t.Helper()
			if w.Code != http.StatusBadRequest || w.Header().Get("Location") != "" {
				t.Errorf("%s: status %d", name, w.Code)
			}
		}
		fails("no state", b.get("/oauth/callback?code=x"))
		fails("a wrong state", b.returns(strings.Repeat("A", 43)))
		fails("a state of 8 KiB", b.returns(strings.Repeat("A", 8<<10)))
		fails("state twice", b.get("/oauth/callback?code=x&state=a&state=b"))
		state := b.allows(asking(client))
		fails("O40 another browser", r.browser().returns(state))
		fails("which spent it", b.returns(state))
		state = b.allows(asking(client))
		_, got := led(t, b.returns(state))
		if got.Get("code") == "" {
			t.Errorf("no code: %v", got)
		}
		fails("a state again", b.returns(state))
		logins := 0
		for name := range b.cookies {
			if strings.Contains(name, "login") {
				logins++
			}
		}
		if logins != 1 { // of the login that another browser spoilt
			t.Errorf("%d login cookies are left", logins)
		}
		if w := b.get("/oauth/callback/other?state=" + state); w.Code != http.StatusNotFound {
			t.Errorf("another path: status %d", w.Code)
		}
	})
}

// TestTabs is A05 without a browser's part: 20 logins of one browser, finished in another order.
func TestTabs(t *testing.T) {
	r := open(t, options{})
	b := r.browser()
	var states []string
	var clients []string
	for range 20 {
		client, _ := r.register(nil)
		b.authorize(asking(client)) // reloaded once
		clients, states = append(clients, client), append(states, b.allows(asking(client)))
	}
	for i := len(states) - 1; i >= 0; i-- {
		_, got := led(t, b.returns(states[i]))
		r.tokens(r.post("/oauth/token", redeeming(clients[i], got.Get("code"))))
	}
}
