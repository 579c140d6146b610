package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
)

// state is what a requestState of the edge says, to the edge alone.
type state struct {
	Call      string `json:"c,omitempty"` // which parked call; "" for none
	Node      string `json:"n,omitempty"` // the edge that holds it
	Round     int    `json:"r,omitempty"` // which of its rounds: a state is used once
	Inner     string `json:"i,omitempty"` // the backend's own state, where no call is parked
	Server    string `json:"s"`
	Backend   string `json:"b"`
	Principal string `json:"p,omitempty"` // whose it is
	Digest    []byte `json:"d"`           // of the request that it belongs to
	Expires   int64  `json:"e"`           // Unix seconds
}

// sealer seals states, so that a client can neither read nor make them
// (2026-07-28, basic, multi round-trip requests: requestState is to be treated
// as attacker-controlled). The first key seals, all of them open.
type sealer struct{ keys []cipher.AEAD }

// sealed is what tells a state of the edge from what a backend calls its own,
// and is authenticated with it.
const sealed = "weir1."

// isSealed reports whether a state looks like one of the edge's.
func isSealed(text string) bool { return strings.HasPrefix(text, sealed) }

// maxState bounds what is looked at as a state: a backend's own may be in it.
const maxState = 256 << 10

// stateSecret and stateKey name the secret that has the keys where no file does.
const stateSecret, stateKey = "weir-state", "key"

// stateKeys returns the keys that seal states: those of a file, else those of a
// secret, else a random one, which lasts as long as the process. given says that
// it is no random one, so that other edges may have it, too.
func stateKeys(file string, secrets edge.Secrets) (keys [][]byte, given bool, err error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, false, fmt.Errorf("--state-key-file: %w", err)
		}
		keys, err = keysOf("--state-key-file: "+file, text)
		return keys, true, err
	}
	switch text, err := secrets.Secret(context.Background(), stateSecret, stateKey); {
	case err == nil:
		keys, err = keysOf("secret "+stateSecret+"/"+stateKey, []byte(text))
		return keys, true, err
	case !errors.Is(err, secret.ErrNowhere):
		return nil, false, err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, false, err
	}
	return [][]byte{key}, false, nil
}

// keysOf reads keys, one a line, 32 bytes in base64.
func keysOf(where string, text []byte) ([][]byte, error) {
	var keys [][]byte
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil || len(key) != 32 {
			return nil, fmt.Errorf("%s:%d: not a key of 32 bytes in base64; make one with: openssl rand -base64 32", where, n)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: no key; make one with: openssl rand -base64 32", where)
	}
	return keys, nil
}

// newSealer returns a sealer with keys of 32 bytes.
func newSealer(raw [][]byte) (*sealer, error) {
	s := &sealer{}
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

func (s *sealer) seal(v state) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and bytes always have a JSON form
	}
	return sealed + base64.RawURLEncoding.EncodeToString(s.keys[0].Seal(nil, nil, text, []byte(sealed)))
}

// open returns what a state says; false for one that is not the edge's, was
// changed, or has expired.
func (s *sealer) open(text string) (state, bool) {
	if len(text) > maxState || len(text) < len(sealed) || text[:len(sealed)] != sealed {
		return state{}, false
	}
	if strings.ContainsAny(text, "\r\n") { // which the decoder skips: a state has one spelling
		return state{}, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text[len(sealed):])
	if err != nil {
		return state{}, false
	}
	for _, key := range s.keys {
		plain, err := key.Open(nil, nil, raw, []byte(sealed))
		if err != nil {
			continue
		}
		var v state
		if json.Unmarshal(plain, &v) != nil || time.Now().Unix() > v.Expires {
			return state{}, false
		}
		return v, true
	}
	return state{}, false
}
