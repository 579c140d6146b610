package serve_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/status"
)

// statusOf starts an edge of one server, and returns what it says of that.
func statusOf(t *testing.T, yaml string) (s status.Server) {
	t.Helper()
	e := edgetest.Start(t, yaml, loopback(), edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }))
	_, text := adminAsk(t, e.Serve.AdminAddr(), "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return s
}

// TestStatusOfMetadata: what a configuration gives a server and its backends by metadata is in
// /status, and the group of the backends with it.
func TestStatusOfMetadata(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	s := statusOf(t, fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: tools}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: front}
spec:
  groupRef: {name: tools}
  incomingAuth: {type: anonymous}
  config:
    metadata: {team: crm}
    backends: [{name: back, url: %q, transport: streamable-http, metadata: {owner: ada, group: another}}]
`, back.URL))
	if len(s.DiscoveredBackends) != 1 || fmt.Sprint(s.Metadata, s.DiscoveredBackends[0].Metadata) != "map[team:crm] map[group:tools owner:ada]" {
		t.Errorf("%v, %+v", s.Metadata, s.DiscoveredBackends)
	}
}

// TestStatusOfAnIssuerThatIsAway: where no token can be judged, /status says so, and where one can
// it does not.
func TestStatusOfAnIssuerThatIsAway(t *testing.T) {
	mint, back := edgetest.NewMint(t, "front"), edgetest.NewServer(t, edgetest.Modern)
	with := func(inline string) string {
		return "apiVersion: weir.dev/v1beta1\nkind: MCPOIDCConfig\nmetadata: {name: idp}\nspec: {type: inline, inline: " + inline + "}\n" +
			strings.Replace(edgetest.Object("front", back), "incomingAuth: {type: anonymous}", "incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: front}}", 1)
	}
	away := func(s status.Server) bool {
		return slices.ContainsFunc(s.Conditions, func(c status.Condition) bool {
			return c.Type == "AuthReady" && c.Status == "False" && c.Reason == "KeysUnavailable" && c.Message != ""
		})
	}
	if s := statusOf(t, with(strings.ReplaceAll(mint.Inline(), mint.URL, "http://127.0.0.1:1"))); !away(s) {
		t.Errorf("conditions %+v", s.Conditions)
	}
	e := edgetest.Start(t, with(mint.Inline()), loopback(), edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }))
	edgetest.Until(t, "the keys", func() bool {
		_, text := adminAsk(t, e.Serve.AdminAddr(), "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
		var s status.Server
		return json.Unmarshal([]byte(text), &s) == nil && s.Name == "front" && !away(s)
	})
}

// TestStatusOfObjects: what was found of the object of a server, and of those that it refers to, is
// among the conditions in /status.
func TestStatusOfObjects(t *testing.T) {
	corp, hub, back := edgetest.NewHub(t, "corp"), edgetest.NewHub(t, "hub"), edgetest.NewServer(t, edgetest.Modern)
	has := func(yaml string, want ...status.Condition) {
		t.Helper()
		s := statusOf(t, yaml)
		for i := range s.Conditions {
			if s.Conditions[i].LastTransitionTime == nil {
				t.Errorf("%s without a time", s.Conditions[i].Type)
			}
			s.Conditions[i].LastTransitionTime = nil
		}
		for _, c := range want {
			if !slices.Contains(s.Conditions, c) {
				t.Errorf("no %+v among %+v", c, s.Conditions)
			}
		}
	}
	const policy = `authzConfig: {type: inline, inline: {policies: ['permit(principal, action, resource);']}}, oidcConfigRef:`
	has(strings.Replace(entrance(back, embedded("", corp, hub), `{type: unauthenticated}`), "oidcConfigRef:", policy, 1),
		status.Condition{Type: "AuthServerConfigValidated", Status: "True", Reason: "AuthServerConfigValid"},
		status.Condition{Type: "IdentitySynthesized", Status: "False", Reason: "AllUpstreamsHaveUserInfo"},
		status.Condition{Type: "AuthzUpstreamSelectionWarning", Status: "True", Reason: "AuthzUpstreamAutoSelected", Message: "policies read the claims of corp, the first of several upstreams"},
	)
	has(fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPRemoteProxy
metadata: {name: one}
spec:
  remoteUrl: %q
  transport: streamable-http
  allowPrivateEndpoint: true
  oidcConfigRef: {name: own, audience: "%[2]s/mcp", resourceUrl: "%[2]s/mcp"}
  authServerRef: {kind: MCPExternalAuthConfig, name: login}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: login}
spec: {type: embeddedAuthServer, embeddedAuthServer: %s}
%s`, back.URL, loginIssuer, embedded(", primaryUpstreamProvider: hub", hub), ownProvider),
		status.Condition{Type: "AuthServerRefValidated", Status: "True", Reason: "AuthServerRefValid"},
		status.Condition{Type: "IdentitySynthesized", Status: "False", Reason: "AllUpstreamsHaveUserInfo", Message: "MCPExternalAuthConfig/login"},
		status.Condition{Type: "AuthzPrimaryUpstreamProviderIgnored", Status: "True", Reason: "PrimaryUpstreamProviderIgnored", Message: "only policies of a VirtualMCPServer read the claims of an upstream"},
	)
}

// TestStatusOfConflicts: tools that are withheld since several backends have their names are a
// condition, which keeps the time at which it began.
func TestStatusOfConflicts(t *testing.T) {
	t.Parallel()
	one, two := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)
	names := []string{"own"}
	for i := range 12 {
		names = append(names, fmt.Sprintf("same%02d", i))
	}
	offers(one, names...)
	offers(two, names[1:]...)
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"one": one, "two": two}, "aggregation: {conflictResolution: manual}"))
	c := e.NewClient()
	told := func() (found status.Condition) {
		var s status.Server
		if err := json.Unmarshal(c.Do("GET", "/status", "").Body, &s); err != nil {
			t.Fatal(err)
		}
		for _, one := range s.Conditions {
			if one.Type == "ToolNamesInConflict" {
				found = one
			}
		}
		return found
	}
	edgetest.Until(t, "the condition", func() bool { return told().Status == "True" })
	first := told()
	if want := "these names: same00, same01, "; !strings.Contains(first.Message, want) || !strings.HasSuffix(first.Message, "same09 and 2 more") || strings.Contains(first.Message, "own") {
		t.Errorf("%q", first.Message)
	}
	began := time.Now()
	edgetest.Until(t, "a later status", func() bool { return time.Since(began) > 5*time.Millisecond })
	if again := told(); first.LastTransitionTime == nil || again.LastTransitionTime == nil || !again.LastTransitionTime.Equal(*first.LastTransitionTime) {
		t.Errorf("%v, then %v", first.LastTransitionTime, again.LastTransitionTime)
	}
}
