//go:build race

package kv_test

// users is how many users the test of many users has. The race detector makes
// each take a hundred times as long.
const users = 100_000
