package serve_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/serve"
)

// The rows of the table of HTTP framing and header smuggling (S) that the edge
// refuses by the bytes alone.
func TestFramingThatIsRefused(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	const te = "Transfer-Encoding: chunked\r\n"
	cl := length(echo)
	whole := chunked(echo, "")
	next := "GET /second HTTP/1.1\r\nHost: " + w.Addr() + "\r\n\r\n"
	line := func(lines string) string { return w.post(lines+cl, echo) }
	chunks := func(body string) string { return w.post(te, body) }
	request := func(line, lines string) string {
		return line + "\r\nHost: " + w.Addr() + "\r\nContent-Type: application/json\r\nMcp-Session-Id: " + w.session.ID + "\r\n" + lines + "\r\n"
	}
	many := strings.Repeat("X-Line: 1\r\n", 101)
	for _, row := range []struct {
		id       string
		statuses []int
		raws     []string
	}{
		{"S01", []int{400}, []string{w.post(cl+cl, echo)}},
		{"S02", []int{400}, []string{w.post("Content-Length: 1\r\nContent-Length: 0\r\n", "1"), w.post("Content-Length: 1, 1\r\n", "1")}},
		{"S03", []int{400}, []string{w.post("Content-Length: 4\r\n"+te, "0\r\n\r\n"+next), w.post(te+"Content-Length: 4\r\n", "0\r\n\r\n"+next), w.post(te+cl, whole)}},
		{"S04", []int{400}, []string{w.post(te+te, whole)}},
		{"S05", []int{400, 501}, []string{
			w.post("Transfer-Encoding: gzip, chunked\r\n", whole), w.post("Transfer-Encoding: chunked, identity\r\n", whole),
			w.post("Transfer-Encoding: blegh\r\n", whole), w.post("Transfer-Encoding: ,chunked\r\n", whole), w.post("Transfer-Encoding:\r\n", whole)}},
		{"S06", []int{400}, []string{line("Transfer-Encoding: identity\r\n")}},
		{"S07", []int{400}, []string{
			w.post("Transfer-Encoding:\x0bchunked\r\n", whole), w.post("Transfer-Encoding: \"chunked\"\r\n", whole), w.post("Transfer-Encoding: \xa0chunked\r\n", whole)}},
		{"S08", []int{400}, []string{w.post("Transfer-Encoding:\r\n chunked\r\n", whole), w.post("Transfer-Encoding:\r\n\tchunked\r\n"+cl, echo)}},
		{"S09", []int{400}, []string{line("X: 1\r\n 2\r\n"), line("X: 1\r\n\t2\r\n")}},
		{"S10", []int{400}, []string{strings.Replace(line(""), w.Addr()+"\r\n", w.Addr()+"\nX: 1\r\n", 1)}},
		{"S11", []int{400}, []string{line("X:X\nTransfer-Encoding: chunked\r\n")}},
		{"S12", []int{400}, []string{strings.ReplaceAll(line(""), "\r\n", "\n")}},
		{"S13", []int{400}, []string{w.post("Content-Length: 6\r\n\nTransfer-Encoding: chunked\r\n", whole)}},
		{"S14", []int{400}, []string{line("Transfer Encoding: chunked\r\n")}},
		{"S15", []int{400}, []string{
			line("Transfer_Encoding: chunked\r\n"), line("Content_Length: 4\r\n"), line("Mcp_Session-Id: x\r\n"), line("MCP_METHOD: ping\r\n"), line("Proxy_Authorization: x\r\n")}},
		{"S16", []int{400}, []string{w.post("Content-Length : 34\r\n", echo), line("X : 1\r\n"), line("X\t: 1\r\n")}},
		{"S17", []int{400}, []string{
			w.post("Content-Length: +1\r\n", "1"), w.post("Content-Length: -48\r\n", echo), w.post("Content-Length: 0x10\r\n", echo), w.post("Content-Length: 1_0\r\n", echo),
			w.post("Content-Length:\r\n", echo), w.post("Content-Length: 010\r\n", echo), w.post("Content-Length: 1Z\r\n", echo), w.post("Content-Length: 1 1\r\n", echo)}},
		{"S18", []int{400, 413}, []string{w.post("Content-Length: 9223372036854775808\r\n", ""), w.post("Content-Length: 18446744073709551617\r\n", "")}},
		{"S20", []int{400}, []string{
			chunks("fffffffffffffffff\r\nA\r\n0\r\n\r\n"), chunks("0x1\r\nA\r\n0\r\n\r\n"), chunks("-0\r\n\r\n"), chunks("\r\nA\r\n0\r\n\r\n"), chunks("000000000000000000001\r\nA\r\n0\r\n\r\n")}},
		{"S21", []int{400}, []string{chunks("1;a\nb\r\nZ\r\n0\r\n\r\n"), chunks("5\r\r;ABCD\r\n0\r\n\r\n"), chunks(strings.ReplaceAll(whole, "\r\n", "\n"))}},
		{"S23", []int{400}, []string{strings.Replace(w.post(te, whole), "HTTP/1.1", "HTTP/1.0", 1)}},
		{"S24", []int{400, 505}, []string{
			strings.Replace(line(""), "HTTP/1.1", "HTTP/1.2", 1), strings.Replace(line(""), "HTTP/1.1", "HTTP/2.0", 1),
			strings.Replace(line(""), "HTTP/1.1", "HTTP/1.32", 1), strings.Replace(line(""), "HTTP/1.1", "HTTP/\r\r1.1", 1), strings.Replace(line(""), " HTTP/1.1", "", 1)}},
		{"S25", []int{400, 505}, []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"}},
		{"S27", []int{400}, []string{line("X\x00: 1\r\n"), line("X\rY: 1\r\n"), line("X\x85: 1\r\n"), line("Xé: 1\r\n"), line(": v\r\n")}},
		{"S28", []int{400}, []string{line("X: a\x00b\r\n"), line("X: \x01\r\n"), line("X: \x7f\r\n"), line("X: a\rb\r\n"), line("X: 12345678\x1f\r\n")}},
		{"S31", []int{400}, []string{line("Connection: close, Authorization\r\n"), line("Connection: proxy-authorization\r\n")}},
		{"S32", []int{400}, []string{line("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"), line("Authorization: Bearer a\r\nauthorization: Bearer a\r\n")}},
		{"S33", []int{400}, []string{
			line("Mcp-Session-Id: x\r\n"), line("content-type: text/plain\r\n"), line("Origin: http://a\r\nOrigin: http://b\r\n"), line("Mcp-Method: ping\r\nMcp-Method: ping\r\n"),
			line("Mcp-Name: a\r\nMCP-NAME: b\r\n"), line("MCP-Protocol-Version: 2025-11-25\r\nMcp-Protocol-Version: 2025-11-25\r\n")}},
		{"S37", []int{431}, []string{line("X: " + strings.Repeat("x", 16<<10) + "\r\n"), line(many), line(strings.Repeat("x", 8<<10) + ": 1\r\n")}},
		{"S42", []int{417}, []string{line("Expect: 200-ok\r\n")}},
		{"S43", []int{400, 405}, []string{
			request("GET /mcp HTTP/1.1", "Accept: text/event-stream\r\n"+cl) + echo, request("DELETE /mcp HTTP/1.1", cl) + echo, request("GET /mcp HTTP/1.1", "Accept: text/event-stream\r\n"+te) + whole}},
	} {
		t.Run(row.id, func(t *testing.T) {
			for _, raw := range row.raws {
				w.refused(t, raw, row.statuses...)
			}
		})
	}
	if r := w.session.Request("9", "ping", ""); r.Status != 200 {
		t.Errorf("the session does not go on: status %d", r.Status)
	}
}

// The rows of that table that are taken: the backend gets one request, framed
// by the edge, with nothing of the client's headers that the edge does not
// write itself.
func TestFramingThatPasses(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	const te = "Transfer-Encoding: chunked\r\n"
	for _, row := range []struct {
		id   string
		raws []string
	}{
		{"S15", []string{w.framed("X_Api_Key: 1\r\n", echo)}},
		{"S26", []string{
			w.framed("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", echo),
			w.framed("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n", echo)}},
		{"S29", []string{w.framed("X-Claim: \x85admin\xa0\r\n", echo)}},
		{"S31", []string{w.framed("Connection: Mcp-Session-Id\r\n", echo), w.framed("Connection: close, Mcp-Session-Id, Content-Length\r\n", echo)}},
		{"S34", []string{w.framed("X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Prefix: /evil\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n", echo)}},
	} {
		t.Run(row.id, func(t *testing.T) {
			for _, raw := range row.raws {
				sent := w.passed(t, raw)
				if edgetest.Member(sent.body, "params") != edgetest.Member(echo, "params") {
					t.Errorf("the backend got %s", sent.body)
				}
				if id := sent.header["Mcp-Session-Id"]; len(id) != 1 || id[0] == w.session.ID {
					t.Errorf("the session of the backend is %q", id)
				}
			}
		})
	}
	t.Run("S30", func(t *testing.T) {
		for _, trailer := range []string{"X-Forwarded-User: admin\r\n", "Authorization: Bearer x\r\n", "Content-Length: 3\r\n", "Mcp-Session-Id: x\r\n", "Host: evil\r\n"} {
			raw := w.post(te+"Trailer: X-Forwarded-User\r\n", chunked(echo, trailer))
			if got := w.holds(t, raw); got != wasPassed && got != wasRefused {
				t.Errorf("%q was %s", trailer, got)
			}
		}
		// One that is harmless is read and dropped.
		w.passed(t, w.post(te, chunked(echo, "X-Sum: 1\r\n")))
	})
	t.Run("S37", func(t *testing.T) { // a large credential is no reason to refuse
		w.passed(t, w.framed("Authorization: Bearer "+strings.Repeat("x", 8<<10)+"\r\n", echo))
	})
}

// A body that is too large is refused by what is said of it, before it comes.
func TestS19(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	for _, size := range []string{"4194305", "4611686018427387903"} {
		raw := w.Dial()
		raw.Write(w.post("Content-Length: "+size+"\r\n", ""))
		if h, body := raw.Read(); h.StatusCode != 413 || !h.Close {
			t.Errorf("%s bytes: status %d: %s", size, h.StatusCode, body)
		}
		if !raw.Ended() {
			t.Error("the connection stays open")
		}
	}
	if n := len(w.tap.requests(t)); n != 0 {
		t.Errorf("the backend got %d requests", n)
	}
}

// What chunks hold besides their data is bounded, too: no more is taken than
// twice the limit of a body, beyond what the buffers of the two kernels hold.
func TestS22(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	w := newWire(t, edgetest.Settings(func(s *serve.Settings) { s.MaxBody = limit }))
	for name, c := range map[string]struct {
		one string
		n   int
	}{
		"many extensions": {"1;" + strings.Repeat("a", 1<<10) + "\r\n \r\n", 100_000},
		"one extension":   {strings.Repeat("a", 1<<10), 100_000},
		"many chunks":     {"1\r\n \r\n", 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", w.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(edgetest.Patience)); err != nil {
				t.Fatal(err)
			}
			sent := make(chan int, 1)
			go func() { // ends when the edge closes
				n, err := io.WriteString(conn, w.post("Transfer-Encoding: chunked\r\n", "1;"))
				for i := 0; i < c.n && err == nil; i++ {
					var k int
					k, err = io.WriteString(conn, c.one)
					n += k
				}
				sent <- n
			}()
			buf := make([]byte, 64)
			n, err := conn.Read(buf)
			if err != nil || !(strings.HasPrefix(string(buf[:n]), "HTTP/1.1 400 ") || strings.HasPrefix(string(buf[:n]), "HTTP/1.1 413 ")) {
				t.Errorf("%q, %v", buf[:n], err)
			}
			conn.Close()
			t.Logf("%q after at most %d bytes", buf[:min(n, 12)], edgetest.Receive(t, sent, "the end of the client"))
			if n := len(w.tap.requests(t)); n != 0 {
				t.Errorf("the backend got %d requests", n)
			}
		})
	}
	t.Run("one extension of 1 MiB", func(t *testing.T) {
		w.refused(t, w.post("Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x;%s\r\n%s\r\n0\r\n\r\n", len(echo), strings.Repeat("a", 1<<20), echo)), 400, 413)
	})
}

// dribble sends a text byte by byte until it is sent or the edge closes. The
// returned channel is closed at its end.
func dribble(conn net.Conn, text string) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := range len(text) {
			<-tick.C
			if _, err := conn.Write([]byte{text[i]}); err != nil {
				return
			}
		}
	}()
	return done
}

// A handshake has as much time as a request. Who has ended it may wait longer before it sends one.
// The time is scaled down.
func TestSlowHandshake(t *testing.T) {
	t.Parallel()
	files := idp.NewTLS(t)
	const within = 300 * time.Millisecond
	e := edgetest.Start(t, edgetest.Manifest(edgetest.NewServer(t, edgetest.Modern)), edgetest.With(serve.WithDoor(func(o *door.Options) { o.Within = within })),
		edgetest.Settings(func(s *serve.Settings) { s.TLSCert, s.TLSKey = files.Cert, files.Key }))
	for _, begun := range []string{"", "\x16\x03\x01"} {
		conn, err := net.Dial("tcp", e.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		if _, err := io.WriteString(conn, begun); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(began.Add(edgetest.Patience)); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %d bytes, %v", begun, n, err)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("%q: it was given up after %s", begun, took)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(files.Authority)
	conn, err := tls.Dial("tcp", e.Addr(), &tls.Config{RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	time.Sleep(5 * within) // slack is a second, and this is more than both
	if _, err := io.WriteString(conn, "GET /nowhere HTTP/1.1\r\nHost: "+e.Addr()+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 64)); n == 0 {
		t.Errorf("no answer after a rest: %v", err)
	}
}

// A request that does not arrive in time is given up, however busily its bytes
// trickle in. The time is scaled down.
func TestSlowRequests(t *testing.T) {
	t.Parallel()
	w := newWire(t, edgetest.With(serve.WithDoor(func(o *door.Options) { o.Within = 100 * time.Millisecond })))
	for id, raw := range map[string]struct{ begin, rest string }{
		"S38": {"POST /mcp HTTP/1.1\r\nHost: " + w.Addr() + "\r\nX: ", strings.Repeat("x", 1000)},
		"S39": {w.post("Content-Length: 1000\r\n", "{"), strings.Repeat(" ", 999)},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", w.Addr())
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if _, err := io.WriteString(conn, raw.begin); err != nil {
				t.Fatal(err)
			}
			done := dribble(conn, raw.rest)
			if err := conn.SetReadDeadline(time.Now().Add(edgetest.Patience)); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 64)
			n, err := conn.Read(buf)
			if err != nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 408 ") {
				t.Errorf("%q, %v", buf[:n], err)
			}
			conn.Close()
			<-done
			if took := time.Since(begun); took > 15*time.Second { // all of it would take 20 s
				t.Errorf("it was given up after %s", took)
			}
		})
	}
}

// Pipelined garbage: what came before it is answered, what comes after is not.
func TestS44(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	got := w.send(t, w.framed("", echo)+"gar bage\r\n\r\n"+w.framed("", echo))
	if len(got) != 2 || got[0].status != 200 || got[1].status < 400 || !got[1].close {
		t.Errorf("%+v", got)
	}
	if n := len(w.tap.requests(t)); n != 1 {
		t.Errorf("the backend got %d requests", n)
	}
}

// The list of http-garden, as it is and aimed at the endpoint.
func TestS48(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../edgetest/testdata/http-smuggling/raw-payloads.json")
	if err != nil {
		t.Fatal(err)
	}
	var payloads []struct{ Title, B64 string }
	if err := json.Unmarshal(text, &payloads); err != nil {
		t.Fatal(err)
	}
	if len(payloads) != 76 {
		t.Fatalf("%d payloads", len(payloads))
	}
	w := newWire(t, edgetest.Settings(func(s *serve.Settings) {
		s.AllowedHosts = []string{"a", "b", "whatever", "localhost", "example.com", "test"}
	}))
	as, aimed := map[string]int{}, map[string]int{}
	for _, p := range payloads {
		raw, err := base64.StdEncoding.DecodeString(p.B64)
		if err != nil {
			t.Fatal(err)
		}
		was := w.holds(t, string(raw))
		as[was]++
		if was == wasOurs || was == wasPassed {
			t.Logf("%s: %q", was, raw)
		}
		line, rest, _ := strings.Cut(string(raw), "\r\n")
		for _, r := range [][2]string{{"GET / ", "POST /mcp "}, {"GET /test ", "POST /mcp "}, {"POST / ", "POST /mcp "}} {
			line = strings.Replace(line, r[0], r[1], 1)
		}
		was = w.holds(t, line+"\r\nContent-Type: application/json\r\nMcp-Session-Id: "+w.session.ID+"\r\n"+rest)
		aimed[was]++
	}
	t.Logf("%d payloads: as they are %v, aimed at the endpoint %v", len(payloads), as, aimed)
	if as[wasRefused] < 60 || as[wasPassed] != 0 {
		t.Errorf("as they are: %v", as)
	}
}

// Every header that frames, in every disguise, with a probe for each of the two
// ways to read the body: what is a body for one reader is a request for the
// other.
func TestS49(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	smuggled := "0\r\n\r\n" + w.framed("", echo)
	was := map[string]int{}
	n := 0
	for _, h := range []struct{ name, value string }{
		{"Transfer-Encoding", "chunked"}, {"Content-Length", "5"}, {"Content-Length", "0"}, {"Connection", "close"},
		{"Trailer", "Content-Length"}, {"Expect", "100-continue"}, {"Content-Encoding", "chunked"}, {"TE", "trailers"},
	} {
		for _, lines := range edgetest.Mutations(h.name, h.value) {
			// The body's length is said, and the body begins as chunks that end.
			// Who reads chunks finds a request after them.
			if got := w.holds(t, w.post(lines+length(smuggled), smuggled)); got == wasPassed {
				t.Errorf("the smuggled request went through: %q", lines)
			} else {
				was["before Content-Length, "+got]++
			}
			got := w.holds(t, w.post(length(smuggled)+lines, smuggled))
			if got == wasPassed {
				t.Errorf("the smuggled request went through: %q", lines)
			}
			was["after Content-Length, "+got]++
			// The body comes in chunks. Who reads a length finds something else.
			was["before chunks, "+w.holds(t, w.post(lines+"Transfer-Encoding: chunked\r\n", chunked(echo, "")))]++
			n += 3
		}
	}
	t.Logf("%d mutations hold the invariant: %v", n, was)
	if n < 500 {
		t.Errorf("%d mutations", n)
	}
	for _, way := range []string{"before Content-Length, ", "after Content-Length, ", "before chunks, "} {
		if was[way+wasRefused] < 200 {
			t.Errorf("%s%s: %d", way, wasRefused, was[way+wasRefused])
		}
	}
	if !slices.ContainsFunc([]int{was["before chunks, "+wasPassed]}, func(n int) bool { return n > 0 }) {
		t.Error(fmt.Sprint("no chunked body went through: ", was))
	}
}
