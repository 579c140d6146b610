package backend

import (
	"net/url"
	"testing"
)

// Where messages are posted is of the origin of the stream in whatever way that is written.
func TestOriginOfAnEndpoint(t *testing.T) {
	for _, one := range []struct {
		stream, endpoint string
		same             bool
	}{
		{"https://example.com/sse", "https://example.com:443/m", true}, {"https://example.com:443/sse", "https://Example.COM/m", true},
		{"http://example.com:80/sse", "http://example.com/m", true}, {"http://[::1]/sse", "http://[::1]:80/m", true}, {"http://Example.com/sse", "/m", true},
		{"https://example.com/sse", "https://example.com:80/m", false}, {"https://example.com/sse", "http://example.com:443/m", false},
		{"http://example.com:8080/sse", "http://example.com/m", false}, {"http://example.com/sse", "http://example.com.evil.example/m", false},
	} {
		u, err := url.Parse(one.stream)
		if err != nil {
			t.Fatal(err)
		}
		b := &Backend{Config: Config{URL: one.stream}, peer: newPeer(u, nil, &Config{})}
		to, err := b.sameOrigin(one.endpoint)
		if (err == nil) != one.same || err == nil && (to.target != "/m" || to.url.Host != u.Host) {
			t.Errorf("%s of %s: %v", one.endpoint, one.stream, err)
		}
	}
	// A local server has it at the port where it listens.
	u, err := url.Parse("http://127.0.0.1:8080/sse")
	if err != nil {
		t.Fatal(err)
	}
	b := &Backend{peer: newPeer(u, nil, &Config{})}
	at, err := url.Parse("http://127.0.0.1:9000/sse")
	if err != nil {
		t.Fatal(err)
	}
	b.peer.served.Store(at)
	for endpoint, same := range map[string]bool{"http://127.0.0.1:9000/m": true, "/m": true, "http://127.0.0.1:8080/m": false} {
		if to, err := b.sameOrigin(endpoint); (err == nil) != same || err == nil && to.address().Host != "127.0.0.1:9000" {
			t.Errorf("%s of a local server: %v", endpoint, err)
		}
	}
}
