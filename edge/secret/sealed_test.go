package secret

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"maps"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// FuzzSealed gives the reader of the file all kinds of texts, as they are and with a right
// digest. What it takes it opens, with the right key, or refuses; nothing else is an error.
func FuzzSealed(f *testing.F) {
	k := newKey("correct horse battery", cost{1, 8, 1}, [saltSize]byte{1})
	for _, values := range []map[Ref]edge.Secret{nil, {{Own, "A"}: "v"}, {{Own, "A"}: "v", {"tls", "key.pem"}: "a longer value"}} {
		text, err := k.encode(values)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, text []byte) {
		for range 2 {
			s, err := decode(text)
			if err == nil {
				if !s.cost.sound() {
					t.Errorf("a cost of %+v", s.cost)
				}
				_, err = s.open(k)
				if err == nil && !s.made(k) && !bytes.Equal(s.head[:checkAt], k.head()[:checkAt]) {
					t.Error("a file of another key is opened")
				}
			}
			if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Error(err)
			}
			if len(text) < digestSize {
				return
			}
			text = bytes.Clone(text)
			sum := sha256.Sum256(text[:len(text)-digestSize])
			copy(text[len(text)-digestSize:], sum[:])
		}
	})
}

// FuzzUnpack gives the reader of values all kinds of texts: what it takes it would have
// written itself, in some order.
func FuzzUnpack(f *testing.F) {
	for _, values := range []map[Ref]edge.Secret{nil, {{Own, "A"}: "v"}, {{Own, "A"}: "v", {"tls", "key.pem"}: "a longer value"}} {
		text, err := pack(values)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("\x00\x03a/b\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		values, err := unpack(text)
		if err != nil {
			if !errors.Is(err, ErrDamaged) || values != nil {
				t.Error(err)
			}
			return
		}
		again, err := pack(values)
		if err != nil || len(again) != len(text) {
			t.Fatalf("%q was read, and %q, %v is written", text, again, err)
		}
		if same, err := unpack(again); err != nil || !maps.Equal(values, same) {
			t.Errorf("%q is not read as it was written: %v", again, err)
		}
	})
}
