// Package headers decides which header lines of a client travel on to backends:
// those of an allowlist, as they came, and no others. It also takes the client's
// credential off the exchange once the incoming filter has read it.
package headers

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/outgoing"
)

// Bounds of an allowlist, and of the lines that pass with one message.
const (
	MaxNames = 64
	MaxLines = 64
	MaxBytes = 8 << 10 // of names and values together
)

// Part is the allowlist of one server. It is immutable and safe for concurrent
// use.
type Part struct{ allow []string }

// Parse makes the part of a server, or says everything that is wrong with its
// list (passthroughHeaders of the virtual server document). path is where the
// list stands. Names are compared without case.
//
// A name that is set by the edge, that belongs to one connection, or in which
// clients send credentials cannot be passed on. Names in strip are not passed on
// though the list has them: those that every backend is sent in any case.
func Parse(path *field.Path, allow, strip []string) (*Part, field.ErrorList) {
	var errs field.ErrorList
	if len(allow) > MaxNames {
		return nil, append(errs, field.TooMany(path, len(allow), MaxNames))
	}
	p := &Part{}
	for i, name := range allow {
		path := path.Index(i)
		switch {
		case name == "":
			errs = append(errs, field.Required(path, ""))
		case !outgoing.IsName(name):
			errs = append(errs, field.Invalid(path, name, "must be the name of a header (RFC 9110 §5.1)"))
		case outgoing.Credential(name):
			errs = append(errs, field.Forbidden(path, "a client's "+name+" is never forwarded; use outgoing authentication"))
		case outgoing.Restricted(name):
			errs = append(errs, field.Forbidden(path, name+" is set by the edge itself"))
		case has(allow[:i], name):
			errs = append(errs, field.Duplicate(path, name))
		case !has(strip, name):
			p.allow = append(p.allow, name)
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return p, nil
}

func has(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return edge.SameHeader(n, name) })
}

// Take is for the door, which alone sees a client's header: it appends a line to
// lines if the list has its name, as a copy that shares no memory with name and
// value. It stops after the first line that exceeds the filter's bounds, so that
// a client cannot make an exchange large. A nil Part takes nothing.
func (p *Part) Take(lines []edge.Header, name, value []byte) []edge.Header {
	if p == nil || !p.wants(name) || tooMuch(lines) {
		return lines
	}
	return append(lines, edge.Header{Name: string(name), Value: string(value)})
}

func (p *Part) wants(name []byte) bool {
	for _, n := range p.allow {
		if len(n) == len(name) && equal(n, name) {
			return true
		}
	}
	return false
}

// equal compares names without case (RFC 9110 §5.1), and normalizes nothing
// else: only a name that is listed passes.
func equal(a string, b []byte) bool {
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c - 'A' + 'a'
	}
	return c
}

func tooMuch(lines []edge.Header) bool {
	size := 0
	for _, l := range lines {
		size += len(l.Name) + len(l.Value)
	}
	return len(lines) > MaxLines || size > MaxBytes
}

// Open is edge.Part.Open. The filter holds x.Forward to the list, whoever put
// lines there.
func (p *Part) Open(edge.Env) (edge.Filter, error) {
	return func(next edge.Handler) edge.Handler {
		return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
			if len(x.Forward) > 0 {
				if err := p.Judge(x); err != nil {
					return nil, err
				}
			}
			return next.Handle(ctx, x)
		})
	}, nil
}

// Judge leaves in x.Forward only the lines that may pass. The error is Invalid where they are more
// than the bounds, or one has a control character.
func (p *Part) Judge(x *edge.Exchange) error {
	x.Forward = slices.DeleteFunc(x.Forward, func(l edge.Header) bool {
		return !slices.ContainsFunc(p.allow, func(n string) bool { return len(n) == len(l.Name) && equal(n, []byte(l.Name)) })
	})
	if tooMuch(x.Forward) {
		return edge.Errorf(edge.Invalid, "headers", "more header lines to pass on than %d, or more than %d bytes of them", MaxLines, MaxBytes)
	}
	for _, l := range x.Forward {
		for i := range len(l.Value) {
			if c := l.Value[i]; c < ' ' && c != '\t' || c == 0x7f {
				return edge.Errorf(edge.Invalid, "headers", "the value of header %s has a control character", l.Name)
			}
		}
	}
	return nil
}
