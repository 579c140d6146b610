package container

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

// maxAnswer is how many bytes an answer of an engine may have that is read as a whole.
const maxAnswer = 16 << 20

// streams are the requests whose answers are read as they come, each in its own bounds: images that
// are pulled, saved and loaded, and files that are copied out of a container.
var streams = []string{"POST /images/create", "GET /images/get", "POST /images/load", "GET /archive"}

// bounded carries requests to an engine, and cuts its answers.
type bounded struct {
	*http.Transport
	host string // as an error names it
}

// newBounded carries requests to a socket as the engine's client would.
func newBounded(path, host string) bounded {
	return bounded{&http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: answersWithin}).DialContext(ctx, "unix", path)
		},
		DisableCompression: true, MaxIdleConns: 6, IdleConnTimeout: 30 * time.Second,
	}, host}
}

// client is the engine's client with these bounds.
func (b bounded) client() (*client.Client, error) {
	return client.New(client.WithHost(b.host), client.WithHTTPClient(&http.Client{Transport: b, CheckRedirect: client.CheckRedirect}))
}

func (b bounded) RoundTrip(q *http.Request) (*http.Response, error) {
	r, err := b.Transport.RoundTrip(q)
	if err == nil && !slices.ContainsFunc(streams, func(s string) bool {
		method, end, _ := strings.Cut(s, " ")
		return q.Method == method && strings.HasSuffix(q.URL.Path, end)
	}) {
		r.Body = &cut{r.Body, maxAnswer, fmt.Errorf("the container engine at %s answers with more than %d MiB: restart it, or name another in WEIR_ENGINE", b.host, maxAnswer>>20)}
	}
	return r, err
}

// cut is a body that ends with an error where it is too long.
type cut struct {
	io.ReadCloser
	left    int64
	tooLong error
}

func (c *cut) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	if c.left -= int64(n); c.left < 0 {
		return 0, c.tooLong
	}
	return n, err
}
