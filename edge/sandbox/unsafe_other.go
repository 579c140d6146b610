//go:build !linux

package sandbox

import (
	"os"
	"path/filepath"
)

// judgeRoot says why an open directory is not shown; "" when it may be. Where the kernel does
// not say what an open directory is called, the path has to lead to it still.
func judgeRoot(u *unsafePaths, given string, root *os.Root) string {
	real, err := filepath.EvalSymlinks(given)
	if err != nil {
		return cause(err)
	}
	now, err := os.Stat(real)
	if err != nil {
		return cause(err)
	}
	opened, err := root.Stat(".")
	if err != nil {
		return cause(err)
	}
	if !os.SameFile(now, opened) {
		return "it changes while it is opened"
	}
	return u.judgePath(given, real)
}
