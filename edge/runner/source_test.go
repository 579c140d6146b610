package runner

import (
	"strings"
	"testing"
)

// What an image is built of is read to its last byte.
func TestParseSource(t *testing.T) {
	for word, want := range map[string]struct {
		Source
		name, wanted, local string
		exact               bool
	}{
		"npx://server":                     {Source{"npx", "server", "", ""}, "server", "server@latest", "npx -y server", false},
		"npx://@a/b-c@1.2.3":               {Source{"npx", "@a/b-c", "1.2.3", ""}, "b-c", "@a/b-c@1.2.3", "npx -y @a/b-c@1.2.3", true},
		"npx://@a/b":                       {Source{"npx", "@a/b", "", ""}, "b", "@a/b@latest", "npx -y @a/b", false},
		"npx://b@^1.2":                     {Source{"npx", "b", "^1.2", ""}, "b", "b@^1.2", "npx -y b@^1.2", false},
		"npx://b@latest":                   {Source{"npx", "b", "", ""}, "b", "b@latest", "npx -y b", false},
		"npx://b@1.2.3-rc.1+x":             {Source{"npx", "b", "1.2.3-rc.1+x", ""}, "b", "b@1.2.3-rc.1+x", "npx -y b@1.2.3-rc.1+x", true},
		"uvx://mcp-server-time":            {Source{"uvx", "mcp-server-time", "", ""}, "mcp-server-time", "mcp-server-time", "uvx mcp-server-time", false},
		"uvx://a[cli,x]@1!2.0":             {Source{"uvx", "a[cli,x]", "1!2.0", ""}, "a", "a[cli,x]==1!2.0", "uvx a[cli,x]==1!2.0", true},
		"uvx://a==2026.1":                  {Source{"uvx", "a", "2026.1", ""}, "a", "a==2026.1", "uvx a==2026.1", true},
		"go://a.example/m":                 {Source{"go", "a.example/m", "", ""}, "m", "a.example/m@latest", "go run a.example/m@latest", false},
		"go://a.example/m/v2@v2.0.1":       {Source{"go", "a.example/m/v2", "v2.0.1", ""}, "m", "a.example/m/v2@v2.0.1", "go run a.example/m/v2@v2.0.1", true},
		"go://a.example/m/cmd/server@main": {Source{"go", "a.example/m/cmd/server", "main", ""}, "server", "a.example/m/cmd/server@main", "go run a.example/m/cmd/server@main", false},
		"go://./srv":                       {Source{"go", "", "", "srv"}, "srv", "", "", false},
		"go://../srv/":                     {Source{"go", "", "", "../srv"}, "srv", "", "", false},
		"go:///home/me/srv":                {Source{"go", "", "", "/home/me/srv"}, "srv", "", "", false},
	} {
		s, err := ParseSource(word)
		if err != nil || *s != want.Source {
			t.Errorf("%s: %+v, %v", word, s, err)
			continue
		}
		if s.Name() != want.name || s.Exact() != want.exact || want.wanted != "" && s.Wanted() != want.wanted || want.local != "" && strings.Join(s.Local(), " ") != want.local {
			t.Errorf("%s: %s %v %s %q", word, s.Name(), s.Exact(), s.Wanted(), s.Local())
		}
		if again, err := ParseSource(s.String()); err != nil || *again != *s {
			t.Errorf("%s: written as %s", word, s)
		}
	}
	for _, word := range []string{"exec:///bin/x", "npx", "uvx", "go", ""} {
		if s, err := ParseSource(word); s != nil || err != nil {
			t.Errorf("%s: %v, %v", word, s, err)
		}
	}
}

// V42: what looks like an option, is no one word, or is read by a shell is refused.
func TestParseSourceRefuses(t *testing.T) {
	for _, word := range []string{
		"npx://", "npx://-y", "npx://--registry=http://evil.test", "npx://a b", "npx://a\n", "npx://a\x00", "npx://a@", "npx://a@-1", "npx://a@1 --x", "npx://a@1;id", "npx://$(id)", "npx://`id`",
		"npx://../a", "npx://./a", "npx:///a", "npx://a@file:/etc", "npx://a@git+https://evil.test/x", "npx://a@npm:b@1", "npx://@a", "npx://@a/b/c", "npx://a@1\n", "npx://a@latest\n",
		"uvx://", "uvx://-U", "uvx://a @ https://evil.test/x", "uvx://a==", "uvx://a==1 --index-url=x", "uvx://a@-1", "uvx://a[", "uvx://a[-x]", "uvx://./a", "uvx://a;python_version<'3'", "uvx://a==1;x", "uvx://a==1.*", "uvx://git+https://evil.test/x", "uvx://a\n==1",
		"go://", "go://fmt", "go://-m", "go://a.example/m@", "go://a.example/-m", "go://a.example/../m", "go://a.example/m@-x", "go://a.example/m@a b", "go://a.example/m@v1/../..", "go://a.example//m", "go://a.example/m.", "go://a.example/m\n", "go://./a\nb", "go://./a\x00",
		"uvx://" + strings.Repeat("a", maxWord+1), "uvx://a[" + strings.Repeat("b", maxWord+1) + "]", "uvx://a==" + strings.Repeat("1", maxWord+1), "npx://a@" + strings.Repeat("1", maxWord+1),
		"npx://" + strings.Repeat("a", 600), "go://a.example/" + strings.Repeat("a/", 400) + "a", "go:///" + strings.Repeat("a", 5000),
	} {
		if s, err := ParseSource(word); err == nil {
			t.Errorf("%q is read as %+v", word, s)
		} else if strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q: the message has control characters: %q", word, err)
		}
	}
}

// A module at a registry is named with the host of it, so that no path is taken for one.
func TestRegistryModule(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for word, want := range map[string]string{
		"wasm://ghcr.io/a/b:1":                             "ghcr.io/a/b:1",
		"wasm://ghcr.io/a":                                 "ghcr.io/a",
		"wasm://ghcr.io/a/b_c--d:v1@" + digest:             "ghcr.io/a/b_c--d:v1@" + digest,
		"wasm://localhost/a":                               "localhost/a",
		"wasm://localhost:5000/a":                          "localhost:5000/a",
		"wasm://registry:5000/a":                           "registry:5000/a",
		"wasm://127.0.0.1:5000/a@" + digest:                "127.0.0.1:5000/a@" + digest,
		"wasm://[::1]:5000/a":                              "[::1]:5000/a",
		"wasm://a/b":                                       "",
		"wasm://./a.io/b":                                  "",
		"wasm:///ghcr.io/a":                                "",
		"wasm://ghcr.io":                                   "",
		"wasm://ghcr.io/":                                  "",
		"wasm://ghcr.io/A":                                 "",
		"wasm://ghcr.io/a/../b":                            "",
		"wasm://ghcr.io/a@sha256:00":                       "",
		"wasm://ghcr.io/a:-x":                              "",
		"wasm://ghcr.io/a\nb":                              "",
		"wasm://u:p@ghcr.io/a":                             "",
		"wasm://ghcr.io/a?b":                               "",
		"wasm://ghcr.io/" + strings.Repeat("a", maxSource): "",
		"wasm://h:1/a:" + strings.Repeat("1", maxWord):     "h:1/a:" + strings.Repeat("1", maxWord),
		"wasm://h:1/a:" + strings.Repeat("1", maxWord+1):   "",
		"https://ghcr.io/a":                                "",
	} {
		if got, ok := RegistryModule(word); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v", word, got, ok)
		}
	}
}
