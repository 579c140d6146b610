package main

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/oauth/login"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/workload"
)

// visitor is a browser: it opens the page that it is told, agrees to what is asked there, and
// follows where that leads.
func visitor() {
	if _, err := edgetest.NewBrowser(nil).Walk(os.Args[1], ""); err != nil {
		panic(err)
	}
}

// guardedServers start an identity provider, and an edge with servers that take its tokens
// alone. They return the URL of one by its name.
func guardedServers(t *testing.T, names ...string) (*idp.Provider, func(name string) string) {
	t.Helper()
	provider, back, at := idp.Start(t), edgetest.NewServer(t, edgetest.Legacy), edgetest.FreeAddress(t)
	url := func(name string) string { return "http://" + at + "/servers/" + name + "/mcp" }
	text := fmt.Sprintf("apiVersion: weir.dev/v1beta1\nkind: MCPOIDCConfig\nmetadata: {name: idp}\nspec: {type: inline, inline: {issuer: %q, insecureAllowHTTP: true, jwksAllowPrivateIP: true}}\n", provider.Issuer)
	for _, name := range names {
		auth := fmt.Sprintf("incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: %q, scopes: [tools:read]}}", url(name))
		text += strings.Replace(edgetest.Object(name, back), "incomingAuth: {type: anonymous}", auth, 1)
	}
	edgetest.Start(t, text, edgetest.Settings(func(s *serve.Settings) { s.Listen = at }))
	edgetest.Until(t, "the keys", func() bool { return provider.Hits(t, "/jwks") > 0 })
	return provider, url
}

// logins are those to a server that a household has, and where they are kept.
func (h *household) logins(url string) (*login.Store, []login.Kept) {
	h.t.Helper()
	paths, err := workload.PathsOf(func(name string) (string, bool) {
		return filepath.Join(h.home, "weir"), name == "WEIR_HOME"
	})
	if err != nil {
		h.t.Fatal(err)
	}
	s := &login.Store{Dir: paths.Config}
	all, err := s.Of(login.Canonical(url))
	if err != nil {
		h.t.Fatal(err)
	}
	return s, all
}

// kept changes the one login to a server that a household has.
func (h *household) kept(url string, change func(*login.Kept)) login.Kept {
	h.t.Helper()
	s, all := h.logins(url)
	if len(all) != 1 {
		h.t.Fatalf("%d logins to %s", len(all), url)
	}
	k := all[0]
	if change != nil {
		change(&k)
		if err := s.Put(h.t.Context(), k); err != nil {
			h.t.Fatal(err)
		}
	}
	return k
}

// holds reports whether a file below the home holds a text, but for that of the logins.
func (h *household) holds(text string) (at string) {
	h.t.Helper()
	err := filepath.WalkDir(h.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == login.FileName {
			return err
		}
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), text) {
			at = path
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return at
}

// A server at a URL that wants a login: a client is registered, the user agrees in a browser,
// and the workload serves, with a token that is renewed. One that is refused waits for the
// user (workload documents, "Remote servers").
func TestRunLogsIn(t *testing.T) {
	provider, url := guardedServers(t, "crm", "mail", "docs")
	h := newHousehold(t)
	quiet := h.env
	h.env = append(append([]string{}, quiet...), "BROWSER=visitor", "WEIR_DEV_LOOPBACK=true")
	h.managed()
	port := func() string { _, p, _ := strings.Cut(edgetest.FreeAddress(t), ":"); return p }
	works := func(at string) {
		t.Helper()
		if _, said, code := h.weir("call", at, "echo"); code != 0 {
			t.Errorf("call %s: exit code %d, %s", at, code, said)
		}
	}

	// 1. By flags: registration, browser, callback, and the token serves.
	at := h.must("run", url("crm"), "--name", "crm", "--remote-auth-issuer", provider.Issuer, "--remote-auth-scopes", "openid,offline_access,tools:read", "--remote-auth-callback-port", port())
	works(at)
	first := h.kept(url("crm"), nil)
	if provider.Hits(t, "/reg") != 1 || first.Client.How != "registered" || first.Tokens.Refresh == "" || first.Issuer != provider.Issuer {
		t.Fatalf("%d registrations, %+v", provider.Hits(t, "/reg"), first.Client)
	}
	for _, token := range []string{first.Tokens.Access, first.Tokens.Refresh, base64.StdEncoding.EncodeToString([]byte(first.Tokens.Access))} {
		if path := h.holds(token); path != "" {
			t.Errorf("%s holds a token", path)
		}
	}

	// 2. A token that has expired is renewed, and nobody is asked.
	logins := provider.Hits(t, "/auth")
	h.kept(url("crm"), func(k *login.Kept) { k.Tokens.Expires = time.Now().Add(-time.Minute) })
	works(at)
	if again := h.kept(url("crm"), nil); again.Tokens.Access == first.Tokens.Access || provider.Hits(t, "/auth") != logins {
		t.Errorf("it was not renewed, with %d logins", provider.Hits(t, "/auth")-logins)
	}

	// 3. One that the server refuses is renewed, too.
	h.kept(url("crm"), func(k *login.Kept) { k.Tokens.Access = first.Tokens.Access + "x" })
	works(at)

	// 4. What cannot be renewed waits for the user, and weir start logs in anew.
	h.kept(url("crm"), func(k *login.Kept) { k.Tokens.Access, k.Tokens.Refresh = "refused", "spent" })
	if _, said, code := h.weir("call", at, "echo"); code == 0 {
		t.Errorf("it works without a login: %s", said)
	}
	edgetest.Until(t, "auth_retrying", func() bool { return h.listed("crm").Status.Status == workload.AuthRetrying })
	if one := h.listed("crm"); one.Reason == "" && one.StatusContext == "" {
		t.Errorf("nothing says why: %+v", one)
	}
	h.must("start", "crm")
	works(at)
	if one := h.listed("crm"); one.Status.Status != workload.Running {
		t.Errorf("it is %s", one.Status.Status)
	}

	// 5. A new manager has the login.
	logins = provider.Hits(t, "/auth")
	h.must("down")
	_ = h.up.Wait()
	h.managed()
	edgetest.Until(t, "running", func() bool { return h.listed("crm").Status.Status == workload.Running })
	works(at)
	if provider.Hits(t, "/auth") != logins {
		t.Error("somebody was asked")
	}

	// 6. Without a flag the server's refusal starts it, also where a header goes along that is no
	// credential.
	works(h.must("run", url("mail"), "--name", "mail", "--remote-forward-headers", "X-Team=blue"))
	if text := h.listed("mail").Manifest; !strings.Contains(text, "remoteAuth:") || !strings.Contains(text, "X-Team: blue") {
		t.Errorf("the manifest does not say so:\n%s", text)
	}

	// 7. Nobody is there: 45 at once, and the workload waits.
	browsing := h.env
	h.env = quiet
	h.fails(45, "with the rest of what it was run with", "run", url("docs"), "--name", "teams", "--remote-forward-headers", "X-Team=blue")
	began := time.Now()
	h.fails(45, "weir start docs", "run", url("docs"), "--name", "docs", "--remote-auth-issuer", provider.Issuer)
	if took := time.Since(began); took > edgetest.Patience {
		t.Errorf("after %s", took)
	}
	if one := h.listed("docs"); one.Status.Status != workload.Unauthenticated || one.Next == "" {
		t.Errorf("it is %s, next %q", one.Status.Status, one.Next)
	}
	h.env = browsing

	// 8. The port for the browser is somebody else's.
	_, taken, _ := strings.Cut(strings.TrimPrefix(at, "http://"), ":")
	taken, _, _ = strings.Cut(taken, "/")
	h.fails(7, "--remote-auth-callback-port", "run", "--replace", url("docs"), "--name", "docs", "--remote-auth-issuer", provider.Issuer, "--remote-auth-callback-port", taken)

	// 9. A page that nobody opens ends the login, and not the workload.
	h.fails(45, "weir start docs", "run", "--replace", url("docs"), "--name", "docs", "--remote-auth-issuer", provider.Issuer, "--remote-auth-callback-port", port(), "--remote-auth-skip-browser", "--remote-auth-timeout", "1s")
	if one := h.listed("docs"); one.Status.Status != workload.Unauthenticated {
		t.Errorf("it is %s", one.Status.Status)
	}
}

// A token of a file that the server refuses is no reason to log in: it is said which file to
// change, and with a token that it takes the workload starts.
func TestRunRefusesBearerFile(t *testing.T) {
	provider, url := guardedServers(t, "crm")
	h := newHousehold(t)
	h.env = append(h.env, "BROWSER=visitor", "WEIR_DEV_LOOPBACK=true")
	h.managed()
	file := h.write("token", "nobody-gave-it\n")
	h.fails(45, "refuses the token in "+file, "run", url("crm"), "--name", "crm", "--remote-auth-bearer-token-file", file)
	h.fails(45, "refuses the token in "+file, "start", "crm")
	if n := provider.Hits(t, "/auth") + provider.Hits(t, "/reg"); n != 0 {
		t.Errorf("%d requests for a login", n)
	}
}

// Workloads of one URL that ask for other scopes have logins of their own: none is sent what
// another was given (auth-server document, "Exchanged credentials").
func TestRunLoginsOfTheirOwn(t *testing.T) {
	provider, url := guardedServers(t, "crm")
	h := newHousehold(t)
	h.env = append(h.env, "BROWSER=visitor", "WEIR_DEV_LOOPBACK=true")
	h.managed()
	_, port, _ := strings.Cut(edgetest.FreeAddress(t), ":")
	at := map[string]string{}
	run := func(name, scopes string) []string {
		return []string{"run", url("crm"), "--name", name, "--remote-auth-issuer", provider.Issuer, "--remote-auth-scopes", scopes, "--remote-auth-callback-port", port}
	}
	granted := func() (all []string) {
		_, kept := h.logins(url("crm"))
		for _, k := range kept {
			all = append(all, strings.Join(k.Tokens.Scopes, " "))
		}
		slices.Sort(all)
		return all
	}

	// 1. Two that ask for different scopes: a login each, which each goes on with.
	at["wide"] = h.must(run("wide", "openid,offline_access,tools:read,tools:write")...)
	at["narrow"] = h.must(run("narrow", "openid,offline_access,tools:read")...)
	want := []string{"tools:read", "tools:read tools:write"} // those of the resource, as the provider says them
	if got := granted(); !slices.Equal(got, want) {
		t.Fatalf("granted %q; want %q", got, want)
	}
	logins := provider.Hits(t, "/auth")
	for name, at := range at {
		if _, said, code := h.weir("call", at, "echo"); code != 0 {
			t.Errorf("%s: exit code %d, %s", name, code, said)
		}
	}
	if got := granted(); !slices.Equal(got, want) || provider.Hits(t, "/auth") != logins {
		t.Errorf("after calls: granted %q, %d logins more", got, provider.Hits(t, "/auth")-logins)
	}

	// 2. One that asks for less has not what others were given.
	h.must(run("bare", "openid")...)
	if got := granted(); !slices.Equal(got, append([]string{"openid"}, want...)) {
		t.Errorf("with the scope openid alone: granted %q", got)
	}

	// 3. They are listed apart, and one word forgets them all.
	out, _, _ := h.weir("auth", "list")
	for _, flags := range []string{"--scopes openid,offline_access,tools:read ", "--scopes openid,offline_access,tools:read,tools:write "} {
		if !strings.Contains(out, flags) {
			t.Errorf("%q is not in the list:\n%s", flags, out)
		}
	}
	h.must("auth", "logout", url("crm"))
	if got := granted(); len(got) > 0 {
		t.Errorf("after the end: %q", got)
	}
}
