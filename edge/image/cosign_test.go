package image

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// cosign makes testdata/cosign.json anew with a program of cosign's:
//
//	GOBIN=/tmp go install github.com/sigstore/cosign/v2/cmd/cosign@v2.6.2
//	go test ./edge/image -run TestCosign -cosign /tmp/cosign
var cosign = flag.String("cosign", "", "program of cosign that signs the images of testdata/cosign.json anew")

// record is a repository as cosign left it.
type record struct {
	Key       string              // that it is signed with, PEM
	Manifests map[string]manifest // by tag or digest
	Blobs     map[string][]byte   // by digest
}

type manifest struct {
	Type string
	Text []byte
}

// TestCosign: what cosign itself signs, an independent program, is verified in both forms that
// it has: under a tag, and as a bundle that refers to the image. Another key's does not count.
func TestCosign(t *testing.T) {
	const file = "testdata/cosign.json"
	if *cosign != "" {
		all := map[string]*record{}
		for form, flags := range map[string][]string{"tagged": nil, "bundle": {"--new-bundle-format"}} {
			all[form] = recorded(t, form, flags)
		}
		text, err := json.MarshalIndent(all, "", " ")
		if err == nil {
			err = os.WriteFile(file, append(text, '\n'), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]*record
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 2 {
		t.Fatalf("%d records: %v", len(all), err)
	}
	for form, r := range all {
		t.Run(form, func(t *testing.T) {
			s := newShelf(t)
			r.put(t, s, form)
			s.keys(r.Key, false)
			c, err := s.choose(form+":1", v1beta1.VerifyEnabled)
			if err != nil || !strings.HasPrefix(c.Verified, "signed by key 1 of ") {
				t.Errorf("%+v %v", c, err)
			}
			for other, o := range all {
				if other != form {
					s.keys(o.Key, false)
				}
			}
			if c, err := s.choose(form+":1", v1beta1.VerifyEnabled); err == nil || !strings.Contains(err.Error(), "its signature is of no key that") {
				t.Errorf("by the key of another: %+v %v", c, err)
			}
			s.keys(r.Key, true)
			if c, err := s.choose(form+":1", v1beta1.VerifyEnabled); err == nil || !strings.Contains(err.Error(), "log") {
				t.Errorf("where a log has to have it: %+v %v", c, err)
			}
		})
	}
}

// recorded has cosign sign an image, and returns all that is at the registry then.
func recorded(t *testing.T, form string, flags []string) *record {
	s := newShelf(t)
	digest := s.push(form + ":1")
	dir := t.TempDir()
	run := func(args ...string) {
		cmd := exec.CommandContext(t.Context(), *cosign, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "COSIGN_PASSWORD=", "HOME="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("cosign %q: %v: %s", args, err, out)
		}
	}
	run("generate-key-pair")
	run(append(append([]string{"sign", "--key", "cosign.key", "--tlog-upload=false", "--yes", "--allow-http-registry"}, flags...), digest.String())...)
	key, err := os.ReadFile(filepath.Join(dir, "cosign.pub"))
	if err != nil {
		t.Fatal(err)
	}
	r := &record{Key: string(key), Manifests: map[string]manifest{}, Blobs: map[string][]byte{}}
	tags, err := remote.List(digest.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range tags {
		r.keep(t, digest.Context(), tag)
	}
	return r
}

// keep notes a manifest, and all that it names.
func (r *record) keep(t *testing.T, repo name.Repository, at string) {
	if _, known := r.Manifests[at]; known {
		return
	}
	ref := name.Reference(repo.Tag(at))
	if strings.HasPrefix(at, "sha256:") {
		ref = repo.Digest(at)
	}
	got, err := remote.Get(ref)
	if err != nil {
		t.Fatal(err)
	}
	r.Manifests[at] = manifest{string(got.MediaType), got.Manifest}
	if got.MediaType.IsIndex() {
		index, err := v1.ParseIndexManifest(bytes.NewReader(got.Manifest))
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range index.Manifests {
			r.keep(t, repo, one.Digest.String())
		}
		return
	}
	m, err := v1.ParseManifest(bytes.NewReader(got.Manifest))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range append(m.Layers, m.Config) {
		layer, err := remote.Layer(repo.Digest(d.Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		body, err := layer.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		if r.Blobs[d.Digest.String()], err = io.ReadAll(body); err != nil {
			t.Fatal(err)
		}
		_ = body.Close()
	}
}

// put brings what was noted to a registry.
func (r *record) put(t *testing.T, s *shelf, repository string) {
	send := func(method, path, kind string, body []byte) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("http://%s/v2/%s/%s", s.host, repository, path), bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", kind)
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusCreated {
			t.Fatalf("%s %s: %d", method, path, answer.StatusCode)
		}
	}
	for digest, text := range r.Blobs {
		send("POST", "blobs/uploads/?digest="+digest, "application/octet-stream", text)
	}
	for _, index := range []bool{false, true} { // after what they name
		for at, m := range r.Manifests {
			if strings.Contains(m.Type, "index") == index {
				send("PUT", "manifests/"+at, m.Type, m.Text)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
