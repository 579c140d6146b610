//go:build race

package sandbox

const raceOn = true
