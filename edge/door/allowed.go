package door

import "bytes"

// Allowed is a list of exact values, of Host or of Origin.
type Allowed struct {
	Any    bool // everything passes
	values [][]byte
}

// Allow reports whether a value passes.
func (a *Allowed) Allow(v []byte) bool {
	if a.Any {
		return true
	}
	for _, one := range a.values {
		if bytes.Equal(one, v) {
			return true
		}
	}
	return false
}

// Add lets values pass.
func (a *Allowed) Add(values ...string) {
	for _, v := range values {
		a.values = append(a.values, []byte(v))
	}
}
