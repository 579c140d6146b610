package wasi

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Module is the name that modules import these functions from.
const Module = "wasi_snapshot_preview1"

// Bounds of what an instance has and passes.
const (
	MaxFiles         = 256     // descriptors that are open at a time
	MaxSubscriptions = 1024    // of one poll_oneoff
	maxVectors       = 1024    // buffers of one read or write
	maxPath          = 4096    // bytes
	maxEntries       = 65_536  // of a directory that is listed
	maxTexts         = 1 << 20 // bytes of all arguments, and of the whole environment
	maxOnce          = 1 << 20 // bytes of a file that one call reads or writes
)

// Resolution is that of all clocks.
const Resolution = time.Millisecond

// Value types, as the binary format of modules writes them.
const (
	i32 = "\x7f"
	i64 = "\x7e"
)

// Memory is that of an instance. What Read returns is a view, which holds until the instance
// runs again.
type Memory interface {
	Read(offset, n uint32) ([]byte, bool)
}

// Dir is a directory that is given to an instance.
type Dir struct {
	Name     string   // the path by which the instance knows it
	Root     *os.Root // whoever opened it closes it, after the last instance
	Writable bool
}

// Config is what an instance is given.
type Config struct {
	Args []string // the first is the name of the program
	Env  []string // NAME=VALUE
	Dirs []Dir

	Stdin, Stdout, Stderr *Pipe

	// Waits says that standard input is one that is waited for in a read, as programs in C and
	// Rust expect. For another its flags say that it need not be: the Go runtime polls.
	Waits bool

	// Done is closed when the instance has to end: what waits then, does not any more.
	Done <-chan struct{}

	// Slept is told how long the instance was asleep, each time that it was; Spend is told
	// of work that was done for it, in units of about a nanosecond. nil for nobody.
	Slept func(time.Duration)
	Spend func(uint64)
}

// System is what one instance sees. One goroutine at a time uses it.
type System struct {
	Config
	began time.Time
	files map[uint32]*file

	listing *file   // the directory that is being listed; nil for none
	entries []entry // of it
}

// Exit is the error of an instance that ended itself.
type Exit struct{ Code uint32 }

func (e *Exit) Error() string { return fmt.Sprintf("it exited with %d", e.Code) }

// ErrDone is the error of an instance that has to end.
var ErrDone = errors.New("it was ended")

// Check says what is wrong with what an instance is to be given.
func (c *Config) Check() error {
	for what, texts := range map[string][]string{"arguments": c.Args, "environment": c.Env} {
		size := 0
		for _, text := range texts {
			if strings.ContainsRune(text, 0) {
				return fmt.Errorf("%s: a NUL byte", what)
			}
			size += len(text) + 1
		}
		if size > maxTexts {
			return fmt.Errorf("%s: %d bytes: at most %d are possible", what, size, maxTexts)
		}
	}
	return nil
}

// New returns what an instance sees that begins now.
func New(c Config) *System {
	s := &System{Config: c, began: time.Now(), files: make(map[uint32]*file)}
	s.files[0] = &file{pipe: c.Stdin, reads: true}
	if !c.Waits {
		s.files[0].flags = flagNonblock
	}
	s.files[1] = &file{pipe: c.Stdout, writes: true}
	s.files[2] = &file{pipe: c.Stderr, writes: true}
	for i := range c.Dirs {
		d := &c.Dirs[i]
		s.files[uint32(3+i)] = &file{root: d.Root, given: d, writes: d.Writable, reads: true}
	}
	return s
}

// Close closes what the instance has open.
func (s *System) Close() {
	for fd, f := range s.files {
		f.close()
		delete(s.files, fd)
	}
}

// Function is one function of WASI: it reads its arguments from the stack and leaves its
// result there. An error ends the instance.
type Function struct {
	Name            string
	Params, Results string // value types
	call            func(s *System, m Memory, stack []uint64) (errno, error)
}

// Call calls the function.
func (f *Function) Call(s *System, m Memory, stack []uint64) error {
	s.spend(500) // to come here costs about as much
	n, err := f.call(s, m, stack)
	if f.Results != "" {
		stack[0] = uint64(n)
	}
	return err
}

// Functions are all that a server may import. There are none for sockets.
func Functions() []Function {
	simple := func(f func(*System, Memory, []uint64) errno) func(*System, Memory, []uint64) (errno, error) {
		return func(s *System, m Memory, a []uint64) (errno, error) { return f(s, m, a), nil }
	}
	unsupported := simple(func(*System, Memory, []uint64) errno { return eNotsup })
	nothing := simple(func(*System, Memory, []uint64) errno { return success })
	all := []Function{
		{"args_get", i32 + i32, i32, simple(func(s *System, m Memory, a []uint64) errno { return texts(m, s.Args, a) })},
		{"args_sizes_get", i32 + i32, i32, simple(func(s *System, m Memory, a []uint64) errno { return textSizes(m, s.Args, a) })},
		{"environ_get", i32 + i32, i32, simple(func(s *System, m Memory, a []uint64) errno { return texts(m, s.Env, a) })},
		{"environ_sizes_get", i32 + i32, i32, simple(func(s *System, m Memory, a []uint64) errno { return textSizes(m, s.Env, a) })},
		{"clock_res_get", i32 + i32, i32, simple((*System).clockRes)},
		{"clock_time_get", i32 + i64 + i32, i32, simple((*System).clockTime)},
		{"random_get", i32 + i32, i32, simple((*System).random)},
		{"sched_yield", "", i32, nothing},
		{"proc_exit", i32, "", func(_ *System, _ Memory, a []uint64) (errno, error) { return 0, &Exit{uint32(a[0])} }},
		{"proc_raise", i32, i32, unsupported},
		{"poll_oneoff", i32 + i32 + i32 + i32, i32, (*System).poll},

		{"fd_advise", i32 + i64 + i64 + i32, i32, simple((*System).fdAdvise)},
		{"fd_allocate", i32 + i64 + i64, i32, unsupported},
		{"fd_close", i32, i32, simple((*System).fdClose)},
		{"fd_datasync", i32, i32, simple((*System).fdSync)},
		{"fd_fdstat_get", i32 + i32, i32, simple((*System).fdStat)},
		{"fd_fdstat_set_flags", i32 + i32, i32, simple((*System).fdSetFlags)},
		{"fd_fdstat_set_rights", i32 + i64 + i64, i32, unsupported},
		{"fd_filestat_get", i32 + i32, i32, simple((*System).fdFileStat)},
		{"fd_filestat_set_size", i32 + i64, i32, simple((*System).fdSetSize)},
		{"fd_filestat_set_times", i32 + i64 + i64 + i32, i32, unsupported},
		{"fd_pread", i32 + i32 + i32 + i64 + i32, i32, simple((*System).fdPread)},
		{"fd_prestat_get", i32 + i32, i32, simple((*System).fdPrestat)},
		{"fd_prestat_dir_name", i32 + i32 + i32, i32, simple((*System).fdPrestatName)},
		{"fd_pwrite", i32 + i32 + i32 + i64 + i32, i32, simple((*System).fdPwrite)},
		{"fd_read", i32 + i32 + i32 + i32, i32, (*System).fdRead},
		{"fd_readdir", i32 + i32 + i32 + i64 + i32, i32, simple((*System).fdReaddir)},
		{"fd_renumber", i32 + i32, i32, simple((*System).fdRenumber)},
		{"fd_seek", i32 + i64 + i32 + i32, i32, simple((*System).fdSeek)},
		{"fd_sync", i32, i32, simple((*System).fdSync)},
		{"fd_tell", i32 + i32, i32, simple((*System).fdTell)},
		{"fd_write", i32 + i32 + i32 + i32, i32, (*System).fdWrite},

		{"path_create_directory", i32 + i32 + i32, i32, simple((*System).pathMkdir)},
		{"path_filestat_get", i32 + i32 + i32 + i32 + i32, i32, simple((*System).pathFileStat)},
		{"path_filestat_set_times", i32 + i32 + i32 + i32 + i64 + i64 + i32, i32, simple((*System).pathSetTimes)},
		{"path_link", i32 + i32 + i32 + i32 + i32 + i32 + i32, i32, unsupported},
		{"path_open", i32 + i32 + i32 + i32 + i32 + i64 + i64 + i32 + i32, i32, simple((*System).pathOpen)},
		{"path_readlink", i32 + i32 + i32 + i32 + i32 + i32, i32, simple((*System).pathReadlink)},
		{"path_remove_directory", i32 + i32 + i32, i32, simple((*System).pathRmdir)},
		{"path_rename", i32 + i32 + i32 + i32 + i32 + i32, i32, simple((*System).pathRename)},
		{"path_symlink", i32 + i32 + i32 + i32 + i32, i32, unsupported},
		{"path_unlink_file", i32 + i32 + i32, i32, simple((*System).pathUnlink)},
	}
	return all
}

func (s *System) spend(n uint64) {
	if s.Spend != nil {
		s.Spend(n)
	}
}

// put32 and put64 write a number to the memory.
func put32(m Memory, p uint64, v uint32) errno {
	b, ok := m.Read(uint32(p), 4)
	if !ok {
		return eFault
	}
	binary.LittleEndian.PutUint32(b, v)
	return success
}

func put64(m Memory, p, v uint64) errno {
	b, ok := m.Read(uint32(p), 8)
	if !ok {
		return eFault
	}
	binary.LittleEndian.PutUint64(b, v)
	return success
}

func textSizes(m Memory, list []string, a []uint64) errno {
	size := 0
	for _, text := range list {
		size += len(text) + 1
	}
	if n := put32(m, a[0], uint32(len(list))); n != success {
		return n
	}
	return put32(m, a[1], uint32(size))
}

// texts writes a list of texts that end with a zero byte each, and where each begins.
func texts(m Memory, list []string, a []uint64) errno {
	at, p := uint32(a[0]), uint32(a[1])
	for _, text := range list {
		if n := put32(m, uint64(at), p); n != success {
			return n
		}
		b, ok := m.Read(p, uint32(len(text)+1))
		if !ok {
			return eFault
		}
		b[copy(b, text)] = 0
		at += 4
		p += uint32(len(b))
	}
	return success
}

// The clocks.
const (
	clockReal      = 0
	clockMonotonic = 1
)

// now is what a clock says. The monotonic one begins above zero, which the Go runtime asks
// for.
func (s *System) now(id uint32) (uint64, errno) {
	switch id {
	case clockReal:
		return uint64(max(0, time.Now().Truncate(Resolution).UnixNano())), success
	case clockMonotonic:
		return uint64((time.Since(s.began) + time.Second).Truncate(Resolution)), success
	}
	return 0, eNotsup // those of processor time
}

func (s *System) clockRes(m Memory, a []uint64) errno {
	if _, n := s.now(uint32(a[0])); n != success {
		return n
	}
	return put64(m, a[1], uint64(Resolution))
}

func (s *System) clockTime(m Memory, a []uint64) errno {
	t, n := s.now(uint32(a[0]))
	if n != success {
		return n
	}
	return put64(m, a[2], t)
}

func (s *System) random(m Memory, a []uint64) errno {
	b, ok := m.Read(uint32(a[0]), uint32(a[1]))
	if !ok {
		return eFault
	}
	s.spend(4 * uint64(len(b)))
	_, _ = rand.Read(b) // never fails
	return success
}

// Types of files.
const (
	typeUnknown = 0
	typeBlock   = 1
	typeChar    = 2
	typeDir     = 3
	typeRegular = 4
	typeLink    = 7
)

func typeOf(mode fs.FileMode) byte {
	switch {
	case mode.IsRegular():
		return typeRegular
	case mode.IsDir():
		return typeDir
	case mode&fs.ModeSymlink != 0:
		return typeLink
	case mode&fs.ModeCharDevice != 0:
		return typeChar
	case mode&fs.ModeDevice != 0:
		return typeBlock
	}
	return typeUnknown
}
