package server

import (
	"fmt"
	"strconv"

	"github.com/weir-edge/weir/sdk/abi"
)

// Request is an HTTP request to another party.
type Request = abi.HTTPRequest

// Response is the answer to one.
type Response = abi.HTTPAnswer

// Failure is why there is no answer: a code of the host below zero.
type Failure int

// The failures that a server may want to know from others.
const (
	ErrDenied  Failure = abi.ErrDenied  // the permission profile does not name the host, or not the port
	ErrTimeout Failure = abi.ErrTimeout // no answer in time
)

func (f Failure) Error() string {
	switch f {
	case ErrDenied:
		return "the permission profile of the server does not let it out to this host"
	case ErrTimeout:
		return "no answer in time"
	case abi.ErrLimit:
		return "the request or its answer is too large"
	case abi.ErrArgument:
		return "the request is malformed"
	case abi.ErrRefused:
		return "the connection was refused"
	case abi.ErrName:
		return "there is no such host"
	case abi.ErrTLS:
		return "TLS failed"
	}
	return "no answer (code " + strconv.Itoa(int(f)) + ")"
}

// Fetch sends an HTTP request, and waits for the answer; the whole server waits meanwhile. An
// answer of any status is no error; redirects are not followed. It goes to the hosts that the
// permission profile of the server names: without one, to none. A request has at most 256 KiB,
// an answer 512 KiB and 10 s. An error wraps a Failure.
func Fetch(q Request) (Response, error) {
	record, err := fetch(q)
	if err != nil {
		return Response{}, fmt.Errorf("HTTP request: %w", err)
	}
	return abi.ReadHTTPAnswer(record), nil
}
