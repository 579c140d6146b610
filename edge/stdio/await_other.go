//go:build unix && !linux

package stdio

// awaitExit reports false: here a child that has ended is reaped by whoever waits for it.
func awaitExit(int) bool { return false }
