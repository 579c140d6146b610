package oauth_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

const plantedSecret = "planted-secret-0815"

func secretOf(value edge.Secret) func(context.Context) (edge.Secret, error) {
	return func(context.Context) (edge.Secret, error) { return value, nil }
}

// endpoint is a token endpoint that answers by h.
func endpoint(t testing.TB, o oauth.TokenOptions, h http.HandlerFunc) *oauth.TokenEndpoint {
	t.Helper()
	o.URL, o.Trust = serve(t, h).URL+"/token?tenant=a", oauth.Named
	if o.Client == nil {
		o.Client = lenient(t)
	}
	return oauth.NewTokenEndpoint(o)
}

// answering is one whose every answer is the same.
func answering(t testing.TB, status int, body string) *oauth.TokenEndpoint {
	t.Helper()
	return endpoint(t, oauth.TokenOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

func jwt(claims string) string {
	e := base64.RawURLEncoding.EncodeToString
	return e([]byte(`{"alg":"none"}`)) + "." + e([]byte(claims)) + "." + e([]byte("signature"))
}

// What an answer may hold, and what of it counts.
func TestT11(t *testing.T) {
	asked := time.Unix(1_700_000_000, 0)
	for _, tt := range []struct {
		answer string
		life   time.Duration // 0: refused
	}{
		{`{"access_token":"a","token_type":"Bearer","expires_in":60}`, time.Minute},
		{`{"access_token":"a","token_type":"bearer","expires_in":"3600"}`, time.Hour},
		{`{"access_token":"a","token_type":"Bearer","expires_in":1e18}`, 24 * time.Hour},
		{`{"access_token":"a","token_type":"Bearer","expires_in":1e999}`, 24 * time.Hour},
		{`{"access_token":"a","token_type":"Bearer","expires_in":"99999999999999999999999"}`, 24 * time.Hour},
		{`{"access_token":"a","token_type":"Bearer","expires_in":1.5}`, 1500 * time.Millisecond},
		{`{"access_token":"a","token_type":"Bearer"}`, 5 * time.Minute},
		{`{"access_token":"a","token_type":"Bearer","refresh_token":null,"expires_in":null}`, 5 * time.Minute},
		{`{"access_token":"` + jwt(`{"exp":1700000090}`) + `","token_type":"Bearer"}`, 90 * time.Second},
		{`{"access_token":"` + jwt(`{"exp":1e12}`) + `","token_type":"Bearer"}`, 0},
		{`{"access_token":"` + jwt(`{"exp":1800000000}`) + `","token_type":"Bearer"}`, 24 * time.Hour},
		{`{"access_token":"` + jwt(`{"exp":1700000000}`) + `","token_type":"Bearer"}`, 0},
		{`{"access_token":"` + jwt(`{"exp":"soon"}`) + `","token_type":"Bearer"}`, 0},
		{`{"access_token":"a","token_type":"Bearer","expires_in":-1}`, 0},
		{`{"access_token":"a","token_type":"Bearer","expires_in":0}`, 0},
		{`{"access_token":"a","token_type":"Bearer","expires_in":1e-999}`, 0},
		{`{"access_token":"a","token_type":"Bearer","expires_in":"-1"}`, 0},
		{`{"access_token":"a","token_type":"Bearer","expires_in":"0x10"}`, 0},
		{`{"access_token":"a","token_type":"Bearer","expires_in":""}`, 0},
		{`{"access_token":"a","token_type":"Bearer","expires_in":true}`, 0},
		{`{"token_type":"Bearer","expires_in":60}`, 0},
		{`{"access_token":"","token_type":"Bearer"}`, 0},
		{`{"access_token":null,"token_type":"Bearer"}`, 0},
		{`{"access_token":7,"token_type":"Bearer"}`, 0},
		{`{"access_token":"a"}`, 0},
		{`{"access_token":"a","token_type":"mac"}`, 0},
		{`{"access_token":"a","token_type":"N_A"}`, 0},
		{`{"access_token":"a","token_type":"DPoP"}`, 0},
		{`{"access_token":"a\r\nX: y","token_type":"Bearer"}`, 0},
		{`{"access_token":"a b","token_type":"Bearer"}`, 0},
		{`{"access_token":"ä","token_type":"Bearer"}`, 0},
		{`{"access_token":"a\u0000","token_type":"Bearer"}`, 0},
		{`{"access_token":"` + strings.Repeat("a", 64<<10) + `","token_type":"Bearer","expires_in":60}`, time.Minute},
		{`{"access_token":"` + strings.Repeat("a", 64<<10+1) + `","token_type":"Bearer","expires_in":60}`, 0},
		{`{"access_token":"a","access_token":"b","token_type":"Bearer"}`, 0},
		{`{"access_token":"a","token_type":"Bearer","\u0061ccess_token":"b"}`, 0},
		{`{"access_token":"a","token_type":"Bearer","refresh_token":{}}`, 0},
		{`{"access_token":"a","token_type":"Bearer","scope":["b"]}`, 0},
		{`{"access_token":"a","token_type":"Bearer","issued_token_type":1}`, 0},
		{`{"access_token":"a","token_type":"Bearer"} {}`, 0},
		{`["access_token"]`, 0},
		{`access_token=a&token_type=bearer`, 0},
		{``, 0},
	} {
		got, err := oauth.ParseToken([]byte(tt.answer), asked, oauth.Want{})
		if (err == nil) != (tt.life > 0) {
			t.Errorf("%.100s: %v", tt.answer, err)
		} else if err == nil && got.Expires.Sub(asked) != tt.life {
			t.Errorf("%.100s: good for %s, want %s", tt.answer, got.Expires.Sub(asked), tt.life)
		}
		if err == nil {
			continue
		}
		_, err = answering(t, 200, tt.answer).Ask(t.Context(), url.Values{}, oauth.Want{})
		if edge.KindOf(err) != edge.Unavailable {
			t.Errorf("%.100s: %v", tt.answer, err)
		}
	}
}

// The other members, and an assertion in place of a token.
func TestTokenMembers(t *testing.T) {
	const id = "urn:ietf:params:oauth:token-type:id-jag"
	now := time.Now()
	got, err := oauth.ParseToken([]byte(`{"access_token":"a","token_type":"N_A","issued_token_type":"`+id+`","refresh_token":"r","id_token":"i","scope":"b c","x":{}}`), now, oauth.Want{Assertion: true, Issued: id})
	want := &oauth.Token{Access: "a", Issued: id, Refresh: "r", ID: "i", Scope: "b c", Expires: now.Add(5 * time.Minute)}
	if err != nil || *got != *want {
		t.Error(got, err)
	}
	for answer, want := range map[string]oauth.Want{
		`{"access_token":"a","token_type":"Bearer","issued_token_type":"` + id + `"}`: {Assertion: true},
		`{"access_token":"a","token_type":"Bearer","issued_token_type":"x"}`:          {Issued: id},
		`{"access_token":"a","token_type":"Bearer"}`:                                  {Issued: id},
	} {
		if _, err := oauth.ParseToken([]byte(answer), now, want); err == nil {
			t.Error(answer)
		}
	}
}

// What becomes of the client's call, and what the client and the log are told.
func TestT12(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		kind   edge.Kind
		log    string
	}{
		{400, `{"error":"invalid_grant"}`, edge.Unauthenticated, "invalid_grant (status 400)"},
		{400, `{"error":"interaction_required","error_description":"` + plantedSecret + `"}`, edge.Unauthenticated, "interaction_required"},
		{400, `{"error":"login_required"}`, edge.Unauthenticated, "login_required"},
		{400, `{"error":"consent_required"}`, edge.Unauthenticated, "consent_required"},
		{403, `{"error":"access_denied"}`, edge.Denied, "access_denied"},
		{400, `{"error":"invalid_scope"}`, edge.Denied, "invalid_scope"},
		{400, `{"error":"invalid_target"}`, edge.Denied, "invalid_target"},
		{401, `{"error":"invalid_client"}`, edge.Unavailable, "invalid_client"},
		{400, `{"error":"unauthorized_client"}`, edge.Unavailable, "unauthorized_client"},
		{400, `{"error":"` + plantedSecret + `"}`, edge.Unavailable, "status 400"},
		{404, plantedSecret, edge.Unavailable, "status 404"},
		{429, `{}`, edge.Unavailable, "status 429"},
		{500, `{"error":"invalid_grant"}`, edge.Unavailable, "status 500"},
		{503, plantedSecret, edge.Unavailable, "status 503"},
		{200, `{"error":"invalid_grant"}`, edge.Unavailable, "access_token"},
		{204, ``, edge.Unavailable, "status 204"},
		{201, `{"access_token":"a","token_type":"Bearer"}`, edge.Unavailable, "status 201"},
	} {
		token, err := answering(t, tt.status, tt.body).Ask(t.Context(), url.Values{}, oauth.Want{})
		if token != nil || edge.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.log) {
			t.Errorf("%d %s: %v, %v", tt.status, tt.body, edge.KindOf(err), err)
		}
		if oauth.Refused(err) != (tt.status/100 == 4) {
			t.Errorf("%d %s: refused: %v", tt.status, tt.body, oauth.Refused(err))
		}
		told(t, err, tt.kind)
	}
}

// told demands that a client reads a text that says nothing of the endpoint, and that the
// log has where it is without its query.
func told(t *testing.T, err error, kind edge.Kind) {
	t.Helper()
	var e *edge.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	want := map[edge.Kind]string{
		edge.Unauthenticated: "sign in again", edge.Denied: "the authorization server refuses access",
		edge.Timeout: "the authorization server does not answer", edge.Unavailable: "the authorization server issues no token",
	}[kind]
	if e.Err.Error() != want || !strings.Contains(e.Op, "/token") || strings.Contains(e.Op, "tenant") {
		t.Errorf("a client reads %q, the log %q", e.Err, e.Op)
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, plantedSecret) {
			t.Error("shows a secret: ", text)
		}
	}
}

// A peer that is down, silent, slow, or says more than anybody reads.
func TestT10TokenEndpoint(t *testing.T) {
	quick := func(o oauth.TokenOptions, h http.HandlerFunc) error {
		o.Client = client(t, oauth.Options{AllowHTTP: true, Timeout: 300 * time.Millisecond})
		_, err := endpoint(t, o, h).Ask(t.Context(), url.Values{}, oauth.Want{})
		return err
	}
	over := make(chan struct{})
	defer close(over)
	for name, tt := range map[string]struct {
		kind edge.Kind
		h    http.HandlerFunc
	}{
		"silent": {edge.Timeout, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-over:
			case <-r.Context().Done():
			}
		}},
		"a byte at a time": {edge.Timeout, func(w http.ResponseWriter, r *http.Request) {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "{")
				_ = http.NewResponseController(w).Flush()
				<-tick.C
			}
		}},
		"1 MiB and more": {edge.Unavailable, func(w http.ResponseWriter, r *http.Request) {
			for range 17 {
				_, _ = io.WriteString(w, strings.Repeat(" ", 64<<10))
			}
		}},
		"a deep value": {edge.Unavailable, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"access_token":"a","token_type":"Bearer","x":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}`)
		}},
		"compressed": {edge.Unavailable, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "{}")
		}},
		"a connection that breaks": {edge.Unavailable, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	} {
		err := quick(oauth.TokenOptions{}, tt.h)
		if edge.KindOf(err) != tt.kind || oauth.Refused(err) {
			t.Errorf("%s: %v", name, err)
		}
		told(t, err, tt.kind)
	}
	_, err := oauth.NewTokenEndpoint(oauth.TokenOptions{URL: "http://169.254.169.254/token?tenant=a", Trust: oauth.Named, Client: lenient(t)}).Ask(t.Context(), url.Values{}, oauth.Want{})
	if !isAddress(err) {
		t.Error(err)
	}
	told(t, err, edge.Unavailable)
}

// A redirect is followed by nobody, and whom it leads to learns nothing.
func TestT05TokenEndpoint(t *testing.T) {
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s came", r.Method) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		e := endpoint(t, oauth.TokenOptions{ClientID: "a", Secret: secretOf(plantedSecret)}, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, status)
		})
		_, err := e.Ask(t.Context(), url.Values{"subject_token": {plantedSecret}}, oauth.Want{})
		if edge.KindOf(err) != edge.Unavailable || oauth.Refused(err) {
			t.Errorf("%d: %v", status, err)
		}
		told(t, err, edge.Unavailable)
	}
}

// What a page of errors repeats of a request is told to nobody.
func TestT28TokenEndpoint(t *testing.T) {
	for _, status := range []int{200, 302, 400, 401, 500} {
		e := endpoint(t, oauth.TokenOptions{ClientID: "a", Secret: secretOf(plantedSecret)}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://example.com/?secret="+plantedSecret)
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"error":%q,"error_description":%q,"error_uri":"https://example.com/?x=%s"}`, plantedSecret, plantedSecret, plantedSecret)
		})
		_, err := e.Ask(t.Context(), url.Values{"subject_token": {plantedSecret}}, oauth.Want{})
		told(t, err, edge.Unavailable)
	}
}

// who is what a request said of its client.
type who struct{ basicID, basicSecret, id, secret, assertion string }

// How a client says who it is: what the server takes is found out once.
func TestClientAuthentication(t *testing.T) {
	const id, secret = "edge+1", "edge secret/1%"
	var mu sync.Mutex
	var all []who
	server := func(takes func(who) bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			one := who{id: r.PostFormValue("client_id"), secret: r.PostFormValue("client_secret"), assertion: r.PostFormValue("client_assertion")}
			if i, s, ok := r.BasicAuth(); ok {
				one.basicID, _ = url.QueryUnescape(i)
				one.basicSecret, _ = url.QueryUnescape(s)
			}
			mu.Lock()
			all = append(all, one)
			mu.Unlock()
			if !takes(one) {
				w.WriteHeader(401)
				return
			}
			_, _ = io.WriteString(w, `{"access_token":"a","token_type":"Bearer"}`)
		}
	}
	basic, body := who{basicID: id, basicSecret: secret}, who{id: id, secret: secret}
	signed := who{id: id, assertion: "signed"}
	for name, tt := range map[string]struct {
		method oauth.AuthMethod
		secret edge.Secret
		takes  func(who) bool
		want   []who
		fails  bool
	}{
		"basic":                   {oauth.AuthEither, secret, func(w who) bool { return w == basic }, []who{basic, basic}, false},
		"body after basic":        {oauth.AuthEither, secret, func(w who) bool { return w == body }, []who{basic, body, body}, false},
		"neither":                 {oauth.AuthEither, secret, func(who) bool { return false }, []who{basic, body, basic, body}, true},
		"basic after body":        {oauth.AuthBodyFirst, secret, func(w who) bool { return w == basic }, []who{body, basic, basic}, false},
		"body first":              {oauth.AuthBodyFirst, secret, func(w who) bool { return w == body }, []who{body, body}, false},
		"body first, no secret":   {oauth.AuthBodyFirst, "", func(w who) bool { return w == who{id: id} }, []who{{id: id}, {id: id}}, false},
		"basic alone":             {oauth.AuthBasic, secret, func(w who) bool { return w == body }, []who{basic, basic}, true},
		"body alone":              {oauth.AuthBody, secret, func(w who) bool { return w == body }, []who{body, body}, false},
		"no secret":               {oauth.AuthEither, "", func(w who) bool { return w == who{id: id} }, []who{{id: id}, {id: id}}, false},
		"no use of a secret":      {oauth.AuthNone, secret, func(w who) bool { return w == who{id: id} }, []who{{id: id}, {id: id}}, false},
		"an assertion of its own": {oauth.AuthSigned, "", func(w who) bool { return w == signed }, []who{signed, signed}, false},
	} {
		all = nil
		o := oauth.TokenOptions{Method: tt.method, ClientID: id, Sign: secretOf("signed")}
		if tt.secret != "" {
			o.Secret = secretOf(tt.secret)
		}
		e := endpoint(t, o, server(tt.takes))
		for range 2 {
			if _, err := e.Ask(t.Context(), url.Values{"grant_type": {"x"}}, oauth.Want{}); (err != nil) != tt.fails {
				t.Errorf("%s: %v", name, err)
			}
		}
		if fmt.Sprint(all) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", name, all, tt.want)
		}
	}
}

// A server that changes its mind about the way is followed, and a refusal of another kind
// is not tried in two ways.
func TestClientAuthenticationChanges(t *testing.T) {
	var byBody, refuses bool
	asked := 0
	e := endpoint(t, oauth.TokenOptions{ClientID: "a", Secret: secretOf("b")}, func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch _, _, basic := r.BasicAuth(); {
		case refuses:
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
		case basic == byBody:
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":"invalid_client"}`)
		default:
			_, _ = io.WriteString(w, `{"access_token":"a","token_type":"Bearer"}`)
		}
	})
	for i, want := range []int{1, 2, 1, 2, 1} {
		byBody, asked = i == 1 || i == 2, 0
		if _, err := e.Ask(t.Context(), url.Values{}, oauth.Want{}); err != nil || asked != want {
			t.Errorf("%d: asked %d times, want %d: %v", i, asked, want, err)
		}
	}
	refuses, asked = true, 0
	if _, err := e.Ask(t.Context(), url.Values{}, oauth.Want{}); edge.KindOf(err) != edge.Unauthenticated || asked != 1 {
		t.Error(asked, err)
	}
}

// A secret that cannot be had ends the request before it is made; so does a client that
// has gone.
func TestAskEnds(t *testing.T) {
	e := endpoint(t, oauth.TokenOptions{ClientID: "a", Secret: func(context.Context) (edge.Secret, error) {
		return "", errors.New("secret a/b: not found")
	}}, func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	_, err := e.Ask(t.Context(), url.Values{}, oauth.Want{})
	if edge.KindOf(err) != edge.Unavailable || !strings.Contains(err.Error(), "a/b") {
		t.Error(err)
	}
	told(t, err, edge.Unavailable)
	ctx, cancel := context.WithCancel(t.Context())
	e = endpoint(t, oauth.TokenOptions{}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	})
	if _, err := e.Ask(ctx, url.Values{}, oauth.Want{}); edge.KindOf(err) != edge.Gone {
		t.Error(err)
	}
}

// Whatever an endpoint answers, the token can stand in a header and is good for a while.
func FuzzTokenAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"access_token":"a","token_type":"Bearer","expires_in":60}`,
		`{"access_token":"` + jwt(`{"exp":1700000090}`) + `","token_type":"bearer"}`,
		`{"access_token":"a\r\n","token_type":"Bearer","expires_in":"1e3"}`,
		`{"access_token":"a","token_type":"N_A","scope":"a b","refresh_token":"r","id_token":null}`,
	} {
		f.Add([]byte(seed))
	}
	asked := time.Unix(1_700_000_000, 0)
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, want := range []oauth.Want{{}, {Assertion: true}} {
			got, err := oauth.ParseToken(answer, asked, want)
			if err != nil {
				if got != nil {
					t.Error("a token and an error")
				}
				continue
			}
			for _, s := range []edge.Secret{got.Access, got.Refresh, got.ID} {
				if len(s) > 64<<10 || strings.ContainsFunc(string(s), func(c rune) bool { return c <= ' ' || c > '~' }) {
					t.Errorf("%q", string(s))
				}
			}
			if life := got.Expires.Sub(asked); got.Access == "" || life < 0 || life > 24*time.Hour {
				t.Errorf("%q is good for %s", string(got.Access), life)
			}
		}
	})
}
