//go:build linux

package main

// int80 makes a system call without arguments by the entry of i386.
func int80(nr uintptr) uintptr
