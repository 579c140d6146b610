package edgetest

import (
	"net"
	"syscall"
)

// hold takes a loopback port without listening on it: connections are refused,
// and no other server is given it, until release is called. It reports whether
// the port could be had.
func hold(address *net.TCPAddr) (release func(), ok bool) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	at := &syscall.SockaddrInet4{Port: address.Port}
	copy(at.Addr[:], address.IP.To4())
	// Connections of the server that was there may still linger at the port.
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, at)
	}
	if err == nil { // and now it is shared with nobody
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, false
	}
	return func() { _ = syscall.Close(fd) }, true
}
