//go:build unix

package wasi

import "syscall"

func namedPipe(path string) bool { return syscall.Mkfifo(path, 0o600) == nil }
