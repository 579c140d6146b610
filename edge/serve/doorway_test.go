package serve_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// remote is an MCPRemoteProxy before a fake server; more is further YAML of its spec.
func remote(name string, s *edgetest.Server, more ...string) string {
	return fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPRemoteProxy
metadata: {name: %s}
spec:
  remoteUrl: %q
  transport: %s
  allowPrivateEndpoint: true
  %s
`, name, s.URL, map[bool]string{true: "sse", false: "streamable-http"}[s.Era == edgetest.SSE], strings.Join(more, "\n  "))
}

// planned is the plan of a set that gives each server a door of its own, at a port that the
// system chooses.
func planned(t *testing.T, yaml string) *compile.Plan {
	t.Helper()
	set, _ := source.Read("test.yaml", []byte(yaml))
	set.Doors = true
	r := set.Compile()
	if err := r.Err(); err != nil {
		var text strings.Builder
		_ = r.Render(&text)
		t.Fatalf("%v:\n%s", err, text.String())
	}
	for i := range r.Plan.Doors {
		host, _, _ := net.SplitHostPort(r.Plan.Doors[i].Listen)
		r.Plan.Doors[i].Listen = net.JoinHostPort(host, "0")
	}
	return r.Plan
}

// Each door has an address, paths and rules of its own; a reload that changes one leaves the
// others' connections, sessions and streams alone.
func TestDoorsOfTheirOwn(t *testing.T) {
	one, two, three := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Legacy)
	origin := "run: {allowedOrigins: ['https://app.example.com']}"
	e := edgetest.StartPlan(t, planned(t, remote("one", one)+remote("two", two, origin)), edgetest.With(serve.WithPlannedDoors()))
	if e.Addr() != "" {
		t.Errorf("the process has a door at %s", e.Addr())
	}
	at := func(name string) *edgetest.Client { return edgetest.NewClient(t, "http://"+e.Serve.DoorAddr(name)) }
	first, second := e.Serve.DoorAddr("one"), e.Serve.DoorAddr("two")
	if first == "" || first == second {
		t.Fatalf("the doors are at %q and %q", first, second)
	}

	// 1. Each leads to its own server, and to no other.
	a := at("one").Initialize("")
	a.Call("1", "echo", "{}")
	stream := a.Listen()
	if r := at("two").Modern("1", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if one.Count("tools/call") != 1 || two.Count("tools/call") != 1 {
		t.Error("a call went to another server")
	}
	for _, path := range []string{"/servers/two/mcp", "/servers/none/mcp"} {
		if r := at("one").Do("POST", path, "{}"); r.Status != 404 {
			t.Errorf("%s at the other door: status %d", path, r.Status)
		}
	}
	stranger := &edgetest.Session{Client: at("two"), ID: a.ID, Version: a.Version}
	fails(t, stranger.Request("2", "tools/list", ""), 404, -32001, "2")
	if text := string(at("one").Do("GET", "/status", "").Body); !strings.Contains(text, `"one"`) || strings.Contains(text, `"two"`) || !strings.Contains(text, "http://"+first+"/mcp") {
		t.Errorf("/status of a door: %s", text)
	}

	// 2. Each has its own rules.
	for name, want := range map[string]int{"one": 403, "two": 204} {
		if r := at(name).Do("OPTIONS", "/mcp", "", "Origin", "https://app.example.com", "Access-Control-Request-Method", "POST"); r.Status != want {
			t.Errorf("door %s: status %d for an origin, want %d", name, r.Status, want)
		}
	}

	// 3. One is added, one loses its rule: the first goes on.
	inits := one.Count("initialize")
	if err := e.Serve.Reload(planned(t, remote("one", one)+remote("two", two)+remote("three", three))); err != nil {
		t.Fatal(err)
	}
	if e.Serve.DoorAddr("one") != first || e.Serve.DoorAddr("two") != second {
		t.Error("a door that stayed has moved")
	}
	if r := at("two").Do("OPTIONS", "/mcp", "", "Origin", "https://app.example.com", "Access-Control-Request-Method", "POST"); r.Status != 403 {
		t.Errorf("status %d for an origin that is no longer allowed", r.Status)
	}
	at("three").Initialize("").Call("1", "echo", "{}")
	if three.Count("tools/call") != 1 {
		t.Error("the new door does not lead to its server")
	}
	a.Call("2", "echo", "{}")
	if n := one.Count("initialize"); n != inits {
		t.Errorf("the backend of a door that stayed got %d initialize more", n-inits)
	}

	// 4. One is taken away, with what its clients had; a plan may be empty.
	old := at("two")
	if r := old.Do("GET", "/health", ""); r.Status != 200 {
		t.Errorf("status %d", r.Status)
	}
	if err := e.Serve.Reload(planned(t, remote("one", one))); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "the end of the door", func() bool {
		c, err := net.Dial("tcp", second)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	if r := a.Call("3", "echo", "{}"); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if err := e.Serve.Reload(&compile.Plan{}); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "the end of the stream", stream.Over)
	edgetest.Until(t, "the end of the last door", func() bool {
		c, err := net.Dial("tcp", first)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

// A plan whose door cannot be opened changes nothing, and leaves nothing open.
func TestDoorsThatCannotBeOpened(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Legacy)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	e := edgetest.StartPlan(t, planned(t, remote("one", back)), edgetest.With(serve.WithPlannedDoors()))
	at := edgetest.NewClient(t, "http://"+e.Serve.DoorAddr("one"))
	s := at.Initialize("")
	bad := func(what, want string, change func(*compile.Plan)) {
		t.Helper()
		plan := planned(t, remote("free", back)+remote("one", back)+remote("two", back))
		change(plan)
		if err := e.Serve.Reload(plan); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		if e.Serve.DoorAddr("free") != "" || s.Call("1", "echo", "{}").Status != 200 {
			t.Errorf("%s: what was served changed", what)
		}
	}
	bad("a port that is taken", "door two", func(p *compile.Plan) { p.Doors[2].Listen = taken.Addr().String() })
	bad("an address that is none", "door two", func(p *compile.Plan) { p.Doors[2].Listen = "127.0.0.1" })
	bad("a proxy that is none", "door two", func(p *compile.Plan) { p.Doors[2].Proxies = []string{"x"} })
	bad("a server by two doors", "two", func(p *compile.Plan) { p.Doors[2].Servers = []string{"one"} })
	bad("a server without a door", "two", func(p *compile.Plan) { p.Doors = p.Doors[:2] })
	bad("a door without a name", "no name", func(p *compile.Plan) { p.Doors[2].Name = "" })
}

// The door of the process leads to what no door of the plan leads to.
func TestProcessDoorBesideOthers(t *testing.T) {
	one, two := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	plan := planned(t, remote("one", one)+remote("two", two))
	plan.Doors = plan.Doors[1:]
	e := edgetest.StartPlan(t, plan)
	e.NewClient().Initialize("").Call("1", "echo", "{}")
	edgetest.NewClient(t, "http://"+e.Serve.DoorAddr("two")).Initialize("").Call("1", "echo", "{}")
	if one.Count("tools/call") != 1 || two.Count("tools/call") != 1 {
		t.Error("a call went to another server")
	}
	if r := e.NewClient().Do("POST", "/servers/two/mcp", "{}"); r.Status != 404 {
		t.Errorf("status %d", r.Status)
	}
}

// A name stands for all of its addresses.
func TestDoorOfAName(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Legacy)
	plan := planned(t, remote("one", back))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	ln.Close()
	plan.Doors[0].Listen = "localhost:" + port
	e := edgetest.StartPlan(t, plan, edgetest.With(serve.WithPlannedDoors()))
	addresses, err := net.LookupHost("localhost")
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if r := edgetest.NewClient(t, "http://"+net.JoinHostPort(address, port)).Do("GET", "/readyz", ""); r.Status != 200 {
			t.Errorf("%s: status %d", address, r.Status)
		}
	}
	_ = e
}

// All doors share the limit of connections.
func TestDoorsShareConnections(t *testing.T) {
	one, two := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.StartPlan(t, planned(t, remote("one", one)+remote("two", two)), edgetest.With(serve.WithPlannedDoors()),
		edgetest.Settings(func(s *serve.Settings) { s.MaxConnections = 3 }))
	for range 3 {
		c, err := net.Dial("tcp", e.Serve.DoorAddr("one"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("GET /health HTTP/1.1\r\nHost: localhost\r\n")); err != nil { // which goes on
			t.Fatal(err)
		}
	}
	edgetest.Until(t, "a client to be turned away", func() bool {
		r, err := edgetest.NewClient(t, "http://"+e.Serve.DoorAddr("two")).Try("GET", "/health", "")
		return err == nil && r.Status == 503
	})
}

// A file that a server behind a door of its own was made from may go: it goes on, others come and
// go beside it, and it is not opened anew without the file.
func TestDoorsBesideAFileThatIsGone(t *testing.T) {
	one, two := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, idp.NewTLS(t).Authority, 0o600); err != nil {
		t.Fatal(err)
	}
	trusting := remote("one", one, "run: {caBundle: "+file+"}")
	e := edgetest.StartPlan(t, planned(t, trusting), edgetest.With(serve.WithPlannedDoors()))
	s := edgetest.NewClient(t, "http://"+e.Serve.DoorAddr("one")).Initialize("")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := e.Serve.Reload(planned(t, trusting+remote("two", two))); err != nil {
		t.Fatal(err)
	}
	if r := s.Call("1", "echo", "{}"); r.Status != 200 {
		t.Errorf("status %d", r.Status)
	}
	if err := e.Serve.Reload(planned(t, remote("two", two))); err != nil {
		t.Fatal(err)
	}
	if err := e.Serve.Reload(planned(t, trusting+remote("two", two))); err == nil || !strings.Contains(err.Error(), "CA bundle") {
		t.Errorf("%v", err)
	}
}
