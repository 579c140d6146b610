//go:build race

package wasm

// slower is by how much the race detector makes the engine slower, about.
const slower = 100
