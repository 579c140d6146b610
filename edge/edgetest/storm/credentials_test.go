package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/program"
)

// builtIn is the directory of what built has built, which TestMain removes; "" for none.
var builtIn string

// built is the program of the edge, built once for all tests.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "weir-storm-test-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	return program.Build(context.Background(), dir)
})

// scaled runs a row, scaled down, and holds how many bars it has.
func scaled(t *testing.T, bars int, args ...string) {
	t.Helper()
	edgetest.Need(t, runtime.GOOS == "linux", "storm reads the kernel's own tables, which are Linux's")
	weir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := command(t.Context(), append([]string{"--weir", weir, "--quick"}, args...), &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "  ok "); n != bars {
		t.Errorf("%d bars, not %d:\n%s", n, bars, out.String())
	}
}

// Credentials of users, scaled down: one that expires under load, many users, a client secret
// that changes, backends that refuse all of them, services that fail or lie.
func TestT15Expiries(t *testing.T)    { scaled(t, 4, "expiries") }
func TestT14ManyUsers(t *testing.T)   { scaled(t, 5, "manyusers") }
func TestT12NewSecret(t *testing.T)   { scaled(t, 3, "newsecret") }
func TestT16Refused(t *testing.T)     { scaled(t, 8, "refused") }
func TestG27ToxicTokens(t *testing.T) { scaled(t, 68, "toxictokens") }

// The gate tells what backends may not be sent from what they may.
func TestGate(t *testing.T) {
	g := &gate{holder: func(token string) (string, bool) { return "ada", token == "good" }, marks: [][]byte{[]byte("client-")}, of: map[string]int{}}
	ask := func(method, credential, lines, how string) int {
		m := &kit.Message{}
		m.Params.Arguments.How = how
		return g.admit(&kit.Asked{Method: method, Credential: []byte(credential), Lines: []byte(lines), Message: m})
	}
	for _, tt := range []struct {
		method, credential, lines, how string
		status                         int
		own, unknown, crossed, calls   int64
	}{
		{"server/discover", "", "", "", 401, 0, 0, 0, 0},
		{"tools/call", "", "", "", 401, 0, 1, 0, 0},
		{"tools/call", "Bearer good", "", "ada", 0, 0, 1, 0, 1},
		{"tools/call", "Bearer good", "", "bob", 0, 0, 1, 1, 2},
		{"tools/list", "Bearer bad", "", "", 401, 0, 2, 1, 2},
		{"tools/list", "Bearer good", "X-Y: client-1\n", "", 0, 1, 2, 1, 2},
	} {
		status := ask(tt.method, tt.credential, tt.lines, tt.how)
		if status != tt.status || g.own.Load() != tt.own || g.unknown.Load() != tt.unknown || g.crossed.Load() != tt.crossed || g.calls.Load() != tt.calls {
			t.Errorf("%+v: %d, %d own, %d unknown, %d crossed, %d calls", tt, status, g.own.Load(), g.unknown.Load(), g.crossed.Load(), g.calls.Load())
		}
	}
	if n := g.reached([]string{"ada", "bob"}); n != 3 {
		t.Errorf("%d requests", n)
	}
}

// A relay that has left refuses connections, and takes them again when it is back.
func TestRelayLeaves(t *testing.T) {
	s := &storm{}
	defer s.end()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	r := s.newRelay(ln.Addr().String())
	there := func() bool {
		c, err := net.Dial("tcp", r.addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	if !there() {
		t.Error("it is not there")
	}
	if r.leave(); there() {
		t.Error("it is there after it left")
	}
	if r.back(); !there() {
		t.Error("it is not back")
	}
}
