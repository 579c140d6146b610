package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
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

// stateKeys returns the keys that seal states: those of a file, else those of a secret,
// else a random one for the life of the process, also where secrets are not unlocked or set up
// yet, or their file is damaged, which the log says. given reports that they are not random, so
// that other edges may have them.
func stateKeys(file string, secrets edge.Secrets, log *slog.Logger) (keys [][]byte, given bool, err error) {
	if file != "" {
		text, err := edge.ReadKeys(file)
		if err == nil {
			keys, err = secret.ParseStateKeys(file, text)
		}
		if err != nil {
			return nil, false, fmt.Errorf("--state-key-file: %w", err)
		}
		return keys, true, nil
	}
	switch text, err := secrets.Secret(context.Background(), secret.State, secret.StateKey); {
	case err == nil:
		keys, err = secret.ParseStateKeys("secret "+secret.State+"/"+secret.StateKey, []byte(text))
		return keys, true, err
	case errors.Is(err, secret.ErrDamaged):
		log.Warn("a random key stands in for the key of states until the next start", "error", err)
	case !errors.Is(err, secret.ErrNowhere) && !errors.Is(err, secret.ErrLocked) && !errors.Is(err, secret.ErrNotSetUp):
		return nil, false, err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, false, err
	}
	return [][]byte{key}, false, nil
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
