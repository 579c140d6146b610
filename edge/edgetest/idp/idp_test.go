package idp_test

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
)

func TestMain(m *testing.M) { edgetest.Main(m) }

// TestProvider proves that the provider does what its methods say.
func TestProvider(t *testing.T) {
	p := idp.Start(t)
	jwt := p.Machine(t, "https://a.example/mcp", "tools:read")
	if strings.Count(jwt, ".") != 2 {
		t.Errorf("not a JWT: %d dots", strings.Count(jwt, "."))
	}
	if opaque := p.Machine(t, "https://a.example/opaque", "tools:read"); strings.Count(opaque, ".") != 0 {
		t.Errorf("not opaque: %d dots", strings.Count(opaque, "."))
	}
	user := p.User(t, "alice", "https://a.example/mcp", "tools:read")
	if strings.Count(user.Access, ".") != 2 || strings.Count(user.ID, ".") != 2 || user.Refresh == "" {
		t.Error("the code flow did not give an access token, an ID token and a refresh token")
	}
	first, second := p.Rotate(t, false), p.Rotate(t, true)
	if first == second || first == "" {
		t.Errorf("a rotation made no new key: %q, %q", first, second)
	}
	if n := p.Hits(t, "/token"); n != 3 {
		t.Errorf("%d requests for tokens were counted, not 3", n)
	}
}
