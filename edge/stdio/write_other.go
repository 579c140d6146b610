//go:build !unix

package stdio

import "syscall"

// write says that nothing can be written without waiting.
func write(uintptr, []byte) (int, error) { return 0, syscall.EAGAIN }
