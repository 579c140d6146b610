package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/source"
)

func TestZ21Mistakes(t *testing.T) { mistakes(t, "plain", nil) }

// TestZ21Serve serves what the command line names: a server that works, beside
// one that is down, one that is none, one that wants a token, and two that have one
// resource. Of these it says the next step.
func TestZ21Serve(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern, func(s *edgetest.Server) { s.Tools = `[{"name":"echo","inputSchema":{"type":"object"}}]` })
	twins := []*edgetest.Server{edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)}
	for _, s := range twins {
		s.Always("resources/list", func(c *edgetest.Call) {
			c.Result(`{"resultType":"complete","ttlMs":0,"cacheScope":"public","resources":[{"uri":"a:b","name":"b"}]}`)
		})
	}
	answering := func(status int, header ...string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
		}))
		t.Cleanup(s.Close)
		return s.URL + "/mcp"
	}
	down := edgetest.FreeAddress(t)
	p := run(t, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "", "--backend", "good="+back.URL, "--backend", "down=http://"+down+"/mcp",
		"--backend", "page="+answering(200, "Content-Type", "text/html"), "--backend", "locked="+answering(401, "WWW-Authenticate", "Bearer"), "--backend", "nothing="+answering(501),
		"--backend", "one="+twins[0].URL, "--backend", "two="+twins[1].URL)
	endpoint := p.until("Weir serves good, down, page, locked, nothing, one, two on ")
	endpoint = endpoint[strings.LastIndex(endpoint, " ")+1:]
	waits := []string{
		"down: nobody listens at", "start the backend",
		"locked: ", "put a token in WEIR_SECRET_LOCKED_TOKEN, and add --bearer locked",
		"nothing: ", "correct the path of the URL",
		"page: ", "name its MCP endpoint",
		"weir: lost: resource two.a:b",
	}
	for len(waits) > 0 && p.lines.Scan() {
		waits = slices.DeleteFunc(waits, func(want string) bool { return strings.Contains(p.lines.Text(), want) })
		p.said = append(p.said, p.lines.Text())
	}
	out, said, code := ran(nil, "tools", endpoint)
	if code != 0 || !strings.Contains(out, "good_echo") {
		t.Errorf("tools: %d %s%s", code, out, said)
	}
	p.signal(os.Interrupt)
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestZ21Bearer sends a server the token that it wants.
func TestZ21Bearer(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	secrets := t.TempDir()
	if err := os.Mkdir(filepath.Join(secrets, "back"), 0o700); err != nil {
		t.Fatal(err)
	}
	written(t, map[string]string{filepath.Join(secrets, "back", "token"): "the-token"})
	p := run(t, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "", "--backend", "back="+back.URL, "--bearer", "back", "--secrets-dir", secrets)
	endpoint := p.until("Weir serves back on ")
	if _, said, code := ran(nil, "call", endpoint[strings.LastIndex(endpoint, " ")+1:], "echo"); code != 0 {
		t.Errorf("call: %d %s", code, said)
	}
	if got := back.Requests("tools/call"); len(got) != 1 || got[0].Header.Get("Authorization") != "Bearer the-token" {
		t.Errorf("it gets %+v", got)
	}
}

// TestZ21Print prints the very set that is served.
func TestZ21Print(t *testing.T) {
	out, said, code := ran(nil, "serve", "--print", "http://127.0.0.1:9000/mcp", "--backend", "wiki=https://wiki.example.com/sse")
	if code != 0 || said != "" {
		t.Fatalf("%d %s", code, said)
	}
	file := filepath.Join(t.TempDir(), "weir.yaml")
	written(t, map[string]string{file: out})
	if got, said, code := ran(nil, "validate", "--strict", file); code != 0 || !strings.Contains(got, "ok (1 server, 2 backends)") {
		t.Errorf("%d %s%s\n%s", code, got, said, out)
	}
}

// TestZ21Interview answers every question wrong once.
func TestZ21Interview(t *testing.T) {
	answers := []string{
		"", "npx server", "http://127.0.0.1:9000/mcp", "No!", "wiki", "maybe", "n",
		"https://mcp.tickets.example.com/mcp", "wiki", "", "y",
		"",
		"login.example.com", "https://login.example.com", "", "https://edge.example.com/mcp",
	}
	var out bytes.Buffer
	a := &app{in: strings.NewReader(strings.Join(answers, "\n") + "\n"), out: &out}
	p := source.Plain{Name: "weir"}
	if err := a.interview(&p); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	want := source.Plain{Name: "weir", Issuer: "https://login.example.com", Audience: "https://edge.example.com/mcp", Backends: []source.PlainBackend{
		{Name: "wiki", URL: "http://127.0.0.1:9000/mcp"}, {Name: "tickets", URL: "https://mcp.tickets.example.com/mcp", Bearer: true},
	}}
	if fmt.Sprint(p) != fmt.Sprint(want) {
		t.Errorf("got %+v\n%s", p, out.String())
	}
	if err := source.OpenPlain(p).Err(); err != nil {
		t.Error(err)
	}
	// Who has had enough writes nothing, and who answers nothing useful is not asked for ever.
	for _, in := range []string{"http://127.0.0.1:9000/mcp\n", strings.Repeat("no\n", 100)} {
		if err := (&app{in: strings.NewReader(in), out: &out}).interview(&source.Plain{}); err == nil {
			t.Errorf("%.20q is taken for all answers", in)
		}
	}
}

// FuzzNameOf: whatever the URL, the server has a name that Kubernetes takes, and
// the manifest for it is one.
func FuzzNameOf(f *testing.F) {
	for _, s := range []string{"http://127.0.0.1:9000/mcp", "https://mcp.linear.app/sse", "http://[::1]:1/", "http://[fe80::1%25eth0]/x", "http://ÄÖ.example/", "https://x\"y/", "http://a.b.c.d.e/#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := urlOf(text); err != nil {
			return
		}
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		name := nameOf(u)
		if err := checkName(name); err != nil {
			t.Fatal(text, err)
		}
		set, err := source.Read("x", source.Plain{Name: "weir", Backends: []source.PlainBackend{{Name: name, URL: text}}}.Manifest())
		if err != nil || len(set.Objects) != 3 {
			t.Fatalf("%q: %d objects, %v", text, len(set.Objects), err)
		}
	})
}

// What a command writes over is there whole, or as it was: the text of before is not written into.
func TestWrittenWhole(t *testing.T) {
	for name, write := range map[string]func(file string) int{
		"init": func(file string) int {
			return runWeir([]string{"init", "http://127.0.0.1:9000/mcp", "-o", file, "--force"}, io.Discard, io.Discard)
		},
		"read": func(file string) int {
			a := testApp()
			a.out, a.err = io.Discard, io.Discard
			if err := a.showContents([][]byte{[]byte(`{"uri":"a:b","text":"after"}`)}, file); err != nil {
				t.Error(err)
			}
			return 0
		},
	} {
		file, before := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "before")
		if err := errors.Join(os.WriteFile(file, []byte("before"), 0o600), os.Link(file, before)); err != nil {
			t.Fatal(err)
		}
		if code := write(file); code != 0 {
			t.Errorf("%s: exit code %d", name, code)
		}
		if text, err := os.ReadFile(before); err != nil || string(text) != "before" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) == "before" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
