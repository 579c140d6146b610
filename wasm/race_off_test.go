//go:build !race

package wasm

// slower is by how much the race detector makes the engine slower.
const slower = 1

// heavier is by how much more of the processors, and of the clock, a mutant may use.
const heavier = 1
