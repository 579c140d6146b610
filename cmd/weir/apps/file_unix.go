//go:build unix

package apps

import (
	"errors"
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

// errHeld says that another process holds a lock.
var errHeld = errors.New("another process holds it")

// lockFile takes a lock without waiting. To close the file gives it back, and so does the end
// of the process.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errHeld
		}
		return nil, err
	}
	return f, nil
}
