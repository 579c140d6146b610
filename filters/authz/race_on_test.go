//go:build race

package authz

const raceEnabled = true

// raceFactor is how many times slower the race detector makes what is bounded in time.
const raceFactor = 3
