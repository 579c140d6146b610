package cloud_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/cloud"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
)

const (
	audience = "https://edge.example.com"
	eng      = "arn:aws:iam::123456789012:role/eng"
	other    = "arn:aws:iam::123456789012:role/team/other"
)

// scene is a cloud that trusts an issuer, and a strategy that has been opened.
type scene struct {
	*cloud.Cloud
	issuer *edgetest.Mint
	attach edge.Attach
}

// stage opens a strategy; change changes the section of it.
func stage(t *testing.T, change func(*v1beta1.CloudSTS)) *scene {
	t.Helper()
	s := &scene{issuer: edgetest.NewMint(t, audience)}
	s.Cloud = cloud.Start(t, s.issuer.URL, s.issuer.URL+"/keys", audience, eng, other)
	spec := &v1beta1.CloudSTS{Region: "eu-west-1", RoleMappings: []v1beta1.RoleMapping{{RoleARN: eng, Claim: "eng"}, {RoleARN: other, Matcher: `claims.sub == "olga"`}}}
	if change != nil {
		change(spec)
	}
	s.attach = open(t, s.Cloud, spec)
	return s
}

func open(t *testing.T, c *cloud.Cloud, spec *v1beta1.CloudSTS) edge.Attach {
	t.Helper()
	var after []func()
	one, err := (&outgoing.Spec{Kind: &v1beta1.MCPExternalAuthConfigSpec{Type: v1beta1.AuthCloudSTS, CloudSTS: spec}}).Open(edge.Env{Reach: c.Reach(), Shared: &edge.Shared{}, Defer: func(f func()) { after = append(after, f) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range after {
			f()
		}
	})
	if !one.Personal || !one.Signs {
		t.Errorf("%+v", one)
	}
	return one.Attach
}

// who is a user with a token of the issuer.
func (s *scene) who(subject string, claims map[string]any) *edge.Identity {
	id := &edge.Identity{Issuer: s.issuer.URL, Subject: subject, Token: edge.Secret(s.issuer.Token(subject, claims)), Claims: map[string]any{"sub": subject}}
	for name, v := range claims {
		id.Claims[name] = v
	}
	return id
}

// call attaches the credential of a user to a request, and sends it.
func (s *scene) call(t *testing.T, who *edge.Identity, at string, lines []string, body string, refused bool) (uint64, error) {
	t.Helper()
	generation, status, err := send(t, s.attach, who, at, lines, body, refused)
	if err == nil && status == http.StatusUnauthorized {
		t.Errorf("the backend answers %d", status)
	}
	return generation, err
}

func send(t *testing.T, attach edge.Attach, who *edge.Identity, at string, lines []string, body string, refused bool) (uint64, int, error) {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	method, head := "GET", "\r\nHost: "+u.Host+"\r\nUser-Agent: weir"
	if body != "" {
		method, head = "POST", head+fmt.Sprintf("\r\nContent-Type: application/json\r\nContent-Length: %d", len(body))
	}
	text := method + " " + u.RequestURI() + " HTTP/1.1"
	for _, l := range lines {
		head += "\r\n" + l
	}
	var mine string
	generation, err := attach(t.Context(), &edge.Outbound{Exchange: &edge.Exchange{Identity: who}, Method: method, URL: u, Lines: []byte(head), Body: []byte(body), Refused: refused},
		func(name string, value edge.Secret) { mine += "\r\n" + name + ": " + string(value) })
	if err != nil {
		return 0, 0, err
	}
	return generation, raw(t, u.Host, text+head+mine+"\r\nConnection: close\r\n\r\n"+body), nil
}

// TestT26T25 sends what is signed, and has the AWS SDK judge what was received: every path, query
// and line that a backend may have.
func TestT26T25(t *testing.T) {
	s := stage(t, nil)
	back := s.Before(t, edgetest.NewServer(t, edgetest.Modern).URL, "eu-west-1", "cloud-mcp", nil)
	who := s.who("alice", map[string]any{"groups": []any{"eng"}})
	for _, path := range []string{"/", "", "/mcp", "//mcp//", "/a/./b/../c/", "/a%2Fb", "/a+b", "/%E1%88%B4", "/a%20b", "/x?a=1&b=2", "/x?b=2&a=2&a=1", "/x?q=%E1%88%B4&p=a%20b", "/x?a=b+c", "/x?a&b=", "/x?a=%2B~-_."} {
		for _, body := range []string{"", `{}`, strings.Repeat("ä", 4000)} {
			if _, err := s.call(t, who, back.URL+path, []string{"Accept: application/json, text/event-stream", "X-Two:  a   b ", "x-two: c", "Mcp-Method: ping", "Empty:"}, body, false); err != nil {
				t.Error(path, err)
			}
			for _, one := range back.Seen() {
				if one.Session == nil || one.Session.Role != eng || one.Session.Name != "alice" || one.Session.Subject != "alice" {
					t.Errorf("%q: %s", path, one.Refused)
				}
			}
		}
	}
	if asked, refused := s.Asked(); len(asked) != 1 || len(refused) != 0 || asked[0].Get("WebIdentityToken") != string(who.Token) || asked[0].Get("DurationSeconds") != "3600" {
		t.Errorf("the service was asked %d times, refused %v", len(asked), refused)
	}
}

// TestT26Altered changes what was signed on its way.
func TestT26Altered(t *testing.T) {
	s := stage(t, nil)
	back := s.Before(t, edgetest.NewServer(t, edgetest.Modern).URL, "eu-west-1", "cloud-mcp", nil)
	who := s.who("alice", map[string]any{"groups": []any{"eng"}})
	for name, change := range map[string]func(text, body string) (string, string){
		"nothing": func(text, body string) (string, string) { return text, body },
		"body":    func(text, body string) (string, string) { return text, "[" + body[1:] },
		"path":    func(text, body string) (string, string) { return strings.Replace(text, "/mcp", "/mcq", 1), body },
		"query":   func(text, body string) (string, string) { return strings.Replace(text, "?a", "?b", 1), body },
		"line":    func(text, body string) (string, string) { return strings.Replace(text, "ping", "pong", 1), body },
		"more":    func(text, body string) (string, string) { return text + "\r\nX-More: 1", body },
	} {
		u, _ := url.Parse(back.URL + "/mcp?a=1")
		body := `{"jsonrpc":"2.0"}`
		head := fmt.Sprintf("\r\nHost: %s\r\nMcp-Method: ping\r\nContent-Length: %d", u.Host, len(body))
		text := "POST /mcp?a=1 HTTP/1.1" + head
		if _, err := s.attach(t.Context(), &edge.Outbound{Exchange: &edge.Exchange{Identity: who}, Method: "POST", URL: u, Lines: []byte(head), Body: []byte(body)},
			func(name string, value edge.Secret) { text += "\r\n" + name + ": " + string(value) }); err != nil {
			t.Fatal(err)
		}
		text, body = change(text, body)
		if status := raw(t, u.Host, text+"\r\nConnection: close\r\n\r\n"+body); (status == http.StatusUnauthorized) == (name == "nothing") {
			t.Errorf("%s: status %d: %+v", name, status, back.Seen())
		}
	}
}

// TestT26Others signs what others set, too: lines of the backend's own object, and those that go
// beside a credential which a program chose.
func TestT26Others(t *testing.T) {
	s := stage(t, nil)
	back := s.Before(t, edgetest.NewServer(t, edgetest.Modern).URL, "eu-west-1", "cloud-mcp", nil)
	env := edge.Env{Reach: s.Reach(), Shared: &edge.Shared{}, Defer: func(f func()) { t.Cleanup(f) }}
	kind := &v1beta1.MCPExternalAuthConfigSpec{Type: v1beta1.AuthCloudSTS, CloudSTS: &v1beta1.CloudSTS{Region: "eu-west-1", FallbackRoleARN: other}}
	lines := &v1beta1.HeaderForward{AddPlaintextHeaders: map[string]string{"X-Tenant": "acme"}}
	both, err := (&outgoing.Spec{Kind: kind, Forward: lines}).Open(env)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := (&outgoing.Spec{Kind: kind}).Open(env)
	if err != nil {
		t.Fatal(err)
	}
	beside, err := (&outgoing.Spec{Forward: lines}).Open(env)
	if err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]*edge.Credential{"joined": both, "chosen": chosen.With(beside)} {
		if _, status, err := send(t, one.Attach, s.who("bob", nil), back.URL+"/mcp", nil, "{}", false); err != nil || status == http.StatusUnauthorized {
			t.Errorf("%s: status %d, %v: %+v", name, status, err, back.Seen())
		}
		for _, seen := range back.Seen() {
			if !strings.Contains(seen.Header.Get("Authorization"), ";x-tenant,") || seen.Header.Get("X-Tenant") != "acme" {
				t.Errorf("%s: %s", name, seen.Header)
			}
		}
	}
}

// TestT22 takes on no role for whom none is meant, and asks nobody.
func TestT22(t *testing.T) {
	s := stage(t, nil)
	for name, claims := range map[string]map[string]any{
		"no group":      {},
		"another group": {"groups": []any{"sales"}},
	} {
		if _, _, err := send(t, s.attach, s.who("eve", claims), "http://127.0.0.1:1/", nil, "", false); edge.KindOf(err) != edge.Denied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if asked, refused := s.Asked(); len(asked)+len(refused) != 0 {
		t.Errorf("the service was asked %d times", len(asked)+len(refused))
	}
	for _, who := range []*edge.Identity{nil, {Issuer: edge.AnonymousIssuer}, {Issuer: "weir-local", Subject: "me"}} {
		if _, _, err := send(t, s.attach, who, "http://127.0.0.1:1/", nil, "", false); edge.KindOf(err) != edge.Unauthenticated {
			t.Errorf("%+v: %v", who, err)
		}
	}
	n := 0
	if g, err := s.attach(t.Context(), &edge.Outbound{Method: "GET", URL: &url.URL{}}, func(string, edge.Secret) { n++ }); g != 0 || err != nil || n != 0 {
		t.Errorf("a request of the edge's own: %d, %v, %d lines", g, err, n)
	}
	if _, _, err := send(t, stage(t, func(c *v1beta1.CloudSTS) { c.SessionNameClaim = "email" }).attach, s.who("alice", map[string]any{"groups": []any{"eng"}}), "http://127.0.0.1:1/", nil, "", false); edge.KindOf(err) != edge.Denied || !strings.Contains(err.Error(), "sessionNameClaim") {
		t.Errorf("no claim for the name: %v", err)
	}
}

// What a service that does not give a session makes of a call, and that its words and tokens are
// in no error.
func TestSTSThatFails(t *testing.T) {
	refusal := func(status int, code string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(status)
			fmt.Fprintf(w, "<ErrorResponse><Error><Code>%s</Code><Message>planted</Message></Error></ErrorResponse>", code)
			return true
		}
	}
	for name, c := range map[string]struct {
		instead func(http.ResponseWriter, *http.Request) bool
		kind    edge.Kind
	}{
		"expired":  {refusal(400, "ExpiredTokenException"), edge.Unauthenticated},
		"invalid":  {refusal(400, "InvalidIdentityToken"), edge.Unauthenticated},
		"denied":   {refusal(403, "AccessDenied"), edge.Denied},
		"rejected": {refusal(403, "IDPRejectedClaim"), edge.Denied},
		"operator": {refusal(403, "RegionDisabledException"), edge.Unavailable},
		"unknown":  {refusal(400, "planted"), edge.Unavailable},
		"down":     {refusal(503, "AccessDenied"), edge.Unavailable},
		"no XML":   {func(w http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(w, "planted"); return true }, edge.Unavailable},
		"large": {func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, strings.Repeat("<a>", 1<<16))
			return true
		}, edge.Unavailable},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "https://planted.example.com/", http.StatusTemporaryRedirect)
			return true
		}, edge.Unavailable},
		"cut off":         {func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, edge.Unavailable},
		"over before now": {nil, edge.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := stage(t, nil)
			var mu sync.Mutex
			n := 0
			s.Instead = func(w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				n++
				return c.instead != nil && c.instead(w, r)
			}
			if c.instead == nil {
				s.Instead = func(w http.ResponseWriter, _ *http.Request) bool {
					mu.Lock()
					defer mu.Unlock()
					n++
					fmt.Fprint(w, "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>planted</SecretAccessKey><SessionToken>planted</SessionToken><Expiration>2001-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")
					return true
				}
			}
			who := s.who("alice", map[string]any{"groups": []any{"eng"}})
			for range 3 {
				_, _, err := send(t, s.attach, who, "http://127.0.0.1:1/", nil, "", false)
				if edge.KindOf(err) != c.kind || strings.Contains(err.Error(), "planted") || strings.Contains(err.Error(), string(who.Token)) {
					t.Errorf("%v, want the kind %d", err, c.kind)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if n != 1 {
				t.Errorf("asked %d times at once", n)
			}
		})
	}
}

// TestSTSSessionAnew: a backend that refuses a session gets another one, once in a while, and
// signatures of one session are of one generation, whenever they are made.
func TestSTSSessionAnew(t *testing.T) {
	s := stage(t, nil)
	back := s.Before(t, edgetest.NewServer(t, edgetest.Modern).URL, "eu-west-1", "cloud-mcp", nil)
	who := s.who("alice", map[string]any{"groups": []any{"eng"}})
	first, err := s.call(t, who, back.URL+"/mcp", nil, "{}", false)
	if err != nil || first == 0 {
		t.Fatal(first, err)
	}
	s.Revoke()
	if again, status, _ := send(t, s.attach, who, back.URL+"/mcp", nil, "{}", false); again != first || status != http.StatusUnauthorized {
		t.Errorf("generation %d, status %d", again, status)
	}
	second, err := s.call(t, who, back.URL+"/mcp", nil, "{}", true)
	if err != nil || second == first {
		t.Errorf("generation %d, %v", second, err)
	}
	s.Revoke()
	if third, _, _ := send(t, s.attach, who, back.URL+"/mcp", nil, "{}", true); third != second {
		t.Error("a second session within 30 s")
	}
	if asked, _ := s.Asked(); len(asked) != 2 {
		t.Errorf("%d sessions", len(asked))
	}
}

// TestT14Roles: each token of a user has a session of its own, for the role of its claims.
func TestT14Roles(t *testing.T) {
	s := stage(t, func(c *v1beta1.CloudSTS) { c.FallbackRoleARN = other })
	back := s.Before(t, edgetest.NewServer(t, edgetest.Modern).URL, "eu-west-1", "cloud-mcp", nil)
	users := []*edge.Identity{s.who("alice", map[string]any{"groups": []any{"eng"}}), s.who("alice", nil), s.who("bob", nil), s.who("bob", map[string]any{"groups": []any{"eng"}})}
	for i := range 40 {
		who := users[i*7%len(users)]
		if _, err := s.call(t, who, back.URL+"/mcp", nil, "{}", false); err != nil {
			t.Fatal(err)
		}
		role := other
		if who.Claims["groups"] != nil {
			role = eng
		}
		for _, one := range back.Seen() {
			if one.Session == nil || one.Session.Subject != who.Subject || one.Session.Role != role {
				t.Fatalf("%s got the session %+v", who.Subject, one.Session)
			}
		}
	}
	if asked, _ := s.Asked(); len(asked) != len(users) {
		t.Errorf("%d sessions for %d tokens", len(asked), len(users))
	}
}

// TestT14RoleOfNewClaims: a user of whom the issuer says less than before, by the same token, has
// the role of what it says now.
func TestT14RoleOfNewClaims(t *testing.T) {
	s := stage(t, func(c *v1beta1.CloudSTS) { c.FallbackRoleARN = other })
	back := s.Before(t, edgetest.NewServer(t, edgetest.Modern).URL, "eu-west-1", "cloud-mcp", nil)
	was := s.who("alice", map[string]any{"groups": []any{"eng"}})
	was.Rights = [16]byte{1}
	now := *was
	now.Claims, now.Rights = map[string]any{"sub": "alice"}, [16]byte{2}
	for _, one := range []struct {
		who  *edge.Identity
		role string
	}{{was, eng}, {&now, other}, {was, eng}} {
		if _, err := s.call(t, one.who, back.URL+"/mcp", nil, "{}", false); err != nil {
			t.Fatal(err)
		}
		for _, seen := range back.Seen() {
			if seen.Session == nil || seen.Session.Role != one.role {
				t.Errorf("the session is %+v, want one of %s", seen.Session, one.role)
			}
		}
	}
	if asked, _ := s.Asked(); len(asked) != 2 {
		t.Errorf("%d sessions", len(asked))
	}
}

// TestCloudOfProvider has the service verify tokens of a real identity provider.
func TestCloudOfProvider(t *testing.T) {
	p := idp.Start(t)
	c := cloud.Start(t, p.Issuer, p.Issuer+"/jwks", audience, eng)
	attach := open(t, c, &v1beta1.CloudSTS{Region: "us-east-1", Service: "tools", RoleMappings: []v1beta1.RoleMapping{{RoleARN: eng, Matcher: `"eng" in claims.groups`}}})
	back := c.Before(t, edgetest.NewServer(t, edgetest.Modern).URL, "us-east-1", "tools", nil)
	for name, want := range map[string]edge.Kind{"alice": 0, "olga": edge.Denied} {
		token := edge.Secret(p.User(t, name, audience, "tools:read").Access)
		claims, err := oauth.Claims(token)
		if err != nil {
			t.Fatal(err)
		}
		groups, _ := claims.Texts("groups")
		all := []any{}
		for _, g := range groups {
			all = append(all, g)
		}
		who := &edge.Identity{Issuer: p.Issuer, Subject: name, Token: token, Claims: map[string]any{"sub": name, "groups": all}}
		_, status, err := send(t, attach, who, back.URL+"/mcp", nil, "{}", false)
		switch {
		case want == 0 && (err != nil || status == http.StatusUnauthorized):
			t.Errorf("%s: status %d, %v: %+v", name, status, err, back.Seen())
		case want != 0 && edge.KindOf(err) != want:
			t.Errorf("%s: %v", name, err)
		}
	}
	// A token of the same provider for somebody else is refused by the service itself.
	who := &edge.Identity{Issuer: p.Issuer, Subject: "alice", Token: edge.Secret(p.User(t, "alice", "https://other.example.com", "tools:read").Access), Claims: map[string]any{"sub": "alice", "groups": []any{"eng"}}}
	if _, _, err := send(t, attach, who, back.URL+"/mcp", nil, "{}", false); edge.KindOf(err) != edge.Unauthenticated {
		t.Errorf("a token for another audience: %v", err)
	}
	if asked, refused := c.Asked(); len(asked) != 1 || len(refused) != 1 || refused[0] != "another audience" {
		t.Errorf("%d sessions, refused: %v", len(asked), refused)
	}
}
