//go:build race

package scripting_test

const raceOn = true
