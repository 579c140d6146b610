package incoming

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"sync"
	"time"
	"unsafe"

	"github.com/weir-edge/weir/edge"
)

// Bounds of what is remembered of verified tokens, for one server.
const (
	cacheShards = 16       // a power of two, at most 256
	cacheBudget = 32 << 20 // bytes, as cost estimates them
	cacheSample = 8        // entries that are compared when one has to go
)

// digest stands for a token: what is remembered of it holds no token.
type digest = [16]byte

// digester makes digests of tokens under a key that nobody has, the gate's own:
// a GMAC without the nonce that would let others see it. Two tokens have the
// same one with a probability below 2^-110, whoever chooses them (NIST SP
// 800-38D, appendix A), and it costs a sixth of a SHA-256.
type digester struct {
	gcm  cipher.AEAD
	outs sync.Pool // *digest, which the call would put on the heap
}

var noNonce [12]byte

func newDigester() *digester {
	var key [16]byte
	_, _ = rand.Read(key[:]) // which never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // a key of 16 bytes is one
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // as above
	}
	return &digester{gcm: gcm, outs: sync.Pool{New: func() any { return new(digest) }}}
}

// of returns the digest of a token.
func (d *digester) of(token string) digest {
	out := d.outs.Get().(*digest)
	d.gcm.Seal(out[:0], noNonce[:], nil, unsafe.Slice(unsafe.StringData(token), len(token))) // which only reads, and so needs no copy
	sum := *out
	d.outs.Put(out)
	return sum
}

// entry is a token that was found good.
type entry struct {
	identity   *edge.Identity
	until      time.Time // of the wall clock: not later than the token itself
	generation uint64    // of the keys it was verified with
	asked      time.Time // when the issuer was asked; zero for a JWT
	cost       int64
}

// cost estimates what an identity made of a token takes in memory: the token
// itself, its claims, and the rest.
func cost(token string) int64 { return 5*int64(len(token)) + 1<<10 }

// cache remembers good tokens by their digest. Bad ones never get in. It is
// safe for concurrent use.
type cache struct{ shards [cacheShards]shard }

type shard struct {
	mu   sync.RWMutex
	held map[digest]*entry
	cost int64
}

func (c *cache) shard(d *digest) *shard { return &c.shards[d[0]%cacheShards] }

// get returns what is remembered of a token; nil for nothing.
func (c *cache) get(d *digest) *entry {
	s := c.shard(d)
	s.mu.RLock()
	e := s.held[*d]
	s.mu.RUnlock()
	return e
}

// put remembers a token, and forgets of a few others those that end first when
// there is no room.
func (c *cache) put(d *digest, e *entry) {
	s := c.shard(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[digest]*entry{}
	}
	if old := s.held[*d]; old != nil {
		s.cost -= old.cost
	}
	s.held[*d] = e
	s.cost += e.cost
	for s.cost > cacheBudget/cacheShards && len(s.held) > 1 {
		s.drop(*d)
	}
}

// drop forgets the entry that ends first of a random few, other than keep.
func (s *shard) drop(keep digest) {
	var worst digest
	var least *entry
	n := 0
	for d, e := range s.held { // in random order
		if d == keep {
			continue
		}
		if least == nil || e.until.Before(least.until) {
			worst, least = d, e
		}
		if n++; n == cacheSample {
			break
		}
	}
	if least != nil {
		s.cost -= least.cost
		delete(s.held, worst)
	}
}

// forget removes an entry that does not hold any more.
func (c *cache) forget(d *digest, e *entry) {
	s := c.shard(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[*d] == e {
		s.cost -= e.cost
		delete(s.held, *d)
	}
}

// size returns how many tokens are remembered, and their cost.
func (c *cache) size() (tokens int, cost int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		tokens, cost = tokens+len(s.held), cost+s.cost
		s.mu.RUnlock()
	}
	return tokens, cost
}
