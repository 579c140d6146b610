package route

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// TestZ48OneStateOneAnswer: of those who come with one requestState at the same
// time, whatever the call does meanwhile, one goes on with it; the others are
// told that it is not valid.
func TestZ48OneStateOneAnswer(t *testing.T) {
	seal, err := NewSealer([][]byte{make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	l := NewParked(ParkOptions{Most: 100, TTL: time.Minute, Cap: time.Minute, Node: "a", Room: 1 << 20, Part: 1 << 20, Claims: new(relay.Claims)}, seal)
	defer l.Close()
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
	var ran atomic.Int64
	handler := edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
		ran.Add(1)
		if _, err := x.Client.Ask(ctx, map[string]edge.Question{"q": {Method: "elicitation/create", Params: []byte(`{}`)}}); err != nil {
			return nil, err
		}
		return edge.Reply(x.Request, []byte(`{"content":[]}`))
	})
	const races, each = 2000, 4
	for i := range races {
		r, err := l.Begin(t.Context(), exchange(message("")), []byte("{}"), handler)
		if err != nil {
			t.Fatal(err)
		}
		m, err := mcp.Decode(r.Whole())
		if err != nil {
			t.Fatal(err)
		}
		state := mcp.String(mcp.Lookup(m.Result.Of(m.Raw), "requestState"))
		again := message(`,"inputResponses":{"input_1":{"action":"accept"}},"requestState":"` + state + `"`)
		var answers, refused atomic.Int64
		var all sync.WaitGroup
		for j := range each {
			all.Go(func() {
				for k := 0; k < j*20; k++ { // some come a little later
					_ = time.Now()
				}
				_, err := l.Resume(t.Context(), exchange(again), "")
				switch {
				case err == nil:
					answers.Add(1)
				case edge.KindOf(err) == edge.Params:
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if answers.Load() != 1 || refused.Load() != each-1 {
			t.Fatalf("race %d: %d answers to one state, %d refused", i, answers.Load(), refused.Load())
		}
	}
	if ran.Load() != races || l.Len() != 0 {
		t.Errorf("%d calls ran of %d, %d are parked", ran.Load(), races, l.Len())
	}
}

// stuck is a client that reads nothing: what it is sent waits until it is let go.
type stuck struct {
	edge.NoClient
	sent chan struct{} // closed when it is sent something
	let  chan struct{}
}

func (c *stuck) Send(*mcp.Message) error {
	close(c.sent)
	<-c.let
	return nil
}

// A client that does not read what its call tells it holds up no message of another edge.
func TestWantedWaitsForNoClient(t *testing.T) {
	seal, err := NewSealer([][]byte{make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	r := &Replicas{Log: slog.New(slog.DiscardHandler)}
	r.Relay = relay.New("a", r.Log, func() bool { return false })
	r.Parked = NewParked(ParkOptions{Most: 100, TTL: time.Minute, Cap: time.Minute, Node: "a", Room: 1 << 20, Part: 1 << 20, Claims: &r.Relay.Claims}, seal)
	defer r.Parked.Close()
	exchange := func(more string, to edge.Client) *edge.Exchange {
		m, err := mcp.Decode(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}%s,"_meta":{"progressToken":1}}}`, more))
		if err != nil {
			t.Fatal(err)
		}
		return &edge.Exchange{Server: "s", Era: mcp.Modern, Request: m, Target: &edge.Target{Backend: "b"}, Client: to}
	}
	first, err := r.Parked.Begin(t.Context(), exchange("", nil), []byte("{}"), edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
		if _, err := x.Client.Ask(ctx, map[string]edge.Question{"q": {Method: "elicitation/create", Params: []byte(`{}`)}}); err != nil {
			return nil, err
		}
		n, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`))
		if err != nil {
			return nil, err
		}
		if err := x.Client.Send(n); err != nil {
			return nil, err
		}
		return edge.Reply(x.Request, []byte(`{"content":[]}`))
	}))
	if err != nil {
		t.Fatal(err)
	}
	m, err := mcp.Decode(first.Whole())
	if err != nil {
		t.Fatal(err)
	}
	state := mcp.String(mcp.Lookup(m.Result.Of(m.Raw), "requestState"))
	at, _ := seal.Open(state)
	if !r.Parked.Holds(at) {
		t.Error("the state of a call that is parked is of no use")
	}
	c := &stuck{sent: make(chan struct{}), let: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		_, err := r.Parked.Resume(t.Context(), exchange(`,"inputResponses":{"input_1":{"action":"accept"}},"requestState":"`+state+`"`, c), "")
		ended <- err
	}()
	<-c.sent
	said := make(chan error, 1)
	go func() { said <- r.Wanted(relay.Message{From: "b", Stream: "x"}, []byte(state)) }()
	select {
	case err := <-said:
		if edge.KindOf(err) != edge.Params {
			t.Errorf("a state that was used: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("another edge waits for the client")
	}
	close(c.let)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if r.Parked.Holds(at) {
		t.Error("the state of a call that has ended is of use")
	}
}
