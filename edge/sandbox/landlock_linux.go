package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scopes is the version of Landlock from which on it holds abstract sockets and signals (Linux 6.12).
const scopes = 6

// landlockABI is the version of Landlock that the kernel has; 0 for none.
func landlockABI() int {
	n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(n)
}

// Rights of Landlock. Those of a file that is no directory are the first ones.
const (
	llFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	llRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	llAll  = unix.LANDLOCK_ACCESS_FS_TRUNCATE<<1 - 1 // up to ABI 4
)

// ruleset makes the ruleset of a view. The helper hands it to each process, which restricts
// itself to it: its rules are about what is there now, whatever paths lead to it later.
func (v *view) ruleset(abi int) (f *os.File, err error) {
	attr := struct{ fs, net, scoped uint64 }{fs: llAll}
	size := uintptr(16)
	if abi >= 5 {
		attr.fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= scopes {
		attr.scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = 24
	}
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if e != 0 {
		return nil, fmt.Errorf("landlock: %w", e)
	}
	f = os.NewFile(fd, "ruleset")
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	for _, e := range v.system {
		if e.link == "" {
			if err := v.allowShown(f, e.path); err != nil {
				return nil, err
			}
		}
	}
	for _, path := range v.prefixes {
		if err := allowPath(f, path, llRead); err != nil {
			return nil, err
		}
	}
	for _, path := range []string{"/proc", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf"} {
		if err := allowPath(f, path, unix.LANDLOCK_ACCESS_FS_READ_FILE|unix.LANDLOCK_ACCESS_FS_READ_DIR); err != nil {
			return nil, err
		}
	}
	for _, path := range devices {
		if err := allowPath(f, path, unix.LANDLOCK_ACCESS_FS_READ_FILE|unix.LANDLOCK_ACCESS_FS_WRITE_FILE); err != nil {
			return nil, err
		}
	}
	if err := allow(f, int(v.home.Fd()), llAll); err != nil {
		return nil, err
	}
	for _, m := range v.mounts {
		rights := uint64(llRead)
		if m.Writable {
			rights = llAll
		}
		if err := allow(f, int(m.file.Fd()), rights); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// scope makes a ruleset that keeps whoever restricts itself to it from abstract sockets of others,
// and from nothing else: in the machine's network namespace they are there for everybody.
func scope() (*os.File, error) {
	attr := struct{ fs, net, scoped uint64 }{scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET}
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), 24, 0)
	if e != 0 {
		return nil, fmt.Errorf("landlock: %w", e)
	}
	return os.NewFile(fd, "ruleset"), nil
}

// allowShown allows a path of the system to be read, less what is hidden of it: a rule is about all
// that is in a directory, so that one with something hidden in it has rules for the rest, one by one.
func (v *view) allowShown(ruleset *os.File, path string) error {
	if !slices.ContainsFunc(v.hidden, func(hidden string) bool { return below(hidden, path) }) {
		return allowPath(ruleset, path, llRead)
	}
	entries, _ := os.ReadDir(path) // what is not this user's to see needs no rule
	for _, e := range entries {
		in := filepath.Join(path, e.Name())
		if e.Type()&fs.ModeSymlink != 0 || slices.Contains(v.hidden, in) {
			continue // what a link leads to has a rule of its own, or none
		}
		if err := v.allowShown(ruleset, in); err != nil {
			return err
		}
	}
	return nil
}

// allowPath allows a path that may not be there.
func allowPath(ruleset *os.File, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // what is not there, or not this user's to see, needs no rule
	}
	defer unix.Close(fd)
	return allow(ruleset, fd, rights)
}

func allow(ruleset *os.File, fd int, rights uint64) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= llFile
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if e != 0 {
		return fmt.Errorf("landlock: %w", e)
	}
	return nil
}
