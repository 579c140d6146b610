package backend

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// A connection that has become a stream without an end holds little, loses
// nothing of what had come with the head, and serves no other call. One whose
// call has an end stays as it is.
func TestStreamsAreSlim(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3000)
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 20 { // comes with the head, and far more than a small buffer holds
			fmt.Fprintf(w, "id: %d\ndata: %s\n\n", i, long)
		}
	}, nil)
	for _, endless := range []bool{true, false} {
		o := &outgoing{method: "GET", now: time.Now()}
		if !endless {
			o.until = time.Now().Add(b.Cap)
		}
		r, _, err := b.peer.send(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		body := r.stream()
		events := mcp.NewEventReader(body, b.MaxMessage)
		for i := range 20 {
			e, err := events.Next()
			if err != nil || string(e.Data) != long || e.ID != fmt.Sprint(i) {
				t.Fatalf("event %d: id %q, %d bytes, %v", i, e.ID, len(e.Data), err)
			}
		}
		if _, err := events.Next(); err != io.EOF {
			t.Errorf("after the last: %v", err)
		}
		if slim := r.c.Reader.Size() == wire.SlimBuffer && r.c.Out == nil; slim != endless {
			t.Errorf("endless %t: a buffer of %d bytes for what comes and of %d for what goes", endless, r.c.Reader.Size(), cap(r.c.Out))
		}
		r.release()
		if n := b.peer.pool.Free(); (n == 0) != endless {
			t.Errorf("endless %t: %d connections wait for a call", endless, n)
		}
	}
}

// Where a server has no stream of its own nobody waits for what will not come,
// and what it says beside a call reaches who listens, until he does no more.
func TestAttend(t *testing.T) {
	t.Parallel()
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		m, err := mcp.Decode(text)
		switch {
		case r.Method != "POST":
			w.WriteHeader(405)
		case err != nil || m.Method != "initialize":
			w.WriteHeader(202)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`, m.IDText())
		}
	}, nil)
	s := newSession(b, false, nil, nil)
	defer s.Close()
	heard := func() edge.Client {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.notice
	}
	out := NewAudience(nil, nil, func() {})
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.attend(ctx, out, nil); err != nil || heard() != edge.Client(out) {
		t.Fatalf("%v; heard by %v", err, heard())
	}
	cancel()
	for heard() != nil {
		runtime.Gosched()
	}
	ctx, cancel = context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.listen(ctx, out, nil) }()
	for heard() == nil {
		runtime.Gosched()
	}
	cancel()
	if err := <-ended; err != nil || heard() != nil {
		t.Errorf("%v; heard by %v", err, heard())
	}
}
