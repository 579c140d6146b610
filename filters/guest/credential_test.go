package guest_test

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// vault is the credentials that filters of a test may be granted, and one that is
// configured for the backend itself.
const vault = `---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: acme}
spec: {type: bearerToken, bearerToken: {tokenSecretRef: {name: keys, key: acme}}}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: other}
spec: {type: headerInjection, headerInjection: {headerName: X-Key, valueSecretRef: {name: keys, key: other}}}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: none}
spec: {type: unauthenticated}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: house}
spec: {type: bearerToken, bearerToken: {tokenSecretRef: {name: keys, key: house}}}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {acme: secret-of-acme, other: secret-of-other, house: secret-of-the-house}
`

// housed is the manifest of an edge whose backend is configured with the
// credential house.
func housed(t *testing.T, back *edgetest.Server, filters ...filter) string {
	t.Helper()
	yaml := manifest(t, backs{"back": back}, filters, "passthroughHeaders: [X-Key, X-Who]")
	return strings.Replace(yaml, "outgoingAuth: {source: inline}", "outgoingAuth: {source: inline, default: {type: externalAuthConfigRef, externalAuthConfigRef: {name: house}}}", 1) + vault
}

const grantAll = "grants: {credentials: [{name: acme}, {name: other}, {name: none}]}"

// TestUseCredential has a program choose, by its name, the credential that a
// message goes to its backend with. What it does not choose goes with the
// configured one, and so does what the edge asks for itself.
func TestUseCredential(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		f := filter{name: "f", more: grantAll, rules: []string{
			"sub|outgoing_auth|header=x-a,x-b",
			"outgoing_auth|header:x-a~use|use_credential|$header:x-b",
			"outgoing_auth|header:x-a=use and say|set_header|x-key|a guest's own",
			"outgoing_auth|header:x-a=twice|use_credential|other",
			"outgoing_auth|header:x-a=twice|use_credential|acme",
		}}
		back := edgetest.NewServer(t, of)
		c := newClient(start(t, housed(t, back, f)), era)
		const house = "Bearer secret-of-the-house"
		for _, one := range []struct{ word, name, bearer, key string }{
			{"", "", house, "of the client"},
			{"use", "acme", "Bearer secret-of-acme", "of the client"},
			{"use", "other", "", "secret-of-other"},
			{"use", "none", "", "of the client"},
			{"use and say", "other", "", "secret-of-other"},
			{"use and say", "acme", "Bearer secret-of-acme", "a guest's own"},
			{"twice", "", "Bearer secret-of-acme", "of the client"},
			{"", "", house, "of the client"},
		} {
			back.Forget()
			got := c.call(t, "echo", `{"n":1}`, "X-A", one.word, "X-B", one.name, "X-Key", "of the client")
			if text(t, got); strings.Contains(string(got.Body), "secret-of") {
				t.Errorf("%q %q: the client is told %s", one.word, one.name, got.Body)
			}
			for _, r := range back.Requests("tools/call") {
				if r.Header.Get("Authorization") != one.bearer || r.Header.Get("X-Key") != one.key || len(r.Header.Values("X-Key")) > 1 || len(r.Header.Values("Authorization")) > 1 {
					t.Errorf("%q %q: the backend got %v", one.word, one.name, r.Header)
				}
			}
			if back.Count("tools/call") != 1 {
				t.Fatalf("%q %q: %d calls", one.word, one.name, back.Count("tools/call"))
			}
			if era == edgetest.Modern && of == edgetest.Legacy { // the session is one of that credential
				for _, r := range back.Requests("initialize") {
					if r.Header.Get("Authorization") != one.bearer {
						t.Errorf("%q %q: a session began with %v", one.word, one.name, r.Header)
					}
				}
			}
		}
	})
}

// TestUngrantedCredential denies what goes out with a credential that a program
// may not choose, and tells nobody which there are. A filter fails in no other way
// than to deny either.
func TestUngrantedCredential(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]filter{
		"of another filter": {more: "grants: {credentials: [{name: other}]}"},
		"without a grant":   {},
		"in observe":        {more: "mode: observe, " + grantAll},
	} {
		f.name = "f"
		f.rules = []string{
			"sub|outgoing_auth|header=x-a,x-b",
			"outgoing_auth|header:x-a=use|use_credential|$header:x-b",
			"outgoing_auth|header:x-a=trap|trap",
			"outgoing_auth|header:x-a=nameless|use_credential|",
			"on_upstream_request|header:x-a=late|use_credential|other",
			"sub|on_upstream_request|header=x-a",
		}
		back := edgetest.NewServer(t, edgetest.Modern)
		e := start(t, housed(t, back, f))
		c := newClient(e, edgetest.Modern)
		if name == "in observe" {
			if text(t, c.call(t, "echo", "{}", "X-A", "use", "X-B", "acme")); back.Requests("tools/call")[0].Header.Get("Authorization") != "Bearer secret-of-the-house" {
				t.Error("observed, it chooses")
			}
			continue
		}
		for _, b := range []string{"acme", "house", "nobody", "secret-of-acme"} {
			r := c.call(t, "echo", "{}", "X-A", "use", "X-B", b)
			fails(t, r, 403, 403, "there is no credential for this backend")
			if strings.Contains(string(r.Body), b) {
				t.Errorf("%s: the client is told %s", name, r.Body)
			}
		}
		if !strings.Contains(e.Log(), "credential=nobody") || strings.Contains(e.Log(), "secret-of-the-house") {
			t.Errorf("%s: the log does not say what to grant, or too much", name)
		}
		for _, word := range []string{"trap", "nameless", "late"} {
			fails(t, c.call(t, "echo", "{}", "X-A", word), 503, 503, "not available")
		}
		if n := back.Count("tools/call"); n != 0 {
			t.Errorf("%s: %d calls went out", name, n)
		}
	}
}

// TestCredentialIsKept asks a program once for all clients that are one to it, as
// long as it says that its answer holds.
func TestCredentialIsKept(t *testing.T) {
	t.Parallel()
	m, back := edgetest.NewMint(t, "weir"), edgetest.NewServer(t, edgetest.Modern)
	f := filter{name: "f", more: grantAll, limits: "instances: 1", rules: []string{
		"sub|outgoing_auth|varies=2|cache=60000|header=x-a",
		"outgoing_auth|groups=a|use_credential|acme",
		"outgoing_auth|groups=b|use_credential|other",
		"outgoing_auth|groups=c|deny|0|not you",
		"outgoing_auth|*|set_header|x-who|$count [$groups] [$subject] [$header:x-a] [$args] [$tool]",
	}}
	e := guarded(t, m, housed(t, back, f))
	c := newClient(e, edgetest.Modern)
	who := func(header []string) string {
		t.Helper()
		back.Forget()
		text(t, c.call(t, "echo", `{"n":1}`, append(header, "X-A", "x")...))
		h := back.Requests("tools/call")[0].Header
		return h.Get("Authorization") + h.Get("X-Key") + " " + h.Get("X-Who")
	}
	alice := who(m.Bearer("alice", "a"))
	if !strings.HasPrefix(alice, "Bearer secret-of-acme ") || !strings.HasSuffix(alice, " [a] [] [] [] []") {
		t.Errorf("the first: %s", alice)
	}
	if bob := who(m.Bearer("bob", "a")); bob != alice {
		t.Errorf("of the same group: %s, then %s", alice, bob)
	}
	if eve := who(m.Bearer("eve", "b")); !strings.HasPrefix(eve, "secret-of-other ") || eve == alice {
		t.Errorf("of another group: %s", eve)
	}
	if again := who(m.Bearer("alice", "a")); again != alice {
		t.Errorf("again: %s, then %s", alice, again)
	}
	for range 3 {
		fails(t, c.call(t, "echo", "{}", m.Bearer("mallory", "c")...), 403, 403, "not you")
	}
	status := strings.Join(strings.Fields(string(e.NewClient().Do("GET", "/status", "", m.Bearer("probe")...).Body)), "")
	if !strings.Contains(status, `"hook":"outgoing_auth","calls":3,`) {
		t.Errorf("it was asked more often than there are groups: %s", status)
	}
}

// TestCredentialsAtOpen says what is wrong with grants before anything is served.
func TestCredentialsAtOpen(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	f := filter{name: "f", more: grantAll, rules: []string{"outgoing_auth|*|use_credential|acme"}}
	if got := refused(t, strings.Replace(housed(t, back, f), "other: secret-of-other", "another: x", 1)); !strings.Contains(got, "keys") || strings.Contains(got, "secret-of") {
		t.Errorf("without a secret: %s", got)
	}
	for what, rule := range map[string]string{
		"answers of on_call_request are not kept":                    "sub|on_call_request|cache=1",
		"on_http_request is no hook at which anything may be waited": "sub|on_http_request|blocking=1",
		"on_http_response is no hook at which anything":              "sub|on_http_response|blocking=1",
	} {
		if got := refused(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{rule}}})); !strings.Contains(got, what) {
			t.Errorf("%s: %s", rule, got)
		}
	}
}

// TestCredentialIsReloaded has a reload take a grant away, and another secret be
// used.
func TestCredentialIsReloaded(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	f := filter{name: "f", more: grantAll, rules: []string{"sub|outgoing_auth|cache=3600000", "outgoing_auth|*|use_credential|acme"}}
	yaml := housed(t, back, f)
	e := start(t, yaml)
	c := newClient(e, edgetest.Legacy)
	call := func(want string) {
		t.Helper()
		back.Forget()
		text(t, c.call(t, "echo", "{}"))
		if got := back.Requests("tools/call")[0].Header.Get("Authorization"); got != want {
			t.Errorf("the backend got %q, want %q", got, want)
		}
	}
	call("Bearer secret-of-acme")
	reload := func(yaml string) {
		t.Helper()
		if err := e.Serve.Reload(edgetest.Plan(t, yaml)); err != nil {
			t.Fatal(err)
		}
	}
	reload(strings.Replace(yaml, "secret-of-acme", "new-of-acme", 1))
	call("Bearer new-of-acme")
	reload(strings.Replace(yaml, "{name: acme}, ", "", 1))
	fails(t, c.call(t, "echo", "{}"), 403, 403, "there is no credential")
}
