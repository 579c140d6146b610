package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/session"
)

// seals are the keys that seal the states of parked calls, and sign messages of replicas.
type seals struct {
	signer *relay.Signer
	shared bool     // other edges may have the keys
	keys   [][]byte // a process that replaces this one is given them
}

// stateSecret and stateKey name the secret with the keys, if no file has them.
const stateSecret, stateKey = "weir-state", "key"

// stateKeys returns the keys that seal states: those of a file, else those of a secret,
// else a random one for the life of the process. given reports that they are not random,
// so that other edges may have them.
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

// maxParkedBytes bounds the requests of all parked calls in bytes, if large requests may
// have as many. A holder may have a quarter.
const maxParkedBytes = 64 << 20

// parkedFor returns the parked calls of a process with these settings.
func parkedFor(s Settings, seal *route.Sealer, r *relay.Relay) *route.Parked {
	room := max(int(min(maxParkedBytes, door.MostForBodies())), s.MaxBody)
	return route.NewParked(route.ParkOptions{
		Most: s.MaxParked, TTL: s.ParkTTL, Cap: s.CallCap, Node: r.Node, Room: room, Part: max(room/4, s.MaxBody), Claims: &r.Claims,
	}, seal)
}

// takeKeys takes the keys of the process before, so that its states open here and those of
// this one there. They replace a random key.
func (e *Edge) takeKeys(handed [][]byte) {
	keys := e.seal.keys
	if !e.seal.shared && len(handed) > 0 {
		keys = nil
	}
	for _, k := range handed {
		if len(keys) < session.MaxKeys && !slices.ContainsFunc(keys, func(have []byte) bool { return bytes.Equal(have, k) }) {
			keys = append(keys, k)
		}
	}
	seal, err := route.NewSealer(keys)
	if err != nil {
		e.log.Warn("states of the process before cannot be opened", "error", err)
		return
	}
	e.seal.keys = keys
	e.replicas.Parked.Reseal(seal)
}
