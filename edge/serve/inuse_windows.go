package serve

import (
	"errors"
	"syscall"
)

func isInUse(err error) bool { return errors.Is(err, syscall.Errno(10048)) } // WSAEADDRINUSE
