package guest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// capable is what the clients of these tests can be asked.
const capable = `{"elicitation":{"form":{}},"sampling":{},"roots":{}}`

// What a backend leaks in these tests, and what a client says that no backend is to see.
const (
	leak    = "SECRET"
	private = "PRIVATE"
)

// redacts takes both out of all that passes beside a call, and out of its result.
var redacts = []string{
	"on_notification|method=notifications/progress|redact|/message|[hidden]",
	"on_notification|method=notifications/message|redact|/data|[hidden]",
	"on_notification|args~" + leak + "|del_arg|/_meta/why",
	"on_question|method=elicitation/create|redact|/message|[hidden]",
	"on_question|method=sampling/createMessage|redact|/messages/0/content/text|[hidden]",
	"on_question|result~" + private + "|redact|/content/said|[hidden]",
	"on_question|result~" + private + "|redact|/model|[hidden]",
	"on_call_response|result~" + leak + "|redact|/content/0/text|[hidden]",
}

// answerTo is what a client answers to a question, as JSON text of a result.
func answerTo(method string) string {
	if method == "sampling/createMessage" {
		return `{"role":"assistant","content":{"type":"text","text":"hm"},"model":"` + private + `"}`
	}
	return `{"action":"accept","content":{"said":"` + private + `"}}`
}

var beside = atomic.Int64{} // numbers questions

// leaks is a tool that says the secret in every way that a server of the era has. It asks
// twice, tells before, between and after, and answers with what it was told.
func leaks(era edgetest.Era, tell func(*edgetest.Call)) edgetest.Script {
	elicit := `{"message":"` + leak + `?","requestedSchema":{"type":"object","properties":{"said":{"type":"string"}}}}`
	sample := `{"messages":[{"role":"user","content":{"type":"text","text":"` + leak + `"}}],"maxTokens":1}`
	if era == edgetest.Modern {
		return func(c *edgetest.Call) {
			tell(c)
			if edgetest.Member(string(c.Message.Params), "inputResponses") == "" {
				c.Result(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":` + elicit + `},"b":{"method":"sampling/createMessage","params":` + sample + `}},"requestState":"one"}`)
				return
			}
			c.Result(`{"resultType":"complete","content":[{"type":"text","text":"` + leak + `"}]}`)
		}
	}
	return func(c *edgetest.Call) {
		tell(c)
		c.Ask(fmt.Sprint(beside.Add(1)), "elicitation/create", elicit)
		tell(c)
		c.Ask(fmt.Sprint(beside.Add(1)), "sampling/createMessage", sample)
		c.Result(`{"content":[{"type":"text","text":"` + leak + `"}]}`)
	}
}

// tells is all that a server may tell before its answer.
func tells(c *edgetest.Call) {
	c.Notify("notifications/progress", `{"progressToken":`+c.Token()+`,"progress":1,"message":"`+leak+`"}`)
	c.Notify("notifications/message", `{"level":"error","data":"`+leak+`"}`)
	c.Notify("notifications/tools/list_changed", `{"_meta":{"why":"`+leak+`"}}`)
	c.Notify("notifications/resources/updated", `{"uri":"x:y","_meta":{"why":"`+leak+`"}}`)
}

// heard is what a client got of one call: all messages as text, and how it ended.
type heard struct {
	text   []string
	status int
	end    edgetest.Message
}

// logged is a client that wants to hear log messages.
func logged(e *edgetest.Edge, era edgetest.Era, can string) client {
	c := client{e.NewClient().As(era, can)}
	if c.Session != nil {
		c.Ask("0", "logging/setLevel", `{"level":"debug"}`).Result()
	}
	return c
}

// play calls a tool to its end, and answers what the client is asked, in turns through the
// client itself and through others, which are the same at other edges. It may be called
// from any goroutine.
func (c client) play(n int, tool, arguments string, others ...client) (h heard, err error) {
	all := append([]client{c}, others...)
	level := `"io.modelcontextprotocol/logLevel":"debug"`
	params := edgetest.CallParams(tool, arguments)
	for round := range 5 {
		id := fmt.Sprintf(`"%d-%d"`, n, round)
		r, err := all[round%len(all)].TryAsk(id, "tools/call", params, fmt.Sprintf(`"progressToken":"p%d"`, n), level)
		if err != nil {
			return h, err
		}
		if h.end, err = all[len(all)-1].hear(r, &h); err != nil {
			return h, err
		}
		if edgetest.Member(string(h.end.Result), "resultType") != `"input_required"` {
			return h, nil
		}
		var asked struct {
			InputRequests map[string]struct{ Method string }
			RequestState  string
		}
		if err := json.Unmarshal(h.end.Result, &asked); err != nil {
			return h, err
		}
		var answers []string
		for key, q := range asked.InputRequests {
			answers = append(answers, fmt.Sprintf("%q:%s", key, answerTo(q.Method)))
		}
		params = fmt.Sprintf(`{"name":%q,"arguments":%s,"inputResponses":{%s},"requestState":%q}`, tool, arguments, strings.Join(answers, ","), asked.RequestState)
	}
	return h, fmt.Errorf("asked too often: %s", h.text)
}

// hear reads what comes of a request, and answers questions.
func (c client) hear(r *edgetest.Response, h *heard) (m edgetest.Message, err error) {
	h.status = r.Status
	if !r.Stream() {
		h.text = append(h.text, string(r.Body))
		return m, json.Unmarshal(r.Body, &m)
	}
	for {
		e, err := r.TryNext()
		if err != nil {
			return m, err
		}
		h.text = append(h.text, string(e.Data))
		m = edgetest.Message{}
		switch err := json.Unmarshal(e.Data, &m); {
		case err != nil:
			return m, err
		case m.Method == "":
			return m, nil
		case m.ID != nil:
			if _, err := c.Session.TrySend(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + answerTo(m.Method) + `}`); err != nil {
				return m, err
			}
		}
	}
}

// TestZ32 has backends of both eras leak in progress, log messages, changes, questions
// and results, before clients of both eras: nothing of it reaches a client, nor
// what clients answer a backend, in 10,000 calls.
func TestZ32(t *testing.T) {
	calls := 2500
	if testing.Short() || raceFactor > 1 {
		calls = 100
	}
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		back := edgetest.NewServer(t, of)
		back.Always("tools/call", leaks(of, tells))
		e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: redacts}}))
		const workers = 5
		var work sync.WaitGroup
		var told atomic.Int64
		for range workers {
			c := logged(e, era, capable)
			work.Go(func() {
				for n := range calls / workers {
					h, err := c.play(n, "echo", `{}`)
					all := strings.Join(h.text, "\n")
					switch {
					case err != nil:
						t.Errorf("%v: %s", err, all)
						return
					case strings.Contains(all, leak):
						t.Errorf("it leaks: %s", all)
						return
					case !strings.Contains(string(h.end.Result), "[hidden]"):
						t.Errorf("the result is %s", all)
						return
					}
					told.Add(int64(strings.Count(all, "[hidden]")))
				}
			})
		}
		work.Wait()
		// Progress and a log message in each of two parts, two questions and the result.
		if want := int64(calls * 7); told.Load() < want {
			t.Errorf("%d of at least %d texts were hidden: some did not come", told.Load(), want)
		}
		for _, r := range back.Requests("") {
			if strings.Contains(string(r.Body), private) {
				t.Fatalf("a backend was told %s", r.Body)
			}
		}
	})
}

// TestZ32OutsideOfCalls has a backend leak on the streams that belong to no call: the
// one of a legacy session, and that of subscriptions/listen.
func TestZ32OutsideOfCalls(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		back := edgetest.NewServer(t, of)
		leaky := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y","_meta":{"why":"` + leak + `","keep":1}}}`
		listening := make(chan struct{}, 16)
		back.Always("subscriptions/listen", func(c *edgetest.Call) {
			tag := `"io.modelcontextprotocol/subscriptionId":` + c.ID()
			wish := edgetest.Member(string(c.Message.Params), "notifications")
			c.Notify("notifications/subscriptions/acknowledged", `{"notifications":`+wish+`,"_meta":{"why":"`+leak+`",`+tag+`}}`)
			if strings.Contains(wish, "x:y") {
				c.Notify("notifications/resources/updated", `{"uri":"x:y","_meta":{"why":"`+leak+`","keep":1,`+tag+`}}`)
			}
			listening <- struct{}{}
			c.Wait(c.Gone())
		})
		e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: redacts}}))
		var stream *edgetest.Response
		if era == edgetest.Modern {
			c := e.NewClient()
			stream = c.Modern(`"l"`, "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["x:y"]}}`)
		} else {
			s := e.NewClient().Initialize(capable)
			stream = s.Listen()
			s.Request("1", "resources/subscribe", `{"uri":"x:y"}`)
		}
		defer stream.Close()
		if of == edgetest.Legacy {
			back.Await("resources/subscribe", 1)
			for _, one := range back.Sessions() {
				if one.ID == back.Requests("resources/subscribe")[0].Session {
					one.Push(leaky)
				}
			}
		}
		for {
			event := string(stream.Next().Data)
			if strings.Contains(event, leak) {
				t.Fatalf("it leaks: %s", event)
			}
			if strings.Contains(event, "resources/updated") {
				if !strings.Contains(event, `"keep":1`) {
					t.Errorf("more than the secret is gone: %s", event)
				}
				return
			}
		}
	})
}

// TestZ32Both asks about what clients tell, and says who sent what. What is refused goes
// no further.
func TestZ32Both(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{
		"on_notification|method=notifications/roots/list_changed|set_arg|/_meta|{\"from\":\"$from\",\"subject\":\"$subject\"}",
		"on_notification|args~private|deny|0|not to be told",
		"on_notification|method=notifications/message|set_arg|/data|\"$from of $tool at $backend\"",
		"on_question|args~password|deny|0|no passwords",
		"on_question|result~guess|deny|0|nothing to guess",
		"on_question|from=server|set_arg|/asked|\"$from\"",
		"on_question|result~file|patch_result|/told|\"$from\"",
	}}}))
	s := e.NewClient().Initialize(capable)
	s.Call("1", "echo", `{}`).Result() // so that there is a session with the backend
	s.Notify("notifications/roots/list_changed", `{"x":1}`)
	if got, want := string(back.Await("notifications/roots/list_changed", 1).Message.Params), `{"_meta":{"from":"client","subject":""},"x":1}`; got != want {
		t.Errorf("the backend was told %s, want %s", got, want)
	}
	if r := s.Send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"private":true}}`); r.Status != 403 {
		t.Errorf("a notification that is refused: status %d: %s", r.Status, r.Body)
	}
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Notify("notifications/message", `{"level":"error","data":"x"}`)
		first := c.Ask("1", "elicitation/create", `{"message":"your password?","requestedSchema":{"type":"object","properties":{}}}`)
		second := c.Ask("2", "roots/list", "")
		third := c.Ask("3", "elicitation/create", `{"message":"guess!","requestedSchema":{"type":"object","properties":{}}}`)
		all, _ := json.Marshal([]any{first.Error, string(second.Result), third.Error})
		c.Result(`{"content":[],"got":` + string(all) + `}`)
	})
	r := s.Call("2", "echo", `{}`)
	var questions []string
	for {
		m := r.NextMessage()
		switch {
		case m.Method == "notifications/message":
			if got := edgetest.Member(string(m.Params), "data"); got != `"server of echo at back"` {
				t.Errorf("the log message says %s", got)
			}
			continue
		case m.Method != "":
			questions = append(questions, m.Method+string(m.Params))
			s.Reply(m.ID, map[bool]string{true: `{"roots":[{"uri":"file:///x"}]}`, false: `{"action":"accept","content":{"x":"guess"}}`}[m.Method == "roots/list"])
			continue
		}
		const want = `[{"code":403,"message":"no passwords","data":null},"{\"told\":\"client\",\"roots\":[{\"uri\":\"file:///x\"}]}",{"code":403,"message":"nothing to guess","data":null}]`
		got := strings.ToLower(edgetest.Member(string(m.Result), "got"))
		if got != want {
			t.Errorf("the backend got %s, want %s", got, want)
		}
		break
	}
	if all := strings.Join(questions, " "); strings.Contains(all, "password") || !strings.Contains(all, `roots/list{"asked":"server"}`) || len(questions) != 2 {
		t.Errorf("the client was asked %s", all)
	}
	if n := len(back.Requests("notifications/roots/list_changed")); n != 1 {
		t.Errorf("the backend was told %d times", n)
	}
}

// TestZ32DeniedQuestion ends a call of a modern client with the refusal, at a
// legacy backend that waits for the answer too.
func TestZ32DeniedQuestion(t *testing.T) {
	t.Parallel()
	for _, of := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		back := edgetest.NewServer(t, of)
		ended := make(chan struct{})
		back.Always("tools/call", func(c *edgetest.Call) {
			const ask = `{"message":"your password?","requestedSchema":{"type":"object","properties":{}}}`
			if of == edgetest.Modern {
				c.Result(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":` + ask + `}},"requestState":"one"}`)
				return
			}
			defer close(ended)
			c.Ask("1", "elicitation/create", ask)
		})
		e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{"on_question|args~password|deny|0|no passwords"}}}))
		c := client{e.NewClient().As(edgetest.Modern, capable)}
		fails(t, c.CallTool(`"1"`, "echo", `{}`), 403, 403, "no passwords")
		if of == edgetest.Legacy {
			select {
			case <-ended: // it is told that nobody waits
			case <-time.After(edgetest.Patience):
				t.Error("the backend goes on waiting")
			}
		}
	}
}

// TestZ32Hold holds what precedes an answer until a program has judged that.
func TestZ32Hold(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		back := edgetest.NewServer(t, of)
		several := make(chan struct{}, 1)
		back.Always("tools/call", func(c *edgetest.Call) {
			bad := strings.Contains(string(c.Message.Params), "bad")
			for i := range 3 {
				c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, c.Token(), i+1))
			}
			c.Notify("notifications/message", `{"level":"error","data":"`+leak+`"}`)
			if strings.Contains(string(c.Message.Params), "slow") {
				c.Wait(several)
			}
			complete := ""
			if of == edgetest.Modern {
				complete = `"resultType":"complete",`
			}
			c.Result(fmt.Sprintf(`{%s"content":[{"type":"text","text":"bad: %v"}]}`, complete, bad))
		})
		e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{
			"sub|on_call_response|hold=1|tool=echo", "sub|on_question", "on_call_response|result~bad: true|deny|0|not that",
		}}}))
		c := logged(e, era, "")
		h, err := c.play(1, "echo", `{"bad":1}`)
		if err != nil || len(h.text) != 1 || h.end.Error == nil || h.status != 403 && era == edgetest.Modern {
			t.Errorf("of an answer that is refused the client got %d, %q, %v", h.status, h.text, err)
		}
		h, err = c.play(2, "echo", `{}`)
		if err != nil || len(h.text) != 5 || !strings.Contains(h.text[0], `"progress":1`) || !strings.Contains(h.text[3], leak) || h.end.Result == nil {
			t.Errorf("of an answer that passes the client got %q, %v", h.text, err)
		}
		// Nothing comes before the verdict.
		got := make(chan heard)
		go func() {
			h, _ := c.play(3, "echo", `{"slow":1}`)
			got <- h
		}()
		back.Await("tools/call", 3)
		select {
		case h := <-got:
			t.Errorf("before the answer: %q", h.text)
		case <-time.After(50 * time.Millisecond):
		}
		several <- struct{}{}
		if h := <-got; len(h.text) != 5 {
			t.Errorf("after it: %q", h.text)
		}
	})
}

// TestZ32HeldIsBounded drops what is too much to be held, and says so; the answer comes.
func TestZ32HeldIsBounded(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	back.Always("tools/call", func(c *edgetest.Call) {
		for i := range 10_000 {
			c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, c.Token(), i+1))
		}
		c.Result(`{"resultType":"complete","content":[]}`)
	})
	e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{"sub|on_call_response|hold=1", "sub|on_question"}}}))
	c := client{e.NewClient().As(edgetest.Modern, "")}
	h, err := c.play(1, "echo", `{}`)
	if err != nil || len(h.text) != 257 {
		t.Errorf("%d messages, %v", len(h.text), err)
	}
	if log := e.Log(); !strings.Contains(log, "a call told more before its answer than is held") || !strings.Contains(log, "dropped=9744") {
		t.Errorf("the log says nothing of it: %s", log)
	}
}

// TestZ32HoldNeedsQuestions: a program that holds has to be asked about questions, which
// cannot wait.
func TestZ32HoldNeedsQuestions(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	for rule, want := range map[string]string{
		"sub|on_call_response|hold=1": "subscribe to on_question",
		"sub|on_call_request|hold=1":  "on_call_request is not asked about answers",
	} {
		if err := refused(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{rule}}})); !strings.Contains(err, want) {
			t.Errorf("%s: %s; want %q", rule, err, want)
		}
	}
}

// TestZ32Failing has a program fail on what a backend tells. Nothing of it reaches a
// client under onError: deny, all of it under continue; calls are judged and served as before.
func TestZ32Failing(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"trap", "loop", "bad"} {
		for _, onError := range []string{"deny", "continue"} {
			t.Run(how+", "+onError, func(t *testing.T) {
				t.Parallel()
				back := edgetest.NewServer(t, edgetest.Modern)
				back.Always("tools/call", func(c *edgetest.Call) {
					for i := range 20 {
						c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d,"message":"boom"}`, c.Token(), i+1))
					}
					c.Result(`{"resultType":"complete","content":[]}`)
				})
				e := start(t, manifest(t, backs{"back": back}, []filter{{
					name: "f", more: "onError: " + onError, limits: "fuel: 2000000",
					rules: []string{"on_notification|args~boom|" + how, "on_call_request|args~forbidden|deny|0|not that"},
				}}))
				c := client{e.NewClient().As(edgetest.Modern, "")}
				h, err := c.play(1, "echo", `{}`)
				want := map[string]int{"deny": 1, "continue": 21}[onError]
				if err != nil || len(h.text) != want || h.end.Result == nil {
					t.Errorf("the client got %d messages, %v, %s; want %d", len(h.text), err, h.end.Result, want)
				}
				// What the backend tells is not the fault of the client, of whose calls the program is asked.
				fails(t, c.call(t, "echo", `{"forbidden":1}`), 403, 403, "not that")
			})
		}
	}
}

// TestZ32Rate tells 10,000 times in one call, past a program that is asked and past one
// that is not: all of it arrives, in order.
func TestZ32Rate(t *testing.T) {
	t.Parallel()
	for _, rules := range [][]string{redacts, {"on_call_request|args~nothing|deny|0|x"}} {
		back := edgetest.NewServer(t, edgetest.Modern)
		back.Always("tools/call", func(c *edgetest.Call) {
			events := make([]string, 0, 10_001)
			for i := range 10_000 {
				events = append(events, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s"}}`, c.Token(), i+1, leak))
			}
			c.Whole(append(events, `{"jsonrpc":"2.0","id":`+c.ID()+`,"result":{"resultType":"complete","content":[]}}`)...)
		})
		e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules}}))
		c := client{e.NewClient().As(edgetest.Modern, "")}
		began := time.Now()
		h, err := c.play(1, "echo", `{}`)
		took := time.Since(began)
		if err != nil || len(h.text) != 10_001 {
			t.Fatalf("%d messages, %v", len(h.text), err)
		}
		t.Logf("10,000 notifications in %s with %s", took, rules[0])
		hidden := 0
		for i, text := range h.text[:10_000] {
			if !strings.Contains(text, fmt.Sprintf(`"progress":%d,`, i+1)) {
				t.Fatalf("message %d is %s", i+1, text)
			}
			hidden += strings.Count(text, "[hidden]")
		}
		if want := map[bool]int{true: 10_000}[len(rules) > 1]; hidden != want {
			t.Errorf("%d hidden, want %d", hidden, want)
		}
	}
}

// TestZ32OlderTransport has a backend leak before a client over HTTP with SSE, and over that to
// one of any era.
func TestZ32OlderTransport(t *testing.T) {
	t.Parallel()
	for _, of := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(of.String()+" backend", func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, of)
			back.Always("tools/call", leaks(of, tells))
			yaml := manifest(t, backs{"back": back}, []filter{{name: "f", rules: redacts}})
			if of == edgetest.SSE {
				yaml = strings.Replace(yaml, "transport: streamable-http", "transport: sse", 1)
			}
			e := start(t, yaml)
			old := e.NewClient().OpenSSE()
			old.Initialize(capable)
			old.Request(`"level"`, "logging/setLevel", `{"level":"debug"}`)
			old.Stream.NextMessage()
			old.Request(`"1"`, "tools/call", `{"name":"echo","arguments":{},"_meta":{"progressToken":"p"}}`)
			for hidden := 0; ; {
				event := old.Stream.Next()
				if strings.Contains(string(event.Data), leak) {
					t.Fatalf("it leaks: %s", event.Data)
				}
				hidden += strings.Count(string(event.Data), "[hidden]")
				m := edgetest.Parse(t, event.Data)
				if m.Method != "" && m.ID != nil {
					old.Accepted(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + answerTo(m.Method) + `}`)
				}
				if m.Method == "" {
					if hidden < 7 {
						t.Errorf("%d texts were hidden, want 7: some did not come", hidden)
					}
					break
				}
			}
			for _, r := range back.Requests("") {
				if strings.Contains(string(r.Body), private) {
					t.Errorf("the backend was told %s", r.Body)
				}
			}
		})
	}
}

// TestZ32Resumed gives a client that comes back what was judged, and not what was said.
func TestZ32Resumed(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	goOn := make(chan struct{})
	back.Always("tools/call", func(c *edgetest.Call) {
		tells(c)
		c.Wait(goOn)
		tells(c)
		c.Result(`{"content":[{"type":"text","text":"` + leak + `"}]}`)
	})
	e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: redacts}}))
	c := logged(e, edgetest.Legacy, "")
	r := c.CallTool("1", "echo", "{}", `"progressToken":"p"`)
	first := r.Next()
	r.Close()
	close(goOn)
	again := c.Do("GET", "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", c.Session.ID, "MCP-Protocol-Version", c.Session.Version, "Last-Event-ID", first.ID)
	if again.Status != 200 {
		t.Fatalf("status %d: %s", again.Status, again.Body)
	}
	var all []string
	for {
		event := again.Next()
		all = append(all, string(event.Data))
		if edgetest.Parse(t, event.Data).Method == "" {
			break
		}
	}
	if text := strings.Join(append(all, string(first.Data)), "\n"); strings.Contains(text, leak) || strings.Count(text, "[hidden]") != 5 {
		t.Errorf("the client got %s", text)
	}
}
