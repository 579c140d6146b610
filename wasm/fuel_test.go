package wasm

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/weir-edge/weir/sdk/abi"
)

// fuelOf is what one call of a guest costs.
func fuelOf(t *testing.T, g *Guest, in []byte) int64 {
	t.Helper()
	before := g.Stats().Fuel
	if _, err := g.Call(context.Background(), hook, "", Sender{}, in, nil); err != nil {
		t.Fatal(err)
	}
	return int64(g.Stats().Fuel - before)
}

// TestFuelIsWhatRuns: a guest pays for the instructions that run, and for no
// others.
func TestFuelIsWhatRuns(t *testing.T) {
	const entry, constant = costEntry, 1 // of the hook; its result
	ten := bytes.Repeat(seq(i32(1), set(1)), 5)
	for name, c := range map[string]struct {
		hook []byte
		want int64
	}{
		"nothing":    {nil, 0},
		"ten":        {ten, 10},
		"an if":      {seq(i32(1), ins(opIf, blockVoid), ten, ins(opElse), ten, ten, ins(opEnd)), 2 + 10},
		"an else":    {seq(i32(0), ins(opIf, blockVoid), ten, ins(opElse), ten, ten, ins(opEnd)), 2 + 20},
		"no if":      {seq(i32(0), ins(opIf, blockVoid), ten, ins(opEnd)), 2},
		"left":       {block(i32(1), ins(opBrIf, 0), ten), 2},
		"not left":   {block(i32(0), ins(opBrIf, 0), ten), 12},
		"left early": {seq(block(block(i32(1), ins(opBrIf, 1), ten), ten), ten), 2 + 10},
		"dropped":    {seq(i32(1), ins(opDrop, opNop)), 1},
		// 7 turns, of each 1 for the loop and 7 for its instructions
		"a loop": {loop(get(1), i32(1), ins(opAdd32, opLocalTee, 1), i32(7), ins(0x49, opBrIf, 0)), 7 * 8},
		// As the Go toolchain makes loops: every turn goes through a table of all
		// blocks, and one of them runs.
		"a table": {loop(bytes.Repeat(ins(opBlock, blockVoid), 500), get(1), ins(opBrTable, 2, 0, 1, 2),
			ins(opEnd), ten, i32(1), set(1), ins(opBr), appendU32(nil, 499),
			ins(opEnd), ten, ten, i32(2), set(1), ins(opBr), appendU32(nil, 498),
			ins(opEnd), bytes.Repeat(seq(ins(opEnd)), 497)), (3 + 13) + (3 + 23) + 3},
	} {
		g := open(t, guestEncoder().hook("\x01\x7f", c.hook, i64(0)).bytes())
		if got := fuelOf(t, g, nil) - entry - constant; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestGoGuestScans: a Go guest that looks at every byte of the largest input
// does so on the fuel that it is given, and pays for it by the byte.
func TestGoGuestScans(t *testing.T) {
	g := openGo(t, func(b *Binding) { b.Limits.Timeout = time.Minute })
	const size = 1<<20 - 64
	in := abi.AppendBytes(callRecord("scan"), abi.CallArguments, bytes.Repeat([]byte("ab c"), size/4))
	few := fuelOf(t, g, in[:len(callRecord("scan"))])
	whole := fuelOf(t, g, in) - few
	t.Logf("%.1f fuel a byte", float64(whole)/size)
	if whole > 40*size {
		t.Errorf("%d fuel for %d bytes", whole, size)
	}
}
