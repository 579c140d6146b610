package wasi

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// Flags of a descriptor (typenames.witx, fdflags).
const (
	flagAppend   = 1
	flagNonblock = 4
)

// Rights (typenames.witx, rights), as far as they say how a file is opened.
const (
	rightRead  = 1 << 1
	rightWrite = 1 << 6

	// What a descriptor may be used for, as it says of itself.
	rightsStream = rightRead | rightWrite | 1<<3 | 1<<21 | 1<<27
	rightsFile   = rightsStream | 1<<0 | 1<<2 | 1<<4 | 1<<5 | 1<<22
	rightsDir    = 1<<9 | 1<<10 | 1<<13 | 1<<14 | 1<<15 | 1<<16 | 1<<17 | 1<<18 | 1<<20 | 1<<21 | 1<<25 | 1<<26
)

// file is an open descriptor: a standard stream, a directory, or a file.
type file struct {
	pipe *Pipe    // of a standard stream
	root *os.Root // of a directory
	os   *os.File // of a file

	given  *Dir // that a directory or a file is of; itself for a descriptor that was given
	below  bool // it was opened by the instance, and is closed by it
	reads  bool
	writes bool
	flags  uint16
	known  bool // the instance has seen or set its flags
}

func (f *file) close() {
	switch {
	case f.os != nil:
		_ = f.os.Close() // what could not be written was said by the write
	case f.below && f.root != nil:
		_ = f.root.Close()
	}
}

// stat is that of a file or a directory.
func (f *file) stat() (fs.FileInfo, error) {
	if f.os != nil {
		return f.os.Stat()
	}
	return f.root.Stat(".")
}

// add gives a file the lowest number that is free.
func (s *System) add(f *file) (uint32, errno) {
	for fd := uint32(3); fd < MaxFiles; fd++ {
		if s.files[fd] == nil {
			s.files[fd] = f
			return fd, success
		}
	}
	return 0, eMfile
}

func (s *System) fdAdvise(_ Memory, a []uint64) errno {
	if s.files[uint32(a[0])] == nil {
		return eBadf
	}
	return success
}

func (s *System) fdClose(_ Memory, a []uint64) errno {
	fd := uint32(a[0])
	f := s.files[fd]
	if f == nil {
		return eBadf
	}
	switch fd {
	case 0:
		f.pipe.CloseRead()
	case 1, 2:
		f.pipe.CloseWrite()
	}
	f.close()
	delete(s.files, fd)
	if s.listing == f {
		s.listing, s.entries = nil, nil
	}
	return success
}

// fdRenumber moves a file to another number, whose file is closed. Standard streams and
// directories that were given keep theirs.
func (s *System) fdRenumber(_ Memory, a []uint64) errno {
	from, to := uint32(a[0]), uint32(a[1])
	f, other := s.files[from], s.files[to]
	switch {
	case f == nil, other == nil:
		return eBadf
	case from == to:
		return success
	case !f.below, !other.below:
		return eNotsup
	}
	other.close()
	s.files[to] = f
	delete(s.files, from)
	return success
}

func (s *System) fdSync(_ Memory, a []uint64) errno {
	f := s.files[uint32(a[0])]
	switch {
	case f == nil:
		return eBadf
	case f.os == nil:
		return eInval
	}
	s.spend(1_000_000)
	return numberOf(f.os.Sync())
}

func (s *System) fdStat(m Memory, a []uint64) errno {
	f := s.files[uint32(a[0])]
	if f == nil {
		return eBadf
	}
	b, ok := m.Read(uint32(a[1]), 24)
	if !ok {
		return eFault
	}
	var rights, inherited uint64
	typ := byte(typeRegular)
	switch {
	case f.pipe != nil:
		typ, rights = typeChar, rightsStream
	case f.root != nil:
		typ, rights, inherited = typeDir, rightsDir, rightsFile|rightsDir
		if !f.writes {
			inherited &^= rightWrite
		}
	default:
		rights = rightsFile
	}
	if f.root == nil && !f.reads {
		rights &^= rightRead
	}
	if f.root == nil && !f.writes {
		rights &^= rightWrite
	}
	f.known = true
	clear(b)
	b[0] = typ
	binary.LittleEndian.PutUint16(b[2:], f.flags)
	binary.LittleEndian.PutUint64(b[8:], rights)
	binary.LittleEndian.PutUint64(b[16:], inherited)
	return success
}

// fdSetFlags changes whether standard input waits, which is all that can be changed.
func (s *System) fdSetFlags(_ Memory, a []uint64) errno {
	f, flags := s.files[uint32(a[0])], uint16(a[1])
	switch {
	case f == nil:
		return eBadf
	case flags&^(flagAppend|flagNonblock) != 0, (flags^f.flags)&flagAppend != 0:
		return eNotsup
	}
	f.flags, f.known = flags, true
	return success
}

func (s *System) fdFileStat(m Memory, a []uint64) errno {
	f := s.files[uint32(a[0])]
	if f == nil {
		return eBadf
	}
	b, ok := m.Read(uint32(a[1]), 64)
	if !ok {
		return eFault
	}
	if f.pipe != nil {
		clear(b)
		b[16] = typeChar
		binary.LittleEndian.PutUint64(b[24:], 1)
		return success
	}
	s.spend(5_000)
	info, err := f.stat()
	if err == nil {
		putStat(b, s.deviceOf(f), info)
	}
	return numberOf(err)
}

// deviceOf is a number for the directory that a file is in, of those that were given.
func (s *System) deviceOf(f *file) uint64 {
	for i := range s.Dirs {
		if &s.Dirs[i] == f.given {
			return uint64(i) + 1
		}
	}
	return 0
}

// putStat writes a filestat.
func putStat(b []byte, device uint64, info fs.FileInfo) {
	clear(b)
	binary.LittleEndian.PutUint64(b, device)
	binary.LittleEndian.PutUint64(b[8:], inode(info))
	b[16] = typeOf(info.Mode())
	binary.LittleEndian.PutUint64(b[24:], 1)
	binary.LittleEndian.PutUint64(b[32:], uint64(max(0, info.Size())))
	at := uint64(max(0, info.ModTime().UnixNano()))
	for _, i := range []int{40, 48, 56} {
		binary.LittleEndian.PutUint64(b[i:], at)
	}
}

func (s *System) fdSetSize(_ Memory, a []uint64) errno {
	f, size := s.files[uint32(a[0])], a[1]
	switch {
	case f == nil:
		return eBadf
	case f.os == nil || !f.writes:
		return eInval
	case size > 1<<62:
		return eFbig
	}
	s.spend(10_000)
	return numberOf(f.os.Truncate(int64(size)))
}

// vectors calls do for each buffer of a list of them, until it does less than it could, and
// returns how much was done.
func (s *System) vectors(m Memory, p, count uint64, do func(b []byte) (int, errno)) (total uint32, _ errno) {
	if uint32(count) > maxVectors {
		return 0, eInval
	}
	s.spend(10 * uint64(uint32(count)))
	list, ok := m.Read(uint32(p), uint32(count)*8)
	if !ok {
		return 0, eFault
	}
	list = slices.Clone(list) // a read may go to where it stands
	for ; len(list) > 0; list = list[8:] {
		b, ok := m.Read(binary.LittleEndian.Uint32(list), binary.LittleEndian.Uint32(list[4:]))
		if !ok {
			if total > 0 {
				return total, success
			}
			return 0, eFault
		}
		if len(b) == 0 {
			continue
		}
		whole := len(b)
		b = b[:min(len(b), maxOnce-int(total))]
		n, number := do(b)
		if total += uint32(n); number != success && total == 0 {
			return 0, number
		}
		if number != success || n < whole || total >= maxOnce {
			break
		}
	}
	return total, success
}

// fdRead reads what is there. Where there is nothing it waits, unless its flags say otherwise and
// the instance knows that: the Go runtime looks at them and polls, and programs in C or Rust
// read and expect to wait.
func (s *System) fdRead(m Memory, a []uint64) (errno, error) {
	f := s.files[uint32(a[0])]
	switch {
	case f == nil || !f.reads:
		return eBadf, nil
	case f.root != nil:
		return eIsdir, nil
	}
	for {
		empty := false
		total, n := s.vectors(m, a[1], a[2], func(b []byte) (int, errno) {
			s.spend(uint64(len(b)) / 16)
			if f.os != nil {
				s.spend(5_000)
				return ended(f.os.Read(b))
			}
			got, err, ok := f.pipe.tryRead(b)
			if !ok {
				empty = true
				return 0, eAgain
			}
			return ended(got, err)
		})
		if n == eAgain && empty && (f.flags&flagNonblock == 0 || !f.known) {
			if err := s.rest(time.Time{}, f.pipe.more); err != nil {
				return 0, err
			}
			continue
		}
		if n == success {
			n = put32(m, a[3], total)
		}
		return n, nil
	}
}

// ended is what a read gave: nothing at the end of a file is no error here.
func ended(n int, err error) (int, errno) {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, numberOf(err)
}

// fdWrite writes all that it is given to a file. For a stream it waits until there is room,
// unless its flags say otherwise.
func (s *System) fdWrite(m Memory, a []uint64) (errno, error) {
	f := s.files[uint32(a[0])]
	if f == nil || !f.writes || f.root != nil {
		return eBadf, nil
	}
	var over error
	total, n := s.vectors(m, a[1], a[2], func(b []byte) (int, errno) {
		s.spend(uint64(len(b)) / 16)
		if f.os != nil {
			s.spend(5_000)
			n, err := f.os.Write(b)
			return n, numberOf(err)
		}
		done := 0
		for done < len(b) {
			n, err, ok := f.pipe.tryWrite(b[done:])
			done += n
			switch {
			case err != nil:
				return done, numberOf(err)
			case ok:
			case f.flags&flagNonblock != 0:
				return done, eAgain
			default:
				if over = s.rest(time.Time{}, f.pipe.room); over != nil {
					return done, ePipe
				}
			}
		}
		return done, success
	})
	if over != nil {
		return 0, over
	}
	if n == success {
		n = put32(m, a[3], total)
	}
	return n, nil
}

func (s *System) fdPread(m Memory, a []uint64) errno {
	f, at := s.files[uint32(a[0])], a[3]
	switch {
	case f == nil || !f.reads:
		return eBadf
	case f.os == nil:
		return eSpipe
	case at > 1<<62:
		return eInval
	}
	total, n := s.vectors(m, a[1], a[2], func(b []byte) (int, errno) {
		s.spend(5_000 + uint64(len(b))/16)
		n, number := ended(f.os.ReadAt(b, int64(at)))
		at += uint64(n)
		return n, number
	})
	if n == success {
		n = put32(m, a[4], total)
	}
	return n
}

func (s *System) fdPwrite(m Memory, a []uint64) errno {
	f, at := s.files[uint32(a[0])], a[3]
	switch {
	case f == nil || !f.writes:
		return eBadf
	case f.os == nil:
		return eSpipe
	case at > 1<<62, f.flags&flagAppend != 0:
		return eInval
	}
	total, n := s.vectors(m, a[1], a[2], func(b []byte) (int, errno) {
		s.spend(5_000 + uint64(len(b))/16)
		n, err := f.os.WriteAt(b, int64(at))
		at += uint64(n)
		return n, numberOf(err)
	})
	if n == success {
		n = put32(m, a[4], total)
	}
	return n
}

func (s *System) fdSeek(m Memory, a []uint64) errno {
	f, whence := s.files[uint32(a[0])], uint32(a[2])
	switch {
	case f == nil:
		return eBadf
	case f.os == nil:
		return eSpipe
	case whence > 2:
		return eInval
	}
	at, err := f.os.Seek(int64(a[1]), int(whence))
	if err != nil {
		return numberOf(err)
	}
	return put64(m, a[3], uint64(at))
}

func (s *System) fdTell(m Memory, a []uint64) errno {
	return s.fdSeek(m, []uint64{a[0], 0, io.SeekCurrent, a[1]})
}

func (s *System) fdPrestat(m Memory, a []uint64) errno {
	f := s.files[uint32(a[0])]
	if f == nil || f.root == nil || f.below {
		return eBadf
	}
	if n := put32(m, a[1], 0); n != success { // a directory
		return n
	}
	return put32(m, uint64(uint32(a[1])+4), uint32(len(f.given.Name)))
}

func (s *System) fdPrestatName(m Memory, a []uint64) errno {
	f := s.files[uint32(a[0])]
	switch {
	case f == nil || f.root == nil || f.below:
		return eBadf
	case int(uint32(a[2])) < len(f.given.Name):
		return eNameTooBig
	}
	b, ok := m.Read(uint32(a[1]), uint32(len(f.given.Name)))
	if !ok {
		return eFault
	}
	copy(b, f.given.Name)
	return success
}

// fdReaddir lists a directory from a cookie on, which is the number of an entry. What is
// listed is as it was when the listing began. One listing at a time is kept.
func (s *System) fdReaddir(m Memory, a []uint64) errno {
	f, cookie := s.files[uint32(a[0])], a[3]
	switch {
	case f == nil:
		return eBadf
	case f.root == nil:
		return eNotdir
	}
	out, ok := m.Read(uint32(a[1]), uint32(a[2]))
	if !ok {
		return eFault
	}
	if cookie == 0 || s.listing != f {
		if n := s.list(f); n != success {
			return n
		}
	}
	total := 0
	for i := cookie; i < uint64(len(s.entries)) && total < len(out); i++ {
		e := s.entries[i]
		var head [24]byte
		binary.LittleEndian.PutUint64(head[:], i+1)
		binary.LittleEndian.PutUint32(head[16:], uint32(len(e.name)))
		head[20] = e.kind
		total += copy(out[total:], head[:])
		total += copy(out[total:], e.name)
	}
	s.spend(uint64(total))
	return put32(m, a[4], uint32(total))
}

func (s *System) list(f *file) errno {
	s.spend(50_000)
	s.listing, s.entries = nil, nil
	d, err := f.root.Open(".")
	if err != nil {
		return numberOf(err)
	}
	defer d.Close()
	var entries []entry
	for err == nil && len(entries) <= maxEntries {
		var some []fs.DirEntry
		some, err = d.ReadDir(maxOfList)
		s.spend(5_000 * uint64(len(some)))
		for _, e := range some {
			entries = append(entries, entry{e.Name(), typeOf(e.Type())})
		}
	}
	switch {
	case len(entries) > maxEntries:
		return eOverflow
	case !errors.Is(err, io.EOF):
		return numberOf(err)
	}
	s.listing, s.entries = f, entries
	return success
}

// maxOfList is how many entries of a directory are looked at together.
const maxOfList = 1024

// entry is one of a directory: more of what the system says of it is not kept.
type entry struct {
	name string
	kind byte
}
