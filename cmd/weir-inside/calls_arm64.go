//go:build linux

package main

import "golang.org/x/sys/unix"

const (
	nativeArch = unix.AUDIT_ARCH_AARCH64
	x32Bit     = 0
)

// ownCalls are those of this architecture alone.
var ownCalls = [...]uint32{}

var ownModeCalls, ownOwnerCalls []placed
