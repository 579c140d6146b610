package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/session"
)

var (
	errEnded    = errors.New("the exchange has ended")
	errNoStream = errors.New("the client accepts no stream")
	comment     = []byte(":\n\n")
)

// stream is the response to one POST. It becomes a stream of events with the first
// message that precedes the answer; without any, the answer is plain JSON.
type stream struct {
	x       *exchange
	conn    *door.Conn
	headers []byte         // more lines for the head, such as CORS; each with its CRLF
	asked   *edge.HTTP     // the head as programs see it; nil if no program wants to
	able    bool           // the client accepts a stream
	answer  *edge.Response // an answer whose text is in two pieces
	last    bool           // the connection closes after this answer

	mu      sync.Mutex
	number  uint64 // of the exchange that it serves
	used    bool   // something was sent on it, or may be yet
	begun   bool
	ended   bool
	err     error
	buf     []byte
	written time.Time
	log     *session.Log       // of a legacy session's stream
	out     func([]byte) error // instead of the connection, for HTTP with SSE
}

// way is the edge.Client of one exchange. A stream serves one exchange after the other:
// the way of an earlier one is closed, and reaches no other client.
type way struct {
	s      *stream
	number uint64
}

var _ edge.Client = way{}

// Send puts a notification on the stream. A client that accepts no stream misses it.
func (w way) Send(m *mcp.Message) error {
	err := w.event(m)
	if errors.Is(err, errNoStream) {
		return nil
	}
	return err
}

// Ask sends questions to a legacy client as requests on the stream of its call.
func (w way) Ask(ctx context.Context, questions map[string]edge.Question) (map[string]edge.Answer, error) {
	s := w.session()
	if s == nil {
		return nil, edge.Errorf(edge.NoMethod, "ask", "the client cannot be asked")
	}
	return s.Ask(ctx, questions, w.event)
}

// session returns the session of a client that can be asked, and marks the
// stream as used; nil for any other.
func (w way) session() *session.Session {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.s.number != w.number || w.s.ended || !w.s.able || w.s.x.s == nil {
		return nil
	}
	w.s.used = true
	return w.s.x.s
}

func (w way) event(m *mcp.Message) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.s.number != w.number {
		return errEnded
	}
	w.s.used = true
	if err := w.s.begin(); err != nil {
		return err
	}
	return w.s.put(m.Raw)
}

// keep excludes the stream from reuse.
func (s *stream) keep() {
	s.mu.Lock()
	s.used = true
	s.mu.Unlock()
}

// free reports whether the stream may serve another exchange: the last one has ended, and
// nothing was sent on it. Only its owner may call it.
func (s *stream) free() bool { return s.x == nil }

// forget ends the work for an exchange; s.mu is held.
func (s *stream) forget() {
	s.x, s.conn, s.headers, s.asked, s.able, s.last, s.answer = nil, nil, nil, nil, false, false, nil
	s.begun, s.ended, s.err, s.buf, s.log, s.out = false, false, nil, nil, nil, nil
	s.number++
}

// begin writes the head of the stream, unless it has been; s.mu is held.
func (s *stream) begin() error {
	switch {
	case s.ended:
		return errEnded
	case s.err != nil && s.log != nil:
		return nil // the client may come back for it
	case s.err != nil:
		return s.err
	case s.out != nil || s.begun:
		return nil
	case !s.able:
		return errNoStream
	}
	if s.asked != nil {
		lines, err := s.x.server.beginning(s.asked)
		if s.asked = nil; err != nil {
			s.able = false // the answer is asked about, too, and tells the client
			return errNoStream
		}
		s.headers = append(s.headers, lines...)
	}
	s.begun = true
	s.conn.Narrow()
	s.buf = append(s.buf[:0], "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n"...)
	s.buf = append(s.buf, s.headers...)
	if s.last {
		s.buf = append(s.buf, "Connection: close\r\n"...)
	}
	s.buf = append(s.buf, "\r\n"...)
	if s.x.s != nil {
		s.log = s.x.s.OpenLog(s.x.Request.IDText())
		if session.Primes(s.x.s.Version) {
			s.buf = door.AppendChunk(s.buf, s.log.Prime())
		}
	}
	return nil
}

// put writes an event, with the head before it if that has not been written.
func (s *stream) put(raw []byte) error {
	if s.out != nil {
		s.err = s.out(raw)
		return s.err
	}
	id := ""
	if s.log != nil {
		var moved bool
		if id, moved = s.log.Add(raw); moved && s.err == nil {
			s.buf = append(s.buf, "0\r\n\r\n"...)
			if _ = s.flush(); s.err == nil {
				s.err = errEnded
				s.conn.Moved(&s.x.Call)
			}
		}
		if s.err != nil {
			return nil
		}
	}
	s.buf = door.AppendEvent(s.buf, "message", id, raw)
	return s.flush()
}

func (s *stream) flush() error {
	_, err := s.conn.Send(s.buf)
	s.buf = s.buf[:0]
	if cap(s.buf) > 64<<10 {
		s.buf = nil
	}
	s.written = s.conn.Now()
	if err != nil {
		s.err, s.used = err, true
		if s.log == nil {
			go s.x.Cancel() // not here: what is cancelled may hold locks of its own
			return err
		}
	}
	return nil
}

// beat writes a comment when the stream has been silent for a session.Heartbeat. A call
// that has been silent for so long becomes a stream.
func (w way) beat(now time.Time) {
	s := w.s
	if !s.mu.TryLock() {
		return // something is being written: the stream is not silent, or its client does not read
	}
	defer s.mu.Unlock()
	if s.number != w.number || s.out != nil || now.Sub(s.written) < session.Heartbeat || s.begin() != nil || s.err != nil {
		return
	}
	s.buf = door.AppendChunk(s.buf, comment)
	_ = s.flush()
}

// end writes the answer if the exchange has become a stream, or if the client
// accepts nothing else. It reports whether it has: then the server must not
// answer. raw is nil for an exchange without an answer.
func (s *stream) end(raw []byte, only bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil && !s.begun && (!only || raw == nil || s.begin() != nil) {
		if s.ended = true; !s.used {
			s.forget()
		}
		return false
	}
	defer func() { s.ended = true }()
	if s.answer != nil {
		raw = s.answer.Whole()
	}
	if s.out != nil {
		if raw != nil { // also where something before it did not reach a stream at another edge
			s.err = s.out(raw)
		}
		return true
	}
	if raw != nil && s.log != nil && s.log.Settled(true) {
		raw = nil // the client was told that the call has failed
	}
	if raw != nil {
		_ = s.put(raw)
	}
	if s.log != nil {
		s.log.Finish(s.conn.Now(), raw != nil)
	}
	if s.err == nil {
		s.buf = append(s.buf, "0\r\n\r\n"...)
		_ = s.flush()
	}
	return true
}
