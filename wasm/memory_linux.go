package wasm

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// copyBelow is the size of a memory up to which a reset copies it whole; above
// it, the memory is mapped over a snapshot, and a reset drops the pages that a
// call wrote to.
const copyBelow = 128 << 10

// linear is the memory of one instance: address space for all that it may grow
// to, of which the system provides the pages that are touched. It does not
// count towards the collected heap and never moves.
type linear struct {
	region  []byte
	mapped  *snapshot // that a part of region is mapped over; nil for none
	refused bool      // growth beyond the limit was asked for
}

func newLinear(limit uint64) (*linear, error) {
	region, err := unix.Mmap(-1, 0, int(limit), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("memory of %d bytes: %w", limit, err)
	}
	return &linear{region: region}, nil
}

// Reallocate grows the memory to size bytes; nil when that is above the limit.
func (l *linear) Reallocate(size uint64) []byte {
	if size > uint64(len(l.region)) {
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

// snapshot is what a memory held at some time. Many memories may be mapped
// over one snapshot.
type snapshot struct {
	size  int
	bytes []byte   // of a small memory
	file  *os.File // of a larger one
}

func newSnapshot(memory []byte) (*snapshot, error) {
	s := &snapshot{size: len(memory)}
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

// fill writes the pages that hold something, and seals the file.
func (s *snapshot) fill(memory []byte) error {
	if err := s.file.Truncate(int64(len(memory))); err != nil {
		return err
	}
	const page = 4096
	for i := 0; i < len(memory); i += page {
		part := memory[i:min(i+page, len(memory))]
		if !zero(part) {
			if _, err := s.file.WriteAt(part, int64(i)); err != nil {
				return err
			}
		}
	}
	_, err := unix.FcntlInt(s.file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
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
	if s.file == nil {
		copy(l.region[:s.size], s.bytes)
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

func (s *snapshot) close() {
	if s.file != nil {
		_ = s.file.Close() // only ever read from
	}
}
