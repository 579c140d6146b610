package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// registryAPI is a registry with the API, of three pages, and beside it a server that its last
// page leads to.
type registryAPI struct {
	*httptest.Server
	asked   atomic.Int64 // for pages
	failing atomic.Bool
}

func newRegistryAPI(t *testing.T) *registryAPI {
	t.Helper()
	g := &registryAPI{}
	web := http.NewServeMux()
	behind, err := url.Parse(planner(t))
	if err != nil {
		t.Fatal(err)
	}
	web.Handle("/mcp", httputil.NewSingleHostReverseProxy(&url.URL{Scheme: behind.Scheme, Host: behind.Host}))
	web.HandleFunc("/v0.1/servers", func(w http.ResponseWriter, r *http.Request) {
		g.asked.Add(1)
		pages := map[string]string{
			"": `{"name":"io.example/tiny","description":"A tiny server","version":"1.0.0","packages":[{"registryType":"npm","identifier":"@weir/tiny","version":"1.0.0",
				"transport":{"type":"stdio"},"runtimeArguments":[{"type":"positional","value":"-y"}],
				"packageArguments":[{"type":"named","name":"--mode","default":"quiet"},{"type":"positional","valueHint":"directory","description":"Where to look","isRequired":true}],
				"environmentVariables":[{"name":"TINY_KEY","description":"Key of the tiny server","isRequired":true,"isSecret":true}]}]}`,
			"2": `{"name":"io.example/mounts","description":"Wants too much","version":"1.0.0","packages":[{"registryType":"oci","identifier":"ghcr.io/example/mounts:1",
				"transport":{"type":"stdio"},"runtimeArguments":[{"type":"named","name":"-v","value":"/:/host"}]}]}`,
			"3": `{"name":"io.example/demo","description":"At a URL","version":"1.0.0","remotes":[{"type":"streamable-http","url":"` + g.URL + `/mcp",
				"headers":[{"name":"X-Region","default":"eu"}]}]}`,
		}
		cursor := r.URL.Query().Get("cursor")
		next := map[string]string{"": `,"nextCursor":"2"`, "2": `,"nextCursor":"3"`}[cursor]
		if g.failing.Load() && cursor == "2" {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"servers":[{"server":%s,"_meta":{"io.modelcontextprotocol.registry/official":{"status":"active","isLatest":true}}}],"metadata":{"count":1%s}}`, pages[cursor], next)
	})
	g.Server = httptest.NewServer(web)
	t.Cleanup(g.Close)
	return g
}

// Entries of a registry are run: a package of npm with what it needs, and a server at a URL. The
// registry is asked once, and while it fails what is kept is used.
func TestRunOfARegistry(t *testing.T) {
	needNPM(t)
	g, packages := newRegistryAPI(t), newIndex(t, 0)
	h := newHousehold(t).managed()
	if out, said, code := h.weir("registry", "set", g.URL); code != 0 || out != g.URL+" has 3 servers\n" {
		t.Fatalf("%d %s%s", code, out, said)
	}
	if n := g.asked.Load(); n != 3 {
		t.Errorf("%d pages were asked for", n)
	}

	// 1. A package. What it needs is named at once, and given by flags.
	h.fails(2, "io.example/tiny needs directory (Where to look), TINY_KEY (Key of the tiny server), and there is no terminal to ask at: give the arguments after --, --secret NAME,target=TINY_KEY", "run", "tiny")
	if _, said, code := h.weirWith("k-1", "secret", "setup"); code != 0 {
		t.Fatal(said)
	}
	if _, said, code := h.weirWith("k-1", "secret", "set", "KEY"); code != 0 {
		t.Fatal(said)
	}
	h.must("run", "tiny", "--secret", "KEY,target=TINY_KEY", "-e", "NPM_CONFIG_REGISTRY="+packages.URL, "--", "/srv", "$(id)")
	answer := h.must("call", "-w", "io-example-tiny", "how")
	var how struct {
		Argv    []string
		Version string
	}
	if err := json.Unmarshal([]byte(answer), &how); err != nil || how.Version != "1.0.0" || strings.Join(how.Argv[2:], "|") != "/srv|$(id)" {
		t.Errorf("%s, %v", answer, err)
	}
	out, _, _ := h.weir("export", "io-example-tiny")
	if !strings.Contains(out, "name: io.example/tiny") || !strings.Contains(out, "digest: sha256:") || strings.Contains(out, "k-1") {
		t.Errorf("the manifest is\n%s", out)
	}

	// 2. A server at a URL, at the registry's own origin.
	h.must("run", "io.example/demo", "--name", "there")
	if said := h.must("call", "-w", "there", "note", "text=hello"); said != `{"text":"hello"}` {
		t.Errorf("it says %s", said)
	}

	// 3. What no entry may have.
	h.fails(9, `packages[0].runtimeArguments[0]: "-v /:/host"`, "run", "mounts")
	if n := g.asked.Load(); n != 3 {
		t.Errorf("%d pages were asked for", n)
	}

	// 4. The registry fails on the way, and then altogether.
	g.failing.Store(true)
	h.fails(1, "cannot be read now (the registry answered 503 Service Unavailable): what was kept less than a minute ago stays", "registry", "update")
	if err := g.Listener.Close(); err != nil { // not what the workload talks over
		t.Fatal(err)
	}
	h.fails(1, "cannot be read now", "registry", "update")
	h.must("run", "io.example/demo", "--name", "later", "--dry-run")
	if out, said, code := h.weir("search", "tiny"); code != 0 || !strings.Contains(out, "io.example/tiny") {
		t.Errorf("%d %s%s", code, out, said)
	}
}

// On a terminal what an entry needs is asked for; a secret is not shown while it is typed, and
// stands in no manifest.
func TestEntryIsAskedForOnATerminal(t *testing.T) {
	home := t.TempDir()
	for name, text := range map[string]string{
		"config/workloads.yaml": "registry: {source: server.json}\n",
		"config/server.json": `{"name":"io.example/asks","description":"d","version":"1","packages":[{"registryType":"pypi","identifier":"asks","version":"1","transport":{"type":"stdio"},
			"packageArguments":[{"type":"named","name":"--level","isRequired":true,"choices":["low","high"]}],
			"environmentVariables":[{"name":"ASKS_KEY","description":"A key\u001b[31m","isRequired":true,"isSecret":true},{"name":"ASKS_SIZE","isRequired":true,"format":"number"}]}]}`,
	} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	y := atATerminal(t, nil, []string{"WEIR_HOME=" + home}, "run", "asks", "--dry-run")
	types := func(line string) {
		t.Helper()
		if _, err := y.shown.WriteString(line); err != nil {
			t.Fatal(err)
		}
	}
	y.until("--level (low, high): ")
	types("middle\n")
	y.until("give one of low, high")
	y.until("--level (low, high): ")
	types("high\n")
	y.until("A key[31m")
	y.until("ASKS_KEY: ")
	y.types("planted-key-77\n")
	y.until("ASKS_SIZE: ")
	edgetest.Until(t, "what is typed is shown again", y.echoes)
	types("many\n")
	y.until("ASKS_SIZE: give a number")
	y.until("ASKS_SIZE: ")
	types("12\n")
	y.until("transport: stdio")
	if code := y.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	text := y.all.String()
	for _, want := range []string{"- --level", "- high", `value: "12"`, "targetEnvName: ASKS_KEY", "the secret io-example-asks/ASKS_KEY is kept"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if strings.Contains(text, "planted-key-77") || strings.Contains(text, "\x1b[31m") {
		t.Errorf("shown: %q", text)
	}

	// Who interrupts the question ends the command.
	y = atATerminal(t, nil, []string{"WEIR_HOME=" + home}, "run", "asks", "--dry-run")
	y.until("--level (low, high): ")
	types("\x03")
	if code := y.ends(); code != 130 {
		t.Errorf("exit code %d", code)
	}
}
