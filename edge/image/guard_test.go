package image

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A proxy on this machine is reached for being one: what else listens on its host is no more
// asked for what a registry leads to than without it.
func TestProxyOnThisMachine(t *testing.T) {
	const child = "WEIR_TEST_OF_GUARD"
	local := func(u string) string { return strings.Replace(u, "127.0.0.1", "localhost", 1) }
	proxy := httptest.NewServer(http.NotFoundHandler())
	defer proxy.Close()
	if os.Getenv(child) == "" { // the environment is read once in the life of a process
		again := exec.Command(os.Args[0], "-test.run=^TestProxyOnThisMachine$", "-test.v")
		again.Env = append(os.Environ(), child+"=1", "HTTPS_PROXY="+local(proxy.URL))
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	g := newGuard("registry.test", nil)
	get := func(url string) error {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := g.RoundTrip(r)
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	if err := get("https://registry.test/v2/"); err == nil || !strings.Contains(err.Error(), "Not Found") {
		t.Errorf("the proxy: %v", err)
	}
	if err := get(local(other.URL)); err == nil || asked > 0 {
		t.Errorf("another listener at the host of the proxy: %v, asked %d times", err, asked)
	}
}
