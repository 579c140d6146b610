package wire

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// Head is the part of the HTTP header of an answer that the edge uses. It is read by
// stricter rules than HTTP has, so that no two readers can take an answer for
// two different ones: lines end in CRLF and are not folded, how long the body is
// is said once and in one way (RFC 9112 §2.2, §5.2, §6.3; RFC 9110 §5.5).
type Head struct {
	Status    int
	Length    int           // of the body in bytes; -1 chunked, -2 up to the end of the connection
	SSE       bool          // the body is a stream of events
	Coded     bool          // the body is compressed
	Closes    bool          // the connection ends with this answer
	Session   []byte        // Mcp-Session-Id; valid until the next answer
	After     time.Duration // Retry-After, a day at most; 0 for none
	Challenge []byte        // WWW-Authenticate, several lines as one list, cut at maxChallenge; nil for none; valid until the next answer

	idle time.Duration // how long the connection may wait for its next request

	at                    int  // where in the text reading goes on
	old, typed, named, on bool // HTTP/1.0; Content-Type and Mcp-Session-Id are there; Connection: keep-alive
	challenged            bool // WWW-Authenticate is there, be it empty
	sized, chunks         bool // the two ways to say how long the body is
}

// maxChallenge is how much of WWW-Authenticate is kept, in bytes.
const maxChallenge = 2 << 10

// Challenged reports whether the answer asks for a credential.
func (h *Head) Challenged() bool { return h.challenged }

var (
	eventStream = []byte("text/event-stream")
	// ErrHead: the header of an answer cannot be read.
	ErrHead = errors.New("answered with an HTTP header that cannot be read")
)

// ReadHead waits for the head of an answer and takes it off the connection. The
// whole of it has to fit the buffer.
func (c *Conn) ReadHead() error {
	h := &c.Head
	*h = Head{Length: -2, Session: h.Session[:0], Challenge: h.Challenge[:0], idle: idleDefault}
	for n := 1; ; {
		if _, err := c.Reader.Peek(n); err != nil {
			return err
		}
		text, _ := c.Reader.Peek(c.Reader.Buffered())
		done, err := h.read(text)
		if err != nil {
			return err
		}
		if done {
			_, err = c.Reader.Discard(h.at)
			return err
		}
		n = len(text) + 1
	}
}

// read reads the lines that have come whole, and reports whether the empty one
// that ends the head was among them. text begins with the head and grows from
// call to call.
func (h *Head) read(text []byte) (done bool, err error) {
	for {
		i := bytes.IndexByte(text[h.at:], '\n')
		if i < 0 {
			return false, nil
		}
		if i == 0 || text[h.at+i-1] != '\r' {
			return false, ErrHead
		}
		line := text[h.at : h.at+i-1]
		h.at += i + 1
		switch {
		case h.Status == 0:
			if !h.statusLine(line) {
				return false, ErrHead
			}
		case len(line) == 0:
			return true, h.judge()
		case !h.line(line):
			return false, ErrHead
		}
	}
}

// statusLine reads the first line (RFC 9112 §4).
func (h *Head) statusLine(line []byte) bool {
	const version = len("HTTP/1.1")
	if len(line) < version+len(" 200") || string(line[:version-1]) != "HTTP/1." || line[version] != ' ' {
		return false
	}
	switch line[version-1] {
	case '1':
	case '0':
		h.old = true
	default:
		return false
	}
	for _, c := range line[version+1 : version+4] {
		if c < '0' || '9' < c {
			return false
		}
		h.Status = h.Status*10 + int(c-'0')
	}
	rest := line[version+4:]
	return h.Status >= 100 && (len(rest) == 0 || rest[0] == ' ') && !mcp.HasControl(rest)
}

// line reads a header line.
func (h *Head) line(line []byte) bool {
	colon := 0
	for colon < len(line) && mcp.NameBytes[line[colon]] {
		colon++
	}
	if colon == 0 || colon == len(line) || line[colon] != ':' {
		return false
	}
	name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
	if mcp.HasControl(value) {
		return false
	}
	switch len(name) {
	case len("Connection"):
		if mcp.SameName(name, "connection") {
			h.connection(value)
		} else if mcp.SameName(name, "keep-alive") {
			h.keepAlive(value)
		}
	case len("Retry-After"):
		if mcp.SameName(name, "retry-after") {
			h.retryAfter(value)
		}
	case len("Content-Type"):
		if mcp.SameName(name, "content-type") {
			kind, _, _ := bytes.Cut(value, []byte{';'})
			sse := bytes.EqualFold(bytes.TrimSpace(kind), eventStream)
			if h.typed && sse != h.SSE {
				return false
			}
			h.SSE, h.typed = sse, true
		}
	case len("Content-Length"):
		if mcp.SameName(name, "content-length") {
			return h.contentLength(value)
		}
		if mcp.SameName(name, "mcp-session-id") {
			if h.named && !bytes.Equal(h.Session, value) {
				return false
			}
			h.Session, h.named = append(h.Session[:0], value...), true
		}
	case len("Content-Encoding"):
		if mcp.SameName(name, "content-encoding") {
			h.Coded = h.Coded || len(value) > 0 && !mcp.SameName(value, "identity")
		} else if mcp.SameName(name, "www-authenticate") {
			if len(h.Challenge) > 0 {
				h.Challenge = append(h.Challenge, ", "...)
			}
			h.Challenge = append(h.Challenge, value...)
			h.Challenge = h.Challenge[:min(len(h.Challenge), maxChallenge)]
			h.challenged = true
		}
	case len("Transfer-Encoding"):
		if mcp.SameName(name, "transfer-encoding") {
			once := !h.chunks
			h.chunks = true
			return once && mcp.SameName(value, "chunked")
		}
	}
	return true
}

// contentLength reads the number of bytes of the body.
func (h *Head) contentLength(value []byte) bool {
	if h.sized || len(value) == 0 || len(value) > 18 {
		return false
	}
	n := 0
	for _, c := range value {
		if c < '0' || '9' < c {
			return false
		}
		n = n*10 + int(c-'0')
	}
	h.sized, h.Length = true, n
	return true
}

// connection reads what is said of the connection (RFC 9110 §7.6.1).
func (h *Head) connection(value []byte) {
	for one := range bytes.SplitSeq(value, []byte{','}) {
		switch one = bytes.Trim(one, " \t"); {
		case mcp.SameName(one, "close"):
			h.Closes = true
		case mcp.SameName(one, "keep-alive"):
			h.on = true
		}
	}
}

// keepAlive reads how long the backend lets the connection wait.
func (h *Head) keepAlive(value []byte) {
	if _, rest, ok := bytes.Cut(value, []byte("timeout=")); ok {
		digits, _, _ := bytes.Cut(rest, []byte{','})
		if n, err := strconv.Atoi(string(bytes.TrimSpace(digits))); err == nil {
			h.idle = min(time.Duration(n)*time.Second-time.Second, idleMost)
		}
	}
}

// retryAfter reads when to ask again: seconds, or a date (RFC 9110 §10.2.3).
func (h *Head) retryAfter(value []byte) {
	const day = 24 * 60 * 60
	if n, err := strconv.Atoi(string(value)); err == nil {
		h.After = time.Duration(min(max(n, 0), day)) * time.Second
	} else if at, err := time.Parse(time.RFC1123, string(value)); err == nil {
		h.After = min(max(time.Until(at), 0), day*time.Second)
	}
}

// judge says what the lines mean together.
func (h *Head) judge() error {
	if h.chunks && (h.sized || h.old) {
		return ErrHead
	}
	if h.chunks {
		h.Length = -1
	}
	if h.old && !h.on {
		h.Closes = true
	}
	if h.Status == 204 || h.Status == 304 {
		h.Length = 0
	}
	return nil
}

// Visible reports whether text may stand in a header as it is (2025-11-25, basic/transports,
// session management: visible ASCII alone), and has at most so many bytes.
func Visible(s string, most int) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return len(s) <= most
}
