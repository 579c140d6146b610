package wasm

import (
	"context"
	"slices"
	"testing"

	"github.com/weir-edge/weir/sdk/abi"
)

// TestDescribe: what a module needs to be granted, and the memory of the
// instances that rest.
func TestDescribe(t *testing.T) {
	e := guestEncoder(func(e *encoder) {
		e.imported(abi.ImportModule, "kv_get", vI32+vI32+vI32+vI32, vI64)
		e.imported(abi.ImportModule, "log_level", "", vI32)
		e.imported(abi.ImportModule, "kv_incr", vI32+vI32+vI64+vI64, vI64)
		e.imported(abi.ImportModule, "hmac", vI32+vI32+vI32+vI32+vI32, vI64)
	})
	e.memory.min = 3
	m, err := testCompiler(t).Compile(context.Background(), e.hook("", i64(0)).bytes(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := m.Grants(); !slices.Equal(got, []string{abi.GrantKV, abi.GrantKeys}) {
		t.Errorf("it needs %v", got)
	}
	g, err := m.Open(context.Background(), Binding{Name: "test", Grants: m.Grants(), Limits: Limits{Instances: 2, Prewarm: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for range 2 { // asking takes no instance away
		if got := g.Memory(); got != 3*pageSize {
			t.Errorf("%d bytes of memory", got)
		}
	}
	if got := open(t, scanner().bytes()).module.Grants(); got != nil {
		t.Errorf("a guest without host functions needs %v", got)
	}
}
