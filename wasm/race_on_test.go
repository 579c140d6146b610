//go:build race

package wasm

// slower is by how much the race detector makes the engine slower, about.
const slower = 100

// heavier is by how much more of the processors a mutant may use. A call of the host takes longer
// here than what it costs in fuel is refilled, so that a server that does nothing else ends by
// stretch: after 20 million of them.
const heavier = 3
