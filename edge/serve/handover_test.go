//go:build unix

package serve_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/serve"
)

// succession is edges that take over from each other, before one backend.
type succession struct {
	back    *edgetest.Server
	socket  string
	yaml    string
	options []edgetest.Option
	now     *front // that serves
}

func newSuccession(t *testing.T, era edgetest.Era, options ...edgetest.Option) *succession {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &succession{back: edgetest.NewServer(t, era), socket: filepath.Join(dir, "sock")}
	s.yaml = edgetest.Manifest(s.back)
	s.options = append([]edgetest.Option{edgetest.Settings(func(c *serve.Settings) { c.HandOver = s.socket })}, options...)
	s.next(t)
	return s
}

// next starts the next edge and returns the one before.
func (s *succession) next(t *testing.T) (before *front) {
	t.Helper()
	e := edgetest.Start(t, s.yaml, s.options...)
	before = s.now
	s.now = &front{Edge: e, back: s.back, client: e.NewClient()}
	if before == nil {
		s.now.introduced(t)
		edgetest.Until(t, "the socket", func() bool { _, err := os.Lstat(s.socket); return err == nil })
	} else {
		edgetest.Until(t, "the new edge to serve", func() bool { return strings.Contains(before.Log(), "another process serves now") })
	}
	return before
}

// again is the same client with connections of its own.
func (s *succession) again(c caller) caller { return c.at(s.now) }

// subscribers are the streams on which a backend tells of a resource that changes.
type subscribers struct {
	mu  sync.Mutex
	all []chan struct{}
}

func (s *subscribers) add(one chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, one)
}

func (s *subscribers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// tell has the resource change again and again, until stop: on every stream, as a server tells of
// it, of which an edge that listens anew lets one go.
func (s *subscribers) tell() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			s.mu.Lock()
			for _, one := range s.all {
				select {
				case one <- struct{}{}:
				default:
				}
			}
			s.mu.Unlock()
			select {
			case <-end:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// TestSignInsAreNotHandedOver: sign-ins in memory end with their process, whose log says how many.
func TestSignInsAreNotHandedOver(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := edgetest.Settings(func(c *serve.Settings) { c.HandOver = filepath.Join(dir, "sock") })
	yaml := entrance(edgetest.NewServer(t, edgetest.Modern), embedded("", edgetest.NewHub(t, "hub")), `{type: unauthenticated}`)
	before := edgetest.Start(t, yaml, loopback(), socket)
	v := edgetest.NewVisitor(t, loginIssuer, before.Addr())
	for range 3 {
		v.SignIn("")
	}
	edgetest.Until(t, "the socket", func() bool { _, err := os.Lstat(filepath.Join(dir, "sock")); return err == nil })
	edgetest.Start(t, yaml, loopback(), socket)
	before.Ended()
	if log := before.Log(); !strings.Contains(log, "sign-ins in memory are not handed over") || !strings.Contains(log, "signIns=3") {
		t.Errorf("the log does not say how many end: %s", log)
	}
}

// TestZ12SessionsAreHandedOver: a session goes on at the process that stands in
// for the one where it began, in the same session at its backend, with its log
// level, its subscriptions and its end.
func TestZ12SessionsAreHandedOver(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			s := newSuccession(t, era)
			var updates subscribers
			if era == edgetest.Modern {
				s.back.Always("subscriptions/listen", func(c *edgetest.Call) {
					mine := make(chan struct{}, 1)
					if strings.Contains(string(c.Message.Params), `"x:1"`) {
						updates.add(mine)
					}
					c.Event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
					for c.Wait(mine) {
						c.Event(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:1"}}`)
					}
				})
			}
			c := s.now.callerOf(t, edgetest.Legacy, `{"roots":{}}`)
			c.call(t, "1", "{}").Result()
			c.request(t, "2", "logging/setLevel", `{"level":"warning"}`).Result()
			c.request(t, "3", "resources/subscribe", `{"uri":"x:1"}`).Result()
			listening := c.session.Listen()
			if era == edgetest.Legacy {
				edgetest.Until(t, "the stream at the backend", func() bool { return s.back.Count("GET") > 0 })
			}
			for range 3 {
				calls := s.back.Requests("tools/call")
				upstream, begun := calls[len(calls)-1].Session, len(s.back.Sessions())
				subscribed := updates.count()
				old := s.next(t)
				listening.Rest() // it ends in order
				old.Ended()
				c = s.again(c)
				if r := c.call(t, "4", `{}`); r.Status != 200 {
					t.Fatalf("status %d: %s", r.Status, r.Body)
				}
				listening = c.session.Listen()
				calls = s.back.Requests("tools/call")
				last := calls[len(calls)-1]
				stop := func() {}
				switch era {
				case edgetest.Legacy:
					// The edge itself has a session, too: no other began.
					if last.Session != upstream || len(s.back.Sessions()) != begun+1 {
						t.Errorf("the call came in session %s, not %s; %d began", last.Session, upstream, len(s.back.Sessions())-begun)
					}
					one := s.back.Session(upstream)
					edgetest.Until(t, "its stream", one.Listening)
					one.Push(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:1"}}`)
				case edgetest.Modern:
					if got := edgetest.Member(string(last.Message.Params), "_meta", "io.modelcontextprotocol/logLevel"); got != `"warning"` {
						t.Errorf("the log level is %s", got)
					}
					edgetest.Until(t, "the subscription anew", func() bool { return updates.count() > subscribed })
					stop = updates.tell()
				case edgetest.SSE: // its stream was the session: all of it is set up anew
					if got := s.back.Requests("logging/setLevel"); edgetest.Member(string(got[len(got)-1].Message.Params), "level") != `"warning"` || got[len(got)-1].Session == upstream {
						t.Errorf("the level was not set anew: %+v", got)
					}
					s.back.Session(last.Session).Push(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:1"}}`)
				}
				m := listening.NextMessage()
				stop()
				if m.Method != "notifications/resources/updated" {
					t.Errorf("the stream says %+v", m)
				}
				if n := s.back.Count("DELETE"); era == edgetest.Legacy && n > 0 {
					for _, d := range s.back.Requests("DELETE") {
						if d.Session == upstream {
							t.Error("the process that left ended the session at the backend")
						}
					}
				}
				if strings.Contains(s.now.Log()+old.Log(), "not everything was") && era != edgetest.SSE {
					t.Errorf("the log says that something was left:\n%s", s.now.Log())
				}
			}
			calls := s.back.Requests("tools/call")
			upstream := calls[len(calls)-1].Session
			if r := c.session.Delete(); r.Status != 200 {
				t.Errorf("DELETE: status %d", r.Status)
			}
			if era == edgetest.Legacy {
				edgetest.Until(t, "the end at the backend", func() bool { return s.back.Session(upstream) == nil })
			}
			fails(t, c.call(t, "5", "{}"), 404, -32001, "5")
			s.next(t).Ended()
			fails(t, s.again(c).call(t, "6", "{}"), 404, -32001, "6")
		})
	}
}

// TestZ12WhoseSessions: what was handed over is still its owner's, of its server,
// and nobody else's.
func TestZ12WhoseSessions(t *testing.T) {
	t.Parallel()
	s := newSuccession(t, edgetest.Legacy)
	m := newMint(t)
	s.yaml = strings.Replace(s.yaml, "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, m.URL+"/keys"), 1)
	anybody := s.now.callerOf(t, edgetest.Legacy, "")
	first := s.next(t) // clients are authenticated from here on
	first.Ended()
	as := func(who string) *edgetest.Client {
		c := s.now.NewClient()
		c.Header.Set("Authorization", "Bearer "+m.token(t, who, "weir", nil))
		return c
	}
	edgetest.Until(t, "the keys", func() bool { return as("ann").Do("GET", "/status", "").Status == 200 })
	if r := (&edgetest.Session{Client: as("ann"), ID: anybody.session.ID, Version: anybody.session.Version}).Call("1", "echo", "{}"); r.Status != 404 {
		t.Errorf("a session of nobody in particular: status %d", r.Status)
	}
	if !strings.Contains(s.now.Log(), "authenticates its clients in another way now") || !strings.Contains(first.Log(), "not everything was handed over") {
		t.Errorf("the logs do not say so:\n%s", s.now.Log())
	}
	mine := as("ann").Initialize("")
	s.next(t).Ended()
	edgetest.Until(t, "the keys", func() bool { return as("ann").Do("GET", "/status", "").Status == 200 })
	for who, want := range map[string]int{"ann": 200, "bob": 404} {
		if r := (&edgetest.Session{Client: as(who), ID: mine.ID, Version: mine.Version}).Call("2", "echo", "{}"); r.Status != want {
			t.Errorf("%s: status %d, want %d: %s", who, r.Status, want, r.Body)
		}
	}
	// A server that is there no longer has no sessions.
	s.yaml = strings.Replace(s.yaml, "name: edgetest", "name: another", 1)
	s.next(t).Ended()
	edgetest.Until(t, "the keys", func() bool { return as("ann").Do("GET", "/status", "").Status == 200 })
	if r := (&edgetest.Session{Client: as("ann"), ID: mine.ID, Version: mine.Version}).Call("3", "echo", "{}"); r.Status != 404 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if !strings.Contains(s.now.Log(), `there is no server \"edgetest\" any longer`) {
		t.Errorf("the log does not say so:\n%s", s.now.Log())
	}
}

// TestZ12TasksThatPoliciesJudge: policies go on to let clients at the tasks that they began at
// a process before, and judge them by what was called there.
func TestZ12TasksThatPoliciesJudge(t *testing.T) {
	t.Parallel()
	s := newSuccession(t, edgetest.Legacy)
	beginsTasks(s.back, edgetest.Legacy)
	policed := func(allowed string) {
		t.Helper()
		at := strings.Index(s.yaml, "incomingAuth: {")
		end := at + strings.IndexByte(s.yaml[at:], '\n')
		s.yaml = s.yaml[:at] + "incomingAuth: {type: anonymous, authz: {type: policy, policies: ['permit(principal, action, resource) when { context has arg_n && context.arg_n < " + allowed + " };']}}" + s.yaml[end:]
		s.next(t).Ended()
	}
	policed("3")
	c := s.now.callerOf(t, edgetest.Legacy, "")
	for i := range 2 {
		c.request(t, fmt.Sprint(i), "tools/call", edgetest.CallParams("echo", fmt.Sprintf(`{"n":%d,"text":"<>&"}`, i+1))).Result() // t1 and t2
	}
	for i, allowed := range []string{"3", "3", "2"} { // the last one allows t1 alone
		policed(allowed)
		c = s.again(c)
		for task, want := range map[string]int{"t1": 200, "t2": map[string]int{"3": 200, "2": 403}[allowed], "t3": 403} {
			if r := c.request(t, "9", "tasks/get", `{"taskId":"`+task+`"}`); r.Status != want {
				t.Errorf("hand-over %d: %s: status %d, want %d: %s", i+1, task, r.Status, want, r.Body)
			}
		}
	}
}

// TestZ12ResourcesInNoList: what an answer named to a client before is read at the same backend
// after, and not at the one whose template it fits.
func TestZ12ResourcesInNoList(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "weir") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	backs := map[string]*edgetest.Server{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.Legacy)}
	for name, s := range backs {
		offers(s, "show")
		s.Always("tools/call", func(c *edgetest.Call) {
			c.Result(`{"content":[{"type":"resource_link","uri":"x://` + name + `","name":"l"}]}`)
		})
		s.Always("resources/read", func(c *edgetest.Call) { c.Result(`{"contents":[{"uri":"x://","text":"of ` + name + `"}]}`) })
	}
	backs["b"].Always("resources/templates/list", func(c *edgetest.Call) {
		c.Result(`{"resourceTemplates":[{"uriTemplate":"x://{id}","name":"t"}]}`)
	})
	start := func() *front {
		e := edgetest.Start(t, group(backs), edgetest.Settings(func(c *serve.Settings) { c.HandOver = filepath.Join(dir, "sock") }))
		f := &front{Edge: e, client: e.NewClient()}
		f.callerOf(t, edgetest.Modern, "").request(t, "1", "resources/templates/list", "").Result()
		return f
	}
	first := start()
	c := first.callerOf(t, edgetest.Legacy, "")
	c.request(t, "2", "tools/call", edgetest.CallParams("a_show", "{}")).Result()
	for _, process := range []string{"first", "second", "third"} {
		for uri, want := range map[string]string{"x://a": "of a", "x://other": "of b"} {
			if r := c.request(t, "3", "resources/read", `{"uri":"`+uri+`"}`); r.Status != 200 || !strings.Contains(string(r.Answer()), want) {
				t.Errorf("the %s process, %s: status %d, want %s: %s", process, uri, r.Status, want, r.Answer())
			}
		}
		if process != "third" {
			next := start()
			first.Ended()
			first, c = next, c.at(next)
		}
	}
}

// TestZ12RoomForSessions: an edge with less room takes those sessions that were
// used last, and says how many it did not take.
func TestZ12RoomForSessions(t *testing.T) {
	t.Parallel()
	s := newSuccession(t, edgetest.Legacy)
	var all []caller
	for range 5 {
		all = append(all, s.now.callerOf(t, edgetest.Legacy, ""))
	}
	began := time.Now()
	edgetest.Until(t, "time to pass", func() bool {
		return all[4].call(t, "1", "{}").Status == 200 && time.Since(began) > 300*time.Millisecond
	})
	s.options = append(s.options, edgetest.Settings(func(c *serve.Settings) { c.MaxSessions = 2 }))
	s.next(t).Ended()
	good := 0
	for _, c := range all {
		if s.again(c).call(t, "2", "{}").Status == 200 {
			good++
		}
	}
	if good != 2 || s.again(all[4]).call(t, "3", "{}").Status != 200 {
		t.Errorf("%d sessions go on", good)
	}
	if !strings.Contains(s.now.Log(), "left=3") {
		t.Errorf("the log does not say how many:\n%s", s.now.Log())
	}
}

// TestZ12StreamsAreResumed: what a stream carried is there at the new process:
// one that ended before, one whose call goes on at the old process, and what that
// carried after the old process has left.
func TestZ12StreamsAreResumed(t *testing.T) {
	t.Parallel()
	s := newSuccession(t, edgetest.Legacy, edgetest.Settings(func(c *serve.Settings) { c.DrainTimeout = edgetest.Patience }))
	goOn, entered := make(chan struct{}), make(chan struct{}, 4)
	s.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		if edgetest.Member(string(c.Message.Params), "arguments", "slow") != "" {
			entered <- struct{}{}
			for i := range 3 {
				<-goOn
				c.Progress(2 + i)
			}
		}
		c.Result(`{"id":` + c.ID() + `}`)
	})
	c := s.now.callerOf(t, edgetest.Legacy, "")
	call := func(id, arguments string) *edgetest.Response {
		return c.session.Request(id, "tools/call", `{"name":"echo","arguments":`+arguments+`,"_meta":{"progressToken":`+id+`}}`)
	}
	short := call("1", "{}")
	seen := short.Next()
	short.Rest()
	slow := call("2", `{"slow":1}`)
	last := slow.Next()
	edgetest.Receive(t, entered, "the call")
	slow.Close()
	old := s.next(t)
	c = s.again(c)
	if events := resumed(c, seen.ID).Rest(); len(events) != 1 || edgetest.Member(string(events[0].Data), "result", "id") != "1" {
		t.Errorf("a stream that ended before: %q", events)
	}
	goOn <- struct{}{}
	rest := resumed(c, last.ID)
	if m := rest.Next(); edgetest.Member(string(m.Data), "params", "progress") != "2" {
		t.Errorf("%s", m.Data)
	}
	// Two hand-overs later the call is still at the first of the processes.
	s.next(t).Ended()
	c = s.again(c)
	rest = resumed(c, last.ID)
	if m := rest.Next(); edgetest.Member(string(m.Data), "params", "progress") != "2" {
		t.Errorf("%s", m.Data)
	}
	goOn <- struct{}{}
	goOn <- struct{}{}
	if events := rest.Rest(); len(events) != 3 || edgetest.Member(string(events[2].Data), "result", "id") != "2" {
		t.Errorf("the rest: %q", events)
	}
	old.Ended()
	if events := resumed(c, last.ID).Rest(); len(events) != 4 || edgetest.Member(string(events[3].Data), "result", "id") != "2" {
		t.Errorf("after the end of the process that had the call: %q", events)
	}
	if n := s.back.Count("tools/call"); n != 2 {
		t.Errorf("%d calls ran", n)
	}
}

// TestZ12CallsOfTheOldProcess: answers to questions and cancellations reach calls
// that the process before still serves, and its end of the session is everybody's.
func TestZ12CallsOfTheOldProcess(t *testing.T) {
	t.Parallel()
	s := newSuccession(t, edgetest.Legacy, edgetest.Settings(func(c *serve.Settings) { c.DrainTimeout = time.Second }))
	s.back.Always("tools/call", func(c *edgetest.Call) {
		switch edgetest.Member(string(c.Message.Params), "arguments", "do") {
		case `"ask"`:
			a := c.Ask(`"q"`, "elicitation/create", `{"message":"?","requestedSchema":{"type":"object"}}`)
			c.Result(`{"content":[],"said":` + string(a.Result) + `}`)
		case `"wait"`:
			c.Progress(1)
			c.Wait(nil)
		default:
			c.Result(`{"content":[]}`)
		}
	})
	c := s.now.callerOf(t, edgetest.Legacy, `{"elicitation":{}}`)
	asked := c.session.Call("1", "echo", `{"do":"ask"}`)
	question := asked.NextMessage()
	waits := c.session.Request("2", "tools/call", `{"name":"echo","arguments":{"do":"wait"},"_meta":{"progressToken":2}}`)
	waits.Next()
	first := s.next(t)
	c = s.again(c)
	c.call(t, "3", "{}").Result()
	c.session.Notify("notifications/cancelled", `{"requestId":2}`)
	s.back.Await("notifications/cancelled", 1)
	// A question has as long as an answer may take, whatever the drain timeout is.
	second := s.next(t)
	second.Ended()
	c = s.again(c)
	edgetest.Until(t, "more than the drain timeout", func() bool {
		return strings.Contains(first.Log(), "another process serves now") && c.call(t, "4", "{}").Status == 200 && drained(first.Log(), 1300*time.Millisecond) // so that it has looked who is asked
	})
	c.session.Reply(question.ID, `{"action":"accept"}`)
	if got := asked.Message(); string(got.Result) != `{"content":[],"said":{"action":"accept"}}` {
		t.Errorf("%s %+v", got.Result, got.Error)
	}
	first.Ended()
	// The end of a session reaches the calls that an old process still serves.
	left := c.session.Request("5", "tools/call", `{"name":"echo","arguments":{"do":"wait"},"_meta":{"progressToken":5}}`)
	left.Next()
	third := s.next(t)
	c = s.again(c)
	c.session.Delete()
	third.Ended()
	_, _ = left.TryRest()
}

// drained reports whether an edge began to leave so long ago, by its log.
func drained(log string, d time.Duration) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "another process serves now") {
			at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(strings.Fields(line)[0], "time="))
			return err == nil && time.Since(at) > d
		}
	}
	return false
}

// TestZ12WhatTheOldProcessStillServes: what clients do on connections that they
// still have with the process that leaves holds at the new one.
func TestZ12WhatTheOldProcessStillServes(t *testing.T) {
	t.Parallel()
	s := newSuccession(t, edgetest.Legacy, edgetest.Settings(func(c *serve.Settings) { c.DrainTimeout = edgetest.Patience }))
	c := s.now.callerOf(t, edgetest.Legacy, "")
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	known := edgetest.NewClient(t, "http://"+s.back.Addr()).Initialize("").ID
	s.back.Once("initialize", func(b *edgetest.Call) { // the client's first call opens its session at the backend
		entered <- struct{}{}
		b.Wait(leave)
		b.Header().Set("Mcp-Session-Id", known)
		b.Result(`{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}`)
	})
	var work sync.WaitGroup
	work.Go(func() { _, _ = c.try("1", "tools/call", edgetest.CallParams("echo", "{}")) })
	edgetest.Receive(t, entered, "the opening of the session at the backend")
	work.Go(func() { close(leave) })
	s.next(t).Ended()
	work.Wait()
	n := s.back.Count("initialize")
	_ = s.again(c).call(t, "2", "{}")
	for _, r := range s.back.Requests("initialize")[n:] {
		if edgetest.Member(string(r.Message.Params), "clientInfo", "name") == `"edgetest"` {
			t.Error("the session was opened a second time at the backend")
		}
	}
	calls := s.back.Requests("tools/call")
	if last := calls[len(calls)-1]; last.Session != known {
		t.Errorf("the call came in session %q", last.Session)
	}
}

// TestZ45ParkedCallsAreKept: a call that waits for a person's answer is kept, however
// many processes take over meanwhile; the process that has it leaves with the last
// of them. States are sealed with a random key, which goes over, too.
func TestZ45ParkedCallsAreKept(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			s := newSuccession(t, era, edgetest.Settings(func(c *serve.Settings) { c.DrainTimeout = 200 * time.Millisecond }))
			s.back.Always("tools/call", func(c *edgetest.Call) {
				one := c.Ask(`"q"`, "elicitation/create", `{"message":"?","requestedSchema":{"type":"object"}}`)
				two := c.Ask(`"r"`, "elicitation/create", `{"message":"!","requestedSchema":{"type":"object"}}`)
				c.Result(`{"content":[],"one":` + string(one.Result) + `,"two":` + string(two.Result) + `}`)
			})
			c := s.now.callerOf(t, edgetest.Modern, "")
			const calls = 20
			var parked []required
			for i := range calls {
				parked = append(parked, s.now.begin(t, c, fmt.Sprintf(`{"n":%d}`, i)))
			}
			first := s.next(t)
			second := s.next(t)
			second.Ended() // nothing waits there
			c = s.again(c)
			edgetest.Until(t, "the drain timeout", func() bool { return drained(first.Log(), 500*time.Millisecond) })
			for i, p := range parked {
				answer := `{"` + p.key(t) + `":{"action":"accept","content":{"n":` + fmt.Sprint(i) + `}}}`
				again := inputRequired(t, retry(c, `"again"`, fmt.Sprintf(`{"n":%d}`, i), answer, p.RequestState))
				fails(t, retry(c, `"used"`, fmt.Sprintf(`{"n":%d}`, i), answer, p.RequestState), 400, -32602, `"used"`)
				if i == calls/2 {
					s.next(t).Ended()
					c = s.again(c)
				}
				r := retry(c, `"last"`, fmt.Sprintf(`{"n":%d}`, i), `{"`+again.key(t)+`":{"action":"decline"}}`, again.RequestState)
				if m := r.Message(); r.Status != 200 || edgetest.Member(string(m.Result), "one", "content", "n") != fmt.Sprint(i) {
					t.Errorf("call %d: status %d: %s", i, r.Status, r.Body)
				}
			}
			first.Ended()
			if n := s.back.Count("tools/call"); n != calls {
				t.Errorf("%d calls ran", n)
			}
		})
	}
}

// TestZ45ParkedCallsExpire: the old process does not stay for ever.
func TestZ45ParkedCallsExpire(t *testing.T) {
	t.Parallel()
	s := newSuccession(t, edgetest.Legacy, edgetest.Settings(func(c *serve.Settings) { c.ParkTTL, c.DrainTimeout = time.Second, 200*time.Millisecond }))
	s.back.Always("tools/call", func(c *edgetest.Call) { c.Ask(`"q"`, "roots/list", "") })
	c := s.now.callerOf(t, edgetest.Modern, "")
	p := s.now.begin(t, c, "{}")
	old := s.next(t)
	began := time.Now()
	old.Ended()
	if d := time.Since(began); d > edgetest.Patience/4 {
		t.Errorf("it left after %s", d)
	}
	fails(t, retry(s.again(c), `"1"`, "{}", `{"`+p.key(t)+`":{"roots":[]}}`, p.RequestState), 400, -32602, `"1"`)
	s.back.Await("notifications/cancelled", 1)
}

// TestZ45AloneLeavesAtOnce: where no other process can be asked, nobody can come
// back for a parked call.
func TestZ45AloneLeavesAtOnce(t *testing.T) {
	t.Parallel()
	f, c := asking(t, func(c *edgetest.Call) { c.Ask(`"q"`, "roots/list", "") })
	f.begin(t, c, "{}")
	began := time.Now()
	f.Stop()
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("it left after %s", d)
	}
}

// TestZ45ReplicaThatLeaves: a replica that is told to end stays for its parked
// calls while another can bring the answers, and for no longer.
func TestZ45ReplicaThatLeaves(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy, edgetest.Settings(func(c *serve.Settings) { c.DrainTimeout = 200 * time.Millisecond }))
	p.back.Always("tools/call", func(c *edgetest.Call) {
		a := c.Ask(`"q"`, "roots/list", "")
		c.Result(`{"content":[],"said":` + string(a.Result) + `}`)
	})
	c := p.a.callerOf(t, edgetest.Modern, "")
	first := p.a.begin(t, c, "{}")
	done := stopping(p.a)
	edgetest.Until(t, "the end of the door", func() bool {
		conn, err := net.Dial("tcp", p.a.Addr())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	began := time.Now()
	edgetest.Until(t, "more than the drain timeout", func() bool { return time.Since(began) > 500*time.Millisecond })
	r := retry(c.at(p.b), `"1"`, "{}", `{"`+first.key(t)+`":{"roots":[]}}`, first.RequestState)
	if m := r.Message(); r.Status != 200 || string(m.Result) != `{"resultType":"complete","content":[],"said":{"roots":[]}}` {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	edgetest.Receive(t, done, "the end of the replica")
	// The last one does not wait for anybody.
	there := p.b.callerOf(t, edgetest.Modern, "")
	p.b.begin(t, there, `{"n":1}`)
	began = time.Now()
	p.b.Stop()
	if d := time.Since(began); d > edgetest.Patience/4 {
		t.Errorf("the last one left after %s", d)
	}
}

// impostor listens at a socket as an edge that hands over would, with a door that
// is there, and does the rest as it is told.
func impostor(t *testing.T, first string, rest func(net.Conn)) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "sock")
	t.Cleanup(func() { os.RemoveAll(dir) })
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := door.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		defer door.Close()
		defer file.Close()
		conn, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = syscall.SetNonblock(int(file.Fd()), true)
		_, _, _ = conn.WriteMsgUnix([]byte(first), syscall.UnixRights(int(file.Fd())), nil)
		rest(conn)
	})
	t.Cleanup(func() { ln.Close(); work.Wait() })
	return socket
}

// TestZ12HandOverOfSomethingElse: what is cut, garbage, endless, of another
// version or lies about its size costs the sessions and not the start.
func TestZ12HandOverOfSomethingElse(t *testing.T) {
	t.Parallel()
	frame := func(text string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) + text
	}
	hello := frame(`{"k":"hello"}` + "\n" + `{"node":"0123456789abcdef"}`)
	session := func(text string) string { return frame(`{"k":"session"}` + "\n" + text) }
	const good = `{"id":"AAAAAAAAAAAAAAAAAAAAAA","server":"edgetest","version":"2025-11-25","capabilities":{},"used":1}`
	for name, one := range map[string]struct {
		first, says, log string
		sessions         int
	}{
		"nothing":                {first: "S2", log: "were not taken over"},
		"garbage":                {first: "S2", says: strings.Repeat("garbage", 100), log: "were not taken over"},
		"a length that lies":     {first: "S2", says: "\xff\xff\xff\xff", log: "were not taken over"},
		"less than announced":    {first: "S2", says: "\x00\x0f\xff\xff{", log: "were not taken over"},
		"no name":                {first: "S2", says: frame(`{"k":"hello"}` + "\n{}"), log: "were not taken over"},
		"cut":                    {first: "S2", says: hello + session(good), log: "were not taken over"},
		"a session before":       {first: "S2", says: session(good), log: "were not taken over"},
		"a short key":            {first: "S2", says: hello + frame(`{"k":"key"}`+"\nshort"), log: "were not taken over"},
		"a session that is none": {first: "S2", says: hello + session(`[]`), log: "were not taken over"},
		"strange sessions": {first: "S2", says: hello + session(`{}`) + session(strings.Replace(good, "2025-11-25", "2026-07-28", 1)) +
			session(strings.Replace(good, "{}", "7", 1)) + session(strings.Replace(good, "edgetest", "x", 1)) +
			session(strings.Replace(good, `"AAAAAAAAAAAAAAAAAAAAAA"`, `"../../x"`, 1)) +
			session(strings.Replace(good, `"used"`, `"owner":"somebody","used"`, 1)) + frame(`{"k":"all"}`+"\n"), log: "left=6"},
		"strange things of a session": {first: "S2", sessions: 1, log: "is begun again", says: hello +
			session(strings.Replace(good, `"used":1`, `"used":9223372036854775807,"upstream":{"back":{"id":"a\r\nb","version":"2025-11-25"},"gone":{}}`, 1)) +
			frame(`{"k":"log","s":"x","e":"y"}`+"\nz") + frame(`{"k":"later"}`+"\n") + frame(`{"k":"tasks"}`+"\n"+`[{"server":"x"}]`) + frame(`{"k":"tasks"}`+"\n"+`[{"server":"edgetest","key":"x","call":{}}]`) + frame(`{"k":"all"}`+"\n")},
		"a process that hands over no sessions": {first: "S", log: "hands over no sessions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan string, 1)
			socket := impostor(t, one.first, func(conn net.Conn) {
				_ = conn.SetDeadline(time.Now().Add(edgetest.Patience))
				said := make([]byte, 0, 64)
				next := func(n int) {
					buf := make([]byte, n)
					if k, err := conn.Read(buf); err == nil {
						said = append(said, buf[:k]...)
					}
				}
				if one.first == "S2" {
					next(17)
					_, _ = conn.Write([]byte(one.says))
					if c, ok := conn.(*net.UnixConn); ok {
						_ = c.CloseWrite()
					}
				}
				for i := 0; i < 100 && !strings.HasSuffix(string(said), "R"); i++ {
					next(1 << 16)
				}
				told <- string(said)
			})
			back := edgetest.NewServer(t, edgetest.Legacy)
			e := edgetest.Start(t, edgetest.Manifest(back), edgetest.Settings(func(s *serve.Settings) { s.HandOver = socket }))
			if said := edgetest.Receive(t, told, "the word to leave"); !strings.HasSuffix(said, "R") {
				t.Errorf("the process before was told %q", said)
			}
			f := &front{Edge: e, back: back, client: e.NewClient()}
			f.callerOf(t, edgetest.Legacy, "").call(t, "1", "{}").Result()
			if !strings.Contains(e.Log(), one.log) {
				t.Errorf("the log does not say so:\n%s", e.Log())
			}
			if n := e.Serve.Sessions(); n != one.sessions+1 {
				t.Errorf("%d sessions", n)
			}
		})
	}
	// What does not even begin as a hand-over stops the start, and says so; the
	// socket would take the place of a file.
	file := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{impostor(t, "HTTP", func(net.Conn) {}), file, filepath.Dir(file)} {
		s := serve.Defaults()
		s.Listen, s.AdminListen, s.HandOver = "127.0.0.1:0", "", path
		_, err := serve.New(s, edgetest.Plan(t, edgetest.Manifest(edgetest.NewServer(t, edgetest.Legacy))), slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "--hand-over: "+path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestZ12NewProcessThatDies: a process that takes the sessions and does not come
// to serve costs nothing.
func TestZ12NewProcessThatDies(t *testing.T) {
	t.Parallel()
	for name, say := range map[string]func(net.Conn){
		"at once":       func(net.Conn) {},
		"in the middle": func(c net.Conn) { _, _ = c.Write([]byte("H0123456789abcdef")); _, _ = c.Read(make([]byte, 10)) },
		"with nonsense": func(c net.Conn) { _, _ = c.Write([]byte("X")); _, _ = c.Read(make([]byte, 10)) },
		"with no name":  func(c net.Conn) { _, _ = c.Write([]byte("H~~~~~~~~~~~~~~~~")) },
		"with all the sessions": func(c net.Conn) {
			_, _ = c.Write([]byte("H0123456789abcdef"))
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			for {
				if _, err := c.Read(make([]byte, 1<<16)); err != nil {
					break
				}
			}
			text := `{"k":"kept"}` + "\n[]"
			_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSuccession(t, edgetest.Legacy)
			c := s.now.callerOf(t, edgetest.Legacy, "")
			c.call(t, "1", "{}").Result()
			began := len(s.back.Sessions())
			conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.socket, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			word, rights := make([]byte, 2), make([]byte, syscall.CmsgSpace(8))
			n, rn, _, _, err := conn.ReadMsgUnix(word, rights)
			if err != nil || string(word[:n]) != "S2" {
				t.Fatalf("%q %v", word[:n], err)
			}
			messages, _ := syscall.ParseSocketControlMessage(rights[:rn])
			fds, _ := syscall.ParseUnixRights(&messages[0])
			for _, fd := range fds {
				_ = syscall.Close(fd)
			}
			say(conn)
			conn.Close()
			edgetest.Until(t, "the end of it", func() bool { return strings.Contains(s.now.Log(), "nobody took over") })
			c = s.again(c)
			c.call(t, "2", "{}").Result()
			c.session.Delete()
			edgetest.Until(t, "the end at the backend", func() bool { return s.back.Count("DELETE") == 1 })
			if n := len(s.back.Sessions()); n != began {
				t.Errorf("%d sessions began at the backend", n-began)
			}
			s.next(t).Ended()
			s.now.callerOf(t, edgetest.Legacy, "").call(t, "3", "{}").Result()
		})
	}
}

// TestZ12SocketsAreOfTheOwner: nobody else may write to the sockets, and none is
// left behind.
func TestZ12SocketsAreOfTheOwner(t *testing.T) {
	t.Parallel()
	s := newSuccession(t, edgetest.Legacy)
	s.next(t).Ended()
	entries, err := os.ReadDir(filepath.Dir(s.socket))
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", e.Name(), info.Mode(), err)
		}
	}
	// What a killed process left is cleared away; what is no socket of ours stays.
	left := s.socket + ".00000000000000ff"
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	s.next(t).Ended()
	s.now.Stop()
	if entries, _ := os.ReadDir(filepath.Dir(s.socket)); len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
}

// TestZ12CommonSessionsAreHandedOver: sessions that lie in a store go on in the
// same sessions at backends, too.
func TestZ12CommonSessionsAreHandedOver(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	hand := edgetest.Settings(func(c *serve.Settings) { c.HandOver = filepath.Join(dir, "sock") })
	p := newPair(t, edgetest.Legacy)
	one := p.edge(t, hand)
	edgetest.Until(t, "the socket", func() bool { _, err := os.Lstat(filepath.Join(dir, "sock")); return err == nil })
	c := one.callerOf(t, edgetest.Legacy, "")
	c.call(t, "1", "{}").Result()
	upstream := p.back.Requests("tools/call")[0].Session
	two := p.edge(t, hand)
	one.Ended()
	c.at(two).call(t, "2", "{}").Result()
	if got := p.back.Requests("tools/call")[1].Session; got != upstream {
		t.Errorf("the call came in session %s, not %s", got, upstream)
	}
	c.at(p.a).call(t, "3", "{}").Result()
	c.at(p.a).session.Delete()
	edgetest.Until(t, "the end of it", func() bool { return c.at(two).call(t, "4", "{}").Status == 404 })
	edgetest.Until(t, "the end at the backend", func() bool { return p.back.Session(upstream) == nil })
}

// TestHandOverOfLists: a client that had its lists of another process, before this one or beside it,
// hears of the first change that this one finds.
func TestHandOverOfLists(t *testing.T) {
	for _, way := range []string{"before", "beside"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			backs := map[string]*edgetest.Server{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.Modern)}
			offers(backs["a"], "echo")
			dir, err := os.MkdirTemp("", "weir") // the name of a socket is short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			yaml, options := group(backs), []edgetest.Option{patient}
			if way == "before" {
				options = append(options, edgetest.Settings(func(c *serve.Settings) { c.HandOver = filepath.Join(dir, "sock") }))
			} else {
				yaml += "\n" + in(kvtest.Redis(t))
			}
			start := func() *front {
				e := edgetest.Start(t, yaml, options...)
				return &front{Edge: e, client: e.NewClient()}
			}
			first := start()
			if way == "beside" {
				first.stored(t)
			}
			c := first.callerOf(t, edgetest.Legacy, "")
			listed(t, c)
			second := start()
			if way == "before" {
				first.Ended()
			} else {
				second.stored(t)
			}
			c = c.at(second)
			stream := c.session.Listen()
			// These wait for all lists of the second edge, and ask it for none.
			c.request(t, "1", "tools/call", edgetest.CallParams("a_echo", "{}")).Result()
			for method, params := range map[string]string{"prompts/get": `{"name":"x"}`, "resources/read": `{"uri":"x://x"}`, "completion/complete": `{"ref":{"type":"ref/resource","uri":"x://x"},"argument":{"name":"n","value":""}}`} {
				c.request(t, "2", method, params).Answer()
			}
			offers(backs["a"], "echo", "fresh")
			told := func(s *edgetest.ServerSession) bool {
				return s.Listening() && edgetest.Member(s.Params, "clientInfo", "name") == `"weir"`
			}
			edgetest.Until(t, "the edge's own stream", func() bool {
				n := 0
				for _, s := range backs["a"].Sessions() {
					if told(s) {
						n++
					}
				}
				return way == "before" && n > 0 || n > 1
			})
			for _, s := range backs["a"].Sessions() {
				if told(s) {
					s.Push(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				}
			}
			if m := stream.NextMessage(); m.Method != "notifications/tools/list_changed" {
				t.Errorf("%+v", m)
			}
		})
	}
}
