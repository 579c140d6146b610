//go:build unix

package serve_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/serve"
)

// patient has an edge wait for its store as long as a busy machine may take.
var patient = edgetest.Settings(func(s *serve.Settings) { s.StoreTimeout = 10 * time.Second })

// pair is two edges that share a Redis, before one backend.
type pair struct {
	redis *kvtest.Server
	back  *edgetest.Server
	a, b  *front
	more  []string // YAML of the server
}

// newPair starts two edges with one key for states.
func newPair(t *testing.T, era edgetest.Era, options ...edgetest.Option) *pair {
	t.Helper()
	p := &pair{redis: kvtest.Redis(t), back: edgetest.NewServer(t, era)}
	p.a, p.b = p.edge(t, options...), p.edge(t, options...)
	return p
}

func (p *pair) yaml() string {
	return edgetest.Manifest(p.back, append([]string{in(p.redis)}, p.more...)...)
}

// edge starts one more.
func (p *pair) edge(t *testing.T, options ...edgetest.Option) *front {
	t.Helper()
	key := stateKey(t)
	options = append([]edgetest.Option{patient, edgetest.Settings(func(s *serve.Settings) { s.StateKeyFile = key })}, options...)
	e := edgetest.Start(t, p.yaml(), options...)
	f := &front{Edge: e, back: p.back, client: e.NewClient()}
	f.stored(t)
	return f
}

// stateKey is a file with the key that every edge of a test has.
func stateKey(t *testing.T) string {
	t.Helper()
	path := filepath.Join(os.TempDir(), fmt.Sprintf("weir-state-key-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-")))
	if _, err := os.Stat(path); err != nil {
		key := make([]byte, 32)
		if _, err := rand.Read(key); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(key)), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(path) })
	}
	return path
}

// at is the same client at another edge.
func (c caller) at(f *front) caller {
	c.Client = f.NewClient()
	if c.session != nil {
		c.session = &edgetest.Session{Client: c.Client, ID: c.session.ID, Version: c.session.Version}
	}
	return c
}

// TestItem01RootsAtTheOtherReplica: that the roots of a client have changed is told to the sessions
// that each edge has with the backend, whichever edge the client says it to.
func TestItem01RootsAtTheOtherReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	here := p.a.callerOf(t, edgetest.Legacy, `{"roots":{"listChanged":true}}`)
	there := here.at(p.b)
	for _, c := range []caller{here, there} {
		c.call(t, "1", "{}").Result()
	}
	for n := range 2 {
		there.session.Notify("notifications/roots/list_changed", "")
		edgetest.Until(t, "both sessions to be told", func() bool {
			told := map[string]int{}
			for _, r := range p.back.Requests("notifications/roots/list_changed") {
				told[r.Session]++
			}
			for _, times := range told {
				if times <= n {
					return false
				}
			}
			return len(told) == 2
		})
	}
}

// TestItem01SessionAtEveryReplica: a session that began at one edge goes on at
// another, and what either of them does to it holds at both.
func TestItem01SessionAtEveryReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	here := p.a.callerOf(t, edgetest.Legacy, `{"roots":{}}`)
	there := here.at(p.b)
	if r := there.call(t, "1", `{"n":1}`); r.Status != 200 || r.Message().Error != nil {
		t.Fatalf("at the other edge: status %d: %s", r.Status, r.Body)
	}
	if r := here.call(t, "2", `{"n":1}`); r.Status != 200 {
		t.Fatalf("at its own edge: status %d: %s", r.Status, r.Body)
	}
	// Each edge has a session of its own with the backend, in the client's name.
	inits := p.back.Requests("initialize")
	for _, one := range inits[len(inits)-2:] {
		if got := edgetest.Member(string(one.Message.Params), "clientInfo", "name"); got != `"edgetest"` {
			t.Errorf("introduced as %s", got)
		}
	}
	// A log level that was set at one holds at the other.
	if r := there.request(t, "3", "logging/setLevel", `{"level":"warning"}`); r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	third := p.edge(t)
	if r := here.at(third).call(t, "4", `{"n":1}`); r.Status != 200 {
		t.Fatalf("at a third edge: status %d: %s", r.Status, r.Body)
	}
	levels := p.back.Requests("logging/setLevel")
	if len(levels) == 0 || edgetest.Member(string(levels[len(levels)-1].Message.Params), "level") != `"warning"` {
		t.Errorf("the third edge set %d levels", len(levels))
	}
	// Its end at one is its end at all of them.
	if r := there.session.Delete(); r.Status != 200 {
		t.Fatalf("DELETE: status %d: %s", r.Status, r.Body)
	}
	fails(t, there.call(t, "5", "{}"), 404, -32001, "5")
	edgetest.Until(t, "the end of the session at its first edge", func() bool { return here.call(t, "6", "{}").Status == 404 })
	edgetest.Until(t, "the end of the backend's sessions", func() bool { return p.back.Count("DELETE") >= 3 })
	if keys := p.redis.Do("--raw", "keys", "weir:session:*"); keys != "" {
		t.Errorf("the store still has %s", keys)
	}
}

// TestR02ForeignSessions: what no edge made, what has ended, what is another
// server's or another principal's is unknown, at every edge alike.
func TestR02ForeignSessions(t *testing.T) {
	t.Parallel()
	redis, back, m := kvtest.Redis(t), edgetest.NewServer(t, edgetest.Legacy), newMint(t)
	yaml := strings.Replace(edgetest.Manifest(back, in(redis)), "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, m.URL+"/keys"), 1)
	var fronts []*front
	for _, text := range []string{yaml, yaml, strings.Replace(yaml, "name: edgetest", "name: another", 1)} {
		e := edgetest.Start(t, text, patient)
		f := &front{Edge: e, back: back, client: e.NewClient()}
		f.stored(t)
		edgetest.Until(t, "the keys", func() bool {
			return f.client.Do("GET", "/status", "", bearer(m.token(t, "probe", "weir", nil))...).Status == 200
		})
		fronts = append(fronts, f)
	}
	as := func(f *front, who string) *edgetest.Client {
		c := f.NewClient()
		c.Header.Set("Authorization", "Bearer "+m.token(t, who, "weir", nil))
		return c
	}
	mine := as(fronts[0], "ann").Initialize("")
	at := func(f *front, who, id string) *edgetest.Response {
		s := &edgetest.Session{Client: as(f, who), ID: id, Version: mine.Version}
		return s.Call("1", "echo", "{}")
	}
	for name, r := range map[string]*edgetest.Response{
		"another principal at its own edge":     at(fronts[0], "bob", mine.ID),
		"another principal at the other edge":   at(fronts[1], "bob", mine.ID),
		"another server":                        at(fronts[2], "ann", mine.ID),
		"an id that no edge made":               at(fronts[1], "ann", strings.Repeat("A", 21)+"B"),
		"an id of another shape":                at(fronts[1], "ann", "*"),
		"an id that names a key of the store":   at(fronts[1], "ann", "session:"+mine.ID),
		"an id that is long":                    at(fronts[1], "ann", strings.Repeat("A", 8000)),
		"an id in another spelling":             at(fronts[1], "ann", mine.ID[:21]+string(mine.ID[21]^1)),
		"an id with what a decoder would leave": at(fronts[1], "ann", mine.ID+"="),
	} {
		if m := r.Message(); r.Status != 404 || m.Error == nil || m.Error.Code != -32001 {
			t.Errorf("%s: status %d: %s", name, r.Status, r.Body)
		}
	}
	// Nor may another principal speak for a stream of the older transport, before
	// and after its session has begun.
	old := as(fronts[0], "ann").OpenSSE()
	const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`
	for _, begun := range []bool{false, true} {
		for i, f := range fronts {
			for _, body := range []string{hello, call} {
				r := as(f, "bob").Do("POST", old.Path, body)
				if r.Status != 404 && (!begun || i == 0 || body == call || r.Status != 400) {
					t.Errorf("a stranger at edge %d, begun %t: status %d: %s", i, begun, r.Status, r.Body)
				}
			}
		}
		if !begun {
			old.Initialize("")
		}
	}
	if n := back.Count("tools/call"); n != 0 {
		t.Errorf("%d calls reached the backend", n)
	}
	there := *old
	there.Client = as(fronts[1], "ann")
	there.Request("2", "ping", "")
	if got := string(old.Stream.Next().Data); got != `{"jsonrpc":"2.0","id":2,"result":{}}` {
		t.Errorf("its owner on the older transport: %s", got)
	}
	old.Stream.Close()
	edgetest.Until(t, "the end of its session", func() bool {
		return len(strings.Fields(redis.Do("--raw", "keys", "weir:session:*"))) == 1
	})
	if r := at(fronts[1], "ann", mine.ID); r.Status != 200 {
		t.Errorf("its owner: status %d: %s", r.Status, r.Body)
	}
	// Nobody reads in the store whose session it is, or its id.
	for _, key := range strings.Fields(redis.Do("--raw", "keys", "*")) {
		value := ""
		if strings.HasPrefix(key, "weir:session:") {
			value = redis.Do("--raw", "get", key)
		}
		if strings.Contains(key+value, "ann") || strings.Contains(key+value, mine.ID) {
			t.Errorf("%s: %q", key, value)
		}
	}
	// What is no session counts as none.
	redis.Do("set", redis.Do("--raw", "keys", "weir:session:*"), "garbage")
	third := edgetest.Start(t, yaml, patient)
	f := &front{Edge: third, client: third.NewClient()}
	f.stored(t)
	edgetest.Until(t, "the keys", func() bool {
		return f.client.Do("GET", "/status", "", bearer(m.token(t, "probe", "weir", nil))...).Status == 200
	})
	if r := at(f, "ann", mine.ID); r.Status != 404 {
		t.Errorf("garbage: status %d: %s", r.Status, r.Body)
	}
}

// TestR02StoreAway: while the store is away, clients with sessions are refused
// or, in mode open, go on at the edge that has theirs; a session never begins,
// and clients without one do not notice. Both recover soon after it is back.
func TestR02StoreAway(t *testing.T) {
	for _, mode := range []string{"closed", "open"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) {
				s.StoreFailure, s.StoreTimeout = mode, 500*time.Millisecond
			}))
			legacy, modern := p.a.callerOf(t, edgetest.Legacy, ""), p.a.callerOf(t, edgetest.Modern, "")
			there := legacy.at(p.b)
			p.redis.Kill()
			edgetest.Until(t, "the edges to notice", func() bool {
				away := true
				for _, f := range []*front{p.a, p.b} {
					away = away && strings.Contains(string(f.client.Do("GET", "/status", "").Body), `"connected": false`)
				}
				return away
			})
			for range 20 {
				r := legacy.call(t, "1", "{}")
				if mode == "open" && r.Status != 200 {
					t.Errorf("status %d: %s", r.Status, r.Body)
				}
				if mode == "closed" {
					fails(t, r, 503, 503, "1")
					if r.Header.Get("Retry-After") == "" {
						t.Error("no Retry-After")
					}
				}
				if r := modern.call(t, "2", "{}"); r.Status != 200 {
					t.Errorf("a client without a session: status %d: %s", r.Status, r.Body)
				}
			}
			fails(t, there.call(t, "3", "{}"), 503, 503, "3")
			if _, err := p.a.NewClient().TryInitialize(edgetest.LegacyVersion, ""); err == nil || !strings.Contains(err.Error(), "503") {
				t.Errorf("a session began: %v", err)
			}
			if r := p.a.client.Do("GET", "/readyz", ""); r.Status != 200 {
				t.Errorf("readyz: status %d", r.Status)
			}
			p.redis.Start()
			// It came back empty: what it had is unknown, and clients begin anew.
			edgetest.Until(t, "the end of the lost session", func() bool { return legacy.call(t, "4", "{}").Status == 404 })
			edgetest.Until(t, "new sessions", func() bool {
				_, err := p.b.NewClient().TryInitialize(edgetest.LegacyVersion, "")
				return err == nil
			})
		})
	}
}

// TestStoreThatIsDownAtTheStart: the edge starts without its store, says so,
// and is ready when it has met it.
func TestStoreThatIsDownAtTheStart(t *testing.T) {
	t.Parallel()
	redis, back := kvtest.Redis(t), edgetest.NewServer(t, edgetest.Legacy)
	redis.Kill()
	e := edgetest.Start(t, edgetest.Manifest(back, in(redis)), patient)
	c := e.NewClient()
	if r := c.Do("GET", "/readyz", ""); r.Status != 503 || string(r.Body) != "waiting\n" {
		t.Errorf("readyz: %d %s", r.Status, r.Body)
	}
	status := string(c.Do("GET", "/status", "").Body)
	if !strings.Contains(status, `"connected": false`) || !strings.Contains(status, redis.Addr) {
		t.Errorf("status: %s", status)
	}
	redis.Start()
	(&front{Edge: e, client: c}).stored(t)
	if status := string(c.Do("GET", "/status", "").Body); !strings.Contains(status, `"connected": true`) {
		t.Errorf("status: %s", status)
	}
}

// TestStoresOverReloads: a store is opened once for all servers that use it, is
// carried over while one does, and closed when none does any more; sessions go
// on in another store.
func TestStoresOverReloads(t *testing.T) {
	t.Parallel()
	one, two := kvtest.Redis(t), kvtest.Redis(t)
	back := edgetest.NewServer(t, edgetest.Legacy)
	manifest := func(redis *kvtest.Server, more string) string {
		text := ""
		for _, name := range []string{"x", "y"} {
			object := edgetest.Object(name, back)
			if redis != nil {
				object = strings.Replace(object, "  config:\n", fmt.Sprintf("  sessionStorage: {provider: kvstore, address: %q}\n%s  config:\n", redis.Addr, more), 1)
			}
			text += object
		}
		return text
	}
	e := edgetest.Start(t, manifest(one, ""), patient, edgetest.Settings(func(s *serve.Settings) { s.DefaultServer = "x" }))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	f.stored(t)
	connections := func(redis *kvtest.Server) int { // besides that of redis-cli
		return len(strings.Split(redis.Do("client", "list"), "\n")) - 1
	}
	boxes := func(redis *kvtest.Server) int { return len(strings.Fields(redis.Do("--raw", "keys", "weir:alive:*"))) }
	edgetest.Until(t, "the heartbeat", func() bool { return boxes(one) == 1 })
	c := f.callerOf(t, edgetest.Legacy, "")
	reload := func(yaml string) {
		t.Helper()
		if err := e.Serve.Reload(edgetest.Plan(t, yaml)); err != nil {
			t.Fatal(err)
		}
	}
	reload(manifest(one, "  passthroughHeaders: [X-Tenant]\n"))
	if n := boxes(one); n != 1 {
		t.Errorf("%d edges at the store after a reload", n)
	}
	if r := c.call(t, "1", "{}"); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	reload(manifest(two, ""))
	edgetest.Until(t, "the other store", func() bool { return boxes(two) == 1 })
	edgetest.Until(t, "the session in the other store", func() bool {
		return c.call(t, "2", "{}").Status == 200 && two.Do("--raw", "keys", "weir:session:*") != ""
	})
	edgetest.Until(t, "the end of the first store", func() bool { return connections(one) == 0 && boxes(one) == 0 })
	reload(manifest(nil, ""))
	edgetest.Until(t, "the end of the second store", func() bool { return connections(two) == 0 })
	if r := c.call(t, "3", "{}"); r.Status != 200 {
		t.Errorf("in memory: status %d: %s", r.Status, r.Body)
	}
}

// TestR13PasswordOfTheStore: the password comes from the secret that is referred
// to, or else from the process; with a wrong one the edge says so, is not ready,
// and does not tell the password.
func TestR13PasswordOfTheStore(t *testing.T) {
	t.Parallel()
	redis, back := kvtest.Redis(t, "--requirepass", "s3cret-one"), edgetest.NewServer(t, edgetest.Legacy)
	manifest := func(value, ref string) string {
		object := strings.Replace(edgetest.Object("x", back), "  config:\n",
			fmt.Sprintf("  sessionStorage: {provider: kvstore, address: %q%s}\n  config:\n", redis.Addr, ref), 1)
		return object + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: redis}\nstringData: {password: " + value + "}\n"
	}
	const ref = ", passwordRef: {name: redis, key: password}"
	for name, options := range map[string][]edgetest.Option{
		manifest("s3cret-one", ref): {patient},
		manifest("wrong", ""):       {patient, edgetest.With(serve.WithStorePassword("s3cret-one"))},
	} {
		e := edgetest.Start(t, name, options...)
		f := &front{Edge: e, back: back, client: e.NewClient()}
		f.stored(t)
		if r := f.callerOf(t, edgetest.Legacy, "").call(t, "1", "{}"); r.Status != 200 {
			t.Errorf("status %d: %s", r.Status, r.Body)
		}
	}
	e := edgetest.Start(t, manifest("s3cret-two", ref), patient)
	c := e.NewClient()
	var status string
	edgetest.Until(t, "what is wrong", func() bool {
		status = string(c.Do("GET", "/status", "").Body)
		return strings.Contains(status, "the user or the password is wrong")
	})
	if r := c.Do("GET", "/readyz", ""); r.Status != 503 {
		t.Errorf("readyz: status %d", r.Status)
	}
	if strings.Contains(status+e.Log(), "s3cret") {
		t.Error("the password is told")
	}
	// A secret that is not there stops the start, and a reload.
	gone := strings.Replace(manifest("x", ref), "name: redis, key", "name: nowhere, key", 1)
	if err := e.Serve.Reload(edgetest.Plan(t, gone)); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a reload without the secret: %v", err)
	}
	// A new password opens the store anew.
	if err := e.Serve.Reload(edgetest.Plan(t, manifest("s3cret-one", ref))); err != nil {
		t.Fatal(err)
	}
	(&front{Edge: e, client: c}).stored(t)
}

// TestItem01KeyOfTheSecret: edges that have the secret weir-state share the key
// of states, and do not warn; without any key they warn.
func TestItem01KeyOfTheSecret(t *testing.T) {
	t.Parallel()
	redis, back := kvtest.Redis(t), edgetest.NewServer(t, edgetest.Legacy)
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask(`"q"`, "roots/list", "")
		c.Result(`{"content":[]}`)
	})
	object := strings.Replace(edgetest.Object("x", back), "  config:\n", "  "+in(redis)+"\n  config:\n", 1)
	key := "---\napiVersion: v1\nkind: Secret\nmetadata: {name: weir-state}\nstringData: {key: " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))) + "}\n"
	start := func(yaml string) *front {
		e := edgetest.Start(t, yaml, patient)
		f := &front{Edge: e, back: back, client: e.NewClient()}
		f.stored(t)
		return f
	}
	a, b, other := start(object+key), start(object+key), start(object)
	c := a.callerOf(t, edgetest.Modern, "")
	first := a.begin(t, c, `{}`)
	answer := `{"` + first.key(t) + `":{"roots":[]}}`
	fails(t, retry(c.at(other), "1", `{}`, answer, first.RequestState), 400, -32602, "1")
	if r := retry(c.at(b), "2", `{}`, answer, first.RequestState); r.Status != 200 || r.Message().Error != nil {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if strings.Contains(a.Log(), "edges that share a store need one key") || !strings.Contains(other.Log(), "edges that share a store need one key") {
		t.Error("who warns is the wrong one")
	}
}

// TestStoreAndLimitsAreMeasured: what limits decide and what the store is asked
// is on /metrics.
func TestStoreAndLimitsAreMeasured(t *testing.T) {
	t.Parallel()
	redis, back := kvtest.Redis(t), edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, edgetest.Manifest(back, in(redis), "rateLimiting: {tools: [{name: echo, shared: "+bucket(1)+"}]}",
		"telemetry: {enablePrometheusMetricsPath: true}"), patient)
	f := &front{Edge: e, back: back, client: e.NewClient()}
	f.stored(t)
	c := f.callerOf(t, edgetest.Modern, "")
	c.call(t, "1", "{}").Result()
	limited(t, c.call(t, "2", "{}"), "2")
	text := string(f.client.Do("GET", "/metrics", "").Body)
	value := func(name string, labels ...string) string {
		for line := range strings.Lines(text) {
			fits := strings.HasPrefix(line, name+"{")
			for _, l := range labels {
				fits = fits && strings.Contains(line, l)
			}
			if fits {
				return strings.TrimSpace(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:])
			}
		}
		return "missing"
	}
	for _, one := range []struct {
		want, name string
		labels     []string
	}{
		{"1", "weir_store_up", []string{`server="edgetest"`}},
		{"1", "weir_rate_limit_decisions_total", []string{`decision="admitted"`, `rejected_by="none"`}},
		{"1", "weir_rate_limit_decisions_total", []string{`decision="limited"`, `rejected_by="shared_tool"`}},
		{"0", "weir_rate_limit_decisions_total", []string{`decision="limited"`, `rejected_by="shared_server"`}},
		{"2", "weir_rate_limit_checks_total", nil},
		{"0", "weir_rate_limit_store_errors_total", nil},
		{"0", "weir_store_failures_total", nil},
	} {
		if got := value(one.name, one.labels...); got != one.want {
			t.Errorf("%s %q is %s, want %s", one.name, one.labels, got, one.want)
		}
	}
	if n := value("weir_store_calls_total"); n == "missing" || n == "0" {
		t.Errorf("weir_store_calls_total is %s", n)
	}
}

// TestItem01LifetimeOfACommonSession: a session lives while it is used anywhere,
// or listened to, and ends everywhere when it is not; an edge that gives it up
// for age takes nothing from the others.
func TestItem01LifetimeOfACommonSession(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second * min(edgetest.Slower, 3)
	p := newPair(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.SessionTTL = ttl }))
	used, listening := p.a.callerOf(t, edgetest.Legacy, ""), p.a.callerOf(t, edgetest.Legacy, "")
	there := used.at(p.b)
	stream := listening.at(p.b).session.Listen()
	began := time.Now()
	edgetest.Until(t, "twice the lifetime", func() bool {
		if r := there.call(t, "1", "{}"); r.Status != 200 {
			t.Fatalf("after %s: status %d: %s", time.Since(began), r.Status, r.Body)
		}
		return time.Since(began) > 2*ttl
	})
	// The first edge has given both up; it finds them again.
	for _, c := range []caller{used, listening} {
		if r := c.call(t, "2", "{}"); r.Status != 200 {
			t.Errorf("at the first edge: status %d: %s", r.Status, r.Body)
		}
	}
	stream.Close()
	edgetest.Until(t, "the end of both in the store", func() bool { return p.redis.Do("--raw", "keys", "weir:session:*") == "" })
	for _, c := range []caller{used, there, listening} {
		fails(t, c.call(t, "3", "{}"), 404, -32001, "3")
	}
}

// TestZ02AtAnotherReplica sends what has no id to the edge that has neither the
// session nor the stream.
func TestZ02AtAnotherReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	s := p.a.client.Initialize("")
	if r := s.Call("1", "echo", "{}"); r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	there := &edgetest.Session{Client: p.b.client, ID: s.ID, Version: s.Version}
	here := p.a.client.OpenSSE()
	here.Initialize("")
	for _, a := range edgetest.Askings() {
		mark := "elsewhere-" + a.Method + "."
		body, _ := a.Marked(edgetest.Legacy, edgetest.Form{Swapped: true}, "9", "back", mark)
		for where, r := range map[string]*edgetest.Response{
			"its session": there.Client.Post(body, "Mcp-Session-Id", s.ID, "MCP-Protocol-Version", s.Version),
			"its stream":  p.b.client.Do("POST", here.Path, body),
		} {
			if m := edgetest.Parse(t, r.Body); r.Status != 400 || m.Error == nil || m.Error.Code != -32600 {
				t.Errorf("%s, away from %s: status %d: %s", a.Name(), where, r.Status, r.Body)
			}
		}
		if n := len(p.back.Saw(mark)); n != 0 {
			t.Errorf("%s reached the backend", a.Name())
		}
	}
}

// TestZ43NodesThatAreMadeUp: an edge that a client names in the id of an event, and
// that the store does not know to have had the session, is not asked, and not looked
// for.
func TestZ43NodesThatAreMadeUp(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	c := p.a.callerOf(t, edgetest.Legacy, "")
	for i := range 20 {
		node := fmt.Sprintf("%016x", i)
		r := c.Do("GET", "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", c.session.ID, "Last-Event-ID", node+".1-1")
		if r.Status != 400 {
			t.Errorf("status %d: %s", r.Status, r.Body)
		}
		if keys := p.redis.Do("--raw", "keys", "*"+node+"*"); keys != "" {
			t.Errorf("the store has %s", keys)
		}
	}
}

// TestZ43LostEventLetter: a stream that was resumed at another edge ends when the
// store did not take one of its events, and its client comes again for the rest.
func TestZ43LostEventLetter(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.StoreTimeout = 100 * time.Millisecond }))
	second, third, told := make(chan struct{}), make(chan struct{}), make(chan struct{})
	answer := sync.OnceFunc(func() { close(third) })
	defer answer() // of a call that waits, the backend would wait, too
	p.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		<-second
		c.Progress(2)
		close(told)
		<-third
		c.Result(`{"content":[]}`)
	})
	c := p.a.callerOf(t, edgetest.Legacy, "")
	r := c.session.Request("1", "tools/call", `{"name":"echo","arguments":{},"_meta":{"progressToken":1}}`)
	seen := r.Next()
	r.Close()
	resume := func(id string) *edgetest.Response {
		return c.at(p.b).Do("GET", "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", c.session.ID, "Last-Event-ID", id)
	}
	broken := resume(seen.ID)
	if broken.Status != 200 {
		t.Fatalf("status %d", broken.Status)
	}
	time.Sleep(500 * time.Millisecond) // it reads on at its edge now, not in the store
	p.redis.Freeze()
	close(second)
	<-told
	time.Sleep(400 * time.Millisecond) // longer than an event waits for the store
	p.redis.Thaw()
	events := make(chan []edgetest.Event, 1)
	go func() {
		rest, _ := broken.TryRest()
		events <- rest
	}()
	var all []edgetest.Event
	select {
	case all = <-events:
	case <-time.After(20 * time.Second):
		t.Fatal("the stream goes on without one of its events")
	}
	last := seen.ID
	if len(all) > 0 { // the store took it, late
		last = all[len(all)-1].ID
	}
	answer()
	edgetest.Until(t, "the answer at the other edge", func() bool { // for which it may have to come more than once
		r := resume(last)
		if r.Status != 200 {
			return false
		}
		for _, e := range r.Rest() {
			all, last = append(all, e), e.ID
		}
		return len(all) > 0 && edgetest.Member(string(all[len(all)-1].Data), "id") == "1"
	})
	if len(all) != 2 || edgetest.Member(string(all[0].Data), "params", "progress") != "2" || edgetest.Member(string(all[1].Data), "id") != "1" {
		t.Errorf("%q", all)
	}
}

// A call whose session ends meanwhile, at another edge, too, or since the store has lost it, is
// answered: its client may know nothing of the end.
func TestCallOfASessionThatEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *pair, c caller){
		"here":           func(p *pair, c caller) { c.session.Delete() },
		"at another one": func(p *pair, c caller) { c.at(p.b).session.Delete() },
		"in the store":   func(p *pair, c caller) { p.redis.Do("FLUSHALL") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, edgetest.Legacy)
			entered, _ := slow(p.a)
			c := p.a.callerOf(t, edgetest.Legacy, "")
			answered := make(chan *edgetest.Response, 1)
			go func() {
				r, err := c.try("7", "tools/call", edgetest.CallParams("echo", "{}"))
				if err != nil {
					t.Error(err)
				}
				answered <- r
			}()
			edgetest.Receive(t, entered, "the call")
			end(p, c)
			edgetest.Until(t, "the end of the session", func() bool { return c.session.Request("8", "ping", "").Status == 404 })
			fails(t, edgetest.Receive(t, answered, "the answer"), 200, -32603, "7")
		})
	}
}
