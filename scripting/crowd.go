package scripting

import (
	"encoding/json"
	"errors"
	"math"
	"strings"

	"go.starlark.net/starlark"
)

// A dict of the language goes through a bucket key by key, and in which bucket a key is anybody
// can work out beforehand, but for texts of twelve bytes and more. Thousands of keys that were
// chosen for one bucket take the square of their number, in one step that nothing ends. So they
// are counted before, in process; a run in the sandbox is ended by its host.
const (
	fewKeys     = 256 // of a dict that is made soon, or stored one by one, whatever they are but tuples
	mostCrowded = 64  // names of an object in one bucket; by chance the fullest has some 25
	mostNumbers = 8   // numbers in one bucket that are not remembered; on average there are 6

	freeUnits  = 160  // of comparing a number that is stored with those of the other kind: with two of them
	heavyChain = 1024 // units of looking among the keys of one hash

	// perStored is how often a key is compared with each that was in its bucket before: when it is
	// counted, when it is put there, in the smaller buckets at first, and each time the dict grows.
	perStored = 4
)

var errCrowded = errors.New("an object has names that were chosen to be slow to find")

// crowd counts the keys in each bucket of a dict that is about to be made; nil counts none.
type crowd struct {
	few  bool
	both int                 // kinds of numbers that came, a bit for each
	keys []uint32            // of each bucket, up to mostCrowded; nil for mostNumbers
	more map[uint32][]hashed // the different keys that came to a bucket after those, and all that are long to compare
	met  chain               // of the last key that was added
}

type hashed struct {
	hash uint32
	key  starlark.Value
}

// crowdOf is that of a dict of so many keys. Of few it counts tuples and numbers alone, numbers for
// what those of the other kind take: to compare them takes as long as they are.
func crowdOf(keys int) *crowd {
	if keys <= mostNumbers {
		return &crowd{few: true}
	}
	buckets := 1
	for float64(keys) >= 6.5*float64(buckets) { // as the language has them
		buckets <<= 1
	}
	return &crowd{few: keys <= fewKeys, keys: make([]uint32, buckets)}
}

// sees notes the kind of a key that will be added: where numbers of both kinds will be, the first
// of them are remembered too.
func (c *crowd) sees(key starlark.Value) {
	switch key.(type) {
	case starlark.Int:
		c.both |= 1
	case starlark.Float:
		c.both |= 2
	}
}

// add counts a key, and returns the work of finding its place, in units: none in a bucket that is
// not crowded, but for a tuple, and numbers of two kinds or large ones of one hash. In one that is, a
// key that comes again, as the groups of many rows do, is one key.
func (c *crowd) add(key starlark.Value) (units int) {
	if c == nil {
		return 0
	}
	c.met = chain{}
	long, number, most := false, false, uint32(mostCrowded)
	switch key := key.(type) {
	case starlark.Tuple:
		long = true
	case starlark.Int:
		c.both |= 1
		_, small := key.Int64()
		number, long, most = true, c.both == 3 && c.keys != nil || !small, mostNumbers
	case starlark.Float:
		c.both |= 2
		number, long, most = true, c.both == 3 && c.keys != nil, mostNumbers
	default:
		if c.few {
			return 0
		}
	}
	if !long && c.keys == nil {
		return 0
	}
	hash, err := key.Hash()
	if err != nil {
		return 0 // it becomes no key
	}
	at := hash & uint32(len(c.keys)-1)
	if !long && c.keys[at] < most {
		c.keys[at]++
		return 0
	}
	free, dear := mostCrowded-mostNumbers, 0 // numbers of one word and one kind are free at first, the others mostly dear
	if c.few {
		at, free = hash, fewKeys
	}
	for i, other := range c.more[at] {
		same, more := false, 0
		if other.hash == hash {
			same, more = alike(key, other.key, false)
			c.met.add(other.key, more)
		}
		switch {
		case number && more > 3:
			dear += 1 + more
		case !number || i >= free:
			units += 1 + more
		}
		if same && c.few {
			dear = max(0, dear-freeUnits)
		}
		if same { // which is compared once
			return perStored*units + dear
		}
	}
	if c.more == nil {
		c.more = map[uint32][]hashed{}
	}
	c.more[at] = append(c.more[at], hashed{hash, key})
	c.met.add(key, 0)
	if units += max(0, dear-freeUnits); units == 0 && number {
		return 0
	}
	return perStored * (units + 1)
}

// chain sums the numbers and tuples of one hash up: what looking for another goes through.
type chain struct {
	ints, bits, floats, exps, units int
}

// add puts a key into a chain; units is what comparing it took.
func (c *chain) add(key starlark.Value, units int) {
	switch key := key.(type) {
	case starlark.Int:
		c.ints, c.bits = c.ints+1, c.bits+bitLen(key)
	case starlark.Float:
		_, exp := math.Frexp(float64(key))
		c.floats, c.exps = c.floats+1, c.exps+max(exp, -exp)
	case starlark.Tuple:
		c.units += units
	}
}

// against is the work of looking for a key among those of a chain, where it is much.
func (c *chain) against(key starlark.Value) int {
	switch key := key.(type) {
	case starlark.Int:
		n := bitLen(key)
		return c.floats*60 + (c.floats*n+c.exps)/8 + min(c.bits, c.ints*n)/64
	case starlark.Float:
		_, exp := math.Frexp(float64(key))
		return c.ints*60 + (c.bits+c.ints*max(exp, -exp))/8
	}
	return c.units
}

// chains is how many keys each bucket of a set or dict has; nil where there are few keys.
type chains []uint32

// chainsOf counts the keys of a set or dict in which others are looked for.
func chainsOf(v starlark.Value) chains {
	var keys starlark.Iterable
	switch v := v.(type) {
	case *starlark.Set:
		keys = v
	case *starlark.Dict:
		keys = v
	}
	if keys == nil || starlark.Len(v) <= fewKeys {
		return nil
	}
	c := make(chains, len(crowdOf(starlark.Len(v)).keys))
	for key := range starlark.Elements(keys) {
		if hash, err := key.Hash(); err == nil {
			c[hash&uint32(len(c)-1)]++
		}
	}
	return c
}

// alike compares two values as the language does, and says what that takes, in units. In order, it
// goes into sequences of different length.
func alike(x, y starlark.Value, order bool) (same bool, units int) {
	switch a := x.(type) {
	case starlark.Tuple:
		if b, ok := y.(starlark.Tuple); ok {
			return alikeAll(a, b, order)
		}
		return false, 1
	case *starlark.List:
		if b, ok := y.(*starlark.List); ok {
			return alikeAll(a, b, order)
		}
		return false, 1
	case *starlark.Dict:
		b, ok := y.(*starlark.Dict)
		if !ok || a.Len() != b.Len() {
			return false, 1
		}
		return alikeDicts(a, b, order)
	case *starlark.Set: // of which the keys are paid for in another place
		b, ok := y.(*starlark.Set)
		return ok && a.Len() == b.Len(), 1
	case starlark.String:
		b, _ := y.(starlark.String)
		units = min(len(a), len(b)) / 16
	case starlark.Bytes:
		b, _ := y.(starlark.Bytes)
		units = min(len(a), len(b)) / 16
	case starlark.Int:
		switch b := y.(type) {
		case starlark.Float:
			return mixed(a, b)
		case starlark.Int:
			n, small := a.Int64()
			if m, ok := b.Int64(); ok && small {
				return n == m, 3
			} else if units = 3; !small {
				units = 30 + bitLen(a)/64
			}
		}
	case starlark.Float:
		switch b := y.(type) {
		case starlark.Int:
			return mixed(b, a)
		case starlark.Float:
			return a == b || a != a && b != b, 0
		}
	}
	same, err := starlark.Equal(x, y)
	return same || err != nil, units
}

// alikeAll is alike for lists or tuples.
func alikeAll[L starlark.Indexable](a, b L, order bool) (same bool, units int) {
	n, m := a.Len(), b.Len()
	if n != m && !order {
		return false, 1
	}
	for i := range min(n, m) {
		same, more := alike(a.Index(i), b.Index(i), order)
		if units += 1 + more; !same {
			return false, units
		}
	}
	return n == m, units
}

// alikeDicts is alike for dicts of one length.
func alikeDicts(a, b *starlark.Dict, order bool) (same bool, units int) {
	for key, v := range a.Entries() {
		other, found, _ := b.Get(key)
		if units++; !found {
			return false, units
		}
		same, more := alike(v, other, order)
		if units += more; !same {
			return false, units
		}
	}
	return true, units
}

// mixed is alike for an integer and a float. The language makes fractions of both.
func mixed(n starlark.Int, f starlark.Float) (same bool, units int) {
	_, exp := math.Frexp(float64(f))
	if whole, err := starlark.NumberToInt(f); err == nil && float64(f) == math.Trunc(float64(f)) {
		same, _ = starlark.Equal(n, whole)
	}
	return same, 60 + (bitLen(n)+max(exp, -exp))/8
}

// crowding counts a key, and the work of going through those in its bucket. The heaviest chain of
// each hash, of whatever dict, is kept for those that are looked for. in is the dict or set that has
// some of those that were counted; nil where it has all.
func (m *meter) crowding(thread *starlark.Thread, c *crowd, key, in starlark.Value) error {
	units := c.add(key)
	if n := c.met.ints + c.met.floats; in != nil && n > 0 {
		units = units * min(n, 1+starlark.Len(in)) / n
	}
	if met := c.met; (met.ints+met.floats)*60+(met.bits+met.exps)/8+met.units > heavyChain {
		if m.chains == nil {
			m.chains = map[uint32]chain{}
		}
		hash, _ := key.Hash() // add has it
		old := m.chains[hash]
		m.chains[hash] = chain{max(old.ints, met.ints), max(old.bits, met.bits), max(old.floats, met.floats), max(old.exps, met.exps), max(old.units, met.units)}
	}
	if units > 0 {
		return m.work(thread, units)
	}
	return nil
}

// again counts the keys of a dict of which another is made.
func (m *meter) again(thread *starlark.Thread, d *starlark.Dict) error {
	crowded := crowdOf(d.Len())
	for key := range d.Entries() {
		if err := m.crowding(thread, crowded, key, nil); err != nil {
			return err
		}
	}
	return nil
}

// found is the work of looking for a key among all that have its hash, of which no more than n are
// where it is looked for.
func (m *meter) found(key starlark.Value, n int) int {
	if len(m.chains) == 0 {
		return 0
	}
	hash, err := key.Hash()
	if err != nil {
		return 0
	}
	c := m.chains[hash]
	all := max(1, c.ints+c.floats)
	return c.against(key) * min(max(0, n), all) / all
}

// within is found for all keys in a value that compared has looked at.
func (m *meter) within(v starlark.Value) (units int) {
	if len(m.chains) == 0 {
		return 0
	}
	switch v := v.(type) {
	case starlark.Tuple, *starlark.List:
		for x := range starlark.Elements(v.(starlark.Iterable)) {
			units += m.within(x)
		}
	case *starlark.Set:
		for key := range starlark.Elements(v) {
			units += m.found(key, v.Len())
		}
	case *starlark.Dict:
		for key, x := range v.Entries() {
			units += m.found(key, v.Len()) + m.within(x)
		}
	}
	return units
}

// looking counts the work of looking for a key in a set or dict: none where its bucket is not crowded.
func (m *meter) looking(thread *starlark.Thread, c chains, key starlark.Value) error {
	if len(c) == 0 {
		return nil
	}
	hash, err := key.Hash()
	if n := int(c[hash&uint32(len(c)-1)]); err == nil && n > mostCrowded {
		return m.work(thread, n/8) // what is compared is the hash
	}
	return nil
}

// storing counts a key that is put into a dict by itself. Which dict that is does not matter: keys
// that were chosen crowd a bucket among those of all dicts too, and the names that many dicts have
// in common are few.
func (m *meter) storing(thread *starlark.Thread, key, in starlark.Value) error {
	if m.stores++; m.stores > m.room { // for as many again; those before are not counted again, which took as long
		more := min(max(m.stores, fewKeys), maxValueElements) // that no dict has more of
		m.room = m.stores + more
		m.stored = crowdOf(more)
	}
	return m.crowding(thread, m.stored, key, in)
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
			if all.add(starlark.String(name)) > 0 {
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
