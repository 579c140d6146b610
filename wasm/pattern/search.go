package pattern

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// What a search costs. One unit is about a nanosecond or less: what a plain
// instruction of a guest costs.
const (
	costSearch = 64  // of each look for a match
	costByte   = 4   // that is read
	costWide   = 16  // more, of a rune that is no ASCII
	costStep   = 128 // of a transition that the call has not made before
	costInst   = 16  // that such a transition looks at
	stretch    = 4 << 10
)

// maxStates bounds the memory of the states that one call uses, in bytes. There
// is at most twice as much of them.
const maxStates = 1 << 20

// Searcher searches for patterns, and keeps the states that it made for them. One
// goroutine at a time uses it.
//
// What searches cost does not depend on what was searched before the call: a
// transition is paid for once in each call, whether it has to be made or is there.
type Searcher struct {
	pay      func(n int64) // does not return when there is no more
	machines map[*program]*machine
	epoch    uint32 // of the transitions that are paid for
	used     int    // bytes of states that are
	made     int    // bytes of all states
}

// NewSearcher returns a searcher that calls pay for what it does, as it does it.
func NewSearcher(pay func(n int64)) *Searcher {
	return &Searcher{pay: pay, machines: make(map[*program]*machine), epoch: 1}
}

// Begin begins a call: nothing is paid for.
func (s *Searcher) Begin() {
	if s.made > maxStates {
		s.forget()
	}
	s.renew()
}

func (s *Searcher) renew() {
	s.used = 0
	if s.epoch++; s.epoch == 0 { // after some billions of calls
		s.forget()
		s.epoch = 1
	}
}

// forget gives up all states.
func (s *Searcher) forget() {
	clear(s.machines)
	s.made = 0
}

func (s *Searcher) machine(p *program) *machine {
	m := s.machines[p]
	if m == nil {
		m = &machine{s: s, p: p, width: len(p.kind), byKey: make(map[string]uint32), seen: make([]uint32, len(p.insts)), taken: make([]uint32, len(p.insts))}
		s.machines[p] = m
		m.add(nil, other, false) // the dead state
	}
	return m
}

// Match reports whether a text has a match.
func (s *Searcher) Match(p *Pattern, text []byte) bool {
	s.pay(costSearch)
	return s.last(p.forward, text, 0, true) >= 0
}

// All calls a function for each match, by the offsets of its first byte and of
// the one after its last. Matches do not overlap; of those that begin at one place
// it is the one that package regexp prefers. An empty match right after another
// match is none.
func (s *Searcher) All(p *Pattern, text []byte, each func(from, to int)) {
	before := -1 // where the match before ends
	for at := 0; at <= len(text); {
		s.pay(costSearch)
		to := s.last(p.forward, text, at, false)
		if to < 0 {
			return
		}
		from := s.first(p.backward, text, at, to)
		if to > at {
			at = to
		} else {
			_, n := utf8.DecodeRune(text[at:])
			at += max(n, 1)
		}
		if from < to || from != before {
			each(from, to)
		}
		before = to
	}
}

// last returns where the first match at or after a place ends, or -1. With any it
// is where one ends.
func (s *Searcher) last(p *program, text []byte, at int, any bool) int {
	left := p.kind[p.end()]
	if at > 0 {
		r, _ := utf8.DecodeLastRune(text[:at])
		left = p.kind[p.find(r)]
	}
	m := s.machine(p)
	state, end := m.start(left, true), -1
	for {
		// A stretch without payment, in which the automaton reads on.
		from, to, wide := at, min(len(text), at+stretch), 0
		for at < to {
			c, n := uint16(0), 1
			if b := text[at]; b < utf8.RuneSelf {
				c = p.ascii[b]
			} else {
				var r rune
				r, n = utf8.DecodeRune(text[at:])
				c = p.find(r)
				wide++
			}
			t := m.table[int(state)+int(c)]
			if uint32(t>>32) != m.paid {
				t = m.step(state, int(c))
				m = s.machine(p)
			}
			if t&matched != 0 {
				if end = at; any {
					break
				}
			}
			if state = uint32(t) &^ matched; state == 0 {
				break
			}
			at += n
		}
		s.pay(costByte*int64(at-from) + costWide*int64(wide))
		if state == 0 || any && end >= 0 {
			return end
		}
		if at >= len(text) {
			break
		}
		m = s.machine(p)
	}
	if m.step(state, p.end())&matched != 0 {
		end = len(text)
	}
	return end
}

// first returns where the longest match begins that ends at a place, and begins at
// or after another. There is one.
func (s *Searcher) first(p *program, text []byte, least, at int) int {
	right := p.kind[p.end()]
	if at < len(text) {
		r, _ := utf8.DecodeRune(text[at:])
		right = p.kind[p.find(r)]
	}
	m := s.machine(p)
	state, begin := m.start(right, false), -1
	for read := 0; ; {
		c, n := p.end(), 0
		if at > 0 {
			var r rune
			r, n = utf8.DecodeLastRune(text[:at])
			c = int(p.find(r))
		}
		t := m.table[int(state)+c]
		if uint32(t>>32) != m.paid {
			t = m.step(state, c)
			m = s.machine(p)
		}
		if t&matched != 0 {
			begin = at
		}
		if state = uint32(t) &^ matched; state == 0 || at <= least {
			s.pay(int64(read))
			return begin
		}
		at -= n
		if read += costByte*n + costWide; read >= costByte*stretch {
			s.pay(int64(read))
			read = 0
		}
	}
}

// machine is the automaton of a program: states are sets of its instructions, and
// the table has, for a state and a class of runes, the next state.
type machine struct {
	s      *Searcher
	p      *program
	width  int      // of a row
	paid   uint32   // epoch of the searcher when it was last looked at
	table  []uint64 // in the upper half the epoch in which it was paid for, 0 for none; then matched and the next state
	costs  []uint32 // of the entries of the table
	states []state  // by their rows
	byKey  map[string]uint32
	starts [2][kinds]uint32

	seen, taken []uint32 // by instruction: the turn in which it was visited, and put into the next state
	turn        uint32
	stack       []uint32
	next        []uint32
	key         []byte
}

// matched says of a transition that a match ends, or read backwards begins,
// before the rune.
const matched = 1 << 31

// state is what the automaton knows at a place: the instructions that come next,
// the most preferred first, before any assertion is tried; what the neighbour is
// that was read; and whether a match may still begin.
type state struct {
	list      []uint32
	left      uint8
	searching bool
	epoch     uint32
}

// bytes estimates what a state takes.
func (m *machine) bytes(s *state) int { return 160 + 8*len(s.list) + 12*m.width }

// start returns the state in which a search begins, after what has a kind.
func (m *machine) start(left uint8, searching bool) uint32 {
	m.paid = m.s.epoch
	which := 0
	if searching {
		which = 1
	}
	if m.starts[which][left] == 0 {
		var list []uint32
		if !searching {
			list = []uint32{m.p.start}
		}
		m.starts[which][left] = m.add(list, left, searching)
	}
	at := m.starts[which][left]
	m.use(at)
	return at
}

// use counts a state as one that the call uses.
func (m *machine) use(row uint32) {
	s := &m.states[int(row)/m.width]
	if s.epoch != m.s.epoch {
		s.epoch = m.s.epoch
		m.s.used += m.bytes(s)
	}
}

// add returns the row of a state, which it makes where there is none.
func (m *machine) add(list []uint32, left uint8, searching bool) uint32 {
	m.key = append(m.key[:0], left)
	if searching {
		m.key[0] |= 0x80
	}
	for _, at := range list {
		m.key = binary.LittleEndian.AppendUint32(m.key, at)
	}
	if row, ok := m.byKey[string(m.key)]; ok {
		return row
	}
	row := uint32(len(m.table))
	m.table = append(m.table, make([]uint64, m.width)...)
	m.costs = append(m.costs, make([]uint32, m.width)...)
	m.states = append(m.states, state{list: slices.Clone(list), left: left, searching: searching})
	m.byKey[string(m.key)] = row
	m.s.made += m.bytes(&m.states[len(m.states)-1])
	return row
}

// step makes a transition that is not paid for, or was made in another call, and
// has it paid. It may give up all states: the machine is another one then, and
// only the next state is of use.
func (m *machine) step(row uint32, class int) uint64 {
	at := int(row) + class
	if m.costs[at] == 0 {
		m.make(row, class)
	}
	cost, t := m.costs[at], m.table[at]
	next := uint32(t) &^ matched
	m.use(next)
	if m.s.used > maxStates {
		to := m.states[int(next)/m.width]
		m.s.forget()
		m.s.renew()
		n := m.s.machine(m.p)
		n.paid = m.s.epoch
		if next != 0 {
			next = n.add(to.list, to.left, to.searching)
			n.use(next)
		}
		m.s.pay(int64(cost))
		return t&matched | uint64(next)
	}
	m.table[at] = uint64(m.s.epoch)<<32 | uint64(uint32(t))
	m.s.pay(int64(cost))
	return t
}

// make computes a transition.
func (m *machine) make(row uint32, class int) {
	p := m.p
	from := m.states[int(row)/m.width]
	ops := assertions(from.left, p.kind[class], p.backward)
	if m.turn++; m.turn == 0 {
		clear(m.seen)
		clear(m.taken)
		m.turn = 1
	}
	m.next = m.next[:0]
	visited, hit, cut := 0, false, false
	for i := 0; !cut && i <= len(from.list); i++ {
		switch {
		case i < len(from.list):
			m.stack = append(m.stack[:0], from.list[i])
		case from.searching:
			m.stack = append(m.stack[:0], p.start) // a match may begin here, which is preferred least
		default:
			continue
		}
		for len(m.stack) > 0 && !cut {
			at := m.stack[len(m.stack)-1]
			m.stack = m.stack[:len(m.stack)-1]
			visited++
			if m.seen[at] == m.turn {
				continue
			}
			m.seen[at] = m.turn
			switch in := &p.insts[at]; in.op {
			case syntax.InstAlt, syntax.InstAltMatch:
				m.stack = append(m.stack, in.arg, in.out)
			case syntax.InstNop, syntax.InstCapture:
				m.stack = append(m.stack, in.out)
			case syntax.InstEmptyWidth:
				if syntax.EmptyOp(in.arg)&^ops == 0 {
					m.stack = append(m.stack, in.out)
				}
			case syntax.InstMatch:
				hit = true
				cut = !p.backward // what follows is preferred less; backwards the longest counts
			case syntax.InstRune:
				if class < p.end() && p.sets[in.set][class] && m.taken[in.out] != m.turn {
					m.taken[in.out] = m.turn
					m.next = append(m.next, in.out)
				}
			}
		}
	}
	if p.backward {
		slices.Sort(m.next) // their order does not matter
	}
	next, searching := uint32(0), from.searching && !hit
	if class < p.end() && (searching || len(m.next) > 0) {
		next = m.add(m.next, p.kind[class], searching)
	}
	t := uint64(next)
	if hit {
		t |= matched
	}
	m.table[int(row)+class] = t
	m.costs[int(row)+class] = uint32(costStep + costInst*(visited+2*len(m.next)) + m.width)
}

// assertions are what holds between two kinds: of what was read, and of what
// comes next.
func assertions(read, next uint8, backward bool) (ops syntax.EmptyOp) {
	left, right := read, next
	if backward {
		left, right = next, read
	}
	if left == outside {
		ops |= syntax.EmptyBeginText | syntax.EmptyBeginLine
	}
	if left == newline {
		ops |= syntax.EmptyBeginLine
	}
	if right == outside {
		ops |= syntax.EmptyEndText | syntax.EmptyEndLine
	}
	if right == newline {
		ops |= syntax.EmptyEndLine
	}
	if (left == word) != (right == word) {
		return ops | syntax.EmptyWordBoundary
	}
	return ops | syntax.EmptyNoWordBoundary
}
