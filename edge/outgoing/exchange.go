package outgoing

import (
	"errors"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// faultError is why a credential cannot be had. Its text may reach a client, so the cause
// is not in it, and only unwrapped.
type faultError struct {
	kind  edge.Kind
	final bool // it was refused, and would be again
	cause error
}

func (e *faultError) Error() string {
	switch e.kind {
	case edge.Unauthenticated:
		return "sign in again"
	case edge.Denied:
		return "access to the backend is refused"
	}
	return "no credential for the backend"
}

func (e *faultError) Unwrap() error { return e.cause }

// fault returns the error of a Maker or of an Attach. Only the log shows its cause. final
// says that whoever was asked has decided, and would decide the same again: the next calls
// wait longer for another attempt.
func fault(kind edge.Kind, final bool, cause error) error {
	return &edge.Error{Kind: kind, Op: cause.Error(), Err: &faultError{kind, final, cause}}
}

// isRefusal reports whether an error is final.
func isRefusal(err error) bool {
	var f *faultError
	return errors.As(err, &f) && f.final || oauth.Refused(err)
}
