//go:build race

package mcp

// raceEnabled: under the race detector a sync.Pool drops what it is given at
// random, so that counts of allocations mean nothing.
const raceEnabled = true
