package secret

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/edge"
)

// State and StateKey name the secret with the keys that seal states, where no
// file has them.
const State, StateKey = "weir-state", "key"

const makeOne = "make one with: openssl rand -base64 32"

// ParseStateKeys reads the keys that seal states, one a line, 32 bytes in base64.
// The error begins with where they stand.
func ParseStateKeys(where string, text []byte) ([][]byte, error) {
	keys, err := stateKeys(where, text)
	if err != nil {
		return nil, fmt.Errorf("%w; "+makeOne, err)
	}
	return keys, nil
}

func stateKeys(where string, text []byte) (keys [][]byte, err error) {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != 32 {
			return nil, fmt.Errorf("%s:%d: not a key of 32 bytes in base64", where, n)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: no key in it", where)
	}
	return keys, nil
}

// LookAtStateKeys says whether a file has keys that seal states, for its owner
// alone.
func LookAtStateKeys(path string) edge.Finding {
	text, err := edge.ReadKeys(path)
	var keys [][]byte
	if err == nil {
		keys, err = stateKeys(path, text)
	}
	if err != nil {
		return edge.Problem(edge.ClassFile, "put a key of 32 bytes in base64 on each line; "+makeOne, "%v", err)
	}
	if f := edge.OwnersAlone(path); f.Level != edge.LevelOK {
		return f
	}
	return edge.Fine(edge.Count(len(keys), "key"))
}
