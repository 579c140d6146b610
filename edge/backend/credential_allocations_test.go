//go:build !race

package backend

import (
	"context"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// To write a request with a credential allocates no more than without. The
// race detector has allocations of its own.
func TestCredentialAllocatesNothing(t *testing.T) {
	c := &credentials{configured: &edge.Credential{Headers: []string{"Authorization", "X-Key"}, Attach: func(_ context.Context, _ *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
		set("Authorization", "Bearer t")
		return 1, nil
	}}}
	p := &peer{target: "/mcp", url: &url.URL{Host: "example.com"}, agent: "test", credentials: c, served: new(atomic.Pointer[url.URL])}
	o := &outgoing{method: "POST", body: []byte("{}"), x: &edge.Exchange{}, forward: []edge.Header{{Name: "x-key", Value: "evil"}, {Name: "X-Trace", Value: "t"}}}
	out, ctx := make([]byte, 0, 1024), t.Context()
	if n := testing.AllocsPerRun(100, func() {
		with, err := p.write(ctx, o, c.of(o.x), 0)
		if err != nil {
			t.Error(err)
			return
		}
		out = append(append(out[:0], with.head...), with.lines...)
		c.pads.Put(with)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if text := string(out); strings.Contains(text, "evil") || !strings.HasSuffix(text, "\r\nX-Trace: t\r\nAuthorization: Bearer t") {
		t.Errorf("%q", text)
	}
}
