package serve_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// TestServers serves two servers in one process, each at a path of its own.
func TestServers(t *testing.T) {
	one, two := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
	e := edgetest.Start(t, edgetest.Object("one", one)+edgetest.Object("two", two))
	at := func(name string) *edgetest.Client { return edgetest.NewClient(t, e.Base()+"/servers/"+name) }
	a, b := at("one").Initialize(""), at("two").Initialize("")
	for s, back := range map[*edgetest.Session]*edgetest.Server{a: one, b: two} {
		if r := s.Call("1", "echo", `{"a":1}`); r.Status != 200 {
			t.Errorf("status %d: %s", r.Status, r.Body)
		}
		if n := back.Count("tools/call"); n != 1 {
			t.Errorf("a backend got %d calls, want 1", n)
		}
	}
	if r := at("two").Modern("1", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != 200 {
		t.Errorf("modern: status %d: %s", r.Status, r.Body)
	}

	// A session is of one server and of no other.
	stranger := &edgetest.Session{Client: at("two"), ID: a.ID, Version: a.Version}
	fails(t, stranger.Request("2", "tools/list", ""), 404, -32001, "2")
	// Without --default-server there is nothing at /mcp, nor at a name that is not there.
	for _, path := range []string{"/mcp", "/sse", "/servers/none/mcp", "/servers/one", "/servers/one/", "/servers//mcp", "/servers/one/mcp/mcp"} {
		if r := e.NewClient().Do("POST", path, "{}", "Content-Type", "application/json"); r.Status != 404 && r.Status != 400 {
			t.Errorf("POST %s: status %d", path, r.Status)
		} else if path == "/mcp" && !strings.Contains(string(r.Body), "/servers/NAME/mcp") {
			t.Errorf("POST /mcp: %s", r.Body)
		}
	}
	// The older transport tells the path of its own server.
	stream := e.NewClient().Do("GET", "/servers/one/sse", "", "Accept", "text/event-stream")
	old := &edgetest.OldSession{Client: e.NewClient(), Stream: stream, Path: string(stream.Next().Data)}
	if !strings.HasPrefix(old.Path, "/servers/one/messages?") {
		t.Errorf("the endpoint is %q", old.Path)
	}
	old.Initialize("")
	if text := string(e.NewClient().Do("GET", "/status", "").Body); !strings.Contains(text, `"one"`) || !strings.Contains(text, `"two"`) {
		t.Errorf("/status: %s", text)
	}
}

// TestDefaultServer has one of several servers answer at /mcp, too.
func TestDefaultServer(t *testing.T) {
	one, two := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, edgetest.Object("one", one)+edgetest.Object("two", two),
		edgetest.Settings(func(s *serve.Settings) { s.DefaultServer = "two" }))
	s := e.NewClient().Initialize("")
	s.Call("1", "echo", "{}")
	if one.Count("tools/call") != 0 || two.Count("tools/call") != 1 {
		t.Error("the call went to another server")
	}
	// It is the same server under both of its names.
	again := &edgetest.Session{Client: edgetest.NewClient(t, e.Base()+"/servers/two"), ID: s.ID, Version: s.Version}
	if r := again.Call("2", "echo", "{}"); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
}

// TestReload replaces the plan while sessions, calls and streams are there.
func TestReload(t *testing.T) {
	kept, old, fresh := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, edgetest.Object("kept", kept)+edgetest.Object("moved", old)+edgetest.Object("gone", old))
	at := func(name string) *edgetest.Client { return edgetest.NewClient(t, e.Base()+"/servers/"+name) }
	a, b, c := at("kept").Initialize(""), at("moved").Initialize(""), at("gone").Initialize("")
	for _, s := range []*edgetest.Session{a, b, c} {
		s.Call("1", "echo", "{}")
	}
	stream := b.Listen()
	inits := kept.Count("initialize")

	// A call that is under way when the plan changes ends as it began.
	release := make(chan struct{})
	old.Once("tools/call", func(c *edgetest.Call) {
		<-release
		c.Result(`{"content":[],"from":"old"}`)
	})
	ended := make(chan *edgetest.Response, 1)
	go func() {
		r, err := b.TrySend(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{}}}`)
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	old.Await("tools/call", 3)
	if err := e.Serve.Reload(edgetest.Plan(t, edgetest.Object("kept", kept)+edgetest.Object("moved", fresh))); err != nil {
		t.Fatal(err)
	}

	// 1. The session of a server that changed goes on, at the new backend, and its client hears of it.
	fresh.Always("tools/call", func(c *edgetest.Call) { c.Result(`{"content":[],"from":"fresh"}`) })
	if text := string(b.Call("3", "echo", "{}").Answer()); !strings.Contains(text, "fresh") {
		t.Errorf("the new backend was not called: %s", text)
	}
	for _, want := range []string{"tools", "prompts", "resources"} {
		if m := stream.NextMessage(); m.Method != "notifications/"+want+"/list_changed" {
			t.Errorf("got %s, want that %s changed", m.Method, want)
		}
	}
	// 2. The call under way ends where it began.
	close(release)
	if text := string(edgetest.Receive(t, ended, "the call under way").Answer()); !strings.Contains(text, "old") {
		t.Errorf("the call under way: %s", text)
	}
	// 3. What did not change keeps its sessions at the backend.
	a.Call("4", "echo", "{}")
	if n := kept.Count("initialize"); n != inits {
		t.Errorf("the backend that did not change got %d initialize more", n-inits)
	}
	// 4. A server that is gone took its sessions along.
	if r := c.Request("5", "tools/list", ""); r.Status != 404 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	// 5. The backends that nobody serves any longer hear that the sessions end.
	old.Until("the end of the sessions at the old backend", func() bool { return old.Live() == 0 })
}

// TestReloadKeepsSubscriptions: what a session is subscribed to at a backend that a reload takes,
// it is subscribed to at the one in its place, whichever era that is of.
func TestReloadKeepsSubscriptions(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			old, fresh := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, era)
			fresh.Always("subscriptions/listen", func(c *edgetest.Call) { // one that tells of nothing is not asked again
				c.Notify("notifications/subscriptions/acknowledged", fmt.Sprintf(`{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}`, c.ID(), edgetest.Member(string(c.Message.Params), "notifications")))
				c.Wait(nil)
			})
			e := edgetest.Start(t, edgetest.Manifest(old))
			c := e.NewClient().Initialize("")
			c.Listen()
			c.Request("1", "resources/subscribe", `{"uri":"x:1"}`).Message()
			old.Await("resources/subscribe", 1)
			if err := e.Serve.Reload(edgetest.Plan(t, edgetest.Manifest(fresh))); err != nil {
				t.Fatal(err)
			}
			asked := "resources/subscribe"
			if era == edgetest.Modern {
				asked = "subscriptions/listen"
			}
			edgetest.Until(t, "the subscription", func() bool {
				for _, r := range fresh.Requests(asked) {
					if strings.Contains(string(r.Message.Params), `"x:1"`) {
						return true
					}
				}
				return false
			})
		})
	}
}

// TestReloadSubscribesOthers: a backend that does not answer one session keeps none of the others from
// what they were subscribed to.
func TestReloadSubscribesOthers(t *testing.T) {
	t.Parallel()
	old, fresh := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, edgetest.Manifest(old))
	const clients = 4
	for i := range clients {
		c := e.NewClient().Initialize("")
		c.Listen()
		c.Request("1", "resources/subscribe", fmt.Sprintf(`{"uri":"x:%d"}`, i)).Message()
	}
	old.Await("resources/subscribe", clients)
	leave := make(chan struct{})
	defer close(leave)
	fresh.Once("resources/subscribe", func(c *edgetest.Call) { c.Wait(leave) })
	if err := e.Serve.Reload(edgetest.Plan(t, edgetest.Manifest(fresh))); err != nil {
		t.Fatal(err)
	}
	fresh.Await("resources/subscribe", clients)
}

// TestReloadWithAPolicy: sessions of a server that asks nobody who they are go on when it is given
// policies, under these, and when they are taken away.
func TestReloadWithAPolicy(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			open := edgetest.Manifest(edgetest.NewServer(t, era))
			judged := func(policy string) string {
				return strings.Replace(open, "{type: anonymous}", fmt.Sprintf("{type: anonymous, authz: {type: policy, policies: [%q]}}", policy), 1)
			}
			e := edgetest.Start(t, open)
			c := e.NewClient().Initialize("")
			for _, step := range []struct {
				yaml string
				want int
			}{
				{open, 200},
				{judged("permit(principal, action, resource);"), 200},
				{judged("forbid(principal, action, resource);"), 403},
				{open, 200},
			} {
				if err := e.Serve.Reload(edgetest.Plan(t, step.yaml)); err != nil {
					t.Fatal(err)
				}
				if r := c.Request("1", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != step.want {
					t.Errorf("status %d, want %d: %s", r.Status, step.want, r.Body)
				}
			}
		})
	}
}

// TestReloadAfterTheEnd is told so, and opens nothing.
func TestReloadAfterTheEnd(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	plan := edgetest.Plan(t, edgetest.Object("one", back))
	e := edgetest.StartPlan(t, plan)
	e.Stop()
	if err := e.Serve.Reload(plan); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("error: %v", err)
	}
}

// TestStatusOfGuardedServers shows a client on the main port no server that it
// has not been let in to.
func TestStatusOfGuardedServers(t *testing.T) {
	t.Parallel()
	m := newMint(t)
	guarded := func(name string) string {
		return strings.Replace(edgetest.Object(name, edgetest.NewServer(t, edgetest.Legacy)), "incomingAuth: {type: anonymous}", fmt.Sprintf(
			"incomingAuth: {type: oidc, oidcConfigRef: {name: %[1]s, audience: %[1]s}}", name), 1) + fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: %s}
spec: {type: inline, inline: {issuer: %q, jwksUrl: %q, jwksAllowPrivateIP: true, insecureAllowHTTP: true}}
`, name, m.URL, m.URL+"/keys")
	}
	open := edgetest.Object("open", edgetest.NewServer(t, edgetest.Legacy))
	for _, test := range []struct {
		name, yaml, main string
		audience         string // of the token; "" for none
		status           int
		want             string // the servers that are shown
	}{
		{"no token", guarded("one") + guarded("two"), "one", "", 401, ""},
		{"the token of another", guarded("one") + guarded("two"), "one", "two", 401, ""},
		{"its own token", guarded("one") + guarded("two"), "one", "one", 200, "one"},
		{"no main server", guarded("one") + guarded("two"), "", "one", 404, ""},
		{"an open main server", guarded("one") + open, "open", "one", 404, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := edgetest.Start(t, test.yaml, edgetest.Settings(func(s *serve.Settings) { s.DefaultServer = test.main }))
			var header []string
			if test.audience != "" {
				header = bearer(m.token(t, "somebody", test.audience, nil))
			}
			var r *edgetest.Response
			edgetest.Until(t, "the keys", func() bool {
				r = e.NewClient().Do("GET", "/status", "", header...)
				return r.Status == test.status
			})
			for _, name := range []string{"one", "two", "open"} {
				if shown := strings.Contains(string(r.Body), `"name": "`+name+`"`); shown != (name == test.want) {
					t.Errorf("%s is shown: %v", name, shown)
				}
			}
		})
	}
}

// TestReloadFails keeps what was served.
func TestReloadFails(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Legacy)
	var wrong atomic.Bool
	var e *edgetest.Edge
	plan := edgetest.Plan(t, edgetest.Object("one", back))
	e = edgetest.StartPlan(t, plan, edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }),
		edgetest.With(serve.WithReload(func() error {
			if wrong.Load() {
				return errors.New("weir.yaml:3: spec.config.nmae: unknown field")
			}
			return e.Serve.Reload(plan)
		})))
	s := e.NewClient().Initialize("")
	admin := edgetest.NewClient(t, "http://"+e.Serve.AdminAddr())
	if r := admin.Do("POST", "/-/reload", ""); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	wrong.Store(true)
	if r := admin.Do("POST", "/-/reload", ""); r.Status != 422 || !strings.Contains(string(r.Body), "weir.yaml:3") {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if text := string(admin.Do("GET", "/status", "").Body); !strings.Contains(text, "unknown field") {
		t.Errorf("/status does not tell: %s", text)
	}
	if r := s.Call("1", "echo", "{}"); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	wrong.Store(false)
	if r := admin.Do("POST", "/-/reload", ""); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if text := string(admin.Do("GET", "/status", "").Body); strings.Contains(text, "unknown field") {
		t.Errorf("/status still tells of what was put right: %s", text)
	}
	if r := admin.Do("GET", "/-/reload", ""); r.Status != 405 {
		t.Errorf("GET: status %d", r.Status)
	}
}

// TestHandOver has a second edge take the address over from a first one, under
// load: no request fails.
func TestHandOver(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	socket := filepath.Join(t.TempDir(), "weir.sock")
	shared := edgetest.Settings(func(s *serve.Settings) { s.HandOver = socket })
	first := edgetest.Start(t, edgetest.Manifest(back), shared)
	address := first.Addr()

	stop := make(chan struct{})
	var calls, failed atomic.Int64
	var load sync.WaitGroup
	for i := range 8 {
		load.Go(func() { // every other client makes a connection for each call
			c := edgetest.NewClient(t, "http://"+address)
			for {
				select {
				case <-stop:
					return
				default:
				}
				body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
				if i%2 == 0 {
					head = append(head, "Connection", "close")
				}
				r, err := c.Try("POST", "/mcp", body, head...)
				calls.Add(1)
				if err != nil || r.Status != http.StatusOK {
					failed.Add(1)
					t.Errorf("a call failed: %v", err)
				}
			}
		})
	}
	edgetest.Until(t, "load", func() bool { return calls.Load() > 200 })
	before := calls.Load()
	second := edgetest.Start(t, edgetest.Manifest(back), shared)
	if second.Addr() != address {
		t.Errorf("the second edge is at %s, not at %s", second.Addr(), address)
	}
	first.Ended() // by itself
	now := calls.Load()
	edgetest.Until(t, "load at the second", func() bool { return calls.Load() > now+200 })
	close(stop)
	load.Wait()
	t.Logf("%d calls, %d of them while the first one left; %d failed", calls.Load(), now-before, failed.Load())
	second.Stop()
}
