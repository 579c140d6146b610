package main

import "syscall"

// detachedProcess has a process live on when the terminal is closed.
func detachedProcess() *syscall.SysProcAttr {
	const detached = 0x8 // DETACHED_PROCESS
	return &syscall.SysProcAttr{CreationFlags: detached | syscall.CREATE_NEW_PROCESS_GROUP}
}
