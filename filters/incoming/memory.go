package incoming

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"time"
	"unsafe"

	"github.com/weir-edge/weir/edge"
)

// cachePart is the part of the process's cache where good tokens are remembered.
const cachePart = "tokens"

// memory remembers good tokens in a part of the process's cache that is the
// gate's own. Bad ones never get in. One that hardly anybody uses may give way to
// those that are used often, and is judged again then. It is safe for concurrent
// use.
type memory struct {
	cache edge.Cache // nil where the process has none: nothing is remembered
	spec  [24]byte   // digest of what tokens are held against
	seed  maphash.Seed
}

// entry is a token that was found good.
type entry struct {
	token      string
	identity   *edge.Identity
	until      time.Time // of the wall clock: not later than the token itself; zero for never
	generation uint64    // of the keys it was verified with
	grant      Grant     // of a token of the edge's own; else nil
	version    uint64    // of what policies read of its user
	asked      time.Time // when the issuer was asked; zero for a JWT
	fresh      time.Time // of the wall clock: until when that is taken for its word
}

func newMemory(cache edge.Cache, s *Spec) *memory {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a Spec is data
	}
	m := &memory{cache: cache, seed: maphash.MakeSeed()}
	sum := sha256.Sum256(text)
	copy(m.spec[:], sum[:])
	return m
}

// key returns the key that a token is remembered under: the digest of what it is
// held against, and a hash of the token under a seed that nobody knows. The hash
// finds a token; get tells it from all others.
func (m *memory) key(token string) (key edge.Key) {
	copy(key[:], m.spec[:])
	binary.LittleEndian.PutUint64(key[len(m.spec):], maphash.Comparable(m.seed, token))
	return key
}

// get returns what is remembered of a token, which has this key; nil for nothing.
func (m *memory) get(key edge.Key, token string, now time.Time) *entry {
	if m.cache == nil {
		return nil
	}
	e, _ := m.cache.Get(key, now).(*entry)
	if e == nil || e.token != token {
		return nil
	}
	return e
}

// put remembers a token that came in a header of so many bytes.
func (m *memory) put(key edge.Key, e *entry, header int) {
	if m.cache != nil {
		m.cache.Put(key, e, cost(e, header), e.until)
	}
}

// forget removes what is remembered of a token.
func (m *memory) forget(key edge.Key) {
	if m.cache != nil {
		m.cache.Forget(key)
	}
}

// What Go takes for values, in bytes: as they lie in the heap, with what its size
// classes and the free places of its maps take on the average.
const (
	sizeEntry  = int64(unsafe.Sizeof(entry{}) + unsafe.Sizeof(edge.Identity{}))
	sizeString = 16 + 8 // one in an interface, but for its bytes
	sizeSlice  = 24
	sizeAny    = 16
	sizeMap    = 48
	sizeGroup  = 288 // of a map with one to eight members
	sizeMember = 72  // of a larger map
)

// cost is how many bytes are held for a token: what came in its header, of which
// the token is a part, and what was made of it.
func cost(e *entry, header int) int64 {
	id := e.identity
	n := sizeEntry + int64(header) + int64(len(id.Subject)+len(id.Name)+len(id.Email))
	for _, scope := range id.Scopes {
		n += sizeAny + int64(len(scope))
	}
	n += int64(len(id.Attributes))*int64(unsafe.Sizeof(edge.Attribute{})) + int64(id.Attributes.Size())
	if id.PolicyClaims != nil {
		n += sizeOf(id.PolicyClaims)
	}
	return n + sizeOf(id.Claims)
}

// sizeOf is how many bytes a value takes that was read from JSON.
func sizeOf(v any) (n int64) {
	switch v := v.(type) {
	case string:
		return sizeString + int64(len(v))
	case json.Number:
		return sizeString + int64(len(v))
	case float64:
		return 8
	case []any:
		n = sizeSlice + sizeAny*int64(cap(v))
		for _, one := range v {
			n += sizeOf(one)
		}
	case map[string]any:
		n = sizeMap + sizeMember*int64(max(0, len(v)-8))
		if len(v) > 0 {
			n += sizeGroup
		}
		for name, one := range v {
			n += 8 + int64(len(name)) + sizeOf(one)
		}
	}
	return n
}
