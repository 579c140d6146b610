package authserver_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// TestChain is a login at npm oidc-provider over TLS, on both stores: consent, login, tokens,
// the upstream's token for a backend, refresh, revocation.
func TestChain(t *testing.T) {
	made := idp.NewTLS(t)
	real := idp.StartTLS(t, made)
	const here = "http://127.0.0.1"
	onBoth(t, func(t *testing.T, store edge.Store) {
		r := open(t, options{
			store: store, secrets: &secrets{all: map[string]string{"as/sso": idp.SSOClientSecret}}, reach: edge.Reach{CAs: real.CA, DevLoopback: true},
			config: func(c *authserver.Spec) {
				c.Issuer, c.Base = here, here
				secret := ref("sso")
				u, wrong := upstream.Parse(field.NewPath("u"), &v1beta1.UpstreamProvider{Name: "corp", Type: v1beta1.UpstreamOIDC, OIDCConfig: &v1beta1.OIDCUpstream{
					IssuerURL: real.Issuer, ClientID: idp.SSOClientID, ClientSecretRef: &secret, RedirectURI: here + "/callback",
					AdditionalAuthorizationParams: map[string]string{"login_hint": "olga", "prompt": "consent"},
				}}, "")
				if len(wrong) > 0 {
					t.Fatal(wrong.ToAggregate())
				}
				c.Upstreams = append(c.Upstreams, u)
			},
		})
		client, _ := r.register(nil)

		// 1. Consent, then the provider.
		b := r.browser()
		w := b.answers(form(t, b.authorize(asking(client))), "allow")
		if w.Code != http.StatusSeeOther || !strings.HasPrefix(w.Header().Get("Location"), real.Issuer) {
			t.Fatalf("status %d, location %q: %s", w.Code, w.Header().Get("Location"), w.Body)
		}
		for name := range b.cookies {
			if !strings.HasPrefix(name, "weir-") {
				t.Errorf("cookie %s of an http issuer", name)
			}
		}
		back := strings.TrimPrefix(real.Browse(t, w.Header().Get("Location"), here+"/callback"), here)

		// 2. Back, and the tokens.
		_, got := led(t, b.get(back))
		if got.Get("iss") != here || got.Get("code") == "" {
			t.Fatalf("answer %v; log: %s", got, r.log)
		}
		first := r.tokens(r.post("/oauth/token", redeeming(client, got.Get("code"))))
		claims := r.claims(first.Access)
		if claims["sub"] != "corp:olga" || claims["iss"] != here {
			t.Errorf("claims %v", claims)
		}

		// 3. What a backend is sent is the upstream's.
		who := &edge.Identity{Issuer: here, Subject: "corp:olga", Claims: claims}
		access, id, err := r.Upstreams().Upstream(t.Context(), who, "corp")
		if err != nil || access == "" || id == "" || string(access) == first.Access {
			t.Fatalf("the upstream's token: %v", err)
		}

		// 4. A refresh keeps it, a revocation ends it.
		second := r.tokens(r.post("/oauth/token", refreshing(client, first.Refresh)))
		if again, _, err := r.Upstreams().Upstream(t.Context(), who, "corp"); err != nil || again != access {
			t.Errorf("after a refresh: %v", err)
		}
		r.post("/oauth/revoke", url.Values{"token": {second.Refresh}, "client_id": {client}})
		if _, _, err := r.Upstreams().Upstream(t.Context(), who, "corp"); edge.KindOf(err) != edge.Unauthenticated {
			t.Errorf("after a revocation: %v", err)
		}
		if all := r.log.String(); strings.Contains(all, string(access)) || strings.Contains(all, second.Refresh) || strings.Contains(all, idp.SSOClientSecret) {
			t.Error("the log holds a secret")
		}
	})
}
