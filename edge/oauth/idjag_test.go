package oauth_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// TestFits is the table of what an identity assertion has to be before it is sent on (T19).
func TestFits(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	asked := oauth.IDJAG{Audience: "https://as", Resource: "https://mcp/x", ClientID: "me"}
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	jwt := func(header, claims string) edge.Secret {
		return edge.Secret(encode(header) + "." + encode(claims) + ".c2ln")
	}
	const header, sound = `{"alg":"ES256","typ":"oauth-id-jag+jwt"}`, `{"aud":"https://as","client_id":"me","resource":"https://mcp/x","exp":1800000060}`
	for name, token := range map[string]edge.Secret{
		"sound": jwt(header, sound),
		"lists": jwt(header, strings.NewReplacer(`"https://as"`, `["https://as"]`, `"https://mcp/x"`, `["https://mcp/x"]`).Replace(sound)),
	} {
		if err := asked.Fits(token, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, one := range []struct {
		fault string
		token edge.Secret
	}{
		{"typ", jwt(`{"alg":"ES256","typ":"JWT"}`, sound)},
		{"aud", jwt(header, strings.Replace(sound, "https://as", "https://as/", 1))},
		{"aud", jwt(header, strings.Replace(sound, `"https://as"`, `["https://as","https://other"]`, 1))},
		{"client_id", jwt(header, strings.Replace(sound, `"me"`, `"you"`, 1))},
		{"resource", jwt(header, strings.Replace(sound, "/x", "/y", 1))},
		{"resource", jwt(header, strings.Replace(sound, `"https://mcp/x"`, `["https://mcp/x","https://mcp/y"]`, 1))},
		{"exp", jwt(header, strings.Replace(sound, "1800000060", "1800000000", 1))},
		{"exp", jwt(header, strings.Replace(sound, "1800000060", `"soon"`, 1))},
		{"it is no JWT", "opaque"},
	} {
		if err := asked.Fits(one.token, now); err == nil || !strings.HasPrefix(err.Error(), one.fault) {
			t.Errorf("%s: %v", one.fault, err)
		}
	}
}
