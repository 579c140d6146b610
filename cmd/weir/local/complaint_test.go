package local

import "testing"

// What an installer says of its failure is told in one line, and not where its log is.
func TestComplaint(t *testing.T) {
	for want, said := range map[string][]string{
		"npm ERR! code SELF_SIGNED_CERT_IN_CHAIN; npm ERR! request to https://registry.npmjs.org/a failed, reason: self-signed certificate in certificate chain": { // npm 9
			"npm ERR! code SELF_SIGNED_CERT_IN_CHAIN",
			"npm ERR! request to https://registry.npmjs.org/a failed, reason: self-signed certificate in certificate chain",
			"npm ERR! A complete log of this run can be found in:",
			"npm ERR!     /home/a/.npm/_logs/2026-11-28T03_49_10_001Z-debug-0.log",
		},
		"npm error code E404; npm error 404 Not Found": { // npm 10
			"npm error code E404", "npm error 404 Not Found", "npm error A complete log of this run can be found in: /home/a/.npm/_logs/x-debug-0.log",
		},
		"error: no such package": {"resolving", "error: no such package"},
		"the last line":          {"the first line", "the last line"},
		"":                       nil,
	} {
		if got := complaint(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}
