package wasm

import (
	"sync/atomic"

	"github.com/weir-edge/weir/sdk/abi"
)

// retiredChanged is the reason for an instance to go that no call failed for:
// its memory grew, or its tables changed, under PerRequest.
const retiredChanged = Reasons

type counts struct {
	pass, ops [abi.Hooks]atomic.Uint64
	failures  [abi.Hooks][Reasons]atomic.Uint64
	skipped   [abi.Hooks]atomic.Uint64
	retired   [Reasons + 1]atomic.Uint64
	fuel      atomic.Uint64
	made      atomic.Uint64
	dropped   atomic.Uint64
	opened    atomic.Uint64
}

func (c *counts) done(h abi.Hook, ops bool) {
	if ops {
		c.ops[h].Add(1)
	} else {
		c.pass[h].Add(1)
	}
}

func (c *counts) failed(h abi.Hook, why Reason, skipped bool) {
	c.failures[h][why].Add(1)
	if skipped {
		c.skipped[h].Add(1)
	}
}

// Stats are figures of a guest since it was opened.
type Stats struct {
	Hooks       [abi.Hooks]HookStats
	Retired     [Reasons]uint64 // instances discarded after a failure, by its reason
	Changed     uint64          // instances discarded because they could not be reset
	Fuel        uint64          // used by all calls
	Made        uint64          // instances made after the first
	LogsDropped uint64          // lines above the rate
	Rests       uint64          // times that messages of a sender began to rest
	Resting     int             // senders whose messages rest now
	Live, Idle  int             // instances, and those that no call uses
}

// HookStats are figures of one hook.
type HookStats struct {
	Pass     uint64          // calls that returned nothing
	Ops      uint64          // calls that returned a record
	Failures [Reasons]uint64 // by reason
	Skipped  uint64          // failures that were passed over
}

// Stats returns the figures.
func (g *Guest) Stats() Stats {
	c, s := &g.front.counts, g.front.Figures()
	s.Live, s.Idle, s.Changed = int(g.pool.live.Load()), g.pool.idle(), c.retired[retiredChanged].Load()
	if g.sessions != nil {
		s.Idle += g.sessions.resting()
	}
	for r := range s.Retired {
		s.Retired[r] = c.retired[r].Load()
	}
	return s
}
