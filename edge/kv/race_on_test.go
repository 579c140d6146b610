//go:build race

package kv_test

// users is how many users the test of many users has. The race detector makes
// each take a hundred times as long.
const users = 100_000

// floodOf is how many tokens the test of a flood has. Ristretto counts how often
// keys are asked for in a sync.Pool, which loses most under the race detector: no
// use of a token has to find it then.
const (
	floodOf  = 200_000
	floodHas = 0.0
)
