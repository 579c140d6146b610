package signin_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// talk runs a node program that has a browser open pages, one at a time, and returns what it
// wrote besides, together.
func talk(t *testing.T, ca string, browse func(where string) string, args ...string) map[string]any {
	t.Helper()
	k, _ := need(t)
	ctx, cancel := context.WithTimeout(t.Context(), edgetest.Patience)
	defer cancel()
	cmd := peers.Command(ctx, k.Node, args...)
	cmd.Env = append(cmd.Env, "NODE_EXTRA_CA_CERTS="+ca)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, to := io.Pipe()
	var said bytes.Buffer
	wait, err := peers.Launch(cmd, to, &said)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { // ends when the process does
		err := wait()
		_ = to.Close()
		ended <- err
	}()
	seen := map[string]any{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one map[string]any
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if where, ok := one["open"].(string); ok {
			if seen["open"] != nil {
				t.Error("the user is asked twice")
			}
			seen["open"] = where
			_, _ = io.WriteString(in, browse(where)+"\n") // a program that has ended is told of below
			continue
		}
		for name, value := range one {
			seen[name] = value
		}
	}
	if err := <-ended; err != nil {
		t.Fatalf("%v: %s; before that it saw %v", err, said.String(), seen)
	}
	return seen
}

// TestRelyingParty has npm openid-client sign a user in, refresh and revoke, with each way of
// client authentication and each kind of signing key; npm jose verifies what it gets.
func TestRelyingParty(t *testing.T) {
	k, files := need(t)
	back := newSite(t, true)
	redirect := back.on("client.example") + "/cb"
	for alg, key := range map[string]string{"ES256": ecKey, "RS256": rsaKey, "EdDSA": edKey} {
		t.Run(alg, func(t *testing.T) {
			r := newRealm(t, how{one: true, keys: "as", secrets: fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: as}\nstringData: {key: %q, hmac: %q}\n---\n", newKey(t, key), strings.Repeat("h", 32))})
			for _, method := range []string{"none", "client_secret_basic", "client_secret_post"} {
				plan, err := json.Marshal(map[string]string{"issuer": r.base, "redirect": redirect, "resource": r.base + "/mcp", "method": method, "alg": alg})
				if err != nil {
					t.Fatal(err)
				}
				seen := talk(t, files.CA, func(where string) string { return agrees(t, r, where, redirect) }, filepath.Join(k.Dir(), "signin", "rp.mjs"), string(plan))
				got := func(path ...string) (value any) {
					value = seen
					for _, name := range path {
						of, _ := value.(map[string]any)
						value = of[name]
					}
					return value
				}
				for _, want := range []struct {
					path  []string
					value any
				}{
					{[]string{"metadata", "iss"}, true}, {[]string{"metadata", "challenge"}, true}, {[]string{"claims", "sub"}, "corp:somebody"}, {[]string{"claims", "iss"}, r.base},
					{[]string{"access", "sub"}, "corp:somebody"}, {[]string{"access", "aud"}, r.base + "/mcp"}, {[]string{"header", "alg"}, alg}, {[]string{"narrow"}, "openid"},
					{[]string{"renewed", "same"}, false}, {[]string{"renewed", "sub"}, "corp:somebody"},
					{[]string{"wider"}, "400 invalid_scope"}, {[]string{"elsewhere"}, "400 invalid_target"}, {[]string{"revoked"}, "400 invalid_grant"},
				} {
					if got := got(want.path...); got != want.value {
						t.Errorf("%s: %v is %v, want %v", method, want.path, got, want.value)
					}
				}
				for _, name := range []string{"foreign", "silent"} {
					if text, _ := got(name).(string); !strings.Contains(text, "OAUTH_INVALID_RESPONSE") {
						t.Errorf("%s: %s: %q", method, name, text)
					}
				}
				scopes, _ := got("access", "scope").(string)
				if all := strings.Fields(scopes); len(all) != 4 || !slices.Contains(all, "offline_access") {
					t.Errorf("%s: scopes %q", method, scopes)
				}
			}
		})
	}
}
