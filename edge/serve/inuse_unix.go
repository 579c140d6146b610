//go:build unix

package serve

import (
	"errors"
	"syscall"
)

func isInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
