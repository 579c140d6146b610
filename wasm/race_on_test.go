//go:build race

package wasm

// slower is by how much the race detector makes the engine slower, about.
const slower = 100

// heavier is by how much more of the processors, and of the clock, a mutant may use. A call of the
// host takes longer here than its fuel to be refilled, so that a server that does nothing else ends
// by stretch: after up to 20 million of them.
const heavier = 6
