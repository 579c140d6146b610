package kit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"strconv"
	"strings"
)

// maxBody bounds the body of one HTTP message, in bytes.
const maxBody = 8 << 20

// Kind is what the body of an answer is.
type Kind int

// The kinds that MCP has, and every other.
const (
	OtherContent Kind = iota
	JSONContent
	EventContent
)

// header is the head of an HTTP/1.1 message behind its first line, and its body.
type header struct {
	Kind    Kind
	Session []byte // Mcp-Session-Id; empty for none
	Body    []byte // valid until the next message is read
	Closes  bool   // the connection ends after this message

	length  int // -1 when the head does not say
	chunked bool

	// Of a request.
	version, rpc, name, lastEvent []byte // MCP-Protocol-Version, Mcp-Method, Mcp-Name, Last-Event-ID
	credential                    []byte // Authorization
	lines                         []byte // all header lines, where keep is true
	keep                          bool
}

// Answer is one HTTP/1.1 response. It is read again and again into the same
// memory, so that a load costs little beside what it measures.
type Answer struct {
	Status int
	header
	event []byte // data of an event of several lines
}

// Read reads a whole response, head and body.
func (a *Answer) Read(r *bufio.Reader) error {
	if err := a.ReadHead(r); err != nil {
		return err
	}
	return a.ReadBody(r)
}

// ReadHead reads the status line and the header (RFC 9112 §4, §5).
func (a *Answer) ReadHead(r *bufio.Reader) error {
	a.Status = 0
	line, err := readLine(r)
	if err != nil {
		return fmt.Errorf("status line: %w", err)
	}
	if len(line) < 12 || string(line[:9]) != "HTTP/1.1 " || (len(line) > 12 && line[12] != ' ') {
		return fmt.Errorf("status line: %q", line)
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return fmt.Errorf("status line: %q", line)
		}
		a.Status = a.Status*10 + int(c-'0')
	}
	return a.fields(r)
}

// ReadBody reads the body as the head announced it (RFC 9112 §6.3).
func (a *Answer) ReadBody(r *bufio.Reader) error {
	if a.length < 0 && !a.chunked && a.Status != 204 && a.Status != 304 {
		if a.Closes {
			return errors.New("body: it ends with the connection, which a load cannot tell from a broken one")
		}
		return errors.New("body: neither Content-Length nor Transfer-Encoding")
	}
	return a.readBody(r)
}

// Streams reports whether the body is a stream of events that come one by one.
func (a *Answer) Streams() bool { return a.Status == 200 && a.Kind == EventContent && a.chunked }

// inbound is one HTTP/1.1 request.
type inbound struct {
	method, path string
	header
}

// read reads a whole request (RFC 9112 §3).
func (q *inbound) read(r *bufio.Reader) error {
	line, err := readLine(r)
	if err != nil {
		return err
	}
	method, rest, _ := bytes.Cut(line, []byte{' '})
	path, version, ok := bytes.Cut(rest, []byte{' '})
	if !ok || string(version) != "HTTP/1.1" {
		return fmt.Errorf("request line: %q", line)
	}
	q.method, q.path = intern(method), intern(path)
	if err := q.fields(r); err != nil {
		return err
	}
	return q.readBody(r)
}

// intern is the text of b, without an allocation for what most requests say.
func intern(b []byte) string {
	switch string(b) {
	case "POST":
		return "POST"
	case "/mcp":
		return "/mcp"
	}
	return string(b)
}

// fields reads the header lines (RFC 9112 §5).
func (h *header) fields(r *bufio.Reader) error {
	*h = header{length: -1, Session: h.Session[:0], Body: h.Body[:0], version: h.version[:0], rpc: h.rpc[:0], name: h.name[:0], lastEvent: h.lastEvent[:0], credential: h.credential[:0], lines: h.lines[:0], keep: h.keep}
	for {
		line, err := readLine(r)
		if err != nil {
			return fmt.Errorf("header: %w", err)
		}
		if len(line) == 0 {
			return nil
		}
		if h.keep {
			h.lines = append(append(h.lines, line...), '\n')
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			return fmt.Errorf("header: %q has no colon", line)
		}
		if err := h.field(name, bytes.TrimSpace(value)); err != nil {
			return err
		}
	}
}

func (h *header) field(name, value []byte) error {
	is := func(want string) bool { return len(name) == len(want) && bytes.EqualFold(name, []byte(want)) }
	switch {
	case is("Content-Length"):
		n, err := strconv.ParseUint(string(value), 10, 31)
		if err != nil || n > maxBody {
			return fmt.Errorf("header: Content-Length %q", value)
		}
		h.length = int(n)
	case is("Transfer-Encoding"):
		if !bytes.EqualFold(value, []byte("chunked")) {
			return fmt.Errorf("header: Transfer-Encoding %q", value)
		}
		h.chunked = true
	case is("Content-Type"):
		switch {
		case bytes.HasPrefix(value, []byte("application/json")):
			h.Kind = JSONContent
		case bytes.HasPrefix(value, []byte("text/event-stream")):
			h.Kind = EventContent
		}
	case is("Connection"):
		h.Closes = bytes.EqualFold(value, []byte("close"))
	case is("Mcp-Session-Id"):
		h.Session = append(h.Session, value...)
	case is("MCP-Protocol-Version"):
		h.version = append(h.version, value...)
	case is("Mcp-Method"):
		h.rpc = append(h.rpc, value...)
	case is("Mcp-Name"):
		h.name = append(h.name, value...)
	case is("Last-Event-ID"):
		h.lastEvent = append(h.lastEvent, value...)
	case is("Authorization"):
		h.credential = append(h.credential, value...)
	}
	return nil
}

func (h *header) readBody(r *bufio.Reader) error {
	switch {
	case h.chunked && h.length >= 0:
		return errors.New("body: both Content-Length and Transfer-Encoding")
	case h.chunked:
		return h.readChunks(r)
	}
	return h.more(r, max(h.length, 0))
}

func (h *header) readChunks(r *bufio.Reader) error {
	for {
		line, err := readLine(r)
		if err != nil {
			return fmt.Errorf("chunk: %w", err)
		}
		size, _, _ := bytes.Cut(line, []byte{';'})
		n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 31)
		if err != nil || len(h.Body)+int(n) > maxBody {
			return fmt.Errorf("chunk: size %q", line)
		}
		if n == 0 {
			break
		}
		if err := h.more(r, int(n)); err != nil {
			return err
		}
		if line, err = readLine(r); err != nil || len(line) != 0 {
			return fmt.Errorf("chunk: %q after it: %v", line, err)
		}
	}
	for { // trailers
		line, err := readLine(r)
		if err != nil {
			return fmt.Errorf("trailer: %w", err)
		}
		if len(line) == 0 {
			return nil
		}
	}
}

// more appends n bytes to the body.
func (h *header) more(r *bufio.Reader, n int) error {
	had := len(h.Body)
	if cap(h.Body) < had+n {
		h.Body = append(make([]byte, 0, 2*(had+n)), h.Body...)
	}
	h.Body = h.Body[:had+n]
	if _, err := io.ReadFull(r, h.Body[had:]); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	return nil
}

// readLine returns the next line without its end; it is valid until the next
// read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}

// Message returns the JSON text of the answer: the body, or the data of the
// last event that has any, which on a stream of MCP is the response.
func (a *Answer) Message() ([]byte, error) {
	switch a.Kind {
	case JSONContent:
		return a.Body, nil
	case EventContent:
	default:
		return nil, errors.New("answer: neither application/json nor text/event-stream")
	}
	var found []byte
	for data, rest := a.next(a.Body); data != nil; data, rest = a.next(rest) {
		found = data
	}
	if found == nil {
		return nil, errors.New("answer: the stream ended without a message")
	}
	return found, nil
}

// Text is the message, or the body of an answer that is none.
func (a *Answer) Text() []byte {
	if m, err := a.Message(); err == nil {
		return m
	}
	return a.Body
}

// Events returns the data of every event that has any; none where the answer is
// no stream.
func (a *Answer) Events() (all [][]byte) {
	if a.Kind != EventContent {
		return nil
	}
	for data, rest := a.next(a.Body); data != nil; data, rest = a.next(rest) {
		all = append(all, bytes.Clone(data))
	}
	return all
}

// next returns the data of the first event that has any, and what follows it. An
// event that no empty line ends is none (WHATWG HTML §9.2.6).
func (a *Answer) next(text []byte) (data, rest []byte) {
	lines := 0 // data lines of the event being read
	for rest = text; ; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			return nil, nil
		}
		line := bytes.TrimSuffix(rest[:end], []byte{'\r'})
		rest = rest[end+1:]
		switch value, ok := bytes.CutPrefix(line, []byte("data:")); {
		case len(line) == 0:
			if len(data) > 0 {
				return data, rest
			}
			data, lines = nil, 0
		case ok && lines == 0:
			data, lines = bytes.TrimPrefix(value, []byte{' '}), 1
		case ok:
			a.event = append(append(append(a.event[:0:0], data...), '\n'), bytes.TrimPrefix(value, []byte{' '})...)
			data, lines = a.event, lines+1
		}
	}
}

// Events reads a stream of events as it comes.
type Events struct {
	ID    string        // of the last event that has one
	Lines *bufio.Reader // of the body

	under *bufio.Reader
}

// NewEvents reads the body of an answer whose head has been read from r, through
// a buffer of so many bytes.
func NewEvents(r *bufio.Reader, size int) *Events {
	return &Events{under: r, Lines: bufio.NewReaderSize(httputil.NewChunkedReader(r), size)}
}

// Next returns the data of the next event that has any. The error is io.EOF
// when the stream has ended in order, with its last chunk, and another when it
// broke.
func (e *Events) Next() ([]byte, error) {
	var data []byte
	for {
		line, err := e.Lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) { // one long line
			whole := bytes.Clone(line)
			var rest []byte
			rest, err = e.Lines.ReadBytes('\n')
			line = append(whole, rest...)
		}
		if errors.Is(err, io.EOF) {
			// Trailers are not expected.
			if line, err := readLine(e.under); err != nil || len(line) > 0 {
				return nil, fmt.Errorf("end of the body: %q: %v", line, err)
			}
			return nil, io.EOF
		}
		if err != nil {
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 && len(data) > 0 {
			return data, nil
		}
		if value, ok := bytes.CutPrefix(line, []byte("id:")); ok {
			e.ID = strings.TrimSpace(string(value))
		}
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(value, []byte{' '})...)
		}
	}
}

// chunk frames data as one chunk.
func chunk(data string) string {
	return strconv.FormatInt(int64(len(data)), 16) + "\r\n" + data + "\r\n"
}
