package edge

import (
	"context"
	"slices"
)

// Credential is what the edge shows to a backend: header lines that are made for each
// request. It is safe for concurrent use, and is nil for none.
type Credential struct {
	// Name is the name under which a program chooses it; "" for that of a backend.
	Name string

	// Headers are the names of the lines that Attach sets. What anybody else sends under
	// one of them is left out.
	Headers []string

	// Attach calls set once for each of Headers, with a value that can stand in a header,
	// or returns an error. After an error the request must not be sent, whatever has been
	// set. The error is an *Error: Unavailable for a credential that cannot be had, Denied
	// for a client that may not have one; its text names no secret. x is the exchange that
	// the request is made for, nil for requests of the edge's own, such as health checks
	// and lists. nil for a credential of no lines.
	Attach func(ctx context.Context, x *Exchange, set func(name string, value Secret)) error
}

// Sets reports whether Attach sets a line of a name, or of one that may be taken for it.
func (c *Credential) Sets(name string) bool {
	return c != nil && slices.ContainsFunc(c.Headers, func(n string) bool { return SameHeader(n, name) })
}

// With returns a credential that has the lines of others, too, but for those that c sets.
func (c *Credential) With(others *Credential) *Credential {
	if others == nil || others.Attach == nil {
		return c
	}
	both := &Credential{Name: c.Name, Headers: slices.Concat(c.Headers, others.Headers)}
	both.Attach = func(ctx context.Context, x *Exchange, set func(string, Secret)) error {
		err := others.Attach(ctx, x, func(name string, value Secret) {
			if !c.Sets(name) {
				set(name, value)
			}
		})
		if err != nil || c.Attach == nil {
			return err
		}
		return c.Attach(ctx, x, set)
	}
	return both
}

// SameHeader reports whether two names of headers may be one to whoever reads them:
// whatever the case, and with a dash or an underscore, which programs behind gateway
// interfaces cannot tell apart (RFC 3875 §4.1.18).
func SameHeader(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c - 'A' + 'a'
	case c == '_':
		return '-'
	}
	return c
}
