package backend_test

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
)

// What a backend announces takes no memory: it is what has come that does.
func TestZ01BackendsThatAnnounce(t *testing.T) {
	// Not parallel: nothing else may allocate.
	const stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	for _, c := range []struct{ name, head string }{
		{"a length of 16 MiB", modernHead + "Content-Length: 16777216\r\n\r\n"},
		{"a length of 16 MiB, one byte", modernHead + "Content-Length: 16777216\r\n\r\n{"},
		{"a length of 2 MiB", modernHead + "Content-Length: 2097152\r\n\r\n{"},
		{"a length of 1 MiB", modernHead + "Content-Length: 1048576\r\n\r\n{"},
		{"a chunk of 16 MiB", modernHead + "Transfer-Encoding: chunked\r\n\r\nFFFFFF\r\n{"},
		{"a chunk of any size", modernHead + "Transfer-Encoding: chunked\r\n\r\n7FFFFFFFFFFFFFFF\r\n{"},
		{"half a chunk size", modernHead + "Transfer-Encoding: chunked\r\n\r\nFFFFFF"},
		{"a stream of 16 MiB", stream + "Content-Length: 16777216\r\n\r\ndata: {"},
		{"a chunk of a stream", stream + "Transfer-Encoding: chunked\r\n\r\nFFFFFF\r\ndata: {"},
		{"no length", modernHead + "\r\n{"},
		{"an error of 16 MiB", "HTTP/1.1 500 Oh\r\nContent-Length: 16777216\r\n\r\n{"},
		{"a compressed length", modernHead + "Content-Encoding: gzip\r\nContent-Length: 16777216\r\n\r\n{"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFlooder(t)
			e := edgetest.Start(t, edgetest.ManifestFor(f.url, compile.StreamableHTTP))
			cl := e.NewClient()
			cl.Modern("0", "tools/call", edgetest.CallParams("echo", "{}")).Result()
			var told atomic.Int64
			release := make(chan struct{})
			f.tell(func(w io.Writer, _ string) error {
				_, err := io.WriteString(w, c.head)
				told.Add(1)
				<-release
				return fmt.Errorf("over: %w", err)
			})
			before := heap()
			const many, each = 40, 96 << 10 // of a call with its connections, at all ends
			var calls sync.WaitGroup
			for i := range many {
				calls.Go(func() {
					_, _ = cl.TryModern(fmt.Sprint(i+1), "tools/call", edgetest.CallParams("echo", "{}"))
				})
			}
			edgetest.Until(t, "the answers", func() bool { return told.Load() == many })
			edgetest.Until(t, "the edge to wait for them", func() bool { return !strings.Contains(stacks(), "readHead(") })
			if grown := heap() - before; grown > many*each {
				t.Errorf("%d announcements took %d bytes", many, grown)
			}
			close(release)
			calls.Wait()
			f.tell(nil)
			if m := cl.Modern("99", "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error != nil {
				t.Errorf("afterwards: %+v", m.Error)
			}
		})
	}
}

// stacks is what all goroutines are at.
func stacks() string {
	text := make([]byte, 8<<20)
	return string(text[:runtime.Stack(text, true)])
}

// heap is how many bytes of memory are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
