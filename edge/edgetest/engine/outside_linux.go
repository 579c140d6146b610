package engine

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What lets containers of a test's engine reach one place outside: a relay of the test.

// The addresses of the two ends of the wire between this machine and the engine. Each test
// process has a wire of its own, by its number.
func wire() (name, here, there string) {
	n := os.Getpid() % 16000
	return fmt.Sprintf("wb%d", n), fmt.Sprintf("10.231.%d.%d", n/63, n%63*4+1), fmt.Sprintf("10.231.%d.%d", n/63, n%63*4+2)
}

// Connect lays a wire between this machine and the engine, whose containers reach this end of
// it by the engine's own address translation, and nothing behind it. It returns the address of
// this end. The wire goes with the engine.
func (e *Engine) Connect(t testing.TB) string {
	t.Helper()
	name, here, there := wire()
	pid := strconv.Itoa(e.cmd.Process.Pid)
	for _, args := range [][]string{
		{"ip", "link", "add", name, "type", "veth", "peer", "name", "outside", "netns", pid},
		{"ip", "addr", "add", here + "/30", "dev", name}, {"ip", "link", "set", name, "up"},
		{"nsenter", "-t", pid, "-n", "ip", "addr", "add", there + "/30", "dev", "outside"},
		{"nsenter", "-t", pid, "-n", "ip", "link", "set", "outside", "up"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", name).Run() }) // with the engine it goes by itself
	return here
}

// Relay passes requests on to the package indexes that this machine is set up for.
type Relay struct {
	NPM, Go  string       // URLs of the registry of npm, and of the proxy of Go modules
	Requests atomic.Int64 // that came
}

// Relay starts a relay at an address of this machine's. It ends with the test.
func (e *Engine) Relay(t testing.TB, host string) *Relay {
	t.Helper()
	said, err := exec.Command("npm", "config", "get", "registry").Output()
	if err != nil {
		t.Fatalf("npm: %v", err)
	}
	npm := strings.TrimSpace(string(said))
	if said, err = exec.Command("go", "env", "GOPROXY").Output(); err != nil {
		t.Fatal(err)
	}
	proxy, _, _ := strings.Cut(strings.TrimSpace(string(said)), ",")
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{}
	at := "http://" + l.Addr().String()
	r.NPM, r.Go = at+"/npm/", at+"/go"
	mux := http.NewServeMux()
	mux.Handle("/npm/", http.StripPrefix("/npm", r.to(t, npm, r.NPM)))
	mux.Handle("/go/", http.StripPrefix("/go", r.to(t, proxy, r.Go)))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done; http.DefaultTransport.(*http.Transport).CloseIdleConnections() })
	return r
}

// to passes requests on to an index, and has what it says name the relay in its place.
func (r *Relay) to(t testing.TB, index, own string) http.Handler {
	target, err := url.Parse(index)
	if err != nil || target.Host == "" {
		t.Fatalf("%q is no URL of an index", index)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			r.Requests.Add(1)
			p.SetURL(target)
			p.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: func(resp *http.Response) error {
			if !strings.Contains(resp.Header.Get("Content-Type"), "json") {
				return nil
			}
			text, err := io.ReadAll(io.LimitReader(resp.Body, 256<<20))
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			text = bytes.ReplaceAll(text, []byte(strings.TrimSuffix(index, "/")+"/"), []byte(strings.TrimSuffix(own, "/")+"/"))
			resp.Body = io.NopCloser(bytes.NewReader(text))
			resp.ContentLength = int64(len(text))
			resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
			return nil
		},
	}
}

// Part is something of this machine that goes into an image: a file or a directory by its path
// here, or a text, or nothing for an empty directory.
type Part struct {
	From string
	Text string
	Mode int64
	User int      // whose it is
	Skip []string // names below From that are left out
}

// Import makes an image of parts of this machine, by their paths inside.
func (e *Engine) Import(t testing.TB, name, pathVariable string, parts map[string]Part) {
	t.Helper()
	repository, tag := name, "latest"
	if at := strings.LastIndexByte(name, ':'); at >= 0 {
		repository, tag = name[:at], name[at+1:]
	}
	out, in := io.Pipe()
	go func() { _ = in.CloseWithError(pack(in, parts)) }()
	query := url.Values{"fromSrc": {"-"}, "repo": {repository}, "tag": {tag}, "changes": {"ENV PATH=" + pathVariable}}
	text, err := e.ask("POST", "/images/create?"+query.Encode(), out)
	_ = out.Close()
	if err != nil || bytes.Contains(text, []byte(`"error"`)) {
		t.Fatalf("import %s: %v: %s", name, err, text)
	}
}

// pack writes parts as a tar archive.
func pack(to io.Writer, parts map[string]Part) error {
	w := tar.NewWriter(to)
	paths := make([]string, 0, len(parts))
	for path := range parts {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		p, inside := parts[path], strings.TrimPrefix(path, "/")
		if p.From == "" {
			h := &tar.Header{Typeflag: tar.TypeReg, Name: inside, Mode: p.Mode, Size: int64(len(p.Text))}
			if strings.HasSuffix(path, "/") {
				h.Typeflag = tar.TypeDir
			}
			if err := w.WriteHeader(h); err != nil {
				return err
			}
			if _, err := io.WriteString(w, p.Text); err != nil {
				return err
			}
			continue
		}
		err := filepath.WalkDir(p.From, func(at string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rest, err := filepath.Rel(p.From, at)
			if err != nil {
				return err
			}
			if d.IsDir() && slices.Contains(p.Skip, rest) {
				return fs.SkipDir
			}
			info, err := os.Lstat(at)
			if err == nil && at == p.From {
				info, err = os.Stat(at) // a link to a library is the library
			}
			if err != nil {
				return err
			}
			link := ""
			if info.Mode().Type() == fs.ModeSymlink {
				if link, err = os.Readlink(at); err != nil {
					return err
				}
			}
			h, err := tar.FileInfoHeader(info, link)
			if err != nil {
				return nil // a socket
			}
			h.Name, h.Uid, h.Gid, h.Uname, h.Gname = filepath.Join(inside, rest), p.User, p.User, "", ""
			if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
				return err
			}
			f, err := os.Open(at)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(w, f)
			return err
		})
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// Program is a program of this machine with the libraries that it is linked with.
func Program(t testing.TB, parts map[string]Part, inside, from string) {
	t.Helper()
	parts[inside] = Part{From: from}
	said, err := exec.Command("ldd", from).Output()
	if err != nil {
		return // a static one
	}
	for line := range strings.Lines(string(said)) {
		for _, word := range strings.Fields(line) {
			if filepath.IsAbs(word) {
				parts[word] = Part{From: word}
			}
		}
	}
}

// NodeBase imports node and npm of this machine, as the base of an image.
func (e *Engine) NodeBase(t testing.TB, name string) {
	t.Helper()
	parts := map[string]Part{"/tmp/": {Mode: 0o1777}, "/etc/passwd": {Text: "root:x:0:0::/root:/bin/sh\n", Mode: 0o644}}
	for inside, program := range map[string]string{"/usr/bin/node": "node", "/usr/bin/env": "env", "/bin/sh": "dash"} {
		at, err := exec.LookPath(program)
		if err == nil {
			at, err = filepath.EvalSymlinks(at)
		}
		if err != nil {
			t.Fatal(err)
		}
		Program(t, parts, inside, at)
	}
	npm, err := exec.LookPath("npm")
	if err == nil {
		npm, err = filepath.EvalSymlinks(npm)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(filepath.Dir(npm)) // …/node_modules/npm
	parts["/usr/lib/node_modules/npm"] = Part{From: dir}
	parts["/usr/bin/npm"] = Part{Text: "#!/usr/bin/env node\nrequire('/usr/lib/node_modules/npm/lib/cli.js')(process)\n", Mode: 0o755}
	e.Import(t, name, "/usr/bin:/bin", parts)
}

// GoBase imports the Go toolchain of this machine, as the base of an image. The packages of the
// standard library that are used have been compiled, as they are in a build of Weir's.
func (e *Engine) GoBase(t testing.TB, name string, used ...string) {
	t.Helper()
	said, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	build := exec.Command("go", append([]string{"build"}, used...)...)
	build.Env = append(os.Environ(), "GOCACHE="+cache, "GOFLAGS=-trimpath -buildvcs=false", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	e.Import(t, name, "/usr/local/go/bin:/usr/bin:/bin", map[string]Part{
		"/usr/local/go":              {From: strings.TrimSpace(string(said)), Skip: []string{"test", "api", "doc", "src/cmd", "misc"}},
		"/home/weir/.cache/go-build": {From: cache, User: 65532},
		"/tmp/":                      {Mode: 0o1777},
		"/etc/passwd":                {Text: "root:x:0:0::/root:/bin/sh\n", Mode: 0o644},
	})
}

// Images are the tags of all images.
func (e *Engine) Images(t testing.TB) (tags []string) {
	t.Helper()
	var all []struct{ RepoTags []string }
	e.Get(t, "/images/json?all=1", &all)
	for _, one := range all {
		tags = append(tags, one.RepoTags...)
	}
	slices.Sort(tags)
	return tags
}

// Saved is an image with all its layers, as the engine saves it.
func (e *Engine) Saved(t testing.TB, name string) []byte {
	t.Helper()
	text, err := e.ask("GET", "/images/"+name+"/get", nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Try makes a request that may fail.
func (e *Engine) Try(method, path string) ([]byte, error) { return e.ask(method, path, nil) }

// Raw is what the engine says of a path of its interface, as it says it.
func (e *Engine) Raw(t testing.TB, path string) string {
	t.Helper()
	text, err := e.ask("GET", path, nil)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, text) == nil {
		return compact.String()
	}
	return string(text)
}
