package mcp

import (
	"bytes"
	"errors"
	"io"
	"strconv"
)

// Event is one server-sent event (WHATWG HTML §9.2).
type Event struct {
	Type  string // "message" unless the sender named another
	Data  []byte // valid until the next event is read
	ID    string // of this event, "" when it has none
	HasID bool   // the event has an id field, perhaps an empty one
	Retry int    // milliseconds; -1 when the event has no retry field
}

// ErrEventTooLarge is what an EventReader returns for an event above its limit.
var ErrEventTooLarge = errors.New("an event larger than the limit")

// EventReader reads server-sent events from a stream in which lines end in LF,
// CR or CRLF and may be split anywhere. Events without data are returned too,
// when they have an id or a retry field. It is not safe for concurrent use.
type EventReader struct {
	r      io.Reader
	limit  int
	buf    []byte // what was read and not yet taken: buf[at:end]
	at     int
	end    int
	line   []byte // a line that did not fit into buf at once
	skipLF bool   // the last line ended in CR: an LF that follows belongs to it
	begun  bool   // the byte order mark, if any, has been passed
	data   []byte
}

// NewEventReader reads events of at most limit bytes each from r.
func NewEventReader(r io.Reader, limit int) *EventReader {
	return &EventReader{r: r, limit: limit, buf: make([]byte, 4096)}
}

// Next returns the next event. The error is io.EOF at the end of the stream
// (an unfinished event is dropped, as the standard says), ErrEventTooLarge, or
// what the stream returned.
func (r *EventReader) Next() (Event, error) {
	e := Event{Type: "message", Retry: -1}
	r.data = r.data[:0]
	hasData, size := false, 0
	for {
		line, err := r.readLine()
		if err != nil {
			return Event{}, err
		}
		if size += len(line); size > r.limit {
			return Event{}, ErrEventTooLarge
		}
		if len(line) == 0 {
			if !hasData && !e.HasID && e.Retry < 0 {
				e.Type, size = "message", 0
				continue
			}
			e.Data = r.data
			return e, nil
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "data":
			if hasData {
				r.data = append(r.data, '\n')
			}
			r.data = append(r.data, value...)
			hasData = true
		case "event":
			if e.Type = string(value); e.Type == "" {
				e.Type = "message"
			}
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.ID, e.HasID = string(value), true
			}
		case "retry":
			if n, err := strconv.Atoi(string(value)); err == nil && n >= 0 && value[0] != '+' {
				e.Retry = n
			}
		}
	}
}

// readLine returns a line without its end, valid until the next call.
func (r *EventReader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		if r.at == r.end {
			n, err := r.r.Read(r.buf)
			r.at, r.end = 0, n
			if n == 0 {
				if err == nil {
					continue
				}
				return nil, err
			}
		}
		if r.skipLF {
			r.skipLF = false
			if r.buf[r.at] == '\n' {
				r.at++
				continue
			}
		}
		chunk := r.buf[r.at:r.end]
		i := bytes.IndexAny(chunk, "\r\n")
		if i < 0 {
			if len(r.line)+len(chunk) > r.limit {
				return nil, ErrEventTooLarge
			}
			r.line = append(r.line, chunk...)
			r.at = r.end
			continue
		}
		r.skipLF = chunk[i] == '\r'
		r.at += i + 1
		line := chunk[:i]
		if len(r.line) > 0 {
			r.line = append(r.line, line...)
			line = r.line
		}
		if !r.begun {
			r.begun = true
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		return line, nil
	}
}

// AppendEvent appends an event to dst. name is "" for a message; id is "" for
// none. Line ends in data become lines of the event, which a reader joins
// again with LF: in JSON they can stand only between tokens.
func AppendEvent(dst []byte, name, id string, data []byte) []byte {
	if name != "" {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	if id != "" {
		dst = append(append(append(dst, "id: "...), id...), '\n')
	}
	for {
		i := bytes.IndexAny(data, "\r\n")
		if i < 0 {
			dst = append(append(dst, "data: "...), data...)
			return append(dst, '\n', '\n')
		}
		dst = append(append(append(dst, "data: "...), data[:i]...), '\n')
		if data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			i++
		}
		data = data[i+1:]
	}
}
