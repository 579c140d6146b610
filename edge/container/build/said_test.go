package build

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"
)

// What a failure shows has nothing of a secret, also where a long line was cut within it, and
// where a program writes it as a part of a URL.
func TestMasked(t *testing.T) {
	secrets := map[string][]byte{
		"npmrc": []byte("//npm.example.com/:_authToken=planted-secret-of-a-build\n"),
		"netrc": []byte("machine a.example\n login me\n password p/anted+secret@of\n"),
	}
	for line, want := range map[string]string{
		"it said planted-secret-of-a-build there":           "it said REDACTED there",
		strings.Repeat("x", 10) + "planted-secret-of-a":     strings.Repeat("x", 10) + "REDACTED",
		"GET https://me:p%2Fanted%2Bsecret%40of@b.example/": "GET https://me:REDACTED@b.example/",
		"Bearer cGxhbnRlZC1zZWNyZXQtb2YtYS1idWlsZA==":       "Bearer REDACTED==",
		"nothing of it": "nothing of it",
	} {
		if got := masked([]string{line}, secrets)[0]; got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
}

// What a build has made is looked through for the credentials of its secrets, wherever they
// stand in it. What else the secrets say, many a package says too.
func TestKeptSecrets(t *testing.T) {
	const word, other = "planted-secret-of-a-build", "p/anted+secret@of"
	secrets := [][]byte{
		[]byte("# the token: of-somebody-else\nregistry=https://npm.example.com/\n//npm.example.com/:_authToken=" + word + "\n"),
		[]byte("machine registry.npmjs.org\n login somebody\n password " + word + "\n"),
		[]byte("[[index]]\nname = \"own-packages\"\nurl = \"https://somebody:" + word + "@pypi.example.com/simple\"\n"),
		[]byte("https://" + word + "@pypi.example.com/simple\n"),
		[]byte(word),
	}
	for name, c := range map[string]struct{ at, text, target string }{
		"":                  {"app/plain", "registry=https://npm.example.com/ registry.npmjs.org of-somebody-else own-packages somebody pypi.example.com/simple", ""},
		"app/file":          {"app/file", "x" + word + "x", ""},
		"app/far":           {"app/far", strings.Repeat("x", 1<<20) + word, ""},
		"app/encoded":       {"app/encoded", "cGxhbnRlZC1zZWNyZXQtb2YtYS1idWlsZA==", ""},
		"app/is-" + word:    {"app/is-" + word, "", ""},
		"app/leads-to-it":   {"app/leads-to-it", "", "/" + word},
		"app/after-a-block": {"app/after-a-block", strings.Repeat("x", 1<<20+len(word)-5) + word + strings.Repeat("x", 1<<20), ""},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		h := &tar.Header{Typeflag: tar.TypeReg, Name: c.at, Size: int64(len(c.text)), Mode: 0o644}
		if c.target != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, c.target
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(c.text))
		_ = w.Close()
		s, err := readApp(&b, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for i, secret := range secrets {
			if at, err := s.holder(t.Context(), credentials(secret)); err != nil || at != name {
				t.Errorf("secret %d in %q: %q, %v", i, name, at, err)
			}
		}
		s.close()
	}
	if all := credentials([]byte("machine a login me password " + other)); !strings.Contains(strings.Join(all, " "), "p%2Fanted%2Bsecret%40of") {
		t.Errorf("%q", all)
	}
}
