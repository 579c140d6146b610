//go:build unix

package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestEgressAlone: "weir egress --listen" lets out by a profile, says what it did, and ends in
// order.
func TestEgressAlone(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "weir", "egress", "--profile", "none", "--listen", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	first, err := lines.ReadString('\n')
	at := regexp.MustCompile(`address=(127\.0\.0\.1:[0-9]+) profile=none peers="this machine"`).FindStringSubmatch(first)
	if err != nil || at == nil {
		t.Fatalf("%q %v", first, err)
	}
	c, err := net.Dial("tcp", at[1])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(c, "CONNECT 93.184.216.34:443 HTTP/1.1\r\nHost: 93.184.216.34:443\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: "CONNECT"})
	if err != nil || answer.StatusCode != http.StatusForbidden {
		t.Errorf("%v %v", answer, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v: %s", err, rest)
	}
	if !strings.Contains(string(rest), "host=93.184.216.34 port=443 reason=host") {
		t.Errorf("it said of that: %s", rest)
	}
}

// TestEgressAloneMistakes: what is missing or wrong is said by its flag.
func TestEgressAloneMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "peers")
	if err := os.WriteFile(bad, []byte("10.0.0.1\nexample.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for want, args := range map[string][]string{
		"--profile: by which one":                      {"--listen", "127.0.0.1:0"},
		"--listen: where":                              {"--profile", "none"},
		"--profile: open ":                             {"--profile", filepath.Join(dir, "none.json"), "--listen", "127.0.0.1:0"},
		"--peers: " + bad + ", line 2:":                {"--profile", "none", "--listen", "127.0.0.1:0", "--peers", bad},
		"--listen: listen tcp " + held.Addr().String(): {"--profile", "none", "--listen", held.Addr().String()},
	} {
		out, err := exec.CommandContext(t.Context(), "weir", append([]string{"egress"}, args...)...).CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v %s; want %q", args, err, out, want)
		}
	}
}
