package serve

import (
	"crypto/rand"
	"time"

	"github.com/valyala/fasthttp"
)

// SetArrival changes how long a request may take to arrive. It must be called
// before Serve.
func (e *Edge) SetArrival(d time.Duration) { e.arrival = d }

// Sealer seals and opens states as an edge does.
type Sealer struct{ sealer *sealer }

// State is what a requestState says.
type State = state

// NewSealer returns a sealer with a key of its own.
func NewSealer() (*Sealer, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	s, err := newSealer([][]byte{key})
	return &Sealer{s}, err
}

// Seal and Open are what the edge does with a requestState.
func (s *Sealer) Seal(v State) string            { return s.sealer.seal(v) }
func (s *Sealer) Open(text string) (State, bool) { return s.sealer.open(text) }

// Lint returns the status with which the edge refuses a header; 0 for one that
// it lets pass.
func Lint(h *fasthttp.RequestHeader, maxBody int) int { return lint(h, maxBody).status }
