package edge

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Digest returns what of a key stands for parts that clients sent: 32 hex digits, which
// are the same for the same parts alone.
func Digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
