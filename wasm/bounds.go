package wasm

import "time"

// KeyPrefix begins keys in the store, before the filter's name and a colon.
const KeyPrefix = "weir:guest:"

// The bounds of what functions of the host take, of guests and of filters in any other
// language (ABI.md, host functions).
const (
	MaxLine   = 4 << 10  // bytes of one line for the log
	MaxRandom = 4 << 10  // random bytes at a time
	MaxKey    = 256      // bytes of a key in the store, or of the name of a signing key
	MaxValue  = 64 << 10 // bytes of a value in the store
	MaxTTL    = 24 * time.Hour
	HostWait  = time.Second // for one request to the store
	MaxStored = 1000        // requests to the store in one call of a hook
	StoreWait = 5 * time.Second
	MaxName   = 64      // bytes of the name of a metric or an event
	MaxEvent  = 4 << 10 // bytes of what an event says

	MaxRequest = 256 << 10 // bytes of one request to others
	MaxAnswer  = 1 << 20   // bytes of one answer
	MaxOutside = 16        // requests to others in one call of a hook
	MaxWait    = 30 * time.Second
)
