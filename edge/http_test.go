package edge_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// A redirect is not followed, nothing compressed is asked for, and a header that is too
// large is an error.
func TestHTTPClient(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	named := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e := r.Header.Get("Accept-Encoding"); e != "" {
			t.Errorf("it asks for %q", e)
		}
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/large":
			w.Header().Set("X-Large", strings.Repeat("x", 128<<10))
		}
	}))
	defer named.Close()
	c := edge.NewHTTP(nil)
	defer c.CloseIdleConnections()
	for path, want := range map[string]int{"/": 200, "/away": 307, "/large": 0} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, named.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer PLANTED")
		status := 0
		answer, err := c.Do(r)
		if err == nil {
			status = answer.StatusCode
			answer.Body.Close()
		}
		if status != want {
			t.Errorf("%s: status %d and %v, want %d", path, status, err, want)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d requests followed a redirect", n)
	}
}
