package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/valyala/fasthttp"
)

// readOf reads the head that a text begins with, in one piece or byte by byte,
// and returns what is left.
func readOf(text string, bytewise bool) (Head, string, error) {
	var in io.Reader = strings.NewReader(text)
	if bytewise {
		in = iotest.OneByteReader(in)
	}
	c := &Conn{Reader: bufio.NewReaderSize(in, readBuffer)}
	err := c.ReadHead()
	rest, _ := io.ReadAll(c.Reader)
	return c.Head, string(rest), err
}

// What is read of the head of an answer.
func TestReadHead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, lines string
		want        Head
	}{
		{"nothing but a status", "HTTP/1.1 200\r\n", Head{Status: 200, Length: -2}},
		{"a length", "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n", Head{Status: 200, Length: 12}},
		{"names in any case", "HTTP/1.1 404 Not Found\r\ncONTENT-length:\t 7 \r\n", Head{Status: 404, Length: 7}},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n", Head{Status: 200, Length: -1}},
		{"a stream", "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n", Head{Status: 200, Length: -2, SSE: true}},
		{"compressed", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n", Head{Status: 200, Length: -2, Coded: true}},
		{"not compressed", "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\n", Head{Status: 200, Length: -2}},
		{"the last", "HTTP/1.1 200 OK\r\nConnection: upgrade, Close\r\n", Head{Status: 200, Length: -2, Closes: true}},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n", Head{Status: 200, Length: 1, Closes: true}},
		{"HTTP/1.0 that goes on", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n", Head{Status: 200, Length: 1}},
		{"no content", "HTTP/1.1 204 No Content\r\n", Head{Status: 204}},
		{"a session", "HTTP/1.1 200 OK\r\nMcp-Session-Id: abc\r\n", Head{Status: 200, Length: -2, Session: []byte("abc")}},
		{"how long it may wait", "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=30, max=5\r\n", Head{Status: 200, Length: -2, idle: 29 * time.Second}},
		{"bytes above ASCII", "HTTP/1.1 200 \xe4\r\nX: \xff\xfe\r\n", Head{Status: 200, Length: -2}},
	} {
		for _, bytewise := range []bool{false, true} {
			got, rest, err := readOf(c.lines+"\r\nthe body", bytewise)
			if c.want.idle == 0 {
				c.want.idle = idleDefault
			}
			if err != nil || rest != "the body" || got.Status != c.want.Status || got.Length != c.want.Length || got.SSE != c.want.SSE || got.Coded != c.want.Coded ||
				got.Closes != c.want.Closes || got.idle != c.want.idle || !bytes.Equal(got.Session, c.want.Session) {
				t.Errorf("%s, byte by byte %t: %+v, then %q, %v", c.name, bytewise, got, rest, err)
			}
		}
	}
	ok := "HTTP/1.1 200 OK\r\n"
	for _, bad := range []string{
		"\r\n", "HTTP/1.1\r\n", "HTTP/1.1 20\r\n", "HTTP/1.1 2000 OK\r\n", "HTTP/1.1 099 X\r\n", "HTTP/1.1 2x0 OK\r\n", "HTTP/1.1  200 OK\r\n", "HTTP/2.0 200 OK\r\n",
		"HTTP/1.2 200 OK\r\n", "http/1.1 200 OK\r\n", " HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 O\x00K\r\n", "HTTP/1.1 200 OK\n", "{}\r\n",
		ok + "X: a\n", ok + "X: a\r\n b\r\n", ok + "X : a\r\n", ok + " X: a\r\n", ok + ": a\r\n", ok + "X\r\n", ok + "X: a\x00\r\n", ok + "X: a\rb\r\n", ok + "X\x7f: a\r\n",
		ok + "Content-Length: 1\r\nContent-Length: 2\r\n", ok + "Content-Length: 1\r\nContent-Length: 1\r\n", ok + "Content-Length: 1, 1\r\n", ok + "Content-Length: +1\r\n",
		ok + "Content-Length: -1\r\n", ok + "Content-Length: 0x1\r\n", ok + "Content-Length:\r\n", ok + "Content-Length: 9999999999999999999\r\n",
		ok + "Transfer-Encoding: gzip\r\n", ok + "Transfer-Encoding: gzip, chunked\r\n", ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", ok + "Transfer-Encoding: identity\r\n",
		ok + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n",
		ok + "Content-Type: application/json\r\nContent-Type: text/event-stream\r\n", ok + "Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\n",
	} {
		for _, bytewise := range []bool{false, true} {
			if got, _, err := readOf(bad+"\r\n", bytewise); !errors.Is(err, ErrHead) {
				t.Errorf("%q, byte by byte %t: %+v, %v", bad, bytewise, got, err)
			}
		}
	}
	for _, short := range []string{"", "HTTP/1.1 200 OK\r\nX: a\r\n"} {
		if _, _, err := readOf(short, false); err != io.EOF {
			t.Errorf("%q: %v", short, err)
		}
	}
	if _, _, err := readOf(ok+"X: "+strings.Repeat("x", readBuffer)+"\r\n\r\n", false); err == nil {
		t.Error("a head without end was read")
	}
}

// What is accepted other readers accept, and read alike.
func FuzzReadHead(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nDate: x\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nMcp-Session-Id: a\r\n\r\n0\r\n\r\n",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 204\r\nConnection: close, x\r\nContent-Encoding: gzip\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "HTTP/1.1 200 OK\nA: b\n\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, rest, err := readOf(text, false)
		again, rest2, err2 := readOf(text, true)
		if (err == nil) != (err2 == nil) || err == nil && (rest != rest2 || again.Status != got.Status || again.Length != got.Length) {
			t.Fatalf("%q: %+v, %v; byte by byte %+v, %v", text, got, err, again, err2)
		}
		if err != nil || got.Status < 200 {
			return
		}
		one, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), &http.Request{Method: "POST"})
		if err != nil {
			t.Fatalf("%q: net/http: %v", text, err)
		}
		bodiless := got.Status == 204 || got.Status == 304
		length := one.ContentLength
		if len(one.TransferEncoding) == 0 && length < 0 {
			length = -2
		}
		if one.StatusCode != got.Status || !bodiless && length != int64(got.Length) {
			t.Errorf("%q: %+v; net/http: %d, %d", text, got, one.StatusCode, length)
		}
		if one.Header.Get("Mcp-Session-Id") != string(got.Session) {
			t.Errorf("%q: session %q; net/http: %q", text, got.Session, one.Header.Get("Mcp-Session-Id"))
		}
		kind, _, _ := strings.Cut(one.Header.Get("Content-Type"), ";")
		if strings.EqualFold(strings.Trim(kind, " \t"), "text/event-stream") != got.SSE {
			t.Errorf("%q: a stream %t; net/http: %q", text, got.SSE, kind)
		}
		if one.Close && !got.Closes && got.Length != -2 {
			t.Errorf("%q: net/http ends the connection", text)
		}
		var two fasthttp.ResponseHeader
		br := bufio.NewReaderSize(strings.NewReader(text), readBuffer)
		if err := two.Read(br); err != nil {
			t.Fatalf("%q: fasthttp: %v", text, err)
		}
		left, _ := io.ReadAll(br)
		if two.StatusCode() != got.Status || !bodiless && two.ContentLength() != got.Length || string(left) != rest {
			t.Errorf("%q: %+v and %q left; fasthttp: %d, %d and %q left", text, got, rest, two.StatusCode(), two.ContentLength(), left)
		}
	})
}

func BenchmarkReadHead(b *testing.B) {
	text := "HTTP/1.1 200 OK\r\nServer: backend\r\nDate: Sat, 21 Nov 2026 16:00:00 GMT\r\nContent-Type: application/json\r\nContent-Length: 200\r\n\r\n"
	in := strings.NewReader(text)
	c := &Conn{Reader: bufio.NewReaderSize(in, readBuffer)}
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			in.Reset(text)
			c.Reader.Reset(in)
			if err := c.ReadHead(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fasthttp", func(b *testing.B) {
		b.ReportAllocs()
		var h fasthttp.ResponseHeader
		for b.Loop() {
			in.Reset(text)
			c.Reader.Reset(in)
			if err := h.Read(c.Reader); err != nil {
				b.Fatal(err)
			}
		}
	})
}
