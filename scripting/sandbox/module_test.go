package sandbox

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"runtime"
	"testing"
)

// TestModule: the module that lies in the program is the one that its sources make, byte
// for byte where the same version of Go made it. With another version, what that makes
// does the same.
func TestModule(t *testing.T) {
	own, err := interpreter()
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(own.code)); sum != own.digest {
		t.Errorf("guest.txt says %s, and the module is %s: run go generate", own.digest, sum)
	}
	if testing.Short() {
		t.Skip("the module is built anew without -short")
	}
	fresh := built(t, "./guest", "")
	if fresh.made == own.made {
		if !bytes.Equal(fresh.code, own.code) {
			t.Errorf("%s makes another module of these sources, %d bytes and not %d: run go generate", fresh.made, len(fresh.code), len(own.code))
		}
		return
	}
	t.Logf("the module was made by %s, and this is %s", own.made, runtime.Version())
	e := newEngine(Options{CacheDir: shared.cache()}, func() (module, error) { return fresh, nil })
	t.Cleanup(e.Close)
	if err := e.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	differ(t, e, 200)
}

// TestModuleBroken: what is no module, or another, is refused.
func TestModuleBroken(t *testing.T) {
	for name, c := range map[string]struct {
		packed []byte
		about  string
	}{
		"no gzip":    {[]byte("garbage"), about},
		"cut":        {packed[:len(packed)/2], about},
		"no digest":  {packed, "go go1.26\n"},
		"no version": {packed, "sha256 00\n"},
	} {
		if _, err := unpack(c.packed, c.about, largestModule); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := unpack(packed, about, 1<<20); err == nil {
		t.Error("too large: no error")
	}
	e := newEngine(Options{}, func() (module, error) { return unpack(packed, "sha256 00\ngo go1.26\n", largestModule) })
	defer e.Close()
	err := e.Ready(t.Context())
	contains(t, fmt.Sprint(err), ErrNotReady.Error())
	contains(t, fmt.Sprint(err), "00 is asked for")
}
