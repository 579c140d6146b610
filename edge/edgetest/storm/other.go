//go:build !linux

package main

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
)

var errLinux = errors.New("the figures come from the kernel's own tables: this needs Linux")

const stops, goesOn = syscall.Signal(0), syscall.Signal(0)

func childAttr() *syscall.SysProcAttr { return nil }

func raiseFiles() error { return errLinux }

func maxFiles() int { return 0 }

func receiveBuffer(int) func(network, address string, c syscall.RawConn) error { return nil }

func (c *client) closed() bool { return false }

func (c *client) reset() { c.conn.Close() }

type socket struct {
	state          uint8
	local, peer    netip.AddrPort
	unread, unsent int
	held           int
}

const (
	established = 1
	closeWait   = 8
)

func sockets(map[uint16]bool) ([]socket, error) { return nil, errLinux }

func pageSize() int { return os.Getpagesize() }

// What the row of the audit log needs of a Unix system.
const (
	reopens     = syscall.SIGHUP // which changes nothing
	notBlocking = 0
)

func makePipe(string) error { return errLinux }
