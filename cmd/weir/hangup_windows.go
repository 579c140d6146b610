package main

import "os"

// notifyHangup does nothing: here is no such signal.
func notifyHangup(chan<- os.Signal) {}

// notifyReopen does nothing: here is no such signal.
func notifyReopen(chan<- os.Signal) {}
