package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/signer"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// What is wrong with the user's rules is told by the field, and nothing is verified by them:
// enabled refuses, warn says so.
func TestBadPolicy(t *testing.T) {
	_, pem := signer.Key(t)
	indented := strings.ReplaceAll(strings.TrimSpace(pem), "\n", "\n    ")
	for text, words := range map[string]string{
		"images: 1": "cannot unmarshal number",
		"image: []": `unknown field "image"`,
		"images:\n- image: ghcr.io/a/b\n  key: x":                                                                    `unknown field "key"`,
		"images:\n- keys: []":                                                                                        "images[0].image: write one",
		"images:\n- image: tool\n  keys: [a]":                                                                        `images[0].image: "tool" does not begin with a registry`,
		"images:\n- image: a/tool\n  keys: [a]":                                                                      `images[0].image: "a/tool" does not begin with a registry`,
		"images:\n- {image: 'ghcr.io/a/b:1', keys: [a]}":                                                             `images[0].image: "ghcr.io/a/b:1" fits no image: write it without a tag`,
		"images:\n- {image: 'ghcr.io/a/b@sha256:*', keys: [a]}":                                                      "fits no image: write it without a tag and a digest",
		"images:\n- {image: ghcr.io/, keys: [a]}":                                                                    "fits no image: write the name of an image",
		"images:\n- {image: 'index.docker.io/a/*', keys: [a]}":                                                       "fits no image: write docker.io/a/*",
		"images:\n- {image: docker.io/nginx, keys: [a]}":                                                             "fits no image: write docker.io/library/nginx",
		"images:\n- {image: 'docker.io/*', keys: [a]}":                                                               "or docker.io/**",
		"images:\n- image: ghcr.io/a/b":                                                                              "images[0].keys: neither keys nor identities are named",
		"images:\n- image: ghcr.io/a/b\n  keys: [a]":                                                                 "images[0].keys[0]: it is not one public key in PEM",
		"images:\n- image: ghcr.io/a/b\n  keys:\n  - |\n    " + indented + "\n    " + indented:                       "images[0].keys[0]: it is not one public key",
		"images:\n- image: ghcr.io/a/b\n  keys:\n  - |\n    " + strings.ReplaceAll(indented, "PUBLIC", "EC PRIVATE"): "images[0].keys[0]: it is a private key",
		"images:\n- image: ghcr.io/a/b\n  identities:\n  - subject: a@example.com":                                   "images[0].identities[0].issuer: name one",
		"images:\n- image: ghcr.io/a/b\n  identities:\n  - issuer: https://login.example.com":                        "images[0].identities[0].subject: write one",
		"images:\n- image: ghcr.io/a/b\n  identities:\n  - {issuer: a, subject: '**'}":                               `images[0].identities[0].subject: "**" is everybody`,
		"images: []\nroots: {mirror: 'http://tuf.example.com', root: /r}":                                            "roots.mirror:",
		"images: []\nroots: {mirror: 'https://tuf.example.com', root: r}":                                            "roots.root:",
		"images:\n" + strings.Repeat("- image: ghcr.io/a/b\n", maxRules+1):                                           "images: more than 1000",
		strings.Repeat("#", maxPolicy+1):                                                                             "more than 1048576 bytes",
	} {
		s := newShelf(t)
		s.write("image-policy.yaml", text)
		if said := s.refused("tool:1"); !strings.Contains(said, s.images.PolicyFile+": ") || !strings.Contains(said, words) {
			t.Errorf("%.60q: %s", text, said)
		}
		got, err := s.choose("tool:1", v1beta1.VerifyWarn)
		if err != nil || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], words) || got.Verified != "" {
			t.Errorf("%.60q, warn: %+v, %v", text, got, err)
		}
		if len(s.asked()) > 0 {
			t.Errorf("%.60q: %v", text, s.asked())
		}
	}
	// What is no file.
	s := newShelf(t)
	if err := os.Mkdir(s.images.PolicyFile, 0o700); err != nil {
		t.Fatal(err)
	}
	if said := s.refused("tool:1"); !strings.Contains(said, "is no file") {
		t.Error(said)
	}
	s = newShelf(t)
	s.identities(by)
	s.write("trusted_root.json", "{")
	s.push("tool:1")
	if said := s.refused("tool:1"); !strings.Contains(said, "the roots of trust in "+filepath.Join(s.dir, "trusted_root.json")+" cannot be read") {
		t.Error(said)
	}
}

// The first rule that fits an image is its rule, by the whole name of its repository.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		pattern, image string
		fits           bool
	}{
		{"ghcr.io/a/b", "ghcr.io/a/b:1", true}, {"ghcr.io/a/b", "ghcr.io/a/b@sha256:" + strings.Repeat("a", 64), true}, {"ghcr.io/a/b", "ghcr.io/a/bc", false}, {"ghcr.io/a/b", "ghcr.io/a/b/c", false},
		{"ghcr.io/a/*", "ghcr.io/a/b", true}, {"ghcr.io/a/*", "ghcr.io/a/b/c", false}, {"ghcr.io/a/**", "ghcr.io/a/b/c", true}, {"ghcr.io/a/*", "ghcr.io/ab/c", false},
		{"docker.io/library/*", "alpine", true}, {"docker.io/mcp/*", "mcp/fetch", true}, {"docker.io/mcp/*", "index.docker.io/mcp/fetch:2", true}, {"docker.io/mcp/*", "evil.example/docker.io/mcp/fetch", false},
		{"**", "ghcr.io/a/b", true}, {"ghcr.io/a.b/*", "ghcr.io/axb/c", false}, {"localhost:5000/*", "localhost:5000/x", true}, {"*.example.com/**", "a.example.com/x/y", true}, {"*.example.com/**", "evil/a.example.com/x", false},
		{"docker.io/mcp/*", "registry-1.docker.io/mcp/fetch:2", true}, {"docker.io/mcp/*", "registry.hub.docker.com/mcp/fetch", true}, {"ghcr.io/a/*", "ghcr.io:0443/a/b", true}, {"localhost:5000/*", "localhost:05000/x", true},
		{"ghcr.io/a/*", "GHCR.io/a/b", true}, {"ghcr.io/a/*", "ghcr.io:443/a/b", true}, {"GHCR.io:443/a/*", "ghcr.io/a/b", true}, {"ghcr.io/a/*", "ghcr.io:5000/a/b", false},
	} {
		p, err := pattern(c.pattern, true)
		ref, failed := parse(c.image)
		if err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if got := p.MatchString(ref.full()); got != c.fits {
			t.Errorf("%s and %s (%s): %v", c.pattern, c.image, ref.full(), got)
		}
	}
	i := &Images{PolicyFile: filepath.Join(t.TempDir(), "policy")}
	text := "images:\n- {image: ghcr.io/a/b, identities: [{issuer: i, subject: first}]}\n- {image: 'ghcr.io/**', identities: [{issuer: i, subject: second}], requireTlog: false}\n"
	if err := os.WriteFile(i.PolicyFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	entry := &v1beta1.ImageSigner{Issuer: "e", Identity: "entry"}
	for image, want := range map[string]string{"ghcr.io/a/b": "first true", "ghcr.io/a/c": "second false", "quay.io/a/b": "entry true"} {
		ref, _ := parse(image)
		r, err := i.rule(ref, entry)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.ids[0].names + map[bool]string{true: " true", false: " false"}[r.log]; got != want {
			t.Errorf("%s: %s", image, got)
		}
	}
	ref, _ := parse("quay.io/a/b")
	if _, err := i.rule(ref, nil); err == nil || !strings.Contains(err.Error(), "no rule says who has to sign quay.io/a/b") {
		t.Error(err)
	}
}

// An entry of a registry names a workflow, which is one of its repository, or the whole signer.
func TestEntrySigner(t *testing.T) {
	const repo, flow = "https://github.com/example/files", "/.github/workflows/release.yml"
	for _, c := range []struct {
		s    v1beta1.ImageSigner
		san  string
		fits bool
	}{
		{v1beta1.ImageSigner{Identity: flow, Repository: repo}, repo + flow + "@refs/tags/v1", true},
		{v1beta1.ImageSigner{Identity: flow, Repository: repo + "/"}, repo + flow + "@refs/heads/main", true},
		{v1beta1.ImageSigner{Identity: flow, Repository: repo, Ref: "refs/tags/v1"}, repo + flow + "@refs/tags/v2", false},
		{v1beta1.ImageSigner{Identity: flow, Repository: repo, Ref: "refs/tags/v1"}, repo + flow + "@refs/tags/v1", true},
		{v1beta1.ImageSigner{Identity: flow, Repository: repo}, "https://github.com/example/filesystem" + flow + "@refs/tags/v1", false},
		{v1beta1.ImageSigner{Identity: flow, Repository: repo}, repo + flow + ".other@refs/tags/v1", false},
		{v1beta1.ImageSigner{Identity: flow, Repository: repo}, "x" + repo + flow, false},
		{v1beta1.ImageSigner{Identity: "a@example.com"}, "a@example.com", true},
		{v1beta1.ImageSigner{Identity: "a@example.com"}, "a@example.com.evil", false},
		{v1beta1.ImageSigner{Identity: "a.*"}, "abc", false},
	} {
		c.s.Issuer = "i"
		id, err := ofEntry(&c.s)
		if err != nil {
			t.Fatal(err)
		}
		if got := id.subject.MatchString(c.san); got != c.fits {
			t.Errorf("%+v and %s: %v", c.s, c.san, got)
		}
	}
	for _, s := range []v1beta1.ImageSigner{{Identity: "a"}, {Issuer: "a"}, {Issuer: "a", Identity: flow}} {
		if _, err := ofEntry(&s); err == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}

// What is no name of an image is refused, and none is read as another.
func TestNames(t *testing.T) {
	for _, text := range []string{"", "A/b", "a b", "a:", "a@", "a@sha256:x", "a@md5:" + strings.Repeat("a", 32), "../x", "a/../b", "-x", "a:b:c:d/e:", "a\x00", strings.Repeat("a", 600), "a://b", "a@sha256:" + strings.Repeat("a", 64) + "@x"} {
		if r, err := parse(text); err == nil {
			t.Errorf("%q is %+v", text, r)
		}
	}
	for text, want := range map[string]string{
		"alpine": "docker.io/library/alpine latest ", "alpine:3": "docker.io/library/alpine 3 ", "localhost:5000/a": "localhost:5000/a latest ", "localhost:5000/a:1@sha256:" + strings.Repeat("a", 64): "localhost:5000/a 1 sha256:" + strings.Repeat("a", 64),
	} {
		if r, err := parse(text); err != nil || r.full()+" "+r.tag+" "+r.digest != want {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
}
