package serve_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/serve"
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
	for _, lines := range mutations("Transfer-Encoding", "chunked") {
		f.Add([]byte("POST /mcp HTTP/1.1\r\n" + host + lines + "Content-Length: 5\r\n\r\n0\r\n\r\n"))
	}
	var payloads []struct{ B64 string }
	text, err := os.ReadFile("testdata/http-smuggling/raw-payloads.json")
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
		q, ours, ok := serve.ReadHead(raw, limit)
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

// FuzzState looks for a requestState that opens though the edge did not seal
// it.
func FuzzState(f *testing.F) {
	sealer, err := serve.NewSealer()
	if err != nil {
		f.Fatal(err)
	}
	now := time.Now().Add(time.Hour).Unix()
	f.Add("call", 1, "back", []byte("digest"), now, "weir1.AAAA", 7)
	f.Add("", 0, "", []byte(nil), int64(0), "", 0)
	f.Add("é\xff", -1, "\x00", bytes.Repeat([]byte{1}, 32), int64(-1), "weir1."+strings.Repeat("A", 200), 40)
	f.Fuzz(func(t *testing.T, call string, round int, backend string, digest []byte, expires int64, forged string, at int) {
		if v, ok := sealer.Open(forged); ok {
			t.Fatalf("%q opens: %+v", forged, v)
		}
		want := route.State{Call: call, Round: round, Backend: backend, Digest: digest, Expires: expires}
		text := sealer.Seal(want)
		got, ok := sealer.Open(text)
		past := time.Now().Unix() > expires
		switch {
		case len(text) > 4<<10:
			if ok {
				t.Fatalf("a state of %d bytes opens", len(text))
			}
		case ok == past && time.Now().Unix() != expires:
			t.Fatalf("opens: %v, expired: %v", ok, past)
		case ok && (utf8.ValidString(call) && got.Call != call || utf8.ValidString(backend) && got.Backend != backend || got.Round != round || !bytes.Equal(got.Digest, digest) || got.Expires != expires):
			t.Fatalf("%+v opens as %+v", want, got)
		}
		// Any other text near it does not open.
		at = ((at % len(text)) + len(text)) % len(text)
		for _, c := range []byte{'A', 'a', '.', '-', '_', '=', '\n', ' ', 0} {
			for _, near := range []string{text[:at] + string(c) + text[at+1:], text[:at] + string(c) + text[at:], text[:at] + text[at+1:]} {
				if near == text {
					continue
				}
				if v, ok := sealer.Open(near); ok {
					t.Fatalf("%q opens like %q: %+v", near, text, v)
				}
			}
		}
	})
}
