//go:build race

package guest_test

// raceFactor is how many times slower the race detector makes what is bounded in time.
const raceFactor = 3
