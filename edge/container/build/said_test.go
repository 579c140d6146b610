package build

import (
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
