package authserver

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// use is what a key is for. No key is used for two things.
type use int

// The uses of keys. The first three seal, the others authenticate.
const (
	useRecord use = iota
	useForm
	useClient
	useCode
	useRefresh
	useClientSecret
	uses
)

// labels set the keys of the uses apart (RFC 5869 §3.2).
var labels = [uses]string{"record", "form", "client id", "code", "refresh token", "client secret"}

// minSecret is how many bytes a secret has at least.
const minSecret = 32

// ring is the secrets of an authorization server, the current one first: it makes what the
// others only verify and open. It is immutable.
type ring struct {
	keys []derived
}

// derived is what follows from one secret.
type derived struct {
	digest string // 8 hex that name the secret
	seals  [useCode]cipher.AEAD
	macs   [uses][]byte
}

// newRing derives the keys of secrets for an issuer.
func newRing(issuer string, secrets [][]byte) (*ring, error) {
	r := &ring{}
	for i, secret := range secrets {
		if len(secret) < minSecret {
			return nil, fmt.Errorf("secret %d of hmacSecretRefs has %d bytes, and needs %d: make one with: weir auth keygen", i+1, len(secret), minSecret)
		}
		var d derived
		for u := range uses {
			key, err := hkdf.Key(sha256.New, secret, nil, "weir authorization server 1\x00"+labels[u]+"\x00"+issuer, 32)
			if err != nil {
				return nil, err
			}
			if u >= useCode {
				d.macs[u] = key
				continue
			}
			block, err := aes.NewCipher(key)
			if err != nil {
				return nil, err
			}
			if d.seals[u], err = cipher.NewGCMWithRandomNonce(block); err != nil {
				return nil, err
			}
		}
		name, err := hkdf.Key(sha256.New, secret, nil, "weir authorization server 1\x00name\x00"+issuer, 4)
		if err != nil {
			return nil, err
		}
		d.digest = hex.EncodeToString(name)
		r.keys = append(r.keys, d)
	}
	return r, nil
}

// seal encrypts text, so that it opens for the same use and place alone.
func (r *ring) seal(u use, text []byte, place string) []byte {
	return r.keys[0].seals[u].Seal(nil, nil, text, []byte(place))
}

// open returns what was sealed, and which secret it was; false for anything else.
func (r *ring) open(u use, sealed []byte, place string) (text []byte, which int, ok bool) {
	for i := range r.keys {
		if text, err := r.keys[i].seals[u].Open(nil, nil, sealed, []byte(place)); err == nil {
			return text, i, true
		}
	}
	return nil, 0, false
}

// mac authenticates a text by one of the secrets.
func (r *ring) mac(u use, which int, text string) []byte {
	h := hmac.New(sha256.New, r.keys[which].macs[u])
	h.Write([]byte(text))
	return h.Sum(nil)
}

// signed is a text with its mac behind a period.
func (r *ring) signed(u use, text string) string { return text + "." + b64(r.mac(u, 0, text)) }

// holds reports whether a mac in base64url is that of a text, by any of the secrets.
func (r *ring) holds(u use, text, mac string) bool {
	got, err := base64.RawURLEncoding.Strict().DecodeString(mac)
	if err != nil {
		return false
	}
	for i := range r.keys {
		if hmac.Equal(got, r.mac(u, i, text)) {
			return true
		}
	}
	return false
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// random is 256 random bits.
func random() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // it never fails
	return b64(bits[:])
}

// short is 32 random bits in hex, which tell things of one browser apart.
func short() string {
	var bits [4]byte
	_, _ = rand.Read(bits[:])
	return hex.EncodeToString(bits[:])
}

// digest is what stands for a text that nobody may read.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
