package main

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

// header is the head of an HTTP/1.1 message, as far as rows need it.
type header struct {
	method, path string // of a request
	status       int    // of an answer

	length  int // of the body; -1 when the head does not say
	chunked bool
	closes  bool // the connection ends after this message
	events  bool // the body is a stream of events
	session string
}

// readRequestHead reads the head of a request.
func readRequestHead(r *bufio.Reader) (h header, err error) {
	line, err := readLine(r)
	if err != nil {
		return h, err
	}
	parts := strings.Fields(string(line))
	if len(parts) != 3 {
		return h, fmt.Errorf("request line: %q", line)
	}
	h.method, h.path = parts[0], parts[1]
	return h, h.fields(r)
}

// readAnswerHead reads the head of an answer.
func readAnswerHead(r *bufio.Reader) (h header, err error) {
	line, err := readLine(r)
	if err != nil {
		return h, err
	}
	if len(line) < 12 || string(line[:9]) != "HTTP/1.1 " {
		return h, fmt.Errorf("status line: %q", line)
	}
	if h.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return h, fmt.Errorf("status line: %q", line)
	}
	return h, h.fields(r)
}

// fields reads the header lines (RFC 9112 §5).
func (h *header) fields(r *bufio.Reader) error {
	h.length = -1
	for {
		line, err := readLine(r)
		if err != nil {
			return fmt.Errorf("header: %w", err)
		}
		if len(line) == 0 {
			return nil
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			return fmt.Errorf("header: %q has no colon", line)
		}
		value = bytes.TrimSpace(value)
		is := func(want string) bool { return len(name) == len(want) && bytes.EqualFold(name, []byte(want)) }
		switch {
		case is("Content-Length"):
			n, err := strconv.ParseUint(string(value), 10, 31)
			if err != nil || n > maxBody {
				return fmt.Errorf("header: Content-Length %q", value)
			}
			h.length = int(n)
		case is("Transfer-Encoding"):
			h.chunked = bytes.EqualFold(value, []byte("chunked"))
		case is("Content-Type"):
			h.events = bytes.HasPrefix(value, []byte("text/event-stream"))
		case is("Connection"):
			h.closes = bytes.EqualFold(value, []byte("close"))
		case is("Mcp-Session-Id"):
			h.session = string(value)
		}
	}
}

// readBody reads a whole body, as its head announced it.
func (h *header) readBody(r *bufio.Reader) ([]byte, error) {
	switch {
	case h.chunked:
		body, err := io.ReadAll(io.LimitReader(httputil.NewChunkedReader(r), maxBody))
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		return body, endOfChunks(r)
	case h.length > 0:
		body := make([]byte, h.length)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		return body, nil
	case h.length < 0 && h.status >= 200 && h.status != 204 && h.status != 304:
		return nil, errors.New("body: it ends with the connection, which nobody can tell from a broken one")
	}
	return nil, nil
}

// endOfChunks reads the empty line that ends a chunked body; trailers are not
// expected.
func endOfChunks(r *bufio.Reader) error {
	if line, err := readLine(r); err != nil || len(line) > 0 {
		return fmt.Errorf("end of the body: %q: %v", line, err)
	}
	return nil
}

// events reads a stream of events as it comes.
type events struct {
	under *bufio.Reader
	lines *bufio.Reader // of the body
}

// newEvents reads the body of an answer whose head has been read from r.
func newEvents(r *bufio.Reader, size int) *events {
	return &events{under: r, lines: bufio.NewReaderSize(httputil.NewChunkedReader(r), size)}
}

// next returns the data of the next event that has any. The error is io.EOF
// when the stream has ended in order, with its last chunk, and another when it
// broke.
func (e *events) next() ([]byte, error) {
	var data []byte
	for {
		line, err := e.lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) { // one long line
			whole := bytes.Clone(line)
			var rest []byte
			rest, err = e.lines.ReadBytes('\n')
			line = append(whole, rest...)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				if err := endOfChunks(e.under); err != nil {
					return nil, err
				}
				return nil, io.EOF
			}
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 && len(data) > 0 {
			return data, nil
		}
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(value, []byte{' '})...)
		}
	}
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

// chunk frames data as one chunk.
func chunk(data []byte) []byte {
	out := strconv.AppendInt(make([]byte, 0, len(data)+16), int64(len(data)), 16)
	out = append(append(out, "\r\n"...), data...)
	return append(out, "\r\n"...)
}
