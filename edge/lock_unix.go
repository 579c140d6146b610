//go:build !windows

package edge

import (
	"errors"
	"os"
	"syscall"
)

// LockFile takes the lock of a file, which it makes where there is none. It never waits; the
// error is ErrHeld while another process has the lock. To close the file gives it back, and
// so does the end of the process.
func LockFile(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrHeld
		}
		mine, failed := f.Stat()
		now, gone := os.Lstat(path)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || failed != nil:
			f.Close()
			return nil, errors.Join(err, failed)
		case gone == nil && os.SameFile(mine, now):
			return f, nil
		}
		f.Close() // it was removed meanwhile: the lock of what nobody finds is none
	}
}
