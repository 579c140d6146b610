package settings

import "testing"

func TestEndpoint(t *testing.T) {
	for _, test := range []struct {
		s    Settings
		addr string
		want string
	}{
		{Settings{}, "127.0.0.1:4483", "http://127.0.0.1:4483/mcp"},
		{Settings{}, "0.0.0.0:80", "http://127.0.0.1:80/mcp"},
		{Settings{}, "[::]:80", "http://127.0.0.1:80/mcp"},
		{Settings{}, "[::1]:80", "http://[::1]:80/mcp"},
		{Settings{TLSCert: "c"}, "127.0.0.1:1", "https://127.0.0.1:1/mcp"},
		{Settings{ExternalURL: "https://x.example/a/"}, "127.0.0.1:1", "https://x.example/a/mcp"},
	} {
		if got := test.s.Endpoint(test.addr); got != test.want {
			t.Errorf("%s of %+v is %s, want %s", test.addr, test.s, got, test.want)
		}
	}
}
