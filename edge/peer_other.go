//go:build !linux && !darwin

package edge

import "net"

// OfThisUser relies on the rights of the socket's directory: this system does not say whose
// a process is that dials it.
func OfThisUser(net.Conn) bool { return true }
