//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"
)

// SIGUSR1 has the logs opened anew, as often as it comes, until it is stopped.
func TestReopening(t *testing.T) {
	reopened := make(chan struct{}, 1)
	stop := reopening(func() { reopened <- struct{}{} })
	for range 2 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reopened:
		case <-time.After(time.Minute):
			t.Fatal("nothing is opened anew")
		}
	}
	stop()
}
