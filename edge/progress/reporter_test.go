package progress_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/progress"
)

const most = 1000 // calls of a trace

// reader is a client that reads nothing until it may.
type reader struct {
	edge.NoClient
	may chan struct{}

	mu   sync.Mutex
	seen []string
}

func (c *reader) Send(m *mcp.Message) error {
	<-c.may
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, string(m.Raw))
	return nil
}

// TestTraceWaitsForNoClient: calls end whether or not the client reads of them. What it is told
// when it does is bounded, in order and complete before the end, after which it is told nothing.
func TestTraceWaitsForNoClient(t *testing.T) {
	c := &reader{may: make(chan struct{})}
	m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"t","weir.dev/trace":true}}}`))
	if err != nil {
		t.Fatal(err)
	}
	o := progress.NewOuter(&edge.Exchange{Request: m, Client: c}, 0)
	called := make(chan struct{})
	go func() {
		defer close(called)
		for range most + 10 {
			o.Called(progress.Call{ID: o.NextID(), Tool: strings.Repeat("x", 200), Outcome: progress.OK})
		}
	}()
	edgetest.Receive(t, called, "the end of the calls")
	close(c.may)
	o.Progress(5000, 0, "")
	o.End()
	o.Called(progress.Call{ID: o.NextID()})
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) != most+1 {
		t.Fatalf("%d notifications", len(c.seen))
	}
	for i, n := range c.seen[:most] {
		trace := edgetest.Member(n, "params", "_meta", "weir.dev/trace")
		if edgetest.Member(trace, "id") != strconv.Itoa(i+1) || len(edgetest.Member(trace, "tool")) != 128+len(`"…"`) {
			t.Fatalf("notification %d: %s", i, n)
		}
	}
}
