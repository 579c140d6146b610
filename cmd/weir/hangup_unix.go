//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyHangup sends the signal that has the configuration read again.
func notifyHangup(c chan<- os.Signal) { signal.Notify(c, syscall.SIGHUP) }

// outliveReaders has the process go on when whoever reads its standard output or error goes away:
// what it writes there fails, where otherwise the first line ends it (os/signal, SIGPIPE).
// Processes that it starts are not concerned.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// notifyReopen sends the signal that has log files opened anew.
func notifyReopen(c chan<- os.Signal) { signal.Notify(c, syscall.SIGUSR1) }
