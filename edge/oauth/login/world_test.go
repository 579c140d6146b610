package login_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/oauth/login"
)

// world is an MCP server and its authorization server, each on a loopback address of its own.
// What a test changes of them, it changes before the first request.
type world struct {
	t       *testing.T
	mcp, as *httptest.Server

	resource func(map[string]any)                               // changes the metadata of the resource
	metadata func(map[string]any)                               // and those of the authorization server
	back     func(url.Values)                                   // changes what the browser brings back
	token    func(form url.Values) (status int, answer string)  // the token endpoint
	revoke   func(form url.Values) (status int, answer string)  // the revocation endpoint; nil for one that takes all
	judge    func(token string, n int) (status int, ask string) // what the MCP server says to a request

	mu         sync.Mutex
	registered []map[string]any
	authorized []url.Values
	forms      []url.Values
	revoked    []url.Values
	basic      []string // client of each of forms, by HTTP Basic
	calls      []string // tokens of requests to the MCP server
	hits       []string // paths of the authorization server
}

const plainJSON = "application/json"

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	n := 0
	w.token = func(url.Values) (int, string) {
		n++
		return 200, fmt.Sprintf(`{"access_token":"access-%d","token_type":"Bearer","expires_in":3600,"refresh_token":"refresh-%d"}`, n, n)
	}
	w.judge = func(token string, _ int) (int, string) {
		if token == "" {
			return 401, fmt.Sprintf(`Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp"`, w.mcp.URL)
		}
		return 200, ""
	}
	w.mcp, w.as = httptest.NewServer(http.HandlerFunc(w.serveMCP)), httptest.NewServer(http.HandlerFunc(w.serveAS))
	t.Cleanup(w.mcp.Close)
	t.Cleanup(w.as.Close)
	return w
}

func (w *world) url() string { return w.mcp.URL + "/mcp" }

func answer(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", plainJSON)
	rw.WriteHeader(status)
	if text, ok := v.(string); ok {
		_, _ = io.WriteString(rw, text)
		return
	}
	_ = json.NewEncoder(rw).Encode(v)
}

func (w *world) serveMCP(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/oauth-protected-resource/mcp":
		doc := map[string]any{"resource": w.url(), "authorization_servers": []string{w.as.URL}}
		if w.resource != nil {
			w.resource(doc)
		}
		answer(rw, 200, doc)
	case "/mcp":
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.mu.Lock()
		w.calls = append(w.calls, token)
		n := len(w.calls)
		w.mu.Unlock()
		status, ask := w.judge(token, n)
		if ask != "" {
			rw.Header().Set("WWW-Authenticate", ask)
		}
		answer(rw, status, "{}")
	default:
		answer(rw, 404, "{}")
	}
}

func (w *world) serveAS(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.hits = append(w.hits, r.URL.Path)
	w.mu.Unlock()
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server":
		doc := map[string]any{
			"issuer": w.as.URL, "authorization_endpoint": w.as.URL + "/authorize", "token_endpoint": w.as.URL + "/token", "registration_endpoint": w.as.URL + "/register",
			"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
			"authorization_response_iss_parameter_supported": true,
		}
		if w.metadata != nil {
			w.metadata(doc)
		}
		answer(rw, 200, doc)
	case "/register":
		var one map[string]any
		_ = json.NewDecoder(r.Body).Decode(&one)
		w.mu.Lock()
		w.registered = append(w.registered, one)
		id := fmt.Sprintf("client-%d", len(w.registered))
		w.mu.Unlock()
		answer(rw, 201, map[string]any{"client_id": id, "redirect_uris": one["redirect_uris"]})
	case "/authorize":
		q := r.URL.Query()
		w.mu.Lock()
		w.authorized = append(w.authorized, q)
		w.mu.Unlock()
		back := url.Values{"code": {"the-code"}, "state": {q.Get("state")}, "iss": {w.as.URL}}
		if w.back != nil {
			w.back(back)
		}
		http.Redirect(rw, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	case "/token":
		_ = r.ParseForm()
		id, _, _ := r.BasicAuth()
		w.mu.Lock()
		w.forms, w.basic = append(w.forms, r.PostForm), append(w.basic, id)
		last, token := w.authorized, w.token
		w.mu.Unlock()
		if r.PostForm.Get("grant_type") == "authorization_code" {
			sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
			if len(last) == 0 || last[len(last)-1].Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
				answer(rw, 400, `{"error":"invalid_grant"}`)
				return
			}
		}
		status, text := token(r.PostForm)
		answer(rw, status, text)
	case "/revoke":
		_ = r.ParseForm()
		w.mu.Lock()
		w.revoked = append(w.revoked, r.PostForm)
		revoke := w.revoke
		w.mu.Unlock()
		status, text := 200, ""
		if revoke != nil {
			status, text = revoke(r.PostForm)
		}
		answer(rw, status, text)
	default:
		answer(rw, 404, "{}")
	}
}

// seen is what happened, under the lock.
func (w *world) seen(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// browser follows a URL as the browser of a user does who agrees to everything.
func browser(text string) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport, Timeout: edgetest.Patience}).Get(text)
	if err != nil {
		return err
	}
	return r.Body.Close()
}

// guarded is a client for development, or one that is not.
func guarded(t *testing.T, dev bool) *oauth.Client {
	t.Helper()
	c, err := oauth.New(oauth.Options{Reach: edge.Reach{DevLoopback: dev}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// open opens a session to the world's server.
func (w *world) open(store *login.Store, change func(*login.Options)) *login.Session {
	w.t.Helper()
	o := login.Options{URL: w.url(), CallbackPort: login.AnyPort, Browse: browser, Timeout: edgetest.Patience}
	if change != nil {
		change(&o)
	}
	s, err := login.Open(o, store, guarded(w.t, true), false)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// get calls the server with a session, and returns the status.
func get(t *testing.T, s *login.Session, url string) (int, error) {
	t.Helper()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := &http.Client{Transport: &login.Transport{Session: s, Base: base}, Timeout: edgetest.Patience}
	r, err := c.Post(url, plainJSON, strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	return r.StatusCode, r.Body.Close()
}

func storeOf(t *testing.T) *login.Store { return &login.Store{Dir: t.TempDir() + "/weir"} }

// age makes the access token of the one login of a store end at a time.
func age(t *testing.T, s *login.Store, at time.Time) {
	t.Helper()
	all, err := s.List()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d logins, %v", len(all), err)
	}
	all[0].Tokens.Expires = at
	if err := s.Put(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
}
