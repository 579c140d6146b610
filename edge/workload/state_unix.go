//go:build unix

package workload

import (
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
