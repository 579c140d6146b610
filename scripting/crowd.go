package scripting

import (
	"encoding/json"
	"errors"
	"strings"

	"go.starlark.net/starlark"
)

// A dict of the language goes through a bucket key by key, and in which bucket a key is anybody
// can work out beforehand, but for texts of twelve bytes and more. Thousands of keys that were
// chosen for one bucket take the square of their number, in one step that nothing ends. So they
// are counted before, in process; a run in the sandbox is ended by its host.
const (
	fewKeys     = 256 // of a dict that is made soon, or stored one by one, whatever they are
	mostCrowded = 64  // names of an object in one bucket; by chance the fullest has some 25

	// perStored is what a key takes for each that was in its bucket before, in units: the dict goes
	// through smaller buckets at first, and through all keys again each time it grows; so does one that
	// is made in one step. That of integers beyond 64 bits takes 50 ns each, and nothing ends the step.
	perStored = 16
)

var errCrowded = errors.New("an object has names that were chosen to be slow to find")

// crowd counts the keys in each bucket of a dict that is about to be made; nil counts none.
type crowd struct {
	keys []uint32            // of each bucket, up to mostCrowded
	more map[uint32][]hashed // the different keys that came to a bucket after those
}

type hashed struct {
	hash uint32
	key  starlark.Value
}

// crowdOf is that of a dict of so many keys.
func crowdOf(keys int) *crowd {
	if keys <= fewKeys {
		return nil
	}
	buckets := 1
	for float64(keys) >= 6.5*float64(buckets) { // as the language has them
		buckets <<= 1
	}
	return &crowd{keys: make([]uint32, buckets), more: map[uint32][]hashed{}}
}

// add counts a key, and returns how many in its bucket are gone through to find its place. In a
// bucket that is crowded one that comes again, as the groups of many rows do, is one key.
func (c *crowd) add(key starlark.Value) int {
	if c == nil {
		return 0
	}
	hash, err := key.Hash()
	if err != nil {
		return 0 // it becomes no key
	}
	at := hash & uint32(len(c.keys)-1)
	if c.keys[at] < mostCrowded {
		c.keys[at]++
		return int(c.keys[at])
	}
	for i, other := range c.more[at] {
		if other.hash != hash {
			continue
		}
		if same, err := starlark.Equal(other.key, key); same || err != nil {
			return mostCrowded + i
		}
	}
	c.more[at] = append(c.more[at], hashed{hash, key})
	return mostCrowded + len(c.more[at])
}

// crowding counts a key, and the work of going through those in its bucket.
func (m *meter) crowding(thread *starlark.Thread, c *crowd, key starlark.Value) error {
	if n := c.add(key); n > mostCrowded {
		return m.work(thread, perStored*(n-mostCrowded))
	}
	return nil
}

// storing counts a key that is put into a dict by itself. Which dict that is does not matter: keys
// that were chosen crowd a bucket among those of all dicts too, and the names that many dicts have
// in common are few.
func (m *meter) storing(thread *starlark.Thread, key starlark.Value) error {
	if m.stores++; m.stores <= fewKeys {
		return nil
	}
	if m.stores > m.room { // for twice as many; those before are not counted again, which took as long
		m.room = 2 * m.stores
		m.stored = crowdOf(m.room)
	}
	return m.crowding(thread, m.stored, key)
}

// crowded reports whether an object in a JSON text has names that were chosen. It reads the text
// as the language's own decoder does, which makes its dicts in one step.
func crowded(text string) bool {
	if strings.Count(text, ":") <= fewKeys {
		return false
	}
	var open [][]string // names of the objects and arrays that are open, by depth
	over := func() bool {
		names := open[len(open)-1]
		open = open[:len(open)-1]
		all := crowdOf(len(names))
		for _, name := range names {
			if all.add(starlark.String(name)) > mostCrowded {
				return true
			}
		}
		return false
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			open = append(open, nil)
		case '}', ']':
			if len(open) > 0 && over() {
				return true
			}
		case '"':
			from, plain := i, true
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
					plain = false
				} else if text[i] >= 0x80 {
					plain = false
				}
			}
			if len(open) == 0 || i >= len(text) || !strings.HasPrefix(strings.TrimLeft(text[i+1:], " \t\r\n"), ":") {
				continue
			}
			name := text[from+1 : i]
			if !plain && json.Unmarshal([]byte(text[from:i+1]), &name) != nil {
				continue // the decoder ends here
			}
			open[len(open)-1] = append(open[len(open)-1], name)
		}
	}
	for len(open) > 0 { // what was made before the decoder sees that it has no end
		if over() {
			return true
		}
	}
	return false
}
