package serve

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestZ48SignedLetters: a letter is taken by the box it was written to, once,
// and not much later; whatever else comes is dropped, and at no great cost.
func TestZ48SignedLetters(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	synctest.Test(t, func(t *testing.T) {
		from, to := newSigner(newName(), [][]byte{key(1)}), newSigner(newName(), [][]byte{key(2), key(1)})
		text := letter{Kind: letterNote, Thread: "x"}.pack([]byte("{}"))
		good := from.sign("node:b", text)
		if got, ok := to.open("node:b", good); !ok || !bytes.Equal(got, text) {
			t.Fatalf("%t: %q", ok, got)
		}
		refused := func(what, box string, text []byte) {
			t.Helper()
			if _, ok := to.open(box, text); ok {
				t.Errorf("%s is taken", what)
			}
		}
		refused("a letter that came before", "node:b", good)
		refused("a letter to another box", "node:c", from.sign("node:b", text))
		refused("a letter without a signature", "node:b", text)
		refused("a letter of an edge without a key", "node:b", newSigner(newName(), nil).sign("node:b", text))
		refused("a letter of another key", "node:b", newSigner(newName(), [][]byte{key(3)}).sign("node:b", text))
		refused("nothing", "node:b", nil)
		for i := range good {
			bad := bytes.Clone(from.sign("node:b", text))
			bad[i] ^= 1
			refused(fmt.Sprintf("a letter whose byte %d is another", i), "node:b", bad)
			refused(fmt.Sprintf("a letter cut after %d bytes", i), "node:b", from.sign("node:b", text)[:i])
		}
		late := from.sign("node:b", text)
		time.Sleep(letterLate + time.Second)
		refused("a letter that is late", "node:b", late)

		// Letters of one edge may come in another order, and each comes once.
		var many [][]byte
		for range letterWindow / 2 {
			many = append(many, from.sign("node:b", text))
		}
		rand.Shuffle(len(many), func(i, j int) { many[i], many[j] = many[j], many[i] })
		for range 2 {
			taken := 0
			for _, one := range many {
				if _, ok := to.open("node:b", one); ok {
					taken++
				}
			}
			if taken != 0 && taken != len(many) {
				t.Errorf("%d letters of %d are taken", taken, len(many))
			}
			refused("a letter that came before", "node:b", many[0])
		}
		// Who is not an edge makes nobody remembered.
		for range 10 * maxSenders {
			to.open("node:b", newSigner(newName(), [][]byte{key(3)}).sign("node:b", text))
		}
		if len(to.senders) > 2 {
			t.Errorf("%d senders are remembered", len(to.senders))
		}
	})

	// However large a letter is, who forged it costs next to nothing.
	to := newSigner(newName(), [][]byte{key(1)})
	forged := newSigner(newName(), [][]byte{key(3)}).sign("node:b", make([]byte, 16<<20))
	if n := testing.AllocsPerRun(100, func() { to.open("node:b", forged) }); n > 40 {
		t.Errorf("%v allocations for a forged letter", n)
	}
	began := time.Now()
	for range 1000 {
		to.open("node:b", forged)
	}
	if each := time.Since(began) / 1000; each > time.Millisecond {
		t.Errorf("a forged letter of 16 MiB costs %s", each)
	}
	// Edges without a key take each other's letters, and no signed ones.
	one, two := newSigner(newName(), nil), newSigner(newName(), nil)
	if _, ok := two.open("node:b", one.sign("node:b", []byte("{}\n"))); !ok {
		t.Error("an edge without a key takes no letters")
	}
}

// TestZ48LateLetters: a letter that is signed and goes later, as one that the store
// takes only then, is taken however many letters have gone to other edges meanwhile;
// one that waits for its share is signed after that. No number comes twice, however
// many edges are written to.
func TestZ48LateLetters(t *testing.T) {
	key := [][]byte{bytes.Repeat([]byte{1}, 32)}
	text := letter{Kind: letterNote, Thread: "x"}.pack([]byte("{}"))
	from, to := newSigner(newName(), key), newSigner(newName(), key)
	first, answer := from.sign("node:b", text), from.sign("node:b", text)
	for i := range 2 * letterWindow {
		from.sign(fmt.Sprint("node:", i%8), text)
	}
	for _, one := range [][]byte{from.sign("node:b", text), first, answer} {
		if _, ok := to.open("node:b", one); !ok {
			t.Error("a letter is dropped that is not of before")
		}
	}
	for i := range 2 * maxBoxes {
		from.sign(fmt.Sprint("node:", i), text)
	}
	if len(from.boxes) > maxBoxes {
		t.Errorf("%d boxes are remembered", len(from.boxes))
	}
	if _, ok := to.open("node:b", from.sign("node:b", text)); !ok {
		t.Error("a letter to a box that was forgotten is dropped")
	}
	for _, one := range [][]byte{first, answer} {
		if _, ok := to.open("node:b", one); ok {
			t.Error("a letter is taken again")
		}
	}

	synctest.Test(t, func(t *testing.T) {
		from, to := newSigner(newName(), key), newSigner(newName(), key)
		e := &Edge{}
		e.posting.most, e.posting.each = maxPosting, maxPostingEach
		var posted []byte
		store := &shared{signer: from, letter: 1 << 20, carrier: &boxes{post: func(_ string, text []byte) error {
			posted = text
			return nil
		}}}
		give, err := e.posting.take(t.Context(), "ann", maxPostingEach)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			done <- e.deliver(t.Context(), store, "b", "ann", letter{Kind: letterResult}, make([]byte, 2*smallLetter))
		}()
		time.Sleep(time.Second)
		for range 2 * letterWindow {
			to.open("node:b", from.sign("node:b", text))
		}
		give()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if _, ok := to.open("node:b", posted); !ok {
			t.Error("an answer that waited for its share is dropped")
		}
	})
}

// TestZ48UnsignedOnce: without a key, too, a letter that is posted again comes once.
func TestZ48UnsignedOnce(t *testing.T) {
	from, to := newSigner(newName(), nil), newSigner(newName(), nil)
	text := letter{Kind: letterResult, Thread: "x"}.pack([]byte("{}"))
	one, two := from.sign("node:b", text), from.sign("node:b", text)
	for i, posted := range [][]byte{two, one, two, one} {
		if _, ok := to.open("node:b", posted); ok != (i < 2) {
			t.Errorf("letter %d: %t", i, ok)
		}
	}
	// Names that somebody made up keep no edge out.
	for range 2 * maxSenders {
		to.open("node:b", newSigner(newName(), nil).sign("node:b", text))
	}
	if _, ok := to.open("node:b", newSigner(newName(), nil).sign("node:b", text)); !ok || len(to.senders) > maxSenders {
		t.Errorf("%t, %d senders", ok, len(to.senders))
	}
}

// boxes is a store that takes letters and has nothing else. Whoever is asked for is
// alive.
type boxes struct {
	carrier
	post func(box string, text []byte) error
}

func (b *boxes) Post(_ context.Context, box string, text []byte, _ time.Duration) error {
	return b.post(box, text)
}

func (b *boxes) Get(context.Context, string) ([]byte, error) { return []byte("1"), nil }

// FuzzSigned: nothing that was not signed is taken, and nothing makes it fail.
func FuzzSigned(f *testing.F) {
	key := make([]byte, 32)
	f.Add([]byte("weir2 0123456789abcdef 1 1 x y\n{}\n"))
	f.Add(newSigner("0123456789abcdef", nil).sign("node:b", []byte("{}\n")))
	to := newSigner(newName(), [][]byte{key})
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, ok := to.open("node:b", text); ok {
			t.Errorf("%q is taken", text)
		}
		newSigner("", nil).open("node:b", text)
	})
}
