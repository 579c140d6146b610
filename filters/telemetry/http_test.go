package telemetry

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// counted counts the requests that a transport is given.
type counted struct {
	http.RoundTripper
	requests atomic.Int64
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// A collector is spoken to by the client that the edge has, unless certificates of its
// own are to be trusted.
func TestClientOfTheEdge(t *testing.T) {
	for _, secure := range []bool{false, true} {
		c := startCollector(t, "http", secure)
		s := Spec{Server: "s", Endpoint: c.Endpoint, Insecure: !secure, Traces: true, Metrics: true, Sampling: "1"}
		if secure {
			s.CAFile = filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(s.CAFile, c.CA, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, errs := Parse(s)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		client := edge.NewHTTP(nil)
		t.Cleanup(client.CloseIdleConnections)
		through := &counted{RoundTripper: client.Transport}
		tel, err := p.Start(edge.Env{Log: slog.New(slog.DiscardHandler), Defer: t.Cleanup, HTTP: &http.Client{Transport: through, Timeout: client.Timeout}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tel.Filter(answers(t, good)).Handle(t.Context(), call(t, "echo", `,"arguments":{}`)); err != nil {
			t.Fatal(err)
		}
		flush(t, tel)
		spanOf(t, c, "tools/call echo")
		if n := through.requests.Load(); n > 0 == secure {
			t.Errorf("certificates of its own %v: %d requests by the client of the edge", secure, n)
		}
	}
}
