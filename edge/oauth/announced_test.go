package oauth_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/oauth"
)

// stalling is a server that answers each request with a text and then says
// nothing more. n is how many it has answered so.
func stalling(t *testing.T, text string) (url string, answered chan struct{}, end func()) {
	t.Helper()
	answered = make(chan struct{}, 1000)
	p := fake.Listen(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		if _, err := io.WriteString(c, text); err == nil {
			answered <- struct{}{}
		}
		_, _ = c.Read(make([]byte, 1)) // until either end closes the connection
	})
	return "http://" + p.Addr + "/", answered, p.Close
}

// What a peer announces takes no memory: it is what has come that does. All
// fetches go through this client: keys, discovery, introspection, the modules
// and the requests of guests, decision points, most webhooks.
func TestZ01PeersThatAnnounce(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for name, text := range map[string]string{
		"a length":       head + "Content-Length: 10485760\r\n\r\n{",
		"a chunk":        head + "Transfer-Encoding: chunked\r\n\r\nA00000\r\n{",
		"no length":      head + "\r\n{",
		"compressed":     head + "Content-Encoding: gzip\r\nContent-Length: 10485760\r\n\r\n\x1f\x8b",
		"an error":       "HTTP/1.1 500 Oh\r\nContent-Length: 10485760\r\n\r\n{",
		"half a header":  head + "X: ",
		"interim answer": "HTTP/1.1 103 Early Hints\r\nContent-Length: 10485760\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			url, answered, end := stalling(t, text)
			c := lenient(t)
			const many, each = 40, 96 << 10 // of a request with its connection, at both ends
			before := heap()
			var all sync.WaitGroup
			for range many {
				all.Go(func() {
					r, err := c.Do(t.Context(), oauth.Request{Method: "GET", URL: url, Trust: oauth.Named, MaxBody: 10 << 20})
					if err == nil && name != "no length" {
						t.Errorf("an answer of %d bytes", len(r.Body))
					}
				})
			}
			for range many {
				edgetest.Receive(t, answered, "an answer")
			}
			if grown := heap() - before; grown > many*each {
				t.Errorf("%d announcements took %d bytes", many, grown)
			}
			end()
			all.Wait()
		})
	}
}

// heap is how many bytes of memory are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
