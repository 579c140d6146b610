//go:build !unix

package wasi

import "io/fs"

const withoutWaiting = 0 // no file is a named pipe here

// inode is the number of a file: none here, where only an open one has it.
func inode(fs.FileInfo) uint64 { return 0 }
