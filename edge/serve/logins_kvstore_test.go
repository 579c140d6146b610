//go:build unix

package serve_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// TestLifespans: what is kept of a login lives as long as the operator says.
func TestLifespans(t *testing.T) {
	t.Parallel()
	redis := kvtest.Redis(t, "--requirepass", "s3cret-pass")
	redis.Knows("s3cret-pass")
	h, back := edgetest.NewHub(t, "hub"), edgetest.NewServer(t, edgetest.Modern)
	auth := embedded(sharedKeys+fmt.Sprintf(", tokenLifespans: {accessTokenLifespan: 1m, authCodeLifespan: 45s, refreshTokenLifespan: 2h}, storage: {type: kvstore, kvstore: {aclUserConfig: {passwordSecretRef: {name: as, key: password}}, addr: %q}}", redis.Addr), h)
	e := edgetest.Start(t, entrance(back, auth, `{type: unauthenticated}`)+loginSecrets(t, nil), loopback())
	began := time.Now()
	got := edgetest.NewVisitor(t, loginIssuer, e.Addr()).SignIn("")
	if got.Life != 60 {
		t.Errorf("the access token lives %v s", got.Life)
	}
	kept := map[string]int{}
	for _, key := range strings.Fields(redis.Do("keys", "weir:as:*")) {
		left, err := strconv.Atoi(redis.Do("pttl", key))
		if err != nil {
			t.Fatal(err)
		}
		kind := strings.Split(key, ":")[3]
		kept[kind]++
		// A code is remembered as long as tokens that it was redeemed for.
		most, ok := map[string]time.Duration{"code": 45*time.Second + time.Minute, "grant": 2 * time.Hour, "up": 2 * time.Hour}[kind]
		least := most - time.Since(began) - time.Second
		if life := time.Duration(left) * time.Millisecond; ok && (life > most || life < least) {
			t.Errorf("%s: it lives %s more, not %s to %s", kind, life, least, most)
		}
	}
	if kept["code"] != 1 || kept["grant"] != 1 || kept["up"] != 1 {
		t.Errorf("the store holds %v", kept)
	}
}

// TestSentinelsOverTLS: sentinels that speak nothing but TLS lead to a master without it, and the
// records are in the database that the operator names.
func TestSentinelsOverTLS(t *testing.T) {
	t.Parallel()
	ca := kvtest.NewAuthority(t)
	for name, trust := range map[string]string{"caCertSecretRef": "{caCertSecretRef: {name: as, key: ca}}", "insecureSkipVerify": "{insecureSkipVerify: true}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := kvtest.Redis(t, "--requirepass", "s3cret-pass")
			master.Knows("s3cret-pass")
			sentinel := kvtest.SentinelOverTLS(t, ca, master, "s3cret-pass")
			h, back := edgetest.NewHub(t, "hub"), edgetest.NewServer(t, edgetest.Modern)
			auth := embedded(sharedKeys+fmt.Sprintf(", storage: {type: kvstore, kvstore: {aclUserConfig: {passwordSecretRef: {name: as, key: password}}, sentinelConfig: {masterName: main, db: 3, sentinelAddrs: [%q]}, sentinelTls: %s, dialTimeout: 10s, readTimeout: 10s, writeTimeout: 10s}}", sentinel, trust), h)
			e := edgetest.Start(t, entrance(back, auth, `{type: upstreamInject, upstreamInject: {providerName: hub}}`)+loginSecrets(t, ca.PEM), loopback())
			c := e.NewClient()
			edgetest.Until(t, "an edge that has met its store", func() bool { return c.Do("GET", "/readyz", "").Status == 200 })
			got := edgetest.NewVisitor(t, loginIssuer, e.Addr()).SignIn("")
			if r := calls(c, "/mcp", got.Access); r.Status != 200 {
				t.Errorf("status %d: %s", r.Status, r.Body)
			}
			if all := master.Do("-n", "3", "keys", "weir:as:*:grant:*"); strings.Count(all, "weir:as:") != 1 {
				t.Errorf("database 3 holds %q", all)
			}
			if all := master.Do("keys", "weir:as:*"); all != "" {
				t.Errorf("database 0 holds %q", all)
			}
		})
	}
}
