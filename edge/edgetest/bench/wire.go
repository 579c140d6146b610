package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxAnswer bounds the body of one answer, in bytes.
const maxAnswer = 8 << 20

// answer is one HTTP/1.1 response. It is read again and again into the same
// memory, so that the load costs little beside what it measures.
type answer struct {
	status  int
	kind    contentKind
	session []byte // Mcp-Session-Id; empty for none
	body    []byte // valid until the next read

	length  int // -1 when the head does not say
	chunked bool
	closes  bool // the connection ends after this answer

	event []byte // data of an event of several lines
}

type contentKind int

const (
	otherContent contentKind = iota
	jsonContent
	eventContent
)

// read reads a whole response, head and body.
func (a *answer) read(r *bufio.Reader) error {
	if err := a.readHead(r); err != nil {
		return err
	}
	return a.readBody(r)
}

// readHead reads the status line and the header (RFC 9112 §4, §5).
func (a *answer) readHead(r *bufio.Reader) error {
	a.status, a.kind, a.session, a.body = 0, otherContent, a.session[:0], a.body[:0]
	a.length, a.chunked, a.closes = -1, false, false

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
		a.status = a.status*10 + int(c-'0')
	}
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
		if err := a.header(name, bytes.TrimSpace(value)); err != nil {
			return err
		}
	}
}

func (a *answer) header(name, value []byte) error {
	is := func(want string) bool { return len(name) == len(want) && bytes.EqualFold(name, []byte(want)) }
	switch {
	case is("Content-Length"):
		n, err := strconv.ParseUint(string(value), 10, 31)
		if err != nil || n > maxAnswer {
			return fmt.Errorf("header: Content-Length %q", value)
		}
		a.length = int(n)
	case is("Transfer-Encoding"):
		if !bytes.EqualFold(value, []byte("chunked")) {
			return fmt.Errorf("header: Transfer-Encoding %q", value)
		}
		a.chunked = true
	case is("Content-Type"):
		switch {
		case bytes.HasPrefix(value, []byte("application/json")):
			a.kind = jsonContent
		case bytes.HasPrefix(value, []byte("text/event-stream")):
			a.kind = eventContent
		}
	case is("Connection"):
		a.closes = bytes.EqualFold(value, []byte("close"))
	case is("Mcp-Session-Id"):
		a.session = append(a.session, value...)
	}
	return nil
}

// readBody reads the body as the head announced it (RFC 9112 §6.3).
func (a *answer) readBody(r *bufio.Reader) error {
	switch {
	case a.chunked && a.length >= 0:
		return errors.New("body: both Content-Length and Transfer-Encoding")
	case a.chunked:
		return a.readChunks(r)
	case a.length >= 0:
		return a.more(r, a.length)
	case a.status == 204 || a.status == 304:
		return nil
	case a.closes:
		return errors.New("body: it ends with the connection, which a load cannot tell from a broken one")
	}
	return errors.New("body: neither Content-Length nor Transfer-Encoding")
}

func (a *answer) readChunks(r *bufio.Reader) error {
	for {
		line, err := readLine(r)
		if err != nil {
			return fmt.Errorf("chunk: %w", err)
		}
		size, _, _ := bytes.Cut(line, []byte{';'})
		n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 31)
		if err != nil || len(a.body)+int(n) > maxAnswer {
			return fmt.Errorf("chunk: size %q", line)
		}
		if n == 0 {
			break
		}
		if err := a.more(r, int(n)); err != nil {
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
func (a *answer) more(r *bufio.Reader, n int) error {
	had := len(a.body)
	if cap(a.body) < had+n {
		a.body = append(make([]byte, 0, 2*(had+n)), a.body...)
	}
	a.body = a.body[:had+n]
	if _, err := io.ReadFull(r, a.body[had:]); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	return nil
}

// readLine returns the next line without its end; it is valid until the next
// read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		if err == io.EOF && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}

// message returns the JSON text of the answer: the body, or the data of the
// last event that has any, which on a stream of MCP is the response.
func (a *answer) message() ([]byte, error) {
	switch a.kind {
	case jsonContent:
		return a.body, nil
	case eventContent:
	default:
		return nil, errors.New("answer: neither application/json nor text/event-stream")
	}
	var found, data []byte
	lines := 0 // data lines of the event being read
	for rest := a.body; ; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			break // an event that no empty line ends is none (WHATWG HTML §9.2.6)
		}
		line := bytes.TrimSuffix(rest[:end], []byte{'\r'})
		rest = rest[end+1:]
		switch value, ok := bytes.CutPrefix(line, []byte("data:")); {
		case len(line) == 0:
			if len(data) > 0 {
				found = data
			}
			data, lines = nil, 0
		case ok && lines == 0:
			data, lines = bytes.TrimPrefix(value, []byte{' '}), 1
		case ok:
			a.event = append(append(append(a.event[:0:0], data...), '\n'), bytes.TrimPrefix(value, []byte{' '})...)
			data, lines = a.event, lines+1
		}
	}
	if found == nil {
		return nil, errors.New("answer: the stream ended without a message")
	}
	return found, nil
}

// A call is the text of one request with the places in it that change from
// call to call: a number of ten digits that is both the id and the argument,
// so that every call is distinct and every answer can be told from every other.
type call struct {
	text   []byte
	places []int // where the digits go

	id, argument []byte // what the answer must hold, with the digits of this call
}

const (
	firstNumber = 1_000_000_000
	lastNumber  = 9_999_999_999
	digits      = 10
	mark        = "##########" // stands for the digits in the text of a call
)

// newCall prepares a request from its text, in which every mark is a place for
// the number.
func newCall(text []byte) *call {
	c := &call{text: text, id: []byte(`"id":` + mark), argument: []byte(`"text":"call ` + mark + ` `)}
	for at := 0; ; {
		i := bytes.Index(text[at:], []byte(mark))
		if i < 0 {
			return c
		}
		c.places = append(c.places, at+i)
		at += i + digits
	}
}

// number sets the number of the call, which is between firstNumber and
// lastNumber.
func (c *call) number(n uint64) {
	var d [digits]byte
	for i := digits - 1; i >= 0; i-- {
		d[i] = byte('0' + n%10)
		n /= 10
	}
	for _, at := range c.places {
		copy(c.text[at:], d[:])
	}
	copy(c.id[len(`"id":`):], d[:])
	copy(c.argument[len(`"text":"call `):], d[:])
}

// check returns what is wrong with the answer to the call; nil when it is its
// own id and echo. The text is searched first, which is cheap; only one that
// is spelt in another way is decoded.
func (c *call) check(a *answer) error {
	if a.status != 200 {
		return fmt.Errorf("answer: status %d: %.300s", a.status, a.body)
	}
	text, err := a.message()
	if err != nil {
		return err
	}
	if i := bytes.Index(text, c.id); i >= 0 && bytes.Contains(text, c.argument) && bytes.Contains(text, []byte(`"isError":false`)) {
		if after := i + len(c.id); after < len(text) && (text[after] == ',' || text[after] == '}') {
			return nil
		}
	}
	var m struct {
		ID     json.Number     `json:"id"`
		Error  json.RawMessage `json:"error"`
		Result struct {
			IsError bool `json:"isError"`
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"result"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("answer: %w: %.300s", err, text)
	}
	id, said := c.id[len(`"id":`):], c.argument[len(`"text":"`):]
	switch {
	case m.ID.String() != string(id):
		return fmt.Errorf("answer: id %s, not %s: %.300s", m.ID, id, text)
	case m.Error != nil:
		return fmt.Errorf("answer: error %.300s", m.Error)
	case m.Result.IsError || len(m.Result.Content) == 0 || !bytes.HasPrefix([]byte(m.Result.Content[0].Text), said):
		return fmt.Errorf("answer: no echo of %q: %.300s", said, text)
	}
	return nil
}
