package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAuthMistakes holds what the commands of logins say to what is typed wrong, of what is
// kept, and of what is damaged. No token is shown.
func TestAuthMistakes(t *testing.T) {
	where := places(t)
	mistakesAt(t, "auth", nil, where, func(t *testing.T, args []string) (string, int) {
		config, err := filepath.Abs("config")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(config, "weir"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("XDG_CONFIG_HOME", config)
		var out strings.Builder
		code := runWeir(args, &out, &out, "TERM=xterm")
		if strings.Contains(out.String(), "PLANTED") {
			t.Errorf("%q shows a token: %s", args, &out)
		}
		said := strings.ReplaceAll(out.String(), config, "$CONFIG")
		return said, code
	})
}
