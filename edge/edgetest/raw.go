package edgetest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Raw is one connection to an edge, for what an HTTP client would not send.
type Raw struct {
	t    testing.TB
	conn net.Conn
	br   *bufio.Reader
}

// Dial opens a connection to the edge, which is closed with the test.
func (e *Edge) Dial() *Raw {
	e.t.Helper()
	conn, err := net.Dial("tcp", e.Addr())
	if err != nil {
		e.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { conn.Close() })
	return &Raw{t: e.t, conn: conn, br: bufio.NewReader(conn)}
}

// Write sends bytes.
func (r *Raw) Write(text string) {
	r.t.Helper()
	if _, err := io.WriteString(r.conn, text); err != nil {
		r.t.Fatalf("write: %v", err)
	}
}

// Read reads one HTTP answer, its body included.
func (r *Raw) Read() (*http.Response, string) {
	r.t.Helper()
	h, err := http.ReadResponse(r.br, nil)
	if err != nil {
		r.t.Fatalf("read: %v", err)
	}
	body, err := io.ReadAll(h.Body)
	if err != nil {
		r.t.Fatalf("read body: %v", err)
	}
	return h, string(body)
}

// Ended reports whether the edge has closed the connection; it waits for that
// or for a byte.
func (r *Raw) Ended() bool {
	_, err := r.br.ReadByte()
	return err == io.EOF
}

// Close closes the connection.
func (r *Raw) Close() { r.conn.Close() }

// Line reads one line and returns it without its end.
func (r *Raw) Line() string {
	r.t.Helper()
	text, err := r.br.ReadString('\n')
	if err != nil {
		r.t.Fatalf("read a line: %v", err)
	}
	return strings.TrimRight(text, "\r\n")
}

// Waits reports whether something of the edge is there to be read, or comes
// within a moment.
func (r *Raw) Waits() bool {
	_ = r.conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err := r.br.Peek(1)
	_ = r.conn.SetReadDeadline(time.Now().Add(Patience))
	return err == nil
}

// Try sends bytes to an edge that may not want all of them.
func (r *Raw) Try(text string) { _, _ = io.WriteString(r.conn, text) }
