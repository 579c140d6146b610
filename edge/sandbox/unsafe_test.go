package sandbox

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
)

// The home of the user is guarded wherever the environment says that it is, or does not say it.
func TestHomeIsGuarded(t *testing.T) {
	is, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil || !filepath.IsAbs(is.HomeDir) || is.HomeDir == "/" {
		t.Fatal("this user has no home: the test needs one")
	}
	for _, said := range []string{is.HomeDir, "", "relative", t.TempDir()} {
		t.Setenv("HOME", said)
		u := newUnsafe(&Config{})
		for _, path := range []string{is.HomeDir, filepath.Join(is.HomeDir, ".ssh"), filepath.Join(is.HomeDir, ".docker", "config.json")} {
			if u.why(path) == "" {
				t.Errorf("with HOME=%q %s is shown", said, path)
			}
		}
	}
}
