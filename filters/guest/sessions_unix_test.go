//go:build unix

package guest_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/serve"
)

// atEdge is the same session at another edge.
func (c client) atEdge(e *edgetest.Edge) client {
	c.Client = e.NewClient()
	if c.Session != nil {
		c.Session = &edgetest.Session{Client: c.Client, ID: c.Session.ID, Version: c.Session.Version}
	}
	return c
}

// startsSessions is a filter that says of a client which it was when its session
// began.
var startsSessions = filter{name: "f", rules: []string{"sub|on_session_start|header=x-a", "on_session_start|header:x-a=yes|set_attr|team|\"admins\""}}

// passes checks that calls in a session pass the policy, or none does.
func passes(t *testing.T, where string, c client, want bool) {
	t.Helper()
	r := c.call(t, "echo", "{}")
	if got := strings.Contains(string(r.Body), `"result"`); got != want {
		t.Errorf("%s: status %d: %s", where, r.Status, r.Body)
	}
}

// TestZ34AttributesAtEveryReplica: what a program said when a session began holds at
// another replica that runs the program, and not at one that runs another.
func TestZ34AttributesAtEveryReplica(t *testing.T) {
	t.Parallel()
	redis := kvtest.Redis(t)
	back := edgetest.NewServer(t, edgetest.Legacy)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	edgeOf := func(f filter) *edgetest.Edge {
		yaml := judged(t, back, filepath.Join(t.TempDir(), "audit.log"), f)
		yaml = strings.Replace(yaml, "  config:\n", fmt.Sprintf("  sessionStorage: {provider: kvstore, address: %q}\n  config:\n", redis.Addr), 1)
		e := start(t, yaml, edgetest.Settings(func(s *serve.Settings) { s.StateKeyFile, s.StoreTimeout = key, 10*time.Second }))
		edgetest.Until(t, "the store", func() bool { return e.NewClient().Do("GET", "/readyz", "").Status == 200 })
		return e
	}
	a, b := edgeOf(startsSessions), edgeOf(startsSessions)
	with, without := as(a, edgetest.Legacy, nil, "X-A", "yes"), as(a, edgetest.Legacy, nil)
	passes(t, "where the session began", with, true)
	passes(t, "at another replica", with.atEdge(b), true)
	passes(t, "another session", without.atEdge(b), false)
	other := startsSessions
	other.rules = append(append([]string{}, other.rules...), "on_session_start|header:x-a=never|deny|0|no")
	passes(t, "at a replica with another program", with.atEdge(edgeOf(other)), false)
	passes(t, "and again where it began", with, true)
}

// TestZ32AtEveryReplica has a backend leak in calls whose client is now at one replica and
// now at another: the question, the answers and the rest of a call pass between them.
func TestZ32AtEveryReplica(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String()+" client", func(t *testing.T) {
			t.Parallel()
			redis := kvtest.Redis(t)
			back := edgetest.NewServer(t, edgetest.Legacy)
			back.Always("tools/call", leaks(edgetest.Legacy, tells))
			key := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
				t.Fatal(err)
			}
			yaml := manifest(t, backs{"back": back}, []filter{{name: "f", rules: redacts}})
			yaml = strings.Replace(yaml, "  config:\n", fmt.Sprintf("  sessionStorage: {provider: kvstore, address: %q}\n  config:\n", redis.Addr), 1)
			next := func() *edgetest.Edge {
				e := start(t, yaml, edgetest.Settings(func(s *serve.Settings) { s.StateKeyFile, s.StoreTimeout = key, 10*time.Second }))
				edgetest.Until(t, "the store", func() bool { return e.NewClient().Do("GET", "/readyz", "").Status == 200 })
				return e
			}
			here, b := logged(next(), era, capable), next()
			there := here.atEdge(b)
			for n := range 20 {
				h, err := here.play(n, "echo", "{}", there)
				all := strings.Join(h.text, "\n")
				if err != nil || strings.Contains(all, leak) || strings.Count(all, "[hidden]") < 7 {
					t.Fatalf("%v: %s", err, all)
				}
			}
			for _, r := range back.Requests("") {
				if strings.Contains(string(r.Body), private) {
					t.Fatalf("the backend was told %s", r.Body)
				}
			}
		})
	}
}

// TestZ34AttributesAreHandedOver: the process that stands in for another knows what
// a program said when a session began.
func TestZ34AttributesAreHandedOver(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "weir") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "sock")
	back := edgetest.NewServer(t, edgetest.Legacy)
	yaml := judged(t, back, filepath.Join(t.TempDir(), "audit.log"), startsSessions)
	next := func() *edgetest.Edge {
		return start(t, yaml, edgetest.Settings(func(s *serve.Settings) { s.HandOver = socket }))
	}
	before := next()
	with, without := as(before, edgetest.Legacy, nil, "X-A", "yes"), as(before, edgetest.Legacy, nil)
	passes(t, "at the first process", with, true)
	edgetest.Until(t, "the socket", func() bool { _, err := os.Lstat(socket); return err == nil })
	after := next()
	edgetest.Until(t, "the new edge to serve", func() bool { return strings.Contains(before.Log(), "another process serves now") })
	passes(t, "at the one that stands in for it", with.atEdge(after), true)
	passes(t, "another session", without.atEdge(after), false)
}

// TestDeniedSessionIsNowhere: a session that a program denies is at no other replica either.
func TestDeniedSessionIsNowhere(t *testing.T) {
	t.Parallel()
	redis := kvtest.Redis(t)
	back := edgetest.NewServer(t, edgetest.Legacy)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	f := filter{name: "f", rules: []string{"sub|on_session_start|header=x-a", "on_session_start|header:x-a=no|deny|0|no"}}
	yaml := strings.Replace(manifest(t, backs{"back": back}, []filter{f}), "  config:\n", fmt.Sprintf("  sessionStorage: {provider: kvstore, address: %q}\n  config:\n", redis.Addr), 1)
	next := func() *edgetest.Edge {
		e := start(t, yaml, edgetest.Settings(func(s *serve.Settings) { s.StateKeyFile, s.StoreTimeout = key, 10*time.Second }))
		edgetest.Until(t, "the store", func() bool { return e.NewClient().Do("GET", "/readyz", "").Status == 200 })
		return e
	}
	here, there := next(), next()
	old := here.NewClient().OpenSSE()
	r := old.Do("POST", old.Path, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, "X-A", "no")
	if r.Status == 202 && old.Stream.NextMessage().Error == nil {
		t.Errorf("it is not denied: %d %s", r.Status, r.Body)
	}
	if r := there.NewClient().Do("POST", old.Path, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`); r.Status != 404 {
		t.Errorf("at another replica: status %d: %s", r.Status, r.Body)
	}
	if n := back.Count("tools/call"); n != 0 {
		t.Errorf("the backend had %d calls", n)
	}
}

// TestSessionIsJudgedBeforeItIsFound: while a program is still asked whether a session of the
// older transport may begin, whose id its client knows before, no replica serves it.
func TestSessionIsJudgedBeforeItIsFound(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	var asks atomic.Int32
	_, host := peer(t, func(_ http.ResponseWriter, r *http.Request) {
		if asks.Add(1) == 1 {
			close(asked)
		}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	})
	redis := kvtest.Redis(t)
	back := edgetest.NewServer(t, edgetest.Legacy)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	f := outsider(t, "f", everything(`"http://`+host+`"`, "none"), "sub|on_session_start|blocking=1",
		"on_session_start|*|fetch|GET http://"+host+"/", `on_session_start|*|set_attr|team|"admins"`)
	yaml := judged(t, back, filepath.Join(t.TempDir(), "audit.log"), f)
	yaml = strings.Replace(yaml, "  config:\n", fmt.Sprintf("  sessionStorage: {provider: kvstore, address: %q}\n  config:\n", redis.Addr), 1)
	next := func() *edgetest.Edge {
		e := start(t, yaml, edgetest.Settings(func(s *serve.Settings) { s.StateKeyFile, s.StoreTimeout = key, 10*time.Second }))
		edgetest.Until(t, "the store", func() bool { return e.NewClient().Do("GET", "/readyz", "").Status == 200 })
		return e
	}
	a, b := next(), next()
	old := a.NewClient().OpenSSE()
	begun := make(chan *edgetest.Response, 1)
	go func() {
		r, err := b.NewClient().Try("POST", old.Path, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		if err != nil {
			t.Error(err)
		}
		begun <- r
	}()
	select {
	case <-asked:
	case <-time.After(edgetest.Patience):
		t.Fatal("the program asks nobody")
	}
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	for i, e := range []*edgetest.Edge{a, b} {
		if r := e.NewClient().Do("POST", old.Path, call); r.Status/100 != 4 {
			t.Errorf("replica %d, before the session may begin: status %d: %s", i, r.Status, r.Body)
		}
	}
	if n := back.Count("tools/call"); n != 0 {
		t.Errorf("the backend had %d calls", n)
	}
	close(answer)
	if r := <-begun; r == nil || r.Status != 202 {
		t.Fatalf("the session does not begin: %+v", r)
	}
	old.Stream.NextMessage()
	if r := old.Do("POST", old.Path, call); r.Status != 202 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	if m := old.Stream.NextMessage(); m.Result == nil {
		t.Errorf("what the program said is not there: %+v", m)
	}
	// A second beginning is refused before a program hears of it.
	again := `{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	for i, e := range []*edgetest.Edge{a, b} {
		if r := e.NewClient().Do("POST", old.Path, again); r.Status != 400 {
			t.Errorf("replica %d, a second beginning: status %d: %s", i, r.Status, r.Body)
		}
	}
	if n := asks.Load(); n != 1 {
		t.Errorf("the program was asked %d times", n)
	}
	if r := old.Do("POST", old.Path, call); r.Status != 202 || old.Stream.NextMessage().Result == nil {
		t.Errorf("the session does not go on: status %d: %s", r.Status, r.Body)
	}
}
