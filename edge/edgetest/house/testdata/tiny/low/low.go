// Package low uses nothing.
package low

// Key is a number with a method.
type Key int

/*
Not a line of code.
*/
func (k Key) String() string {
	return `key

of two lines`
}
