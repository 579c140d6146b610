package authz

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/weir-edge/weir/edge/mcp"
)

// The bounds of what policies read of one message, or of one token. The messages
// of a batch share them.
const (
	maxValues = 20_000
	maxDepth  = 64 // of arrays and objects in each other
)

var (
	errTooManyValues = errors.New("more than " + strconv.Itoa(maxValues) + " values (the messages of a batch share them)")
	errTooDeep       = errors.New("nested deeper than " + strconv.Itoa(maxDepth))
	errColliding     = errors.New("elements of an array that were chosen to collide")
)

// converter turns JSON into Cedar values that are plain data: nothing that a
// client sends becomes an entity or an extension value by its looks.
//
// Strings and booleans are what they are. A number without a fractional part
// that fits 64 bits is a Long however it is written; another number with at
// most four decimal places that fits a decimal is one. What is neither equals
// nothing that a policy can write, though a reader may round it to that: it is an
// error where numbers have to be exact, else the record {"number": "<text>"},
// which has the attribute but fails every ordering. null is an empty record, an
// array a set, an object a record.
type converter struct {
	left    int           // values
	steps   int           // of comparing, for all that is converted
	stop    func() error  // nil for never
	exact   bool          // whether a number that is neither a Long nor a decimal is an error
	overlap bool          // whether policies ask if two sets share an element
	outline mcp.Outline   // of the value under way
	values  []cedar.Value // of the sets under way, innermost last
	hashes  []uint64      // theirs
	costs   []cost        // and what to compare them takes
	places  map[uint64]int
	keys    []string // of the records under way
	run     int      // the longest that a set has of hashes in a row
	members int      // of all sets
}

// The bounds of comparing: what is converted may take so many steps in all, and
// some for each value and for the bytes of its text.
const (
	stepsAtAll    = 8192
	stepsOfValue  = 4
	bytesOfAStep  = 32
	bytesCompared = 256 // of a string, in one step
)

func newConverter() *converter { return &converter{left: maxValues, steps: stepsAtAll} }

// cost is how many steps it takes Cedar at most to find that a value is the same
// as the one that it is compared with, and that it is another. It looks for each
// element of one set in the other, where elements may share a place, and may be
// sets: who chooses them can make a comparison take a power of their number, with
// the depth for its exponent.
type cost struct{ same, other int }

func (c cost) most() int { return max(c.same, c.other) }

var plain = cost{1, 1}

// text converts valid JSON text, in one walk.
func (c *converter) text(v []byte) (cedar.Value, error) {
	if c.left <= 0 {
		return nil, errTooManyValues
	}
	switch err := c.outline.Read(v, mcp.Bounds{Values: c.left, Depth: maxDepth, Stop: c.stop}); {
	case errors.Is(err, mcp.ErrManyValues):
		return nil, errTooManyValues
	case errors.Is(err, mcp.ErrDeep):
		return nil, errTooDeep
	case err != nil:
		return nil, err
	}
	c.left -= len(c.outline.Nodes)
	c.steps += stepsOfValue*len(c.outline.Nodes) + len(v)/bytesOfAStep
	value, _, cost, err := c.node(0)
	if err != nil {
		return nil, err
	}
	if c.steps -= cost.most(); c.steps < 0 { // for who compares it
		return nil, errColliding
	}
	return value, nil
}

// node converts a node of the outline, and says what it hashes to in Cedar, and
// what it takes to compare it.
func (c *converter) node(n int) (cedar.Value, uint64, cost, error) {
	v := c.outline.Value(n)
	switch v[0] {
	case '"':
		s := cedar.String(mcp.String(v))
		steps := 1 + len(s)/bytesCompared
		return s, hashOf(fnvStart, string(s)), cost{steps, steps}, nil
	case 't':
		return cedar.True, 1, plain, nil
	case 'f':
		return cedar.False, 0, plain, nil
	case 'n':
		return cedar.Record{}, 0, plain, nil
	case '[':
		return c.set(n)
	case '{':
		return c.record(n)
	}
	value, hash, fits := number(v)
	if !fits && c.exact {
		return nil, 0, plain, fmt.Errorf("the number %.40s, which is neither a Long nor a decimal", v)
	}
	return value, hash, plain, nil
}

func (c *converter) record(n int) (cedar.Value, uint64, cost, error) {
	size := 0
	for i := c.outline.First(n); i < c.outline.End(n); i = c.outline.After(i) {
		size++
	}
	if size == 0 {
		return cedar.Record{}, 0, plain, nil
	}
	steps, more := 1, 0
	record := make(cedar.RecordMap, size)
	base, from := len(c.keys), len(c.hashes)
	for i := c.outline.First(n); i < c.outline.End(n); i = c.outline.After(i) {
		value, hash, cost, err := c.node(i)
		if err != nil {
			return nil, 0, cost, err
		}
		steps, more = steps+cost.same, max(more, cost.other-cost.same)
		name := string(mcp.Unquote(c.outline.Name(i)))
		record[cedar.String(name)] = value
		c.keys, c.hashes = append(c.keys, name), append(c.hashes, hash)
	}
	h := recordHash(c.keys[base:], c.hashes[from:])
	clear(c.keys[base:])
	c.keys, c.hashes = c.keys[:base], c.hashes[:from]
	return cedar.NewRecord(record), h, cost{steps, steps + more}, nil
}

// set makes a set. Cedar finds the place of an element by a hash that anybody
// can compute, and goes on to the next place as long as there is another
// element: who chooses the elements can make that take the square of their
// number. So it is done here first, with an end.
func (c *converter) set(n int) (cedar.Value, uint64, cost, error) {
	base := len(c.values)
	whole := true // nothing but whole numbers, whose hashes are themselves
	for i := c.outline.First(n); i < c.outline.End(n); i = c.outline.After(i) {
		value, hash, cost, err := c.node(i)
		if err != nil {
			return nil, 0, cost, err
		}
		if _, is := value.(cedar.Long); !is {
			whole = false
		}
		c.values, c.hashes, c.costs = append(c.values, value), append(c.hashes, hash), append(c.costs, cost)
	}
	values := c.values[base:]
	hashes, costs := c.hashes[len(c.hashes)-len(values):], c.costs[len(c.costs)-len(values):]
	defer func() {
		clear(values)
		c.values, c.hashes, c.costs = c.values[:base], c.hashes[:len(c.hashes)-len(hashes)], c.costs[:len(c.costs)-len(costs)]
	}()
	if len(values) == 0 {
		return cedar.NewSet(), 0, plain, nil
	}
	total, cost, err := c.place(values, hashes, costs, whole)
	if err != nil {
		return nil, 0, cost, err
	}
	if c.overlap {
		c.members += c.outline.End(n) - n - 1
		if c.run*(c.members+256) > maxOverlap {
			return nil, 0, cost, errColliding
		}
	}
	return cedar.NewSet(values...), total, cost, nil
}

// place puts elements where Cedar will, and returns the hash of their set, and
// what to compare that takes.
func (c *converter) place(values []cedar.Value, hashes []uint64, costs []cost, whole bool) (total uint64, of cost, err error) {
	if c.places == nil {
		c.places = make(map[uint64]int, len(values))
	}
	clear(c.places)
	all, least := 1, math.MaxInt // to find every element again, and the one that is found first
	for i := range values {
		at, walk := hashes[i], costs[i].same
		for {
			there, taken := c.places[at]
			if !taken {
				c.places[at] = i
				total += hashes[i]
				all, least = all+walk, min(least, walk)
				break
			}
			if whole {
				break
			}
			if c.steps < costs[there].most() {
				return 0, of, errColliding
			}
			if values[i].Equal(values[there]) {
				c.steps -= costs[there].same
				break
			}
			c.steps -= costs[there].other
			walk += costs[there].other
			at++
		}
	}
	// Of another set, all elements but one may be in this one, too.
	missed := len(values)
	if !whole || c.overlap {
		missed = c.rows(costs)
	}
	return total, cost{all, all - least + missed}, nil
}

// maxOverlap bounds what it costs to ask whether two sets share an element: for
// each element of one, Cedar walks along a row of places of the other.
const maxOverlap = 4 << 20

// rows goes along the rows of places that follow each other, notes the longest,
// and returns what the dearest takes who looks there for what it does not have.
func (c *converter) rows(costs []cost) (dearest int) {
	for at := range c.places {
		if _, taken := c.places[at-1]; taken {
			continue // not the first of its row
		}
		run, steps := 0, 0
		for i, taken := c.places[at]; taken; i, taken = c.places[at] {
			run, steps, at = run+1, steps+costs[i].other, at+1
		}
		c.run, dearest = max(c.run, run), max(dearest, steps)
	}
	return dearest
}

// The hash of Cedar values is FNV-1 with 64 bits.
const (
	fnvStart = 14695981039346656037
	fnvPrime = 1099511628211
)

func hashOf(h uint64, s string) uint64 {
	for i := range len(s) {
		h = h*fnvPrime ^ uint64(s[i])
	}
	return h
}

// recordHash is the hash of a record of these members.
func recordHash(keys []string, hashes []uint64) uint64 {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(keys[a], keys[b]) })
	h := uint64(fnvStart)
	for _, i := range order {
		h = hashOf(h, keys[i])
		for shift := 0; shift < 64; shift += 8 {
			h = h*fnvPrime ^ (hashes[i] >> shift & 0xff)
		}
	}
	return h
}

// number converts the text of a JSON number, and says what it hashes to. It
// reports false for one that is neither a Long nor a decimal.
func number(text []byte) (v cedar.Value, hash uint64, fits bool) {
	if n, scale, ok := exact(text); ok && scale == 0 {
		return cedar.Long(n), uint64(n), true
	} else if ok {
		if d, err := cedar.NewDecimal(n, -4); err == nil {
			return d, uint64(n), true
		}
	}
	s := cedar.String(text)
	return cedar.NewRecord(cedar.RecordMap{"number": s}), recordHash([]string{"number"}, []uint64{hashOf(fnvStart, string(s))}), false
}

// maxDigits is how many digits a whole number of 64 bits has.
const maxDigits = 19

// exact reads a JSON number as a whole number of 64 bits, with scale 0, or as
// one of ten-thousandths, with scale 4. It reports false for any other. Zeros at
// either end do not count, however many there are. It writes nothing out:
// 1e999999999 is as quick as 1.
func exact(text []byte) (n int64, scale int, ok bool) {
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	// 1. Its digits without the zeros at the ends, and how many places the point
	// stands behind the last.
	var room [maxDigits]byte
	digits, zeros, places := room[:0], 0, 0
	i, point := 0, false
	for ; i < len(text) && text[i] != 'e' && text[i] != 'E'; i++ {
		if text[i] == '.' {
			point = true
			continue
		}
		if point {
			places--
		}
		if text[i] == '0' {
			zeros++
			continue
		}
		if len(digits) == 0 {
			zeros = 0
		}
		if len(digits)+zeros+1 > maxDigits {
			return 0, 0, false
		}
		for ; zeros > 0; zeros-- {
			digits = append(digits, '0')
		}
		digits = append(digits, text[i])
	}
	if len(digits) == 0 {
		return 0, 0, true
	}
	places += zeros
	if i < len(text) {
		e, err := strconv.Atoi(string(text[i+1:]))
		if err != nil || e < -math.MaxInt32 || e > math.MaxInt32 {
			return 0, 0, false
		}
		places += e
	}
	// 2. The same as a whole number of something.
	if places < 0 {
		scale, places = 4, places+4
	}
	if places < 0 || len(digits)+places > maxDigits {
		return 0, 0, false
	}
	u := uint64(0)
	for _, d := range digits {
		u = u*10 + uint64(d-'0')
	}
	for range places {
		u *= 10
	}
	switch {
	case negative && u <= 1<<63:
		return int64(-u), scale, true
	case !negative && u < 1<<63:
		return int64(u), scale, true
	}
	return 0, 0, false
}
