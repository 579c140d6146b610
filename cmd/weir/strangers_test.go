package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/cmd/weir/auth"
	"github.com/weir-edge/weir/cmd/weir/doctor"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth/login"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/workload"
)

// steering is what would steer a terminal, or have a text read in another order than it is
// written.
const steering = "\x1b[2J\u009b31m\x07\x7f\u202e\u2066\u200f"

// steers reports whether a text would.
func steers(said string) bool {
	return strings.ContainsFunc(said, func(r rune) bool { return strings.ContainsRune("\x1b\u009b\x07\x7f\u202e\u2066\u200f", r) })
}

// What strangers write into the entries of a registry steers no terminal, in whatever form it is
// shown.
func TestStrangersInRegistries(t *testing.T) {
	text := func(s string) string { b, _ := json.Marshal(steering + s + steering); return string(b) }
	server := fmt.Sprintf(`{"name":"io.example/odd","title":%s,"description":%s,"version":%s,
		"repository":{"url":%s,"source":%[2]s},"websiteUrl":%[4]s,"packages":[
		{"registryType":%[1]s,"identifier":%[1]s,"transport":{"type":%[1]s}},
		{"registryType":"npm","identifier":%[1]s,"version":"1.0.0","transport":{"type":"stdio"}},
		{"registryType":"npm","identifier":"odd","version":"1.0.0","transport":{"type":"stdio"},"environmentVariables":[
			{"name":"ODD","description":%[2]s,"isRequired":true,"choices":[%[1]s,"b"]},{"name":%[1]s,"isRequired":true}]}],
		"remotes":[{"type":%[1]s,"url":%[4]s}],"_meta":{%[1]s:{"tags":[%[1]s]}}}`, text("title"), text("what it does"), text("1"), text("https://example.com/"))
	for _, entry := range []string{server, strings.Replace(server, `"environmentVariables"`, `"x"`, 1), strings.Replace(server, "io.example/odd", `io.example/odd\u009b\u202e`, 1)} {
		home, file := t.TempDir(), filepath.Join(t.TempDir(), "server.json")
		if err := os.WriteFile(file, []byte(entry), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{
			"registry set " + file, "registry list", "registry list --format json", "registry info", "registry info io.example/odd", "registry info io.example/odd --format json",
			"search what", "search what --format json", "run io.example/odd --dry-run", "run io.example/odd --dry-run --format json", "run io.example/odd -e ODD=x --dry-run",
			"run odd" + steering, "run npx://odd" + steering, "build npx://odd" + steering, "build npx://odd --runtime-image " + steering, "registry info " + steering, "registry convert " + file,
		} {
			if said, _ := inHome(strings.Fields(line), home); steers(said) || said == "" {
				t.Errorf("%q: %q", line, said)
			}
		}
	}
}

// What strangers have logged steers no terminal either, in both forms of logs.
func TestStrangersInLogs(t *testing.T) {
	for _, form := range []string{"json", "text"} {
		var out bytes.Buffer
		newLog(&out, serve.Settings{LogFormat: form}).Error("odd", "tool", "x"+steering, "error", fmt.Errorf("no %s", steering))
		keptLog(&out, serve.Settings{LogFormat: form}, new(atomic.Pointer[workload.Keeper])).Error("odd", "tool", "x"+steering)
		if steers(out.String()) || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%s: %q", form, out.String())
		}
		if form != "json" {
			continue
		}
		var line struct{ Tool string }
		if err := json.NewDecoder(&out).Decode(&line); err != nil || line.Tool != "x"+steering {
			t.Errorf("%q, %v", line.Tool, err)
		}
	}
}

// What authorization servers gave out, and what they said, steers no terminal in JSON either.
func TestStrangersInJSON(t *testing.T) {
	var out bytes.Buffer
	kept := login.Kept{URL: "https://mcp.example.com/mcp"}
	kept.Client.ID, kept.Tokens.Scopes = "odd"+steering, []string{"odd" + steering}
	if err := auth.WriteJSON(&out, []login.Kept{kept}); err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Client string
		Scopes []string
	}
	if said := out.String(); steers(said) || json.Unmarshal(out.Bytes(), &rows) != nil || rows[0].Client != kept.Client.ID || rows[0].Scopes[0] != kept.Tokens.Scopes[0] {
		t.Errorf("%q", said)
	}
	out.Reset()
	if err := (doctor.Findings{{Step: "introduce", Cause: "odd" + steering}}).Write(&out, true); err != nil || steers(out.String()) || !strings.Contains(out.String(), "odd") {
		t.Errorf("%v, %q", err, out.String())
	}

	// No command writes JSON in another way: what an encoder is given is a buffer.
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || path == filepath.Join("cli", "json.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(strings.ReplaceAll(string(text), "json.NewEncoder(&", ""), "json.NewEncoder(") {
			t.Errorf("%s writes JSON without cli.PrintJSON", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// And so it is with what a server says of itself and of its tools.
func TestStrangersInServers(t *testing.T) {
	odd := string(mcp.Quote(steering + "odd" + steering))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		w.Header().Set("Content-Type", "application/json")
		switch m.Method {
		case "server/discover":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28",%s],"capabilities":{"tools":{},"prompts":{},"resources":{}},"instructions":%[2]s,"serverInfo":{"name":%[2]s,"title":%[2]s,"version":%[2]s}}}`, m.ID, odd)
		case "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":%s,"title":%[2]s,"description":%[2]s,"inputSchema":{"type":"object","properties":{%[2]s:{"type":"string","description":%[2]s}}}}]}}`, m.ID, odd)
		case "prompts/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"prompts":[{"name":%s,"description":%[2]s,"arguments":[{"name":%[2]s,"description":%[2]s}]}]}}`, m.ID, odd)
		case "resources/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resources":[{"name":%s,"uri":%[2]s,"mimeType":%[2]s}]}}`, m.ID, odd)
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":%s,"data":%[2]s}}`, m.ID, odd)
		}
	}))
	t.Cleanup(s.Close)
	home := t.TempDir()
	for _, args := range [][]string{{"tools", s.URL}, {"prompts", s.URL}, {"resources", s.URL}, {"call", s.URL, "x", "--args", "{}"}} {
		if said, _ := inHome(args, home); steers(said) || !strings.Contains(said, "odd") {
			t.Errorf("%q: %q", args, said)
		}
	}
}

// An entry has no program run code that its command does not name, as git does for a variable.
func TestStrangersRunNoCode(t *testing.T) {
	for name, refused := range map[string]bool{"GIT_CONFIG_COUNT": true, "git_ssh": true, "JDK_JAVA_OPTIONS": true, "DOTNET_STARTUP_HOOKS": true, "OPENSSL_CONF": true, "PAGER": true, "LD_AUDIT": true, "GIT_AUTHOR_NAME": false} {
		file := filepath.Join(t.TempDir(), "server.json")
		entry := fmt.Sprintf(`{"name":"io.example/odd","description":"d","version":"1","packages":[{"registryType":"npm","identifier":"odd","version":"1.0.0","transport":{"type":"stdio"},"environmentVariables":[{"name":%q,"value":"1"}]}]}`, name)
		if err := os.WriteFile(file, []byte(entry), 0o600); err != nil {
			t.Fatal(err)
		}
		home := t.TempDir()
		if said, code := inHome([]string{"registry", "set", file}, home); code != 0 {
			t.Fatal(said)
		}
		said, code := inHome([]string{"run", "io.example/odd", "--dry-run"}, home)
		if refused != (code == 9) || refused != strings.Contains(said, "run code that their command does not name") {
			t.Errorf("%s: exit %d: %s", name, code, said)
		}
	}
}

// A schema beyond what words are read by keeps no tool from being called without any.
func TestCallsOfAnInvolvedSchema(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	back.Always("tools/list", func(c *edgetest.Call) {
		c.Result(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}}]}`)
	})
	home := t.TempDir()
	if said, code := inHome([]string{"call", back.URL, "echo"}, home); code != 0 {
		t.Errorf("without words: %d %s", code, said)
	}
	if said, code := inHome([]string{"call", back.URL, "echo", "a=1"}, home); code == 0 || !strings.Contains(said, "too involved for KEY=VALUE") {
		t.Errorf("with words: %d %s", code, said)
	}
}
