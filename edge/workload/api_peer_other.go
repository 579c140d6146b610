//go:build !linux && !darwin

package workload

import "net"

// ofThisUser relies on the rights of the socket's directory: this system does not say whose
// a process is that dials it.
func ofThisUser(net.Conn) bool { return true }
