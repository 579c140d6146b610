package build

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/engine"
)

// asked is how a program of a builder was asked.
type asked struct {
	Program     string
	Args, Env   []string
	Dir, CapEff string
	UID, CA     int
	Secrets     map[string]int
	Mounts      string
}

// said is what an image of a packager answers.
type said struct {
	Record, Pip, Installed *asked
	Npmrc                  string
	Env                    []string
	UID                    int
	Home                   string
}

// packaged returns the engine, with the base pack:1 whose programs that install packages are
// the packager.
func packaged(t *testing.T) *engine.Engine {
	t.Helper()
	e := running(t)
	shared.packager.Do(func() {
		program, err := engine.Build(t.TempDir(), "edge/edgetest/packager")
		if err != nil {
			t.Fatal(err)
		}
		programs := map[string]string{}
		for _, name := range []string{"/usr/bin/npm", "/usr/bin/node", "/usr/bin/python3", "/sbin/apk"} {
			programs[name] = program
		}
		e.Load(t, "pack:1", engine.Config{Env: []string{"PATH=/usr/bin:/sbin", "OF_BASE=yes", "HOME=/root"}, User: "1234"}, programs, map[string]string{"/etc/passwd": "root:x:0:0::/root:/bin/sh\n", "/etc/ssl/certs/ca-certificates.crt": "of the base\n", "/tmp/there": ""})
	})
	return e
}

// answers runs an image of the packager's, and returns what it says.
func answers(t *testing.T, b *Builds, image string) (s said) {
	t.Helper()
	line := started(t, b.Machine, image)
	if err := json.Unmarshal([]byte(line), &s); err != nil || s.Record == nil {
		t.Fatalf("%s says %q: %v", image, line, err)
	}
	return s
}

// A build gives its commands what it was asked for, one word an argument and no more rights
// than an ordinary user's, and the image has what a server needs.
func TestBuildCommands(t *testing.T) {
	e := packaged(t)
	b := builds(t, e, map[string]string{
		"NPM_CONFIG_REGISTRY": "https://npm.example.com/", "UV_DEFAULT_INDEX": "https://pypi.example.com/simple", "HTTPS_PROXY": "http://proxy.example.com:3128", "AWS_SECRET_ACCESS_KEY": "planted",
		"HTTP_PROXY": "http://user:planted@proxy.example.com", "PIP_INDEX_URL": "http://127.0.0.1:3141/",
	})
	write(t, filepath.Join(b.Home, ".npmrc"), "registry=https://other.example.com/\n@acme:registry=https://acme.example.com/\n//acme.example.com/:_authToken=planted\n")
	npm := built(t, b, Request{Source: source(t, "npx://@acme/tool@1.2.3"), RuntimeImage: "pack:1"})
	s := answers(t, b, npm.Tag)
	want := []string{
		"install", "--prefix", "/app", "--omit=dev", "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--install-links",
		"--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=10000", "--", "@acme/tool@1.2.3",
	}
	if r := s.Record; r.Program != "npm" || !slices.Equal(r.Args, want) || r.UID != 65532 || r.CapEff != "0000000000000000" || r.Dir != "/home/weir" {
		t.Errorf("%+v", r)
	}
	for _, line := range []string{"HTTPS_PROXY=http://proxy.example.com:3128", "HOME=/home/weir", "OF_BASE=yes"} {
		if !slices.Contains(s.Record.Env, line) {
			t.Errorf("no %s in %q", line, s.Record.Env)
		}
	}
	if text := strings.Join(append(s.Record.Env, s.Npmrc), " "); strings.Contains(text, "planted") {
		t.Errorf("a credential of the user's is in the build: %s", text)
	}
	if s.Npmrc != "@acme:registry=https://acme.example.com/\nregistry=https://npm.example.com/\n" {
		t.Errorf("npmrc: %q", s.Npmrc)
	}
	if !slices.ContainsFunc(npm.Notes, func(note string) bool { return strings.Contains(note, "HTTP_PROXY holds a password") }) || strings.Contains(strings.Join(npm.Notes, " "), "planted") {
		t.Errorf("notes: %q", npm.Notes)
	}
	if s.UID != 65532 || s.Home != "<nil>" || !slices.Contains(s.Env, "OF_BASE=yes") || !slices.Contains(s.Env, "HOME=/home/weir") {
		t.Errorf("the server: %+v", s)
	}

	// uv is installed where the base has none, and asked for the package alone.
	uv := built(t, b, Request{Source: source(t, "uvx://Tool[cli]==2.0"), RuntimeImage: "pack:1"})
	if s = answers(t, b, uv.Tag); !slices.Equal(s.Record.Args, []string{"tool", "install", "--no-progress", "--", "Tool[cli]==2.0"}) || s.Record.UID != 65532 {
		t.Errorf("%+v", s.Record)
	}
	for _, line := range []string{"UV_TOOL_DIR=/app/tools", "UV_TOOL_BIN_DIR=/app/bin", "UV_PYTHON_DOWNLOADS=never", "UV_PYTHON_PREFERENCE=only-system", "UV_DEFAULT_INDEX=https://pypi.example.com/simple"} {
		if !slices.Contains(s.Record.Env, line) {
			t.Errorf("no %s in %q", line, s.Record.Env)
		}
	}
	if !slices.Equal(s.Pip.Args, []string{"-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--no-input", "--prefix", "/home/weir/uv", "--", "uv"}) {
		t.Errorf("%q", s.Pip.Args)
	}
	if slices.ContainsFunc(s.Record.Env, func(line string) bool { return strings.HasPrefix(line, "PIP_INDEX_URL=") }) {
		t.Error("an index on this machine's loopback is in the build")
	}

	// Packages of the system are installed by root, and are in what follows.
	added := built(t, b, Request{Source: source(t, "npx://tool@1.0.0"), RuntimeImage: "pack:1", AddPackages: []string{"git", "curl=8.1"}})
	if s = answers(t, b, added.Tag); s.Installed == nil || !slices.Equal(s.Installed.Args, []string{"add", "--no-cache", "--", "git", "curl=8.1"}) || s.Installed.UID != 0 || s.Installed.CapEff != "00000000800000fb" || s.Record.UID != 65532 || s.Record.CapEff != "0000000000000000" {
		t.Errorf("%+v", s.Installed)
	}
	if saved := e.Saved(t, added.Tag); strings.Contains(string(saved), ".weir/inside") {
		t.Error("the builder's own files are in the image")
	}

	// What is odd in what was made becomes plain, and what goes on is ended.
	odd := built(t, b, Request{Source: source(t, "npx://odd@1.0.0"), RuntimeImage: "pack:1"})
	answers(t, b, odd.Tag)
	nothingLeft(t, e, b)

	// The same comes of the same.
	again := Request{Source: source(t, "npx://@acme/tool@1.2.3"), RuntimeImage: "pack:1"}
	if got := built(t, b, again); got.Built || got.ID != npm.ID {
		t.Errorf("again: %+v", got)
	}
	again.Rebuild = true
	if got := built(t, b, again); got.ID != npm.ID {
		t.Errorf("built anew it is another image: %+v, %+v", got, npm)
	}
	again.Rebuild, again.Pull = false, true
	if got := built(t, b, again); got.Built || got.ID != npm.ID || !strings.Contains(strings.Join(got.Notes, " "), "pack:1 is as it was") {
		t.Errorf("with --pull: %+v", got)
	}

	// One that no build here has made, whatever its labels say, is not taken for what is as it was.
	planted := Request{Source: source(t, "npx://planted@1.0.0"), RuntimeImage: "pack:1", Pull: true}
	var base, strange struct{ Id string }
	e.Get(t, "/images/pack:1/json", &base)
	e.Load(t, tagOf(b, planted), engine.Config{Labels: map[string]string{container.LabelBuilt: "npx://planted@1.0.0", labelBase: base.Id}}, map[string]string{}, map[string]string{"/strange": "x"})
	e.Get(t, "/images/"+tagOf(b, planted)+"/json", &strange)
	if got := built(t, b, planted); got.ID == strange.Id || Own(b.Machine.State, strange.Id) != nil {
		t.Errorf("what somebody else has made is taken over: %+v", got)
	}
	e.Do(t, "DELETE", "/images/"+strange.Id)

	// A package without a version is looked for anew; without its index what is there is used.
	r := Request{Source: source(t, "npx://fails"), RuntimeImage: "pack:1"}
	if _, err := b.Build(t.Context(), r); err == nil {
		t.Fatal("it does not fail")
	}
	e.Do(t, "POST", "/images/"+npm.Tag+"/tag?repo=weir/npx-fails&tag="+strings.Split(tagOf(b, r), ":")[1])
	old := built(t, b, r)
	if old.Built || old.ID != npm.ID || !strings.Contains(strings.Join(old.Notes, " "), "what was built before is used") {
		t.Errorf("%+v", old)
	}

	// Images go by what they were built of, and other names of theirs stay.
	found, err := b.Machine.Engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e.Do(t, "POST", "/images/"+npm.Tag+"/tag?repo=mine&tag=1")
	tags, err := found.Forget(t.Context(), SourceKey(source(t, "npx://@acme/tool@1.2.3")))
	if err != nil || !slices.Contains(tags, npm.Tag) {
		t.Errorf("forgotten: %q, %v", tags, err)
	}
	if left := e.Images(t); slices.Contains(left, npm.Tag) || !slices.Contains(left, "mine:1") || !slices.Contains(left, uv.Tag) || !slices.Contains(left, "pack:1") {
		t.Errorf("left: %q", left)
	}
}

// tagOf is the tag that an image of a package is to have.
func tagOf(b *Builds, r Request) string {
	return (&job{Builds: b, Request: r, recipe: recipes()[r.Source.Scheme], index: b.readIndex(r.Source.Scheme)}).tag()
}

// The tag goes by all that decides what comes of a build, and by nothing else.
func TestTag(t *testing.T) {
	b := &Builds{}
	base := Request{Source: source(t, "npx://@acme/Tool.js@1.0.0")}
	first := tagOf(b, base)
	if !regexp.MustCompile(`^weir/npx-tool-js:[0-9a-f]{16}$`).MatchString(first) {
		t.Errorf("tag %s", first)
	}
	seen := map[string]string{first: "the first"}
	for name, r := range map[string]Request{
		"version": {Source: source(t, "npx://@acme/Tool.js@1.0.1")}, "scope": {Source: source(t, "npx://Tool.js@1.0.0")}, "scheme": {Source: source(t, "uvx://Tool.js@1.0.0")},
		"base": {Source: base.Source, RuntimeImage: "node:22"}, "packages": {Source: base.Source, AddPackages: []string{"git"}}, "more packages": {Source: base.Source, AddPackages: []string{"git", "curl"}},
	} {
		tag := tagOf(b, r)
		if seen[tag] != "" {
			t.Errorf("%s has the tag of %s", name, seen[tag])
		}
		seen[tag] = name
	}
	settings := &Builds{Lookup: func(name string) (string, bool) { return "https://npm.example.com/", name == "NPM_CONFIG_REGISTRY" }}
	if seen[tagOf(settings, base)] != "" {
		t.Error("another index has the same tag")
	}
	settings.Lookup = func(name string) (string, bool) { return "http://proxy.example.com", name == "HTTPS_PROXY" }
	for name, tag := range map[string]string{
		"a proxy": tagOf(settings, base), "a secret": tagOf(b, Request{Source: base.Source, Secrets: map[string][]byte{"npmrc": nil}}),
		"an authority": tagOf(b, Request{Source: base.Source, CA: []byte("x")}), "a name": tagOf(b, Request{Source: base.Source, Tag: "a"}),
	} {
		if tag != first {
			t.Errorf("%s gives another tag", name)
		}
	}
	if a, b := tagOf(b, Request{Source: base.Source, AddPackages: []string{"a", "b"}}), tagOf(b, Request{Source: base.Source, AddPackages: []string{"b", "a"}}); a != b {
		t.Error("the order of packages gives another tag")
	}
}

// Of a build's own settings nothing is a credential, and nothing is on this machine alone.
func TestIndex(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, ".config/go/env"), "GOPROXY=https://go.example.com,direct\nGOFLAGS=-mod=mod\n")
	write(t, filepath.Join(home, ".npmrc"), "registry = \"https://user:planted@npm.example.com/\"\n@a:registry=http://localhost:4873\n@b:registry=https://b.example.com\n//b.example.com/:_authToken=planted\n_auth=planted\nscript-shell=/bin/evil\n@c:registry=${SECRET}\n")
	env := map[string]string{"GOPRIVATE": "*.example.com", "UV_INDEX": "corp=https://u:planted@pypi.example.com/simple", "UV_DEFAULT_INDEX": "https://pypi.example.com/simple", "NO_PROXY": "localhost,127.0.0.1", "HTTPS_PROXY": "http://127.0.0.1:3128", "GOSUMDB": "off\nX=1"}
	b := &Builds{Home: home, Lookup: func(name string) (string, bool) { value, ok := env[name]; return value, ok }}
	for scheme, want := range map[string]struct{ env, npmrc string }{
		"npx": {"NO_PROXY=localhost,127.0.0.1", "@b:registry=https://b.example.com\n"},
		"uvx": {"NO_PROXY=localhost,127.0.0.1 UV_DEFAULT_INDEX=https://pypi.example.com/simple", ""},
		"go":  {"NO_PROXY=localhost,127.0.0.1 GOPROXY=https://go.example.com,direct GOPRIVATE=*.example.com", ""},
	} {
		i := b.readIndex(scheme)
		if got := strings.Join(i.env, " "); got != want.env || i.npmrc != want.npmrc {
			t.Errorf("%s: %q, %q", scheme, got, i.npmrc)
		}
		if text := strings.Join(i.notes, " "); strings.Contains(text, "planted") || !strings.Contains(text, "HTTPS_PROXY is on this machine's own loopback") {
			t.Errorf("%s: notes %q", scheme, i.notes)
		}
	}
}

// V46: what a build is given as a secret is a file in memory, and nowhere afterwards. An
// authority is a file of the build alone.
func TestBuildSecrets(t *testing.T) {
	e := packaged(t)
	b := builds(t, e, nil)
	const planted = "planted-secret-of-a-build"
	ca := authority(t)
	secrets := map[string][]byte{"npmrc": []byte("//npm.example.com/:_authToken=" + planted + "\n"), "netrc": []byte("machine a.example login me password " + planted + "\n"), "plain": []byte(planted)}
	one := built(t, b, Request{Source: source(t, "npx://tool@3.0.0"), RuntimeImage: "pack:1", Secrets: secrets, CA: ca, Tag: "mine/tool:3"})
	s := answers(t, b, one.Tag)
	if len(s.Record.Secrets) != 3 || s.Record.Secrets["plain"] != len(planted) || !strings.HasPrefix(s.Record.Mounts, "tmpfs ") {
		t.Errorf("%+v", s.Record)
	}
	for _, line := range []string{"NPM_CONFIG_USERCONFIG=/run/secrets/npmrc", "NETRC=/run/secrets/netrc", "NODE_EXTRA_CA_CERTS=/.weir/ca.pem"} {
		if !slices.Contains(s.Record.Env, line) {
			t.Errorf("no %s in %q", line, s.Record.Env)
		}
	}
	if s.Record.CA != len("of the base\n")+1+len(ca) {
		t.Errorf("%d bytes of authorities", s.Record.CA)
	}
	var failed *Error
	if _, err := b.Build(t.Context(), Request{Source: source(t, "npx://fails@1.0.0"), RuntimeImage: "pack:1", Secrets: secrets}); !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if n := len(failed.Said); n != maxSaidLines || failed.Said[n-1] != "npm error code E404" || !strings.Contains(failed.Next, "name or its version") || failed.Step != "npm install fails@1.0.0" || failed.Why != "exit code 7" {
		t.Errorf("%+v", failed)
	}
	if !strings.Contains(strings.Join(failed.Said, " "), "npm error it said") {
		t.Errorf("%q", failed.Said)
	}
	for what, text := range map[string]string{
		"inspect": e.Raw(t, "/images/"+one.Tag+"/json"), "history": e.Raw(t, "/images/"+one.Tag+"/history"), "image": string(e.Saved(t, one.Tag)), "engine's log": e.Log(),
		"error": failed.Error() + strings.Join(failed.Said, "\n") + failed.Next,
	} {
		if strings.Contains(text, planted) || what == "image" && strings.Contains(text, "BEGIN CERTIFICATE") {
			t.Errorf("the secret or the authority of the build is in the %s", what)
		}
	}
	// What a program of the package can read it can keep: that is no image.
	if _, err := b.Build(t.Context(), Request{Source: source(t, "npx://keeps@1.0.0"), RuntimeImage: "pack:1", Secrets: secrets, Tag: "mine/keeps:1"}); !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if failed.Step != "make the image" || !strings.Contains(failed.Why, "/app/kept/") || !strings.Contains(failed.Next, "take this one back") || strings.Contains(failed.Error()+failed.Next, planted) {
		t.Errorf("%+v", failed)
	}
	if tags := e.Images(t); !slices.Contains(tags, "mine/tool:3") || strings.Contains(strings.Join(tags, " "), "keeps") {
		t.Errorf("images: %q", tags)
	}
	nothingLeft(t, e, b)
}

// V42 and what else is no build: refused, or one word of an argument list, and nothing is left.
func TestBuildRefused(t *testing.T) {
	e := packaged(t)
	b := builds(t, e, nil)
	before := e.Images(t)
	for name, r := range map[string]Request{
		"no package of a system": {Source: source(t, "npx://tool@1.0.0"), RuntimeImage: "pack:1", AddPackages: []string{"--allow-untrusted"}},
		"is no image":            {Source: source(t, "npx://tool@1.0.0"), RuntimeImage: "--privileged"},
		"cannot be had":          {Source: source(t, "npx://tool@1.0.0"), RuntimeImage: "127.0.0.1:1/none:1"},
		"holds none in PEM":      {Source: source(t, "npx://tool@1.0.0"), RuntimeImage: "pack:1", CA: []byte("nothing")},
		"holds something else":   {Source: source(t, "npx://tool@1.0.0"), RuntimeImage: "pack:1", CA: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{1}})},
		"no name of a build's":   {Source: source(t, "npx://tool@1.0.0"), RuntimeImage: "pack:1", Secrets: map[string][]byte{"../x": nil}},
		"has no go":              {Source: source(t, "go://a.example/m@v1.0.0"), RuntimeImage: "pack:1"},
		"no such package":        {Source: source(t, "npx://tool@1.0.0"), RuntimeImage: "pack:1", AddPackages: []string{"none"}},
		"read as a deletion":     {Source: source(t, "npx://hostile@1.0.0"), RuntimeImage: "pack:1"},
		"has no program":         {Source: source(t, "npx://nobin@1.0.0"), RuntimeImage: "pack:1"},
		"not a file of its own":  {Source: source(t, "npx://leads-out@1.0.0"), RuntimeImage: "pack:1"},
		"several programs":       {Source: source(t, "uvx://several"), RuntimeImage: "pack:1"},
		"it has no go.mod":       {Source: source(t, "go://"+t.TempDir())},
	} {
		if name == "has no go" {
			alpine(t, e)
		}
		_, err := b.Build(t.Context(), r)
		text := ""
		if failed := new(Error); errors.As(err, &failed) {
			text = failed.Error() + strings.Join(failed.Said, "\n")
		} else if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, name) {
			t.Errorf("%s: %q", name, text)
		}
	}
	nothingLeft(t, e, b)
	if after := slices.DeleteFunc(e.Images(t), func(tag string) bool { return tag == "alpine:3.23" }); len(after) != len(slices.DeleteFunc(before, func(tag string) bool { return tag == "alpine:3.23" })) {
		t.Errorf("images before %q, after %q", before, after)
	}
}

// V30: a build that is cancelled leaves nothing, and so does one whose process is gone.
func TestBuildCancelled(t *testing.T) {
	e := packaged(t)
	b := builds(t, e, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stopped")
	done := make(chan error, 1)
	go func() {
		_, err := b.Build(ctx, Request{Source: source(t, "npx://hangs@1.0.0"), RuntimeImage: "pack:1", AddPackages: []string{"git"}})
		done <- err
	}()
	edgetest.Until(t, "a build that hangs", func() bool {
		for _, id := range e.Containers(t) {
			var top struct{ Processes [][]string }
			if raw, err := e.Try("GET", "/containers/"+id+"/top"); err == nil && json.Unmarshal(raw, &top) == nil && len(top.Processes) > 2 {
				return true
			}
		}
		return false
	})
	began := time.Now()
	cancel(why)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "stopped") || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	nothingLeft(t, e, b)

	// A process that is killed does not close its builder: the engine sees that it is gone.
	found, err := b.Machine.Engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	base, err := found.Base(t.Context(), "pack:1")
	if err != nil {
		t.Fatal(err)
	}
	gone, err := b.Machine.Builder(t.Context(), found, container.BuilderConfig{Name: "gone", Image: base.ID}, helper(t))
	if err != nil {
		t.Fatal(err)
	}
	gone.Abandon()
	edgetest.Until(t, "an end of what was abandoned", func() bool { return len(e.Containers(t)) == 0 })
}

// What a directory is built of is its files, in order and within bounds.
func TestTree(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		links map[string]string
		want  string // of the error; "" for none
	}{
		"plain":      {map[string]string{"go.mod": "module a\n", "a/b.go": "x"}, map[string]string{"c.go": "a/b.go"}, ""},
		"no module":  {map[string]string{"a.go": "x"}, nil, "it has no go.mod"},
		"leads out":  {map[string]string{"go.mod": ""}, map[string]string{"x": "../../etc/passwd"}, "the link x leads out of it"},
		"absolute":   {map[string]string{"go.mod": ""}, map[string]string{"x": "/etc/passwd"}, "the link x leads out of it"},
		"ignored":    {map[string]string{"go.mod": "", ".dockerignore": "x\n"}, map[string]string{"x": "/etc/passwd"}, ""},
		"no pattern": {map[string]string{"go.mod": "", ".dockerignore": "[z-a]\n"}, nil, "is no pattern"},
		"marked":     {map[string]string{"go.mod": "", ".dockerignore": "\ufeffx\n"}, map[string]string{"x": "/etc/passwd"}, ""},
		"patterns":   {map[string]string{"go.mod": ""}, map[string]string{".dockerignore": "../../../etc/hosts"}, ".dockerignore: "},
	} {
		dir := t.TempDir()
		for path, text := range c.files {
			write(t, filepath.Join(dir, path), text)
		}
		for path, target := range c.links {
			if err := os.Symlink(target, filepath.Join(dir, path)); err != nil {
				t.Fatal(err)
			}
		}
		tree, err := readTree(dir, t.TempDir())
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		tree.close()
		if err := os.Chtimes(filepath.Join(dir, "go.mod"), time.Now(), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		again, err := readTree(dir, t.TempDir())
		if err != nil || again.digest != tree.digest {
			t.Errorf("%s: another digest of the same files, %v", name, err)
		}
		again.close()
	}
	// A pipe has no end.
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "")
	if err := syscall.Mkfifo(filepath.Join(dir, ".dockerignore"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := readTree(dir, t.TempDir())
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), ".dockerignore: no file") {
			t.Errorf("a pipe of patterns: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a pipe of patterns is waited for")
	}
	for pattern, fits := range map[string]map[string]bool{
		"*.log":     {"a.log": true, "a/b.log": false},
		"**/*.log":  {"a.log": true, "a/b/c.log": true, "a.logs": false},
		"build":     {"build": true, "build/x": true, "builds": false, "a/build": false},
		"/a/?.go":   {"a/b.go": true, "a/bc.go": false, "a//.go": false},
		"a+b(c":     {"a+b(c": true, "aab(c": false},
		"**":        {"a": true, "a/b": true},
		"v[0-9].go": {"v1.go": true, "vx.go": false},
	} {
		p, err := ignorePattern(pattern)
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for name, want := range fits {
			if p.MatchString(name) != want {
				t.Errorf("%s fits %s: %v", pattern, name, !want)
			}
		}
	}
}

// authority is a certificate in PEM.
func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
