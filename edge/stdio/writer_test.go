//go:build unix

package stdio

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// What ends a line in a message becomes a space, and nothing else of it changes.
func TestLineOfMessage(t *testing.T) {
	raw := []byte("{\r\n \"jsonrpc\":\"2.0\",\n\"id\":1,\"method\":\"x\\ny\u2028é\"}\n")
	got := string(line(nil, raw, nil))
	if want := "{   \"jsonrpc\":\"2.0\", \"id\":1,\"method\":\"x\\ny\u2028é\"} \n"; got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	m, err := mcp.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(line(nil, raw, []mcp.Edit{m.WithID([]byte("99"))})); !strings.Contains(got, `"id":99,`) {
		t.Errorf("%q", got)
	}
}

// What a server does not read waits in order, up to 64 messages or 4 MiB; then there is no
// room, and what takes nothing for long is cut.
func TestWriterWaits(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var cut atomic.Bool
	out := newWriter(w, 1<<20, 300*time.Millisecond, func() { cut.Store(true) })
	sent, full := 0, error(nil)
	for ; full == nil && sent < 1000; sent++ {
		full = out.send(fmt.Appendf(nil, `{"n":%d,"fill":%q}`, sent, strings.Repeat("x", 8000)), nil)
	}
	sent--
	if edge.KindOf(full) != edge.Overload || sent < maxWaiting || sent > maxWaiting+20 {
		t.Fatalf("after %d messages: %v", sent, full)
	}
	if err := out.send(make([]byte, 1<<20+1), nil); edge.KindOf(err) != edge.TooLarge {
		t.Errorf("too large: %v", err)
	}
	for end := time.Now().Add(10 * time.Second); !cut.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not cut")
		}
	}
	out.finish()
	lines := bufio.NewReader(r)
	for i := range sent {
		text, err := lines.ReadString('\n')
		if err != nil || !strings.HasPrefix(text, fmt.Sprintf(`{"n":%d,`, i)) {
			t.Fatalf("line %d: %.40q %v", i, text, err)
		}
	}
	if _, err := lines.ReadByte(); err == nil {
		t.Error("the stream does not end")
	}
}

// TestV26Blocking: a pipe that somebody sets back to blocking and that nobody reads holds
// up whoever writes to it until the process ends, and neither the end nor the watch.
func TestV26Blocking(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Control(func(fd uintptr) { err = syscall.SetNonblock(int(fd), false) })
	if err != nil {
		t.Fatal(err)
	}
	out := newWriter(w, 1<<20, time.Hour, func() {})
	done := make(chan error)
	go func() { done <- out.send(make([]byte, 512<<10), nil) }()
	for end := time.Now().Add(10 * time.Second); out.attempts.Load()%2 == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no attempt")
		}
	}
	select {
	case err := <-done:
		t.Fatalf("written: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	go out.close()
	r.Close() // as the end of the process does
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the writer is held up")
	}
}

func TestRestartRests(t *testing.T) {
	var r restart
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if r.fail(now, now, 0.5) {
			t.Errorf("end %d: too many", i)
		}
		if got := r.wait(now); got != want {
			t.Errorf("end %d: rests %s, want %s", i, got, want)
		}
		now = now.Add(want)
	}
	if !r.fail(now, now, 0.5) || r.wait(now) != time.Minute {
		t.Errorf("the fifth: rests %s", r.wait(now))
	}
	if r.fail(now, now.Add(2*time.Minute), 0) || r.wait(now.Add(2*time.Minute)) != 800*time.Millisecond {
		t.Errorf("after a life of two minutes: rests %s", r.wait(now.Add(2*time.Minute)))
	}
	now = now.Add(2*time.Minute + 800*time.Millisecond)
	if r.fail(now, now, 0.5) || r.wait(now) != 2*time.Second {
		t.Errorf("at once after its rest: rests %s", r.wait(now))
	}
	now = now.Add(2*time.Second + time.Minute)
	if r.fail(now, now, 0.5) || r.wait(now) != time.Second {
		t.Errorf("a minute after its rest: rests %s", r.wait(now))
	}
}

// Processes that end together, as with the container that they share, have ended once.
func TestEndsTogetherAreOne(t *testing.T) {
	var r restart
	now := time.Unix(1000, 0)
	for end := 1; end <= crashes; end++ {
		began, over := now, now.Add(500*time.Millisecond)
		rest := time.Second << (end - 1)
		if end == crashes {
			rest = mostWait
		}
		for range 2 * crashes {
			if bad := r.fail(began, over, 0.5); bad != (end == crashes) {
				t.Fatalf("end %d: too many %v", end, bad)
			}
			if got := r.at.Sub(now); got != 500*time.Millisecond+rest {
				t.Fatalf("end %d: rests until %s, want %s", end, got, rest)
			}
			over = over.Add(time.Millisecond)
		}
		now = r.at
	}
}

// TestV38Memory: a message of 16 MiB takes less than three times its size, garbage
// included, in either direction.
func TestV38Memory(t *testing.T) {
	const size = 16 << 20
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out := newWriter(w, size, time.Minute, func() {})
	raw := []byte(`{"x":"` + strings.Repeat("x", size-8) + `"}`)
	took := make(chan int)
	go func() {
		l := newLines(r, size, idWithin)
		line, own, err := l.next()
		if err != nil || !own {
			t.Errorf("%d bytes, the reader's own: %t, %v", len(line), own, err)
		}
		took <- len(line)
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := out.send(raw, nil); err != nil {
		t.Fatal(err)
	}
	if n := <-took; n != size {
		t.Errorf("%d bytes", n)
	}
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 3*size+1<<20 { // both directions together
		t.Errorf("%d bytes for %d", spent, size)
	}
	out.close()
	r.Close()
}
