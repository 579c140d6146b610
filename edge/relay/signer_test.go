package relay

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
)

// TestZ48SignedMessages: a message is taken by the box it was written to, once,
// and not much later; whatever else comes is dropped, and at no great cost.
func TestZ48SignedMessages(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	synctest.Test(t, func(t *testing.T) {
		from, to := NewSigner(NewName(), [][]byte{key(1)}), NewSigner(NewName(), [][]byte{key(2), key(1)})
		text := Message{Kind: KindNote, Stream: "x"}.Pack([]byte("{}"))
		good := from.Sign("node:b", text)
		if got, ok := to.Open("node:b", good); !ok || !bytes.Equal(got, text) {
			t.Fatalf("%t: %q", ok, got)
		}
		refused := func(what, box string, text []byte) {
			t.Helper()
			if _, ok := to.Open(box, text); ok {
				t.Errorf("%s is taken", what)
			}
		}
		refused("a message that came before", "node:b", good)
		refused("a message to another box", "node:c", from.Sign("node:b", text))
		refused("a message without a signature", "node:b", text)
		refused("a message of an edge without a key", "node:b", NewSigner(NewName(), nil).Sign("node:b", text))
		refused("a message of another key", "node:b", NewSigner(NewName(), [][]byte{key(3)}).Sign("node:b", text))
		refused("nothing", "node:b", nil)
		for i := range good {
			bad := bytes.Clone(from.Sign("node:b", text))
			bad[i] ^= 1
			refused(fmt.Sprintf("a message whose byte %d is another", i), "node:b", bad)
			refused(fmt.Sprintf("a message cut after %d bytes", i), "node:b", from.Sign("node:b", text)[:i])
		}
		late := from.Sign("node:b", text)
		time.Sleep(maxAge + time.Second)
		refused("a message that is late", "node:b", late)

		// Messages of one edge may come in another order, and each comes once.
		var many [][]byte
		for range window / 2 {
			many = append(many, from.Sign("node:b", text))
		}
		rand.Shuffle(len(many), func(i, j int) { many[i], many[j] = many[j], many[i] })
		for range 2 {
			taken := 0
			for _, one := range many {
				if _, ok := to.Open("node:b", one); ok {
					taken++
				}
			}
			if taken != 0 && taken != len(many) {
				t.Errorf("%d messages of %d are taken", taken, len(many))
			}
			refused("a message that came before", "node:b", many[0])
		}
		// Who is not an edge makes nobody remembered.
		for range 10 * maxSenders {
			to.Open("node:b", NewSigner(NewName(), [][]byte{key(3)}).Sign("node:b", text))
		}
		if len(to.senders) > 2 {
			t.Errorf("%d senders are remembered", len(to.senders))
		}
	})

	// However large a message is, who forged it costs next to nothing.
	to := NewSigner(NewName(), [][]byte{key(1)})
	forged := NewSigner(NewName(), [][]byte{key(3)}).Sign("node:b", make([]byte, 16<<20))
	if n := testing.AllocsPerRun(100, func() { to.Open("node:b", forged) }); n > 40 {
		t.Errorf("%v allocations for a forged message", n)
	}
	began := time.Now()
	for range 1000 {
		to.Open("node:b", forged)
	}
	if each := time.Since(began) / 1000; each > time.Millisecond {
		t.Errorf("a forged message of 16 MiB costs %s", each)
	}
	// Edges without a key take each other's messages, and no signed ones.
	one, two := NewSigner(NewName(), nil), NewSigner(NewName(), nil)
	if _, ok := two.Open("node:b", one.Sign("node:b", []byte("{}\n"))); !ok {
		t.Error("an edge without a key takes no messages")
	}
}

// TestZ48LateMessages: a message that is signed and goes later, as one that the store
// takes only then, is taken however many messages have gone to other edges meanwhile;
// one that waits for its share is signed after that. No number comes twice, however
// many edges are written to.
func TestZ48LateMessages(t *testing.T) {
	key := [][]byte{bytes.Repeat([]byte{1}, 32)}
	text := Message{Kind: KindNote, Stream: "x"}.Pack([]byte("{}"))
	from, to := NewSigner(NewName(), key), NewSigner(NewName(), key)
	first, answer := from.Sign("node:b", text), from.Sign("node:b", text)
	for i := range 2 * window {
		from.Sign(fmt.Sprint("node:", i%8), text)
	}
	for _, one := range [][]byte{from.Sign("node:b", text), first, answer} {
		if _, ok := to.Open("node:b", one); !ok {
			t.Error("a message is dropped that is not of before")
		}
	}
	for i := range 2 * maxBoxes {
		from.Sign(fmt.Sprint("node:", i), text)
	}
	if len(from.boxes) > maxBoxes {
		t.Errorf("%d boxes are remembered", len(from.boxes))
	}
	if _, ok := to.Open("node:b", from.Sign("node:b", text)); !ok {
		t.Error("a message to a box that was forgotten is dropped")
	}
	for _, one := range [][]byte{first, answer} {
		if _, ok := to.Open("node:b", one); ok {
			t.Error("a message is taken again")
		}
	}

	synctest.Test(t, func(t *testing.T) {
		from, to := NewSigner(NewName(), key), NewSigner(NewName(), key)
		r := New(NewName(), slog.New(slog.DiscardHandler), nil)
		var posted []byte
		link := &Link{Relay: r, Signer: from, Largest: 1 << 20, Store: posts(func(text []byte) { posted = text })}
		give, err := r.Share(t.Context(), "ann", maxPostingEach)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			done <- link.Deliver(t.Context(), "b", "ann", Message{Kind: KindResult}, make([]byte, 2*SmallMessage))
		}()
		time.Sleep(time.Second)
		for range 2 * window {
			to.Open("node:b", from.Sign("node:b", text))
		}
		give()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if _, ok := to.Open("node:b", posted); !ok {
			t.Error("an answer that waited for its share is dropped")
		}
	})
}

// TestZ48UnsignedOnce: without a key, too, a message that is posted again comes once.
func TestZ48UnsignedOnce(t *testing.T) {
	from, to := NewSigner(NewName(), nil), NewSigner(NewName(), nil)
	text := Message{Kind: KindResult, Stream: "x"}.Pack([]byte("{}"))
	one, two := from.Sign("node:b", text), from.Sign("node:b", text)
	for i, posted := range [][]byte{two, one, two, one} {
		if _, ok := to.Open("node:b", posted); ok != (i < 2) {
			t.Errorf("message %d: %t", i, ok)
		}
	}
	// Names that somebody made up keep no edge out.
	for range 2 * maxSenders {
		to.Open("node:b", NewSigner(NewName(), nil).Sign("node:b", text))
	}
	if _, ok := to.Open("node:b", NewSigner(NewName(), nil).Sign("node:b", text)); !ok || len(to.senders) > maxSenders {
		t.Errorf("%t, %d senders", ok, len(to.senders))
	}
	if _, ok := to.Open("node:b", []byte("weir2 0123456789abcdef 18446744073709551615 0 x\n{}\n")); ok {
		t.Error("a number that no edge comes to is taken")
	}
}

// FuzzSigned: nothing that was not signed is taken, and nothing makes it fail.
func FuzzSigned(f *testing.F) {
	key := make([]byte, 32)
	f.Add([]byte("weir2 0123456789abcdef 1 1 x y\n{}\n"))
	f.Add(NewSigner("0123456789abcdef", nil).Sign("node:b", []byte("{}\n")))
	to := NewSigner(NewName(), [][]byte{key})
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, ok := to.Open("node:b", text); ok {
			t.Errorf("%q is taken", text)
		}
		NewSigner("", nil).Open("node:b", text)
	})
}

// posts is a store of which a test has the messages.
func posts(took func(text []byte)) edge.Store { return posted{took: took} }

type posted struct {
	edge.Store
	took func([]byte)
}

func (p posted) Post(_ context.Context, _ string, text []byte, _ time.Duration) error {
	p.took(text)
	return nil
}
