package wasi

import (
	"encoding/binary"
	"math"
	"time"
)

// Sizes and parts of the records of poll_oneoff (typenames.witx, subscription and event).
const (
	subscriptionSize = 48
	eventSize        = 32

	kindClock = 0
	kindRead  = 1
	kindWrite = 2

	clockAbsolute = 1 // of the flags of a clock
	hangup        = 1 // of those of a descriptor
)

// subscription is one thing that an instance waits for.
type subscription struct {
	userdata uint64
	kind     byte
	until    time.Time // of a clock
	pipe     *Pipe     // of a descriptor; nil for one that never waits
	failed   errno     // it cannot be waited for
}

// poll waits for the first of several things: input, room for output, and clocks. It sleeps
// in the host meanwhile.
func (s *System) poll(m Memory, a []uint64) (errno, error) {
	count := uint32(a[2])
	if count == 0 || count > MaxSubscriptions {
		return eInval, nil
	}
	in, ok := m.Read(uint32(a[0]), count*subscriptionSize)
	if !ok {
		return eFault, nil
	}
	out, ok := m.Read(uint32(a[1]), count*eventSize)
	if !ok {
		return eFault, nil
	}
	s.spend(500 * uint64(count))
	// All are read before the first event is written: the two may overlap.
	subs := make([]subscription, count)
	for i := range subs {
		subs[i] = s.subscribed(in[i*subscriptionSize:][:subscriptionSize])
	}
	for {
		if n := happened(subs, out); n > 0 {
			return put32(m, a[3], uint32(n)), nil
		}
		if err := s.sleep(subs); err != nil {
			return 0, err
		}
	}
}

func (s *System) subscribed(b []byte) subscription {
	sub := subscription{userdata: binary.LittleEndian.Uint64(b), kind: b[8]}
	switch sub.kind {
	case kindClock:
		now, n := s.now(binary.LittleEndian.Uint32(b[16:]))
		if n != success {
			sub.failed = n
			break
		}
		wait := binary.LittleEndian.Uint64(b[24:])
		if binary.LittleEndian.Uint16(b[40:])&clockAbsolute != 0 {
			wait -= min(wait, now)
		}
		// Rounded up: what a clock says next is then not before that time.
		wait = min(wait, math.MaxInt64/2)
		d := (time.Duration(wait) + Resolution - 1).Truncate(Resolution)
		sub.until = time.Now().Add(d)
	case kindRead, kindWrite:
		f := s.files[binary.LittleEndian.Uint32(b[16:])]
		switch {
		case f == nil, sub.kind == kindRead && !f.reads, sub.kind == kindWrite && !f.writes:
			sub.failed = eBadf
		default:
			sub.pipe = f.pipe
		}
	default:
		sub.failed = eInval
	}
	return sub
}

// happened writes an event for each subscription that need not wait, and returns how many
// there are.
func happened(subs []subscription, out []byte) (n int) {
	now := time.Now()
	for i := range subs {
		sub := &subs[i]
		bytes, over := 1, false
		switch {
		case sub.failed != success:
		case sub.kind == kindClock:
			if bytes = 0; now.Before(sub.until) {
				continue
			}
		case sub.pipe == nil:
		case sub.kind == kindRead:
			if bytes, over = sub.pipe.readable(); bytes == 0 && !over {
				continue
			}
		default:
			if bytes, over = sub.pipe.writable(); bytes == 0 && !over {
				continue
			}
		}
		e := out[n*eventSize:][:eventSize]
		clear(e)
		binary.LittleEndian.PutUint64(e, sub.userdata)
		binary.LittleEndian.PutUint16(e[8:], uint16(sub.failed))
		e[10] = sub.kind
		if sub.failed == success && sub.kind != kindClock {
			binary.LittleEndian.PutUint64(e[16:], uint64(bytes))
			if over {
				binary.LittleEndian.PutUint16(e[24:], hangup)
			}
		}
		n++
	}
	return n
}

// sleep sleeps until one of the subscriptions may have happened.
func (s *System) sleep(subs []subscription) error {
	var more, room [2]<-chan struct{} // an instance has three pipes: one to read, two to write
	var first time.Time
	for i := range subs {
		switch sub := &subs[i]; {
		case sub.kind == kindClock:
			if first.IsZero() || sub.until.Before(first) {
				first = sub.until
			}
		case sub.kind == kindRead:
			more[0] = sub.pipe.more
		case sub.pipe == s.Stdout:
			room[0] = sub.pipe.room
		default:
			room[1] = sub.pipe.room
		}
	}
	return s.rest(first, more[0], room[0], room[1])
}

// rest sleeps until a time, the zero of which is never, or until it is told to wake up.
func (s *System) rest(until time.Time, wake ...<-chan struct{}) error {
	var after <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		after = t.C
	}
	var three [3]<-chan struct{}
	copy(three[:], wake)
	began := time.Now()
	select {
	case <-after:
	case <-three[0]:
	case <-three[1]:
	case <-three[2]:
	case <-s.Done:
		return ErrDone
	}
	if s.Slept != nil {
		s.Slept(time.Since(began))
	}
	return nil
}
