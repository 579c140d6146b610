package compile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// plannedModule compiles an MCPServer, and returns its workload and what is said of it.
func plannedModule(spec string) (*compile.Workload, string) {
	set, _ := source.Read("x.yaml", []byte("apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: one}\nspec: "+spec+`
---
apiVersion: v1
kind: ConfigMap
metadata: {name: p}
data:
  hosts: '{"network": {"outbound": {"allow_host": ["a.example"]}}}'
  reads: '{"read": ["/srv"], "write": ["/var/cache/x:/cache"]}'
`))
	set.Starts = []compile.Form{compile.FormWasm}
	r := set.Compile()
	var said strings.Builder
	for _, f := range r.Findings {
		if f.Object.Kind == "ConfigMap" {
			continue // which not every server refers to
		}
		fmt.Fprintln(&said, f)
	}
	if r.Plan == nil || len(r.Plan.Servers) != 1 {
		return nil, said.String()
	}
	return r.Plan.Servers[0].Backends[0].Workload, said.String()
}

// A server in WebAssembly is denied everything by default, and has what it is given.
func TestModulePlanned(t *testing.T) {
	w, said := plannedModule("{image: 'wasm:///opt/a.wasm', args: [x]}")
	if w == nil || w.Form != compile.FormWasm || w.Program != "/opt/a.wasm" || w.Memory != 64<<20 || w.Profile.Name != "none" || !w.Isolate || w.Network != "" || len(w.Mounts) != 0 || said != "" {
		t.Errorf("%+v, %s", w, said)
	}
	digest := strings.Repeat("0A", 32)
	w, said = plannedModule("{image: 'wasm+https://a.example/a.wasm#sha256=" + digest + "', run: {memory: 256Mi}, permissionProfile: {type: configmap, name: p, key: reads}, volumes: [{name: a, hostPath: /a, mountPath: /data, readOnly: true}]}")
	if w == nil || w.Program != "https://a.example/a.wasm" || w.SHA256 != strings.ToLower(digest) || w.Memory != 256<<20 || fmt.Sprint(w.Mounts) != "[{/a /data false} {/srv /srv false} {/var/cache/x /cache true}]" {
		t.Errorf("%+v, %s", w, said)
	}
	w, said = plannedModule("{image: 'wasm://ghcr.io/a/b:1', run: {egressPorts: [8443], allowContainerGateway: true, imageVerification: enabled}, permissionProfile: {type: configmap, name: p, key: hosts}}")
	if w == nil || w.Image != "ghcr.io/a/b:1" || w.Program != "" || w.Verification != v1beta1.VerifyEnabled || !w.Gateway || len(w.EgressPorts) != 1 || w.Profile.Offline() || said != "" {
		t.Errorf("of a registry: %+v, %s", w, said)
	}
	if w, _ = plannedModule("{image: 'wasm://./build/a.wasm'}"); w == nil || w.Program != "build/a.wasm" {
		t.Errorf("beside its manifest: %+v", w)
	}
}

// What a server in WebAssembly cannot be is refused by name.
func TestModuleRefused(t *testing.T) {
	if w, said := plannedModule("{image: 'wasm:///a.wasm', run: {memory: 1Mi}}"); w == nil || w.Memory != 1<<20 {
		t.Errorf("with 1Mi: %+v, %s", w, said)
	}
	for spec, want := range map[string]string{
		"{image: 'wasm://a/b:1'}":                                      "names no module",
		"{image: 'wasm://ghcr.io/a/b:1#sha256=" + zeros + "'}":         "names no module",
		"{image: 'wasm://ghcr.io/a/b@sha256:0'}":                       "names no module",
		"{image: 'wasm:///a.wasm', run: {imageVerification: enabled}}": "is known by its digest",
		"{image: 'wasm:///a.wasm', run: {egressPorts: [8443]}}":        "a port of none says nothing",
		"{image: 'wasm:///a.wasm', run: {egressPorts: [8443], network: none}, permissionProfile: {type: builtin, name: network}}": "spec.run.network is none",
		"{image: 'wasm:///a.wasm#md5=00'}":                                                  "after # write sha256=",
		"{image: 'wasm:///a.wasm#sha256=00'}":                                               "after # write sha256=",
		"{image: 'wasm+https://a.example/a.wasm'}":                                          "is known by its digest",
		"{image: 'wasm+https://u:p@a.example/a.wasm#sha256=" + zeros + "'}":                 "holds a user or a password",
		"{image: 'wasm+https:///a.wasm#sha256=" + zeros + "'}":                              "is no URL of a module",
		"{image: 'wasm:///a.wasm', transport: sse}":                                         "speaks on its standard streams",
		"{image: 'wasm:///a.wasm', run: {memory: 257Mi}}":                                   "from 1Mi to 256Mi",
		"{image: 'wasm:///a.wasm', run: {memory: 1023Ki}}":                                  "from 1Mi to 256Mi",
		"{image: 'wasm:///a.wasm', run: {cpus: '1'}}":                                       "leave this out",
		"{image: 'wasm:///a.wasm', run: {sandbox: bwrap}}":                                  "it needs none",
		"{image: 'wasm:///a.wasm', run: {runAs: '1000'}}":                                   "spec.run.runAs: a server in WebAssembly: it runs as no user",
		"{image: 'wasm:///a.wasm', run: {network: host}}":                                   "it is in no network",
		"{image: 'wasm:///a.wasm', run: {isolateNetwork: false}}":                           "it is in no network",
		"{image: 'wasm:///a.wasm', run: {writable: [/x]}}":                                  "mount one that may be written to",
		"{image: 'wasm:///a.wasm', volumes: [{name: a, hostPath: data, mountPath: /data}]}": "is no absolute path",
		"{image: npx}": "--allow-workloads local",
	} {
		if w, said := plannedModule(spec); w != nil || !strings.Contains(said, want) {
			t.Errorf("%s: %+v\n%swant %q", spec, w, said, want)
		}
	}
}

var zeros = strings.Repeat("0", 64)
