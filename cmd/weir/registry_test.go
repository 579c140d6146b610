package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/cmd/weir/registries"
	"github.com/weir-edge/weir/edge/edgetest/port"
	"github.com/weir-edge/weir/edge/workload"
)

// What is said of registries and their entries, with a home of its own for each text.
func TestRegistryMistakes(t *testing.T) {
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/lost") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(failing.Close)
	away, err := port.Free()
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]string{"$AWAY": "http://" + away, "$FAILS": failing.URL + "/x", "$LOST.json": failing.URL + "/lost.json"}
	mistakesAt(t, "registry", nil, places, func(t *testing.T, args []string) (string, int) {
		work, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		said, code := inHome(args, filepath.Join(work, "home"))
		said = strings.ReplaceAll(said, work, "$WORK")
		said = strings.ReplaceAll(said, strings.TrimPrefix(failing.URL, "http://"), "FAILING")
		return strings.ReplaceAll(said, away, "AWAY"), code
	})
}

func inHome(args []string, home string) (said string, code int) {
	var out bytes.Buffer
	code = runWeir(args, &out, &out, "WEIR_HOME="+home, "WEIR_ENGINE=/nowhere/engine.sock")
	return out.String(), code
}

// The choice of a registry is kept beside the user's other defaults, which stay as they are.
func TestRegistrySetKeepsDefaults(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, "config", "workloads.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	one := filepath.Join(home, "server.json")
	if err := os.WriteFile(one, []byte(`{"name":"a.b/c","description":"d","version":"1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const before, after = "# Mine.\nsecrets: # by hand\n    provider:   'environment'\n", "\nlink:\n  auto\n"
	part := "registry:\n  source: " + one + "\n"
	for text, want := range map[string]string{
		"":             part,
		before:         before + part,
		before + after: before + after + part,
		before + "registry: {source: /old}\n" + after:                                     before + part + after,
		before + "registry:\n  source: /old # here\n\n  allowPrivate: true\n" + after[1:]: before + part + after[1:],
		"link: auto": "link: auto\n" + part,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		said, code := inHome([]string{"registry", "set", one}, home)
		got, _ := os.ReadFile(file)
		// The empty lines of a part may go or stay.
		empty := regexp.MustCompile(`\n\n+`)
		if code != 0 || empty.ReplaceAllString(string(got), "\n") != empty.ReplaceAllString(want, "\n") {
			t.Errorf("%q: %d %s, and the file is\n%q\nwant\n%q", text, code, said, got, want)
		}
		said, code = inHome([]string{"registry", "unset"}, home)
		got, _ = os.ReadFile(file)
		if code != 0 || strings.Contains(string(got), "registry") || strings.Contains(text, "# Mine") && !strings.HasPrefix(string(got), before) {
			t.Errorf("unset of %q: %d %s, and the file is\n%s", text, code, said, got)
		}
	}
	// What cannot be changed without a change to something else is left to its user.
	const flow = "{secrets: {provider: environment}}\n"
	if err := os.WriteFile(file, []byte(flow), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, code := inHome([]string{"registry", "set", one}, home); code != 1 || !strings.Contains(said, "workloads.yaml: registry cannot be changed in it: write it by hand") {
		t.Errorf("%d %s", code, said)
	}
	if got, _ := os.ReadFile(file); string(got) != flow {
		t.Errorf("the file is %s", got)
	}
}

// A relative path in the defaults is of their directory, and completion offers names without
// a question to any registry.
func TestRegistryCompletion(t *testing.T) {
	home := t.TempDir()
	for name, text := range map[string]string{
		"config/workloads.yaml": "registry: {source: servers}\n", "config/servers/a.json": `{"name":"io.a/files","description":"d","version":"1"}`,
		"config/servers/b/server.json": `{"name":"io.b/weather","description":"d","version":"1"}`,
	} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for begun, want := range map[string]string{"io.": "io.a/files\nio.b/weather\n", "we": "weather\n", "none": ""} {
		for _, command := range [][]string{{"registry", "info"}, {"run"}} {
			said, _ := inHome(append(append([]string{"__complete"}, command...), begun), home)
			if !strings.HasPrefix(said, want+":4\n") {
				t.Errorf("%s %s: %q", command, begun, said)
			}
		}
	}
	// With a registry elsewhere nothing is asked.
	if err := os.WriteFile(filepath.Join(home, "config", "workloads.yaml"), []byte("registry: {source: "+fmt.Sprintf("%q", "https://registry.invalid")+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, _ := inHome([]string{"__complete", "registry", "info", "io."}, home); !strings.HasPrefix(said, ":4\n") {
		t.Errorf("%q", said)
	}
}

// What the README of registries tells to write and to type is understood.
func TestRegistryReadme(t *testing.T) {
	text, err := os.ReadFile("../../edge/registry/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "config", "workloads.yaml"), []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	paths := workload.Paths{Config: filepath.Join(home, "config")}
	if s, set, err := registries.Chosen(paths); err != nil || !set || s.At != "https://registry.example.com" {
		t.Errorf("%+v, %t, %v", s, set, err)
	}
	commands := regexp.MustCompile("(?m)^\\$ weir (.+)$|`weir ((?:registry|search|run) [^`]*)`").FindAllStringSubmatch(string(text), -1)
	if len(commands) < 6 {
		t.Fatalf("%d commands", len(commands))
	}
	for _, c := range commands {
		words := strings.Fields(c[1] + c[2])
		cmd, rest, err := testApp().command().Find(words)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil || !cmd.HasParent() {
			t.Errorf("weir %s: %v", words, err)
		}
	}
}

// A header that flags have sent is not asked for: that of a login, however it is described, and
// that of an exchange.
func TestEntryHeaderThatFlagsGive(t *testing.T) {
	for flags, want := range map[string]string{
		"":                                  "",
		"--remote-auth":                     "Authorization",
		"--remote-auth-client-id=weir":      "Authorization",
		"--remote-auth-bearer-token-file=t": "Authorization",
		"--token-exchange-url=https://a":    "Authorization",
		"--token-exchange-url=https://a --token-exchange-header-name=X-Up": "X-Up",
		"--remote-forward-headers=X-Team=a":                                "X-Team",
	} {
		x := &runFlags{Options: workload.DefaultOptions()}
		cmd := &cobra.Command{}
		x.add(testApp(), cmd)
		if err := cmd.ParseFlags(strings.Fields(flags)); err != nil {
			t.Fatal(err)
		}
		x.Given = map[string]bool{}
		cmd.Flags().Visit(func(f *pflag.Flag) { x.Given[f.Name] = true })
		given, err := x.given()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Authorization", "X-Up", "X-Team"} {
			if given.Header(name) != (name == want) {
				t.Errorf("%s: %s: %t", flags, name, given.Header(name))
			}
		}
	}
}

// Every command on registries has help with two examples at least.
func TestRegistryHelp(t *testing.T) {
	cmd, _, err := testApp().command().Find([]string{"registry"})
	if err != nil {
		t.Fatal(err)
	}
	search, _, err := testApp().command().Find([]string{"search"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(cmd.Commands(), cmd, search) {
		said, code := inHome(strings.Fields(strings.TrimPrefix(c.CommandPath(), "weir ")+" --help"), t.TempDir())
		if code != 0 || strings.Count(c.Example, "weir "+strings.TrimPrefix(c.CommandPath(), "weir ")) < 2 || !strings.Contains(said, c.Example) || c.Long == "" {
			t.Errorf("%s: %d %s", c.CommandPath(), code, said)
		}
	}
}
