//go:build unix

package wasm

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ownDir fails when a directory belongs to somebody else.
func ownDir(dir string, info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: belongs to user %d", dir, stat.Uid)
	}
	return nil
}
