package edgetest

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// Hub is an identity provider of the type oauth2, by hand, whose user alice is always signed
// in. Each token that it issues is another: NAME-token-1, NAME-token-2.
type Hub struct {
	*httptest.Server
	Name string // of the provider, and of its tokens

	mu     sync.Mutex
	groups string // JSON
	life   int
	n      int
}

// NewHub starts one that ends with the test.
func NewHub(t testing.TB, name string) *Hub {
	h := &Hub{Name: name, life: 3600}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/auth" {
			q := r.URL.Query()
			http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"state": {q.Get("state")}, "code": {"x"}}.Encode(), http.StatusSeeOther)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.n++
		token := fmt.Sprintf("%s-token-%d", h.Name, h.n)
		if h.groups != "" {
			token = "eyJhbGciOiJub25lIn0." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"sub":"alice","groups":%s,"n":%d}`, h.groups, h.n)) + "."
		}
		fmt.Fprintf(w, `{"access_token":%q,"refresh_token":"%s-refresh-%d","token_type":"Bearer","expires_in":%d,"user":{"id":"alice"}}`, token, h.Name, h.n, h.life)
	}))
	t.Cleanup(h.Close)
	return h
}

// Issues has the access tokens from now on live for some seconds, as JWTs with groups, a JSON
// array; "" for tokens that are none.
func (h *Hub) Issues(groups string, life int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.groups, h.life = groups, life
}

// Issued is how many access tokens there have been.
func (h *Hub) Issued() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// Provider is the YAML of the hub as one of the upstreamProviders of an authorization server
// at an origin.
func (h *Hub) Provider(origin string) string {
	return fmt.Sprintf(`{name: %s, type: oauth2, oauth2Config: {authorizationEndpoint: "%s/auth", tokenEndpoint: "%s/token", clientId: edge, scopes: [openid], insecureAllowHTTP: true, redirectUri: "%s/oauth/callback", identityFromToken: {subjectPath: user.id}}}`, h.Name, h.URL, h.URL, origin)
}

// Browser is that of a user who agrees to everything: it goes where it is sent, allows what a
// consent page of an edge asks, and follows the pages that lead on.
type Browser struct {
	Client *http.Client // with a jar, and without redirects of its own
	To     func(*url.URL)
}

// NewBrowser returns a browser with cookies of its own. to may change where a request goes; nil
// for nothing.
func NewBrowser(to func(*url.URL)) *Browser {
	jar, _ := cookiejar.New(nil) // without options it does not fail
	return &Browser{&http.Client{Jar: jar, Timeout: Patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, to}
}

var (
	askedForm = regexp.MustCompile(`(?s)action="([^"]+)".*name="form" value="([^"]+)"`)
	leadingOn = regexp.MustCompile(`(?s)http-equiv="refresh".*href="([^"]+)"`)
)

// Walk opens a page and goes on until an address that begins with a text, which it returns and
// does not open; "" goes on to the last page.
func (b *Browser) Walk(where, until string) (string, error) {
	var form url.Values
	for range 50 {
		at, err := url.Parse(where)
		switch {
		case err != nil:
			return "", err
		case until != "" && strings.HasPrefix(where, until):
			return where, nil
		}
		to := *at
		if b.To != nil {
			b.To(&to)
		}
		req, err := http.NewRequest(http.MethodGet, to.String(), nil)
		if form != nil {
			req, err = http.NewRequest(http.MethodPost, to.String(), strings.NewReader(form.Encode()))
		}
		if err != nil {
			return "", err
		}
		if form != nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set("Sec-Fetch-Site", "same-origin")
			form = nil
		}
		resp, err := b.Client.Do(req)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return "", err
		}
		next := resp.Header.Get("Location")
		if next == "" {
			if m := askedForm.FindSubmatch(text); m != nil {
				next, form = string(m[1]), url.Values{"form": {html.UnescapeString(string(m[2]))}, "answer": {"allow"}}
			} else if m := leadingOn.FindSubmatch(text); m != nil {
				next = string(m[1])
			}
		}
		if next == "" && (until != "" || resp.StatusCode != http.StatusOK) {
			return "", fmt.Errorf("%s leads nowhere: status %d: %s", at.Host+at.Path, resp.StatusCode, text)
		}
		if next == "" {
			return where, nil
		}
		on, err := at.Parse(html.UnescapeString(next))
		if err != nil {
			return "", err
		}
		where = on.String()
	}
	return "", errors.New("a circle of pages")
}

// Visitor is a client that knows nothing but where an edge is, and registers itself at its
// authorization server.
type Visitor struct {
	*Browser
	ID    string // as it is registered
	Start string // path of the authorization endpoint; "" for /oauth/authorize

	t      testing.TB
	origin string // of the issuer
}

// VisitorCallback is where the codes of visitors go.
const VisitorCallback = "https://client.example/cb"

// visitorVerifier is the code verifier of each of their logins.
const visitorVerifier = "the-verifier-of-the-test-has-43-characters-or-more"

// Granted are the tokens of a login, and the code that they were issued for.
type Granted struct {
	Access, Refresh, Code string
	Life                  float64 // of the access token, in seconds
}

// Secrets are all that nobody else may see.
func (g Granted) Secrets() []string {
	return []string{g.Access, g.Refresh, g.Code, visitorVerifier, "client.example"}
}

// NewVisitor returns a client of an issuer whose URL has no path. Its requests to that go to
// addresses, HOST:PORT, in turn.
func NewVisitor(t testing.TB, issuer string, addresses ...string) *Visitor {
	at, err := url.Parse(issuer)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	v := &Visitor{t: t, origin: issuer}
	v.Browser = NewBrowser(func(u *url.URL) {
		if u.Host == at.Host {
			u.Host = addresses[n%len(addresses)]
			n++
		}
	})
	t.Cleanup(v.Client.CloseIdleConnections)
	return v
}

// Fetch asks the issuer for a path, with a form or, where that is nil, for a document.
func (v *Visitor) Fetch(path string, form url.Values) (status int, text string) {
	v.t.Helper()
	u, err := url.Parse(v.origin + path)
	if err != nil {
		v.t.Fatal(err)
	}
	v.To(u)
	var resp *http.Response
	if form == nil {
		resp, err = v.Client.Get(u.String())
	} else {
		resp, err = v.Client.PostForm(u.String(), form)
	}
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

// Object is Fetch for a JSON object.
func (v *Visitor) Object(path string, form url.Values) (all map[string]any) {
	v.t.Helper()
	status, text := v.Fetch(path, form)
	if err := json.Unmarshal([]byte(text), &all); err != nil || status != http.StatusOK {
		v.t.Fatalf("%s: status %d, %v: %s", path, status, err, text)
	}
	return all
}

// Register registers the client.
func (v *Visitor) Register() {
	v.t.Helper()
	u, _ := url.Parse(v.origin + "/oauth/register") // the origin was parsed before
	v.To(u)
	resp, err := v.Client.Post(u.String(), "application/json", strings.NewReader(`{"redirect_uris":["`+VisitorCallback+`"],"grant_types":["authorization_code","refresh_token"]}`))
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	var all struct {
		ID string `json:"client_id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || all.ID == "" {
		v.t.Fatalf("register: status %d: %v", resp.StatusCode, err)
	}
	v.ID = all.ID
}

// SignIn is a login, from the registration where there is none yet to the tokens. resource is
// what the client asks for, "" for nothing.
func (v *Visitor) SignIn(resource string) Granted {
	v.t.Helper()
	if v.ID == "" {
		v.Register()
	}
	answer, err := v.Walk(v.Asks(resource), VisitorCallback)
	if err != nil {
		v.t.Fatal(err)
	}
	u, err := url.Parse(answer)
	if err != nil || u.Query().Get("code") == "" || u.Query().Get("iss") != v.origin || u.Query().Get("state") != "s" {
		v.t.Fatalf("the answer is %s", answer)
	}
	g := Granted{Code: u.Query().Get("code")}
	return v.tokens(g, url.Values{"grant_type": {"authorization_code"}, "client_id": {v.ID}, "code": {g.Code}, "redirect_uri": {VisitorCallback}, "code_verifier": {visitorVerifier}})
}

// Asks is the address at which a login of the client begins. resource is what it asks for, "" for
// nothing.
func (v *Visitor) Asks(resource string) string {
	sum := sha256.Sum256([]byte(visitorVerifier))
	q := url.Values{"client_id": {v.ID}, "redirect_uri": {VisitorCallback}, "response_type": {"code"}, "state": {"s"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}}
	if resource != "" {
		q.Set("resource", resource)
	}
	return v.origin + cmp.Or(v.Start, "/oauth/authorize") + "?" + q.Encode()
}

// Renew shows the refresh token.
func (v *Visitor) Renew(g Granted) Granted {
	v.t.Helper()
	return v.tokens(g, url.Values{"grant_type": {"refresh_token"}, "client_id": {v.ID}, "refresh_token": {g.Refresh}})
}

func (v *Visitor) tokens(g Granted, form url.Values) Granted {
	v.t.Helper()
	all := v.Object("/oauth/token", form)
	g.Access, _ = all["access_token"].(string)
	g.Refresh, _ = all["refresh_token"].(string)
	g.Life, _ = all["expires_in"].(float64)
	if g.Access == "" || g.Refresh == "" {
		v.t.Fatal("an answer without tokens")
	}
	return g
}

// Revoke ends the login of a token.
func (v *Visitor) Revoke(token string) {
	v.t.Helper()
	if status, text := v.Fetch("/oauth/revoke", url.Values{"client_id": {v.ID}, "token": {token}}); status != http.StatusOK {
		v.t.Errorf("revoke: status %d: %s", status, text)
	}
}
