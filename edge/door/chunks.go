package door

import (
	"bytes"
	"strconv"

	"github.com/weir-edge/weir/edge/mcp"
)

// Bodies and streams come and go in chunks (RFC 9112 §7.1).

// maxHex is how many digits the size of a chunk may have.
const maxHex = 15

// collectChunks reads a body in chunks (RFC 9112 §7.1). What is announced of a
// chunk is held against the limit at once. Chunk extensions and the trailer are
// read over.
func (c *Conn) collectChunks(from Sender) ([]byte, error) {
	b := grown{c: c, from: from, most: c.most}
	for {
		n, err := c.chunkSize()
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		if n > b.most-len(b.text) {
			return nil, ErrTooLarge
		}
		if err := b.add(n); err != nil {
			return nil, err
		}
		if err := c.lineEnd(); err != nil {
			return nil, err
		}
	}
	if err := c.trailer(); err != nil {
		return nil, err
	}
	return b.whole()
}

// chunkSize reads the line before the data of a chunk.
func (c *Conn) chunkSize() (size int, err error) {
	digits := 0
	const (
		number = iota
		blanks // after the number, before the end of the line
		extension
	)
	for at := number; ; {
		b, err := c.next()
		if err != nil {
			return 0, err
		}
		switch {
		case b == '\r':
			if digits == 0 {
				return 0, errChunks
			}
			if b, err = c.next(); err == nil && b != '\n' {
				err = errChunks
			}
			return size, err
		case b == '\n':
			return 0, errChunks
		case at == extension:
		case digits > 0 && (b == ' ' || b == '\t'):
			at = blanks
		case at == blanks || digits == 0 && b == ';':
			return 0, errChunks
		case b == ';':
			at = extension
		default:
			d := unhex(b)
			if d < 0 || digits == maxHex {
				return 0, errChunks
			}
			size = size<<4 | d
			digits++
		}
	}
}

func unhex(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b && b <= 'f':
		return int(b-'a') + 10
	case 'A' <= b && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}

// lineEnd reads the CRLF after the data of a chunk.
func (c *Conn) lineEnd() error {
	for _, want := range []byte("\r\n") {
		b, err := c.next()
		if err != nil {
			return err
		}
		if b != want {
			return errChunks
		}
	}
	return nil
}

// trailer reads what stands after the last chunk. A field that would mean
// something in a header does not belong there (RFC 9110 §6.5.1).
func (c *Conn) trailer() error {
	var line []byte
	for size := 0; ; {
		line = line[:0]
		for !bytes.HasSuffix(line, []byte{'\n'}) {
			b, err := c.next()
			if err != nil {
				return err
			}
			if size++; size > c.door.o.MaxHeader {
				return ErrTrailer
			}
			line = append(line, b)
		}
		text, ok := bytes.CutSuffix(line, []byte("\r\n"))
		if !ok {
			return errChunks
		}
		if len(text) == 0 {
			return nil
		}
		if !Harmless(text) {
			return errChunks
		}
	}
}

// next returns the next byte of a request.
func (c *Conn) next() (byte, error) {
	if c.at == c.end {
		if err := c.more(); err != nil {
			return 0, err
		}
	}
	b := c.first[c.at]
	c.at++
	return b, nil
}

// AppendEvent appends an event as a chunk, without a copy of it in between: the
// size is written with as many digits as any has.
func AppendEvent(dst []byte, name, id string, data []byte) []byte {
	const digits = "0123456789abcdef"
	at := len(dst)
	dst = append(dst, "00000000\r\n"...)
	from := len(dst)
	dst = mcp.AppendEvent(dst, name, id, data)
	for i, n := at+7, len(dst)-from; n > 0; i, n = i-1, n>>4 {
		dst[i] = digits[n&15]
	}
	return append(dst, "\r\n"...)
}

// AppendChunk appends data as a chunk.
func AppendChunk(dst, data []byte) []byte {
	dst = strconv.AppendInt(dst, int64(len(data)), 16)
	dst = append(append(dst, "\r\n"...), data...)
	return append(dst, "\r\n"...)
}
