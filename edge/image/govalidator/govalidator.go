// Package govalidator stands in for the package of that name, of which what reads entries of
// transparency logs uses one function, and which compiles 90 patterns before main: 0.9 MiB of
// every process of Weir's. go.mod has it replaced.
package govalidator

import "net/mail"

// IsEmail reports whether a text is the address of a mailbox (RFC 5322, section 3.4.1), and
// nothing else.
func IsEmail(text string) bool {
	a, err := mail.ParseAddress(text)
	return err == nil && a.Name == "" && a.Address == text
}
