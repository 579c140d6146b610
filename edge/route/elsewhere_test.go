package route

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
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/session"
)

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
		"the store does not take the retry":         {lost: relay.KindRetry, err: edge.Overload},
		"it does not hear that it may come":         {lost: relay.KindTaken, err: edge.Overload},
		"its client leaves before it has heard":     {lost: relay.KindTaken, left: true, err: edge.Gone},
	} {
		for _, again := range []string{"there", "at home"} {
			t.Run(what+", and comes again "+again, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					stores := make(map[string]*session.Store)
					var lost atomic.Value // a kind of letters
					lost.Store(leaves.lost)
					key := [][]byte{make([]byte, 32)}
					seal, err := NewSealer(key)
					if err != nil {
						t.Fatal(err)
					}
					begin := func() *Replicas {
						e := &Replicas{Log: slog.New(slog.DiscardHandler)}
						e.Relay = relay.New(relay.NewName(), e.Log, func() bool { return false })
						e.Parked = NewParked(ParkOptions{Most: 1000, TTL: 15 * time.Minute, Cap: time.Hour, Node: e.Relay.Node, Room: 64 << 20, Part: 16 << 20, Claims: &e.Relay.Claims}, seal)
						carries := &boxes{post: func(box string, text []byte) error {
							if bytes.Contains(text, []byte(`{"k":"`+lost.Load().(string)+`"`)) {
								return errors.New("the store is away")
							}
							stores[box].Receive(text)
							return nil
						}}
						t := session.New(session.Options{
							Relay: e.Relay, Signer: relay.NewSigner(e.Relay.Node, key), Largest: 8 << 20, CallCap: time.Hour, Log: e.Log,
							Servers: func() map[string]*session.Host { return nil },
							Handlers: func(t *session.Store) map[string]relay.Handler {
								return map[string]relay.Handler{relay.KindRetry: e.Retry(&t.Link)}
							},
							Wanted: e.Wanted,
						}).Share(carries, "")
						t.Direct = true
						stores[relay.Box(e.Relay.Node)] = t
						return e
					}
					a, b := begin(), begin()
					defer a.Parked.Close()
					home, there := New(Options{Parked: a.Parked, Replicas: a}), &stores[relay.Box(b.Relay.Node)].Link

					r, err := a.Parked.Begin(t.Context(), exchange(message("")), []byte("{}"), asks)
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
						if give, err = b.Relay.Share(t.Context(), relay.Who(retry), 8<<20); err != nil {
							t.Fatal(err)
						}
					}
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					done := make(chan error, 1)
					go func() {
						_, err := b.serve(ctx, there, retry, at)
						done <- err
					}()
					synctest.Wait()
					if len(done) == 0 {
						kept := lost.Load()
						lost.Store("")
						if _, err := b.serve(t.Context(), there, retry, at); edge.KindOf(err) != edge.Overload {
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
						r, err = b.serve(t.Context(), there, retry, at)
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

// boxes is a store that takes letters and has nothing else. Whoever is asked for is
// alive.
type boxes struct {
	session.Carrier
	post func(box string, text []byte) error
}

func (b *boxes) Post(_ context.Context, box string, text []byte, _ time.Duration) error {
	return b.post(box, text)
}

func (b *boxes) Get(context.Context, string) ([]byte, error) { return []byte("1"), nil }
