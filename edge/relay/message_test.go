package relay

import (
	"bytes"
	"testing"
)

// A message that no replica wrote is none.
func FuzzMessage(f *testing.F) {
	f.Add(Message{Kind: KindRetry, From: "0123456789abcdef", Stream: "x"}.Pack([]byte("{}")))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if l, body, ok := Unpack(text); ok {
			again, rest, ok := Unpack(l.Pack(body))
			if !ok || !bytes.Equal(rest, body) || again.Kind != l.Kind || again.Stream != l.Stream || again.Event != l.Event {
				t.Errorf("%q: %+v", text, again)
			}
		}
	})
}
