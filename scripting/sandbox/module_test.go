package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"

	"github.com/weir-edge/weir/wasm"
)

// TestModule: the module that lies in the program is the one that its sources make, byte
// for byte where the same version of Go made it. With another version, what that makes
// does the same.
func TestModule(t *testing.T) {
	own, err := interpreter()
	if err != nil {
		t.Fatal(err)
	}
	code := unpacked(t, own)
	if sum := digest(code); sum != own.digest {
		t.Errorf("guest.txt says %s, and the module is %s: run go generate", own.digest, sum)
	}
	p, err := wasm.PrepareInterpreter(code, own.digest)
	if err != nil {
		t.Fatal(err)
	}
	if sum := digest(p.Encode()); sum != own.prepared {
		t.Errorf("guest.txt says that %s is made of it, and it is %s: run go generate", own.prepared, sum)
	}
	if testing.Short() {
		t.Skip("the module is built anew without -short")
	}
	fresh := built(t, "./guest", "")
	if fresh.made == own.made {
		if made := unpacked(t, fresh); !bytes.Equal(made, code) {
			t.Errorf("%s makes another module of these sources, %d bytes and not %d: run go generate", fresh.made, len(made), len(code))
		}
		return
	}
	t.Logf("the module was made by %s, and this is %s", own.made, runtime.Version())
	o := patient
	o.CacheDir = shared.cache()
	e := newEngine(o, func() (module, error) { return fresh, nil })
	t.Cleanup(e.Close)
	if err := e.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	differ(t, e, 200)
}

func unpacked(t testing.TB, m module) []byte {
	t.Helper()
	code, err := m.code()
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// TestPrepared: what is made of the module is kept for the next start, and counts by its
// digest alone.
func TestPrepared(t *testing.T) {
	own, err := interpreter()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "interpreter-"+own.prepared)
	first, err := own.prepare(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(kept, first.Encode()) {
		t.Fatal("nothing, or something else, is kept:", err)
	}
	again := own
	again.packed = nil // so that nothing but the file can serve
	second, err := again.prepare(dir)
	if err != nil || !reflect.DeepEqual(second, first) {
		t.Fatal("what is kept is another module:", err)
	}
	for name, b := range map[string][]byte{
		"changed": bytes.Replace(kept, []byte("weir.fuel"), []byte("weir.fool"), 1), "cut": kept[:len(kept)/2], "empty": {}, "larger": append(kept[:len(kept):len(kept)], 0),
	} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := own.prepare(dir); err != nil || !reflect.DeepEqual(p, first) {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, kept) {
			t.Errorf("%s: the file was not mended: %v", name, err)
		}
	}
	if p, err := own.prepare(filepath.Join(dir, "none")); err != nil || !reflect.DeepEqual(p, first) {
		t.Error("a directory that cannot be written to:", err)
	}
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
		m, err := moduleOf(c.packed, c.about)
		if err == nil {
			_, err = m.code()
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	large := module{packed: packed, most: 1 << 20}
	if _, err := large.code(); err == nil {
		t.Error("too large: no error")
	}
	e := newEngine(Options{}, func() (module, error) { return moduleOf(packed, "sha256 00\ngo go1.26\n") })
	defer e.Close()
	err := e.Ready(t.Context())
	contains(t, fmt.Sprint(err), ErrNotReady.Error())
	contains(t, fmt.Sprint(err), "00 is asked for")
}
