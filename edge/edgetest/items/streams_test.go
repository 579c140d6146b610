package items_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// tellAll has a legacy server tell something on every stream that it has open.
func tellAll(s *edgetest.Server, text string) {
	for _, one := range s.Sessions() {
		if one.Listening() {
			one.Push(text)
		}
	}
}

func changed(kind string) string {
	return `{"jsonrpc":"2.0","method":"notifications/` + kind + `/list_changed"}`
}

// A change of what one of several backends offers reaches each client that
// listens exactly once, however often and on however many streams the backend
// tells of it, and is told by an edge that has said it would.
func TestItem08(t *testing.T) {
	t.Parallel()
	a, b, n := edgetest.NewServer(t, edgetest.Legacy, has("x")), edgetest.NewServer(t, edgetest.Legacy, has("x")), edgetest.NewServer(t, edgetest.Modern, has("x"))
	for _, s := range []*edgetest.Server{a, b, n} {
		offers(s, "prompts", `{"name":"p"}`)
		offers(s, "resources", `{"uri":"test://x","name":"r"}`)
		offers(s, "resourceTemplates")
	}
	told := listening(n)
	f := open(t, servers{"a": a, "b": b, "n": n})
	edgetest.Until(t, "all lists", func() bool { // what comes later than the first client is a change
		for _, b := range f.status(t).DiscoveredBackends {
			if b.Tools == 0 || b.Prompts == 0 || b.Resources == 0 {
				return false
			}
		}
		return true
	})
	heard(a) // before clients have streams of their own there
	heard(b)
	told.of(t, "promptsListChanged")
	legacy, modern := f.as(edgetest.Legacy, ""), f.as(edgetest.Modern, "")
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if edgetest.Member(legacy.Session.Result, "capabilities", kind, "listChanged") != "true" {
			t.Errorf("the edge does not say that it tells of %s: %s", kind, legacy.Session.Result)
		}
	}
	legacy.tools(t)
	legacy.list(t, "prompts", "name")
	legacy.list(t, "resources", "uri")
	stream := legacy.Session.Listen()
	legacy.CallTool("1", "a_x", "{}").Result() // and so a session of its own at the backend, with a stream
	all := map[string]*edgetest.Response{"legacy": stream}
	for _, id := range []string{"1", `"two"`} {
		r := modern.Ask(id, "subscriptions/listen", `{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}}`)
		if m := r.NextMessage(); m.Method != "notifications/subscriptions/acknowledged" {
			t.Fatalf("%+v", m)
		}
		all[id] = r
	}
	own := a.Requests("tools/call")[0].Session
	a.Until("the stream of the client's session", func() bool { return a.Session(own).Listening() })

	everybody := func(method string) {
		t.Helper()
		for who, r := range all {
			if m := r.NextMessage(); m.Method != method {
				t.Errorf("%s was told %s, not %s", who, m.Method, method)
			}
		}
	}
	offers(a, "tools", tool("x"), tool("y"))
	for range 3 {
		tellAll(a, changed("tools"))
	}
	everybody("notifications/tools/list_changed")
	if got := legacy.tools(t); got != "a_x a_y b_x n_x" {
		t.Errorf("tools: %s", got)
	}
	// What comes next is of the next change: the first was told once.
	offers(n, "prompts", `{"name":"p"}`, `{"name":"q"}`)
	told.tell("notifications/prompts/list_changed", "")
	everybody("notifications/prompts/list_changed")
	if got := strings.Join(modern.list(t, "prompts", "name"), " "); got != "a_p b_p n_p n_q" {
		t.Errorf("prompts: %s", got)
	}
	offers(b, "resources", `{"uri":"test://x","name":"r"}`, `{"uri":"test://y","name":"r"}`)
	tellAll(b, changed("resources"))
	everybody("notifications/resources/list_changed")
}

// What a backend changes while the edge's stream to it is broken is told once the
// edge hears it again, unless the backend repeats what it told meanwhile.
func TestItem08Unheard(t *testing.T) {
	t.Parallel()
	a, n := edgetest.NewServer(t, edgetest.Legacy, has("x")), edgetest.NewServer(t, edgetest.Modern, has("x"))
	told := listening(n)
	f := open(t, servers{"a": a, "n": n})
	heard(a)
	told.of(t, "toolsListChanged")
	c := f.as(edgetest.Modern, "")
	if got := c.tools(t); got != "a_x n_x" {
		t.Fatalf("tools: %s", got)
	}
	r := c.Ask("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
	r.NextMessage() // the acknowledgement
	for _, one := range []struct {
		server *edgetest.Server
		cut    func()
		want   string
	}{{a, a.Drop, "a_x a_y n_x"}, {n, told.cut, "a_x a_y n_x n_y"}} {
		offers(one.server, "tools", tool("x"), tool("y"))
		one.cut()
		if m := r.NextMessage(); m.Method != "notifications/tools/list_changed" {
			t.Errorf("told %s", m.Method)
		}
		if got := c.tools(t); got != one.want {
			t.Errorf("tools: %s, not %s", got, one.want)
		}
	}
}

// A subscription is acknowledged first and with what it will get, gets nothing
// that it did not ask for, has its own id on every message, costs a backend one
// subscription however many clients wait, and costs none when they are gone.
func TestItem09(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	for name, s := range map[string]*edgetest.Server{"a": a, "b": b} {
		offers(s, "resources", `{"uri":"test://`+name+`","name":"r"}`, `{"uri":"test://`+name+`/2","name":"r"}`)
		offers(s, "resourceTemplates")
		offers(s, "prompts", `{"name":"p"}`)
	}
	f := open(t, servers{"a": a, "b": b})
	f.met(t)
	c := f.as(edgetest.Modern, "")
	c.tools(t)
	c.list(t, "prompts", "name")
	heard(a)
	heard(b)
	subscribe := func(id, wish string) *edgetest.Response {
		r := f.as(edgetest.Modern, "").Ask(id, "subscriptions/listen", `{"notifications":`+wish+`}`)
		return r
	}
	one := subscribe(`1`, `{"promptsListChanged":true,"resourceSubscriptions":["test://a","test://nobody"]}`)
	two := subscribe(`"1"`, `{"resourceSubscriptions":["test://a","test://b"]}`)
	for r, want := range map[*edgetest.Response][2]string{one: {`1`, `["test://a"]`}, two: {`"1"`, `["test://a","test://b"]`}} {
		m := r.NextMessage()
		if m.Method != "notifications/subscriptions/acknowledged" || edgetest.Member(string(m.Params), "_meta", subscription) != want[0] || edgetest.Member(string(m.Params), "notifications", "resourceSubscriptions") != want[1] {
			t.Errorf("acknowledged with %s, want %s", m.Params, want)
		}
	}
	if n := a.Count("resources/subscribe"); n != 1 {
		t.Errorf("a has %d subscriptions for two clients", n)
	}
	updated := func(uri string) string {
		return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`
	}
	// Only a prompt's change goes to the first alone, and only b's resource to the second alone.
	offers(a, "tools", tool("echo"), tool("more"))
	tellAll(a, changed("tools"))
	tellAll(a, updated("test://a/2"))
	tellAll(b, updated("test://b"))
	if m := two.NextMessage(); edgetest.Member(string(m.Params), "uri") != `"test://b"` || edgetest.Member(string(m.Params), "_meta", subscription) != `"1"` {
		t.Errorf("the second was told %s %s", m.Method, m.Params)
	}
	offers(a, "prompts", `{"name":"p"}`, `{"name":"q"}`)
	tellAll(a, changed("prompts"))
	if m := one.NextMessage(); m.Method != "notifications/prompts/list_changed" || edgetest.Member(string(m.Params), "_meta", subscription) != "1" {
		t.Errorf("the first was told %s %s", m.Method, m.Params)
	}
	tellAll(a, updated("test://a"))
	for r, id := range map[*edgetest.Response]string{one: "1", two: `"1"`} {
		if m := r.NextMessage(); m.Method != "notifications/resources/updated" || edgetest.Member(string(m.Params), "_meta", subscription) != id {
			t.Errorf("%s was told %s %s", id, m.Method, m.Params)
		}
	}
	// Another backend's word about a resource that is not its own is not passed on.
	tellAll(b, updated("test://a"))
	tellAll(a, updated("test://a"))
	for _, r := range []*edgetest.Response{one, two} {
		r.NextMessage()
	}
	one.Close()
	two.Close()
	for _, s := range []*edgetest.Server{a, b} {
		s.Await("resources/unsubscribe", 1)
	}
	last := subscribe(`2`, `{"resourceSubscriptions":["test://a"]}`)
	last.NextMessage() // were there another message of before, it would not be the acknowledgement
	if n := a.Count("resources/unsubscribe"); n != 1 {
		t.Errorf("%d times unsubscribed", n)
	}
}

// The edge can do what its backends can, no more, and a backend is not asked for
// what it cannot.
func TestItem10(t *testing.T) {
	t.Parallel()
	tools := edgetest.NewServer(t, edgetest.Legacy, can(`{"tools":{}}`))
	talks := edgetest.NewServer(t, edgetest.Legacy, can(`{"prompts":{},"logging":{},"experimental":{"x":{}}}`))
	plain := edgetest.NewServer(t, edgetest.Modern, can(`{"tools":{}}`))
	offers(talks, "prompts", `{"name":"p"}`)
	f := open(t, servers{"tools": tools, "talks": talks, "plain": plain})
	f.met(t)
	for _, era := range eras {
		c := f.as(era, "")
		var caps string
		if era == edgetest.Legacy {
			caps = edgetest.Member(c.Session.Result, "capabilities")
		} else {
			caps = edgetest.Member(c.Ask("1", "server/discover", "").Result(), "capabilities")
		}
		for name, want := range map[string]bool{"tools": true, "prompts": true, "logging": true, "resources": false, "completions": false, "tasks": false, "experimental": false} {
			if (edgetest.Member(caps, name) != "") != want {
				t.Errorf("%s: %s is %t: %s", era, name, !want, caps)
			}
		}
	}
	c := f.as(edgetest.Legacy, "")
	c.tools(t)
	c.list(t, "prompts", "name")
	c.CallTool("1", "tools_echo", "{}").Result()
	c.Ask("2", "logging/setLevel", `{"level":"debug"}`).Result()
	talks.Always("prompts/get", answer(talks, `"messages":[]`))
	c.Ask("3", "prompts/get", `{"name":"talks_p"}`).Result()
	if n := talks.Count("logging/setLevel"); n != 1 {
		t.Errorf("the backend that logs was told the level %d times", n)
	}
	for name, s := range f.backs {
		asked := map[string]bool{"tools/list": name != "talks", "prompts/list": name == "talks", "resources/list": false, "resources/templates/list": false, "logging/setLevel": name == "talks"}
		for method, may := range asked {
			if n := s.Count(method); n > 0 && !may {
				t.Errorf("%s was asked for %s, which it does not have", name, method)
			}
		}
	}

	// Where none has it, the edge has it not.
	none := open(t, servers{"tools": tools, "plain": plain})
	none.met(t)
	quiet := none.as(edgetest.Legacy, "")
	if caps := edgetest.Member(quiet.Session.Result, "capabilities"); edgetest.Member(caps, "logging") != "" || edgetest.Member(caps, "prompts") != "" {
		t.Errorf("capabilities %s", caps)
	}
	if r := none.as(edgetest.Modern, "").Ask("1", "prompts/list", ""); r.Message().Error == nil && edgetest.Member(r.Result(), "prompts") != "[]" {
		t.Errorf("prompts: %s", r.Answer())
	}
}

// Progress reaches the call that asked for it, under the token that its client
// chose, though clients choose equal ones; who gave no token hears none, and
// nobody hears any after the answer.
func TestItem11(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			backs := servers{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.Modern), "c": edgetest.NewServer(t, edgetest.SSE)}
			goOn := make(chan struct{})
			for _, s := range backs {
				finish := answer(s, `"content":[]`)
				s.Always("tools/call", func(c *edgetest.Call) {
					n := param(c.Request, "arguments", "n")
					if c.Token() != "" {
						c.Notify("notifications/progress", `{"progressToken":`+c.Token()+`,"progress":`+n+`}`)
					}
					c.Notify("notifications/progress", `{"progressToken":"of nobody","progress":99}`)
					if c.Wait(goOn) {
						finish(c)
					}
				})
			}
			f := open(t, backs)
			var all []*edgetest.Response
			for i := range 6 {
				c := f.as(era, "")
				name := names(backs)[i%3] + "_echo"
				all = append(all, c.CallTool("1", name, fmt.Sprintf(`{"n":%d}`, i), `"progressToken":"t"`))
			}
			for i, r := range all {
				m := r.NextMessage()
				if m.Method != "notifications/progress" || edgetest.Member(string(m.Params), "progressToken") != `"t"` || edgetest.Member(string(m.Params), "progress") != fmt.Sprint(i) {
					t.Errorf("call %d was told %s %s", i, m.Method, m.Params)
				}
			}
			without := f.as(era, "").later(t, "1", "a_echo", `{"n":7}`)
			backs["a"].Until("the call without a token", func() bool { return backs["a"].Count("tools/call") == 3 })
			close(goOn)
			for i, r := range all {
				if m := r.NextMessage(); m.Method != "" || m.Error != nil {
					t.Errorf("call %d was told %s %s", i, m.Method, m.Params)
				}
			}
			if r := edgetest.Receive(t, without, "the answer"); r.Stream() {
				t.Errorf("a client without a token was told %s", r.Rest())
			}
		})
	}
	t.Run("after the answer", func(t *testing.T) {
		t.Parallel()
		a := edgetest.NewServer(t, edgetest.Legacy)
		f := open(t, servers{"a": a, "b": edgetest.NewServer(t, edgetest.Modern)})
		token := make(chan string, 1)
		a.Always("tools/call", func(c *edgetest.Call) {
			token <- c.Token()
			c.Result(`{"content":[]}`)
		})
		c := f.as(edgetest.Legacy, "")
		stream := c.Session.Listen()
		c.CallTool("1", "a_echo", "{}", `"progressToken":"t"`).Result()
		own := a.Session(a.Requests("tools/call")[0].Session)
		own.Push(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + <-token + `,"progress":2}}`)
		own.Push(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://marker"}}`)
		if m := stream.NextMessage(); m.Method != "notifications/resources/updated" {
			t.Errorf("after the answer the client was told %s %s", m.Method, m.Params)
		}
	})
}

// A cancellation reaches the backend of its call, under the id by which that
// backend knows it, while the call is under way, and no other backend or call.
func TestItem12(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			backs := servers{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.Modern), "c": edgetest.NewServer(t, edgetest.SSE)}
			ended := map[string]chan string{}
			goOn := make(chan struct{})
			for name, s := range backs {
				ch := make(chan string, 8)
				ended[name] = ch
				finish := answer(s, `"content":[]`)
				s.Always("tools/call", func(c *edgetest.Call) {
					c.Progress(1)
					if c.Wait(goOn) {
						finish(c)
					} else {
						ch <- param(c.Request, "arguments", "n")
					}
				})
			}
			f := open(t, backs)
			c, other := f.as(era, ""), f.as(era, "")
			const big = "9007199254740993"
			for _, name := range names(backs) {
				s := backs[name]
				stays := other.CallTool(big, name+"_echo", `{"n":"other"}`, `"progressToken":1`)
				stays.NextMessage()
				r := c.CallTool(big, name+"_echo", `{"n":"mine"}`, `"progressToken":1`)
				r.NextMessage()
				if era == edgetest.Legacy {
					c.Session.Notify("notifications/cancelled", `{"requestId":`+big+`,"reason":"enough"}`)
				} else {
					r.Close()
				}
				if s.Era == edgetest.Modern {
					if who := edgetest.Receive(t, ended[name], "the end of the call"); who != `"mine"` {
						t.Errorf("%s: the call of %s ended", name, who)
					}
					continue
				}
				got := s.Await("notifications/cancelled", 1)
				calls := s.Requests("tools/call")
				want := ""
				for _, one := range calls {
					if param(one, "arguments", "n") == `"mine"` {
						want = string(one.Message.ID) + " of " + one.Session
					}
				}
				if id := param(got, "requestId") + " of " + got.Session; id != want {
					t.Errorf("%s: cancelled %s, want %s", name, id, want)
				}
				r.Close()
			}
			close(goOn)
			for name, s := range backs {
				if n := s.Count("notifications/cancelled"); n > 1 {
					t.Errorf("%s was told %d cancellations", name, n)
				}
			}
		})
	}
}

// The reason for which a client cancels is the client's own text, which a
// legacy backend gets as it is.
func TestItem12Reason(t *testing.T) {
	t.Parallel()
	a := edgetest.NewServer(t, edgetest.Legacy)
	a.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		c.Wait(make(chan struct{}))
	})
	f := open(t, servers{"a": a, "b": edgetest.NewServer(t, edgetest.Legacy)})
	c := f.as(edgetest.Legacy, "")
	r := c.CallTool("1", "a_echo", "{}", `"progressToken":1`)
	r.NextMessage()
	c.Session.Notify("notifications/cancelled", `{"requestId":1,"reason":"the user has pressed Esc"}`)
	if got := param(a.Await("notifications/cancelled", 1), "reason"); got != `"the user has pressed Esc"` {
		t.Errorf("reason %s", got)
	}
}

// A client that waits for a resource of a modern backend is told that it will
// hear of it when the backend has said so, and not before: what changes in
// between would be lost. The edge waits for that for two seconds at most, so that an
// acknowledgement after these says nothing.
func TestItem09Modern(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
	offers(b, "resources", `{"uri":"test://b","name":"r"}`)
	goOn := make(chan struct{})
	var admitted atomic.Bool
	b.Always("subscriptions/listen", func(c *edgetest.Call) {
		if param(c.Request, "notifications", "resourceSubscriptions") != "" {
			c.Wait(goOn)
			admitted.Store(true)
		}
		c.Notify("notifications/subscriptions/acknowledged", `{"_meta":{"`+subscription+`":`+c.ID()+`},"notifications":`+param(c.Request, "notifications")+`}`)
		<-c.Gone()
	})
	f := open(t, servers{"a": a, "b": b})
	f.met(t)
	c := f.as(edgetest.Modern, "")
	c.list(t, "resources", "uri")
	b.Await("subscriptions/listen", 1)
	early, asked := make(chan bool, 1), time.Now()
	go func() {
		r, err := c.TryAsk("1", "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["test://b"]}}`)
		if err == nil {
			_, err = r.TryNext()
		}
		if err != nil {
			t.Error(err)
		}
		early <- !admitted.Load() && time.Since(asked) < 2*time.Second
	}()
	b.Await("subscriptions/listen", 2)
	for i := 0; i < 20 && time.Since(asked) < time.Second; i++ { // time for an acknowledgement that waits for nothing
		c.CallTool("2", "a_echo", "{}").Result()
	}
	close(goOn)
	if edgetest.Receive(t, early, "the acknowledgement") {
		t.Error("the client was told that it will hear of a resource before the backend has said so")
	}
}
