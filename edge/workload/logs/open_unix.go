//go:build unix

package logs

import "syscall"

// noFollow has the opening of a file fail that is a symbolic link.
const noFollow = syscall.O_NOFOLLOW
