//go:build !race

package kv_test

// users is how many users the test of many users has.
const users = 1_000_000
