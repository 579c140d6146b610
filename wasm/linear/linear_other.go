//go:build !linux

package linear

// Memory is the memory of one instance: a slice with room for all that it may
// grow to.
type Memory struct {
	region  []byte
	Refused bool   // growth beyond the limit was asked for
	Most    uint64 // bytes that it may grow to
}

// New returns a memory that grows to at most limit bytes.
func New(limit uint64) (*Memory, error) {
	return &Memory{region: make([]byte, limit), Most: limit}, nil
}

// Reallocate grows the memory to size bytes; nil when that is above the limit.
func (l *Memory) Reallocate(size uint64) []byte {
	if size > l.Most {
		l.Refused = true
		return nil
	}
	return l.region[:size:len(l.region)]
}

func (l *Memory) Provide(int) {} // the slice has been made whole
func (l *Memory) Before()     {} // there is one way to reset
func (l *Memory) After()      {}

// Free forgets the memory.
func (l *Memory) Free() { l.region = nil }

// Snapshot is what a memory held at some time.
type Snapshot struct {
	size  int
	bytes []byte
}

// NewSnapshot keeps what a memory holds. The error says that the system has no room for it.
func NewSnapshot(memory []byte) (*Snapshot, error) {
	return &Snapshot{len(memory), append([]byte(nil), memory...)}, nil
}

// NewCopy makes a snapshot that is always copied back.
func NewCopy(memory []byte) (*Snapshot, error) { return NewSnapshot(memory) }

// Restore makes a memory of the snapshot's size equal to it.
func (s *Snapshot) Restore(l *Memory) error {
	copy(l.region[:s.size], s.bytes)
	return nil
}

// Close gives up the snapshot, over which no memory is mapped any more.
func (s *Snapshot) Close() {}
