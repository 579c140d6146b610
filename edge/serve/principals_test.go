package serve_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// stateful has a fake server keep what its clients tell it in their sessions:
// echo with do=set keeps "who", and every call of echo answers with whom the
// session belongs to since. It says at a session's level what it does, and asks
// for roots with do=ask.
type stateful struct {
	mu     sync.Mutex
	kept   map[string]string          // what a session keeps
	people map[string]map[string]bool // who called in it
	levels map[string]string          // the level set in it
	odd    []string
}

func keeping(back *edgetest.Server) *stateful {
	s := &stateful{kept: map[string]string{}, people: map[string]map[string]bool{}, levels: map[string]string{}}
	back.Always("logging/setLevel", func(c *edgetest.Call) {
		s.mu.Lock()
		s.levels[c.Session] = strings.Trim(edgetest.Member(string(c.Message.Params), "level"), `"`)
		s.mu.Unlock()
		c.Result("{}")
	})
	back.Always("tools/call", func(c *edgetest.Call) {
		arg := func(name string) string {
			return strings.Trim(edgetest.Member(string(c.Message.Params), "arguments", name), `"`)
		}
		s.mu.Lock()
		who := arg("who")
		if s.people[c.Session] == nil {
			s.people[c.Session] = map[string]bool{}
		}
		s.people[c.Session][who] = true
		if arg("do") == "set" {
			s.kept[c.Session] = who
		}
		if is := s.levels[c.Session]; is != arg("level") {
			s.odd = append(s.odd, fmt.Sprintf("%s's call at level %q in a session at level %q", who, arg("level"), is))
		}
		kept := s.kept[c.Session]
		s.mu.Unlock()
		switch arg("do") {
		case "ask":
			c.Ask(`"`+who+`"`, "roots/list", "")
		case "reset":
			c.Abort()
		case "hang":
			c.Progress(1)
			c.Wait(nil)
			return
		}
		c.Notify("notifications/message", `{"level":"info","data":"of `+who+`"}`)
		c.Result(`{"content":[{"type":"text","text":"kept=` + kept + `"}]}`)
	})
	return s
}

// check holds that no session had more than one of the people.
func (s *stateful) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for session, people := range s.people {
		if len(people) > 1 {
			t.Errorf("session %s had calls of %v", session, slices.Sorted(maps.Keys(people)))
		}
	}
	for _, one := range s.odd {
		t.Error(one)
	}
}

// asPeople has the server of a manifest ask its clients for tokens.
func asPeople(m *mint, yaml string) string {
	return strings.Replace(yaml, "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, m.URL+"/keys"), 1)
}

// person is a client with a token of its own.
func (f *front) person(t *testing.T, m *mint, era edgetest.Era, subject, capabilities string) caller {
	t.Helper()
	c := caller{Client: f.NewClient()}
	c.Header.Set("Authorization", "Bearer "+m.token(t, subject, "weir", nil))
	edgetest.Until(t, "the keys", func() bool { return c.Do("GET", "/status", "").Status == 200 })
	if era != edgetest.Modern {
		c.session = c.Initialize(capabilities)
	}
	return c
}

// TestZ04SessionsOfAPrincipal: a session with a legacy backend is of one
// principal, in every cell, before one backend and several, beside and after
// errors, lost sessions, broken connections, questions and log levels.
func TestZ04SessionsOfAPrincipal(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Modern, edgetest.Legacy} {
		for _, of := range []edgetest.Era{edgetest.Legacy, edgetest.SSE} {
			for _, several := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s client, %s backend, several %v", era, of, several), func(t *testing.T) {
					t.Parallel()
					m, back := newMint(t), edgetest.NewServer(t, of)
					state := keeping(back)
					name, yaml := "echo", edgetest.Manifest(back)
					if several {
						name, yaml = "a_echo", group(map[string]*edgetest.Server{"a": back, "b": edgetest.NewServer(t, edgetest.Modern)}, bestEffort)
					}
					e := edgetest.Start(t, asPeople(m, yaml))
					f := &front{Edge: e, back: back, client: e.NewClient()}
					people := map[string]caller{}
					for _, who := range []string{"alice", "bob"} {
						people[who] = f.person(t, m, era, who, asks)
					}
					level := map[string]string{}
					params := func(who, do string) string {
						return edgetest.CallParams(name, fmt.Sprintf(`{"who":%q,"do":%q,"level":%q}`, who, do, level[who]))
					}
					call := func(who, do string, meta ...string) *edgetest.Response {
						t.Helper()
						return people[who].request(t, "1", "tools/call", params(who, do), meta...)
					}
					// keeps has somebody look at what the session keeps: nobody
					// else's is there.
					keeps := func(who, when string, meta ...string) {
						t.Helper()
						r := call(who, "get", meta...)
						for r.Stream() {
							m := r.NextMessage()
							if m.Method == "" {
								if text := string(m.Result); m.Error != nil || !strings.Contains(text, `kept=`+who) && !strings.Contains(text, `kept="`) {
									t.Errorf("%s: %s finds %s (%+v)", when, who, text, m.Error)
								}
								return
							}
							if m.Method == "notifications/message" && !strings.Contains(string(m.Params), "of "+who) {
								t.Errorf("%s: %s hears %s", when, who, m.Params)
							}
						}
						if text := string(r.Body); r.Status != 200 || !strings.Contains(text, `kept=`+who) && !strings.Contains(text, `kept="`) {
							t.Errorf("%s: %s finds %d %s", when, who, r.Status, text)
						}
					}
					both := func(when string, meta ...string) {
						t.Helper()
						for _, who := range []string{"alice", "bob"} {
							r := call(who, "set", meta...)
							_ = r.Result()
							keeps("alice", when, meta...)
							keeps("bob", when, meta...)
						}
					}
					both("at first")
					for _, who := range []string{"alice", "bob"} {
						people[who].request(t, "2", "tools/list", "")
					}
					both("with capabilities", edgetest.Capabilities(asks))

					// Levels: those of the one are never the other's.
					if era == edgetest.Modern {
						for _, who := range []string{"alice", "bob", "alice"} {
							level[who] = "info"
							keeps(who, "at a level", `"`+edgetest.LogLevel+`":"info"`)
							level[who] = ""
							keeps("alice", "after a level")
							keeps("bob", "after a level")
						}
						both("after levels")
					}

					// Questions: each is asked of who called.
					if era == edgetest.Modern {
						for _, who := range []string{"alice", "bob"} {
							q := inputRequired(t, call(who, "ask", edgetest.Capabilities(asks)))
							p := params(who, "ask")
							r := people[who].request(t, "1", "tools/call", p[:len(p)-1]+`,"inputResponses":{"`+q.key(t)+`":{"roots":[]}},"requestState":`+quote(q.RequestState)+`}`, edgetest.Capabilities(asks))
							if r.Status != 200 {
								t.Errorf("status %d: %s", r.Status, r.Body)
							}
						}
						both("after questions", edgetest.Capabilities(asks))
					}

					// Sessions that are lost, connections that break, clients that leave.
					for round := range 3 {
						back.Drop()
						both(fmt.Sprintf("lost %d times", round+1))
						both("lost, with capabilities", edgetest.Capabilities(asks))
					}
					if of == edgetest.Legacy {
						call("alice", "reset")
						call("bob", "reset", edgetest.Capabilities(asks))
						both("after broken connections")
					}
					if era == edgetest.Modern {
						for _, who := range []string{"alice", "bob"} {
							for _, meta := range [][]string{{`"progressToken":1`}, {`"progressToken":1`, edgetest.Capabilities(asks)}} {
								r := call(who, "hang", meta...)
								r.Next()
								r.Close()
							}
						}
						both("after clients left", edgetest.Capabilities(asks))
						both("after clients left")
					}

					// All at once, while the server forgets.
					var work sync.WaitGroup
					for i := range 40 {
						work.Go(func() {
							who := []string{"alice", "bob"}[i%2]
							var meta []string
							if i%4 > 1 && era == edgetest.Modern {
								meta = []string{edgetest.Capabilities(asks)}
							}
							if i%10 == 5 {
								back.Drop()
							}
							r, err := people[who].try(fmt.Sprint(i+10), "tools/call", params(who, "set"), meta...)
							if err == nil && r.Stream() {
								_, _ = r.TryAnswer()
							}
						})
					}
					work.Wait()
					state.check(t)
				})
			}
		}
	}
}

// TestZ04SessionsAreBounded: however many people call, the sessions that are
// held for them are bounded; the one that has rested longest ends, and those
// that nobody uses do.
func TestZ04SessionsAreBounded(t *testing.T) {
	t.Parallel()
	m, back := newMint(t), edgetest.NewServer(t, edgetest.Legacy)
	state := keeping(back)
	e := edgetest.Start(t, asPeople(m, edgetest.Manifest(back)), edgetest.Settings(func(s *serve.Settings) {
		s.MaxBackendConnections = 8 // and so 64 sessions
	}))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	first := f.person(t, m, edgetest.Modern, "first", "")
	call := func(c caller, who string) {
		t.Helper()
		r := c.request(t, "1", "tools/call", edgetest.CallParams("echo", fmt.Sprintf(`{"who":%q,"do":"set"}`, who)))
		if text := string(r.Answer()); r.Status != 200 || !strings.Contains(text, "kept="+who) {
			t.Fatalf("%s: %d %s", who, r.Status, text)
		}
	}
	call(first, "first")
	c := f.NewClient()
	for i := range 200 {
		who := fmt.Sprintf("p%d", i)
		c.Header.Set("Authorization", "Bearer "+m.token(t, who, "weir", nil))
		call(caller{Client: c}, who)
		if i%20 == 0 {
			call(first, "first") // who comes back finds the session that was there
		}
	}
	back.Until("the sessions that had rested", func() bool { return back.Live() <= 65 })
	if n := back.Live(); n < 33 {
		t.Errorf("%d sessions are left", n)
	}
	sessions := map[string]bool{}
	for _, r := range back.Requests("tools/call") {
		if strings.Contains(string(r.Message.Params), `"first"`) {
			sessions[r.Session] = true
		}
	}
	if len(sessions) != 1 {
		t.Errorf("somebody who kept coming had %d sessions", len(sessions))
	}
	state.check(t)

	// One person has no more than a quarter, and takes none of the others'.
	busy := f.NewClient()
	busy.Header.Set("Authorization", "Bearer "+m.token(t, "busy", "weir", nil))
	var work sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for i := range 8 {
		for _, level := range []string{"debug", "info", "notice", "warning", "error"} {
			work.Go(func() {
				r, err := caller{Client: busy}.try(fmt.Sprint(i), "tools/call", edgetest.CallParams("echo", fmt.Sprintf(`{"who":"busy","level":%q}`, level)), `"`+edgetest.LogLevel+`":"`+level+`"`)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = r.TryAnswer()
				mu.Lock()
				codes[r.Status]++
				mu.Unlock()
			})
		}
	}
	work.Wait()
	mine := map[string]bool{}
	for _, r := range back.Requests("tools/call") {
		if strings.Contains(string(r.Message.Params), `"busy"`) && back.Session(r.Session) != nil && !back.Session(r.Session).Ended() {
			mine[r.Session] = true
		}
	}
	if len(mine) > 16 || codes[200] == 0 || codes[200]+codes[503] != 40 {
		t.Errorf("one person has %d sessions; %v", len(mine), codes)
	}
	call(first, "first")
}

// TestZ04SessionsThatRestEnd: a pooled session that nobody uses for the lifetime
// of a session ends, and who comes back gets another.
func TestZ04SessionsThatRestEnd(t *testing.T) {
	t.Parallel()
	m, back := newMint(t), edgetest.NewServer(t, edgetest.Legacy)
	keeping(back)
	e := edgetest.Start(t, asPeople(m, edgetest.Manifest(back)), edgetest.Settings(func(s *serve.Settings) { s.SessionTTL = 400e6 }))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	alice := f.person(t, m, edgetest.Modern, "alice", "")
	alice.request(t, "1", "tools/call", edgetest.CallParams("echo", `{"who":"alice","do":"set"}`))
	alice.request(t, "2", "tools/call", edgetest.CallParams("echo", `{"who":"alice","level":"info"}`), `"`+edgetest.LogLevel+`":"info"`)
	if n := back.Live(); n != 3 {
		t.Errorf("%d sessions", n)
	}
	back.Until("the end of those that rest", func() bool { return back.Live() == 1 })
	r := alice.request(t, "3", "tools/call", edgetest.CallParams("echo", `{"who":"alice"}`))
	if text := string(r.Answer()); !strings.Contains(text, `kept=`) || strings.Contains(text, "alice") {
		t.Errorf("%d %s", r.Status, text)
	}
}
