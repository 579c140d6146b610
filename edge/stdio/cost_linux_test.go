//go:build !race

package stdio_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/stdio"
)

const costly = `{"resultType":"complete","content":[]}`

// overHTTP is the URL of a backend that answers every call with the same bytes and
// allocates nothing for it.
func overHTTP(t *testing.T) string {
	t.Helper()
	reply := func(result string) []byte {
		text := `{"jsonrpc":"2.0","id":1,"result":` + result + `}`
		return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	}
	discovered, called, discover := reply(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`), reply(costly), []byte("server/discover")
	p := fake.Listen(t, func(c net.Conn) {
		buf := make([]byte, 8<<10)
		for {
			n, err := c.Read(buf) // a request comes in one piece
			if err != nil {
				return
			}
			out := called
			if bytes.Contains(buf[:n], discover) {
				out = discovered
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
	return "http://" + p.Addr + "/mcp"
}

// caller returns a function that makes n calls of an edge on each of 8 connections, and
// needs no allocation for one.
func caller(t *testing.T, e *edgetest.Edge) func(n int) {
	t.Helper()
	body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", `{"text":"hello"}`), edgetest.Meta())
	out := []byte(post(e.Addr(), body, head))
	end := []byte("}}")
	var conns []net.Conn
	for range 8 {
		c, err := net.Dial("tcp", e.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
	}
	return func(n int) {
		var all sync.WaitGroup
		for _, c := range conns {
			all.Go(func() {
				in := make([]byte, 4<<10)
				for range n {
					if _, err := c.Write(out); err != nil {
						t.Error(err)
						return
					}
					for got := 0; !bytes.HasSuffix(in[:got], end); {
						more, err := c.Read(in[got:])
						if err != nil {
							t.Errorf("%v after %s", err, in[:got])
							return
						}
						got += more
					}
				}
			})
		}
		all.Wait()
	}
}

// TestCostOfACall: a call through the bridge costs no allocation more than one over HTTP,
// and at most 1.3 times its CPU, client and server included, which cost next to nothing.
func TestCostOfACall(t *testing.T) {
	quiet := edgetest.Logging(slog.LevelError)
	b := &behind{t: t}
	local := edgetest.With(serve.WithWorkloads(func(serve.Starting) (backend.Local, error) {
		return stdio.New(stdio.Config{Name: "back", Starter: parrots{costly}})
	}))
	b.Edge = edgetest.StartPlan(t, planned(t), quiet, local)
	calls := map[string]func(int){
		"http":  caller(t, edgetest.Start(t, edgetest.ManifestFor(overHTTP(t), compile.StreamableHTTP), quiet)),
		"stdio": caller(t, b.Edge),
	}
	const n = 500
	cpu, allocations := map[string]float64{}, map[string]float64{}
	for name := range calls {
		calls[name](n)
		cpu[name], allocations[name] = math.Inf(1), math.Inf(1)
	}
	for range 7 {
		for name, call := range calls {
			var before, after runtime.MemStats
			var from, to syscall.Rusage
			runtime.GC()
			runtime.ReadMemStats(&before)
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &from)
			call(n)
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &to)
			runtime.ReadMemStats(&after)
			spent := time.Duration(to.Utime.Nano() + to.Stime.Nano() - from.Utime.Nano() - from.Stime.Nano())
			cpu[name] = min(cpu[name], float64(spent.Microseconds())/(8*n))
			allocations[name] = min(allocations[name], float64(after.Mallocs-before.Mallocs)/(8*n))
		}
	}
	t.Logf("CPU a call: %.1f µs over HTTP, %.1f µs through the bridge; allocations %.2f and %.2f", cpu["http"], cpu["stdio"], allocations["http"], allocations["stdio"])
	if allocations["stdio"] > allocations["http"]+0.1 {
		t.Errorf("%.2f allocations a call, %.2f over HTTP", allocations["stdio"], allocations["http"])
	}
	if cpu["stdio"] > 1.3*cpu["http"] {
		t.Errorf("%.1f µs of CPU a call, %.1f µs over HTTP", cpu["stdio"], cpu["http"])
	}
}
