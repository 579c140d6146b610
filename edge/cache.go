package edge

import "time"

// Key is what a value lies under in a Cache: a digest that nobody can find a second
// thing for, or the value itself says what it is of and whoever gets it compares.
// What strangers send is hashed under a seed that they do not know in any case.
type Key [32]byte

// Cache is a part of the memory that the process has for what it can do without:
// what is in it can be had again at the price of some work, and may be gone at
// the next look. What has to be there does not belong in it. All parts share one
// budget of bytes, and within it what is asked for often stays: a value that is
// new may be refused for the sake of others. Values are not changed once they are
// in it. It is safe for concurrent use.
type Cache interface {
	// Get returns the value under a key; nil when there is none that is good
	// after now.
	Get(key Key, now time.Time) any

	// Put offers a value that holds cost bytes, with all that it leads to and
	// nobody else keeps, and is good until a time; the zero time is never over. A
	// value that is there already stays: Forget it first.
	Put(key Key, value any, cost int64, until time.Time)

	// Forget removes the value under a key, if there is one.
	Forget(key Key)
}
