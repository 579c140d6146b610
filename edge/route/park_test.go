package route

import (
	"context"
	"fmt"
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
