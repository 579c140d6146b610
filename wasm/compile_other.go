//go:build !unix

package wasm

import "io/fs"

// ownDir leaves ownership to the system's own access lists.
func ownDir(string, fs.FileInfo) error { return nil }
