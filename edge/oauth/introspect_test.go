package oauth_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

func TestIntrospect(t *testing.T) {
	var answer atomic.Pointer[string]
	say := func(text string) { answer.Store(&text) }
	var status atomic.Int32
	status.Store(200)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if r.Method != http.MethodPost || r.FormValue("token") != "the+token" || r.FormValue("token_type_hint") != "access_token" || id != "a%2Bb" || secret != "c+d%2F" {
			t.Errorf("asked with %s %v, %q %q", r.Method, r.Form, id, secret)
		}
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, *answer.Load())
	})
	i := oauth.NewIntrospector(oauth.IntrospectorOptions{URL: s.URL, Trust: oauth.Named, ClientID: "a+b", ClientSecret: func(context.Context) (edge.Secret, error) { return "c d/", nil }, Client: client(t, oauth.Options{AllowHTTP: true})})
	for text, want := range map[string]string{
		`{"active":true,"sub":"a"}`:      "active",
		`{"active":false}`:               "inactive",
		`{"active":"true"}`:              "error",
		`{"active":1}`:                   "error",
		`{"active":null}`:                "error",
		`{"Active":true}`:                "error",
		`{"active":false,"active":true}`: "error",
		`{}`:                             "error",
		`[true]`:                         "error",
		`true`:                           "error",
		``:                               "error",
		`<html>`:                         "error",
		strings.Repeat(" ", 70<<10) + `{"active":true}`: "error",
	} {
		say(text)
		claims, active, err := i.Introspect(t.Context(), "the+token")
		got := map[bool]string{true: "active", false: "inactive"}[active]
		if err != nil {
			got = "error"
		}
		if got != want || active != (claims != nil) {
			t.Errorf("%.60s: %s, %v", text, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "the+token") {
			t.Errorf("the error holds the token: %v", err)
		}
	}
	say(`{"active":true}`)
	for _, code := range []int32{201, 302, 401, 403, 500} {
		status.Store(code)
		if _, active, err := i.Introspect(t.Context(), "the+token"); active || err == nil {
			t.Errorf("status %d: %v", code, err)
		}
	}
}

// TestIntrospectOnce holds that one token is asked for once at a time, and few
// at the same time.
func TestIntrospectOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: func(*http.Request) (int, string) { return 200, `{"active":true}` }, delay: time.Second}
		c, err := oauth.New(oauth.Options{Proxy: noProxy})
		if err != nil {
			t.Fatal(err)
		}
		i := oauth.NewIntrospector(oauth.IntrospectorOptions{URL: "https://i.example", ClientID: "public", AtOnce: 2, Client: c.Through(w)})
		var all sync.WaitGroup
		for n := range 100 {
			all.Go(func() {
				if _, active, err := i.Introspect(t.Context(), edge.Secret([]string{"a", "b"}[n%2])); !active {
					t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait() // all of them wait
		var busy *oauth.BusyError
		if _, _, err := i.Introspect(t.Context(), "c"); !errors.As(err, &busy) {
			t.Errorf("a third token: %v", err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, _, err := i.Introspect(gone, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that left: %v", err)
		}
		all.Wait()
		if len(w.seen) != 2 {
			t.Errorf("%d requests", len(w.seen))
		}
		if _, active, err := i.Introspect(t.Context(), "a"); !active || len(w.seen) != 3 {
			t.Errorf("later: %v, %d requests", err, len(w.seen))
		}
	})
}

// TestZ09AskedAgain: tokens that are asked about again have room of their own,
// however many strangers have others asked about, and wait for it.
func TestZ09AskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: func(*http.Request) (int, string) { return 200, `{"active":true}` }, delay: time.Second}
		c, err := oauth.New(oauth.Options{Proxy: noProxy})
		if err != nil {
			t.Fatal(err)
		}
		i := oauth.NewIntrospector(oauth.IntrospectorOptions{URL: "https://i.example", ClientID: "public", AtOnce: 1, AgainAtOnce: 2, Client: c.Through(w)})
		var all sync.WaitGroup
		all.Go(func() { _, _, _ = i.Introspect(t.Context(), "stranger") })
		synctest.Wait()
		began := time.Now()
		for n := range 12 { // each twice: the second joins the first, or finds it under way
			all.Go(func() {
				if _, active, err := i.Again(t.Context(), edge.Secret(rune('a'+n/2))); !active {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		var busy *oauth.BusyError
		if _, _, err := i.Introspect(t.Context(), "another"); !errors.As(err, &busy) {
			t.Errorf("another stranger: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, _, err := i.Again(short, "late"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that has no time to wait: %v", err)
		}
		all.Wait()
		if took := time.Since(began); took < 3*time.Second || took > 6*time.Second {
			t.Errorf("six tokens, two at a time, took %s", took)
		}
	})
}

func TestScopes(t *testing.T) {
	for text, ok := range map[string]bool{"openid": true, "a:b/c.d": true, "": false, "a b": false, `a"b`: false, `a\b`: false, "é": false, "a\n": false} {
		if oauth.IsScope(text) != ok {
			t.Errorf("%q", text)
		}
	}
	if oauth.Lacks([]string{"a", "b"}, []string{"b"}) || !oauth.Lacks([]string{"a"}, []string{"a", "b"}) || oauth.Lacks(nil, nil) {
		t.Error("lacks")
	}
	for text, ok := range map[string]bool{"abc": true, "a.b-c_d~e+f/g==": true, "": false, "=": false, "a=b": false, "a b": false, "a\r\n": false, "é": false} {
		if oauth.IsBearer(text) != ok {
			t.Errorf("%q", text)
		}
	}
}
