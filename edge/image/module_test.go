package image

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	fake "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// pushModule puts what may be a module there: layers of a type and a configuration of one.
func (s *shelf) pushModule(text, config, layer string, layers ...string) name.Digest {
	s.t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(config))
	for _, content := range layers {
		var err error
		if img, err = mutate.AppendLayers(img, static.NewLayer([]byte(content), types.MediaType(layer))); err != nil {
			s.t.Fatal(err)
		}
	}
	tag, err := name.NewTag(s.host + "/" + text)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := remote.Write(tag, img); err != nil {
		s.t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		s.t.Fatal(err)
	}
	return tag.Context().Digest(digest.String())
}

// A module is an image of one layer of the type of modules, and comes as the digest says; all
// else is refused with what it is.
func TestModule(t *testing.T) {
	s := newShelf(t, fake.WithReferrersSupport(true))
	const most = 32
	const layer, config = "application/wasm", moduleConfig
	good := s.pushModule("good:1", config, layer, "\x00asm")
	evil := s.pushModule("good:evil", config, layer, "\x00evil")
	s.pushModule("older:1", config, "application/vnd.wasm.content.layer.v1+wasm", "\x00asm")
	s.pushModule("container:1", "application/vnd.oci.image.config.v1+json", layer, "\x00asm")
	s.pushModule("tar:1", config, "application/vnd.oci.image.layer.v1.tar+gzip", "\x00asm")
	s.pushModule("two:1", config, layer, "\x00asm", "more")
	s.pushModule("none:1", config, layer)
	s.pushModule("large:1", config, layer, strings.Repeat("a", most+1))
	s.pushModule("largest:1", config, layer, strings.Repeat("a", most))
	one, err := remote.Image(good)
	if err != nil {
		t.Fatal(err)
	}
	list, err := name.NewTag(s.host + "/list:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(list, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{}})); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"good:1":                       "",
		"good@" + good.DigestStr():     "",
		"older:1":                      "",
		"largest:1":                    "",
		"container:1":                  `its configuration is of the type "application/vnd.oci.image.config.v1+json", and that of a module is ` + moduleConfig,
		"tar:1":                        `its layer is of the type "application/vnd.oci.image.layer.v1.tar+gzip", and that of a module is application/wasm`,
		"two:1":                        "it has 2 layers, and a module is one",
		"none:1":                       "it has 0 layers",
		"large:1":                      "it has 33 bytes, and the limit of a module is 32",
		"list:1":                       "it is a list of images",
		"nothing:1":                    "has none",
		"good@sha256:" + zerosOf(64):   "has none",
		"good:1@sha256:" + zerosOf(63): "is no image",
		"good@sha512:" + zerosOf(128):  "its digest is not of sha256",
		"../good:1":                    "is no image",
	} {
		m, err := s.images.Module(context.Background(), s.host+"/"+text, most)
		var known *Error
		switch {
		case want == "":
			if err != nil || !strings.HasPrefix(m.Image, s.host+"/"+strings.Split(strings.Split(text, ":")[0], "@")[0]+"@sha256:") || len(m.Bytes) == 0 || len(m.SHA256) != 64 {
				t.Errorf("%s: %+v, %v", text, m, err)
			}
		case !errors.As(err, &known) || !strings.Contains(known.What, want):
			t.Errorf("%s: %v, and should say %q", text, err, want)
		}
	}

	// What the registry sends for a digest is compared with it, and a registry that is broken
	// is no refusal of the module.
	for what, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		kind   Kind
		next   string // part of what to do
	}{
		"other bytes":     {func(w http.ResponseWriter) { _, _ = w.Write([]byte("evil")) }, NoPull, ""},
		"fewer bytes":     {func(w http.ResponseWriter) { _, _ = w.Write([]byte("\x00a")) }, NoPull, ""},
		"bytes for ever":  {func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 1<<20)) }, NoPull, ""},
		"not now":         {func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, NoPull, "look whether its registry is reached"},
		"not for anybody": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, NoPull, "log in to its registry"},
		"a part of it":    {func(w http.ResponseWriter) { w.WriteHeader(http.StatusPartialContent) }, NoPull, "ask whoever runs its registry why it answers with HTTP 206"},
	} {
		s.meddle = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/blobs/") {
				c.answer(w)
				return true
			}
			return false
		}
		m, err := s.images.Module(context.Background(), s.host+"/good:1", most)
		var known *Error
		if !errors.As(err, &known) || known.Kind != c.kind || !strings.Contains(known.Next, c.next) {
			t.Errorf("%s: %+v, %v", what, m, err)
		}
	}
	// Nor is its word taken for what it sends, whatever form that is said to have.
	s.meddle = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v2/good/manifests/"+good.DigestStr() {
			return false
		}
		r.URL.Path = "/v2/good/manifests/" + evil.DigestStr()
		s.handler.ServeHTTP(&overwriting{&overwriting{w, "Content-Type", string(types.DockerManifestSchema1Signed)}, "Docker-Content-Digest", good.DigestStr()}, r)
		return true
	}
	if m, err := s.images.Module(context.Background(), s.host+"/good@"+good.DigestStr(), most); err == nil || !strings.Contains(err.Error(), "sends another manifest for "+short(good.DigestStr())) {
		t.Errorf("another manifest: %+v, %v", m, err)
	}
	// A description whose parts take gigabytes when they are read is not read.
	s.meddle = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
		_, _ = w.Write([]byte(`{"layers":[` + strings.Repeat("{},", maxParts+1) + `{}]}`))
		return true
	}
	if m, err := s.images.Module(context.Background(), s.host+"/good:1", 32<<20); err == nil || !strings.Contains(err.Error(), "more than an image's description") {
		t.Errorf("many parts: %+v, %v", m, err)
	}
	s.meddle = nil
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.images.Module(ctx, s.host+"/good:1", most); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func zerosOf(n int) string { return strings.Repeat("0", n) }
