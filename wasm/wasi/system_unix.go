//go:build unix

package wasi

import (
	"io/fs"
	"syscall"
)

// withoutWaiting opens what has become a named pipe meanwhile without waiting for its other
// end.
const withoutWaiting = syscall.O_NONBLOCK

// inode is the number of a file.
func inode(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Ino)
	}
	return 0
}
