//go:build linux

package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// statusFD takes what keeps a server from being started.
const statusFD = 3

// become makes this process the server: it takes away what the sandbox does not give, and
// does exec. It returns only when that fails.
func become(s setup, dir string, argv []string) int {
	runtime.LockOSThread() // filter and ruleset belong to this thread, which is the one that does exec
	unix.CloseOnExec(statusFD)
	if s.landlock || s.scope {
		unix.CloseOnExec(rulesetFD)
	}
	err := s.become(dir, argv)
	text := err.Error()
	_, _ = unix.Write(statusFD, []byte(text[:min(len(text), 500)]))
	return 127
}

func (s setup) become(dir string, argv []string) error {
	limits := []struct {
		which int
		n     uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_MSGQUEUE, tagLimit(s.tag)},
		{unix.RLIMIT_NOFILE, uint64(s.files)},
		{unix.RLIMIT_NPROC, uint64(s.procs)},
	}
	for _, l := range limits {
		if l.n == 0 && l.which != unix.RLIMIT_CORE {
			continue
		}
		var now syscall.Rlimit // one that is lower already stays so: nobody may raise it
		if l.which != unix.RLIMIT_MSGQUEUE && syscall.Getrlimit(l.which, &now) == nil {
			l.n = min(l.n, now.Max)
		}
		if err := syscall.Setrlimit(l.which, &syscall.Rlimit{Cur: l.n, Max: l.n}); err != nil {
			return fail("limit "+strconv.Itoa(l.which), err)
		}
	}
	if s.landlock || s.scope {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fail("no_new_privs", err)
		}
		if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rulesetFD, 0, 0); e != 0 {
			return fail("landlock", e)
		}
	}
	if err := unix.Chdir(dir); err != nil {
		return fail(dir, err)
	}
	path, err := look(argv[0])
	if err != nil {
		return err
	}
	if s.filter {
		if err := load(filter(s)); err != nil {
			return fail("seccomp", err)
		}
	}
	return fail(path, syscall.Exec(path, argv, os.Environ()))
}

// look finds a program as a shell does, among what the sandbox shows.
func look(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	err := error(unix.ENOENT)
	for _, dir := range strings.Split(os.Getenv("PATH"), ":") {
		if !strings.HasPrefix(dir, "/") {
			continue
		}
		path := dir + "/" + name
		var info unix.Stat_t
		if e := unix.Stat(path, &info); e != nil || info.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if e := unix.Access(path, unix.X_OK); e != nil {
			err = e
			continue
		}
		return path, nil
	}
	return "", fail(name+": not found in PATH of the sandbox", err)
}

// load has this thread's system calls filtered, for good.
func load(program []unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&p)))
	if e != 0 {
		return e
	}
	return nil
}

type failure struct {
	what string
	err  error
}

func fail(what string, err error) error { return &failure{what, err} }

func (f *failure) Error() string { return f.what + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }
