//go:build !race

package starlark_test

import (
	"testing"

	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// TestP20 costs a call of a filter of one branch at most 25 allocations. Under the race
// detector pools drop some of what they are given.
func TestP20(t *testing.T) {
	for _, path := range []string{"/home/ann/notes", "/etc/passwd"} {
		g := open(t, wasm.Binding{}, branching)
		in, out, ctx := branchingInput(path).Append(nil, 0), make([]byte, 0, 1024), t.Context()
		n := testing.AllocsPerRun(200, func() {
			if _, err := g.Call(ctx, abi.OnCallRequest, "", wasm.Sender{}, in, out); err != nil {
				t.Fatal(err)
			}
		})
		if n > 25 {
			t.Errorf("%s: %v allocations", path, n)
		}
	}
}
