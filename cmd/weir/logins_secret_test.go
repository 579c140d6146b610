package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/cmd/weir/auth"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/oauth/login"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// TestSecretOfARemoteLogin: the client secret of a login to a server at a URL is what the secret is
// at the moment, without the line break that an editor leaves.
func TestSecretOfARemoteLogin(t *testing.T) {
	var mu sync.Mutex
	var sent []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/authorize":
			q := r.URL.Query()
			http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {"c"}, "state": q["state"]}.Encode(), http.StatusFound)
		case "/token":
			_, secret, _ := r.BasicAuth()
			mu.Lock()
			sent = append(sent, secret)
			n := len(sent)
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"access-%d","token_type":"Bearer","expires_in":1,"refresh_token":"r"}`, n) // due at once
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(s.Close)
	port := int32(login.AnyPort)
	l := serve.Login{URL: s.URL + "/mcp", How: v1beta1.RemoteAuth{AuthorizeURL: s.URL + "/authorize", TokenURL: s.URL + "/token", ClientID: "given", ClientSecretRef: &v1beta1.SecretRef{Name: "remote", Key: "secret"}, CallbackPort: &port}}
	a := &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard, environ: []string{"WEIR_HOME=" + t.TempDir()}, exit: func(int) {}}
	store, err := a.credentials(&access{})
	if err != nil {
		t.Fatal(err)
	}
	reach := edge.Reach{DevLoopback: true}
	client, err := oauth.New(oauth.Options{Reach: reach})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	o := auth.OptionsOf(l.URL, &l.How)
	o.ClientSecret, o.Browse = "at the login", func(where string) error { _, err := edgetest.NewBrowser(nil).Walk(where, ""); return err }
	session, err := login.Open(o, store, client, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.Login(t.Context()); err != nil {
		t.Fatal(err)
	}

	secrets := fake.Keep(map[string]edge.Secret{"remote/secret": "first\r\n"})
	c, err := a.openLogin(l, edge.Env{Secrets: secrets, Reach: reach, Defer: func(f func()) { t.Cleanup(f) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, next := range []edge.Secret{"second\n", "third"} {
		if _, err := c.Attach(t.Context(), &edge.Outbound{}, func(string, edge.Secret) {}); err != nil {
			t.Fatal(err)
		}
		secrets.Set("remote/secret", next)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"at+the+login", "first", "second"}; !slices.Equal(sent, want) {
		t.Errorf("it was sent %q, want %q", sent, want)
	}
}
