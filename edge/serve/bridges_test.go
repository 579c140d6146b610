package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
)

// bridge is a fake of what puts a server of one client behind HTTP with SSE and
// sends all that the server says to everybody who is connected.
type bridge struct {
	*httptest.Server
	t    *testing.T
	call func(b *bridge, m heard) // tools/call and the answers to questions

	mu      sync.Mutex
	streams map[int]chan string
	last    int
	ids     map[string][]string // of requests, by method, as they came
}

// heard is a message that came to the server.
type heard struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Arguments map[string]any
		Meta      struct{ ProgressToken json.RawMessage } `json:"_meta"`
	}
	Result, Error json.RawMessage
}

func newBridge(t *testing.T, call func(*bridge, heard)) *bridge {
	b := &bridge{t: t, call: call, streams: map[int]chan string{}, ids: map[string][]string{}}
	over := make(chan struct{})
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == "GET" && r.URL.Path == "/sse":
			b.mu.Lock()
			b.last++
			n, out := b.last, make(chan string, 10_000)
			b.streams[n] = out
			b.mu.Unlock()
			defer func() {
				b.mu.Lock()
				delete(b.streams, n)
				b.mu.Unlock()
			}()
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: endpoint\ndata: /messages?sessionId=%d\n\n", n)
			for {
				_ = http.NewResponseController(w).Flush()
				select {
				case text := <-out:
					fmt.Fprintf(w, "event: message\ndata: %s\n\n", text)
				case <-r.Context().Done():
					return
				case <-over:
					return
				}
			}
		case r.Method == "POST" && r.URL.Path == "/messages":
			var m heard
			if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
				w.WriteHeader(400)
				return
			}
			w.WriteHeader(202)
			b.hear(m)
		default:
			w.WriteHeader(404)
		}
	}))
	t.Cleanup(func() {
		close(over)
		b.CloseClientConnections()
		b.Close()
	})
	return b
}

// hear is the server of one client.
func (b *bridge) hear(m heard) {
	b.mu.Lock()
	if m.ID != nil && m.Method != "" {
		b.ids[m.Method] = append(b.ids[m.Method], string(m.ID))
	}
	b.mu.Unlock()
	switch m.Method {
	case "initialize":
		b.answer(m, `{"protocolVersion":"2024-11-05","capabilities":{"tools":{},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"one","version":"1"}}`)
	case "tools/list":
		b.answer(m, `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`)
	case "tools/call", "":
		b.call(b, m)
	default:
		if m.ID != nil {
			b.answer(m, `{}`)
		}
	}
}

func (b *bridge) answer(m heard, result string) {
	b.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`)
}

// echo answers with the arguments.
func (b *bridge) echo(m heard) {
	text, _ := json.Marshal(m.Params.Arguments)
	b.answer(m, `{"content":[{"type":"text","text":`+strconv.Quote(string(text))+`}]}`)
}

// say sends a message to everybody.
func (b *bridge) say(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, out := range b.streams {
		out <- text
	}
}

// front is an edge before the bridge.
func (b *bridge) front(t *testing.T) *front {
	e := edgetest.Start(t, edgetest.ManifestFor(b.URL+"/sse", compile.SSE))
	return &front{Edge: e, client: e.NewClient()}
}

// messages is what a client got for a call: what came before the answer, and it.
func messages(r *edgetest.Response) (before []string, answer string) {
	if !r.Stream() {
		return nil, string(r.Body)
	}
	for _, e := range r.Rest() {
		if len(e.Data) > 0 {
			before = append(before, string(e.Data))
		}
	}
	if len(before) == 0 {
		return nil, ""
	}
	return before[:len(before)-1], before[len(before)-1]
}

// Behind a bridge that sends each answer to all its clients nobody gets another's
// answer or progress: clients of both eras make the same calls at the same time,
// under the same ids and progress tokens, and the server answers them out of
// order.
func TestZ11NoAnswerCrosses(t *testing.T) {
	t.Parallel()
	const clients, rounds = 8, 125
	var mu sync.Mutex
	var waiting []heard
	b := newBridge(t, func(b *bridge, m heard) {
		mu.Lock()
		defer mu.Unlock()
		waiting = append(waiting, m)
		if len(waiting) < clients { // all of a round are under way at once
			return
		}
		all := waiting
		waiting = nil
		for step := range 2 {
			for _, m := range all {
				b.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"of %v"}}`, m.Params.Meta.ProgressToken, step+1, m.Params.Arguments["who"]))
			}
		}
		for _, i := range []int{3, 0, 7, 1, 6, 2, 5, 4} {
			b.echo(all[i])
		}
	})
	f := b.front(t)
	var work sync.WaitGroup
	for n := range clients {
		era := []edgetest.Era{edgetest.Legacy, edgetest.Modern}[n%2]
		c := f.callerOf(t, era, "")
		work.Go(func() {
			for i := range rounds {
				id := []string{strconv.Itoa(i), strconv.Quote(fmt.Sprint("call ", i)), "-1"}[i%3]
				r, err := c.try(id, "tools/call", edgetest.CallParams("echo", fmt.Sprintf(`{"who":"%d","round":%d}`, n, i)), `"progressToken":`+id)
				if err != nil {
					t.Error(err)
					return
				}
				before, answer := messages(r)
				if !strings.Contains(answer, fmt.Sprintf(`{\"round\":%d,\"who\":\"%d\"}`, i, n)) || !strings.Contains(answer, `"id":`+id) {
					t.Errorf("client %d, round %d: %s", n, i, answer)
				}
				for step, one := range before {
					if want := fmt.Sprintf(`"progressToken":%s,"progress":%d,"message":"of %d"`, id, step+1, n); !strings.Contains(one, want) {
						t.Errorf("client %d, round %d heard %s", n, i, one)
					}
				}
				if len(before) != 2 {
					t.Errorf("client %d, round %d heard %d messages: %q", n, i, len(before), before)
				}
			}
		})
	}
	work.Wait()

	// Requests are numbered from a start by chance, each session on its own, by
	// integers that every reader of JSON keeps.
	seen := map[string]bool{}
	for method, ids := range b.ids {
		for _, id := range ids {
			if n, err := strconv.ParseUint(id, 10, 64); err != nil || len(id) != 14 || n > 1<<53 || seen[id] {
				t.Errorf("%s under the id %s", method, id)
			}
			seen[id] = true
		}
	}
	var status struct {
		DiscoveredBackends []struct {
			StrayAnswers int64
			Message      string
		}
	}
	if err := json.Unmarshal(f.client.Do("GET", "/status", "").Body, &status); err != nil || status.DiscoveredBackends[0].StrayAnswers < clients*rounds || !strings.Contains(status.DiscoveredBackends[0].Message, "to others") {
		t.Errorf("%v, %+v", err, status)
	}
	if n := strings.Count(f.Log(), "sends answers to others"); n != 1 {
		t.Errorf("warned %d times", n)
	}
}

// A question behind such a bridge goes to the client whose call is the only one
// under way; where there are several, nobody is asked in place of another: the
// server is refused, once. The same holds for log messages, which are left out.
func TestZ11QuestionsOfABridge(t *testing.T) {
	t.Parallel()
	calls, replies := make(chan heard, 10), make(chan heard, 10)
	b := newBridge(t, func(_ *bridge, m heard) {
		if m.Method == "" {
			replies <- m
		} else {
			calls <- m
		}
	})
	f := b.front(t)
	one, two := f.NewClient().Initialize(`{"elicitation":{}}`), f.NewClient().Initialize(`{"elicitation":{}}`)
	three := f.callerOf(t, edgetest.Modern, "")
	call := func(s *edgetest.Session, id string) <-chan *edgetest.Response {
		out := make(chan *edgetest.Response, 1)
		go func() {
			r, err := s.TrySend(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","arguments":{"id":` + id + `}}}`)
			if err != nil {
				t.Error(err)
			}
			out <- r
		}()
		return out
	}
	const question, line = `{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":"%s","requestedSchema":{"type":"object","properties":{}}}}`, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}`

	// Both meet the server, and it is known for what it is.
	for i, s := range []*edgetest.Session{one, two} {
		r := call(s, strconv.Itoa(i))
		b.echo(edgetest.Receive(t, calls, "a call"))
		edgetest.Receive(t, r, "an answer")
	}

	// 1. One calls.
	r := call(one, "10")
	m := edgetest.Receive(t, calls, "a call")
	b.say(fmt.Sprintf(line, "of the first"))
	b.say(fmt.Sprintf(question, 0, "for the first"))
	stream := edgetest.Receive(t, r, "the stream")
	if got := string(stream.Next().Data); !strings.Contains(got, "of the first") {
		t.Errorf("the line is %s", got)
	}
	asked := stream.NextMessage()
	if !strings.Contains(string(asked.Params), "for the first") {
		t.Errorf("asked %+v", asked)
	}
	one.Reply(asked.ID, `{"action":"accept","content":{}}`)
	if got := edgetest.Receive(t, replies, "the reply"); string(got.ID) != "0" || got.Result == nil {
		t.Errorf("replied %+v", got)
	}
	b.echo(m)
	stream.NextMessage()

	// 2. Two call.
	first, second := call(one, "20"), call(two, "20")
	all := []heard{edgetest.Receive(t, calls, "a call"), edgetest.Receive(t, calls, "a call")}
	b.say(fmt.Sprintf(line, "of nobody knows whom"))
	b.say(fmt.Sprintf(question, 1, "for nobody knows whom"))
	if got := edgetest.Receive(t, replies, "the reply"); string(got.ID) != "1" || got.Error == nil {
		t.Errorf("replied %+v", got)
	}
	for _, m := range all {
		b.echo(m)
	}
	for _, r := range []<-chan *edgetest.Response{first, second} {
		if before, answer := messages(edgetest.Receive(t, r, "an answer")); len(before) != 0 || !strings.Contains(answer, `"id":20`) {
			t.Errorf("%q, then %s", before, answer)
		}
	}

	// 3. Nobody does, and a ping wants one answer.
	b.say(fmt.Sprintf(question, 2, "for nobody"))
	if got := edgetest.Receive(t, replies, "the reply"); string(got.ID) != "2" || got.Error == nil {
		t.Errorf("replied %+v", got)
	}
	b.say(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	if got := edgetest.Receive(t, replies, "the reply"); string(got.ID) != "3" || got.Result == nil {
		t.Errorf("replied %+v", got)
	}
	done := make(chan *edgetest.Response, 1)
	go func() {
		r, err := three.try("1", "tools/call", edgetest.CallParams("echo", "{}"))
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	b.echo(edgetest.Receive(t, calls, "a call"))
	edgetest.Receive(t, done, "an answer")
	select {
	case got := <-replies:
		t.Errorf("replied once more: %+v", got)
	default:
	}
}

// An answer that comes after its call was given up is no sign of such a bridge,
// and reaches nobody; one under an id that was never given is.
func TestZ11LateAnswerIsNoStray(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.SSE)
	s := f.NewClient().Initialize("")
	came, release := make(chan struct{}), make(chan struct{})
	f.back.Once("tools/call", func(c *edgetest.Call) {
		close(came)
		<-release
		c.Result(`{"late":true}`)
	})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if r, err := s.TrySend(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`); err == nil && strings.Contains(string(r.Body), "late") {
			t.Errorf("%s", r.Body)
		}
	}()
	<-came
	s.Notify("notifications/cancelled", `{"requestId":1}`)
	edgetest.Receive(t, gone, "the end of the call")
	close(release)
	strays := func() bool { return strings.Contains(string(f.client.Do("GET", "/status", "").Body), "strayAnswers") }
	call := func(id string) {
		if r := s.Call(id, "echo", `{"n":2}`); r.Message().Error != nil || strings.Contains(string(r.Body), "late") {
			t.Errorf("%s", r.Body)
		}
	}
	call("1")
	call("2")
	if strays() {
		t.Error("a late answer counts as one that went to another")
	}
	f.back.Once("tools/call", func(c *edgetest.Call) {
		c.Event(`{"jsonrpc":"2.0","id":7,"result":{}}`)
		c.Event(`{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}`)
		c.Result(`{}`)
	})
	call("3")
	if !strays() {
		t.Error("an answer to nobody's request does not count")
	}
}

// A backend that was away for long is listed again as soon as it is well: the
// first call or look that it answers is enough. In between its tools are not
// listed, and the attempts to list them become rare.
func TestZ13BackendThatIsWellIsListed(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, listed before: %t", era, known), func(t *testing.T) {
				t.Parallel()
				address := edgetest.FreeAddress(t)
				at := func(s *edgetest.Server) { s.Address, s.KeepAlive = address, "timeout=1" }
				up, back := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, era, at)
				offers(up, "echo")
				offers(back, "echo")
				if !known {
					back.Close()
				}
				e := edgetest.Start(t, group(map[string]*edgetest.Server{"up": up, "back": back},
					"operational: {failureHandling: {partialFailureMode: best_effort, healthCheckInterval: 1s, statusReportingInterval: 1s}}"))
				f := &front{Edge: e, client: e.NewClient()}
				c := f.callerOf(t, edgetest.Modern, "")
				has := func() bool { return slices.Contains(listed(t, c), "back_echo") }
				if known {
					edgetest.Until(t, "the first list", has)
					back.Close()
				}
				edgetest.Until(t, "a list without the backend", func() bool { return !has() })
				away := time.Now()
				edgetest.Until(t, "rare attempts", func() bool { has(); return time.Since(away) > 5*time.Second })
				again := edgetest.NewServer(t, era, at)
				offers(again, "echo")
				began := time.Now()
				if known { // the call finds its way by the list of before
					if m := c.request(t, "1", "tools/call", edgetest.CallParams("back_echo", "{}")).Message(); m.Error != nil {
						t.Fatalf("the call: %+v", m.Error)
					}
				} else {
					again.Await(map[edgetest.Era]string{edgetest.Legacy: "initialize", edgetest.Modern: "server/discover", edgetest.SSE: "initialize"}[era], 1)
				}
				edgetest.Until(t, "a list with the backend", has)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it was listed after %s", took)
				}
			})
		}
	}
}

// hammered is how many calls a cell makes: all of them with WEIR_HAMMER=1, else
// a fiftieth.
func hammered() int {
	if os.Getenv("WEIR_HAMMER") == "1" {
		return 10_000
	}
	return 200
}

// Each progress message of each call reaches its client once and in order, in
// every cell: clients use the same ids and tokens at the same time, and some of
// them leave in the middle.
func TestZ15ProgressOnceAndInOrder(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, first caller) {
		const lanes = 8
		f.back.Always("tools/call", func(c *edgetest.Call) {
			steps, _ := strconv.Atoi(edgetest.Member(string(c.Message.Params), "arguments", "steps"))
			for n := range steps {
				c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d,"message":%s}`, c.Token(), n+1, edgetest.Member(string(c.Message.Params), "arguments", "who")))
			}
			if edgetest.Member(string(c.Message.Params), "arguments", "stays") == "true" {
				<-c.Gone()
				return
			}
			c.Result(`{"content":[]}`)
		})
		var work sync.WaitGroup
		for lane := range lanes {
			c := first
			if lane%2 == 1 {
				c = f.callerOf(t, first.era(), "")
			}
			work.Go(func() {
				for i := lane; i < hammered(); i += lanes {
					id, steps, leaves := strconv.Itoa(i+1), i%6, i%29 == 28 // unique in a session, equal in two of them
					if lane%2 == 1 {
						id = strconv.Itoa(i)
					}
					who := fmt.Sprintf("%d of lane %d", i, lane)
					r, err := c.try(id, "tools/call", edgetest.CallParams("echo", fmt.Sprintf(`{"steps":%d,"who":%q,"stays":%t}`, max(steps, btoi(leaves)), who, leaves)), `"progressToken":`+id)
					if err != nil {
						t.Error(err)
						return
					}
					if leaves {
						r.Next()
						r.Close()
						if c.session != nil {
							_, _ = c.session.TrySend(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
						}
						continue
					}
					before, answer := messages(r)
					if !strings.Contains(answer, `"result"`) || !strings.Contains(answer, `"id":`+id) {
						t.Errorf("call %s: %s", who, answer)
					}
					if len(before) != steps {
						t.Errorf("call %s: %d messages of %d: %q", who, len(before), steps, before)
						continue
					}
					for n, one := range before {
						if want := fmt.Sprintf(`{"progressToken":%s,"progress":%d,"message":%q}`, id, n+1, who); !strings.Contains(one, want) {
							t.Errorf("call %s: message %d is %s", who, n, one)
						}
					}
				}
			})
		}
		work.Wait()
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Progress that a server sends twice reaches the client once: on the stream of
// the call and on that of the session, and again, from the event that was seen or
// from the first one, where a stream that broke is taken up.
func TestZ15ProgressThatComesTwice(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String()+" client, taken up", func(t *testing.T) {
			t.Parallel()
			f := newFront(t, edgetest.Legacy)
			c := f.callerOf(t, era, "")
			for _, from := range []int{1, 3} { // what the server sends again begins there
				var token, id string
				event := func(n int) string {
					return fmt.Sprintf("id: e%d\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%d}}\n\n", n, token, n)
				}
				f.back.Once("tools/call", func(c *edgetest.Call) {
					token, id = c.Token(), c.ID()
					c.Raw("retry: 1\n\n" + event(1) + event(2) + event(3))
				})
				f.back.Once("GET", func(c *edgetest.Call) {
					if got := c.Request.Header.Get("Last-Event-ID"); got != "e3" {
						t.Errorf("resumed after %q", got)
					}
					for n := from; n <= 5; n++ {
						c.Raw(event(n))
					}
					c.Raw("id: e6\ndata: {\"jsonrpc\":\"2.0\",\"id\":" + id + ",\"result\":{}}\n\n")
				})
				before, answer := messages(c.call(t, "1", "{}", `"progressToken":7`))
				var got []string
				for _, one := range before {
					got = append(got, edgetest.Member(one, "params", "progress"))
				}
				if strings.Join(got, " ") != "1 2 3 4 5" || !strings.Contains(answer, `"result"`) {
					t.Errorf("sent again from %d: %q, then %s", from, got, answer)
				}
			}
		})
	}
	t.Run("on two streams", func(t *testing.T) {
		t.Parallel()
		f := newFront(t, edgetest.Legacy)
		s := f.NewClient().Initialize("")
		own := s.Listen()
		call := func() { s.Call("1", "echo", "{}") }
		call()
		f.back.Until("the session's own stream", func() bool {
			return slices.ContainsFunc(f.back.Sessions(), (*edgetest.ServerSession).Listening)
		})
		f.back.Once("tools/call", func(c *edgetest.Call) {
			at := f.back.Session(c.Request.Session)
			for n := range 3 {
				c.Progress(n + 1)
				at.Push(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, c.Token(), n+1))
			}
			c.Result(`{}`)
		})
		r := s.Request("2", "tools/call", `{"name":"echo","arguments":{},"_meta":{"progressToken":"t"}}`)
		before, answer := messages(r)
		var got []string
		for _, one := range before {
			got = append(got, edgetest.Member(one, "params", "progress"))
		}
		if strings.Join(got, " ") != "1 2 3" || !strings.Contains(answer, `"result"`) {
			t.Errorf("%q, then %s", got, answer)
		}
		own.Close()
	})
}

// What a backend says when it refuses the edge is in the status, in one line
// without anything of the credential that it was sent; a 403 without a challenge
// is no matter of credentials. Clients hear nothing of it.
func TestZ15RefusalInTheStatus(t *testing.T) {
	t.Parallel()
	const words = "\n\t\x1b[31mInvalid \x00Host: " + planted + " \u202e is not served\nsecond line"
	const shown = `Host: REDACTED  is not served`
	text := func(status int, challenge string) edgetest.Script {
		return func(c *edgetest.Call) {
			if challenge != "" {
				c.Header().Set("WWW-Authenticate", challenge)
			}
			c.Text(status, "text/plain; charset=utf-8", words)
		}
	}
	for _, one := range []struct {
		name      string
		script    edgetest.Script
		says, not string
	}{
		{"403", text(403, ""), "refuse", "credential"},
		{"403 as JSON-RPC", func(c *edgetest.Call) {
			quoted, _ := json.Marshal(words)
			c.JSON(403, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":`+string(quoted)+`}}`)
		}, "refuse", "credential"},
		{"403 as JSON-RPC under the id", func(c *edgetest.Call) {
			quoted, _ := json.Marshal(words)
			c.JSON(403, `{"jsonrpc":"2.0","id":`+string(c.Message.ID)+`,"error":{"code":-32000,"message":`+string(quoted)+`}}`)
		}, "refuse", "credential"},
		{"403 with a challenge", text(403, `Bearer error="insufficient_scope"`), "credential", "second line"},
		{"401", text(401, "Bearer"), "credential", "second line"},
		{"500", text(500, ""), "HTTP 500", "credential"},
	} {
		for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
			for _, met := range []bool{false, true} {
				if met && era != edgetest.Modern || era == edgetest.SSE && strings.Contains(one.name, "under the id") {
					continue // a check that a legacy backend refuses is told as it was before, or by the next
				}
				t.Run(fmt.Sprintf("%s, %s, introduced before: %t", one.name, era, met), func(t *testing.T) {
					t.Parallel()
					back := edgetest.NewServer(t, era)
					if !met {
						back.Always("*", one.script)
					}
					auth := `headerForward: {addPlaintextHeaders: {X-Api-Key: "` + planted + `"}}`
					e := edgetest.Start(t, strings.Replace(locked(back, auth), "config: {", "config: {operational: {failureHandling: {healthCheckInterval: 1s}}, ", 1))
					c := e.NewClient()
					if met {
						if m := c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error != nil {
							t.Fatalf("%+v", m.Error)
						}
						back.Always("*", one.script)
					}
					var message string
					edgetest.Until(t, "the words in the status", func() bool {
						var status struct{ DiscoveredBackends []struct{ Message string } }
						if err := json.Unmarshal(c.Do("GET", "/status", "").Body, &status); err != nil {
							t.Fatal(err)
						}
						message = status.DiscoveredBackends[0].Message
						return strings.Contains(message, shown)
					})
					if !strings.Contains(message, one.says) || strings.Contains(message, one.not) || strings.Contains(message, "second") || strings.ContainsFunc(message, func(r rune) bool { return r < ' ' || r == 0x202e }) {
						t.Errorf("%q", message)
					}
					if met && strings.Contains(one.name, "under the id") {
						return // to a call this is an answer
					}
					if r := c.Modern("2", "tools/call", edgetest.CallParams("echo", "{}")); strings.Contains(string(r.Body), "Host") || strings.Contains(string(r.Body), "planted") {
						t.Errorf("the client hears %s", r.Body)
					}
					if strings.Contains(e.Log(), planted) {
						t.Error("the secret is in the log")
					}
				})
			}
		}
	}
}

// Servers of others do what no revision of the protocol has. What one can live
// with is lived with, by clients of both eras; anything else fails at once.
func TestZ10OddServers(t *testing.T) {
	t.Parallel()
	const fine = `"result":{"content":[],"resultType":"complete"}}`
	answer := func(c *edgetest.Call) string { return `{"jsonrpc":"2.0","id":` + c.ID() + `,` + fine }
	// Bytes closes the connection: a head that does not say so has the next call
	// arrive at a server that is just leaving, and that call may fail.
	whole := func(c *edgetest.Call, head, body string) {
		c.Bytes(head + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	}
	const kind = "Content-Type: application/json\r\n"
	turned := func(id string) string { // text for a number, and the other way around
		if strings.HasPrefix(id, `"`) {
			return strings.Trim(id, `"`)
		}
		return strconv.Quote(id)
	}
	for _, one := range []struct {
		name string
		kind string // of the request that is answered oddly
		fail bool
		odd  edgetest.Script
	}{
		{"charset and capitals", "tools/call", false, func(c *edgetest.Call) {
			c.Text(200, "Application/JSON; Charset=UTF-8", answer(c))
		}},
		{"a stream with charset and capitals", "tools/call", false, func(c *edgetest.Call) {
			c.Text(200, "TEXT/Event-Stream;charset=utf-8", "data:"+answer(c)+"\n\n")
		}},
		{"no content type", "tools/call", false, func(c *edgetest.Call) { whole(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n", answer(c)) }},
		{"a byte order mark", "tools/call", false, func(c *edgetest.Call) { c.JSON(200, "\ufeff"+answer(c)) }},
		{"a byte order mark before events", "tools/call", false, func(c *edgetest.Call) {
			c.Text(200, "text/event-stream", "\ufeffdata:"+answer(c)+"\r\n\r\n")
		}},
		{"white space around", "tools/call", false, func(c *edgetest.Call) { c.JSON(200, "\r\n "+answer(c)+"\n\n\n") }},
		{"HTTP/1.0", "tools/call", false, func(c *edgetest.Call) { whole(c, "HTTP/1.0 200 OK\r\n"+kind, answer(c)) }},
		{"HTTP/1.0 up to its end", "tools/call", false, func(c *edgetest.Call) {
			c.Bytes("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + answer(c))
		}},
		{"Connection: close", "tools/call", false, func(c *edgetest.Call) {
			whole(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n"+kind, answer(c))
		}},
		{"the id as another type", "tools/call", true, func(c *edgetest.Call) {
			c.JSON(200, `{"jsonrpc":"2.0","id":`+turned(c.ID())+`,`+fine)
		}},
		{"the id as another type, as an event", "tools/call", true, func(c *edgetest.Call) {
			c.Whole(`{"jsonrpc":"2.0","id":` + turned(c.ID()) + `,` + fine)
		}},
		{"two answers", "tools/call", false, func(c *edgetest.Call) {
			c.Whole(answer(c), strings.Replace(answer(c), "[]", `[{"type":"text","text":"second"}]`, 1))
		}},
		{"another's answer before", "tools/call", false, func(c *edgetest.Call) {
			c.Whole(`{"jsonrpc":"2.0","id":424242,"result":{"content":[{"type":"text","text":"second"}]}}`, answer(c))
		}},
		{"an event that is empty, and one of another type", "tools/call", false, func(c *edgetest.Call) {
			c.Raw("id: 1\n\nevent: ping\ndata: {}\n\ndata:\n\nevent: message\ndata:" + answer(c) + "\n\n")
		}},
		{"a result under 202", "tools/call", false, func(c *edgetest.Call) { c.JSON(202, answer(c)) }},
		{"a result under 206", "tools/call", false, func(c *edgetest.Call) { c.JSON(206, answer(c)) }},
		{"a result under 400", "tools/call", false, func(c *edgetest.Call) { c.JSON(400, answer(c)) }},
		{"an answer that is cut, as an event", "tools/call", true, func(c *edgetest.Call) { c.Whole(answer(c)[:20], answer(c)) }},
		{"a log message that cannot be read", "tools/call", false, func(c *edgetest.Call) {
			c.Whole(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"cut \ud83d"}}`, answer(c))
		}},
		{"a question that cannot be read", "tools/call", false, func(c *edgetest.Call) {
			c.Whole(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"cut \ud83d"}}`, answer(c))
		}},
		{"a batch of a log message and a question", "tools/call", false, func(c *edgetest.Call) {
			c.Whole(`[{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}},{"jsonrpc":"2.0","id":"q","method":"ping"}]`, answer(c))
		}},
		{"a batch alone", "tools/call", true, func(c *edgetest.Call) {
			c.JSON(200, `[{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}]`)
		}},
		{"an answer that cannot be read", "tools/call", true, func(c *edgetest.Call) {
			c.Whole(strings.Replace(answer(c), "[]", `[{"type":"text","text":"cut \ud83d"}]`, 1))
		}},
		{"another's answer alone", "tools/call", true, func(c *edgetest.Call) { c.JSON(200, `{"jsonrpc":"2.0","id":424242,`+fine) }},
		{"accepted", "tools/call", true, func(c *edgetest.Call) { c.Accept() }},
		{"204", "tools/call", true, func(c *edgetest.Call) { c.Text(204, "", "") }},
		{"nothing", "tools/call", true, func(c *edgetest.Call) { c.JSON(200, "") }},
		{"200 to a notification", "notifications/initialized", false, func(c *edgetest.Call) { c.Text(200, "", "") }},
		{"204 to a notification", "notifications/initialized", false, func(c *edgetest.Call) { c.Text(204, "", "") }},
		{"200 with JSON to a notification", "notifications/initialized", false, func(c *edgetest.Call) { c.JSON(200, `{"jsonrpc":"2.0","id":null,"result":{}}`) }},
		{"200 with text to a notification", "notifications/initialized", false, func(c *edgetest.Call) { c.Text(200, "text/plain", "Accepted") }},
		{"a stream that stays open to a notification", "notifications/initialized", false, func(c *edgetest.Call) {
			c.Raw(": open\n\n")
			<-c.Gone()
		}},
		{"500 to what it does not know", "server/discover", false, func(c *edgetest.Call) { c.Error(500, -32601, "Method not found") }},
		{"500 to what it does not know, without an id", "server/discover", false, func(c *edgetest.Call) {
			c.JSON(500, `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}`)
		}},
		{"501 to what it does not know", "server/discover", false, func(c *edgetest.Call) { c.Text(501, "text/plain", "Not Implemented") }},
		{"no capabilities", "initialize", false, func(c *edgetest.Call) {
			c.Result(`{"protocolVersion":"2025-11-25","serverInfo":{"name":"x","version":"1"}}`)
		}},
		{"capabilities and more that are null", "initialize", false, func(c *edgetest.Call) {
			c.Result(`{"protocolVersion":"2025-06-18","capabilities":null,"serverInfo":null,"instructions":null}`)
		}},
		{"an older revision", "initialize", false, func(c *edgetest.Call) {
			c.Result(`{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		}},
		{"a session id that is empty", "initialize", false, func(c *edgetest.Call) {
			c.Header().Set("Mcp-Session-Id", "")
			c.Result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		}},
		{"a session id that is not ASCII", "initialize", false, func(c *edgetest.Call) {
			c.Header().Set("Mcp-Session-Id", "s\u00e9ance ~ {}")
			c.Result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		}},
		{"a session id of 64 KiB", "initialize", true, func(c *edgetest.Call) {
			c.Header().Set("Mcp-Session-Id", strings.Repeat("s", 64<<10))
			c.Result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		}},
		{"an unknown revision", "initialize", true, func(c *edgetest.Call) {
			c.Result(`{"protocolVersion":"1999-01-01","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		}},
	} {
		for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
				if era == edgetest.Modern && one.kind != "tools/call" {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s client, %s backend", one.name, client, era), func(t *testing.T) {
					t.Parallel()
					back := edgetest.NewServer(t, era)
					back.Always(one.kind, one.odd)
					if one.kind == "initialize" { // whatever session it is
						back.Always("*", func(c *edgetest.Call) {
							switch {
							case c.Kind == "initialize":
								one.odd(c)
							case c.Kind == "tools/call":
								c.JSON(200, answer(c))
							case c.Kind == "ping":
								c.Result("{}")
							case c.Message.ID == nil && c.Kind != "GET":
								c.Accept()
							default:
								c.Text(405, "", "")
							}
						})
					}
					e := edgetest.Start(t, edgetest.Manifest(back))
					f := &front{Edge: e, back: back, client: e.NewClient()}
					c := f.callerOf(t, client, "")
					began := time.Now()
					for _, id := range []string{"1", `"2"`} {
						r := c.call(t, id, "{}")
						m := r.Message()
						switch {
						case one.fail && (m.Error == nil || m.Error.Code != 502):
							t.Errorf("call %s: %+v", id, m)
						case !one.fail && (r.Status != 200 || m.Error != nil || string(m.ID) != id || !strings.Contains(string(m.Result), `"content":[`) || strings.Contains(string(m.Result), "second")):
							t.Errorf("call %s: %+v", id, m)
						}
					}
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("it took %s", took)
					}
				})
			}
		}
	}
}

// What a server of the older transport says that cannot be read is missed, and an answer
// that cannot be read fails its call at once.
func TestUnreadableOverSSE(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.SSE)
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		c := f.callerOf(t, client, "")
		f.back.Always("tools/call", func(c *edgetest.Call) {
			c.Event(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"cut \ud83d"}}`)
			c.Event(`{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{"content":[{"type":"text","text":"cut \ud83d"}]}}`)
		})
		began := time.Now()
		if m := c.call(t, "1", "{}").Message(); m.Error == nil || m.Error.Code != 502 || time.Since(began) > 10*time.Second {
			t.Errorf("%s: %+v after %s", client, m, time.Since(began))
		}
		f.back.Always("tools/call", nil)
		c.call(t, "2", "{}").Result()
	}
}

// A server that reads numbers as floating-point ones answers under another number than it was
// asked under, and tells progress under another: the client has its own all the same, and
// nothing is said of the server.
func TestIDsThatAreRounded(t *testing.T) {
	t.Parallel()
	edgetest.Eras(t, func(t *testing.T, client, era edgetest.Era) {
		back := edgetest.NewServer(t, era)
		back.Always("tools/call", func(c *edgetest.Call) {
			rounded := func(text string) string {
				n, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return text
				}
				return strconv.FormatFloat(n+0, 'f', -1, 64) // the sum makes 0 of -0
			}
			c.Event(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + rounded(c.Token()) + `,"progress":1}}`)
			c.Event(`{"jsonrpc":"2.0","id":` + rounded(c.ID()) + `,"result":{"content":[],"resultType":"complete"}}`)
		})
		e := edgetest.Start(t, edgetest.Manifest(back))
		f := &front{Edge: e, back: back, client: e.NewClient()}
		c := f.callerOf(t, client, "")
		for _, id := range []string{"1", "-0", "9007199254740993", "123456789012345678901234567890", `"9007199254740993"`, "-7"} {
			r := c.call(t, id, "{}", `"progressToken":7`)
			if m := r.NextMessage(); edgetest.Member(string(m.Params), "progressToken") != "7" {
				t.Errorf("before the answer to %s: %+v", id, m)
			}
			if m := r.Message(); string(m.ID) != id || m.Result == nil {
				t.Errorf("the answer to %s: %s under %s", id, r.Answer(), m.ID)
			}
		}
		if strings.Contains(e.Log(), "to others than who asked") {
			t.Errorf("the server is told to answer others: %s", e.Log())
		}
	})
}
