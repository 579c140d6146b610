// Package link is what the manager and the helper in a sandbox say to each other: frames on
// one connection, and on one kernel descriptors beside them (SCM_RIGHTS). It reads no
// stream of a server; those go from hand to hand as descriptors.
//
// A frame is a head of 8 bytes and a body. The head has the length of the body (4 bytes,
// big endian, at most MaxBody), the kind (1), how many descriptors come with it (1), and
// two zeros. The body has four numbers of 4 bytes and three lists of strings, each string
// and each list behind its length as a uvarint. Nothing may follow.
package link

import (
	"encoding/binary"
	"errors"
	"time"
)

// Bounds of a frame.
const (
	MaxBody        = 1<<20 - headSize // bytes, so that a frame has 1 MiB at most
	MaxDescriptors = 3                // a server's three streams
	headSize       = 8
)

// Of a link whose streams are carried over one connection (the attached form): how many there
// may be, the bytes of each that nobody has read, and how long the second direction of one that
// is over in the first may go on.
const (
	MaxStreams   = 1024
	StreamWindow = 256 << 10
	StreamClose  = 30 * time.Second
)

// Version is what a Hello has as its A. A manager refuses any other: both ends come out of
// one build.
const Version = 3

// Kind is what a message is.
type Kind uint8

// The kinds. ID names a process or a dial for as long as the link lives, and is chosen by
// the manager; that of a query by the helper.
const (
	Hello    Kind = iota + 1 // helper: it is ready. A: Version, B, C: its pid and its user as it sees them
	Start                    // manager: start process ID. Args, Env, Text: the directory
	Started                  // helper: it runs, with stdin, stdout, stderr beside; or Text says why not
	Signal                   // manager: signal A to the group of process ID
	Kill                     // manager: SIGKILL to all that process ID started
	Ended                    // helper: process ID ended. A: exit code, B: signal or 0
	Dial                     // manager: connect to port A on loopback, as ID
	Dialed                   // helper: the connection is beside; or Text says why not
	Accepted                 // helper: a connection that a server made to a port that is listened on is beside. In the attached form A: its port, B: its IPv4 address
	Query                    // helper: Text is a query of DNS that a server sent, as ID of the helper's
	Answer                   // manager: Text is the answer to query ID
)

// Message is one of them. What its kind does not have is zero.
type Message struct {
	Kind    Kind
	ID      uint32
	A, B, C uint32
	Text    string
	Args    []string
	Env     []string
}

// ErrSize says that a message does not fit in a frame.
var ErrSize = errors.New("arguments and environment exceed 1 MiB")

// errFrame says that what came is no frame. It says no more: it is written by a stranger.
var errFrame = errors.New("malformed frame on the link")

// Append appends m as a frame that announces n descriptors.
func (m *Message) Append(b []byte, n int) ([]byte, error) {
	at := len(b)
	b = append(b, 0, 0, 0, 0, byte(m.Kind), byte(n), 0, 0)
	for _, v := range [...]uint32{m.ID, m.A, m.B, m.C} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = appendStrings(b, []string{m.Text})
	b = appendStrings(b, m.Args)
	b = appendStrings(b, m.Env)
	size := len(b) - at - headSize
	if size > MaxBody {
		return b[:at], ErrSize
	}
	binary.BigEndian.PutUint32(b[at:], uint32(size))
	return b, nil
}

func appendStrings(b []byte, all []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, s := range all {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

// head is the head of a frame.
type head struct {
	kind Kind
	body int
	fds  int
}

func readHead(p *[headSize]byte) (head, error) {
	h := head{kind: Kind(p[4]), fds: int(p[5])}
	n := binary.BigEndian.Uint32(p[:4])
	if n > MaxBody || h.kind < Hello || h.kind > Answer || h.fds > MaxDescriptors || p[6]|p[7] != 0 {
		return h, errFrame
	}
	h.body = int(n)
	return h, nil
}

// Decode reads the body of a frame.
func decode(kind Kind, body []byte) (Message, error) {
	m := Message{Kind: kind}
	for _, v := range [...]*uint32{&m.ID, &m.A, &m.B, &m.C} {
		if len(body) < 4 {
			return m, errFrame
		}
		*v, body = binary.BigEndian.Uint32(body), body[4:]
	}
	var text []string
	for _, list := range [...]*[]string{&text, &m.Args, &m.Env} {
		var ok bool
		if *list, body, ok = readStrings(body); !ok {
			return m, errFrame
		}
	}
	if len(text) != 1 || len(body) > 0 {
		return m, errFrame
	}
	m.Text = text[0]
	return m, nil
}

func readStrings(b []byte) (all []string, rest []byte, ok bool) {
	n, b, ok := readLength(b)
	if !ok || n == 0 {
		return nil, b, ok
	}
	all = make([]string, 0, n) // n strings take n bytes at least: readLength saw to it
	for range n {
		var size int
		if size, b, ok = readLength(b); !ok {
			return nil, nil, false
		}
		all, b = append(all, string(b[:size])), b[size:]
	}
	return all, b, true
}

// readLength reads a length that what follows can hold.
func readLength(b []byte) (n int, rest []byte, ok bool) {
	v, used := binary.Uvarint(b)
	if used <= 0 || v > uint64(len(b)-used) {
		return 0, nil, false
	}
	return int(v), b[used:], true
}
