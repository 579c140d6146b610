package incoming_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/filters/incoming"
)

// TestIntrospectedAlone: without an issuer every token is introspected, signed ones too; what the
// answer says is held against the audience, and who it is against nobody else's users.
func TestIntrospectedAlone(t *testing.T) {
	p := newProvider(t, theRSA())
	answers := map[string]map[string]any{}
	p.introspect = func(w http.ResponseWriter, r *http.Request) {
		claims, known := answers[r.FormValue("token")]
		all := map[string]any{"active": known}
		for name, value := range claims {
			all[name] = value
		}
		_ = json.NewEncoder(w).Encode(all) // who does not take it has gone
	}
	jwt := theRSA().mint(p.claims(nil))
	forged := jwt[:strings.LastIndexByte(jwt, '.')+1] + strings.Repeat("A", 342)
	for name, claims := range map[string]map[string]any{
		jwt:             {"aud": audience, "sub": "alice", "iss": "https://a.example"},
		"a.b.c.d.e":     {"aud": audience, "sub": "alice"},
		"opaque":        {"aud": audience, "sub": "alice"},
		"other-issuer":  {"aud": audience, "sub": "alice", "iss": "https://b.example"},
		"other-server":  {"aud": "https://other.example", "sub": "alice"},
		"for-nobody":    {"sub": "alice"},
		"no-url":        {"aud": audience, "sub": "alice", "iss": edge.LocalIssuer},
		"empty-issuer":  {"aud": audience, "sub": "alice", "iss": ""},
		"wrong-issuer":  {"aud": audience, "sub": "alice", "iss": 1},
		"expired":       {"aud": audience, "sub": "alice", "exp": 1},
		"a-client":      {"aud": audience, "client_id": "job"},
		"nobody-at-all": {"aud": audience},
	} {
		answers[name] = claims
	}
	s := p.spec()
	s.Issuer, s.IntrospectionURL = "", p.URL+"/introspect"
	g := open(t, s)
	for token, want := range map[string]string{
		jwt: "https://a.example alice", "a.b.c.d.e": s.IntrospectionURL + " alice", "opaque": s.IntrospectionURL + " alice", "other-issuer": "https://b.example alice", "a-client": s.IntrospectionURL + " client:job",
	} {
		if id := accepted(t, g, token, token); id.Issuer+" "+id.Subject != want {
			t.Errorf("%s is %s %s; want %s", token, id.Issuer, id.Subject, want)
		}
	}
	for token, why := range map[string]string{
		forged: "inactive", "unknown": "inactive", "other-server": "aud", "for-nobody": "aud", "no-url": "iss", "empty-issuer": "iss", "wrong-issuer": "iss", "expired": "exp", "nobody-at-all": "sub",
	} {
		refused(t, g, token, token, why)
	}
	if n := p.fetches.Load(); n != 0 {
		t.Errorf("keys were fetched %d times", n)
	}
	if text := string(parse(t, s).At("https://edge.example/mcp").Document()); strings.Contains(text, "authorization_servers") || !strings.Contains(text, `"resource"`) {
		t.Errorf("the metadata are %s", text)
	}

	// Who stays does so while the token is theirs.
	id, stay := accepted(t, g, "opaque", "opaque"), &incoming.Stay{}
	if holds, _ := g.Holds(id, stay); !holds || !g.Asks(id) || !g.Asks(&edge.Identity{Token: edge.Secret(jwt)}) {
		t.Error("who has just been let in may not stay")
	}
	g.Renew(t.Context(), id, stay)
	if holds, _ := g.Holds(id, stay); !holds {
		t.Error("with a token that is good")
	}
	somebody := *id
	somebody.Subject = "bob"
	g.Renew(t.Context(), &somebody, stay)
	if holds, _ := g.Holds(&somebody, stay); holds {
		t.Error("with a token that has become another user's")
	}
}

// TestUnverified: whoever shows a token is somebody of its own, and whoever shows none nobody.
func TestUnverified(t *testing.T) {
	g := open(t, incoming.Spec{Type: incoming.Unverified, Issuer: "dropped"})
	one, other := accepted(t, g, "a token", "one"), accepted(t, g, "another", "other")
	if one.Issuer != edge.UnverifiedIssuer || one.Token != "one" || one.Principal() == other.Principal() || strings.Contains(fmt.Sprint(one.Subject, one.Name), "one") && one.Subject == "one" {
		t.Errorf("%+v, %+v", one, other)
	}
	if again := accepted(t, g, "the same", "one"); again.Principal() != one.Principal() {
		t.Error("the same token is another client")
	}
	refused(t, g, "a line break", "a\nb", "may")
	refused(t, g, "a long one", strings.Repeat("a", 17<<10), "large")
	for _, header := range []edge.Secret{"", "Basic YTpi", "Bearer"} {
		if _, err := g.Identify(t.Context(), header, "127.0.0.1"); edge.KindOf(err) != edge.Unauthenticated {
			t.Errorf("%q: %v", header, err)
		}
	}
	if holds, renew := g.Holds(one, &incoming.Stay{}); !holds || renew || g.Asks(one) || g.Remembered([]byte("Bearer one")) != nil {
		t.Errorf("it holds %v, to be renewed %v", holds, renew)
	}
	for _, id := range []*edge.Identity{nil, {Issuer: edge.LocalIssuer, Subject: "u"}, {Issuer: edge.UnverifiedIssuer, Subject: "u"}} {
		if holds, _ := g.Holds(id, &incoming.Stay{}); holds {
			t.Errorf("%+v stays", id)
		}
	}
	if edge.Holder(one, "192.0.2.1") != edge.Holder(other, "192.0.2.1") {
		t.Error("each token has limits of its own")
	}
	if parse(t, incoming.Spec{Type: incoming.Unverified}).Authenticates() {
		t.Error("it counts as authentication")
	}
}
