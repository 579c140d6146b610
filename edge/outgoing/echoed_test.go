package outgoing_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/tokens"
	"github.com/weir-edge/weir/edge/outgoing"
)

// A token service that gives back the user's own token has it sent to no backend, whether the
// token says for whom it is or not (T12).
func TestT12Echoed(t *testing.T) {
	s, exchange, user := local(t)
	obo := must(kind(t, text("obo", "obo", "tenantId: contoso.example.com", "authority: "+s.URL, "clientId: "+clientID, "clientSecretRef: {name: client, key: secret}", "audience: "+target)))
	s.Instead = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}`, r.PostForm.Get("subject_token")+r.PostForm.Get("assertion"))
		return true
	}
	opaque := identity("https://issuer.example.com", "alice", "an-opaque-token-of-alice")
	for name, strategy := range map[string]struct {
		of   outgoing.Strategy
		path string
	}{"tokenExchange": {exchange, tokens.Exchange}, "obo": {obo, tokens.OnBehalf}} {
		for what, who := range map[string]*edge.Identity{"an opaque token": opaque, "a JWT": user("alice")} {
			env, _ := world(t, s, nil)
			_, _, err := shown(t, openIn(t, env, strategy.of), who, false) // which demands that it is not sent
			refusedAs(t, name+", "+what, err, edge.Unavailable, string(who.Token))
		}
		if n := len(s.Seen(strategy.path)); n != 2 {
			t.Errorf("%s: asked %d times", name, n)
		}
	}
}
