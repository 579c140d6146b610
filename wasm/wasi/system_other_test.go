//go:build !unix

package wasi

func namedPipe(string) bool { return false }
