package backend_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/serve"
)

// flooder is a modern server that answers tools/call with whatever it is told
// to, byte for byte, and server/discover as it should.
type flooder struct {
	url string

	mu     sync.Mutex
	answer func(w io.Writer, id string) error // nil for a result

	got atomic.Int64 // bytes that the other side took of answers that were told
}

const modernHead = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

func newFlooder(t *testing.T) *flooder {
	t.Helper()
	f := &flooder{}
	f.url = "http://" + fake.Listen(t, func(c net.Conn) { f.serve(t, c) }).Addr + "/mcp"
	return f
}

func (f *flooder) tell(answer func(io.Writer, string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *flooder) serve(t *testing.T, c net.Conn) {
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		m := edgetest.Parse(t, body)
		f.mu.Lock()
		answer := f.answer
		f.mu.Unlock()
		result := `{"resultType":"complete","content":[]}`
		if m.Method == "server/discover" {
			result, answer = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`, nil
		}
		if answer == nil {
			text := `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`
			if _, err := fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", modernHead, len(text), text); err != nil {
				return
			}
			continue
		}
		if answer(counter{c, &f.got}, string(m.ID)) != nil {
			return
		}
	}
}

type counter struct {
	net.Conn
	n *atomic.Int64
}

func (c counter) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// endless writes a beginning and then the same again and again, until nobody
// takes it.
func endless(begin, again string) func(io.Writer, string) error {
	return func(w io.Writer, _ string) error {
		_, err := io.WriteString(w, begin)
		for err == nil {
			_, err = io.WriteString(w, again)
		}
		return err
	}
}

func once(text func(id string) string) func(io.Writer, string) error {
	return func(w io.Writer, id string) error {
		_, err := io.WriteString(w, text(id))
		return err
	}
}

// What a backend sends without end, or in a form that it was not asked for, is
// a 502, is not read on, and leaves the backend in use.
func TestBackendWithoutEnd(t *testing.T) {
	t.Parallel()
	const chunks = "Transfer-Encoding: chunked\r\n\r\n"
	const stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	plain := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[]}}` }
	length := func(s string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(s), s) }
	for _, c := range []struct {
		name   string
		answer func(io.Writer, string) error
		status int
	}{
		{"one header line", endless(modernHead+"X: ", strings.Repeat("x", 1000)), 502},
		{"header lines", endless(modernHead, "X-Line: "+strings.Repeat("x", 100)+"\r\n"), 502},
		{"empty header lines before the status", endless("", "\r\n"), 502},
		{"interim answers", endless("", "HTTP/1.1 103 Early Hints\r\n\r\n"), 502},
		{"interim answers with a head each", endless("", "HTTP/1.1 100 Continue\r\nX: "+strings.Repeat("x", 4000)+"\r\n\r\n"), 502},
		{"one chunk extension", endless(modernHead+chunks+"1;a=", strings.Repeat("x", 1000)), 502},
		{"chunk extensions", endless(modernHead+chunks, "1;a="+strings.Repeat("x", 4000)+"\r\n \r\n"), 502},
		{"chunk extensions of a stream", endless(stream+chunks, "1;a="+strings.Repeat("x", 4000)+"\r\n:\r\n"), 502},
		{"a chunk length of zeros", endless(modernHead+chunks, strings.Repeat("0", 1000)), 502},
		{"chunks", endless(modernHead+chunks, "8000\r\n"+strings.Repeat(" ", 0x8000)+"\r\n"), 502},
		{"a body without a length", endless(modernHead+"\r\n", strings.Repeat(" ", 1000)), 502},
		{"one event", endless(stream+"\r\ndata: ", strings.Repeat(" ", 1000)), 502},
		{"lines of one event", endless(stream+"\r\n", "data: 1\n"), 502},
		{"ids of one event", endless(stream+"\r\n", "id: 1\n"), 502},
		{"a length of 1 TiB", endless(modernHead+"Content-Length: 1099511627776\r\n\r\n", strings.Repeat(" ", 1000)), 502},
		{"an error without end", endless("HTTP/1.1 400 Bad Request\r\n\r\n", strings.Repeat(" ", 1000)), 502},
		{"comments", endless(stream+"\r\n", ":\n"), 504}, // none of it is a word, and a backend may be silent for so long
		{"gzip", once(func(id string) string {
			return modernHead + "Content-Encoding: gzip\r\n" + length("\x1f\x8b\x08\x00nonsense")
		}), 502},
		{"a stream in gzip", once(func(id string) string {
			return stream + "Content-Encoding: gzip\r\n" + length("\x1f\x8b\x08\x00nonsense")
		}), 502},
		{"gzip in name only", once(func(id string) string {
			return modernHead + "Content-Encoding: gzip\r\n" + length(plain(id))
		}), 502},
		{"a stream in gzip in name only", once(func(id string) string {
			return stream + "Content-Encoding: br\r\n" + length("data: "+plain(id)+"\n\n")
		}), 502},
		{"identity", once(func(id string) string {
			return modernHead + "Content-Encoding: identity\r\n" + length(plain(id))
		}), 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFlooder(t)
			e := edgetest.Start(t, edgetest.ManifestFor(f.url, compile.StreamableHTTP, edgetest.Timeout(3*time.Second)),
				edgetest.Settings(func(s *serve.Settings) { s.MaxMessage = 64 << 10 }))
			cl := e.NewClient()
			f.tell(c.answer)
			r := cl.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"))
			m := r.Message()
			switch {
			case c.status == 200 && (r.Status != 200 || m.Error != nil):
				t.Errorf("status %d: %+v", r.Status, m.Error)
			case c.status != 200 && (r.Status != c.status || m.Error == nil || m.Error.Code != c.status):
				t.Errorf("status %d: %+v", r.Status, m.Error)
			}
			// What the edge has read, and what the kernels on both sides hold; a
			// comment is read as long as the backend may be silent.
			if n := f.got.Load(); n > 8<<20 && c.status != 504 {
				t.Errorf("the backend got rid of %d bytes", n)
			}
			f.tell(nil)
			if m := cl.Modern("2", "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error != nil {
				t.Errorf("afterwards: %+v", m.Error)
			}
		})
	}
}

// A body larger than the memory that is taken at once comes whole, and one that
// ends too soon is an error.
func TestLargeBody(t *testing.T) {
	t.Parallel()
	f := newFlooder(t)
	c := edgetest.Start(t, edgetest.ManifestFor(f.url, compile.StreamableHTTP)).NewClient()
	for _, size := range []int{2<<20 - 100, 2 << 20, 4 << 20, 9<<20 + 7} {
		text := strings.Repeat("x", size)
		f.tell(once(func(id string) string {
			body := `{"jsonrpc":"2.0","id":` + id + `,"result":{"a":"` + text + `"}}`
			return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", modernHead, len(body), body)
		}))
		if got := c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Result(); got != `{"a":"`+text+`"}` {
			t.Errorf("%d bytes of %d came", len(got), size)
		}
	}
	f.tell(func(w io.Writer, id string) error {
		_, err := fmt.Fprintf(w, "%sContent-Length: 9000000\r\n\r\n%s", modernHead, strings.Repeat(" ", 1<<20))
		return errors.Join(err, io.EOF)
	})
	if m := c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error == nil || m.Error.Code != 502 {
		t.Errorf("%+v", m.Error)
	}
}
