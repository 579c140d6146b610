//go:build race

package incoming_test

// floodLoses is the part of the uses of busy tokens that a flood may cost. How
// often tokens are asked for is counted in a sync.Pool (ristretto), which loses
// most under the race detector.
const floodLoses = 1
