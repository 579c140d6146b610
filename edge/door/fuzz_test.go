package door_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/edgetest"
)

// FuzzLint holds what the edge lets pass against the parser of net/http: both
// read the same request, with the same body, and go on at the same byte.
func FuzzLint(f *testing.F) {
	const host = "Host: a:1\r\n"
	for _, s := range []string{
		"POST /mcp HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\n" + host + "\r\n",
		"POST /mcp HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nX: 1\r\n\r\n",
		"POST /messages?sessionId=x HTTP/1.0\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}",
		"GET /mcp HTTP/1.1\r\n" + host + "Accept: text/event-stream\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n",
		"DELETE /mcp HTTP/1.1\r\n" + host + "X: \x85 y \t\r\nX:\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	for _, lines := range edgetest.Mutations("Transfer-Encoding", "chunked") {
		f.Add([]byte("POST /mcp HTTP/1.1\r\n" + host + lines + "Content-Length: 5\r\n\r\n0\r\n\r\n"))
	}
	var payloads []struct{ B64 string }
	text, err := os.ReadFile("../edgetest/testdata/http-smuggling/raw-payloads.json")
	if err == nil {
		err = json.Unmarshal(text, &payloads)
	}
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range payloads {
		raw, err := base64.StdEncoding.DecodeString(p.B64)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	const limit = 1 << 16
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, ours, ok := door.ReadHead(raw, limit)
		if !ok {
			return
		}
		theirs := bufio.NewReaderSize(bytes.NewReader(raw), 16<<10)
		// Empty lines before a request are skipped (RFC 9112 §2.2), which
		// net/http does not do.
		for {
			b, err := theirs.Peek(1)
			if err != nil || b[0] != '\r' && b[0] != '\n' {
				break
			}
			_, _ = theirs.Discard(1)
		}
		r, err := http.ReadRequest(theirs)
		if err != nil {
			t.Fatalf("passes, and net/http cannot read it: %v\n%q", err, raw)
		}
		if r.Method != string(q.Method()) || r.RequestURI != string(q.RequestURI()) || r.Host != string(q.Host()) {
			t.Fatalf("%s %s %s for net/http, %s here\n%q", r.Method, r.RequestURI, r.Host, q.String(), raw)
		}
		if size := int64(ours.Announced()); r.ContentLength != size {
			t.Fatalf("a body of %d for net/http, of %d here\n%q", r.ContentLength, size, raw)
		}
		text, err := ours.Body()
		if err != nil {
			return // refused, and the connection closed
		}
		body, err := io.ReadAll(r.Body)
		if err != nil && (strings.Contains(err.Error(), "too long") || strings.Contains(err.Error(), "too much non-data")) {
			return // a limit of net/http
		}
		if err != nil {
			t.Fatalf("the body is read here, and net/http says %v\n%q", err, raw)
		}
		if !bytes.Equal(body, text) {
			t.Fatalf("the body is %q for net/http, %q here\n%q", body, text, raw)
		}
		here := ours.Rest()
		there, _ := io.ReadAll(theirs)
		if !bytes.Equal(here, there) {
			t.Fatalf("net/http goes on at %q, the edge at %q\n%q", there, here, raw)
		}
	})
}

// FuzzAnnounced looks for a head, and what comes behind it, that takes more
// memory than some times what has come.
func FuzzAnnounced(f *testing.F) {
	const host = "Host: a:1\r\n"
	post := "POST /mcp HTTP/1.1\r\n" + host
	for _, a := range edgetest.Announcements() {
		f.Add([]byte(post+a.Lines+"\r\n"+a.More), uint16(0), byte(0))
		f.Add([]byte(post+a.Lines+"\r\n"+a.More), uint16(60_000), byte(' '))
	}
	f.Add([]byte(post+"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n3FFFF0\r\n"), uint16(9000), byte('1'))
	f.Add([]byte(post+"Transfer-Encoding: chunked\r\n\r\n"), uint16(5000), byte('0'))
	f.Add([]byte(post+"Transfer-Encoding: chunked\r\n\r\n0\r\nX: "), uint16(60_000), byte('x'))
	f.Add([]byte(post+"Content-Length: 0004194304\r\nTransfer-Encoding: chunked\r\n\r\n"), uint16(1), byte('x'))
	f.Add([]byte("\r\n\r\n"+post+"Content-Length: 3000\r\n\r\n"), uint16(3000), byte('x'))
	f.Fuzz(func(t *testing.T, raw []byte, n uint16, more byte) {
		const limit = 4 << 20
		raw = append(raw, strings.Repeat(string(rune(more&0x7f)), int(n))...)
		_, in, ok := door.ReadHead(raw, limit)
		if !ok {
			return
		}
		size := in.Announced()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		body, err := in.Body()
		runtime.ReadMemStats(&after)
		// Each buffer is eight times the one before, of which the bytes have come;
		// the first ones come from a pool, which may have to make them.
		if took := int64(after.TotalAlloc - before.TotalAlloc); took > int64(10*len(raw)+(128<<10)) {
			t.Fatalf("%d bytes, of which %d were announced, took %d\n%.200q", len(raw), size, took, raw)
		}
		if held := in.Held(); held > int64(8*len(raw)+(8<<10)) {
			t.Fatalf("%d bytes hold %d\n%.200q", len(raw), held, raw)
		}
		if err == nil && len(body) > len(raw) {
			t.Fatalf("a body of %d bytes of %d", len(body), len(raw))
		}
		if err == nil && size >= 0 && len(body) != size {
			t.Fatalf("a body of %d bytes, announced were %d", len(body), size)
		}
	})
}
