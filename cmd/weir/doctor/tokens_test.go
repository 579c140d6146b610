package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/tokens"
	"github.com/weir-edge/weir/edge/oauth"
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
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	t.Cleanup(endpoint.Close)
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(back.Close)
		found := 0
		for _, one := range examined(t, fmt.Sprintf(exchanging, back.URL, endpoint.URL), edgetest.Patience) {
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
	for _, one := range examined(t, fmt.Sprintf(exchanging, back.URL, endpoint.URL), edgetest.Patience) {
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

// TestDoctorOfOneUser: with the token of a user, a backend that answers users alone is asked
// for that one, and what it lists is looked at as what others list. What keeps the user from
// it is a problem, and a token that nobody needs is told.
func TestDoctorOfOneUser(t *testing.T) {
	mint := edgetest.NewMint(t, "here")
	s := tokens.Start(t, map[string]tokens.Rules{tokens.Exchange: {Issuer: mint.URL, Keys: mint.URL + "/keys", Audience: "here", Type: "access_token", Target: "there", Body: true}})
	token := edge.Secret(mint.Token("alice", nil))
	alice := &edge.Identity{Issuer: mint.URL, Subject: "alice", Token: token}
	for _, era := range []edgetest.Era{edgetest.Modern, edgetest.Legacy} {
		back := edgetest.NewServer(t, era)
		to, err := url.Parse(back.URL)
		if err != nil {
			t.Fatal(err)
		}
		status := 0 // in place of an answer to a user; 0 for an answer
		pass := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host}) }}
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			switch claims, err := oauth.Claims(edge.Secret(shown)); {
			case !ok || err != nil || !claims.Audience("there"):
				w.WriteHeader(http.StatusUnauthorized)
			case status != 0:
				w.WriteHeader(status)
			default:
				pass.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(front.Close)
		for _, c := range []struct {
			name       string
			who        *edge.Identity
			status     int
			target     string
			level      edge.Level
			step, want string
		}{
			{"nobody", nil, 0, "there", edge.LevelOK, "introduce", "with --token-file it is asked for one"},
			{"alice", alice, 0, "there", edge.LevelOK, "lists", "1 tool"},
			{"alice, whom the backend refuses", alice, 403, "there", edge.LevelProblem, "introduce", "answers 403 to the credential of the user"},
			{"alice, whom the token service refuses", alice, 0, "elsewhere", edge.LevelProblem, "introduce", "no credential for the user: tokenExchange: token endpoint " + s.URL},
		} {
			t.Run(fmt.Sprint(era, " ", c.name), func(t *testing.T) {
				status = c.status
				s.Change(tokens.Exchange, func(r *tokens.Rules) { r.Target = c.target })
				all := examinedAs(t, fmt.Sprintf(exchanging, front.URL+"/mcp", s.URL+tokens.Exchange), edgetest.Patience, c.who, s.CA)
				found, names := 0, 0
				for _, one := range all {
					if strings.Contains(fmt.Sprint(one), string(token)) {
						t.Error("it shows the token")
					}
					if one.Step == "names" && one.Level == edge.LevelOK && strings.Contains(one.Detail, "of tools those of the user") {
						names++
					}
					if one.Step != c.step {
						continue
					}
					if found++; one.Level != c.level || !strings.Contains(one.Cause+one.Detail, c.want) || (one.Level == edge.LevelProblem) != strings.Contains(one.Next, "weir auth test main/tools") {
						t.Errorf("%+v", one)
					}
				}
				if found != 1 || (names == 1) != (c.step == "lists") {
					t.Errorf("%d findings, %d about names: %+v", found, names, all)
				}
			})
		}
	}
	told := 0
	for _, one := range examinedAs(t, inFront(edgetest.NewServer(t, edgetest.Modern).URL, "streamable-http", ""), edgetest.Patience, alice, nil) {
		if one.Subject == "--token-file" && one.Level == edge.LevelNote {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d notes about a token that nobody needs", told)
	}
}

// TestDoctorOfIssuers has the doctor look for the keys of issuers that have some, have none, and
// are not there.
func TestDoctorOfIssuers(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		issuer := server.URL + strings.TrimSuffix(r.URL.Path, "/.well-known/openid-configuration")
		switch r.URL.Path {
		case "/good/.well-known/openid-configuration", "/empty/.well-known/openid-configuration":
			fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, issuer, issuer+"/keys")
		case "/good/keys":
			_, _ = w.Write([]byte(`{"keys":[{"kty":"EC","crv":"P-256","kid":"1","use":"sig","alg":"ES256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}`))
		case "/empty/keys":
			_, _ = w.Write([]byte(`{"keys":[]}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	for at, want := range map[string]edge.Level{
		server.URL + "/good":                edge.LevelOK,
		server.URL + "/empty":               edge.LevelProblem,
		server.URL + "/none":                edge.LevelProblem,
		"http://" + edgetest.FreeAddress(t): edge.LevelProblem,
	} {
		manifest := fmt.Sprintf(`name: n
groupRef: n
incomingAuth: {type: oidc, oidc: {issuer: %q, audience: a, clientId: c, insecureAllowHttp: true, jwksAllowPrivateIp: true}}
outgoingAuth: {source: inline}
backends: [{name: a, url: %q, transport: streamable-http}]
`, at, back.URL)
		found := 0
		for _, one := range examined(t, manifest, edgetest.Patience) {
			if one.Step != "issuer" {
				continue
			}
			if found++; one.Level != want || one.Subject != "n "+at {
				t.Errorf("%s: %+v", at, one)
			}
		}
		if found != 1 {
			t.Errorf("%s: %d findings", at, found)
		}
	}
}

// TestDoctorOfUpstreams: what an upstream issued to a user is in an edge that runs alone. That
// the doctor cannot ask a backend with it is no problem of the configuration.
func TestDoctorOfUpstreams(t *testing.T) {
	back, found := edgetest.NewServer(t, edgetest.Modern), 0
	manifest := strings.NewReplacer(
		"incomingAuth:", `authServerConfig: {issuer: "https://edge.example.com", upstreamProviders: [{name: corp, type: oauth2, oauth2Config: {authorizationEndpoint: "https://corp.example.com/a", tokenEndpoint: "https://corp.example.com/t", clientId: x, redirectUri: "https://edge.example.com/oauth/callback"}}]}, incomingAuth:`,
		"https://login.example.com", "https://edge.example.com",
		"{type: tokenExchange, tokenExchange: {tokenUrl: %q, audience: there}}", "{type: upstreamInject, upstreamInject: {providerName: corp}}",
	).Replace(exchanging)
	for _, one := range examinedAs(t, fmt.Sprintf(manifest, back.URL), edgetest.Patience, &edge.Identity{Issuer: "https://edge.example.com", Subject: "corp:alice", Token: "a.b.c"}, nil) {
		if one.Step != "introduce" {
			continue
		}
		if found++; one.Level != edge.LevelOK || !strings.Contains(one.Detail, "upstream corp: ") {
			t.Errorf("%+v", one)
		}
	}
	if found != 1 {
		t.Errorf("%d findings", found)
	}
}
