package door

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
)

// MaxRequestID is how many bytes an X-Request-Id may have.
const MaxRequestID = 128

// SoundID reports whether an X-Request-Id is one that can stand in a log: not
// long, and of letters, digits and what ids are written with.
func SoundID(id []byte) bool {
	if len(id) == 0 || len(id) > MaxRequestID {
		return false
	}
	for _, c := range id {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("-_.:/+=@~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// NewRequestID makes an id for a request that brought none. It tells requests
// apart, and is nobody's secret.
func NewRequestID() string {
	var raw [16]byte
	binary.LittleEndian.PutUint64(raw[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], rand.Uint64())
	var text [32]byte
	hex.Encode(text[:], raw[:])
	return string(text[:])
}
