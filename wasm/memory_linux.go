package wasm

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// copyBelow is the size of a memory up to which a reset copies it whole. A larger
// one is mapped over its snapshot, and a reset drops the pages that the call wrote
// to, which the next call faults in again. Where a call writes to a part of the
// pages of at least one in manyPages, this takes longer than to copy the snapshot
// back, which costs no faults.
const (
	copyBelow = 128 << 10
	manyPages = 16
	page      = 4096
)

// linear is the memory of one instance: address space for all that it may grow
// to, of which the system provides the pages that are touched. It does not
// count towards the collected heap and never moves.
type linear struct {
	region  []byte
	mapped  *snapshot // that a part of region is mapped over; nil for none
	copies  bool      // a reset copies the snapshot back
	calls   uint      // since copies changed
	faults  int64     // of the thread before the call; -1 when nobody counts
	refused bool      // growth beyond the limit was asked for
	most    uint64    // bytes that it may grow to
}

func newLinear(limit uint64) (*linear, error) {
	region, err := unix.Mmap(-1, 0, int(limit), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("memory of %d bytes: %w", limit, err)
	}
	return &linear{region: region, most: limit}, nil
}

// Reallocate grows the memory to size bytes; nil when that is above the limit.
func (l *linear) Reallocate(size uint64) []byte {
	if size > l.most {
		l.refused = true
		return nil
	}
	return l.region[:size:len(l.region)]
}

// Free gives the memory back to the system.
func (l *linear) Free() {
	if l.region != nil {
		_ = unix.Munmap(l.region) // the region is whole and ours: it cannot fail
		l.region = nil
	}
}

// How often a memory is looked at to choose its reset.
const (
	lookAt  = 16   // of so many calls on a mapped memory, one is looked at
	lookNew = 1024 // after so many copies, a memory is mapped again, for another look
)

// before begins to count the pages that a call writes to, if this call is looked at.
func (l *linear) before() {
	l.calls++
	l.faults = -1
	switch {
	case l.mapped == nil:
	case l.copies && l.calls > lookNew:
		l.copies, l.calls = false, 0
	case !l.copies && l.calls%lookAt == 2: // the first call also faults in what every call needs
		l.faults = faults()
	}
}

// after ends that.
func (l *linear) after() {
	if l.faults >= 0 && int(faults()-l.faults)*page*manyPages > l.mapped.size {
		l.copies, l.calls = true, 0
	}
}

// provide has the system make the pages of the first size bytes at once, and large ones
// where it can: one by one, as they are touched, they cost more than their content.
func (l *linear) provide(size int) {
	_ = unix.Madvise(l.region, unix.MADV_HUGEPAGE)
	_ = unix.Madvise(l.region[:size], unix.MADV_POPULATE_WRITE) // a system that has neither makes them one by one
}

// faults is how many pages the system has provided to the calling thread.
func faults() int64 {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &r) // fails for no thread
	return int64(r.Minflt)
}

// snapshot is what a memory held at some time. Many memories may be mapped
// over one snapshot.
type snapshot struct {
	size  int
	bytes []byte   // what it held; of a larger memory, mapped from file or apart
	full  []extent // where bytes holds more than zeros
	file  *os.File // of a larger memory; nil where a reset copies it all the same
	apart bool     // bytes are mapped, and not collected
}

// extent is a part of a memory, from a byte to one before another.
type extent struct{ from, to int }

func newSnapshot(memory []byte) (*snapshot, error) {
	s := extents(memory)
	if len(memory) <= copyBelow {
		s.bytes = append([]byte(nil), memory...)
		return s, nil
	}
	fd, err := unix.MemfdCreate("weir-guest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	s.file = os.NewFile(uintptr(fd), "weir-guest")
	if err := s.fill(memory); err != nil {
		return nil, errors.Join(fmt.Errorf("snapshot: %w", err), s.file.Close())
	}
	return s, nil
}

// newCopy makes a snapshot that is always copied back.
func newCopy(memory []byte) (*snapshot, error) {
	s := extents(memory)
	var err error
	if s.bytes, err = unix.Mmap(-1, 0, len(memory), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	for _, e := range s.full {
		copy(s.bytes[e.from:e.to], memory[e.from:e.to])
	}
	s.apart = true
	return s, nil
}

// extents finds what a memory holds.
func extents(memory []byte) *snapshot {
	s := &snapshot{size: len(memory)}
	for i := 0; i < len(memory); i += page {
		to := min(i+page, len(memory))
		if zero(memory[i:to]) {
			continue
		}
		if n := len(s.full); n > 0 && s.full[n-1].to == i {
			s.full[n-1].to = to
		} else {
			s.full = append(s.full, extent{i, to})
		}
	}
	return s
}

// fill writes what the memory holds, seals the file, and maps it.
func (s *snapshot) fill(memory []byte) error {
	if err := s.file.Truncate(int64(len(memory))); err != nil {
		return err
	}
	for _, e := range s.full {
		if _, err := s.file.WriteAt(memory[e.from:e.to], int64(e.from)); err != nil {
			return err
		}
	}
	_, err := unix.FcntlInt(s.file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	if err != nil {
		return err
	}
	s.bytes, err = unix.Mmap(int(s.file.Fd()), 0, s.size, unix.PROT_READ, unix.MAP_SHARED)
	return err
}

func zero(p []byte) bool {
	for _, c := range p {
		if c != 0 {
			return false
		}
	}
	return true
}

// restore makes a memory of the snapshot's size equal to it.
func (s *snapshot) restore(l *linear) error {
	if s.file == nil || l.copies && l.mapped == s {
		s.copyTo(l.region[:s.size])
		return nil
	}
	if l.mapped == s {
		return unix.Madvise(l.region[:s.size], unix.MADV_DONTNEED)
	}
	_, err := unix.MmapPtr(int(s.file.Fd()), 0, unsafe.Pointer(&l.region[0]), uintptr(s.size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	l.mapped = s
	return nil
}

func (s *snapshot) copyTo(memory []byte) {
	at := 0
	for _, e := range s.full {
		clear(memory[at:e.from])
		at = e.from + copy(memory[e.from:e.to], s.bytes[e.from:e.to])
	}
	clear(memory[at:])
}

func (s *snapshot) close() {
	if s.apart {
		_ = unix.Munmap(s.bytes) // mapped here, and whole
	}
	if s.file != nil {
		_ = unix.Munmap(s.bytes)
		_ = s.file.Close() // only ever read from
	}
}
