//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyHangup sends the signal that has the configuration read again.
func notifyHangup(c chan<- os.Signal) { signal.Notify(c, syscall.SIGHUP) }

// notifyReopen sends the signal that has log files opened anew.
func notifyReopen(c chan<- os.Signal) { signal.Notify(c, syscall.SIGUSR1) }
