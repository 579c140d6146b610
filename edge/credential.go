package edge

import (
	"context"
	"net/url"
	"slices"
)

// Outbound is a request to a backend on which there is no credential yet.
type Outbound struct {
	Exchange *Exchange // that it is made for; nil for requests of the edge's own, such as health checks and lists
	Method   string    // of HTTP
	URL      *url.URL  // that is called; not to be changed
	Lines    []byte    // the header lines that are sent, Host the first of them, each with a CRLF before it
	Body     []byte    // nil for none
	Refused  bool      // the backend has just answered 401 to the credential that Attach gave: it should be another, if it can
	Sent     uint64    // with Refused: the generation of that credential
}

// Noted returns a request to which set, as it returns it, adds the lines that it sets: for
// a credential that signs what others set before.
func (r *Outbound) Noted(set func(name string, value Secret)) (*Outbound, func(name string, value Secret)) {
	with := *r
	with.Lines = slices.Clip(r.Lines)
	return &with, func(name string, value Secret) {
		with.Lines = append(append(append(append(with.Lines, "\r\n"...), name...), ": "...), value...)
		set(name, value)
	}
}

// Credential is what the edge shows to a backend: header lines that are made for each
// request. It is safe for concurrent use, and is nil for none.
type Credential struct {
	// Name is the name under which a program chooses it; "" for that of a backend.
	Name string

	// Headers are the names of the lines that Attach sets. What anybody else sends under
	// one of them is left out.
	Headers []string

	// Personal reports whether it depends on the user that a request is made for.
	Personal bool

	// Signs reports whether Attach signs the lines of a request: it is asked after all others.
	Signs bool

	// Attach calls set once for each of Headers, with a value that can stand in a header,
	// or returns an error. After an error the request must not be sent, whatever has been
	// set. The error is an *Error: Unavailable or Timeout for a credential that cannot be
	// had, Unauthenticated for a client that has to sign in again, Denied for one that may
	// not have it; its text names no secret. Nothing of r is kept or changed.
	//
	// The generation is another number whenever the credential is another one, whatever the
	// lines are: a signature is another each second, and its key is not. It is not 0 where
	// something is set. A personal credential sets nothing, and has generation 0, for a request of the edge's
	// own: that goes without.
	//
	// nil for a credential of no lines.
	Attach Attach
}

// Attach is what sets the lines of a Credential.
type Attach func(ctx context.Context, r *Outbound, set func(name string, value Secret)) (generation uint64, err error)

// Sets reports whether Attach sets a line of a name, or of one that may be taken for it.
func (c *Credential) Sets(name string) bool {
	return c != nil && slices.ContainsFunc(c.Headers, func(n string) bool { return SameHeader(n, name) })
}

// With returns a credential that has the lines of others, too, but for those that c sets.
func (c *Credential) With(others *Credential) *Credential {
	if others == nil || others.Attach == nil {
		return c
	}
	both := &Credential{Name: c.Name, Headers: slices.Concat(c.Headers, others.Headers), Personal: c.Personal || others.Personal, Signs: c.Signs}
	both.Attach = func(ctx context.Context, r *Outbound, set func(string, Secret)) (uint64, error) {
		if c.Signs {
			r, set = r.Noted(set)
		}
		before, err := others.Attach(ctx, r, func(name string, value Secret) {
			if !c.Sets(name) {
				set(name, value)
			}
		})
		if err != nil || c.Attach == nil {
			return before, err
		}
		own, err := c.Attach(ctx, r, set)
		return Generations(before, own), err
	}
	return both
}

// Generations is the generation of two credentials that go together.
func Generations(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return a | b
	}
	// A multiplication by an odd number keeps small numbers apart.
	return a*0x9e3779b97f4a7c15 ^ b | 1<<63
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
