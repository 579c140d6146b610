package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// OpenWithin opens a file or directory of this machine to be read for a server that has mounts.
// Of one that it may write to no link leads out: the server may have made it.
func OpenWithin(mounts []Mount, path string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK // a named pipe would wait for its other end
	dir, rest := into(mounts, path)
	if dir == "" {
		return os.OpenFile(path, flags, 0)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(rest, flags, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: no link is followed out of %s, which the server may write to", err, dir)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// into follows a path, link by link, until it comes to a mounted directory that the server may
// write to, and returns that one, in which no link is left, and what of the path is below it;
// "" where it comes to none.
func into(mounts []Mount, path string) (dir, rest string) {
	var servers []os.FileInfo
	for _, m := range mounts {
		if info, err := os.Stat(m.Host); err == nil && m.Writable && info.IsDir() {
			servers = append(servers, info)
		}
	}
	if len(servers) == 0 || !filepath.IsAbs(path) {
		return "", ""
	}
	split := func(path string) (root string, parts []string) {
		volume := filepath.VolumeName(path)
		return volume + string(filepath.Separator), strings.Split(filepath.ToSlash(path[len(volume):]), "/")
	}
	dir, parts := split(path)
	for links := 0; ; {
		info, err := os.Lstat(dir)
		if err != nil {
			return "", "" // whoever opens it says so
		}
		if info.Mode()&os.ModeSymlink != 0 {
			to, err := os.Readlink(dir)
			if links++; err != nil || links > 40 { // as many as the kernel follows
				return "", ""
			}
			dir = filepath.Dir(dir)
			root, more := split(to)
			if filepath.IsAbs(to) {
				dir = root
			}
			parts = append(more, parts...)
		} else if slices.ContainsFunc(servers, func(server os.FileInfo) bool { return os.SameFile(server, info) }) {
			return dir, filepath.Join(append([]string{"."}, parts...)...)
		}
		if len(parts) == 0 {
			return "", ""
		}
		dir, parts = filepath.Join(dir, parts[0]), parts[1:] // of a directory in which no link is left, .. is the one above
	}
}
