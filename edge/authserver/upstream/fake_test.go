package upstream_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/v1beta1"
)

func TestMain(m *testing.M) { edgetest.Main(m) }

const (
	clientID = "edge+1"
	secret   = "edge secret/1"
	redirect = "https://edge.example/oauth/callback"
	planted  = "PLANTED-words-of-the-provider"
)

// fake is an identity provider over TLS whose answers a test can spoil.
type fake struct {
	*httptest.Server
	CA   []byte
	keys *edgetest.Mint

	mu       sync.Mutex
	metadata map[string]any              // of discovery
	claims   func(map[string]any)        // changes those of ID tokens; nil for nothing
	sign     func(map[string]any) string // makes an ID token; nil for the keys
	tokens   func(map[string]any)        // changes the answer of the token endpoint; nil for nothing
	spoil    map[string]http.HandlerFunc // answers in place of a path
	subject  string                      // of whoever logs in
	nonce    string                      // of the login
	serial   int                         // of access tokens
	valid    string                      // the refresh token that is good
	rotates  bool                        // each refresh makes a new one
	life     time.Duration               // of access tokens
	asked    []url.Values                // of the token endpoint
	clients  int                         // registered
	came     []map[string]any            // registrations
	headers  []http.Header               // of the userinfo endpoint
	hits     map[string]int
}

func newFake(t testing.TB) *fake {
	f := &fake{keys: edgetest.NewMint(t, clientID), subject: "alice", life: time.Hour, rotates: true, spoil: map[string]http.HandlerFunc{}, hits: map[string]int{}}
	f.Server = httptest.NewTLSServer(f)
	t.Cleanup(f.Close)
	f.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	f.metadata = map[string]any{
		"issuer": f.URL, "authorization_endpoint": f.URL + "/auth?tenant=1", "token_endpoint": f.URL + "/token", "jwks_uri": f.URL + "/keys", "userinfo_endpoint": f.URL + "/userinfo",
		"registration_endpoint": f.URL + "/register", "authorization_response_iss_parameter_supported": true,
	}
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.hits[r.URL.Path]++
	spoiled := f.spoil[r.URL.Path]
	f.mu.Unlock()
	if spoiled != nil {
		spoiled(w, r)
		return
	}
	if r.URL.Path == "/keys" {
		f.keys.ServeHTTP(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var answer any
	switch r.URL.Path {
	case "/.well-known/openid-configuration", "/discovery":
		answer = f.metadata
	case "/token":
		answer = f.token(w, r)
	case "/userinfo":
		f.headers = append(f.headers, r.Header.Clone())
		answer = map[string]any{"sub": f.subject, "name": "Alice A.", "email": "alice@example.com", "id": 4711, "groups": []string{"eng"}}
	case "/register":
		ask := map[string]any{"authorization": r.Header.Get("Authorization")}
		_ = json.NewDecoder(r.Body).Decode(&ask)
		f.came = append(f.came, ask)
		f.clients++
		w.WriteHeader(http.StatusCreated)
		answer = map[string]any{"client_id": fmt.Sprint("registered-", f.clients), "client_secret": "registered secret", "client_secret_expires_at": 0}
	default:
		http.NotFound(w, r)
		return
	}
	if answer != nil {
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// token answers for whoever has the right code or refresh token.
func (f *fake) token(w http.ResponseWriter, r *http.Request) any {
	_ = r.ParseForm()
	form := r.PostForm
	if id, pass, ok := r.BasicAuth(); ok {
		form.Set("basic", id+":"+pass)
	}
	f.asked = append(f.asked, form)
	if form.Get("grant_type") == "refresh_token" {
		if form.Get("refresh_token") != f.valid || f.valid == "" {
			w.WriteHeader(http.StatusBadRequest)
			return map[string]any{"error": "invalid_grant", "error_description": planted}
		}
		f.nonce = ""
	}
	f.serial++
	access := fmt.Sprint("access-", f.serial)
	if f.rotates || f.valid == "" {
		f.valid = fmt.Sprint("refresh-", f.serial)
	}
	sum := sha256.Sum256([]byte(access))
	now := time.Now()
	claims := map[string]any{"iss": f.URL, "sub": f.subject, "aud": clientID, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "at_hash": base64.RawURLEncoding.EncodeToString(sum[:16]), "groups": []string{"eng"}}
	if f.nonce != "" {
		claims["nonce"] = f.nonce
	}
	if f.claims != nil {
		f.claims(claims)
	}
	id := ""
	if f.sign != nil {
		id = f.sign(claims)
	} else if made, err := f.keys.SignAs("JWT", claims); err == nil {
		id = made
	}
	answer := map[string]any{"access_token": access, "token_type": "Bearer", "refresh_token": f.valid, "id_token": id, "scope": "openid mail", "expires_in": f.life.Seconds()}
	if f.tokens != nil {
		f.tokens(answer)
	}
	return answer
}

// spoils has a path answer with something else; nil ends it.
func (f *fake) spoils(path string, by http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spoil[path] = by
}

// set changes the provider while it may be answering.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) count(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits[path]
}

// say is an answer of a status and a text.
func say(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// oidc is the configuration of the provider as one of type oidc.
func (f *fake) oidc(change func(*v1beta1.OIDCUpstream)) *v1beta1.UpstreamProvider {
	o := &v1beta1.OIDCUpstream{IssuerURL: f.URL, ClientID: clientID, ClientSecretRef: &v1beta1.SecretRef{Name: "s", Key: "k"}}
	if change != nil {
		change(o)
	}
	return &v1beta1.UpstreamProvider{Name: "corp", Type: v1beta1.UpstreamOIDC, OIDCConfig: o}
}

// oauth2 is the configuration of the provider as one of type oauth2.
func (f *fake) oauth2(change func(*v1beta1.OAuth2Upstream)) *v1beta1.UpstreamProvider {
	o := &v1beta1.OAuth2Upstream{AuthorizationEndpoint: f.URL + "/auth", TokenEndpoint: f.URL + "/token", ClientID: clientID, Scopes: []string{"mail"}}
	if change != nil {
		change(o)
	}
	return &v1beta1.UpstreamProvider{Name: "hub", Type: v1beta1.UpstreamOAuth2, OAuth2Config: o}
}

// secrets are the same for every name.
type secrets string

func (s secrets) Secret(context.Context, string, string) (edge.Secret, error) {
	return edge.Secret(s), nil
}

// records are those of a store in memory.
func records(t testing.TB) *kv.MemoryStore {
	m := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// open makes the provider of a configuration.
func (f *fake) open(t testing.TB, u *v1beta1.UpstreamProvider, kept upstream.Records, log io.Writer) *upstream.Provider {
	t.Helper()
	p, err := f.try(u, kept, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func (f *fake) try(u *v1beta1.UpstreamProvider, kept upstream.Records, log io.Writer) (*upstream.Provider, error) {
	c, wrong := upstream.Parse(field.NewPath("u"), u, redirect)
	if len(wrong) > 0 {
		return nil, wrong.ToAggregate()
	}
	c.Claims = true
	if log == nil {
		log = io.Discard
	}
	return upstream.New(c, upstream.Env{Reach: edge.Reach{CAs: f.CA}, Secrets: secrets(secret + "\n"), Records: kept, Log: slog.New(slog.NewTextHandler(log, nil))})
}

// tryWith is try with another secret.
func (f *fake) tryWith(u *v1beta1.UpstreamProvider, s secrets) (*upstream.Provider, error) {
	c, wrong := upstream.Parse(field.NewPath("u"), u, redirect)
	if len(wrong) > 0 {
		return nil, wrong.ToAggregate()
	}
	return upstream.New(c, upstream.Env{Reach: edge.Reach{CAs: f.CA}, Secrets: s})
}

// send sends a browser, and tells the provider of the nonce.
func (f *fake) send(t testing.TB, p *upstream.Provider) (url.Values, upstream.Leg) {
	t.Helper()
	address, leg, err := p.Send(t.Context(), "the-state", nil)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.nonce = leg.Nonce })
	return at.Query(), leg
}

// login is a whole login.
func (f *fake) login(t testing.TB, p *upstream.Provider) (*upstream.Tokens, *upstream.Who, error) {
	t.Helper()
	_, leg := f.send(t, p)
	return p.Return(t.Context(), leg, url.Values{"code": {"the-code"}, "state": {"the-state"}, "iss": {f.URL}}, true)
}

// silent fails where a text holds what no log or error may.
func (f *fake) silent(t testing.TB, what, text string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	words := []string{planted, secret, url.QueryEscape(secret), "the-code"}
	for n := range f.serial {
		words = append(words, fmt.Sprint("access-", n+1), fmt.Sprint("refresh-", n+1))
	}
	if i := slices.IndexFunc(words, func(w string) bool { return strings.Contains(text, w) }); i >= 0 {
		t.Errorf("%s holds %q: %s", what, words[i], text)
	}
}

// jsonOf is JSON as a value.
func jsonOf(t testing.TB, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}
