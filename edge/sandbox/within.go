package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// OpenWithin opens a file or directory of this machine to be read for a server that has mounts.
// Of one that it may write to no link leads out: the server may have made it.
func OpenWithin(mounts []Mount, path string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK // a named pipe would wait for its other end
	dir, rest := into(mounts, path)
	if dir == "" {
		f, err := os.OpenFile(path, flags, 0)
		if err != nil {
			return nil, err
		}
		return plain(f)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(rest, flags, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w (no link is followed out of %s, which the server may write to)", path, err, dir)
	}
	return plain(f)
}

// plain refuses what is no file and no directory: to read a named pipe that somebody holds open may
// never end.
func plain(f *os.File) (*os.File, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() && f.Name() != os.DevNull {
		err = fmt.Errorf("%s is no file and no directory", f.Name())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// into follows a path, link by link, until it comes to a mounted directory that the server may
// write to, and returns that one, in whose path no link is left, and what is below it, from a dot
// on; "" where it comes to none.
func into(mounts []Mount, path string) (dir, rest string) {
links:
	for range 40 { // as many as the kernel follows
		for i := len(filepath.VolumeName(path)) + 1; i <= len(path); i++ {
			if i < len(path) && !os.IsPathSeparator(path[i]) {
				continue
			}
			at := path[:i]
			info, err := os.Lstat(at)
			if err != nil {
				return "", "" // whoever opens it says so
			}
			if info.Mode()&os.ModeSymlink != 0 {
				to, _ := os.Readlink(at)
				if !filepath.IsAbs(to) {
					to = filepath.Dir(at) + "/" + to // not cleaned: .. is above what a link leads to
				}
				path = to + path[i:]
				continue links
			}
			if slices.ContainsFunc(mounts, func(m Mount) bool {
				host, err := os.Stat(m.Host)
				return m.Writable && err == nil && host.IsDir() && os.SameFile(host, info)
			}) {
				return at, "." + path[i:]
			}
		}
		break
	}
	return "", ""
}
