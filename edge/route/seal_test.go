package route_test

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge/route"
)

// FuzzState looks for a requestState that opens though the edge did not seal
// it.
func FuzzState(f *testing.F) {
	sealer, err := route.NewSealer([][]byte{bytes.Repeat([]byte{7}, 32)})
	if err != nil {
		f.Fatal(err)
	}
	now := time.Now().Add(time.Hour).Unix()
	f.Add("call", 1, "back", []byte("digest"), now, "weir1.AAAA", 7)
	f.Add("", 0, "", []byte(nil), int64(0), "", 0)
	f.Add("é\xff", -1, "\x00", bytes.Repeat([]byte{1}, 32), int64(-1), "weir1."+strings.Repeat("A", 200), 40)
	f.Fuzz(func(t *testing.T, call string, round int, backend string, digest []byte, expires int64, forged string, at int) {
		if v, ok := sealer.Open(forged); ok {
			t.Fatalf("%q opens: %+v", forged, v)
		}
		want := route.State{Call: call, Round: round, Backend: backend, Digest: digest, Expires: expires}
		text := sealer.Seal(want)
		got, ok := sealer.Open(text)
		past := time.Now().Unix() > expires
		switch {
		case len(text) > 4<<10:
			if ok {
				t.Fatalf("a state of %d bytes opens", len(text))
			}
		case ok == past && time.Now().Unix() != expires:
			t.Fatalf("opens: %v, expired: %v", ok, past)
		case ok && (utf8.ValidString(call) && got.Call != call || utf8.ValidString(backend) && got.Backend != backend || got.Round != round || !bytes.Equal(got.Digest, digest) || got.Expires != expires):
			t.Fatalf("%+v opens as %+v", want, got)
		}
		// Any other text near it does not open.
		at = ((at % len(text)) + len(text)) % len(text)
		for _, c := range []byte{'A', 'a', '.', '-', '_', '=', '\n', ' ', 0} {
			for _, near := range []string{text[:at] + string(c) + text[at+1:], text[:at] + string(c) + text[at:], text[:at] + text[at+1:]} {
				if near == text {
					continue
				}
				if v, ok := sealer.Open(near); ok {
					t.Fatalf("%q opens like %q: %+v", near, text, v)
				}
			}
		}
	})
}
