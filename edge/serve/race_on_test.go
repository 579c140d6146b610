//go:build race

package serve_test

// raceEnabled: under the race detector a sync.Pool drops what it is given at
// random, so that counts of allocations mean nothing.
const raceEnabled = true
