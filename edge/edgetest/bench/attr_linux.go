package main

import "syscall"

// childAttr lets the kernel end a child whose starter is gone, so that nothing
// is left behind even when the starter was killed.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
