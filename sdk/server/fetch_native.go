//go:build !wasip1

package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weir-edge/weir/sdk/abi"
)

// What the host bounds, where there is none: for servers that are tried out as programs.
const (
	maxBody = 512 << 10
	longest = 10 * time.Second
)

var client = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// fetch sends the request by the network of the machine.
func fetch(q Request) ([]byte, error) {
	wait := longest
	if ms := time.Duration(q.Millis) * time.Millisecond; ms > 0 && ms < wait {
		wait = ms
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, q.Method, q.URL, strings.NewReader(q.Body))
	if err != nil {
		return nil, Failure(abi.ErrArgument)
	}
	for _, h := range q.Headers {
		request.Header.Add(h[0], h[1])
	}
	answer, err := client.Do(request)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, ErrTimeout
	case err != nil:
		return nil, err
	}
	defer answer.Body.Close()
	a := Response{Status: answer.StatusCode}
	if a.Body, err = io.ReadAll(io.LimitReader(answer.Body, maxBody+1)); err != nil {
		return nil, err
	}
	if len(a.Body) > maxBody {
		return nil, Failure(abi.ErrLimit)
	}
	for name, values := range answer.Header {
		for _, v := range values {
			a.Headers = append(a.Headers, [2]string{strings.ToLower(name), v})
		}
	}
	return a.Append(nil), nil
}
