//go:build !linux

package serve

func forgetProgram() {}
