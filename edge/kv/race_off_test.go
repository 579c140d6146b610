//go:build !race

package kv_test

// users is how many users the test of many users has.
const users = 1_000_000

// floodOf is how many tokens the test of a flood has, and floodHas the part of the
// uses of busy ones that has to find them.
const (
	floodOf  = 1_000_000
	floodHas = 0.99
)
