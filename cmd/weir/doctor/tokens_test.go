package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
)

// exchanging is the manifest of a backend, a URL, with tokens of a token endpoint, another.
const exchanging = `apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: main}
spec: {groupRef: {name: g}, incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: here}}}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: idp}
spec: {type: inline, inline: {issuer: "https://login.example.com"}}
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: tools}
spec: {groupRef: {name: g}, remoteUrl: %q, transport: streamable-http, allowPrivateEndpoint: true, externalAuthConfigRef: {name: way}}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: way}
spec: {type: tokenExchange, tokenExchange: {tokenUrl: %q, audience: there}}
`

// TestDoctorOfTokenEndpoints has the doctor look at endpoints that answer, that fail, that are
// something else, and that are not there.
func TestDoctorOfTokenEndpoints(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := map[string]int{"/good": 400, "/strict": 401, "/failing": 503, "/moved": 307, "/none": 404}[r.URL.Path]
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	for at, want := range map[string]struct {
		level edge.Level
		class string
	}{
		server.URL + "/good":                                {edge.LevelOK, ""},
		server.URL + "/strict":                              {edge.LevelOK, ""},
		server.URL + "/failing":                             {edge.LevelProblem, edge.ClassFailing},
		server.URL + "/moved":                               {edge.LevelProblem, edge.ClassProtocol},
		server.URL + "/none":                                {edge.LevelProblem, edge.ClassProtocol},
		"http://" + edgetest.FreeAddress(t) + "/token?hush": {edge.LevelProblem, edge.ClassUnreachable},
	} {
		manifest := fmt.Sprintf(exchanging, back.URL, at)
		found := 0
		for _, one := range examined(t, manifest, edgetest.Patience) {
			if strings.Contains(one.Cause+one.Next+one.Detail+one.Subject, "hush") {
				t.Errorf("%s: the query is shown: %+v", at, one)
			}
			if one.Step != "tokens" {
				continue
			}
			if found++; one.Level != want.level || one.Class != want.class || !strings.HasPrefix(at, one.Subject) {
				t.Errorf("%s: %+v", at, one)
			}
		}
		if found != 1 {
			t.Errorf("%s: %d findings", at, found)
		}
	}
}

// TestDoctorOfUsers: a backend that answers users alone is no problem, whatever it says to the
// doctor, who is none; what it offers is said to depend on them.
func TestDoctorOfUsers(t *testing.T) {
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	t.Cleanup(tokens.Close)
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(back.Close)
		found := 0
		for _, one := range examined(t, fmt.Sprintf(exchanging, back.URL, tokens.URL), edgetest.Patience) {
			if one.Step != "introduce" {
				continue
			}
			if found++; one.Level != edge.LevelOK || !strings.Contains(one.Detail, "users alone") {
				t.Errorf("%d: %+v", status, one)
			}
		}
		if found != 1 {
			t.Errorf("%d: %d findings", status, found)
		}
	}
	back, found := edgetest.NewServer(t, edgetest.Modern), 0
	for _, one := range examined(t, fmt.Sprintf(exchanging, back.URL, tokens.URL), edgetest.Patience) {
		if one.Step != "lists" {
			continue
		}
		if found++; one.Level != edge.LevelOK || !strings.Contains(one.Detail, "each user") {
			t.Errorf("%+v", one)
		}
	}
	if found != 1 {
		t.Errorf("%d findings", found)
	}
}
