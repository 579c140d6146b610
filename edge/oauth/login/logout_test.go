package login_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/oauth/login"
)

// TestLogout: the refresh token is revoked at the endpoint that the metadata name, as the
// client that it was given to. Whatever stands in the way is said, and the login is forgotten
// all the same.
func TestLogout(t *testing.T) {
	const endpoint = "revocation_endpoint"
	for _, test := range []struct {
		name   string
		change func(*world, *login.Kept)
		err    string // what it says; "" for a token that is revoked
		asked  bool
	}{
		{name: "revoked", asked: true},
		{name: "an unknown token is as good as revoked", change: func(_ *world, k *login.Kept) { k.Tokens.Refresh = "unknown" }, asked: true},
		{name: "no endpoint", change: func(w *world, _ *login.Kept) { w.metadata = func(m map[string]any) {} }, err: "has no endpoint for it"},
		{name: "no metadata", change: func(_ *world, k *login.Kept) { k.Issuer = "" }, err: "has no metadata"},
		{name: "metadata of another", change: func(w *world, _ *login.Kept) {
			w.metadata = func(m map[string]any) { m["issuer"] = "https://other.example.com" }
		}, err: "issuer: it is of another issuer"},
		{name: "an endpoint elsewhere by http", change: func(w *world, _ *login.Kept) {
			w.metadata = func(m map[string]any) { m[endpoint] = "http://192.0.2.1/revoke" }
		}, err: "revocation_endpoint: its scheme is http"},
		{name: "down", change: func(w *world, _ *login.Kept) { w.revoke = func(url.Values) (int, string) { return 503, "planted" } }, err: "/revoke: status 503", asked: true},
		{name: "refused", change: func(w *world, _ *login.Kept) {
			w.revoke = func(url.Values) (int, string) {
				return 400, `{"error":"unsupported_token_type","error_description":"planted"}`
			}
		}, err: "unsupported_token_type", asked: true},
		{name: "a redirect", change: func(w *world, _ *login.Kept) { w.revoke = func(url.Values) (int, string) { return 307, "" } }, err: "a redirect, which is not followed", asked: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, store := newWorld(t), storeOf(t)
			w.metadata = func(m map[string]any) { m[endpoint] = w.as.URL + "/revoke" }
			if _, err := get(t, w.open(store, nil), w.url()); err != nil {
				t.Fatal(err)
			}
			k, there, err := store.Find(w.url(), login.Settings{})
			if err != nil || !there || k.Tokens.Refresh == "" {
				t.Fatal(there, err)
			}
			if test.change != nil {
				test.change(w, &k)
				if err := store.Put(t.Context(), k); err != nil {
					t.Fatal(err)
				}
			}
			ended, err := login.Logout(t.Context(), store, guarded(t, true), w.url(), edgetest.Patience)
			if err != nil || len(ended) != 1 || ended[0].URL != w.url() || ended[0].Revoked != (test.err == "") {
				t.Fatalf("%+v, %v", ended, err)
			}
			if said := ended[0].Err; test.err != "" && (said == nil || !strings.Contains(said.Error(), test.err) || strings.Contains(said.Error(), "planted")) {
				t.Errorf("it says %v", said)
			}
			w.seen(func() {
				if (len(w.revoked) > 0) != test.asked {
					t.Errorf("asked %d times", len(w.revoked))
				}
				for _, form := range w.revoked {
					if form.Get("token") != k.Tokens.Refresh || form.Get("token_type_hint") != "refresh_token" || form.Get("client_id") != k.Client.ID || len(form) != 3 {
						t.Errorf("it was asked %v", form)
					}
				}
			})
			if all, err := store.List(); err != nil || len(all) > 0 {
				t.Errorf("%d logins are kept, %v", len(all), err)
			}
			if ended, err := login.Logout(t.Context(), store, guarded(t, true), w.url(), edgetest.Patience); len(ended) > 0 || err != nil {
				t.Errorf("once more: %v, %v", ended, err)
			}
		})
	}
}

// TestLogoutWithoutWaiting: a login is forgotten when its authorization server keeps silent,
// when whoever asked has gone, and when there is no refresh token.
func TestLogoutWithoutWaiting(t *testing.T) {
	gone, end := context.WithCancel(t.Context())
	end()
	for _, test := range []struct {
		name    string
		ctx     context.Context
		within  time.Duration
		refresh bool
	}{
		{"silent", t.Context(), 50 * time.Millisecond, true},
		{"gone", gone, edgetest.Patience, true},
		{"no refresh token", t.Context(), edgetest.Patience, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, store, over := newWorld(t), storeOf(t), make(chan struct{})
			w.metadata = func(m map[string]any) { m["revocation_endpoint"] = w.as.URL + "/revoke" }
			w.revoke = func(url.Values) (int, string) { <-over; return 200, "" }
			if _, err := get(t, w.open(store, nil), w.url()); err != nil {
				t.Fatal(err)
			}
			if !test.refresh {
				k, _, err := store.Find(w.url(), login.Settings{})
				k.Tokens.Refresh = ""
				if err = errors.Join(err, store.Put(t.Context(), k)); err != nil {
					t.Fatal(err)
				}
			}
			ended, err := login.Logout(test.ctx, store, guarded(t, true), w.url(), test.within)
			close(over)
			if err != nil || len(ended) != 1 || ended[0].Revoked || (ended[0].Err != nil) != test.refresh {
				t.Errorf("%+v, %v", ended, err)
			}
			if all, err := store.List(); err != nil || len(all) > 0 {
				t.Errorf("%d logins are kept, %v", len(all), err)
			}
		})
	}
}
