//go:build race

package edgetest

// Slower is how many times as long something may take, and how many times as much memory,
// under the race detector.
const Slower = 10
