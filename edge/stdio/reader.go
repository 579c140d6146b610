package stdio

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

const (
	// small is the buffer of a stream that rests, large that of one that has more to
	// say at a time than fits there. Longer lines have memory of their own.
	small = 1 << 10
	large = 64 << 10

	// idWithin is how much of the beginning of a line above the limit is looked at to find
	// the request that it answers, and atEnd how much of its end: some say it last.
	idWithin = 4 << 10
	atEnd    = 128
)

// buffers are large ones that are not in use.
var buffers = sync.Pool{New: func() any { return new([large]byte) }}

// longLine is the error of a line above the limit. The next line can be read after it.
type longLine struct{ head, tail []byte } // its beginning and its end

func (*longLine) Error() string { return "a line above the limit" }

// lines reads a stream line by line. A line above the limit is passed over in constant
// memory.
type lines struct {
	r     io.Reader
	limit int // bytes of a line

	rest       []byte       // a buffer of small bytes
	big        *[large]byte // in place of rest while more has come than fits there; nil else
	start, end int          // what of the buffer has been read and not been taken
	long       []byte       // the beginning of a line that is longer than a buffer
	over       bool         // what comes up to the next newline is passed over
	keep       int          // bytes of the beginning of such a line that are kept
	head       []byte       // these
	tail       []byte       // and of its end so far
	err        error        // of the stream, after what is left
	cut        bool         // the line that was returned last has no end: that of the stream came first
}

func newLines(r io.Reader, limit, keep int) *lines {
	return &lines{r: r, limit: limit, keep: keep, rest: make([]byte, small)}
}

func (l *lines) buffer() []byte {
	if l.big != nil {
		return l.big[:]
	}
	return l.rest
}

// next returns the next line, without what ends it: LF or CRLF. own says that its bytes
// are the caller's; else they are valid until the next call. The error is a *longLine, or
// what ended the stream; what came after the last newline then is a line as well.
func (l *lines) next() (line []byte, own bool, err error) {
	searched := 0 // of what is buffered has no newline
	for {
		b := l.buffer()
		if i := bytes.IndexByte(b[l.start+searched:l.end], '\n'); i >= 0 {
			line = b[l.start : l.start+searched+i]
			l.start += searched + i + 1
			l.cut = false
			return l.whole(line)
		}
		if l.err != nil {
			if l.start == l.end && l.long == nil && !l.over {
				l.free()
				return nil, false, l.err
			}
			line = b[l.start:l.end]
			l.start, l.cut = l.end, true
			return l.whole(line)
		}
		searched = l.end - l.start
		if l.fill() {
			searched = 0
		}
	}
}

// whole ends a line with what was buffered of it last.
func (l *lines) whole(tail []byte) (line []byte, own bool, err error) {
	switch {
	case l.over, len(l.long)+len(tail) > l.limit+1: // one more for a CR
		l.keepHead(tail)
		e := &longLine{l.head, l.tail}
		l.over, l.long, l.head, l.tail = false, nil, nil, nil
		return nil, false, e
	case l.long != nil:
		line, own = append(l.long, tail...), true
		l.long = nil
	default:
		line = tail
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if len(line) > l.limit {
		return nil, false, &longLine{bytes.Clone(line[:min(len(line), l.keep)]), bytes.Clone(line[max(0, len(line)-atEnd):])}
	}
	return line, own, nil
}

// keepHead keeps the beginning of a line that is passed over, and its end so far.
func (l *lines) keepHead(tail []byte) {
	for _, part := range [][]byte{l.long, tail} {
		l.head = append(l.head, part[:min(len(part), l.keep-len(l.head))]...)
		l.tail = append(l.tail, part[max(0, len(part)-atEnd):]...)
		l.tail = append(l.tail[:0], l.tail[max(0, len(l.tail)-atEnd):]...)
	}
	l.long = nil
}

// fill reads more. It makes room first: what is buffered moves to the front, to a larger
// buffer, or, which it reports, to the line that is longer than that.
func (l *lines) fill() (moved bool) {
	b := l.buffer()
	switch {
	case l.start == l.end:
		l.start, l.end = 0, 0
		l.free()
	case l.end < len(b):
	case l.start > 0:
		l.end = copy(b, b[l.start:l.end])
		l.start = 0
	case l.big == nil:
		l.big = buffers.Get().(*[large]byte)
		l.end = copy(l.big[:], b[:l.end])
	default:
		l.lengthen(b[l.start:l.end])
		l.start, l.end, moved = 0, 0, true
	}
	b = l.buffer()
	for range 100 {
		n, err := l.r.Read(b[l.end:])
		l.end += n
		if l.err = err; n > 0 || err != nil {
			return moved
		}
	}
	l.err = io.ErrNoProgress
	return moved
}

// lengthen adds to a line that is longer than a buffer.
func (l *lines) lengthen(more []byte) {
	switch {
	case l.over:
		l.keepHead(more)
	case len(l.long)+len(more) > l.limit+1:
		l.keepHead(more)
		l.over = true
	case l.long == nil:
		l.long = append(make([]byte, 0, 2*large), more...)
	default:
		if n := len(l.long) + len(more); n > cap(l.long) {
			l.long = append(make([]byte, 0, min(2*cap(l.long), max(n, l.limit+1))), l.long...)
		}
		l.long = append(l.long, more...)
	}
}

// free gives the large buffer back when nothing is in it.
func (l *lines) free() {
	if l.big != nil && l.start == l.end {
		buffers.Put(l.big)
		l.big, l.start, l.end = nil, 0, 0
	}
}

// isLong returns the beginning and the end of a line that was above the limit.
func isLong(err error) (head, tail []byte, ok bool) {
	if err == nil {
		return nil, nil, false
	}
	var e *longLine
	if errors.As(err, &e) {
		return e.head, e.tail, true
	}
	return nil, nil, false
}
