package incoming_test

import (
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/filters/incoming"
)

// TestRealProvider is an identity provider that others wrote: discovery, tokens
// of a client and of a user, two audiences, rotation, introspection, revocation.
func TestRealProvider(t *testing.T) {
	p := idp.Start(t)
	const a, b, opaque = "https://a.example/mcp", "https://b.example/mcp", "https://c.example/opaque"
	t.Setenv("TEST_CLIENT_SECRET", idp.ClientSecret)
	spec := func(audience string) incoming.Spec {
		return incoming.Spec{Type: incoming.OIDC, Issuer: p.Issuer, Audience: audience, AllowPrivate: true, AllowHTTP: true}
	}
	issuers := &oauth.Issuers{Interval: time.Millisecond}
	ga, gb := open(t, spec(a), issuers), open(t, spec(b), issuers)

	// 1. A client on its own account, at the server it asked for and at another.
	machine := p.Machine(t, a, "tools:read")
	if id := accepted(t, ga, "a machine", machine); id.Subject != "machine" || id.Issuer != p.Issuer || len(id.Scopes) != 1 || id.Scopes[0] != "tools:read" || id.Expires.Before(time.Now()) || string(id.Token) != machine {
		t.Errorf("%+v", id)
	}
	refused(t, gb, "a token for another server", machine, "aud")

	// 2. A user, by the code flow. Neither of the other tokens is taken.
	user := p.User(t, "alice", a, "tools:read tools:write")
	if id := accepted(t, ga, "a user", user.Access); id.Subject != "alice" || oauth.Lacks(id.Scopes, []string{"tools:read", "tools:write"}) {
		t.Errorf("%+v", id)
	}
	refused(t, ga, "an ID token", user.ID, "")
	refused(t, open(t, spec("app"), issuers), "an ID token at a server whose audience is its client", user.ID, "ID token")
	refused(t, ga, "a refresh token", user.Refresh, "not a JWT")
	if n := p.Hits(t, "/jwks"); n != 1 {
		t.Errorf("three servers fetched the keys %d times", n)
	}

	// 3. Rotation to a key of another type.
	fetched := p.Hits(t, "/jwks")
	p.Rotate(t, false)
	accepted(t, ga, "the first token of the new key", p.Machine(t, a, "tools:read"))
	accepted(t, ga, "one of the old key", p.Machine(t, a, "tools:read"))
	accepted(t, ga, "the old token", machine)
	if n := p.Hits(t, "/jwks") - fetched; n != 1 {
		t.Errorf("the rotation cost %d fetches", n)
	}
	p.Rotate(t, true)
	accepted(t, ga, "the first token of the third key", p.Machine(t, a, "tools:read"))
	refused(t, ga, "a token of a key that is gone", machine, "no key of")

	// 4. Opaque tokens, and what revoking them does.
	introspecting := spec(opaque)
	introspecting.IntrospectionURL, introspecting.ClientID, introspecting.ClientSecretEnv = p.Introspection(), idp.ClientID, "TEST_CLIENT_SECRET"
	gc := open(t, introspecting, issuers)
	token := p.Machine(t, opaque, "tools:write")
	if id := accepted(t, gc, "an opaque token", token); len(id.Scopes) != 1 || id.Scopes[0] != "tools:write" || id.Subject != "client:machine" {
		t.Errorf("%+v", id)
	}
	asked := p.Hits(t, "/token/introspection")
	accepted(t, gc, "the same again", token)
	if n := p.Hits(t, "/token/introspection"); n != asked {
		t.Error("a remembered token was introspected")
	}
	elsewhere := introspecting
	elsewhere.Audience = "https://d.example/opaque"
	refused(t, open(t, elsewhere, issuers), "an opaque token for another server", token, "aud")
	refused(t, gc, "a token that never was", "0123456789abcdefghijABCDEFGHIJ0123456789abc", "inactive")
	refused(t, gc, "a refresh token", user.Refresh, "")
	p.Revoke(t, token)
	refused(t, open(t, introspecting, issuers), "a revoked token", token, "inactive")
	wrong := introspecting
	t.Setenv("TEST_CLIENT_SECRET", "wrong")
	refused(t, open(t, wrong, issuers), "with a secret that is wrong", token, "status 401")

	// 5. Without an issuer: the endpoint is asked about every token, whatever its form. This one
	// does not know the JWTs that it has signed.
	t.Setenv("TEST_CLIENT_SECRET", idp.ClientSecret)
	asking := introspecting
	asking.Issuer = ""
	fetched = p.Hits(t, "/jwks")
	gi := open(t, asking, issuers)
	token = p.Machine(t, opaque, "tools:write")
	if id := accepted(t, gi, "an opaque token, without an issuer", token); id.Subject != "client:machine" || id.Issuer != p.Issuer && id.Issuer != p.Introspection() {
		t.Errorf("%+v", id)
	}
	asked = p.Hits(t, "/token/introspection")
	refused(t, gi, "a JWT", p.Machine(t, opaque[:len(opaque)-len("opaque")]+"mcp", "tools:read"), "introspect: status 400")
	if n := p.Hits(t, "/token/introspection"); n != asked+1 || p.Hits(t, "/jwks") != fetched {
		t.Errorf("a JWT was introspected %d times; the keys were fetched %d times", n-asked, p.Hits(t, "/jwks")-fetched)
	}
	elsewhere.Issuer = ""
	refused(t, open(t, elsewhere, issuers), "one for another server, without an issuer", token, "aud")

	// 6. Away and back.
	live := p.Machine(t, a, "tools:read")
	p.Down(t)
	accepted(t, ga, "while the provider is away", live)
	cold := open(t, spec(a), &oauth.Issuers{Wait: 50 * time.Millisecond})
	if _, err := identify(t, cold, machine); edge.KindOf(err) != edge.Overload {
		t.Errorf("a server that never saw the keys: %v", err)
	}
	p.Up(t)
	edgetest.Until(t, "the keys are known", func() bool { return cold.Ready() == nil })
}
