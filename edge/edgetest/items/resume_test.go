//go:build unix

package items_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/relay"
)

// replicas are two edges of their own processes that share a Redis, before one
// backend, whose calls say two things each and are answered as they are told to.
type replicas struct {
	t     *testing.T
	redis *kvtest.Server
	back  *edgetest.Server
	a, b  *process
	goOn  chan struct{} // each value has one call answered
}

func newReplicas(t *testing.T) *replicas {
	weir := program(t)
	r := &replicas{t: t, redis: kvtest.Redis(t), back: edgetest.NewServer(t, edgetest.Legacy), goOn: make(chan struct{})}
	r.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		c.Progress(2)
		if c.Wait(r.goOn) {
			c.Result(`{"content":[]}`)
		}
	})
	key, raw := filepath.Join(t.TempDir(), "state.key"), make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(raw)), 0o600); err != nil {
		t.Fatal(err)
	}
	yaml := edgetest.Manifest(r.back, fmt.Sprintf("sessionStorage: {provider: kvstore, address: %q}", r.redis.Addr))
	r.a = run(t, weir, yaml, "", nil, "--state-key-file", key, "--store-timeout", "10s")
	r.b = run(t, weir, yaml, "", nil, "--state-key-file", key, "--store-timeout", "10s")
	return r
}

// broken is a client of the first edge whose stream broke after its first event.
type broken struct {
	id      string // of its session
	version string
	last    string // id of the event
}

// begin begins calls, each in a session of its own, and breaks their streams when
// the store has what they carried.
func (r *replicas) begin(n int) (all []broken) {
	r.t.Helper()
	c := edgetest.NewClient(r.t, r.a.base)
	for range n {
		s := c.Initialize("")
		stream := s.Request("1", "tools/call", `{"name":"echo","arguments":{},"_meta":{"progressToken":1}}`)
		first := stream.Next()
		stream.Next()
		stream.Close()
		all = append(all, broken{s.ID, s.Version, first.ID})
	}
	edgetest.Until(r.t, "the logs in the store", func() bool {
		whole := 0
		for _, key := range strings.Fields(r.redis.Do("--raw", "keys", "weir:log:*")) {
			if strings.Count(r.redis.Do("--raw", "get", key), "notifications/progress") == 2 {
				whole++
			}
		}
		return whole >= n
	})
	return all
}

// resume opens the stream of a client again at an edge.
func (r *replicas) resume(at *process, c broken) (*edgetest.Response, error) {
	return edgetest.NewClient(r.t, at.base).Try("GET", "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", c.id, "MCP-Protocol-Version", c.version, "Last-Event-ID", c.last)
}

// ends checks what a stream carries after its first event: the second, and then
// that the call failed with its edge, or its answer.
func (r *replicas) ends(what string, events []edgetest.Event, answered bool) {
	r.t.Helper()
	if len(events) != 2 || edgetest.Member(string(events[0].Data), "params", "progress") != "2" || events[1].ID == "" {
		r.t.Errorf("%s: %q", what, events)
		return
	}
	text := string(events[1].Data)
	if edgetest.Member(text, "id") != "1" || answered != (edgetest.Member(text, "result") != "") ||
		!answered && (edgetest.Member(text, "error", "code") != "-32603" || edgetest.Member(text, "error", "message") != `"the edge that held this call is gone"`) {
		r.t.Errorf("%s ends with %s", what, text)
	}
}

// TestZ43KilledReplica: clients whose edge was killed a moment ago, and who come
// back to another one, have their streams at once, with what they missed, and are
// told within a second, under the id of the call, that it has failed.
func TestZ43KilledReplica(t *testing.T) {
	r := newReplicas(t)
	clients := r.begin(30)
	ran := r.back.Count("tools/call")
	if err := r.a.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var opened, told time.Duration
	for _, c := range clients {
		all.Go(func() {
			began := time.Now()
			stream, err := r.resume(r.b, c)
			if err != nil || stream.Status != 200 {
				t.Errorf("%v %+v", err, stream)
				return
			}
			first, err := stream.TryNext()
			open := time.Since(began)
			rest, _ := stream.TryRest()
			end := time.Since(began)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			opened, told = max(opened, open), max(told, end)
			r.ends("the call", append([]edgetest.Event{first}, rest...), false)
		})
	}
	all.Wait()
	t.Logf("the last stream was open after %s, and told of its end after %s", opened, told)
	if told > time.Second+slack(t) || opened > time.Second/2+slack(t) {
		t.Errorf("the last stream was open after %s, and told of its end after %s", opened, told)
	}
	<-r.a.ended
	// Whoever comes later is told the same, under the same id.
	for _, c := range clients[:3] {
		stream, err := r.resume(r.b, c)
		if err != nil {
			t.Fatal(err)
		}
		r.ends("the call, later", stream.Rest(), false)
	}
	if n := r.back.Count("tools/call"); n != ran {
		t.Errorf("%d calls ran again", n-ran)
	}
}

// TestZ43HeldUpReplica: an edge that is held up and lives on has not lost its
// calls. Where another edge has told a client meanwhile that its call failed, that
// stays its one answer, at every edge; where none has, the answer comes.
func TestZ43HeldUpReplica(t *testing.T) {
	r := newReplicas(t)
	clients := r.begin(4)
	failed, rest := clients[:2], clients[2:]

	// 1. It is held up, and two clients come back to the other edge.
	r.a.signal(syscall.SIGSTOP)
	t.Cleanup(func() { r.a.signal(syscall.SIGCONT) })
	for _, c := range failed {
		stream, err := r.resume(r.b, c)
		if err != nil {
			t.Fatal(err)
		}
		r.ends("a call of an edge that is held up", stream.Rest(), false)
	}

	// 2. It lives, and all of its calls are answered.
	r.a.signal(syscall.SIGCONT)
	for range clients {
		select {
		case r.goOn <- struct{}{}:
		case <-time.After(edgetest.Patience):
			t.Fatal("the calls have ended")
		}
	}
	for _, at := range []*process{r.a, r.b, r.a} {
		for i, c := range failed {
			stream, err := r.resume(at, c)
			if err != nil {
				t.Fatal(err)
			}
			r.ends(fmt.Sprintf("call %d, whose client was told that it failed", i), stream.Rest(), false)
		}
		for i, c := range rest {
			stream, err := r.resume(at, c)
			if err != nil {
				t.Fatal(err)
			}
			r.ends(fmt.Sprintf("call %d, whose client was told nothing", i), stream.Rest(), true)
		}
	}
	if n := r.back.Count("tools/call"); n != len(clients) {
		t.Errorf("%d calls", n)
	}
}

// TestZ43ReaderIsHeldUp: an edge that reads a stream of another one for its client, and is
// held up for so long that it counts as gone there, ends the client's stream when it lives
// again. The client comes back and has what it missed.
func TestZ43ReaderIsHeldUp(t *testing.T) {
	r := newReplicas(t)
	tell := make(chan struct{})
	r.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		c.Progress(2)
		if c.Wait(tell) {
			c.Progress(3)
		}
		if c.Wait(r.goOn) {
			c.Result(`{"content":[]}`)
		}
	})
	c := r.begin(1)[0]
	stream, err := r.resume(r.b, c)
	if err != nil {
		t.Fatal(err)
	}
	stream.Next() // of the store's
	close(tell)
	third := stream.Next() // of the other edge's, which it follows from then on
	r.b.signal(syscall.SIGSTOP)
	t.Cleanup(func() { r.b.signal(syscall.SIGCONT) })
	edgetest.Until(t, "it counts as gone", func() bool {
		return len(strings.Fields(r.redis.Do("--raw", "keys", "weir:alive:*"))) == 1
	})
	time.Sleep(2 * relay.AliveEvery) // the other one looks once in that time, and drops what it serves
	r.b.signal(syscall.SIGCONT)
	if rest := stream.Rest(); len(rest) != 0 {
		t.Errorf("the stream goes on with %q", rest)
	}
	select {
	case r.goOn <- struct{}{}:
	case <-time.After(edgetest.Patience):
		t.Fatal("the call has ended")
	}
	c.last = third.ID
	if stream, err = r.resume(r.b, c); err != nil {
		t.Fatal(err)
	}
	if rest := stream.Rest(); len(rest) != 1 || edgetest.Member(string(rest[0].Data), "result") == "" {
		t.Errorf("the client has come back, and the stream ends with %q", rest)
	}
}

// slack is how much longer things may take because others keep the machine busy.
func slack(t *testing.T) time.Duration {
	text, err := os.ReadFile("/proc/loadavg")
	var load float64
	if _, scan := fmt.Sscan(string(text), &load); err != nil || scan != nil {
		return 0
	}
	t.Logf("load average %.1f", load)
	return time.Duration(load * float64(time.Second) / 10)
}
