package scripting

import (
	"go.starlark.net/starlark"
)

// meter counts what the values of a run take, in process.
type meter struct {
	run    *run
	total  int64 // bytes that were allocated for values, whether they are still there or not
	held   int64 // bytes that were asked of run.hold
	spent  int   // units of work within single steps
	looked int   // the work at the last look at what may end the run
	every  int   // after how much work it looks next

	stored *crowd // the keys that were put into dicts one by one; see storing
	stores int    // how many those were
	room   int    // for how many of them stored is made

	chains map[uint32]chain // the heaviest by hash; see crowding
}

// unitsPerStep is how many units of work, about 10 ns each, count as a step towards the
// limit. They are not among the steps that are told.
const unitsPerStep = 32

// lookEvery is after how many units of work a run looks at what may end it, if nothing else is said.
const lookEvery = 1 << 17

// heldAtOnce is how many bytes more than it needs a run holds, so that it asks seldom.
const heldAtOnce = 64 << 10

// Full is what a run is told whose values, with those of others, take as much memory as they may.
const Full = "the runs of this caller, or all runs, hold as much memory as they may now: call it again later"

func newMeter(r *run) *meter { return &meter{run: r, every: lookEvery} }

// allocate counts bytes of values.
func (m *meter) allocate(bytes int) error {
	if m.total += int64(bytes); m.total > m.run.limits.Memory {
		return m.run.end(m.run.needsMore())
	}
	if m.total > m.held {
		more := m.total - m.held + heldAtOnce
		if m.run.hold != nil && !m.run.hold(more) {
			return m.run.end(&Fault{Message: Full, Cause: Budget, Spent: MemorySpent})
		}
		m.held += more
	}
	return nil
}

// work counts units of what one step does besides: elements looked at, 16 bytes of text
// compared, 64 copied, or the like. It is asked before the work is done.
func (m *meter) work(thread *starlark.Thread, units int) error {
	m.spent += units
	r := m.run
	if m.spent < 0 || thread.Steps+uint64(m.spent/unitsPerStep) >= r.limits.Steps && m.spent > unitsPerStep {
		return r.end(tooManySteps(r.limits.Steps))
	}
	if m.spent-m.looked > m.every {
		m.looked = m.spent
		if f := r.stop(units); f != nil {
			return r.end(f)
		}
	}
	return nil
}

// fits refuses a value that would be too large, and counts its making.
func (m *meter) fits(thread *starlark.Thread, bytes, elements int) error {
	switch {
	case bytes > maxValueBytes || bytes < 0:
		return errValueBytes
	case elements > maxValueElements || elements < 0:
		return errValueElements
	}
	return m.work(thread, bytes/64+elements)
}

// runes is fits for a text that is made or gone through character by character. It takes several
// times as long as is counted here, where characters are rare ones; after so much work the clock of
// a filter is looked at often enough to see it.
func (m *meter) runes(thread *starlark.Thread, bytes int) error {
	if err := m.fits(thread, bytes, 0); err != nil {
		return err
	}
	return m.work(thread, bytes/8)
}

// made counts a value that was made, without what it refers to.
func (m *meter) made(v starlark.Value, err error) (starlark.Value, error) {
	if err != nil {
		return v, err
	}
	if err := m.allocate(shallow(v)); err != nil {
		return nil, err
	}
	return v, nil
}

// key looks at what is to be hashed, and written where an error says that it is missing. in is the
// dict or set in which it is looked for; nil for one that is not known, or is counted elsewhere.
func (m *meter) key(thread *starlark.Thread, v, in starlark.Value) error {
	switch v := v.(type) {
	case starlark.String, starlark.Bytes:
		return m.work(thread, 1+starlark.Len(v)/16)
	case starlark.Int:
		if n := bitLen(v); n > 64 {
			if err := m.work(thread, square(n, n)/4); err != nil {
				return err
			}
		}
	case starlark.Float:
	case starlark.Tuple:
		w := weigher{left: maxCompared, plain: true}
		if err := w.weigh(v, 0); err != nil {
			return errCompared
		}
		if w.bytes > maxValueBytes {
			return errValueBytes
		}
		if err := m.work(thread, maxCompared-w.left+w.bytes/16+w.digits); err != nil {
			return err
		}
	default:
		return nil
	}
	if in == nil {
		return nil
	}
	return m.work(thread, m.found(v, starlark.Len(in)))
}

// keys looks at all elements of sequences before they are hashed into one dict or set.
func (m *meter) keys(thread *starlark.Thread, all ...starlark.Value) error {
	total := 0
	for _, v := range all {
		n, err := m.sequence(thread, v)
		if err != nil {
			return err
		}
		total += n
	}
	crowded := crowdOf(total)
	for _, v := range all {
		if list, ok := v.(starlark.Iterable); ok {
			for x := range starlark.Elements(list) {
				crowded.sees(x)
			}
		}
	}
	var first chains // of the set, if it is one, in which the elements of the others are looked for
	if len(all) > 1 && total-starlark.Len(all[0]) > fewKeys {
		first = chainsOf(all[0])
	}
	for i, v := range all {
		list, ok := v.(starlark.Iterable)
		if !ok {
			continue
		}
		for x := range starlark.Elements(list) {
			if err := m.key(thread, x, nil); err != nil {
				return err
			}
			if err := m.crowding(thread, crowded, x, nil); err != nil {
				return err
			}
			if i > 0 {
				if err := m.looking(thread, first, x); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sequence looks at what is to be gone through in one step, and returns how many values it has.
func (m *meter) sequence(thread *starlark.Thread, v starlark.Value) (n int, err error) {
	switch v := v.(type) {
	case starlark.String: // not iterable
		return 0, nil
	case starlark.Sequence:
		return v.Len(), m.fits(thread, 0, v.Len())
	case starlark.Iterable:
		return m.count(thread, v)
	}
	return 0, nil
}

// count is sequence for what does not say how many, such as codepoints(): it is gone through.
func (m *meter) count(thread *starlark.Thread, v starlark.Iterable) (n int, err error) {
	for range starlark.Elements(v) {
		if n++; n > maxValueElements {
			return n, errValueElements
		}
		if n%paidAtOnce == 0 {
			if err := m.work(thread, paidAtOnce); err != nil {
				return n, err
			}
		}
	}
	return n, m.work(thread, n%paidAtOnce)
}

// text looks at a value of which the text is to be made, and returns the size of it.
func (m *meter) text(thread *starlark.Thread, v starlark.Value) (int, error) {
	w := weigher{left: maxValueElements, cycles: true, payer: m, thread: thread}
	if err := w.weigh(v, 0); err != nil {
		return 0, err
	}
	return w.bytes, m.runes(thread, w.bytes)
}

// square is the work of multiplying or dividing numbers of so many bits, in units.
func square(x, y int) int { return (x / 64) * (y / 64) / 8 }

// The four that builtins of both engines ask; without a meter they allow everything.

// work is meter.fits, for a value of so many bytes and elements.
func (r *run) work(thread *starlark.Thread, bytes, elements int) error {
	if r.meter == nil {
		return nil
	}
	return r.meter.fits(thread, bytes, elements)
}

// runes is meter.runes.
func (r *run) runes(thread *starlark.Thread, bytes int) error {
	if r.meter == nil {
		return nil
	}
	return r.meter.runes(thread, bytes)
}

// charge counts a value that was made.
func (r *run) charge(v starlark.Value) error {
	if r.meter == nil {
		return nil
	}
	return r.meter.allocate(shallow(v))
}

// printable looks at a value before its text is made.
func (r *run) printable(thread *starlark.Thread, v starlark.Value) error {
	if r.meter == nil {
		return nil
	}
	_, err := r.meter.text(thread, v)
	return err
}
