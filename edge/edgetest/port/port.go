// Package port finds addresses for programs that cannot be given an open
// listener.
package port

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports that are tried lie below those that systems hand out for
// connections of their own (32768 and up on Linux, 49152 and up elsewhere) and
// below those that the manager of workloads chooses from (20000 to 29999), so
// that neither takes one between Free and its use.
const (
	lowest  = 10000
	highest = 20000
	tries   = 100
)

// marks holds what Free took, which the end of the process gives back.
var marks sync.Map // address -> net.PacketConn

// Free returns a loopback address (host:port) on which nothing listens now, and
// which no other call, of this process or another, returns while this process
// lives: the UDP port of that number is held as the mark that it is given away.
func Free() (string, error) {
	var last error
	for range tries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(highest-lowest)))
		mark, err := net.ListenPacket("udp", address)
		if err != nil {
			last = err
			continue
		}
		if err := try(address); err != nil {
			last = errors.Join(err, mark.Close())
			continue
		}
		marks.Store(address, mark)
		return address, nil
	}
	return "", fmt.Errorf("free address: %w", errors.Join(errors.New("every port tried is taken"), last))
}
