package mount

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/weir-edge/weir/edge/door"
)

// maxWaiting is how many bytes of an answer wait to be sent.
const maxWaiting = 64 << 10

// answer is the answer of a mounted handler on its way: an http.ResponseWriter for the
// goroutine of the handler, and what that of the connection sends.
type answer struct {
	door.Call
	bodyless bool // the request was HEAD
	chunks   bool // the client reads chunks
	last     bool // the connection ends with it

	header http.Header // the handler's alone

	mu      sync.Mutex
	room    sync.Cond   // something has been sent, or nobody reads
	status  int         // 0 until it is known; kept from then on
	head    http.Header // as it was when the status was given; nil once it is to be sent
	waiting []byte
	flush   bool // what waits is to be sent now
	lasts   bool // the handler has flushed
	over    bool // the handler has returned
	failed  bool // by a panic
	aborted bool // by http.ErrAbortHandler: the connection is cut
	left    bool // nobody reads the answer

	wake chan struct{} // there may be something to send
}

var _ http.Flusher = (*answer)(nil)

var errLeft = errors.New("the client left")

func newAnswer() *answer {
	a := &answer{header: make(http.Header), wake: make(chan struct{}, 1)}
	a.room.L = &a.mu
	a.Owner = a
	return a
}

// Header is http.ResponseWriter.Header.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader is http.ResponseWriter.WriteHeader. Informational answers are not sent.
func (a *answer) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(status)
}

// begin fixes the status and the head; a.mu is held.
func (a *answer) begin(status int) {
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid status %d", status))
	case status < 200 || a.status != 0:
		return
	}
	a.status, a.head = status, a.header.Clone()
	if a.head == nil { // a handler may have emptied it
		a.head = make(http.Header)
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Transfer-Encoding", "Trailer", "Upgrade"} {
		a.head.Del(name) // which are the connection's
	}
}

// Write is http.ResponseWriter.Write. It waits while as much waits to be sent as may.
func (a *answer) Write(p []byte) (n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(http.StatusOK)
	if a.status == http.StatusNoContent || a.status == http.StatusNotModified {
		return 0, http.ErrBodyNotAllowed
	}
	if len(p) > 0 && a.head != nil && a.head.Get("Content-Type") == "" && a.head.Get("Content-Encoding") == "" {
		a.head.Set("Content-Type", http.DetectContentType(p))
	}
	if a.bodyless {
		return len(p), nil
	}
	for n < len(p) {
		for len(a.waiting) >= maxWaiting && !a.left {
			a.stir()
			a.room.Wait()
		}
		if a.left {
			return n, errLeft
		}
		k := min(len(p)-n, maxWaiting-len(a.waiting))
		a.waiting = append(a.waiting, p[n:n+k]...)
		n += k
	}
	return n, nil
}

// Flush is http.Flusher.Flush.
func (a *answer) Flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(http.StatusOK)
	a.flush, a.lasts = true, true
	a.stir()
}

// stir wakes the goroutine of the connection.
func (a *answer) stir() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// fail notes a panic of the handler, which it reports to be one that nobody meant.
func (a *answer) fail(why any) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed, a.aborted = true, why == http.ErrAbortHandler
	return !a.aborted
}

// finish is the end of the handler.
func (a *answer) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.failed {
		a.begin(http.StatusOK)
	}
	a.over = true
	a.stir()
}

// leave is the end of the connection's part: nobody reads what is written from here on.
func (a *answer) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left, a.waiting = true, nil
	a.room.Broadcast()
}

// portion is what is to be sent next.
type portion struct {
	status       int
	head         http.Header // nil once it has been sent
	text         []byte
	over, failed bool
	lasts        bool
}

// take returns the next portion, in exchange for a buffer that is free again. It reports
// false while there is nothing to send.
func (a *answer) take(free []byte) (portion, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over && !a.flush && len(a.waiting) < maxWaiting {
		return portion{}, false
	}
	p := portion{a.status, a.head, a.waiting, a.over, a.failed, a.lasts}
	if a.failed && !a.aborted && (a.head != nil || a.status == 0) { // nothing of it has been sent
		p.status, p.head = http.StatusInternalServerError, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
		p.text, p.failed = []byte("internal error\n"), false
	}
	a.head, a.waiting, a.flush = nil, free[:0], false
	a.room.Broadcast()
	return p, true
}

// pass sends the answer as it comes, until the handler returns or the client leaves.
func (a *answer) pass(req *request) {
	defer a.leave()
	req.conn.Swallow() // the HTTP server's own answer
	var out, free []byte
	for {
		select {
		case <-a.wake:
		case <-a.Done():
			req.ctx.SetConnectionClose()
			return
		}
		p, ok := a.take(free)
		if !ok {
			continue
		}
		free, out = p.text, out[:0]
		switch {
		case p.failed:
			req.ctx.SetConnectionClose() // in the middle, so that nobody takes it for all
			return
		case p.head != nil && p.over:
			out = a.appendHead(out, req, p, len(p.text))
			if a.hasBody(p.status) {
				out = append(out, p.text...)
			}
		default:
			if p.head != nil {
				out = a.appendHead(out, req, p, -1)
			}
			out = a.appendPart(out, p)
		}
		if p.lasts && !p.over {
			req.conn.Lasting(&a.Call)
		}
		if _, err := req.conn.Send(out); err != nil || p.over {
			if a.last || err != nil {
				req.ctx.SetConnectionClose()
			}
			return
		}
	}
}

// hasBody reports whether the answer has a body, by its status and the request.
func (a *answer) hasBody(status int) bool {
	return !a.bodyless && status != http.StatusNoContent && status != http.StatusNotModified
}

// appendHead appends the head of the answer: of a body of that many bytes, or of one that
// comes in parts for -1.
func (a *answer) appendHead(b []byte, req *request, p portion, length int) []byte {
	h := p.head
	if h.Get("Date") == "" {
		h.Set("Date", req.conn.Now().UTC().Format(http.TimeFormat))
	}
	switch {
	case !a.hasBody(p.status):
	case length >= 0:
		h.Set("Content-Length", strconv.Itoa(length))
	default:
		h.Del("Content-Length")
		if a.chunks {
			h.Set("Transfer-Encoding", "chunked")
		} else {
			a.last = true // which ends it
		}
	}
	if a.last = a.last || req.conn.Leaving(); a.last {
		h.Set("Connection", "close")
	}
	into := bytes.NewBuffer(b)
	fmt.Fprintf(into, "HTTP/1.1 %03d %s\r\n", p.status, http.StatusText(p.status))
	_ = h.Write(into) // which leaves out invalid lines; a buffer takes all
	into.WriteString("\r\n")
	return into.Bytes()
}

// appendPart appends a part of a body that goes out as it comes.
func (a *answer) appendPart(b []byte, p portion) []byte {
	switch {
	case !a.hasBody(p.status):
		return b
	case !a.chunks:
		return append(b, p.text...)
	}
	if len(p.text) > 0 {
		b = door.AppendChunk(b, p.text)
	}
	if p.over {
		b = append(b, "0\r\n\r\n"...)
	}
	return b
}
