package authserver_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/mount"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

const (
	issuer   = "https://edge.example"
	audience = "https://edge.example/mcp"
	callback = "https://client.example/cb?a=1"
	verifier = "the-verifier-of-the-test-has-43-characters-or-more"
)

var challenge = func() string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}()

// fake is an identity provider by hand. Its subject is that of whoever signs in.
type fake struct {
	name, redirect string

	mu      sync.Mutex
	subject string
	err     error // of Return
	sendErr error
	serial  int
	sent    []string // states
}

func (f *fake) Name() string     { return f.name }
func (f *fake) Redirect() string { return f.redirect }

func (f *fake) Send(_ context.Context, state string, prompts []string) (string, upstream.Leg, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sendErr != nil {
		return "", upstream.Leg{}, f.sendErr
	}
	f.sent = append(f.sent, state)
	return "https://idp.example/" + f.name + "?state=" + state + "&prompt=" + strings.Join(prompts, "+"), upstream.Leg{Provider: f.name, Redirect: f.redirect, Nonce: "nonce-" + f.name, Verifier: "PLANTED-verifier"}, nil
}

func (f *fake) Return(_ context.Context, leg upstream.Leg, q url.Values, wantWho bool) (*upstream.Tokens, *upstream.Who, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if leg.Provider != f.name || leg.Nonce != "nonce-"+f.name {
		return nil, nil, fmt.Errorf("a leg of %q", leg.Provider)
	}
	if f.err != nil {
		return nil, nil, f.err
	}
	f.serial++
	t := &upstream.Tokens{
		Access: edge.Secret(fmt.Sprint("PLANTED-access-", f.name, f.serial)), Refresh: edge.Secret(fmt.Sprint("PLANTED-refresh-", f.name, f.serial)),
		Issued: time.Now(), Expires: time.Now().Add(time.Hour), Claims: map[string]any{"groups": []any{"PLANTED-group"}},
	}
	var who *upstream.Who
	if wantWho {
		who = &upstream.Who{Subject: f.subject, Name: "PLANTED Alice", Email: "PLANTED@example.com"}
	}
	return t, who, nil
}

// clock is a time that tests move.
type clock struct {
	by    atomic.Int64
	still atomic.Pointer[time.Time] // when it stopped; nil for one that goes
}

func (c *clock) now() time.Time {
	now := c.still.Load()
	if now == nil {
		t := time.Now()
		now = &t
	}
	return now.Add(time.Duration(c.by.Load()))
}

// stops stops the clock.
func (c *clock) stops() { now := time.Now(); c.still.Store(&now) }

func (c *clock) moves(by time.Duration) { c.by.Add(int64(by)) }

// counting is a store that counts calls, and can be away.
type counting struct {
	edge.Store
	calls atomic.Int64
	gone  atomic.Bool
}

var errGone = &edge.Error{Kind: edge.Overload, Op: "kv", Err: fmt.Errorf("store unavailable")}

func (c *counting) Get(ctx context.Context, key string) ([]byte, error) {
	if c.calls.Add(1); c.gone.Load() {
		return nil, errGone
	}
	return c.Store.Get(ctx, key)
}

func (c *counting) Put(ctx context.Context, key string, v []byte, ttl time.Duration) error {
	if c.calls.Add(1); c.gone.Load() {
		return errGone
	}
	return c.Store.Put(ctx, key, v, ttl)
}

func (c *counting) Delete(ctx context.Context, key string) error {
	if c.calls.Add(1); c.gone.Load() {
		return errGone
	}
	return c.Store.Delete(ctx, key)
}

func (c *counting) Update(ctx context.Context, key string, ttl time.Duration, change func([]byte) ([]byte, error)) error {
	if c.calls.Add(1); c.gone.Load() {
		return errGone
	}
	return c.Store.Update(ctx, key, ttl, change)
}

// secrets are secrets that tests change.
type secrets struct {
	mu  sync.Mutex
	all map[string]string
}

func (s *secrets) Secret(_ context.Context, name, key string) (edge.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.all[name+"/"+key]
	if !ok {
		return "", edge.Errorf(edge.NotFound, "secret", "there is no secret %s/%s", name, key)
	}
	return edge.Secret(v), nil
}

// rig is an authorization server and what is around it.
type rig struct {
	*authserver.Server
	t         testing.TB
	config    *authserver.Spec
	mux       *mount.Table
	store     *counting
	clock     *clock
	providers []*fake
	log       *strings.Builder

	mu     sync.Mutex
	events []authserver.Event
	serial atomic.Int64
}

// options change a rig before it opens.
type options struct {
	store   edge.Store
	names   []string // of providers
	config  func(*authserver.Spec)
	secrets *secrets
	reach   edge.Reach
	clock   *clock
	lasting *authserver.Lasting
}

// base is the configuration that tests start from.
func base() *authserver.Spec {
	return &authserver.Spec{
		Issuer: issuer, Base: issuer, Scopes: []string{"openid", "profile", "email", "offline_access", "mail.read"},
		Resources: []authserver.Resource{{Server: "tools", URL: audience, Audience: audience, Scopes: []string{"openid", "profile"}}},
		Access:    time.Hour, Code: 10 * time.Minute, Refresh: 168 * time.Hour,
	}
}

func open(t testing.TB, o options) *rig {
	t.Helper()
	r, err := try(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func try(t testing.TB, o options) (*rig, error) {
	r := &rig{t: t, config: base(), clock: o.clock, store: &counting{Store: o.store}, log: &strings.Builder{}}
	if r.clock == nil {
		r.clock = &clock{}
	}
	if o.store == nil {
		m := kv.Memory(kv.Limits{})
		t.Cleanup(func() { _ = m.Close() })
		r.store.Store = m
	}
	local := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = local.Close() })
	if o.config != nil {
		o.config(r.config)
	}
	if o.names == nil && r.config.Upstreams == nil {
		o.names = []string{"corp"}
	}
	env := authserver.Env{Store: r.store, Local: local, Lasting: o.lasting, Reach: o.reach, Now: r.clock.now, Told: r.hear, Log: slog.New(slog.NewTextHandler(&locked{b: r.log}, nil))}
	if o.secrets != nil {
		env.Secrets = o.secrets
	}
	for _, name := range o.names {
		f := &fake{name: name, redirect: r.config.Base + "/oauth/callback", subject: "alice"}
		r.providers = append(r.providers, f)
		env.Providers = append(env.Providers, f)
	}
	var err error
	if r.Server, err = authserver.New(t.Context(), r.config, env); err != nil {
		return nil, err
	}
	t.Cleanup(r.Close)
	r.mux = &mount.Table{}
	for _, all := range r.Mounts() {
		for _, m := range all {
			r.mux.Add(m)
		}
	}
	return r, nil
}

// locked is a writer for several goroutines.
type locked struct {
	mu sync.Mutex
	b  *strings.Builder
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (r *rig) hear(e authserver.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// told reports whether an event has been told.
func (r *rig) told(what string, outcome authserver.Outcome) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.events, func(e authserver.Event) bool { return e.What == what && e.Outcome == outcome })
}

// do sends a request, from an address of its own where it has none.
func (r *rig) do(req *http.Request) *httptest.ResponseRecorder {
	if req.RemoteAddr == "192.0.2.1:1234" { // of httptest
		n := r.serial.Add(1)
		req.RemoteAddr = fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
	}
	w := httptest.NewRecorder()
	m, ok := r.mux.Find(req.URL.Path)
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return w
	}
	m.Handler.ServeHTTP(w, req)
	return w
}

func (r *rig) get(path string) *httptest.ResponseRecorder {
	return r.do(httptest.NewRequest(http.MethodGet, path, nil))
}

func (r *rig) post(path string, form url.Values, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return r.do(req)
}

// answer is the JSON of an answer.
func answer(t testing.TB, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
		t.Fatalf("status %d: %v: %s", w.Code, err, w.Body)
	}
	return all
}

// register registers a client.
func (r *rig) register(more map[string]any) (id, secret string) {
	r.t.Helper()
	w := r.registers(more)
	if w.Code != http.StatusCreated {
		r.t.Fatalf("register: status %d: %s", w.Code, w.Body)
	}
	all := answer(r.t, w)
	id, _ = all["client_id"].(string)
	secret, _ = all["client_secret"].(string)
	return id, secret
}

func (r *rig) registers(more map[string]any) *httptest.ResponseRecorder {
	ask := map[string]any{"redirect_uris": []string{callback}, "client_name": "Test program", "grant_types": []string{"authorization_code", "refresh_token"}}
	for name, value := range more {
		ask[name] = value
	}
	text, err := json.Marshal(ask)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.registersText(string(text))
}

func (r *rig) registersText(text string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/oauth/register", strings.NewReader(text))
	req.Header.Set("Content-Type", "application/json")
	return r.do(req)
}

// asking is a sound request for authorization.
func asking(client string) url.Values {
	return url.Values{
		"client_id": {client}, "redirect_uri": {callback}, "response_type": {"code"}, "code_challenge": {challenge}, "code_challenge_method": {"S256"},
		"state": {"the state & more"}, "scope": {"openid profile"}, "resource": {audience}, "nonce": {"the-nonce"},
	}
}

// browser is a browser: it keeps cookies.
type browser struct {
	rig     *rig
	cookies map[string]string
}

func (r *rig) browser() *browser { return &browser{rig: r, cookies: map[string]string{}} }

func (b *browser) do(req *http.Request) *httptest.ResponseRecorder {
	for name, value := range b.cookies {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := b.rig.do(req)
	for _, c := range w.Result().Cookies() {
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		} else {
			b.cookies[c.Name] = c.Value
		}
	}
	return w
}

func (b *browser) get(path string) *httptest.ResponseRecorder {
	return b.do(httptest.NewRequest(http.MethodGet, path, nil))
}

// authorize opens the authorization endpoint.
func (b *browser) authorize(q url.Values) *httptest.ResponseRecorder {
	return b.get("/oauth/authorize?" + q.Encode())
}

var hiddenForm = regexp.MustCompile(`name="form" value="([^"]+)"`)

// form is the sealed form of a consent page.
func form(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	m := hiddenForm.FindStringSubmatch(w.Body.String())
	if m == nil {
		t.Fatalf("no consent page: status %d, location %q: %s", w.Code, w.Header().Get("Location"), w.Body)
	}
	return m[1]
}

// answers posts the form of a consent page.
func (b *browser) answers(form, with string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/oauth/consent", strings.NewReader(url.Values{"form": {form}, "answer": {with}}.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if len(header) == 0 {
		header = []string{"Sec-Fetch-Site", "same-origin"}
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return b.do(req)
}

// allows goes to the upstream, and returns the state.
func (b *browser) allows(q url.Values) (state string) {
	b.rig.t.Helper()
	w := b.answers(form(b.rig.t, b.authorize(q)), "allow")
	return stateOf(b.rig.t, w)
}

func stateOf(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	to, err := url.Parse(w.Header().Get("Location"))
	if err != nil || w.Code != http.StatusSeeOther || to.Host != "idp.example" {
		t.Fatalf("status %d, location %q: %s", w.Code, w.Header().Get("Location"), w.Body)
	}
	return to.Query().Get("state")
}

// returns comes back from the upstream.
func (b *browser) returns(state string) *httptest.ResponseRecorder {
	return b.get("/oauth/callback?" + url.Values{"state": {state}, "code": {"PLANTED-upstream-code"}}.Encode())
}

var link = regexp.MustCompile(`<a class="button" href="([^"]+)">`)

// led is where a page leads on to.
func led(t testing.TB, w *httptest.ResponseRecorder) (to string, query url.Values) {
	t.Helper()
	m := link.FindStringSubmatch(w.Body.String())
	if w.Code != http.StatusOK || m == nil {
		t.Fatalf("no page that leads on: status %d: %s", w.Code, w.Body)
	}
	to = html.UnescapeString(m[1])
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	return to, u.Query()
}

// code signs a user in, and returns the code.
func (r *rig) code(q url.Values) string {
	r.t.Helper()
	b := r.browser()
	w := b.allows(q)
	var page *httptest.ResponseRecorder
	for range r.providers {
		page = b.returns(w)
		if to, q := led(r.t, page); strings.HasPrefix(to, "https://idp.example/") {
			w = q.Get("state") // of the next upstream
		}
	}
	_, got := led(r.t, page)
	if got.Get("code") == "" {
		r.t.Fatalf("no code: %v", got)
	}
	return got.Get("code")
}

// redeeming is the form that redeems a code.
func redeeming(client, code string) url.Values {
	return url.Values{"grant_type": {"authorization_code"}, "client_id": {client}, "code": {code}, "redirect_uri": {callback}, "code_verifier": {verifier}, "resource": {audience}}
}

// tokens are what the token endpoint issued.
type tokens struct{ Access, Refresh, ID string }

func (r *rig) tokens(w *httptest.ResponseRecorder) tokens {
	r.t.Helper()
	if w.Code != http.StatusOK {
		r.t.Fatalf("token: status %d: %s", w.Code, w.Body)
	}
	var t struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
		ID      string `json:"id_token"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &t); err != nil {
		r.t.Fatal(err)
	}
	return tokens{t.Access, t.Refresh, t.ID}
}

// signIn is a whole login of a new public client.
func (r *rig) signIn() (client string, t tokens) {
	r.t.Helper()
	client, _ = r.register(nil)
	return client, r.tokens(r.post("/oauth/token", redeeming(client, r.code(asking(client)))))
}

// refreshing is the form that renews tokens.
func refreshing(client, token string) url.Values {
	return url.Values{"grant_type": {"refresh_token"}, "client_id": {client}, "refresh_token": {token}}
}

// refused holds an answer to an error.
func refused(t testing.TB, what string, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	var e struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(w.Body.Bytes(), &e)
	if w.Code != status || e.Error != code {
		t.Errorf("%s: status %d, error %q, want %d, %q: %s", what, w.Code, e.Error, status, code, w.Body)
	}
}

// claims are those of a JWT of ours, whose signature holds.
func (r *rig) claims(token string) map[string]any {
	r.t.Helper()
	header, err := oauth.Header(edge.Secret(token))
	if err != nil {
		r.t.Fatalf("%v: %q", err, token)
	}
	kid, _ := header.Text("kid")
	alg, _ := header.Text("alg")
	key := r.Keys().Keys.Find(kid)
	if key == nil {
		r.t.Fatalf("no key %q", kid)
	}
	text, err := key.Verify(alg, []byte(token))
	if err != nil {
		r.t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		r.t.Fatal(err)
	}
	return all
}

// alive reports whether the grant of an access token lives.
func (r *rig) alive(token string) bool {
	r.t.Helper()
	id, _ := r.claims(token)["tsid"].(string)
	l, err := r.Look(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return l != nil && l.Lives(r.clock.now())
}

// onBoth runs a test on a store in memory and on Redis.
func onBoth(t *testing.T, test func(t *testing.T, store edge.Store)) {
	t.Run("memory", func(t *testing.T) {
		m := kv.Memory(kv.Limits{})
		t.Cleanup(func() { _ = m.Close() })
		test(t, m)
	})
	t.Run("redis", func(t *testing.T) {
		server := kvtest.Redis(t)
		s, err := kv.Redis(kv.Options{Addresses: []string{server.Addr}, Timeout: 20 * time.Second, Dial: 20 * time.Second, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		edgetest.Until(t, "a store that is ready", func() bool { return s.Ready() == nil })
		test(t, s)
	})
}

// ref names a secret of a test.
func ref(key string) v1beta1.SecretRef { return v1beta1.SecretRef{Name: "as", Key: key} }
