//go:build unix

package main

import "syscall"

// detachedProcess has a process live on when the terminal is closed.
func detachedProcess() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
