package authserver

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
)

// refusal is an error that a client is told, by a word of RFC 6749 or RFC 8707. Neither of its
// texts holds anything that came with the request.
type refusal struct{ code, what string }

func (e *refusal) Error() string { return e.code + ": " + e.what }

func refuse(code, what string) error { return &refusal{code, what} }

// pageError is an error that a user is shown: what is wrong, and what to do.
type pageError struct {
	status   int
	what, do string
	after    time.Duration // when to try again; 0 for none
}

func (e *pageError) Error() string { return e.what }

func page(status int, what, do string) error { return &pageError{status: status, what: what, do: do} }

// away says that the store does not answer, or has no room.
var away = &pageError{status: http.StatusServiceUnavailable, what: "This server cannot sign anybody in at the moment.", do: "Wait a moment, then try again.", after: time.Second}

// busy reports whether an error is that of a store that cannot serve now.
func busy(err error) bool { return errors.Is(err, away) || edge.KindOf(err) == edge.Overload }

// reasonOf is an error as it is counted and audited.
func reasonOf(err error) string {
	var refused *refusal
	var bad *clientError
	var p *pageError
	switch {
	case errors.As(err, &refused):
		return refused.code
	case errors.As(err, &bad):
		return bad.code
	case errors.As(err, &p):
		return strconv.Itoa(p.status)
	case errors.Is(err, errNoClient):
		return "invalid_client"
	}
	return "temporarily_unavailable"
}

// refusal is what a client is told of an error of its request. Every answer names the issuer
// (RFC 9207 §2).
func (s *Server) refusal(q url.Values, err error) url.Values {
	answer := url.Values{"error": {reasonOf(err)}, "iss": {s.config.Issuer}}
	var refused *refusal
	if errors.As(err, &refused) {
		answer.Set("error_description", refused.what)
	}
	if state := q.Get("state"); q.Has("state") && len(state) <= maxState {
		answer.Set("state", state)
	}
	return answer
}

// refused is what a client is told of a login that ended.
func refused(code string) url.Values { return url.Values{"error": {code}} }

// retryAfter says when to try again, in whole seconds.
func retryAfter(w http.ResponseWriter, after time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(max(1, (after+time.Second-1)/time.Second))))
}
