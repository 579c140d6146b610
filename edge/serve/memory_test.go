package serve_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// TestZ16MemoryIsGivenBack: what sessions that nobody ended leave behind goes back
// to the system soon after, while the edge does nothing that would collect it.
func TestZ16MemoryIsGivenBack(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while")
	}
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.SessionTTL = time.Second }))
	f.introduced(t)
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	const sessions = 1500
	hello := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"` + strings.Repeat("x", 12<<10) + `","version":"1"}}}`
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			c := f.NewClient()
			for range sessions / 8 {
				if r, err := c.Try("POST", "/mcp", hello); err != nil || r.Status != 200 {
					t.Errorf("%v %+v", err, r)
				}
			}
		})
	}
	work.Wait()
	edgetest.Until(t, "the end of the sessions", func() bool { return f.Serve.Sessions() == 0 })
	ended := time.Now()
	edgetest.Until(t, "a collection that nobody asked for", func() bool {
		runtime.ReadMemStats(&now)
		return now.NumForcedGC > before.NumForcedGC
	})
	if d := time.Since(ended); d > edgetest.Patience/2 {
		t.Errorf("after %s", d)
	}
	edgetest.Until(t, "the memory", func() bool {
		runtime.ReadMemStats(&now)
		return now.HeapInuse+now.HeapIdle-now.HeapReleased < before.HeapInuse+before.HeapIdle-before.HeapReleased+10<<20
	})
}
