//go:build unix

package port

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
)

// try finds out whether a loopback address can be listened at. It listens at none itself: a
// process that begins meanwhile has the socket as well until it runs its program, and one that
// listens would keep the address taken after it is closed here.
func try(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	syscall.CloseOnExec(s)
	// As the standard library has it for listeners: two such sockets go together as long as
	// neither listens.
	err = syscall.SetsockoptInt(s, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(s, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	return errors.Join(os.NewSyscallError("bind "+address, err), syscall.Close(s))
}
