//go:build !linux

package main

import (
	"errors"
	"syscall"
)

var errLinux = errors.New("the row of the audit log needs Linux")

// What the row of the audit log needs of a Unix system.
const (
	reopens     = syscall.SIGHUP // which changes nothing
	notBlocking = 0
)

func makePipe(string) error { return errLinux }
