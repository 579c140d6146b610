package door

import (
	"errors"
	"syscall"
)

// passes reports whether what kept a connection from being accepted passes.
func passes(err error) bool {
	for _, code := range []syscall.Errno{syscall.ECONNABORTED} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}
