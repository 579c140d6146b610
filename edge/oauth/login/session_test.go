package login_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/port"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/oauth/login"
)

// Variables by which this test is another process: the URL of a server, the folder of a store,
// and whether nobody is there.
const (
	childURL = "WEIR_PEERS_LOGIN_URL"
	childDir = "WEIR_PEERS_LOGIN_DIR"
)

// TestChild is what other processes do: one call with what is kept. It says what became of it.
func TestChild(t *testing.T) {
	target := os.Getenv(childURL)
	if target == "" {
		return // this is not another process
	}
	s, err := login.Open(login.Options{URL: target}, &login.Store{Dir: os.Getenv(childDir)}, guarded(t, true), true)
	if err != nil {
		t.Fatal(err)
	}
	status, err := get(t, s, target)
	fmt.Printf("child: status %d, needed %v, %v\n", status, errors.As(err, new(*login.NeededError)), err)
}

// child starts another process that calls the server of a world; its output is in the buffer.
func child(t *testing.T, url, dir string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childURL+"="+url, childDir+"="+dir)
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// renewals counts refreshes, and says of each with which refresh token it was.
func (w *world) renewals() (tokens []string) {
	w.seen(func() {
		for _, f := range w.forms {
			if f.Get("grant_type") == "refresh_token" {
				tokens = append(tokens, f.Get("refresh_token"))
			}
		}
	})
	return tokens
}

// rotating makes the token endpoint take each refresh token once.
func (w *world) rotating() {
	good, n := "", 0
	w.token = func(f url.Values) (int, string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if f.Get("grant_type") == "refresh_token" && f.Get("refresh_token") != good {
			return 400, `{"error":"invalid_grant"}`
		}
		n++
		good = "refresh-" + strconv.Itoa(n)
		return 200, fmt.Sprintf(`{"access_token":"access-%d","token_type":"Bearer","expires_in":3600,"refresh_token":%q}`, n, good)
	}
}

// TestT29 has 8 goroutines of each of 3 processes find a token that is over: one request
// renews it for all.
func TestT29(t *testing.T) {
	w := newWorld(t)
	w.rotating()
	store := storeOf(t)
	s := w.open(store, nil)
	if _, err := s.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	age(t, store, time.Now())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if status, err := get(t, s, w.url()); status != 200 || err != nil {
				t.Errorf("status %d, %v", status, err)
			}
		})
	}
	for range 2 {
		cmd, out := child(t, w.url(), store.Dir)
		all.Go(func() {
			if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "child: status 200,") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	if got := w.renewals(); !slices.Equal(got, []string{"refresh-1"}) {
		t.Errorf("renewed with %q", got)
	}
}

// TestT30 holds that a new refresh token is kept before anything else in the answer is looked
// at, and the old one never sent again.
func TestT30(t *testing.T) {
	w := newWorld(t)
	w.rotating()
	store := storeOf(t)
	s := w.open(store, nil)
	if _, err := s.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	age(t, store, time.Now().Add(-time.Minute))
	sound := w.token
	w.token = func(f url.Values) (int, string) {
		_, text := sound(f)
		return 200, strings.Replace(text, `"Bearer"`, `"mac"`, 1) // T11
	}
	if _, err := get(t, s, w.url()); err == nil || !strings.Contains(err.Error(), "token_type") {
		t.Errorf("error %v", err)
	}
	w.token = sound // for another process: this one waits for a second
	if status, err := get(t, w.open(store, nil), w.url()); status != 200 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	if got := w.renewals(); !slices.Equal(got, []string{"refresh-1", "refresh-2"}) {
		t.Errorf("renewed with %q", got)
	}
}

// TestT30Killed kills a process by SIGKILL after its refresh token was used up and before it
// could write the new one: the next process asks to log in, once, and the one after a login
// works.
func TestT30Killed(t *testing.T) {
	w := newWorld(t)
	w.rotating()
	store := storeOf(t)
	if _, err := w.open(store, nil).Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		age(t, store, time.Now().Add(-time.Minute))
		used, hold := make(chan struct{}), make(chan struct{})
		sound := w.token
		w.seen(func() {
			w.token = func(f url.Values) (int, string) {
				status, text := sound(f)
				close(used)
				<-hold
				return status, text
			}
		})
		cmd, out := child(t, w.url(), store.Dir)
		select {
		case <-used:
		case <-time.After(edgetest.Patience):
			t.Fatalf("no refresh: %s", out)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		close(hold)
		w.seen(func() { w.token = sound })
		before := len(w.renewals())
		cmd, out = child(t, w.url(), store.Dir)
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "needed true") {
			t.Errorf("round %d: %v: %s", round, err, out)
		}
		cmd, out = child(t, w.url(), store.Dir)
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "needed true") {
			t.Errorf("round %d, once more: %v: %s", round, err, out)
		}
		if n := len(w.renewals()) - before; n != 1 {
			t.Errorf("round %d: %d requests with a token that is worth nothing", round, n)
		}
		if status, err := get(t, w.open(store, nil), w.url()); status != 200 || err != nil {
			t.Errorf("round %d: a login: status %d, %v", round, status, err)
		}
	}
}

// TestT31 holds that a refresh token is of one client, issuer and resource: other options make
// a clean login, and what was given to the former client is not sent.
func TestT31(t *testing.T) {
	for name, change := range map[string]func(*login.Options){
		"client":   func(o *login.Options) { o.ClientID = "another" },
		"resource": func(o *login.Options) { o.Resource = "https://another.example.com" },
		"scopes":   func(o *login.Options) { o.Scopes = []string{"more"} },
		"issuer":   func(o *login.Options) { o.Issuer = "http://127.0.0.1:1" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			store := storeOf(t)
			if _, err := w.open(store, nil).Login(t.Context()); err != nil {
				t.Fatal(err)
			}
			age(t, store, time.Now().Add(-time.Minute))
			status, err := get(t, w.open(store, change), w.url())
			if name != "issuer" && (status != 200 || err != nil) || name == "issuer" && err == nil {
				t.Errorf("status %d, %v", status, err)
			}
			if got := w.renewals(); len(got) != 0 {
				t.Errorf("renewed with %q", got)
			}
		})
	}
	t.Run("another authorization server", func(t *testing.T) {
		one, other := newWorld(t), newWorld(t)
		store := storeOf(t)
		if _, err := one.open(store, nil).Login(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := one.open(store, nil)
		one.resource = func(doc map[string]any) { doc["authorization_servers"] = []string{other.as.URL} }
		one.judge = func(token string, n int) (int, string) {
			if n > 2 {
				return 200, ""
			}
			return 401, fmt.Sprintf(`Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp"`, one.mcp.URL)
		}
		one.token = func(url.Values) (int, string) { return 400, `{"error":"invalid_grant"}` }
		if status, err := get(t, s, one.url()); status != 200 || err != nil {
			t.Fatalf("status %d, %v", status, err)
		}
		if len(other.registered) != 1 || len(other.authorized) != 1 {
			t.Errorf("registered %d times, asked %v", len(other.registered), other.authorized)
		}
	})
}

// TestClientIsGone holds that a client that the server does not know any more is registered
// anew, once.
func TestClientIsGone(t *testing.T) {
	w := newWorld(t)
	store := storeOf(t)
	s := w.open(store, nil)
	if _, err := s.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	age(t, store, time.Now().Add(-time.Minute))
	sound := w.token
	w.token = func(f url.Values) (int, string) {
		if f.Get("client_id") == "client-1" {
			return 401, `{"error":"invalid_client"}`
		}
		return sound(f)
	}
	if status, err := get(t, s, w.url()); status != 200 || err != nil || len(w.registered) != 2 || len(w.renewals()) != 1 {
		t.Errorf("status %d, %v, %d registrations, %d refreshes", status, err, len(w.registered), len(w.renewals()))
	}
}

// TestLoginAsAForgottenClient: where the server has forgotten the client of the last login, and says
// so at the token endpoint, by the browser, or on a page from which nobody comes back, the login
// fails once and says what to do; the next one registers. What was given before stays meanwhile.
func TestLoginAsAForgottenClient(t *testing.T) {
	for name, forget := range map[string]func(w *world, page *atomic.Bool){
		"at the token endpoint": func(w *world, _ *atomic.Bool) {
			sound := w.token
			w.token = func(f url.Values) (int, string) {
				if f.Get("client_id") == "client-1" {
					return 401, `{"error":"invalid_client"}`
				}
				return sound(f)
			}
		},
		"by the browser": func(w *world, _ *atomic.Bool) {
			w.back = func(q url.Values) {
				w.seen(func() {
					if len(w.registered) == 1 {
						q.Del("code")
						q.Set("error", "unauthorized_client")
					}
				})
			}
		},
		"on a page":              func(_ *world, page *atomic.Bool) { page.Store(true) },
		"on a page that is left": func(_ *world, page *atomic.Bool) { page.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			w, store, page := newWorld(t), storeOf(t), &atomic.Bool{}
			address, err := port.Free()
			if err != nil {
				t.Fatal(err)
			}
			at, err := strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:])
			if err != nil {
				t.Fatal(err)
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			change := func(o *login.Options) {
				o.CallbackPort = at
				o.Browse = func(where string) error {
					if page.Load() && strings.Contains(where, "client_id=client-1&") {
						if name == "on a page that is left" {
							leave()
						}
						return nil
					}
					return browser(where)
				}
			}
			first, err := w.open(store, change).Login(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			forget(w, page)
			_, err = w.open(store, func(o *login.Options) {
				change(o)
				if name == "on a page" {
					o.Timeout = 2 * time.Second
				}
			}).Login(ctx)
			if err == nil || !strings.Contains(err.Error(), "log in again, as a new one") {
				t.Errorf("the forgotten client: %v", err)
			}
			if token, err := w.open(store, change).Token(t.Context()); err != nil || string(token) != first.Tokens.Access {
				t.Errorf("what was given before is gone: %v", err)
			}
			second, err := w.open(store, change).Login(t.Context())
			if err != nil || second.Client.ID != "client-2" {
				t.Errorf("the next login is that of %q: %v", second.Client.ID, err)
			}
			if _, err := w.open(store, change).Login(t.Context()); err != nil || len(w.registered) != 2 {
				t.Errorf("%v, %d registrations", err, len(w.registered))
			}
		})
	}
}

// TestStepUp holds that more scopes are asked for as a union, and at most three times in a row.
func TestStepUp(t *testing.T) {
	w := newWorld(t)
	metadata := func() string { return w.mcp.URL + "/.well-known/oauth-protected-resource/mcp" }
	w.judge = func(token string, _ int) (int, string) {
		switch token {
		case "":
			return 401, fmt.Sprintf(`Bearer scope="a", resource_metadata=%q`, metadata())
		case "access-1":
			return 403, fmt.Sprintf(`Bearer error="insufficient_scope", scope="b", resource_metadata=%q`, metadata())
		}
		return 200, ""
	}
	store := storeOf(t)
	if status, err := get(t, w.open(store, nil), w.url()); status != 200 || err != nil {
		t.Fatalf("status %d, %v", status, err)
	}
	if len(w.authorized) != 2 || w.authorized[0].Get("scope") != "a" || w.authorized[1].Get("scope") != "a b" {
		t.Errorf("asked for %v", w.authorized)
	}

	// A server that always wants another one.
	w = newWorld(t)
	var n atomic.Int32
	w.judge = func(token string, _ int) (int, string) {
		if token == "" {
			return 401, "Bearer"
		}
		return 403, fmt.Sprintf(`Bearer error="insufficient_scope", scope="s%d"`, n.Add(1))
	}
	s := w.open(storeOf(t), nil)
	if status, err := get(t, s, w.url()); status != 403 || err != nil || len(w.authorized) != 3 {
		t.Errorf("status %d, %v, %d logins", status, err, len(w.authorized))
	}
	if status, err := get(t, s, w.url()); status != 403 || err != nil || len(w.authorized) != 3 {
		t.Errorf("again: status %d, %v, %d logins", status, err, len(w.authorized))
	}

	// One that wants what the login has.
	w = newWorld(t)
	w.judge = func(token string, _ int) (int, string) {
		if token == "" {
			return 401, `Bearer scope="a"`
		}
		return 403, `Bearer error="insufficient_scope", scope="a"`
	}
	if status, err := get(t, w.open(storeOf(t), nil), w.url()); status != 403 || err != nil || len(w.authorized) != 1 {
		t.Errorf("status %d, %v, %d logins", status, err, len(w.authorized))
	}
}

// TestAlwaysRefused holds that a server that refuses whatever it is shown costs one login.
func TestAlwaysRefused(t *testing.T) {
	w := newWorld(t)
	w.judge = func(string, int) (int, string) { return 401, "Bearer" }
	store := storeOf(t)
	s := w.open(store, nil)
	for range 3 {
		if status, err := get(t, s, w.url()); status != 401 || err != nil {
			t.Errorf("status %d, %v", status, err)
		}
	}
	if len(w.authorized) != 1 {
		t.Errorf("%d logins", len(w.authorized))
	}
}

// TestUnattended holds that nobody is asked where nobody is, and what is said then.
func TestUnattended(t *testing.T) {
	w := newWorld(t)
	o := login.Options{URL: w.url(), Browse: func(string) error { t.Error("a browser was opened"); return nil }}
	s, err := login.Open(o, storeOf(t), guarded(t, true), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, s, w.url()); !errors.As(err, new(*login.NeededError)) || !strings.Contains(err.Error(), "log in with `weir auth login "+w.url()+"`") {
		t.Errorf("error %v", err)
	}
}

// TestTokenEndpointAway holds that an authorization server that is away costs what is still
// good nothing, and that what is over is not sent.
func TestTokenEndpointAway(t *testing.T) {
	w := newWorld(t)
	store := storeOf(t)
	s := w.open(store, nil)
	if _, err := s.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.token = func(url.Values) (int, string) { return 503, "{}" }
	age(t, store, time.Now().Add(20*time.Second))
	if status, err := get(t, s, w.url()); status != 200 || err != nil {
		t.Errorf("still good: status %d, %v", status, err)
	}
	age(t, store, time.Now().Add(-time.Second))
	calls := len(w.calls)
	if _, err := get(t, s, w.url()); err == nil || !strings.Contains(err.Error(), "status 503: try again, or log in anew") || len(w.calls) != calls {
		t.Errorf("error %v, %d calls", err, len(w.calls)-calls)
	}
}

// TestElsewhere holds that a token goes to the server that it is for alone.
func TestElsewhere(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	s := w.open(storeOf(t), func(o *login.Options) { o.BearerToken = "static" })
	if _, err := get(t, s, other.url()); err != nil || !slices.Equal(other.calls, []string{""}) {
		t.Errorf("%v, %q", err, other.calls)
	}
}

// TestTokenEndpointHangs holds that one renewal is under way for all, that who waits for it leaves
// when it wants, and that what is still good is given: at once where a renewal has just failed.
func TestTokenEndpointHangs(t *testing.T) {
	w := newWorld(t)
	store := storeOf(t)
	client, err := oauth.New(oauth.Options{Reach: edge.Reach{DevLoopback: true}, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s, err := login.Open(login.Options{URL: w.url(), CallbackPort: login.AnyPort, Browse: browser, Timeout: edgetest.Patience}, store, client, false)
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.Login(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	w.seen(func() { w.token = func(url.Values) (int, string) { <-over; return 503, "{}" } })
	age(t, store, time.Now().Add(20*time.Second))
	var all sync.WaitGroup
	var ended atomic.Int32
	for range 20 {
		all.Go(func() {
			token, err := s.Token(t.Context())
			ended.Add(1)
			if err != nil || string(token) != k.Tokens.Access {
				t.Errorf("still good: %v", err)
			}
		})
	}
	edgetest.Until(t, "a renewal to begin", func() bool { return len(w.renewals()) > 0 })
	s.Worked()
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Token(short); !errors.Is(err, context.Canceled) {
		t.Errorf("who leaves: %v", err)
	}
	if n := ended.Load(); n != 0 {
		t.Errorf("one waited for the renewal: %d calls have ended", n)
	}
	all.Wait()
	if token, err := s.Token(t.Context()); err != nil || string(token) != k.Tokens.Access {
		t.Errorf("after a failure: %v", err)
	}
	if n := len(w.renewals()); n != 1 {
		t.Errorf("%d renewals", n)
	}
}

// TestUnsaidRefusals holds that a login and its registration outlive a 401 of something that stands
// before the authorization server, and a client that the user gave any 401.
func TestUnsaidRefusals(t *testing.T) {
	for name, one := range map[string]struct {
		change func(*login.Options)
		status int
		text   string
	}{
		"a page of a proxy":           {nil, 401, "<html>log in to the proxy</html>"},
		"JSON of a proxy":             {nil, 401, `{"error":"proxy_authentication"}`},
		"another secret for a moment": {func(o *login.Options) { o.ClientID, o.ClientSecret = "given", "secret" }, 401, `{"error":"invalid_client"}`},
		"another right for a moment":  {func(o *login.Options) { o.ClientID, o.ClientSecret = "given", "secret" }, 400, `{"error":"unauthorized_client"}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			store := storeOf(t)
			if _, err := w.open(store, one.change).Login(t.Context()); err != nil {
				t.Fatal(err)
			}
			age(t, store, time.Now().Add(-time.Minute))
			before, _ := store.List()
			sound := w.token
			w.seen(func() { w.token = func(url.Values) (int, string) { return one.status, one.text } })
			if _, err := w.open(store, one.change).Token(t.Context()); err == nil || !strings.Contains(err.Error(), "try again") {
				t.Errorf("error %v", err)
			}
			if after, err := store.List(); err != nil || len(after) != 1 || after[0].Tokens.Refresh != before[0].Tokens.Refresh || after[0].Client != before[0].Client {
				t.Errorf("the login is gone: %v", err)
			}
			w.seen(func() { w.token = sound })
			if status, err := get(t, w.open(store, one.change), w.url()); status != 200 || err != nil || len(w.authorized) != 1 {
				t.Errorf("after that: status %d, %v, %d logins", status, err, len(w.authorized))
			}
		})
	}
}

// TestClientSecretIsReadAnew holds that a client secret that changes is used by the next request.
func TestClientSecretIsReadAnew(t *testing.T) {
	w := newWorld(t)
	w.metadata = func(doc map[string]any) {
		doc["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
	}
	store, secret := storeOf(t), "first"
	s := w.open(store, func(o *login.Options) {
		o.ClientID, o.ReadClientSecret = "given", func() (edge.Secret, error) { return edge.Secret(secret), nil }
	})
	if _, err := s.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	secret = "second"
	age(t, store, time.Now().Add(-time.Minute))
	if status, err := get(t, s, w.url()); status != 200 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	w.seen(func() {
		if len(w.forms) != 2 || w.forms[0].Get("client_secret") != "first" || w.forms[1].Get("client_secret") != "second" {
			t.Errorf("%d requests, and not with the secret of the moment", len(w.forms))
		}
	})
}

// TestSlowMetadata: metadata that take longer than a login may are told of in words.
func TestSlowMetadata(t *testing.T) {
	w := newWorld(t)
	w.resource = func(map[string]any) { <-t.Context().Done() }
	_, err := w.open(storeOf(t), func(o *login.Options) { o.Timeout = time.Second }).Login(t.Context())
	if err == nil || !strings.Contains(err.Error(), "metadata of the resource: "+w.mcp.URL+"/.well-known/oauth-protected-resource/mcp: no answer in time") || strings.Contains(err.Error(), "deadline") {
		t.Errorf("%v", err)
	}
}
