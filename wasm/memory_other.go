//go:build !linux

package wasm

// linear is the memory of one instance: a slice with room for all that it may
// grow to.
type linear struct {
	region  []byte
	refused bool   // growth beyond the limit was asked for
	most    uint64 // bytes that it may grow to
}

func newLinear(limit uint64) (*linear, error) {
	return &linear{region: make([]byte, limit), most: limit}, nil
}

// Reallocate grows the memory to size bytes; nil when that is above the limit.
func (l *linear) Reallocate(size uint64) []byte {
	if size > l.most {
		l.refused = true
		return nil
	}
	return l.region[:size:len(l.region)]
}

func (l *linear) provide(int) {} // the slice has been made whole
func (l *linear) before()     {} // there is one way to reset
func (l *linear) after()      {}

// Free forgets the memory.
func (l *linear) Free() { l.region = nil }

// snapshot is what a memory held at some time.
type snapshot struct {
	size  int
	bytes []byte
}

func newSnapshot(memory []byte) (*snapshot, error) {
	return &snapshot{len(memory), append([]byte(nil), memory...)}, nil
}

// newCopy makes a snapshot that is always copied back.
func newCopy(memory []byte) (*snapshot, error) { return newSnapshot(memory) }

// restore makes a memory of the snapshot's size equal to it.
func (s *snapshot) restore(l *linear) error {
	copy(l.region[:s.size], s.bytes)
	return nil
}

func (s *snapshot) close() {}
