package session

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/weir-edge/weir/edge/relay"
)

// What is handed over goes in frames: a length, and a message of relay behind it.

// frame writes a message with its length before it.
func frame(w io.Writer, l relay.Message, body []byte) error {
	text := l.Pack(body)
	if len(text) > maxHandedFrame {
		return errTooLargeToHand
	}
	return writeFrame(w, text)
}

var errTooLargeToHand = fmt.Errorf("it has more than %d bytes", maxHandedFrame)

func writeFrame(w io.Writer, text []byte) error {
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(text)))
	_, err := w.Write(append(head[:], text...))
	return err
}

// readFrame reads what writeFrame wrote. Memory is taken for what has come, not
// for what is announced.
func readFrame(r io.Reader, most int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > int64(most) {
		return nil, fmt.Errorf("%d bytes are announced, and %d is the most", n, most)
	}
	var text bytes.Buffer
	got, err := io.CopyN(&text, r, n)
	if err != nil {
		return nil, fmt.Errorf("it ends after %d of %d bytes: %w", got, n, err)
	}
	return text.Bytes(), nil
}
