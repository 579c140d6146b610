//go:build unix

package serve_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/serve"
)

// loginSecrets is the document of the secrets of an authorization server with a store: two
// HMAC secrets, two signing keys, and who it is at the store.
func loginSecrets(t testing.TB, ca []byte) string {
	t.Helper()
	text := `---
apiVersion: v1
kind: Secret
metadata: {name: as}
stringData:
  hmac: the-first-secret-has-32-bytes-or-more
  next: the-second-secret-has-32-bytes-or-more
  password: s3cret-pass
  user: weir
`
	for _, name := range []string{"key", "key2"} {
		key, err := oauth.NewSigningKey()
		if err != nil {
			t.Fatal(err)
		}
		text += "  " + name + ": " + fmt.Sprintf("%q", key) + "\n"
	}
	return text + "  ca: " + fmt.Sprintf("%q", ca) + "\n"
}

// sharedKeys are the members of an authorization server that signs with the first secret and
// key of loginSecrets.
const sharedKeys = `, hmacSecretRefs: [{name: as, key: hmac}], signingKeySecretRefs: [{name: as, key: key}]`

// TestSignInOverReplicas: a login whose every request is at the other of two edges, over a
// store of each layout; what is in it is sealed.
func TestSignInOverReplicas(t *testing.T) {
	ca := kvtest.NewAuthority(t)
	const acl = "aclUserConfig: {passwordSecretRef: {name: as, key: password}"
	layouts := map[string]func(t *testing.T) (kvstore string, dump func() string){
		"TLS and a user": func(t *testing.T) (string, func() string) {
			user := append([]string{"--user", "weir", "on", ">s3cret-pass", "~weir:*", "resetchannels", "&weir:*"}, kvtest.Commands(t, "../kv/README.md")...)
			r := kvtest.Redis(t, append(append(ca.TLS(), "--requirepass", "s3cret-other"), user...)...)
			return fmt.Sprintf("%s, usernameSecretRef: {name: as, key: user}}, addr: %q, tls: {caCertSecretRef: {name: as, key: ca}}", acl, r.Addr), nil
		},
		"TLS of anybody": func(t *testing.T) (string, func() string) {
			r := kvtest.Redis(t, append(ca.TLS(), "--requirepass", "s3cret-pass")...)
			return fmt.Sprintf("%s}, addr: %q, tls: {insecureSkipVerify: true}, dialTimeout: 10s, readTimeout: 10s, writeTimeout: 10s", acl, r.Addr), nil
		},
		"cluster": func(t *testing.T) (string, func() string) {
			servers := kvtest.Cluster(t)
			for _, s := range servers {
				s.Do("config", "set", "requirepass", "s3cret-pass")
			}
			return fmt.Sprintf("%s}, addr: %q, clusterMode: true", acl, servers[1].Addr), nil
		},
		"sentinels": func(t *testing.T) (string, func() string) {
			_, _, sentinels := kvtest.Sentinels(t, "s3cret-pass", "")
			return fmt.Sprintf("%s}, sentinelConfig: {masterName: main, sentinelAddrs: ['%s']}", acl, strings.Join(sentinels, "', '")), nil
		},
		"plain": func(t *testing.T) (string, func() string) {
			r := kvtest.Redis(t, append([]string{"--user", "weir", "on", ">s3cret-pass", "~weir:*", "resetchannels", "&weir:*"}, kvtest.Commands(t, "../kv/README.md")...)...)
			return fmt.Sprintf("%s, usernameSecretRef: {name: as, key: user}}, addr: %q", acl, r.Addr), func() string {
				all := ""
				for _, key := range strings.Fields(r.Do("keys", "*")) {
					all += key + "\n" + r.Do("get", key) + "\n"
				}
				return all
			}
		},
	}
	for name, layout := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kvstore, dump := layout(t)
			h, back := edgetest.NewHub(t, "hub"), edgetest.NewServer(t, edgetest.Modern)
			yaml := entrance(back, embedded(sharedKeys+", storage: {type: kvstore, kvstore: {"+kvstore+"}}", h), `{type: upstreamInject, upstreamInject: {providerName: hub}}`) + loginSecrets(t, ca.PEM)
			a, b := edgetest.Start(t, yaml, loopback()), edgetest.Start(t, yaml, loopback())
			for _, e := range []*edgetest.Edge{a, b} {
				c := e.NewClient()
				edgetest.Until(t, "an edge that has met its store", func() bool { return c.Do("GET", "/readyz", "").Status == 200 })
			}
			v := edgetest.NewVisitor(t, loginIssuer, a.Addr(), b.Addr())
			got := v.SignIn("")
			for i, e := range []*edgetest.Edge{a, b} {
				if r := calls(e.NewClient(), "/mcp", got.Access); r.Status != http.StatusOK {
					t.Fatalf("edge %d: status %d: %s", i+1, r.Status, r.Body)
				}
			}
			for _, one := range sent(back) {
				if one != "Bearer hub-token-1" {
					t.Errorf("the backend was sent %q", one)
				}
			}
			got = v.Renew(v.Renew(got))
			if dump != nil {
				all := dump()
				if strings.Count(all, "weir:as:") < 4 {
					t.Errorf("the store holds %s", all)
				}
				for _, secret := range append(got.Secrets(), "hub-token", "hub-refresh", "alice", v.ID) {
					if strings.Contains(all, secret) {
						t.Errorf("the store holds %q", secret)
					}
				}
			}
			v.Revoke(got.Access)
			for _, e := range []*edgetest.Edge{a, b} {
				c := e.NewClient()
				edgetest.Until(t, "the end of the grant at both", func() bool { return calls(c, "/mcp", got.Access).Status == http.StatusUnauthorized })
			}
		})
	}
}

// TestReplicasAgree: replicas with one store that have other secrets or keys are told so, and
// those in the two steps of a rotation agree and go on.
func TestReplicasAgree(t *testing.T) {
	t.Parallel()
	redis := kvtest.Redis(t, "--requirepass", "s3cret-pass")
	h, back := edgetest.NewHub(t, "hub"), edgetest.NewServer(t, edgetest.Modern)
	secrets := loginSecrets(t, nil)
	start := func(hmac, keys string) *edgetest.Edge {
		t.Helper()
		list := func(names string) string {
			var all []string
			for _, name := range strings.Fields(names) {
				all = append(all, "{name: as, key: "+name+"}")
			}
			return "[" + strings.Join(all, ", ") + "]"
		}
		auth := embedded(fmt.Sprintf(", hmacSecretRefs: %s, signingKeySecretRefs: %s, storage: {type: kvstore, kvstore: {aclUserConfig: {passwordSecretRef: {name: as, key: password}}, addr: %q}}", list(hmac), list(keys), redis.Addr), h)
		return edgetest.Start(t, entrance(back, auth, `{type: unauthenticated}`)+secrets, loopback(), edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }))
	}
	told := func(e *edgetest.Edge) string {
		_, text := adminAsk(t, e.Serve.AdminAddr(), "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
		return text
	}
	old := start("hmac", "key")
	edgetest.Until(t, "the first look", func() bool { return strings.Contains(told(old), `"seen": 1`) })
	for _, one := range []struct{ name, hmac, keys, want string }{
		{"step one", "hmac next", "key key2", ""},
		{"step two", "next hmac", "key2 key", ""},
		{"another key", "hmac next", "key2", "none of signingKeySecretRefs"},
		{"another secret", "next", "key key2", "none of hmacSecretRefs"},
	} {
		e := start(one.hmac, one.keys)
		edgetest.Until(t, one.name+": what is wrong with it", func() bool {
			text := told(e)
			return strings.Contains(text, `"agree": `+map[bool]string{true: "true", false: "false"}[one.want == ""]) && strings.Contains(text, `"seen"`) && !strings.Contains(text, `"seen": 0`) && strings.Contains(text, one.want)
		})
		if one.want != "" && !strings.Contains(e.Log(), "do not agree") {
			t.Errorf("%s: the log says nothing", one.name)
		}
		e.Stop()
	}
}

// TestClaimsOfAnUpstream: policies read the groups of the primary upstream's token; when a
// refresh there changes them the next call, ten seconds later at most, is judged by the new
// ones, at the replica that refreshed and at the other (A24).
func TestClaimsOfAnUpstream(t *testing.T) {
	t.Parallel()
	redis := kvtest.Redis(t, "--requirepass", "s3cret-pass")
	h, back := edgetest.NewHub(t, "hub"), edgetest.NewServer(t, edgetest.Modern)
	h.Issues(`["staff"]`, 3)
	policy := `authzConfig: {type: inline, inline: {policies: ['permit(principal, action, resource) when { principal has claim_groups && principal.claim_groups.contains("staff") };']}}, oidcConfigRef:`
	auth := embedded(sharedKeys+fmt.Sprintf(", storage: {type: kvstore, kvstore: {aclUserConfig: {passwordSecretRef: {name: as, key: password}}, addr: %q}}", redis.Addr), h)
	yaml := strings.Replace(entrance(back, auth, `{type: upstreamInject, upstreamInject: {providerName: hub}}`), "oidcConfigRef:", policy, 1) + loginSecrets(t, nil)
	a, b := edgetest.Start(t, yaml, loopback()), edgetest.Start(t, yaml, loopback())
	v := edgetest.NewVisitor(t, loginIssuer, a.Addr())
	got := v.SignIn("")
	for i, e := range []*edgetest.Edge{a, b} {
		if r := calls(e.NewClient(), "/mcp", got.Access); r.Status != http.StatusOK {
			t.Fatalf("edge %d: staff: status %d: %s", i+1, r.Status, r.Body)
		}
	}
	h.Issues(`["guests"]`, 3600)
	n, c := h.Issued(), a.NewClient()
	edgetest.Until(t, "a refresh", func() bool {
		calls(c, "/mcp", got.Access)
		return h.Issued() > n
	})
	changed := time.Now()
	for i, e := range []*edgetest.Edge{b, a} {
		c := e.NewClient()
		edgetest.Until(t, "the new groups", func() bool { return calls(c, "/mcp", got.Access).Status == http.StatusForbidden })
		if took := time.Since(changed); took > 12*time.Second {
			t.Errorf("edge %d: the groups changed after %s", i+1, took)
		}
	}
}
