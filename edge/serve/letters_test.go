package serve

import (
	"bytes"
	"fmt"
	"testing"
)

// TestLettersAreBounded: what waits for one exchange with another edge, and for
// all of them, has a bound in bytes, and so has what is held for others. Who is
// slow loses his own letters, and what is given back is there for others.
func TestLettersAreBounded(t *testing.T) {
	var all threads
	open := func(name string) *thread {
		t.Helper()
		one, err := all.open(name)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	give := func(name string, n int) { all.give(name, letter{Kind: letterNote}, make([]byte, n)) }
	drain := func(one *thread) (bytes int, over bool) {
		for {
			d, there, o := all.take(one)
			if !there {
				return bytes, o
			}
			bytes += len(d.body)
		}
	}

	// 1. One exchange: so many bytes and one letter.
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
	give("quick", 20*size) // one letter may be larger than that
	if n, over := drain(quick); n != 20*size || over {
		t.Errorf("%d bytes of a large letter, over %t", n, over)
	}

	// 2. All of them together.
	var many []*thread
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
		all.close(one)
	}
	if lost != 4 {
		t.Errorf("%d exchanges lost letters", lost)
	}

	// 3. What was not read is given back with its exchange, and so is a letter
	// that comes after it.
	one := open("left")
	give("left", size)
	all.close(one)
	give("left", size)
	all.close(slow)
	all.close(quick)
	if all.bytes != 0 || len(all.waiting) != 0 {
		t.Errorf("%d bytes of %d exchanges are left over", all.bytes, len(all.waiting))
	}

	// 4. Requests of other edges.
	begun := 0
	for i := range 2 * maxHeld / (8 * size) {
		if begins, full := all.serve(fmt.Sprint(i), 8*size, func() {}); begins == full {
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

// A letter that no edge wrote, or no edge of these settings, is none.
func FuzzLetter(f *testing.F) {
	f.Add(letter{Kind: letterRetry, From: "0123456789abcdef", Thread: "x"}.pack([]byte("{}")))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if l, body, ok := unpack(text); ok {
			again, rest, ok := unpack(l.pack(body))
			if !ok || !bytes.Equal(rest, body) || again.Kind != l.Kind || again.Thread != l.Thread || again.Event != l.Event {
				t.Errorf("%q: %+v", text, again)
			}
		}
	})
}
