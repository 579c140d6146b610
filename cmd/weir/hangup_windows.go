package main

import "os"

// notifyHangup does nothing: here is no such signal.
func notifyHangup(chan<- os.Signal) {}

// outliveReaders does nothing: here is no such signal.
func outliveReaders() {}

// notifyReopen does nothing: here is no such signal.
func notifyReopen(chan<- os.Signal) {}
