// Package port finds addresses for programs that cannot be given an open
// listener.
package port

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports that are tried lie below those that systems hand out for
// connections of their own (32768 and up on Linux, 49152 and up elsewhere), so
// that no connection takes one between Free and its use.
const (
	lowest  = 15000
	highest = 32000
	tries   = 100
)

// Free returns a loopback address (host:port) on which nothing listens now.
// Two programs that ask at the same time are unlikely to hear the same.
func Free() (string, error) {
	var last error
	for range tries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(highest-lowest)))
		ln, err := net.Listen("tcp", address)
		if err != nil {
			last = err
			continue
		}
		if err := ln.Close(); err != nil {
			return "", fmt.Errorf("free address: %w", err)
		}
		return address, nil
	}
	return "", fmt.Errorf("free address: %w", errors.Join(errors.New("every port tried is taken"), last))
}
