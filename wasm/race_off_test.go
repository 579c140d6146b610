//go:build !race

package wasm

// slower is by how much the race detector makes the engine slower.
const slower = 1
