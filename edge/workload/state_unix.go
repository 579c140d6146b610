//go:build unix

package workload

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

const onUnix = true

// noFollow has the opening of a file fail that is a symbolic link.
const noFollow = syscall.O_NOFOLLOW

// owned says why what lies at a path is not this user's alone.
func owned(path string, info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to the user with the id %d, and Weir runs as %d: chown or remove it", path, stat.Uid, os.Geteuid())
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		want := "600"
		if info.IsDir() {
			want = "700"
		}
		return fmt.Errorf("%s has the mode %04o, so that others can reach it: chmod %s %s", path, mode, want, path)
	}
	return nil
}

// ErrHeld says that another process holds a lock.
var ErrHeld = errors.New("another process holds it")

// LockFile takes the lock of a file, which it makes where there is none. It never waits; the
// error is ErrHeld while another process has the lock. To close the file gives it back, and
// so does the end of the process.
func LockFile(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
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
		case err != nil || failed != nil:
			f.Close()
			return nil, errors.Join(err, failed)
		case gone == nil && os.SameFile(mine, now):
			return f, nil
		}
		f.Close() // it was removed meanwhile: the lock of what nobody finds is none
	}
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

// maxSocket is how long the path of a socket may be, in bytes, on every system.
const maxSocket = 100

// shortened returns another path of a socket where its own is too long for the system. done
// is called when it has been used.
func shortened(socket string) (path string, done func(), err error) {
	if len(socket) <= maxSocket {
		return socket, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("%s is too long for a socket: set XDG_RUNTIME_DIR, or WEIR_HOME, to a shorter path", socket)
	}
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket)), func() { dir.Close() }, nil
}
