package wasm

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/sdk/abi"
)

// TestCheck learns of a module what can be learnt without running it, and
// refuses what Compile would.
func TestCheck(t *testing.T) {
	e := guestEncoder(func(e *encoder) {
		e.imported(abi.ImportModule, "now_ms", "", vI64)
		e.imported(abi.ImportModule, "random", vI32+vI32, vI32)
	}).hook("", i64(0))
	said := append(appendName(nil, ManifestSection), `{"name":"x"}`...)
	b := append(appendU32(append(e.bytes(), sectionCustom), uint32(len(said))), said...)
	a, err := Check(b)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Hooks, []abi.Hook{hook}) || a.Minimum != pageSize || string(a.Manifest) != `{"name":"x"}` || len(a.Digest) != 64 {
		t.Errorf("%+v with manifest %q", a, a.Manifest)
	}
	if len(a.Needs) != 1 || a.Needs[0] != (Need{"weir_v1.random", abi.GrantRandom}) {
		t.Errorf("it needs %v", a.Needs)
	}
	if a, err := Check(guestEncoder().bytes()); err != nil || a.Manifest != nil {
		t.Errorf("a module without a manifest: %+v, %v", a, err)
	}
	var refusal *Refusal
	if _, err := Check([]byte("\x00asm\x01\x00\x00\x00")); !errors.As(err, &refusal) {
		t.Errorf("a module without the exports of a guest: %v", err)
	}
	names := append(appendName(nil, "name"), make([]byte, maxCustom)...)
	named := append(appendU32(append(echoing(), sectionCustom), uint32(len(names))), names...)
	if err := CheckServer(named); err == nil || !strings.Contains(err.Error(), "leave them out (Rust: -C strip=symbols") {
		t.Errorf("a server with its names: %v", err)
	}
	if _, err := Check(waiting()); err == nil || !strings.Contains(err.Error(), "_start is there and weir_abi is not: this is a program") {
		t.Errorf("a server: %v", err)
	}
}
