// Package ociregistry runs Debian's docker-registry for tests, on the loopback of this machine,
// and puts images there.
package ociregistry

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/bcrypt"

	"github.com/weir-edge/weir/edge/edgetest/need"
)

// Registry is a docker-registry of the test's own, with one user.
type Registry struct {
	Host           string // address with its port
	Port           int
	User, Password string

	t   testing.TB
	cmd *exec.Cmd
}

// Start starts a registry, which ends with the test. The test needs one.
func Start(t testing.TB) *Registry {
	t.Helper()
	path, err := exec.LookPath("docker-registry")
	need.Of(t, err == nil, "docker-registry is not installed (Debian: docker-registry)")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Registry{Host: l.Addr().String(), Port: l.Addr().(*net.TCPAddr).Port, User: "somebody", Password: "planted-password", t: t}
	_ = l.Close()
	dir := t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte(r.Password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("htpasswd", r.User+":"+string(hash)+"\n")
	write("config.yml", fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage:\n  filesystem: {rootdirectory: %s/data}\n  delete: {enabled: true}\nhttp: {addr: %q}\nauth:\n  htpasswd: {realm: test, path: %s/htpasswd}\n", dir, r.Host, dir))
	r.cmd = exec.Command(path, "serve", filepath.Join(dir, "config.yml"))
	var said bytes.Buffer
	r.cmd.Stdout, r.cmd.Stderr = &said, &said
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get("http://" + r.Host + "/v2/")
		if err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusUnauthorized {
				return r
			}
		}
		if time.Now().After(until) {
			t.Fatalf("docker-registry does not answer: %v", err)
		}
	}
}

// Stop ends the registry.
func (r *Registry) Stop() {
	if r.cmd.ProcessState == nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	}
}

// Login is what lets the user in.
func (r *Registry) Login() remote.Option {
	return remote.WithAuth(&authn.Basic{Username: r.User, Password: r.Password})
}

// DockerConfig is a config.json of a container engine's client with the user's login.
func (r *Registry) DockerConfig() string {
	who := authn.FromConfig(authn.AuthConfig{Username: r.User, Password: r.Password})
	c, err := who.Authorization()
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := c.MarshalJSON()
	if err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprintf(`{"auths": {%q: %s}}`, r.Host, text)
}

// Push puts the image of an archive there, NAME:TAG, and returns it by digest.
func (r *Registry) Push(text string, archive []byte) name.Digest {
	r.t.Helper()
	img, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.put(text, img)
}

func (r *Registry) put(text string, img v1.Image) name.Digest {
	r.t.Helper()
	tag, err := name.NewTag(r.Host + "/" + text)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := remote.Write(tag, img, r.Login()); err != nil {
		r.t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		r.t.Fatal(err)
	}
	return tag.Context().Digest(digest.String())
}

// PushModule puts a module of WebAssembly there, and returns it by digest.
func (r *Registry) PushModule(text string, module []byte) name.Digest {
	r.t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.wasm.config.v0+json")
	img, err := mutate.AppendLayers(img, static.NewLayer(module, "application/wasm"))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.put(text, img)
}

// Named is the name of an image there.
func (r *Registry) Named(text string) string { return strings.Join([]string{r.Host, text}, "/") }
