package mcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"strconv"
	"sync"
)

// Event is one server-sent event (WHATWG HTML §9.2).
type Event struct {
	Type  string // "message" unless the sender named another
	Data  []byte // the receiver's to keep
	ID    string // of this event, "" when it has none
	HasID bool   // the event has an id field, perhaps an empty one
	Retry int    // milliseconds; -1 when the event has no retry field
}

// ErrEventTooLarge is what an EventReader returns for an event above its limit.
var ErrEventTooLarge = errors.New("an event larger than the limit")

// EventReader reads server-sent events from a stream in which lines end in LF,
// CR or CRLF and may be split anywhere. Events without data are returned too,
// when they have an id or a retry field. It is not safe for concurrent use.
//
// Between events it holds no buffer, and while it waits for one a small one:
// most streams are silent most of the time, and there may be thousands.
type EventReader struct {
	r      io.Reader
	limit  int
	buf    []byte // what was read and not yet taken: buf[at:end]
	at     int
	end    int
	skipLF bool // the last line ended in CR: an LF that follows belongs to it
	begun  bool // the byte order mark, if any, has been passed
}

const byteOrderMark = "\xef\xbb\xbf"

// A reader begins with a small buffer, and takes a large one for a line that
// does not fit. Both are used again by other readers; larger ones are not.
const (
	smallBuffer = 2 << 10
	largeBuffer = 16 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}
)

// NewEventReader reads events of at most limit bytes each from r: the sum of
// the event's lines without their ends and without comments, and any one line.
func NewEventReader(r io.Reader, limit int) *EventReader {
	return &EventReader{r: r, limit: limit}
}

// Reset has the reader read another stream, as a new one would.
func (r *EventReader) Reset(from io.Reader, limit int) {
	r.swap(nil)
	*r = EventReader{r: from, limit: limit}
}

// swap gives the buffer back and goes on with another.
func (r *EventReader) swap(buf []byte) {
	switch len(r.buf) {
	case smallBuffer:
		smallBuffers.Put((*[smallBuffer]byte)(r.buf))
	case largeBuffer:
		largeBuffers.Put((*[largeBuffer]byte)(r.buf))
	}
	r.buf = buf
}

// Next returns the next event. The error is io.EOF at the end of the stream
// (an unfinished event is dropped, as the standard says), ErrEventTooLarge, or
// what the stream returned. After an error there is nothing more to read.
func (r *EventReader) Next() (Event, error) {
	e := Event{Type: "message", Retry: -1}
	hasData, size := false, 0
	for {
		line, err := r.readLine()
		if err != nil {
			return Event{}, err
		}
		if len(line) > 0 && line[0] == ':' {
			continue // a comment
		}
		if size += len(line); size > r.limit {
			return Event{}, ErrEventTooLarge
		}
		if len(line) == 0 {
			if !hasData && !e.HasID && e.Retry < 0 {
				e.Type, size = "message", 0
				continue
			}
			if r.at == r.end {
				r.swap(nil)
				r.at, r.end = 0, 0
			}
			return e, nil
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "data":
			if hasData {
				e.Data = append(append(e.Data, '\n'), value...)
			} else {
				e.Data, hasData = bytes.Clone(value), true
			}
		case "event":
			if e.Type = string(value); e.Type == "" {
				e.Type = "message"
			}
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.ID, e.HasID = string(value), true
			}
		case "retry":
			if n, err := strconv.Atoi(string(value)); err == nil && '0' <= value[0] && value[0] <= '9' {
				e.Retry = n
			}
		}
	}
}

// readLine returns a line without its end, valid until the next call.
func (r *EventReader) readLine() ([]byte, error) {
	seen := r.at // no line ends in buf[at:seen]
	for {
		if r.skipLF && r.at < r.end {
			r.skipLF = false
			if r.buf[r.at] == '\n' {
				r.at++
			}
			seen = r.at
		}
		if i := lineEnd(r.buf[seen:r.end]); i >= 0 {
			line := r.buf[r.at : seen+i]
			r.skipLF = r.buf[seen+i] == '\r'
			r.at = seen + i + 1
			if !r.begun {
				r.begun = true
				line = bytes.TrimPrefix(line, []byte(byteOrderMark))
			}
			if len(line) > r.limit {
				return nil, ErrEventTooLarge
			}
			return line, nil
		}
		got := r.end - r.at
		if got > r.limit+len(byteOrderMark) {
			return nil, ErrEventTooLarge
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
		seen = r.at + got
	}
}

// fill reads more behind what is in the buffer, which grows when it is full of
// one line.
func (r *EventReader) fill() error {
	switch {
	case r.buf == nil:
		r.buf = smallBuffers.Get().(*[smallBuffer]byte)[:]
	case r.at == r.end:
		r.at, r.end = 0, 0
		if len(r.buf) > smallBuffer { // it was for a line that is gone
			r.swap(smallBuffers.Get().(*[smallBuffer]byte)[:])
		}
	case r.end < len(r.buf):
	case r.at > 0:
		r.end = copy(r.buf, r.buf[r.at:r.end])
		r.at = 0
	default:
		r.grow()
	}
	for range 100 {
		n, err := r.r.Read(r.buf[r.end:])
		if r.end += n; n > 0 {
			return nil // the reader says err again when there is no more
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// grow makes room for a line that fills the buffer.
func (r *EventReader) grow() {
	var buf []byte
	if len(r.buf) == smallBuffer && r.limit >= largeBuffer {
		buf = largeBuffers.Get().(*[largeBuffer]byte)[:]
	} else {
		buf = make([]byte, min(2*len(r.buf), r.limit+4096))
	}
	copy(buf, r.buf[:r.end])
	r.swap(buf)
}

// lineEnd returns the index of the first CR or LF; -1 when there is none.
func lineEnd(b []byte) int {
	const (
		low  = 0x0101010101010101
		high = 0x8080808080808080
	)
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		lf, cr := w^(low*'\n'), w^(low*'\r')
		// As in printing, the lowest byte marked is right.
		if m := ((lf-low)&^lf | (cr-low)&^cr) & high; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(b); i++ {
		if b[i] == '\n' || b[i] == '\r' {
			return i
		}
	}
	return -1
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
		i := lineEnd(data)
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
