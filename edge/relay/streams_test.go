package relay

import (
	"fmt"
	"testing"
)

// TestStreamsAreBounded: what waits for one exchange with another edge, and for
// all of them, has a bound in bytes, and so has what is held for others. Who is
// slow loses his own messages, and what is given back is there for others.
func TestStreamsAreBounded(t *testing.T) {
	var all streams
	open := func(name string) *Stream {
		t.Helper()
		one, err := all.open(name, name)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	give := func(name string, n int) { all.give(name, Message{Kind: KindNote}, make([]byte, n)) }
	drain := func(one *Stream) (bytes int, over bool) {
		for {
			d, there, o := one.Take()
			if !there {
				return bytes, o
			}
			bytes += len(d.Body)
		}
	}

	// 1. One exchange: so many bytes and one message.
	slow, quick := open("slow"), open("quick")
	const size = 1 << 20
	for range 3 * waitingBytes / size {
		give("slow", size)
		give("quick", size)
		if n, over := drain(quick); n != size || over {
			t.Fatalf("a client that reads had %d bytes, over %t", n, over)
		}
	}
	if n, over := drain(slow); n != waitingBytes || !over {
		t.Errorf("a client that does not read had %d bytes, over %t", n, over)
	}
	give("quick", 20*size) // one message may be larger than that
	if n, over := drain(quick); n != 20*size || over {
		t.Errorf("%d bytes of a large message, over %t", n, over)
	}

	// 2. All of them together.
	var many []*Stream
	for i := range maxWaitingBytes/waitingBytes + 4 {
		many = append(many, open(fmt.Sprint(i)))
		give(fmt.Sprint(i), waitingBytes)
	}
	if all.bytes > maxWaitingBytes {
		t.Errorf("%d bytes wait", all.bytes)
	}
	lost := 0
	for _, one := range many {
		if n, over := drain(one); over {
			lost++
		} else if n != waitingBytes {
			t.Errorf("%d bytes", n)
		}
		one.Close()
	}
	if lost != 4 {
		t.Errorf("%d exchanges lost messages", lost)
	}

	// 3. What was not read is given back with its exchange, and so is a message
	// that comes after it.
	one := open("left")
	give("left", size)
	one.Close()
	give("left", size)
	slow.Close()
	quick.Close()
	if all.bytes != 0 || len(all.waiting) != 0 {
		t.Errorf("%d bytes of %d exchanges are left over", all.bytes, len(all.waiting))
	}

	// 4. Requests of other edges.
	begun := 0
	for i := range 2 * maxHeld / (8 * size) {
		if begins, full := all.serve(fmt.Sprint(i), fmt.Sprint(i), 8*size, func() {}); begins == full {
			t.Fatalf("%d: begins %t, full %t", i, begins, full)
		} else if begins {
			begun++
		}
	}
	if begun != maxHeld/(8*size) || all.held > maxHeld {
		t.Errorf("%d requests of %d bytes are held", begun, all.held)
	}
	for i := range 2 * maxHeld / (8 * size) {
		all.done(fmt.Sprint(i))
	}
	if all.held != 0 || len(all.serving) != 0 {
		t.Errorf("%d bytes of %d requests are left over", all.held, len(all.serving))
	}
}
