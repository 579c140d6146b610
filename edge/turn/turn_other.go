//go:build !linux || !(amd64 || arm64)

package turn

import "net"

// Turn takes the turns of one connection: here none has any.
type Turn struct{}

// Of reports that the connection has no turns.
func (*Turn) Of(net.Conn) bool { return false }

// Able reports that the connection has no turns.
func (*Turn) Able() bool { return false }

func (*Turn) take(_, _ []byte, _ bool) (n, sent int, err error) { return 0, 0, errShort }
