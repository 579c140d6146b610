package backend_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/mcp"
)

// BenchmarkCall is a call to a backend that costs next to nothing itself, by
// the size of its answer.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{100, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			back := direct(b, &edgetest.Server{Era: edgetest.Modern, URL: parrot(b, size)})
			x := modern(b, "1", "tools/call", `{"name":"echo","_meta":{}}`, make(ears, 1))
			m := x.Request
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				x.Reset()
				x.Era, x.Request, x.Name = mcp.Modern, m, "echo"
				if r, err := back.Handle(b.Context(), x); err != nil || r.Kind != mcp.Result {
					b.Fatal(err)
				}
			}
		})
	}
}

// parrot is a modern server that answers every request but server/discover with
// the same bytes.
func parrot(b *testing.B, size int) string {
	b.Helper()
	reply := func(result string) []byte {
		text := `{"jsonrpc":"2.0","id":1,"result":` + result + `}`
		return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}
	discovered := reply(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
	called := reply(`{"a":"` + strings.Repeat("x", size) + `"}`)
	p := fake.Listen(b, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			var body bytes.Buffer
			if _, err := body.ReadFrom(r.Body); err != nil {
				return
			}
			out := called
			if bytes.Contains(body.Bytes(), []byte("server/discover")) {
				out = discovered
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
	return "http://" + p.Addr + "/mcp"
}
