package optimizer

import (
	"crypto/sha256"
	"sync"
	"weak"
)

// Bounds of the vectors of tools that a process keeps.
const (
	maxVectors     = 200_000
	maxVectorBytes = 512 << 20
)

// Library is what the optimizers of a process share: what they have read of tools, and
// vectors of their texts. Reloads do not touch it. It is safe for concurrent use.
type Library struct {
	mu       sync.Mutex
	segments map[segmentKey]weak.Pointer[segment] // as long as an index has them
	swept    int                                  // how many there were after the last sweep
	vectors  *recent[vectorKey, *vector]
	built    int64 // segments
}

// vector is of length 1, so that an inner product of two is the cosine of their angle.
type vector struct{ of []float32 }

// vectorKey is by what a vector is known again: the model that made it, and its text.
type vectorKey [sha256.Size]byte

// NewLibrary returns an empty library.
func NewLibrary() *Library {
	return &Library{segments: map[segmentKey]weak.Pointer[segment]{}, vectors: newRecent[vectorKey, *vector](maxVectors, maxVectorBytes)}
}

// segment returns the segment of the tools of a backend, made with what is known of them
// from before, nil for nothing.
func (l *Library) segment(backend string, tools []entry, before *segment, read *reader) *segment {
	digests := make([]digest, len(tools))
	for i, t := range tools {
		digests[i] = digestOf(t.raw)
	}
	key := keyOf(backend, digests)
	l.mu.Lock()
	s := l.segments[key].Value()
	l.mu.Unlock()
	if s != nil {
		return s
	}
	s = segmentOf(backend, tools, digests, before, read)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.built++
	l.segments[key] = weak.Make(s)
	if len(l.segments) > 2*l.swept+1000 {
		for key, s := range l.segments {
			if s.Value() == nil {
				delete(l.segments, key)
			}
		}
		l.swept = len(l.segments)
	}
	return s
}

func (l *Library) vector(key vectorKey) *vector {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, _ := l.vectors.get(key)
	return v
}

func (l *Library) keep(key vectorKey, v *vector) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.vectors.put(key, v, 4*len(v.of)+256)
}
