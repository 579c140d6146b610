//go:build !unix

package port

import "net"

// try finds out whether a loopback address can be listened at.
func try(address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return ln.Close()
}
