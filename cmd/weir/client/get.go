package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Get reads a document beside the protocol, such as a status, by GET. It may
// have limit bytes at most, and take o.Silence altogether; 0 is for ever. The
// error is a *ConnectionError, or why ctx has ended.
func Get(ctx context.Context, o Options, limit int64) ([]byte, error) {
	if o.Silence > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Silence, errSilent)
		defer cancel()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL, nil)
	if err != nil {
		return nil, err
	}
	r.Header = o.Header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", o.Name+"/"+o.Version)
	answer, err := o.HTTP.Do(r)
	if err != nil {
		return nil, unreachable(ctx, o.URL, o.Silence, err)
	}
	// What matters has been read by then.
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		e := refused(o.URL, answer, start(answer.Body))
		if answer.StatusCode == http.StatusUnauthorized { // no login is for such a document
			e.Next = "give a token with --bearer-token-file, or a header with --header"
		}
		return nil, e
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	switch {
	case err != nil:
		return nil, unreachable(ctx, o.URL, o.Silence, err)
	case int64(len(body)) > limit:
		return nil, &ConnectionError{URL: shown(o.URL), What: fmt.Sprintf("answered with more than %d bytes", limit), Next: "check that the URL is right"}
	}
	return body, nil
}
