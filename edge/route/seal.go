package route

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// State is the content of a requestState of the edge, which only the edge can read.
type State struct {
	Call      string `json:"c,omitempty"` // id of the parked call; "" for none
	Node      string `json:"n,omitempty"` // the edge that holds it
	Round     int    `json:"r,omitempty"` // the round of the call: a state can be used once
	Inner     string `json:"i,omitempty"` // the backend's own state, where no call is parked
	Server    string `json:"s"`
	Backend   string `json:"b"`
	Principal string `json:"p,omitempty"` // of the client
	Digest    []byte `json:"d"`           // of the request that it belongs to
	Expires   int64  `json:"e"`           // Unix seconds
}

// Key returns a name for the round of a parked call to which a state belongs.
func (s State) Key() string { return "call " + s.Call + " " + strconv.Itoa(s.Round) }

// Sealer seals states, so that a client can neither read nor make them
// (2026-07-28, basic, multi round-trip requests: requestState is to be treated
// as attacker-controlled). The first key seals, all of them open.
type Sealer struct{ keys []cipher.AEAD }

// sealed is the prefix that distinguishes states of the edge from those of backends; it
// is authenticated with the state.
const sealed = "weir1."

// IsSealed reports whether a state looks like one of the edge's.
func IsSealed(text string) bool { return strings.HasPrefix(text, sealed) }

// maxState bounds the bytes of a state; it may contain a backend's own.
const maxState = 256 << 10

// NewSealer returns a sealer with keys of 32 bytes.
func NewSealer(raw [][]byte) (*Sealer, error) {
	s := &Sealer{}
	for _, key := range raw {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		s.keys = append(s.keys, aead)
	}
	return s, nil
}

// Seal encrypts a state into the text of a requestState.
func (s *Sealer) Seal(v State) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and bytes always have a JSON form
	}
	return sealed + base64.RawURLEncoding.EncodeToString(s.keys[0].Seal(nil, nil, text, []byte(sealed)))
}

// Open decrypts a requestState; false for one that is not the edge's, was changed, or
// has expired.
func (s *Sealer) Open(text string) (State, bool) {
	if len(text) > maxState || len(text) < len(sealed) || text[:len(sealed)] != sealed {
		return State{}, false
	}
	if strings.ContainsAny(text, "\r\n") { // the decoder skips these, and a state must have one spelling
		return State{}, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text[len(sealed):])
	if err != nil {
		return State{}, false
	}
	for _, key := range s.keys {
		plain, err := key.Open(nil, nil, raw, []byte(sealed))
		if err != nil {
			continue
		}
		var v State
		if json.Unmarshal(plain, &v) != nil || time.Now().Unix() > v.Expires {
			return State{}, false
		}
		return v, true
	}
	return State{}, false
}
