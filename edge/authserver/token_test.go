package authserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/kv"
)

// TestCode is O03 to O05, O07: what a code is refused for, and what spends it.
func TestCode(t *testing.T) {
	onBoth(t, func(t *testing.T, store edge.Store) {
		r := open(t, options{store: store})
		client, _ := r.register(nil)
		other, _ := r.register(nil)
		for name, one := range map[string]struct {
			change func(url.Values)
			want   string
			spends bool
		}{
			"O03 no verifier":            {func(q url.Values) { q.Del("code_verifier") }, "invalid_grant", true},
			"O03 a wrong verifier":       {func(q url.Values) { q.Set("code_verifier", strings.Repeat("x", 43)) }, "invalid_grant", true},
			"O03 a verifier of 42":       {func(q url.Values) { q.Set("code_verifier", verifier[:42]) }, "invalid_grant", true},
			"O03 a verifier of 129":      {func(q url.Values) { q.Set("code_verifier", strings.Repeat("x", 129)) }, "invalid_grant", true},
			"O03 a bad alphabet":         {func(q url.Values) { q.Set("code_verifier", strings.Repeat("é", 30)) }, "invalid_grant", true},
			"O07 another client":         {func(q url.Values) { q.Set("client_id", other) }, "invalid_grant", false},
			"O07 another redirect_uri":   {func(q url.Values) { q.Set("redirect_uri", callback+"x") }, "invalid_grant", false},
			"no redirect_uri":            {func(q url.Values) { q.Del("redirect_uri") }, "invalid_grant", false},
			"another resource":           {func(q url.Values) { q.Set("resource", "https://other.example") }, "invalid_target", false},
			"no code":                    {func(q url.Values) { q.Del("code") }, "invalid_grant", false},
			"O14 code twice":             {func(q url.Values) { q.Add("code", "x") }, "invalid_request", false},
			"O15 password":               {func(q url.Values) { q.Set("grant_type", "password") }, "unsupported_grant_type", false},
			"no grant type":              {func(q url.Values) { q.Del("grant_type") }, "invalid_request", false},
			"a code with a byte changed": {func(q url.Values) { q.Set("code", "A"+q.Get("code")[1:]+"A") }, "invalid_grant", false},
		} {
			code := r.code(asking(client))
			q := redeeming(client, code)
			one.change(q)
			refused(t, name, r.post("/oauth/token", q), 400, one.want)
			again := r.post("/oauth/token", redeeming(client, code))
			if one.spends {
				refused(t, name+", then the right one", again, 400, "invalid_grant")
			} else if again.Code != http.StatusOK {
				t.Errorf("%s: it spent the code: %s", name, again.Body)
			}
		}

		// O05: the second use revokes what the first brought.
		code := r.code(asking(client))
		got := r.tokens(r.post("/oauth/token", redeeming(client, code)))
		if !r.alive(got.Access) {
			t.Fatal("a new grant is dead")
		}
		refused(t, "O05", r.post("/oauth/token", redeeming(client, code)), 400, "invalid_grant")
		if r.alive(got.Access) || !r.told("code_reuse", authserver.Refused) {
			t.Error("O05: the tokens of the first use live")
		}
		refused(t, "O05 refresh", r.post("/oauth/token", refreshing(client, got.Refresh)), 400, "invalid_grant")

		// O07: late.
		code = r.code(asking(client))
		r.clock.moves(10*time.Minute + time.Second)
		refused(t, "O07 late", r.post("/oauth/token", redeeming(client, code)), 400, "invalid_grant")
	})
}

// TestO04 is a challenge that somebody took out of a request: there is no such login.
func TestO04(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(nil)
	q := asking(client)
	q.Del("code_challenge")
	q.Del("code_challenge_method")
	w := r.browser().authorize(q)
	if !strings.Contains(w.Header().Get("Location"), "error=invalid_request") {
		t.Errorf("status %d, location %q", w.Code, w.Header().Get("Location"))
	}
}

// TestRefresh is O08, O10, A09: rotation, its grace, and reuse.
func TestRefresh(t *testing.T) {
	onBoth(t, func(t *testing.T, store edge.Store) {
		r := open(t, options{store: store})
		other, _ := r.register(nil)
		client, first := r.signIn()
		for name, one := range map[string]struct {
			change func(url.Values)
			want   string
		}{
			"O10 more scope":         {func(q url.Values) { q.Set("scope", "openid mail.read") }, "invalid_scope"},
			"O10 another resource":   {func(q url.Values) { q.Set("resource", "https://other.example") }, "invalid_target"},
			"A09 another client":     {func(q url.Values) { q.Set("client_id", other) }, "invalid_grant"},
			"no token":               {func(q url.Values) { q.Del("refresh_token") }, "invalid_grant"},
			"a token that is no one": {func(q url.Values) { q.Set("refresh_token", "a.1.b") }, "invalid_grant"},
		} {
			q := refreshing(client, first.Refresh)
			one.change(q)
			refused(t, name, r.post("/oauth/token", q), 400, one.want)
		}

		// It may narrow, and the next may widen again.
		q := refreshing(client, first.Refresh)
		q.Set("scope", "openid")
		q.Set("resource", audience)
		second := r.tokens(r.post("/oauth/token", q))
		if c := r.claims(second.Access); c["scope"] != "openid" {
			t.Errorf("scope: %v", c["scope"])
		}

		// A09: the one before is answered with the current one for 3 s.
		r.clock.moves(2 * time.Second)
		again := r.tokens(r.post("/oauth/token", refreshing(client, first.Refresh)))
		if again.Refresh != second.Refresh || again.Access == second.Access {
			t.Error("A09: an honest retry got another refresh token, or the same access token")
		}
		refused(t, "A09 within the grace, another client", r.post("/oauth/token", refreshing(other, first.Refresh)), 400, "invalid_grant")
		r.clock.moves(2 * time.Second)
		refused(t, "A09 after it", r.post("/oauth/token", refreshing(client, first.Refresh)), 400, "invalid_grant")
		if r.alive(second.Access) || !r.told("refresh_reuse", authserver.Refused) {
			t.Error("O08: the family lives")
		}
		refused(t, "O08 the newest", r.post("/oauth/token", refreshing(client, second.Refresh)), 400, "invalid_grant")

		// One two generations back is never an honest retry.
		client, first = r.signIn()
		second = r.tokens(r.post("/oauth/token", refreshing(client, first.Refresh)))
		third := r.tokens(r.post("/oauth/token", refreshing(client, second.Refresh)))
		refused(t, "two back", r.post("/oauth/token", refreshing(client, first.Refresh)), 400, "invalid_grant")
		if r.alive(third.Access) {
			t.Error("the family lives")
		}
	})
}

// TestEnds: a refresh token ends a week after the last refresh, a grant 90 days after its login.
func TestEnds(t *testing.T) {
	r := open(t, options{})
	client, got := r.signIn()
	days := 0
	for ; days < 120; days += 6 {
		r.clock.moves(6 * 24 * time.Hour)
		w := r.post("/oauth/token", refreshing(client, got.Refresh))
		if w.Code != http.StatusOK {
			break
		}
		got = r.tokens(w)
	}
	if days < 78 || days > 90 {
		t.Errorf("the grant ended after %d days", days)
	}
	client, got = r.signIn()
	r.clock.moves(7*24*time.Hour + time.Second)
	refused(t, "after a week", r.post("/oauth/token", refreshing(client, got.Refresh)), 400, "invalid_grant")
}

// TestAccessWithinGrant: an access token does not say that it outlives its grant, which ends
// what it is good for.
func TestAccessWithinGrant(t *testing.T) {
	r := open(t, options{config: func(c *authserver.Spec) { c.Access, c.Refresh = 24*time.Hour, time.Hour }})
	r.clock.stops()
	client, got := r.signIn()
	for range 2 {
		c := r.claims(got.Access)
		exp, _ := c["exp"].(float64)
		if left := time.Unix(int64(exp), 0).Sub(r.clock.now()); left > time.Hour || left < 59*time.Minute {
			t.Errorf("the grant lives for 1 h, the token says %s", left)
		}
		grant, _ := c["tsid"].(string)
		r.clock.moves(59 * time.Minute)
		if l, err := r.Look(t.Context(), grant); err != nil || l == nil {
			t.Errorf("it ended early: %v", err)
		}
		got = r.tokens(r.post("/oauth/token", refreshing(client, got.Refresh)))
	}
}

// TestNoRefreshToken: a client without the grant type gets none.
func TestNoRefreshToken(t *testing.T) {
	r := open(t, options{})
	client, _ := r.register(map[string]any{"grant_types": nil})
	got := r.tokens(r.post("/oauth/token", redeeming(client, r.code(asking(client)))))
	if got.Refresh != "" {
		t.Error("it got one")
	}
}

// TestRaces is O06, O09, A06, G20: of many at once one wins, on both stores and over two replicas.
func TestRaces(t *testing.T) {
	const many, rounds = 40, 20
	onBoth(t, func(t *testing.T, store edge.Store) {
		kept := &secrets{all: map[string]string{"as/hmac": strings.Repeat("h", 32), "as/key": signingKey(t)}}
		both := func(c *authserver.Spec) {
			c.Secrets, c.Keys = append(c.Secrets, ref("hmac")), append(c.Keys, ref("key"))
		}
		one := open(t, options{store: store, config: both, secrets: kept})
		two := open(t, options{store: store, config: both, secrets: kept})
		client, _ := one.register(nil)
		race := func(what string, ask func(r *rig) *httptest.ResponseRecorder) (all []*httptest.ResponseRecorder) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			start := make(chan struct{})
			for i := range many {
				r := one
				if i%2 == 1 {
					r = two
				}
				wg.Go(func() {
					<-start
					w := ask(r)
					mu.Lock()
					defer mu.Unlock()
					if w.Code == http.StatusOK {
						all = append(all, w)
					}
				})
			}
			close(start)
			wg.Wait()
			return all
		}
		for range rounds {
			// A06: a callback.
			b := one.browser()
			state := b.allows(asking(client))
			cookies := b.cookies
			got := race("callback", func(r *rig) *httptest.ResponseRecorder {
				mine := r.browser()
				for k, v := range cookies {
					mine.cookies[k] = v
				}
				return mine.returns(state)
			})
			if len(got) != 1 {
				t.Fatalf("A06: %d callbacks went on", len(got))
			}
			_, q := led(t, got[0])

			// O06: its code.
			got = race("code", func(r *rig) *httptest.ResponseRecorder {
				return r.post("/oauth/token", redeeming(client, q.Get("code")))
			})
			if len(got) != 1 {
				t.Fatalf("O06: %d redemptions", len(got))
			}

			// O09: a refresh token, of another login, since the code of that one was shown twice.
			first := one.tokens(one.post("/oauth/token", redeeming(client, one.code(asking(client)))))
			got = race("refresh", func(r *rig) *httptest.ResponseRecorder {
				return r.post("/oauth/token", refreshing(client, first.Refresh))
			})
			alive := map[string]bool{}
			for _, w := range got {
				alive[one.tokens(w).Refresh] = true
			}
			if len(got) == 0 || len(alive) != 1 || alive[first.Refresh] {
				t.Fatalf("O09: %d answers, %d refresh tokens", len(got), len(alive))
			}
		}
	})
}

// TestA01: what is forged costs no call of the store.
func TestA01(t *testing.T) {
	r := open(t, options{})
	client, got := r.signIn()
	before := r.store.calls.Load()
	n := 300
	for i := range n {
		x := fmt.Sprintf("%043d", i)
		refused(t, "code", r.post("/oauth/token", redeeming(client, x+"."+x)), 400, "invalid_grant")
		refused(t, "refresh token", r.post("/oauth/token", refreshing(client, got.Refresh[:len(got.Refresh)-5]+x[38:])), 400, "invalid_grant")
		refused(t, "client", r.post("/oauth/token", redeeming(client[:len(client)-5]+x[38:], x)), 401, "invalid_client")
	}
	if after := r.store.calls.Load(); after != before {
		t.Errorf("the store was called %d times", after-before)
	}
}

// TestClientAuthentication is O37: exactly the registered method, and not many wrong secrets.
func TestClientAuthentication(t *testing.T) {
	r := open(t, options{})
	public, _ := r.register(nil)
	basic, basicSecret := r.register(map[string]any{"token_endpoint_auth_method": "client_secret_basic"})
	post, postSecret := r.register(map[string]any{"token_endpoint_auth_method": "client_secret_post"})
	header := func(id, secret string) []string {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret))
		return []string{"Authorization", req.Header.Get("Authorization")}
	}
	with := func(q url.Values, name, value string) url.Values {
		q.Set(name, value)
		return q
	}
	without := func(q url.Values) url.Values {
		q.Del("client_id")
		return q
	}
	for name, one := range map[string]struct {
		form   url.Values
		header []string
		ok     bool
	}{
		"basic":                    {without(refreshing(basic, "x")), header(basic, basicSecret), true},
		"basic and the same id":    {refreshing(basic, "x"), header(basic, basicSecret), true},
		"post":                     {with(refreshing(post, "x"), "client_secret", postSecret), nil, true},
		"public":                   {refreshing(public, "x"), nil, true},
		"basic by the body":        {with(refreshing(basic, "x"), "client_secret", basicSecret), nil, false},
		"post by the header":       {without(refreshing(post, "x")), header(post, postSecret), false},
		"both":                     {with(refreshing(post, "x"), "client_secret", postSecret), header(post, postSecret), false},
		"another id in the body":   {refreshing(public, "x"), header(basic, basicSecret), false},
		"a secret of a public one": {with(refreshing(public, "x"), "client_secret", "x"), nil, false},
		"none of a secret one":     {refreshing(basic, "x"), nil, false},
		"a wrong secret":           {without(refreshing(basic, "x")), header(basic, "wrong"), false},
		"another client's secret":  {without(refreshing(basic, "x")), header(basic, postSecret), false},
		"an empty secret":          {with(refreshing(post, "x"), "client_secret", ""), nil, false},
		"no client":                {without(refreshing(public, "x")), nil, false},
		"Bearer":                   {without(refreshing(public, "x")), []string{"Authorization", "Bearer x"}, false},
	} {
		w := r.post("/oauth/token", one.form, one.header...)
		if one.ok {
			refused(t, name, w, 400, "invalid_grant") // the token is none
			continue
		}
		refused(t, name, w, 401, "invalid_client")
		if !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Basic") {
			t.Errorf("%s: no challenge", name)
		}
	}
	codes := map[int]int{}
	for range 30 {
		codes[r.post("/oauth/token", without(refreshing(basic, "x")), header(basic, "wrong")...).Code]++
	}
	if codes[401] > 10 || codes[429] < 20 {
		t.Errorf("O37: answers to wrong secrets: %v", codes)
	}
}

// TestRevoke is O38: only its own client revokes a token, by either of the two.
func TestRevoke(t *testing.T) {
	onBoth(t, func(t *testing.T, store edge.Store) {
		r := open(t, options{store: store})
		other, _ := r.register(nil)
		client, got := r.signIn()
		for _, token := range []string{got.Access, got.Refresh, "nonsense", got.ID, "a.b.c"} {
			if w := r.post("/oauth/revoke", url.Values{"token": {token}, "client_id": {other}}); w.Code != http.StatusOK || w.Body.Len() > 0 {
				t.Errorf("another client: status %d: %s", w.Code, w.Body)
			}
		}
		r.post("/oauth/revoke", url.Values{"token": {got.ID}, "client_id": {client}})
		if !r.alive(got.Access) {
			t.Fatal("O38: another client revoked it, or an ID token did")
		}
		refused(t, "an unknown client", r.post("/oauth/revoke", url.Values{"token": {got.Access}, "client_id": {"x"}}), 401, "invalid_client")
		r.post("/oauth/revoke", url.Values{"token": {got.Access}, "client_id": {client}})
		if r.alive(got.Access) {
			t.Error("its own client did not revoke it")
		}
	})
}

// TestAlive is A14 without the calls: here at once, at another replica within 10 s, one look-up
// in between.
func TestAlive(t *testing.T) {
	onBoth(t, func(t *testing.T, store edge.Store) {
		kept := &secrets{all: map[string]string{"as/hmac": strings.Repeat("h", 32), "as/key": signingKey(t)}}
		both := func(c *authserver.Spec) {
			c.Secrets, c.Keys = append(c.Secrets, ref("hmac")), append(c.Keys, ref("key"))
		}
		one := open(t, options{store: store, config: both, secrets: kept})
		two := open(t, options{store: store, config: both, secrets: kept})
		client, got := one.signIn()
		before := two.store.calls.Load()
		for range 100 {
			if !two.alive(got.Access) {
				t.Fatal("a grant is dead")
			}
		}
		if n := two.store.calls.Load() - before; n != 1 {
			t.Errorf("the store was asked %d times", n)
		}
		one.post("/oauth/revoke", url.Values{"token": {got.Refresh}, "client_id": {client}})
		if one.alive(got.Access) {
			t.Error("where it was revoked it lives")
		}
		two.clock.moves(10 * time.Second)
		if two.alive(got.Access) {
			t.Error("after 10 s it lives")
		}
		two.store.gone.Store(true)
		two.clock.moves(10 * time.Second)
		if _, err := two.Look(t.Context(), "x"); edge.KindOf(err) != edge.Overload {
			t.Errorf("without a store: %v", err)
		}
	})
}

// TestO42: without a store there is a 503 and never a token, and a code is redeemed once after.
func TestO42(t *testing.T) {
	onBoth(t, func(t *testing.T, store edge.Store) {
		r := open(t, options{store: store})
		client, got := r.signIn()
		code := r.code(asking(client))
		b := r.browser()
		sealed := form(t, b.authorize(asking(client)))
		waits := r.browser()
		state := waits.allows(asking(client))
		r.store.gone.Store(true)
		for name, w := range map[string]*httptest.ResponseRecorder{
			"code": r.post("/oauth/token", redeeming(client, code)), "refresh": r.post("/oauth/token", refreshing(client, got.Refresh)),
			"revoke": r.post("/oauth/revoke", url.Values{"token": {got.Refresh}, "client_id": {client}}),
		} {
			refused(t, name, w, 503, "temporarily_unavailable")
			if w.Header().Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", name)
			}
		}
		for name, w := range map[string]*httptest.ResponseRecorder{"approve": b.answers(sealed, "allow"), "return": waits.returns(state)} {
			if w.Code != http.StatusServiceUnavailable {
				t.Errorf("%s: status %d", name, w.Code)
			}
			page(t, name, w)
		}
		r.store.gone.Store(false)
		r.tokens(r.post("/oauth/token", redeeming(client, code)))
		refused(t, "again", r.post("/oauth/token", redeeming(client, code)), 400, "invalid_grant")
		b.returns(stateOf(t, b.answers(sealed, "allow")))
	})
}

// TestR03: a store that comes back empty costs a login, never a client.
func TestR03(t *testing.T) {
	kept := &secrets{all: map[string]string{"as/hmac": strings.Repeat("h", 32)}}
	r := open(t, options{secrets: kept, config: func(c *authserver.Spec) { c.Secrets = append(c.Secrets, ref("hmac")) }})
	client, got := r.signIn()
	code := r.code(asking(client))
	empty := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = empty.Close() })
	r.store.Store = empty
	refused(t, "code", r.post("/oauth/token", redeeming(client, code)), 400, "invalid_grant")
	refused(t, "refresh", r.post("/oauth/token", refreshing(client, got.Refresh)), 400, "invalid_grant")
	r.clock.moves(10 * time.Second)
	if r.alive(got.Access) {
		t.Error("a lost grant lives")
	}
	r.tokens(r.post("/oauth/token", redeeming(client, r.code(asking(client)))))
}

// TestResources is O31: whom tokens are for, by what was asked for.
func TestResources(t *testing.T) {
	r := open(t, options{config: func(c *authserver.Spec) {
		c.Resources = []authserver.Resource{
			{Server: "a", URL: "https://a.example", Audience: "api://a", Scopes: []string{"openid"}},
			{Server: "b", URL: "https://b.example/mcp", Audience: "https://b.example/mcp", Scopes: []string{"openid", "email"}},
			{Server: "c", URL: "https://d.example/mcp", Audience: "c", Scopes: []string{"openid"}}, // whose URL is the audience of another
			{Server: "d", Audience: "https://d.example/mcp", Scopes: []string{"openid"}},
		}
	}})
	client, _ := r.register(nil)
	for asked, want := range map[string][]any{
		"api://a": {"api://a"}, "https://a.example": {"api://a", "https://a.example"}, "https://a.example/": {"api://a", "https://a.example/"}, "https://b.example/mcp": {"https://b.example/mcp"},
		"https://d.example/mcp": {"https://d.example/mcp"}, "c": {"c"},
	} {
		q := asking(client)
		q.Set("resource", asked)
		q.Del("scope")
		form := redeeming(client, r.code(q))
		form.Set("resource", asked)
		got := r.tokens(r.post("/oauth/token", form))
		aud := r.claims(got.Access)["aud"]
		list, ok := aud.([]any)
		if !ok {
			list = []any{aud}
		}
		if !slices.Equal(list, want) {
			t.Errorf("%s: aud %v, not %v", asked, list, want)
		}
	}
	q := asking(client)
	q.Del("resource")
	if w := r.browser().authorize(q); !strings.Contains(w.Header().Get("Location"), "error=invalid_target") || !strings.Contains(w.Header().Get("Location"), "resource+is+missing") {
		t.Errorf("none of two: location %q", w.Header().Get("Location"))
	}

	// The only one there is need not be asked for; none asked for at the token is fine too.
	r = open(t, options{})
	client, _ = r.register(nil)
	q = asking(client)
	q.Del("resource")
	form := redeeming(client, r.code(q))
	form.Del("resource")
	if got := r.claims(r.tokens(r.post("/oauth/token", form)).Access); got["aud"] != audience {
		t.Errorf("aud: %v", got["aud"])
	}
}

// TestA22: a server that left has no more tokens.
func TestA22(t *testing.T) {
	m := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = m.Close() })
	kept := &secrets{all: map[string]string{"as/hmac": strings.Repeat("h", 32)}}
	with := func(c *authserver.Spec) { c.Secrets = append(c.Secrets, ref("hmac")) }
	one := open(t, options{store: m, secrets: kept, config: with})
	client, got := one.signIn()
	two := open(t, options{store: m, secrets: kept, config: func(c *authserver.Spec) {
		with(c)
		c.Resources[0].URL, c.Resources[0].Audience = "https://b.example", "https://b.example"
	}})
	refused(t, "A22", two.post("/oauth/token", refreshing(client, got.Refresh)), 400, "invalid_target")
}

// TestA11: no two users share a sub.
func TestA11(t *testing.T) {
	seen := map[string]string{}
	long := strings.Repeat("x", 10<<10)
	for _, one := range [][2]string{
		{"a", "x"}, {"a", "a:x"}, {"b", "x"}, {"a", "x\x00"}, {"a", long}, {"b", long}, {"a", long + "y"}, {"a", "\xff"}, {"a", "\xfe"}, {"a", "x\n"},
		{"a", authserver.Subject("a", long)}, {"a", ""},
	} {
		sub := authserver.Subject(one[0], one[1])
		if other, ok := seen[sub]; ok {
			t.Errorf("%q shares %q with %q", one, sub, other)
		}
		seen[sub] = fmt.Sprintf("%.20q", one)
		if len(sub) > 320 || strings.ContainsFunc(sub, func(c rune) bool { return c < ' ' }) {
			t.Errorf("sub %q", sub)
		}
	}
	r := open(t, options{})
	client, _ := r.register(nil)
	r.providers[0].subject = ""
	b := r.browser()
	if _, got := led(t, b.returns(b.allows(asking(client)))); got.Get("error") != "server_error" || got.Get("iss") != issuer {
		t.Errorf("an empty subject: %v", got)
	}
}

// TestTold: what is told of it all holds nothing that is secret (K16).
func TestTold(t *testing.T) {
	r := open(t, options{})
	client, got := r.signIn()
	r.post("/oauth/token", refreshing(client, got.Refresh))
	r.providers[0].err = fmt.Errorf("a fault")
	b := r.browser()
	if _, q := led(t, b.returns(b.allows(asking(client)))); q.Get("error") != "server_error" {
		t.Errorf("a fault of the upstream: %v", q)
	}
	all := fmt.Sprintf("%+v", r.events) + r.log.String()
	for _, secret := range []string{"PLANTED", got.Access, got.Refresh, got.ID, verifier, client, "the state"} {
		if strings.Contains(all, secret) {
			t.Errorf("what is told holds %q: %s", secret, all)
		}
	}
	for _, what := range []string{"register", "authorize", "consent", "return", "token"} {
		if !r.told(what, authserver.Done) {
			t.Errorf("nothing of %s is told", what)
		}
	}
	if !r.told("return", authserver.Failed) {
		t.Error("nothing of the failure is told")
	}
}

// TestFullStore: a store without room answers 503, and what lives goes on.
func TestFullStore(t *testing.T) {
	m := kv.Memory(kv.Limits{Values: 12})
	t.Cleanup(func() { _ = m.Close() })
	r := open(t, options{store: m})
	client, got := r.signIn()
	var last atomic.Int64
	for range 20 {
		b := r.browser()
		last.Store(int64(b.answers(form(t, b.authorize(asking(client))), "allow").Code))
	}
	if last.Load() != http.StatusServiceUnavailable {
		t.Errorf("a full store: status %d", last.Load())
	}
	r.tokens(r.post("/oauth/token", refreshing(client, got.Refresh)))
}
