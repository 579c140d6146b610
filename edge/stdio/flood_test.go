//go:build unix

package stdio_test

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// heap is what the heap of this process holds, garbage included, in bytes.
func heap() int64 {
	one := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(one)
	return int64(one[0].Value.Uint64())
}

// TestK14Flood: a million notifications as fast as a server can take bounded memory, whether
// nobody wants them, a client reads them, or one should and does not; and others are served
// meanwhile.
func TestK14Flood(t *testing.T) { // not beside others, whose memory would count
	const unread, most = "notifications/message", 16 << 20
	for method, many := range map[string]int{"notifications/resources/updated": 1_000_000, "notifications/tools/list_changed": 100_000, unread: 1_000_000} {
		t.Run(method, func(t *testing.T) {
			b := start(t, "legacy", nil)
			one, other := b.NewClient().As(edgetest.Legacy, ""), b.NewClient().As(edgetest.Legacy, "")
			pid := text(t, one.CallTool("1", "pid", "{}"))
			other.CallTool("1", "echo", "{}").Result()
			before := heap()
			flooded := make(chan string, 1)
			go func() {
				r, err := one.TryAsk("2", "tools/call", edgetest.CallParams("flood", fmt.Sprintf(`{"n":%d,"method":%q}`, many, method)))
				if err != nil {
					flooded <- err.Error()
					return
				}
				if method == unread {
					<-time.After(2 * time.Second) // it goes on as long as there is room for more
					flooded <- "flooded, as far as that went"
					return
				}
				answer := r.Body
				for r.Stream() && err == nil { // all of them would be a test's memory
					var e edgetest.Event
					if e, err = r.TryNext(); err == nil {
						answer = e.Data
					}
				}
				flooded <- string(answer)
			}()
			largest, calls := int64(0), 0
			over := time.After(edgetest.Allowed(patience)) // under the race detector 10,000 a second are taken
			for said := ""; said == ""; {
				began := time.Now()
				if got := text(t, other.CallTool("2", "echo", `{"text":"fine"}`)); got != "fine" || time.Since(began) > 5*time.Second {
					t.Fatalf("another client gets %q after %s", got, time.Since(began))
				}
				calls++
				more := heap() - before
				if more > most { // on a busy machine the collector comes late to what nobody uses
					runtime.GC()
					t.Logf("%d MiB more, of which %d MiB are in use", more>>20, (heap()-before)>>20)
					more = heap() - before
				}
				largest = max(largest, more)
				select {
				case said = <-flooded:
					if !strings.Contains(said, "flooded") {
						t.Errorf("the call is answered by %s", said)
					}
				case <-over:
					t.Fatal("no answer")
				case <-time.After(50 * time.Millisecond): // the calls' own memory is not to count
				}
			}
			t.Logf("%d calls of another client, %d MiB more at most", calls, largest>>20)
			if largest > most {
				t.Errorf("%d MiB more are in use", largest>>20)
			}
			one.Session.Delete()
			await(t, "its process ends with the session", func() bool { return !alive(pid) })
		})
	}
}
