package serve_test

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// exchangeWithin is how long a token endpoint is asked at most: the product's own, which is no
// setting. slack is for a machine that does other things beside.
const (
	exchangeWithin = 5 * time.Second
	slack          = 2 * time.Second
)

// hush is a token endpoint, and a security token service, that keep silent: after the request, or
// from the first byte on.
func hush(t *testing.T, mute bool) (url, ca string) {
	t.Helper()
	over := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if !mute {
		return server.URL, ca
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var taken sync.WaitGroup
	taken.Go(func() { // ends with the listener
		var all []net.Conn
		for {
			c, err := ln.Accept()
			if err != nil {
				break
			}
			all = append(all, c)
		}
		for _, c := range all {
			_ = c.Close()
		}
	})
	t.Cleanup(taken.Wait)
	t.Cleanup(func() { _ = ln.Close() })
	return "https://" + ln.Addr().String(), ca
}

// silentCall makes one call, in a session that it begins if it is legacy. It returns the code of the
// answer, of HTTP or of JSON-RPC, its text, and how long the longest of its requests took.
func silentCall(client *edgetest.Client, legacy bool) (code int, text string, took time.Duration) {
	c, began := caller{Client: client}, time.Now()
	if legacy {
		s, err := client.TryInitialize(edgetest.LegacyVersion, "")
		if err != nil {
			return 0, err.Error(), 0
		}
		c.session, took, began = s, time.Since(began), time.Now()
	}
	r, err := c.try("1", "tools/call", edgetest.CallParams("echo", "{}"))
	if err != nil {
		return 0, err.Error(), 0
	}
	took = max(took, time.Since(began))
	text = string(r.Body)
	if r.Status != http.StatusOK {
		return r.Status, text, took
	}
	_, rest, _ := strings.Cut(text, `"error":{"code":`)
	_, _ = fmt.Sscanf(rest, "%d", &code) // 0 for an answer without one
	return code, text, took
}

// TestT12Silent: where whoever gives credentials keeps silent, a call fails with 504 within the
// time that it is asked, and no request of the user reaches the backend. Twenty users who are the
// first of an edge wait no longer than one. Each strategy, as an object and in a configuration.
func TestT12Silent(t *testing.T) {
	t.Setenv("SILENT_SECRET", "planted-secret")
	const role = "arn:aws:iam::123456789012:role/tools"
	for name, ways := range map[string]struct{ object, config func(at string) string }{
		"tokenExchange": {
			func(at string) string {
				return fmt.Sprintf("{type: tokenExchange, tokenExchange: {tokenUrl: %q, audience: there, clientId: edge, clientSecretRef: {name: token, key: value}}}", at)
			},
			func(at string) string {
				return fmt.Sprintf("{type: token_exchange, tokenExchange: {tokenUrl: %q, audience: there, clientId: edge, clientSecretEnv: SILENT_SECRET}}", at)
			},
		},
		"obo": {
			func(at string) string {
				return fmt.Sprintf("{type: obo, obo: {tenantId: contoso.example.com, authority: %q, clientId: edge, clientSecretRef: {name: token, key: value}, audience: there}}", at)
			},
			func(at string) string {
				return fmt.Sprintf("{type: obo, obo: {tokenUrl: %q, clientId: edge, clientSecretEnv: SILENT_SECRET, audience: there}}", at)
			},
		},
		"cloudSts": {
			func(string) string {
				return fmt.Sprintf("{type: cloudSts, cloudSts: {region: eu-west-1, fallbackRoleArn: %q}}", role)
			},
			func(string) string {
				return fmt.Sprintf("{type: cloud_sts, cloudSts: {region: eu-west-1, fallbackRoleArn: %q}}", role)
			},
		},
	} {
		for i, surface := range []string{"an object", "a configuration"} {
			t.Run(name+" in "+surface, func(t *testing.T) {
				t.Parallel()
				at, ca := hush(t, i == 0)
				m, back := newMint(t), edgetest.NewServer(t, []edgetest.Era{edgetest.Modern, edgetest.Legacy}[i])
				var yaml string
				if i == 0 {
					yaml = locked(back, byRef, "---\napiVersion: weir.dev/v1beta1\nkind: MCPExternalAuthConfig\nmetadata: {name: auth}\nspec: "+ways.object(at)+"\n", document("planted-secret"),
						"---\napiVersion: weir.dev/v1beta1\nkind: MCPOIDCConfig\nmetadata: {name: idp}\nspec: {type: inline, inline: "+m.Inline()+"}\n")
					yaml = strings.Replace(yaml, "incomingAuth: {type: anonymous}", "incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: weir}}", 1)
				} else {
					yaml = strings.Replace(edgetest.Manifest(back, "outgoingAuth: {source: inline, default: "+ways.config(at)+"}"), "incomingAuth: {type: anonymous}", fmt.Sprintf(
						"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, m.URL+"/keys"), 1)
				}
				e := edgetest.Start(t, yaml, edgetest.Settings(func(c *serve.Settings) { c.CABundle, c.STSEndpoint = ca, at+"/" }))
				first := e.NewClient()
				edgetest.Until(t, "the keys", func() bool {
					return first.Do("GET", "/status", "", bearer(m.token(t, "nobody", "weir", nil))...).Status == 200
				})

				// 1. Twenty users at once, who are the first. 2. The same again: it is remembered for
				// a second, so that it is asked anew.
				var users []string
				for i := range 20 {
					users = append(users, m.token(t, fmt.Sprint("user-", i), "weir", nil))
				}
				for round := range 2 {
					var all sync.WaitGroup
					for i, token := range users {
						all.Go(func() {
							c := e.NewClient()
							c.Header.Set("Authorization", "Bearer "+token)
							code, text, took := silentCall(c, i%2 == 1)
							if code != 504 || took > exchangeWithin+slack {
								t.Errorf("round %d, user %d: %d in %s: %s", round, i, code, took, text)
							}
							if strings.Contains(text, "planted-secret") || strings.Contains(text, at) || strings.Contains(text, token) {
								t.Errorf("the answer says too much: %s", text)
							}
						})
					}
					all.Wait()
				}
				for _, kind := range []string{"tools/call", "tools/list", "initialize", "server/discover"} {
					for _, r := range back.Requests(kind) {
						if r.Header.Get("Authorization") != "" || kind == "tools/call" {
							t.Errorf("%s reached the backend", kind)
						}
					}
				}
			})
		}
	}
}
