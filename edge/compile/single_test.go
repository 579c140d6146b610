package compile_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/filters/incoming"
)

// found compiles a set and returns what is said, a line each.
func found(yaml string, change ...func(*source.Set)) (*compile.Plan, string) {
	set, _ := source.Read("x.yaml", []byte(yaml))
	for _, f := range change {
		f(set)
	}
	r := set.Compile()
	var text strings.Builder
	_ = r.Render(&text)
	return r.Plan, text.String()
}

func starting(s *source.Set) { s.Starts = []compile.Form{compile.FormLocal, compile.FormContainer} }

func server(spec string) string {
	return "---\napiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: one}\nspec: " + spec + "\n"
}

// How an image is built is planned, with paths beside the file that names them.
func TestBuildPlan(t *testing.T) {
	for spec, want := range map[string]compile.Build{
		"{image: 'npx://@a/b@1.0.0'}":                                         {Source: "npx://@a/b@1.0.0"},
		"{image: 'uvx://b[x]==1.0', run: {runtimeAddPackages: [git, 'a=1']}}": {Source: "uvx://b[x]@1.0", AddPackages: []string{"git", "a=1"}},
		"{image: 'go://./srv', run: {runtimeImage: 'go:1', buildCA: ca.pem}}": {Source: "go://./set/srv", RuntimeImage: "go:1", CA: filepath.Join("set", "ca.pem")},
	} {
		set, _ := source.Read("set/x.yaml", []byte(server(spec)))
		starting(set)
		plan := set.Compile().Plan
		if plan == nil {
			t.Fatal("no plan")
		}
		if w := plan.Servers[0].Backends[0].Workload; w == nil || w.Form != compile.FormContainer || w.Build == nil || !reflect.DeepEqual(*w.Build, want) {
			t.Errorf("%s: %+v, built %+v; want %+v", spec, w, *w.Build, want)
		}
	}
}

// What a server that is to be started cannot have is refused by name, and nothing is ignored.
func TestWorkloadsRefused(t *testing.T) {
	for spec, want := range map[string]string{
		"{image: 'npx://-y'}":              "is no package of npx: write npx://PACKAGE",
		"{image: 'uvx://pkg==-1'}":         "is no version of pkg",
		"{image: 'go://fmt'}":              "is no package of go",
		"{image: 'https://a.example/mcp'}": "describe it with an MCPRemoteProxy",
		"{image: 'file:///bin/x'}":         "no form that is known",
		"{image: 'exec://bin/x'}":          "no absolute path",
		"{image: npx, transport: sse, run: {targetHost: a.example, network: none, isolateNetwork: true}}":                              "is reached on its own loopback: take one out",
		"{image: npx, transport: sse, run: {targetHost: 127.0.0.2}}":                                                                   "spec.run.targetHost: 127.0.0.2: a server on the loopback is reached at 127.0.0.1 and ::1 alone",
		"{image: npx, run: {memory: 15Mi}}":                                                                                            "spec.run.memory: 15Mi: a process or a container has 16Mi at least",
		"{image: 'ghcr.io/a/b:1', run: {memory: 15Mi}}":                                                                                "spec.run.memory: 15Mi: a process or a container has 16Mi at least",
		"{image: npx, run: {network: bridge}}":                                                                                         "host or none",
		"{image: npx, run: {network: host, isolateNetwork: true}}":                                                                     "take one out",
		"{image: npx, run: {egressPorts: [0]}}":                                                                                        "must be a port from 1 to 65535",
		"{image: npx, run: {egressPorts: [22], network: host}}":                                                                        "spec.run.egressPorts: spec.run.network is host, and then it says nothing",
		"{image: npx, run: {egressPorts: [22]}, permissionProfile: {type: builtin, name: none}}":                                       "a port of none says nothing",
		"{image: npx, run: {egressPorts: [22], isolateNetwork: false}}":                                                                "and then nothing is blocked",
		"{image: npx, run: {allowContainerGateway: true, network: none}}":                                                              "spec.run.allowContainerGateway: spec.run.network is none",
		"{image: npx, run: {publish: ['80:53']}}":                                                                                      "spec.run.publish[0]: port 53 of a server is that of its way out",
		"{image: npx, run: {runtimeImage: a}}":                                                                                         "spec.run.runtimeImage: it is for images that are built",
		"{image: npx, run: {runtimeAddPackages: [a]}}":                                                                                 "spec.run.runtimeAddPackages: it is for images that are built",
		"{image: npx, run: {buildCA: a}}":                                                                                              "spec.run.buildCA: it is for images that are built",
		"{image: npx, run: {imageVerification: enabled}}":                                                                              "spec.run.imageVerification: a process of this machine: nothing says who made it, and only images are verified",
		"{image: npx, run: {runAs: '1000'}}":                                                                                           "runAs is for containers",
		"{image: npx, authServerRef: {name: key}}":                                                                                     "spec.authServerRef.name: MCPExternalAuthConfig/key is of type headerInjection",
		"{image: npx, authServerRef: {name: login}}":                                                                                   "its server asks clients for no token of an issuer",
		"{image: npx, permissionProfile: {type: builtin, name: all}}":                                                                  "there is no profile \"all\"",
		"{image: npx, permissionProfile: {type: configmap, name: p, key: hosts}}":                                                      "allow_host[0]: \"127.1\": the host is a number and no address",
		"{image: npx, permissionProfile: {type: configmap, name: p, key: privileged}}":                                                 "privileged is for containers",
		"{image: npx, permissionProfile: {type: configmap, name: p, key: bad}}":                                                        "no profile",
		"{image: npx, permissionProfile: {type: configmap, name: p, key: volume}}":                                                     "a volume of a container engine",
		"{image: npx, volumes: [{name: a, hostPath: data, mountPath: /data}]}":                                                         "\"data\" is no absolute path",
		"{image: npx, volumes: [{name: a, hostPath: /a, mountPath: /srv}], permissionProfile: {type: configmap, name: p, key: reads}}": "/srv is mounted",
		"{image: npx, run: {writable: [/srv]}, volumes: [{name: a, hostPath: /a, mountPath: /srv}]}":                                   "/srv is mounted",
		"{image: npx, externalAuthConfigRef: {name: key}}":                                                                             "is sent no headers",
		"{image: npx, externalAuthConfigRef: {name: login}}":                                                                           "its server asks clients for no token of an issuer",
		"{image: npx, rateLimiting: {shared: {maxTokens: 1, refillPeriod: 1m}}}":                                                       "sessionStorage with provider kvstore",
	} {
		plan, said := found(server(spec)+`---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: login}
spec: {type: embeddedAuthServer, embeddedAuthServer: {issuer: "https://a.example", upstreamProviders: [{name: a, type: oidc, oidcConfig: {issuerUrl: "https://b.example", clientId: c}}]}}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: key}
spec: {type: headerInjection, headerInjection: {headerName: X-Key, valueSecretRef: {name: a, key: b}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: p}
data:
  hosts: '{"network": {"outbound": {"allow_host": ["127.1"]}}}'
  privileged: '{"privileged": true}'
  bad: '{"reed": []}'
  volume: '{"read": ["volume://data:/data"]}'
  reads: '{"read": ["/srv"]}'
`, starting)
		if plan != nil || !strings.Contains(said, want) {
			t.Errorf("%s: plan %v\n%swant %q", spec, plan != nil, said, want)
		}
	}
	for spec, want := range map[string]string{
		"{image: fetch, run: {runAs: root}}":                                             "spec.run.runAs: \"root\": write image, UID or UID:GID",
		"{image: fetch, run: {runAs: '-1'}}":                                             "spec.run.runAs",
		"{image: fetch, run: {network: 'container:other'}}":                              "spec.run.network: \"container:other\": write host, none",
		"{image: fetch, run: {network: host, isolateNetwork: true}}":                     "host, and isolateNetwork: take one out",
		"{image: fetch, run: {network: mine, isolateNetwork: true}}":                     "mine, and isolateNetwork: take one out",
		"{image: fetch, run: {sandbox: bwrap}}":                                          "spec.run.sandbox: \"bwrap\" is for processes of this machine",
		"{image: fetch, run: {publish: ['80:80/udp']}}":                                  "must be HOST:CONTAINER",
		"{image: fetch, permissionProfile: {type: configmap, name: p, key: privileged}}": "the profile asks for a privileged container",
		"{image: fetch, permissionProfile: {type: configmap, name: p, key: name}}":       "volume://a b is no volume",
		"{image: fetch, volumes: [{name: a, hostPath: /a, mountPath: /data}], permissionProfile: {type: configmap, name: p, key: volume}}": "/data is mounted by spec.volumes[0] already",
		"{image: npx, run: {allowPrivileged: true}}":                             "spec.run.allowPrivileged: a process of this machine has the rights of its user",
		"{image: fetch, run: {publish: ['80:3128']}}":                            "spec.run.publish[0]: port 3128 of a server is that of its way out",
		"{image: fetch, volumes: [{name: a, hostPath: data, mountPath: /data}]}": "\"data\" is no absolute path",
		"{image: 'npx://fetch', run: {runtimeImage: '--privileged'}}":            "spec.run.runtimeImage: \"--privileged\" is no image",
		"{image: 'npx://fetch', run: {runtimeAddPackages: ['-y']}}":              "spec.run.runtimeAddPackages: \"-y\" is no package of a system",
		"{image: 'npx://fetch', run: {runAs: root}}":                             "spec.run.runAs",
		"{image: 'exec:///bin/x', run: {buildCA: /a}}":                           "spec.run.buildCA: it is for images that are built",
	} {
		plan, said := found(server(spec)+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: p}\ndata:\n  privileged: '{\"privileged\": true}'\n  name: '{\"read\": [\"volume://a b:/data\"]}'\n  volume: '{\"read\": [\"volume://a:/data\"]}'\n", starting)
		if plan != nil || !strings.Contains(said, want) {
			t.Errorf("%s: plan %v\n%swant %q", spec, plan != nil, said, want)
		}
	}
	if plan, said := found(server("{image: fetch}")); plan != nil || !strings.Contains(said, "--allow-workloads container") {
		t.Errorf("without the setting: plan %v, %s", plan != nil, said)
	}
	plan, said := found(server("{image: 'docker.io/mcp/fetch:1', args: [a], run: {network: mine, runAs: '1000:1', labels: {a: b}}}"), starting)
	if plan == nil || !strings.Contains(said, "mine: the server is not isolated") {
		t.Fatalf("plan %v, %s", plan != nil, said)
	}
	if w := plan.Servers[0].Backends[0].Workload; w.Image != "docker.io/mcp/fetch:1" || w.Program != "" || w.RunAs != "1000:1" || w.Network != "mine" || w.Isolate || w.Labels["a"] != "b" || w.Memory != 1<<30 {
		t.Errorf("%+v", w)
	}
	if plan, said := found(server("{image: npx}")); plan != nil || !strings.Contains(said, "--allow-workloads local") {
		t.Errorf("without the setting: plan %v, %s", plan != nil, said)
	}
	if plan, said := found(server("{image: npx, args: [-y, pkg]}"), starting); plan == nil || said != "" {
		t.Errorf("plan %v, %s", plan != nil, said)
	}
	// What says nothing is warned of.
	for spec, want := range map[string]string{
		"{image: npx, mcpPort: 9000}":                                      "spec.mcpPort: not used: the server speaks stdio",
		"{image: npx, run: {targetHost: a.example}}":                       "spec.run.targetHost: not used",
		"{image: npx, proxyMode: sse}":                                     "the older transport",
		"{image: npx, transport: sse, run: {processes: shared}}":           "spec.run.processes: not used: a server that speaks HTTP has one process",
		"{image: npx, transport: streamable-http, run: {maxProcesses: 2}}": "spec.run.maxProcesses: not used",
	} {
		if plan, said := found(server(spec), starting); plan == nil || !strings.Contains(said, want) {
			t.Errorf("%s: plan %v, %s", spec, plan != nil, said)
		}
	}
}

// A process that speaks HTTP is reached at the port that it is told, on its own loopback or at
// the host that somebody names.
func TestWorkloadsOverHTTP(t *testing.T) {
	for spec, want := range map[string]string{
		"{image: npx}": " 0 false",
		"{image: npx, transport: streamable-http}":                                           "http://127.0.0.1:8080/mcp 8080 true",
		"{image: npx, transport: sse, mcpPort: 9000}":                                        "http://127.0.0.1:9000/sse 9000 false",
		"{image: npx, transport: sse, run: {targetHost: localhost}}":                         "http://127.0.0.1:8080/sse 8080 true",
		"{image: npx, transport: streamable-http, mcpPort: 1, run: {targetHost: a.example}}": "http://a.example:1/mcp 1 false a.example",
		"{image: npx, transport: streamable-http, run: {targetHost: 'fd00::1'}}":             "http://[fd00::1]:8080/mcp 8080 false fd00::1",
	} {
		plan, said := found(server(spec), starting)
		if plan == nil {
			t.Errorf("%s: %s", spec, said)
			continue
		}
		b := plan.Servers[0].Backends[0]
		if got := strings.TrimRight(fmt.Sprintf("%s %d %t %s", b.URL, b.Workload.Port, b.Workload.AnyPort, b.Workload.Host), " "); got != want || b.Private != (b.URL != "") {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

// A limit for each user needs users: a credential of the backend tells nobody apart. The user of
// this host is one, and so is whoever shows a token that is exchanged.
func TestLimitsForEachUser(t *testing.T) {
	const (
		limits   = "sessionStorage: {provider: kvstore, address: 'store.example.com:6379'}, rateLimiting: {perUser: {maxTokens: 1, refillPeriod: 1m}, tools: [{name: a, perUser: {maxTokens: 1, refillPeriod: 1m}}]}"
		external = "externalAuthConfigRef: {name: %s}, "
		kinds    = `---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: key}
spec: {type: headerInjection, headerInjection: {headerName: X-Key, valueSecretRef: {name: k, key: v}}}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: trade}
spec: {type: tokenExchange, tokenExchange: {tokenUrl: "https://sts.example.com/t", audience: crm}}
`
	)
	const at = "{image: npx, transport: streamable-http, "
	doors := func(s *source.Set) { s.Doors = true }
	for spec, want := range map[string]bool{
		at + fmt.Sprintf(external, "key") + limits + "}":                                    false,
		at + fmt.Sprintf(external, "trade") + limits + "}":                                  false,
		at + fmt.Sprintf(external, "trade") + limits + ", run: {exchangeUnverified: true}}": true,
	} {
		plan, said := found(server(spec)+kinds, starting)
		if refused := strings.Contains(said, "spec.rateLimiting.perUser: needs authentication") && strings.Contains(said, "spec.rateLimiting.tools[0].perUser: needs authentication"); (plan != nil) != want || refused == want {
			t.Errorf("%s: served %v\n%s", spec, plan != nil, said)
		}
	}
	if plan, said := found(server(at+fmt.Sprintf(external, "key")+limits+"}")+kinds, starting, doors); plan == nil || plan.Servers[0].Incoming == nil || plan.Servers[0].Incoming.Type != incoming.Local {
		t.Errorf("at a door of its own: %s", said)
	}
}

// A member of a group is reached through the server over it alone; what would keep its own
// clients out is an error then, and not ignored.
func TestMembersOfAGroup(t *testing.T) {
	set := func(kind, spec string) string {
		return fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: team}
spec: {groupRef: {name: tools}, incomingAuth: {type: anonymous}}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: tools}
---
apiVersion: weir.dev/v1beta1
kind: %s
metadata: {name: one}
spec: %s
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: company}
spec: {type: inline, inline: {issuer: "https://login.example.com"}}
`, kind, spec)
	}
	const proxy = `{remoteUrl: "https://a.example/mcp", groupRef: {name: tools}%s}`
	plan, said := found(set("MCPRemoteProxy", fmt.Sprintf(proxy, "")))
	if plan == nil || len(plan.Servers) != 1 || plan.Servers[0].Name != "team" || plan.Servers[0].Backends[0].URL != "https://a.example/mcp" {
		t.Errorf("plan %+v, %s", plan, said)
	}
	plan, said = found(set("MCPServer", "{image: npx, groupRef: {name: tools}}"), starting)
	if plan == nil || len(plan.Servers) != 1 || plan.Servers[0].Backends[0].Workload == nil {
		t.Errorf("plan %+v, %s", plan, said)
	}
	guarded := set("MCPRemoteProxy", fmt.Sprintf(proxy, ", oidcConfigRef: {name: company, audience: a}"))
	if plan, said := found(guarded); plan != nil || !strings.Contains(said, "by VirtualMCPServer/team alone") {
		t.Errorf("plan %v, %s", plan != nil, said)
	}
	for _, kind := range []string{"type: embeddedAuthServer", "type: bearerToken, bearerToken: {tokenSecretRef: {name: a, key: b}}"} {
		for _, spec := range []string{fmt.Sprintf(proxy, ", authServerRef: {kind: MCPExternalAuthConfig, name: auth}"), "{image: npx, groupRef: {name: tools}, authServerRef: {kind: MCPExternalAuthConfig, name: auth}}"} {
			of := map[bool]string{true: "MCPServer", false: "MCPRemoteProxy"}[strings.Contains(spec, "image")]
			text := set(of, spec) + "---\napiVersion: weir.dev/v1beta1\nkind: MCPExternalAuthConfig\nmetadata: {name: auth}\nspec: {" + strings.Replace(kind, "embeddedAuthServer", `embeddedAuthServer, embeddedAuthServer: {issuer: "https://a.example", upstreamProviders: [{name: one, type: oidc, oidcConfig: {issuerUrl: "https://b.example", clientId: c}}]}`, 1) + "}\n"
			if plan, said := found(text, starting); plan != nil || strings.Count(said, "\n") != 1 || !strings.Contains(said, "spec.authServerRef: clients come to this backend by VirtualMCPServer/team alone") {
				t.Errorf("%s, %s: plan %v, %s", of, kind, plan != nil, said)
			}
		}
	}
	if plan, said := found(set("MCPRemoteProxy", fmt.Sprintf(proxy, ", audit: {enabled: true}, run: {stateless: true}"))); plan == nil ||
		!strings.Contains(said, "spec.audit.enabled: not used") || !strings.Contains(said, "spec.run.stateless: not used") {
		t.Errorf("plan %v, %s", plan != nil, said)
	}
	// Served by itself, or with a door of its own, it has its own clients.
	plan, said = found(guarded, func(s *source.Set) { s.Serve = compile.Ref{Kind: "MCPRemoteProxy", Name: "one"} })
	if plan == nil || len(plan.Servers) != 1 || plan.Servers[0].Name != "one" || plan.Servers[0].Incoming == nil || len(plan.Doors) != 0 {
		t.Errorf("plan %+v, %s", plan, said)
	}
	plan, said = found(guarded, func(s *source.Set) { s.Doors = true })
	if plan == nil || len(plan.Servers) != 2 || len(plan.Doors) != 1 || plan.Doors[0].Listen != "127.0.0.1:8080" || plan.Doors[0].Main != "one" {
		t.Errorf("plan %+v, %s", plan, said)
	}
	if plan, said := found(guarded, func(s *source.Set) { s.Serve = compile.Ref{Kind: "MCPRemoteProxy", Name: "two"} }); plan != nil || !strings.Contains(said, "there is no MCPRemoteProxy/two") {
		t.Errorf("plan %v, %s", plan != nil, said)
	}
	// Two servers of one name have one path.
	both := guarded + strings.Replace(server("{image: npx}"), "name: one", "name: team", 1)
	if plan, said := found(strings.Replace(both, "oidcConfigRef: {name: company, audience: a}", "", 1), starting); plan != nil || !strings.Contains(said, "already the name of the server VirtualMCPServer/team") {
		t.Errorf("plan %v, %s", plan != nil, said)
	}
}

// In a cluster spec.run says nothing, and that is said once.
func TestRunInACluster(t *testing.T) {
	_, said := found(server("{image: 'a/b:1', run: {debug: true, stateless: true, labels: {a: b}, auditConfig: {enabled: true}}}"), func(s *source.Set) { s.Cluster = true })
	if !strings.Contains(said, "only outside a cluster: spec.run.auditConfig, spec.run.debug, spec.run.labels, spec.run.stateless") {
		t.Error(said)
	}
}

// A login to a server at a URL, and a file of a token in its place, say one thing each.
func TestRemoteAuthRefused(t *testing.T) {
	for how, want := range map[string]string{
		"{bearerTokenPath: /run/token}":                                                    "",
		"{bearerTokenPath: /run/token, issuer: 'https://a.example'}":                       "spec.run.remoteAuth.bearerTokenPath: its token is sent in place of what a login gives",
		"{bearerTokenPath: /run/token, scopes: [a]}":                                       "spec.run.remoteAuth.bearerTokenPath: its token is sent in place of what a login gives",
		"{clientId: a, clientSecretPath: /run/secret}":                                     "",
		"{clientId: a, scopeParamName: scopes}":                                            "",
		"{clientId: a, scopeParamName: redirect_uri}":                                      "spec.run.remoteAuth.scopeParamName: redirect_uri is a parameter of OAuth",
		"{clientSecretPath: /run/secret}":                                                  "spec.run.remoteAuth.clientSecretPath: it is of a client",
		"{clientId: a, clientSecretPath: /run/secret, clientSecretRef: {name: a, key: b}}": "spec.run.remoteAuth.clientSecretPath: it says the same as clientSecretRef",
	} {
		plan, said := found("apiVersion: weir.dev/v1beta1\nkind: MCPRemoteProxy\nmetadata: {name: one}\nspec: {remoteUrl: 'https://mcp.example.com/mcp', transport: streamable-http, run: {remoteAuth: "+how+"}}\n", func(s *source.Set) { s.Doors = true })
		if (plan != nil) != (want == "") || !strings.Contains(said, want) {
			t.Errorf("%s: plan %v\n%swant %q", how, plan != nil, said, want)
		}
	}
	// A header that the login, or the token, would take the place of.
	for headers, want := range map[string]string{
		"addHeadersFromSecret: [{headerName: authorization, valueSecretRef: {name: a, key: b}}]": "spec.headerForward.addHeadersFromSecret[0]: Authorization, and spec.run.remoteAuth sends one",
		"addPlaintextHeaders: {Authorization: a}":                                                "spec.headerForward.addPlaintextHeaders[Authorization]: Authorization, and spec.run.remoteAuth sends one",
		"addPlaintextHeaders: {X-Team: a}":                                                       "",
	} {
		for _, how := range []string{"{}", "{bearerTokenPath: /run/token}"} {
			plan, said := found("apiVersion: weir.dev/v1beta1\nkind: MCPRemoteProxy\nmetadata: {name: one}\nspec: {remoteUrl: 'https://mcp.example.com/mcp', transport: streamable-http, headerForward: {"+headers+"}, run: {remoteAuth: "+how+"}}\n", func(s *source.Set) { s.Doors = true })
			if (plan != nil) != (want == "") || !strings.Contains(said, want) {
				t.Errorf("%s: %s: plan %v\n%swant %q", headers, how, plan != nil, said, want)
			}
		}
	}
}

// spec.run.exchangeUnverified says something of a token exchange without an oidcConfigRef alone,
// and spec.run.webhookConfigRef of a server at a URL.
func TestExchangeUnverified(t *testing.T) {
	set := func(spec, auth string) string {
		return fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPRemoteProxy
metadata: {name: one}
spec: {remoteUrl: "https://a.example/mcp", %s}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: auth}
spec: %s
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: company}
spec: {type: inline, inline: {issuer: "https://login.example.com"}}
`, spec, auth)
	}
	const exchange, fixed = `{type: tokenExchange, tokenExchange: {tokenUrl: "https://sts.example.com/t", audience: a}}`, `{type: unauthenticated}`
	for _, c := range []struct{ spec, auth, said string }{
		{"externalAuthConfigRef: {name: auth}, run: {exchangeUnverified: true}", exchange, ""},
		{"externalAuthConfigRef: {name: auth}", exchange, "asks for none"},
		{"externalAuthConfigRef: {name: auth}, run: {exchangeUnverified: true}, oidcConfigRef: {name: company, audience: a}", exchange, "spec.run.exchangeUnverified: spec.oidcConfigRef has tokens verified"},
		{"run: {exchangeUnverified: true}", exchange, "spec.run.exchangeUnverified: there is no spec.externalAuthConfigRef"},
		{"externalAuthConfigRef: {name: auth}, run: {exchangeUnverified: true}", fixed, "is no exchange"},
	} {
		plan, said := found(set(c.spec, c.auth))
		if (plan == nil) != (c.said != "") || !strings.Contains(said, c.said) {
			t.Errorf("%s, %s: plan %v, %s", c.spec, c.auth, plan != nil, said)
		}
		if plan != nil && plan.Servers[0].Incoming.Type != incoming.Unverified {
			t.Errorf("%+v", plan.Servers[0].Incoming)
		}
	}
	// Webhooks of a server at a URL are of spec.run, outside of a cluster alone.
	hooks := set("run: {webhookConfigRef: {name: hooks}}", exchange) + "---\napiVersion: weir.dev/v1beta1\nkind: MCPWebhookConfig\nmetadata: {name: hooks}\nspec: {validating: [{name: a, url: 'https://a.example', failurePolicy: fail}]}\n"
	if plan, said := found(hooks); plan == nil || plan.Servers[0].Webhooks == nil {
		t.Errorf("webhooks: %s", said)
	}
	if plan, said := found(hooks, func(s *source.Set) { s.Cluster = true }); plan != nil || !strings.Contains(said, "spec.run.webhookConfigRef: in a cluster no webhooks") {
		t.Errorf("webhooks in a cluster: %s", said)
	}
	// In a cluster it says nothing, and tokens that nobody has verified are not exchanged.
	if plan, said := found(set("externalAuthConfigRef: {name: auth}, run: {exchangeUnverified: true}", exchange), func(s *source.Set) { s.Cluster = true }); plan != nil {
		t.Errorf("in a cluster it has a plan: %s", said)
	}
}

// Policies are looked for under the usual key where none is written. That it is not there is
// an error: nobody would be asked, and everything be allowed.
func TestPoliciesUnderTheUsualKey(t *testing.T) {
	const set = `apiVersion: v1
kind: ConfigMap
metadata: {name: policies}
data: {KEY: '{"version": "1.0", "type": "policyv1", "policy": {"policies": ["permit(principal, action, resource);"]}}'}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: one}
spec:
  groupRef: {name: g}
  incomingAuth: {type: anonymous, authzConfig: {type: configMap, configMap: {name: policies}}}
  outgoingAuth: {source: inline}
  config: {backends: [{name: b, url: "http://127.0.0.1:1/mcp", transport: streamable-http}]}
`
	if plan, said := found(strings.Replace(set, "KEY", "authz.json", 1)); plan == nil || plan.Servers[0].Authz == nil {
		t.Errorf("no policies: %s", said)
	}
	if plan, said := found(strings.Replace(set, "KEY", "policies.json", 1)); plan != nil || !strings.Contains(said, `has no key "authz.json"`) {
		t.Errorf("it is served: %s", said)
	}
}
