//go:build linux

package main

import "syscall"

// What the row of the audit log needs of a Unix system.
const (
	reopens     = syscall.SIGUSR1 // has log files opened anew
	notBlocking = syscall.O_NONBLOCK
)

// makePipe makes a pipe with a name.
func makePipe(name string) error { return syscall.Mkfifo(name, 0o600) }
