// Package linear is the memory of guests: address space that the collector does not know,
// and snapshots that a memory is brought back to.
package linear

// Size is how many bytes the memory had.
func (s *Snapshot) Size() int { return s.size }

// Bytes are what the memory held. They must not be changed.
func (s *Snapshot) Bytes() []byte { return s.bytes }
