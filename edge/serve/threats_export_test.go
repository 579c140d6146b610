package serve

import (
	"crypto/rand"

	"github.com/weir-edge/weir/edge/route"
)

// NewSealer returns a sealer with a key of its own.
func NewSealer() (*route.Sealer, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return route.NewSealer([][]byte{key})
}

// Sealer is the edge's own.
func (e *Edge) Sealer() *route.Sealer { return e.replicas.Parked.Sealer() }

// BudgetTaken returns how many bytes of it are taken.
func (e *Edge) BudgetTaken() int64 { return e.door.BodyBytes() }

// Owners returns how many clients have some of it.
func (e *Edge) Owners() int { return e.door.Senders() }

// Connections returns how many client connections are open.
func (e *Edge) Connections() int { return e.door.Connections() }

// SetParked changes how many bytes the requests of parked calls may have, and how
// many of them those of one holder. It must be called before Serve.
func (e *Edge) SetParked(room, part int) { e.replicas.Parked.Room, e.replicas.Parked.Part = room, part }

// Arriving returns how many connections wait for more of a request.
func (e *Edge) Arriving() int { return e.door.Arriving() }
