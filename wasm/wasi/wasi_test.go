package wasi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// ram is the memory of an instance that a test plays.
type ram []byte

func (r ram) Read(p, n uint32) ([]byte, bool) {
	if uint64(p)+uint64(n) > uint64(len(r)) {
		return nil, false
	}
	return r[p : p+n : p+n], true
}

// played is an instance that a test plays: it calls functions by their names.
type played struct {
	t testing.TB
	*System
	ram
	done  chan struct{}
	slept time.Duration
}

func play(t testing.TB, dirs ...Dir) *played {
	p := &played{t: t, ram: make(ram, 1<<20), done: make(chan struct{})}
	p.System = New(Config{
		Args: []string{"server", "one"}, Env: []string{"A=b", "C="}, Dirs: dirs,
		Stdin: NewPipe(), Stdout: NewPipe(), Stderr: NewPipe(), Done: p.done,
		Slept: func(d time.Duration) { p.slept += d },
	})
	t.Cleanup(p.Close)
	return p
}

var functions = func() map[string]*Function {
	m := map[string]*Function{}
	for _, f := range Functions() {
		m[f.Name] = &f
	}
	return m
}()

// call calls a function, and returns its error number.
func (p *played) call(name string, args ...uint64) errno {
	p.t.Helper()
	n, err := p.try(name, args...)
	if err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	return n
}

func (p *played) try(name string, args ...uint64) (errno, error) {
	stack := append(args, make([]uint64, 10)...)
	err := functions[name].Call(p.System, p.ram, stack)
	return errno(stack[0]), err
}

func (p *played) u32(at int) uint32 { return binary.LittleEndian.Uint32(p.ram[at:]) }
func (p *played) u64(at int) uint64 { return binary.LittleEndian.Uint64(p.ram[at:]) }

// text puts a text into the memory, and returns where and how long.
func (p *played) text(at int, s string) (uint64, uint64) {
	copy(p.ram[at:], s)
	return uint64(at), uint64(len(s))
}

// open opens a path below the nth directory.
func (p *played) open(dir int, path string, how, rights uint64) (fd uint64, n errno) {
	at, size := p.text(1000, path)
	n = p.call("path_open", uint64(3+dir), followLinks, at, size, how, rights, 0, 0, 64)
	return uint64(p.u32(64)), n
}

// vector puts one buffer into the memory, and returns where its vector stands.
func (p *played) vector(at, size int) uint64 {
	binary.LittleEndian.PutUint32(p.ram[128:], uint32(at))
	binary.LittleEndian.PutUint32(p.ram[132:], uint32(size))
	return 128
}

func (p *played) read(fd uint64) (string, errno) {
	n := p.call("fd_read", fd, p.vector(8192, 4096), 1, 64)
	return string(p.ram[8192 : 8192+p.u32(64)]), n
}

func (p *played) write(fd uint64, text string) errno {
	at, size := p.text(8192, text)
	return p.call("fd_write", fd, p.vector(int(at), int(size)), 1, 64)
}

func openRoot(t testing.TB, path string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// What an instance is given, it has: arguments, variables, random numbers of its own, clocks.
func TestGiven(t *testing.T) {
	p := play(t)
	if n := p.call("args_sizes_get", 0, 4); n != 0 || p.u32(0) != 2 || p.u32(4) != 11 {
		t.Errorf("args_sizes_get: %d, %d texts of %d bytes", n, p.u32(0), p.u32(4))
	}
	if n := p.call("environ_get", 0, 100); n != 0 || !bytes.HasPrefix(p.ram[p.u32(0):], []byte("A=b\x00")) || !bytes.HasPrefix(p.ram[p.u32(4):], []byte("C=\x00")) {
		t.Errorf("environ_get: %d", n)
	}
	other := play(t)
	if a, b := p.call("random_get", 0, 64), other.call("random_get", 0, 64); a != 0 || b != 0 || bytes.Equal(p.ram[:64], other.ram[:64]) {
		t.Errorf("random numbers of two instances: %d, %d, %x", a, b, p.ram[:64])
	}
	if n := p.call("clock_time_get", 0, 0, 0); n != 0 || time.Since(time.Unix(0, int64(p.u64(0)))).Abs() > 10*time.Second {
		t.Errorf("the real clock: %d, %d", n, p.u64(0))
	}
	if n := p.call("clock_time_get", 1, 0, 0); n != 0 || p.u64(0) == 0 || p.u64(0)%uint64(time.Millisecond) != 0 {
		t.Errorf("the monotonic clock: %d, %d", n, p.u64(0))
	}
	if n := p.call("clock_res_get", 1, 0); n != 0 || p.u64(0) != 1_000_000 {
		t.Errorf("the resolution: %d, %d", n, p.u64(0))
	}
	if n := p.call("clock_time_get", 2, 0, 0); n != eNotsup {
		t.Errorf("the clock of processes: %d", n)
	}
	var exit *Exit
	if _, err := p.try("proc_exit", 7); !errors.As(err, &exit) || exit.Code != 7 {
		t.Errorf("proc_exit: %v", err)
	}
}

// subscribe writes the nth subscription: to a clock in so many milliseconds, or to a
// descriptor.
func (p *played) subscribe(n int, kind byte, what uint64) {
	b := p.ram[16384+n*subscriptionSize:][:subscriptionSize]
	clear(b)
	binary.LittleEndian.PutUint64(b, uint64(n)+100)
	b[8] = kind
	if kind == kindClock {
		binary.LittleEndian.PutUint32(b[16:], clockMonotonic)
		binary.LittleEndian.PutUint64(b[24:], what*uint64(time.Millisecond))
		return
	}
	binary.LittleEndian.PutUint32(b[16:], uint32(what))
}

// A program that has not looked at the flags of standard input waits in fd_read, as those in C
// and Rust do.
func TestStandardInputWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where time passes while the read waits, and not before
		p := play(t)
		time.AfterFunc(20*time.Millisecond, func() { _, _ = p.Stdin.Write([]byte("hello")) })
		if text, n := p.read(0); n != 0 || text != "hello" || p.slept < 10*time.Millisecond {
			t.Errorf("read: %d, %q after %s", n, text, p.slept)
		}
	})
}

// A program in C or Rust looks at the flags, as isatty does, and waits in a read all the same.
func TestStandardInputOfWhoLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := play(t)
		p.System = New(Config{Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, Waits: true, Done: p.done, Slept: p.Slept})
		if n := p.call("fd_fdstat_get", 0, 0); n != 0 || p.ram[0] != typeChar || p.ram[2] != 0 {
			t.Errorf("stdin: %d, type %d, flags %d", n, p.ram[0], p.ram[2])
		}
		time.AfterFunc(20*time.Millisecond, func() { _, _ = p.Stdin.Write([]byte("hello")) })
		if text, n := p.read(0); n != 0 || text != "hello" || p.slept < 10*time.Millisecond {
			t.Errorf("read: %d, %q after %s", n, text, p.slept)
		}
	})
}

// Standard input is non-blocking: its flags say so, and there is nothing or there is something.
// poll_oneoff sleeps until one of input and time comes, and ends with the session.
func TestStandardInput(t *testing.T) {
	p := play(t)
	if n := p.call("fd_fdstat_get", 0, 0); n != 0 || p.ram[2] != flagNonblock {
		t.Errorf("the flags of stdin: %d, %d", n, p.ram[2])
	}
	if _, n := p.read(0); n != eAgain {
		t.Errorf("with nothing to read: %d", n)
	}
	// 1. The clock is first.
	p.subscribe(0, kindRead, 0)
	p.subscribe(1, kindClock, 20)
	if n := p.call("poll_oneoff", 16384, 32768, 2, 64); n != 0 || p.u32(64) != 1 || p.u64(32768) != 101 || p.slept < 20*time.Millisecond {
		t.Errorf("waiting for a clock: %d, %d events, of %d, after %s", n, p.u32(64), p.u64(32768), p.slept)
	}
	// 2. Input is.
	p.subscribe(1, kindClock, 60_000)
	time.AfterFunc(20*time.Millisecond, func() { _, _ = p.Stdin.Write([]byte("hello")) })
	if n := p.call("poll_oneoff", 16384, 32768, 2, 64); n != 0 || p.u32(64) != 1 || p.u64(32768) != 100 || p.u64(32768+16) != 5 {
		t.Errorf("waiting for input: %d, %d events, of %d with %d bytes", n, p.u32(64), p.u64(32768), p.u64(32768+16))
	}
	if text, n := p.read(0); n != 0 || text != "hello" {
		t.Errorf("read: %d, %q", n, text)
	}
	// 3. One that wants to wait in fd_read does.
	if n := p.call("fd_fdstat_set_flags", 0, 0); n != 0 {
		t.Errorf("clearing the flag: %d", n)
	}
	time.AfterFunc(20*time.Millisecond, func() { _, _ = p.Stdin.Write([]byte("again")) })
	if text, n := p.read(0); n != 0 || text != "again" {
		t.Errorf("read: %d, %q", n, text)
	}
	// 4. The end.
	p.Stdin.CloseWrite()
	if n := p.call("poll_oneoff", 16384, 32768, 1, 64); n != 0 || p.ram[32768+24] != hangup {
		t.Errorf("waiting at the end: %d, flags %d", n, p.ram[32768+24])
	}
	if text, n := p.read(0); n != 0 || text != "" {
		t.Errorf("read at the end: %d, %q", n, text)
	}
	p.subscribe(0, kindClock, 3_600_000)
	time.AfterFunc(20*time.Millisecond, func() { close(p.done) })
	if _, err := p.try("poll_oneoff", 16384, 32768, 1, 64); !errors.Is(err, ErrDone) {
		t.Errorf("waiting when the session ends: %v", err)
	}
}

// V43: no subscriptions and a million are refused, and a million lines of output take the
// memory of one pipe.
func TestBounds(t *testing.T) {
	p := play(t)
	for _, n := range []uint64{0, MaxSubscriptions + 1, 1_000_000, 1<<32 - 1} {
		if got := p.call("poll_oneoff", 0, 0, n, 64); got != eInval {
			t.Errorf("%d subscriptions: %d", n, got)
		}
	}
	for i := range 3 { // a kind that there is not, a descriptor that is not open, one that cannot be read
		p.subscribe(i, []byte{9, kindRead, kindRead}[i], []uint64{0, 99, 1}[i])
	}
	if n := p.call("poll_oneoff", 16384, 32768, 3, 64); n != 0 || p.u32(64) != 3 || p.ram[32768+8] != byte(eInval) || p.ram[32768+40] != byte(eBadf) || p.ram[32768+72] != byte(eBadf) {
		t.Errorf("bad subscriptions: %d, %d events: %d", n, p.u32(64), p.ram[32768:32768+96])
	}
	if n := p.call("fd_read", 0, 128, maxVectors+1, 64); n != eInval {
		t.Errorf("too many buffers: %d", n)
	}

	const line = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n"
	lines := 1_000_000
	if testing.Short() {
		lines = 50_000
	}
	read := make(chan int)
	go func() {
		total, b := 0, make([]byte, 4096)
		for {
			n, err := p.Stdout.Read(b)
			if total += n; err != nil {
				read <- total
				return
			}
		}
	}()
	most := 0
	for range lines {
		if n := p.write(1, line); n != success || p.u32(64) != uint32(len(line)) {
			t.Fatalf("write: %d, %d bytes", n, p.u32(64))
		}
		p.Stdout.mu.Lock()
		most = max(most, cap(p.Stdout.bytes))
		p.Stdout.mu.Unlock()
	}
	p.Stdout.CloseWrite()
	if total := <-read; total != lines*len(line) || most > 2*PipeSize {
		t.Errorf("%d bytes came of %d lines, with at most %d in the pipe", total, lines, most)
	}
	// Nobody reads: the write waits, and ends with the session.
	time.AfterFunc(20*time.Millisecond, func() { close(p.done) })
	p.files[2].writes = true
	for {
		_, err := p.try("fd_write", 2, p.vector(8192, 4096), 1, 64)
		if err != nil {
			if !errors.Is(err, ErrDone) {
				t.Error(err)
			}
			break
		}
	}
}

// Files below what is given can be read, and written where that is allowed.
func TestFiles(t *testing.T) {
	dir, shown := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, shown} {
		if err := os.WriteFile(filepath.Join(d, "a"), []byte("of a"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := play(t, Dir{Name: "/data", Root: openRoot(t, dir), Writable: true}, Dir{Name: "/shown", Root: openRoot(t, shown)})
	if n := p.call("fd_prestat_get", 4, 0); n != 0 || p.u32(4) != 6 {
		t.Errorf("fd_prestat_get: %d, %d", n, p.u32(4))
	}
	if n := p.call("fd_prestat_dir_name", 4, 0, 6); n != 0 || string(p.ram[:6]) != "/shown" {
		t.Errorf("fd_prestat_dir_name: %d, %s", n, p.ram[:6])
	}
	if n := p.call("fd_prestat_get", 5, 0); n != eBadf {
		t.Errorf("of one more: %d", n)
	}
	for i := range 2 {
		fd, n := p.open(i, "a", 0, rightRead)
		if text, m := p.read(fd); n != 0 || m != 0 || text != "of a" {
			t.Errorf("a of %d: %d, %d, %q", i, n, m, text)
		}
		if n := p.write(fd, "x"); n != eBadf {
			t.Errorf("writing to what is open for reading: %d", n)
		}
		if n := p.call("fd_close", fd); n != 0 {
			t.Errorf("close: %d", n)
		}
	}
	fd, n := p.open(0, "new", openCreate|openExclusive, rightRead|rightWrite)
	if m := p.write(fd, "some text"); n != 0 || m != 0 {
		t.Errorf("a new file: %d, %d", n, m)
	}
	if n := p.call("fd_seek", fd, 5, 0, 64); n != 0 || p.u64(64) != 5 {
		t.Errorf("seek: %d, %d", n, p.u64(64))
	}
	if text, n := p.read(fd); n != 0 || text != "text" {
		t.Errorf("then: %d, %q", n, text)
	}
	if n := p.call("fd_filestat_get", fd, 0); n != 0 || p.ram[16] != typeRegular || p.u64(32) != 9 {
		t.Errorf("filestat: %d, type %d, %d bytes", n, p.ram[16], p.u64(32))
	}
	for _, path := range []string{"none", "new", "."} {
		if _, n := p.open(0, path, openCreate|openDirectory, rightRead|rightWrite); n != eInval {
			t.Errorf("creating the directory %s: %d", path, n)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what cannot be made is there: %v", err)
	}
	if _, n := p.open(0, "new", openCreate|openExclusive, rightWrite); n != eExist {
		t.Errorf("exclusive: %d", n)
	}
	// What changes something is refused where it may only be read.
	at, size := p.text(1000, "b")
	for name, args := range map[string][]uint64{
		"path_create_directory": {4, at, size}, "path_unlink_file": {4, at, size}, "path_remove_directory": {4, at, size},
		"path_rename": {4, at, size, 4, at, size}, "path_filestat_set_times": {4, 0, at, size, 0, 0, 0},
	} {
		if n := p.call(name, args...); n != eRofs {
			t.Errorf("%s: %d", name, n)
		}
	}
	for _, how := range []uint64{openCreate, openTruncate} {
		if _, n := p.open(1, "a", how, rightRead); how == openTruncate && n != eRofs {
			t.Errorf("opening with %d: %d", how, n)
		}
	}
	if _, n := p.open(1, "c", openCreate, rightRead); n != eRofs {
		t.Errorf("creating: %d", n)
	}
	if _, n := p.open(1, "a", 0, rightWrite); n != eRofs {
		t.Errorf("opening to write: %d", n)
	}
	// Directories.
	at, size = p.text(1000, "sub")
	if n := p.call("path_create_directory", 3, at, size); n != 0 {
		t.Errorf("mkdir: %d", n)
	}
	if n := p.call("fd_readdir", 3, 8192, 4096, 0, 64); n != 0 || !bytes.Contains(p.ram[8192:8192+p.u32(64)], []byte("sub")) || p.u32(64) != 3*24+1+3+3 {
		t.Errorf("readdir: %d, %q", n, p.ram[8192:8192+p.u32(64)])
	}
	if n := p.call("path_unlink_file", 3, at, size); n != eIsdir {
		t.Errorf("unlink of a directory: %d", n)
	}
	if n := p.call("path_remove_directory", 3, at, size); n != 0 {
		t.Errorf("rmdir: %d", n)
	}
	// Descriptors are bounded.
	last := success
	for range MaxFiles {
		if _, last = p.open(0, "a", 0, rightRead); last != success {
			break
		}
	}
	if last != eMfile {
		t.Errorf("opening without end: %d", last)
	}
}

// Neither ".." nor a link leads out, whatever is done with it.
func TestEscapes(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "given")
	for _, d := range []string{dir, filepath.Join(dir, "sub"), filepath.Join(base, "outside")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(base, "outside", "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{
		"abs": secret, "rel": "../outside/secret", "dir": "../outside", "absdir": filepath.Join(base, "outside"), "up": "..", "loop": "loop",
		"two": "rel", "sub/far": "../../outside/secret", "dot": "sub/../../outside/secret", "root": "/", "proc": "/proc/self/root",
	}
	if runtime.GOOS == "windows" {
		links = nil // to make one takes a privilege
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	p := play(t, Dir{Name: "/data", Root: openRoot(t, dir), Writable: true})
	sub, n := p.open(0, "sub", openDirectory, rightRead)
	if n != success {
		t.Fatal(n)
	}
	paths := []string{
		"../outside/secret", "..", "../", "./../outside/secret", "sub/../../outside/secret", "sub/../../given/../outside/secret", secret, "/etc/passwd", "//etc/passwd",
		"abs", "rel", "dir/secret", "absdir/secret", "up/outside/secret", "two", "sub/far", "dot", "root/etc/passwd", "proc/etc/passwd", "loop", "sub/../abs", "secret\x00/../../outside/secret", "",
		"..\\outside\\secret", strings.Repeat("sub/../", 500) + "../outside/secret", strings.Repeat("x", maxPath+1),
	}
	for _, path := range paths {
		at, size := p.text(1000, path)
		for _, fd := range []uint64{3, sub} {
			if fd == sub && !strings.ContainsAny(path, "/.") {
				continue // a link of the directory above is nothing there
			}
			for _, how := range []uint64{0, openDirectory, openCreate, openCreate | openTruncate} {
				for _, follow := range []uint64{0, followLinks} {
					rights := uint64(rightRead)
					if how > openDirectory {
						rights |= rightWrite
					}
					if n := p.call("path_open", fd, follow, at, size, how, rights, 0, 0, 64); n == success && !strings.Contains(path, `\`) {
						t.Errorf("%d: %q is opened (%d, %d)", fd, path, how, follow)
					}
				}
			}
			if n := p.call("path_filestat_get", fd, followLinks, at, size, 4096); n == success && !strings.Contains(path, `\`) {
				t.Errorf("%d: %q has a stat", fd, path)
			}
			if n := p.call("path_create_directory", fd, at, size); n == success {
				t.Errorf("%d: %q is made", fd, path)
			}
			if n := p.call("path_readlink", fd, at, size, 8192, 4096, 64); n == success && bytes.Contains(p.ram[8192:8192+p.u32(64)], []byte("outside")) {
				t.Errorf("%d: %q is said to lead to %s", fd, path, p.ram[8192:8192+p.u32(64)])
			}
			if path != "" && !strings.ContainsAny(path, "\\") && strings.Contains(path, "/") {
				if n := p.call("path_unlink_file", fd, at, size); n == success && path != "sub/far" && path != "sub/../abs" {
					t.Errorf("%d: %q is removed", fd, path)
				}
			}
		}
		other, length := p.text(6000, "sub/moved")
		if n := p.call("path_rename", 3, other, length, 3, at, size); n == success {
			t.Errorf("something was moved to %q", path)
		}
	}
	for _, name := range []string{"path_symlink", "path_link"} {
		if n := p.call(name, 3, 0, 1000, 1, 3, 1000, 1); n != eNotsup {
			t.Errorf("%s: %d", name, n)
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("the secret outside: %q, %v", b, err)
	}
	if all, _ := os.ReadDir(base); len(all) != 2 {
		t.Errorf("outside there is %v", all)
	}
}

// A named pipe is not opened: that would wait for whoever has its other end.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	if !namedPipe(filepath.Join(dir, "pipe")) {
		t.Skip("there are no named pipes here")
	}
	p := play(t, Dir{Name: "/", Root: openRoot(t, dir), Writable: true})
	for _, rights := range []uint64{rightRead, rightWrite, rightRead | rightWrite} {
		if _, n := p.open(0, "pipe", 0, rights); n != eAcces {
			t.Errorf("opened with %d: %d", rights, n)
		}
	}
}

// Whatever an instance passes, a function answers: it neither panics nor waits where the
// instance has to end.
func TestAnyArguments(t *testing.T) {
	root := openRoot(t, t.TempDir())
	for name := range functions {
		for range 500 {
			anyCall(t, root, name, rand.Uint64(), rand.Uint64())
		}
	}
}

func FuzzArguments(f *testing.F) {
	f.Add(uint8(0), uint64(1), uint64(2))
	root := openRoot(f, f.TempDir())
	f.Fuzz(func(t *testing.T, which uint8, a, b uint64) {
		all := Functions()
		anyCall(t, root, all[int(which)%len(all)].Name, a, b)
	})
}

// anyCall calls a function with arguments of a seed, of a memory of another.
func anyCall(t *testing.T, root *os.Root, name string, a, b uint64) {
	r := rand.New(rand.NewPCG(a, b))
	p := &played{t: t, ram: make(ram, 8192), done: make(chan struct{})}
	close(p.done) // what would wait does not
	p.System = New(Config{Args: []string{"x"}, Env: []string{"A=b"}, Dirs: []Dir{{Name: "/data", Root: root, Writable: true}}, Stdin: NewPipe(), Stdout: NewPipe(), Stderr: NewPipe(), Done: p.done})
	defer p.Close()
	for i := range len(p.ram) / 8 { // small numbers, which lead somewhere, and any
		v := r.Uint64()
		if r.IntN(2) == 0 {
			v = uint64(r.IntN(300)) | uint64(r.IntN(300))<<32
		}
		binary.LittleEndian.PutUint64(p.ram[8*i:], v)
	}
	f := functions[name]
	stack := make([]uint64, max(1, len(f.Params)))
	for i := range stack {
		switch r.IntN(4) {
		case 0:
			stack[i] = uint64(r.IntN(8))
		case 1:
			stack[i] = uint64(r.IntN(len(p.ram)))
		case 2:
			stack[i] = r.Uint64()
		default:
			stack[i] = uint64(uint32(len(p.ram) - r.IntN(64)))
		}
		if i < len(f.Params) && f.Params[i] == i32[0] {
			stack[i] = uint64(uint32(stack[i]))
		}
	}
	err := f.Call(p.System, p.ram, stack)
	var exit *Exit
	if err != nil && !errors.Is(err, ErrDone) && !errors.As(err, &exit) {
		t.Errorf("%s: %v", name, err)
	}
}
