package workload

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// found finds every program but one.
func found(program string) (string, error) {
	if program == "nowhere" || program == "noengine" || program == "mcp/fetch" || program == "fetch" {
		return "", errors.New("not found")
	}
	if strings.HasPrefix(program, "/") {
		return program, nil
	}
	return "/usr/bin/" + program, nil
}

// kept is whether the engine has an image; there is none for "noengine".
func kept(image string) (bool, error) {
	if image == "noengine" {
		return false, &Error{Code: CodeSandbox, Message: "no container engine answers: tried unix:///a (not there)", Next: "weir run -- COMMAND"}
	}
	return image == "mine", nil
}

// What stands for a server, and the name that it gives (workload documents, "Naming the
// server").
func TestReadServer(t *testing.T) {
	for words, want := range map[string]string{
		// A command of this machine: the program, or the package or script that it runs.
		"-- npx -y @modelcontextprotocol/server-everything": "npx server-everything",
		"-- npx -y @scope/server-git@1.2.3 --flag":          "npx server-git",
		"-- npx -p @scope/tools tool-mcp":                   "npx tool-mcp",
		"-- uvx mcp-server-fetch==2025.4":                   "uvx mcp-server-fetch",
		"-- uvx --from git+https://a.example/x mcp-x":       "uvx mcp-x",
		"-- pipx run mcp_server":                            "pipx mcp-server",
		"-- bunx @a/b@latest":                               "bunx b",
		"-- node /srv/My_Server.mjs":                        "exec:///usr/bin/node my-server",
		"-- node --import tsx /srv/a.ts":                    "exec:///usr/bin/node a",
		"-- python3 -m my.module --x":                       "exec:///usr/bin/python3 my-module",
		"-- python -u /srv/s.py":                            "exec:///usr/bin/python s",
		"-- python":                                         "exec:///usr/bin/python python",
		"-- go run ./cmd/srv@v1":                            "exec:///usr/bin/go srv",
		"-- /opt/Server_X.exe a b":                          "exec:///opt/Server_X.exe server-x",
		"-- everything":                                     "exec:///usr/bin/everything everything",
		"exec:///opt/srv -- a":                              "exec:///opt/srv srv",
		"https://mcp.example.com/mcp?a=b":                   "https://mcp.example.com/mcp?a=b example",
		"http://localhost:9000/mcp":                         "http://localhost:9000/mcp localhost",
		"http://127.0.0.1:9000/mcp":                         "http://127.0.0.1:9000/mcp 127-0-0-1",
		"http://[::1]:9000/":                                "http://[::1]:9000/ 1",
		"https://API.GitHubCopilot.com./x":                  "https://API.GitHubCopilot.com./x githubcopilot",
		"-- " + strings.Repeat("x", 80):                     "exec:///usr/bin/" + strings.Repeat("x", 80) + " " + strings.Repeat("x", 63),
		"mcp/fetch":                                         "mcp/fetch fetch",
		"ghcr.io:5000/a/My_Server:1.2@sha256:00 -- x":       "ghcr.io:5000/a/My_Server:1.2@sha256:00 my-server",
		"fetch:latest":                                      "fetch:latest fetch",
		"mine":                                              "mine mine",
		"npx://@a/b-c@1.2.3 -- --x":                         "npx://@a/b-c@1.2.3 b-c",
		"uvx://Mcp_Time[cli]==1.0":                          "uvx://Mcp_Time[cli]@1.0 mcp-time",
		"go://a.example/m/v2":                               "go://a.example/m/v2 m",
		"wasm://ghcr.io/a/b:1":                              "wasm://ghcr.io/a/b:1 b",
		"sha256:abc":                                        "sha256:abc sha256",
		"-- ___":                                            "exec:///usr/bin/___ server",
	} {
		before, after, _ := strings.Cut(words, "-- ")
		s, err := ReadServer(strings.TrimSpace(before), strings.Fields(after), found, kept)
		if got := strings.TrimSpace(s.URL+s.Image) + " " + s.Name; err != nil || got != want || !IsName(s.Name) {
			t.Errorf("%s: %q, %v; want %q", words, got, err, want)
		}
	}
	for words, want := range map[string]struct {
		code       Code
		said, next string
	}{
		"npx://-y":               {CodeInvalid, "is no package of npx", "weir build --help"},
		"uvx://pkg==-1":          {CodeInvalid, "is no version of pkg", "weir build --help"},
		"go://a.example/m@":      {CodeInvalid, "is no version of a.example/m", "weir build --help"},
		"go://./srv":             {CodeInvalid, "go://./srv: no such file or directory", "go://./DIR"},
		"go://./form_test.go":    {CodeInvalid, "it is no directory", "go://./DIR"},
		"fetch":                  {CodeInvalid, "the container engine has no image fetch", "write fetch:latest"},
		"node -- a.js":           {CodeInvalid, "no image node", "weir run -- node a.js"},
		"noengine":               {CodeSandbox, "no container engine answers", "weir run -- COMMAND"},
		"npx -- a":               {CodeInvalid, "npx is a package runner", "weir run -- npx a"},
		"../x":                   {CodeInvalid, "../x is no image", "NAME:TAG"},
		"a//b":                   {CodeInvalid, "no image", ""},
		"a/-b":                   {CodeInvalid, "no image", ""},
		"--privileged":           {CodeInvalid, "no image", ""},
		"a;b":                    {CodeInvalid, "no image", ""},
		"$(a)":                   {CodeInvalid, "no image", ""},
		"a\x1b[0m/b":             {CodeInvalid, "is no image", ""},
		"ftp://a/b":              {CodeInvalid, "ftp:// is none of the forms", ""},
		"wasm://./none.wasm":     {CodeInvalid, "wasm://./none.wasm: no such file", "module of WASI preview 1"},
		"./none.wasm":            {CodeInvalid, "./none.wasm: no such file", "module of WASI preview 1"},
		"wasm://a/b:1":           {CodeInvalid, "wasm://a/b:1 names no module", "wasm://HOST/REPOSITORY[:TAG][@DIGEST]"},
		"wasm+https://a/b.wasm":  {CodeInvalid, "does not say what to fetch and its digest", "#sha256=DIGEST"},
		"wasm+https://u:p@a/b":   {CodeInvalid, "a user or a password", ""},
		"-- nowhere":             {CodeInvalid, "there is no program nowhere", ""},
		"exec://bin/x":           {CodeInvalid, "no absolute path", "exec:///PATH"},
		"":                       {CodeInvalid, "no server is named", "weir run -- COMMAND"},
		"https://":               {CodeInvalid, "is no URL", "http://HOST:PORT/PATH"},
		"https://u:p@a.example":  {CodeInvalid, "a user or a password", "--remote-auth-bearer-token-file"},
		"https://a.example/#x":   {CodeInvalid, "fragment", ""},
		"https://a.example -- b": {CodeInvalid, "takes no arguments", ""},
	} {
		before, after, _ := strings.Cut(words, "-- ")
		_, err := ReadServer(strings.TrimSpace(before), strings.Fields(after), found, kept)
		var e *Error
		if !errors.As(err, &e) || e.Code != want.code || !strings.Contains(e.Message, want.said) || !strings.Contains(e.Next, want.next) {
			t.Errorf("%s: %+v", words, err)
		}
		if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: the password is shown: %v", words, err)
		}
	}
	for n, want := range map[int]string{1: "a", 2: "a-2", 11: "a-11"} {
		if got := numbered("a", n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	if got := numbered(strings.Repeat("a", 60)+"---", 12); !IsName(got) || !strings.HasSuffix(got, "a-12") {
		t.Error(got)
	}
}

// A module of WebAssembly is named by its file, with and without wasm://, or by an https URL
// with its digest; the manifest has an absolute path.
func TestReadModule(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("My_Server.wasm", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("dir.wasm", 0o700); err != nil {
		t.Fatal(err)
	}
	none := func(string) (string, error) { return "", errors.New("none") }
	file, digest := "wasm://"+filepath.ToSlash(filepath.Join(dir, "My_Server.wasm")), "#sha256="+strings.Repeat("0a", 32)
	for word, want := range map[string]string{
		"./My_Server.wasm": file, "My_Server.wasm": file, "wasm://./My_Server.wasm": file, filepath.Join(dir, "My_Server.wasm"): file, file: file,
		"./My_Server.wasm" + digest: file + digest, "wasm+https://a.example/x/My_Server.wasm" + digest: "wasm+https://a.example/x/My_Server.wasm" + digest,
	} {
		s, err := ReadServer(word, []string{"--a"}, none, nil)
		if err != nil || s.Image != want || s.Name != "my-server" || len(s.Args) != 1 {
			t.Errorf("%s: %+v, %v; want %s", word, s, err, want)
		}
	}
	if _, err := ReadServer("./dir.wasm", nil, none, nil); err == nil || !strings.Contains(err.Error(), "it is no file") {
		t.Errorf("a directory: %v", err)
	}
}

// What is to be typed for a server without a container engine is what starts it.
func TestLocalForm(t *testing.T) {
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{
		"npx://a":                "weir run -- npx -y a x",
		"go://a.example/m":       "weir run -- go run a.example/m@latest x",
		"go:///home/me/My.Srv":   "go build -C /home/me/My.Srv -o my-srv . && weir run -- /home/me/My.Srv/my-srv x",
		"go://.":                 "go build -C " + here + " -o workload . && weir run -- " + filepath.Join(here, "workload") + " x",
		"docker.io/library/node": "",
	} {
		if got := LocalForm(image, []string{"x"}); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}
