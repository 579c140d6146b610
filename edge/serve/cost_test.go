//go:build !race

package serve_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
)

// parrot is a backend that answers every call with the same bytes and
// allocates nothing for it.
func parrot(t *testing.T) string {
	t.Helper()
	reply := func(result string) []byte {
		text := `{"jsonrpc":"2.0","id":1,"result":` + result + `}`
		return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}
	discovered := reply(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
	called := reply(`{"resultType":"complete","content":[]}`)
	p := fake.Listen(t, func(c net.Conn) {
		buf := make([]byte, 8<<10)
		for {
			n, err := c.Read(buf) // a request comes in one piece
			if err != nil {
				return
			}
			out := called
			if bytes.Contains(buf[:n], []byte("server/discover")) {
				out = discovered
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
	return "http://" + p.Addr + "/mcp"
}

// allocations is how many allocations a call of an edge costs, client and
// backend included, which need none.
func allocations(t *testing.T, more string) float64 {
	t.Helper()
	e := edgetest.Start(t, edgetest.ManifestFor(parrot(t), compile.StreamableHTTP, more))
	text, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", `{"text":"hello"}`), edgetest.Meta())
	var request strings.Builder
	fmt.Fprintf(&request, "POST /mcp HTTP/1.1\r\nHost: %s\r\nUser-Agent: parrot/1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n", e.Addr(), len(text))
	for i := 0; i < len(head); i += 2 {
		fmt.Fprintf(&request, "%s: %s\r\n", head[i], head[i+1])
	}
	fmt.Fprintf(&request, "\r\n%s", text)
	out, in := []byte(request.String()), make([]byte, 4<<10)
	c, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	call := func() {
		if _, err := c.Write(out); err != nil {
			t.Fatal(err)
		}
		for n := 0; !bytes.HasSuffix(in[:n], []byte("}}")); { // the end of the answer
			more, err := c.Read(in[n:])
			if err != nil && err != io.EOF || more == 0 {
				t.Fatalf("%v: %s", err, in[:n])
			}
			n += more
		}
		if !bytes.HasPrefix(in, []byte("HTTP/1.1 200")) {
			t.Fatalf("%s", in)
		}
	}
	least := 1e9
	for range 5 { // what else goes on in the process must not count
		const n = 2000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			call()
		}
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.Mallocs-before.Mallocs)/n)
	}
	return least
}

// An audit log in a file and metrics cost a call two allocations: the id of its
// request and the name of its tool. Where they are off a call costs what it
// does without them: the text of the answer, the way back and two names. The
// race detector has some of its own.
func TestCostOfObserving(t *testing.T) {
	_, both := audited(t)
	off, on := allocations(t, ""), allocations(t, strings.ReplaceAll(both, "Data: true", "Data: false"))
	data := allocations(t, both)
	t.Logf("allocations per call: %.2f with nothing on, %.2f with audit and metrics, %.2f with the messages in the log", off, on, data)
	if off > 4.5 {
		t.Errorf("%.2f allocations with nothing on", off)
	}
	if on-off > 2.5 {
		t.Errorf("%.2f allocations for audit and metrics", on-off)
	}
	if data-off > 2.5 {
		t.Errorf("%.2f allocations for audit with the messages", data-off)
	}
}
