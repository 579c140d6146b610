//go:build !race

package incoming_test

// floodLoses is the part of the uses of busy tokens that a flood may cost.
const floodLoses = 0.01
