//go:build unix

package apps

import (
	"io/fs"
	"os"
	"syscall"
)

const onUnix = true

// keepOwner gives a new file the owner and the group of the one that it takes the place of.
func keepOwner(f *os.File, old fs.FileInfo) error {
	was, ok := old.Sys().(*syscall.Stat_t)
	info, err := f.Stat()
	if err != nil || !ok {
		return err
	}
	if is, ok := info.Sys().(*syscall.Stat_t); ok && (is.Uid != was.Uid || is.Gid != was.Gid) {
		return f.Chown(int(was.Uid), int(was.Gid))
	}
	return nil
}

// syncDir makes sure that what was renamed in a directory stays so.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
