package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/route"
)

// TestLettersAreBounded: what waits for one exchange with another edge, and for
// all of them, has a bound in bytes, and so has what is held for others. Who is
// slow loses his own letters, and what is given back is there for others.
func TestLettersAreBounded(t *testing.T) {
	var all threads
	open := func(name string) *thread {
		t.Helper()
		one, err := all.open(name, name)
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

// TestZ41ClaimsEndWithTheirMaker: the place that is kept for a retry by another edge
// is given up as soon as that will not send it, whyever: its client comes again, to
// either edge, and goes on. Meanwhile whoever else comes is told to come again.
func TestZ41ClaimsEndWithTheirMaker(t *testing.T) {
	asks := edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
		if _, err := x.Client.Ask(ctx, map[string]edge.Question{"q": {Method: "elicitation/create", Params: []byte(`{}`)}}); err != nil {
			return nil, err
		}
		return edge.Reply(x.Request, []byte(`{"content":[]}`))
	})
	message := func(more string) *mcp.Message {
		m, err := mcp.Decode(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}%s}}`, more))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	exchange := func(m *mcp.Message) *edge.Exchange {
		return &edge.Exchange{Server: "s", Era: mcp.Modern, Request: m, Target: &edge.Target{Backend: "b"}}
	}
	for what, leaves := range map[string]struct {
		lost  string // a kind of letters that does not arrive
		share bool   // its client's share is taken
		left  bool   // its client leaves
		err   edge.Kind
	}{
		"its client leaves before it has its share": {share: true, left: true, err: edge.Gone},
		"it gets no share":                          {share: true, err: edge.Overload},
		"the store does not take the retry":         {lost: letterRetry, err: edge.Overload},
		"it does not hear that it may come":         {lost: letterTaken, err: edge.Overload},
		"its client leaves before it has heard":     {lost: letterTaken, left: true, err: edge.Gone},
	} {
		for _, again := range []string{"there", "at home"} {
			t.Run(what+", and comes again "+again, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					edges, stores := make(map[string]*Edge), make(map[string]*shared)
					var lost atomic.Value // a kind of letters
					lost.Store(leaves.lost)
					key := [][]byte{make([]byte, 32)}
					seal, err := route.NewSealer(key)
					if err != nil {
						t.Fatal(err)
					}
					begin := func() *Edge {
						e := &Edge{node: newName(), log: slog.New(slog.DiscardHandler)}
						e.parked = parkedFor(Defaults(), seal, e.node)
						e.posting.most, e.posting.each = maxPosting, maxPostingEach
						edges[boxOf(e.node)] = e
						stores[boxOf(e.node)] = &shared{direct: true, signer: newSigner(e.node, key), letter: 1 << 20, cap: time.Minute, life: t.Context(), carrier: &boxes{post: func(box string, text []byte) error {
							if bytes.Contains(text, []byte(`{"k":"`+lost.Load().(string)+`"`)) {
								return errors.New("the store is away")
							}
							edges[box].receive(stores[box], text)
							return nil
						}}}
						return e
					}
					a, b := begin(), begin()
					defer a.parked.Close()
					home, there := &server{edge: a, parked: a.parked}, stores[boxOf(b.node)]

					r, err := a.parked.Begin(t.Context(), exchange(message("")), []byte("{}"), asks)
					if err != nil {
						t.Fatal(err)
					}
					m, err := mcp.Decode(r.Whole())
					if err != nil {
						t.Fatal(err)
					}
					text := mcp.String(mcp.Lookup(m.Result.Of(m.Raw), "requestState"))
					at, _ := seal.Open(text)
					retry := exchange(message(`,"inputResponses":{"input_1":{"action":"accept"}},"requestState":"` + text + `"`))

					give := func() {}
					if leaves.share {
						if give, err = b.posting.take(t.Context(), whoOf(retry), maxPostingEach); err != nil {
							t.Fatal(err)
						}
					}
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					done := make(chan error, 1)
					go func() {
						_, err := b.relay(ctx, there, retry, at)
						done <- err
					}()
					synctest.Wait()
					if len(done) == 0 {
						kept := lost.Load()
						lost.Store("")
						if _, err := b.relay(t.Context(), there, retry, at); edge.KindOf(err) != edge.Overload {
							t.Errorf("another one there: %v", err)
						}
						if _, err := home.goOn(t.Context(), retry, at); edge.KindOf(err) != edge.Overload {
							t.Errorf("another one at home: %v", err)
						}
						lost.Store(kept)
					}
					if leaves.left {
						leave()
					}
					if err := <-done; edge.KindOf(err) != leaves.err {
						t.Errorf("%v", err)
					}
					give()
					lost.Store("")
					synctest.Wait()
					if again == "there" {
						r, err = b.relay(t.Context(), there, retry, at)
					} else {
						r, err = home.goOn(t.Context(), retry, at)
					}
					if err != nil || !bytes.Contains(r.Whole(), []byte(`"content"`)) {
						t.Errorf("the answer is lost: %v", err)
					}
					synctest.Wait()
				})
			})
		}
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
