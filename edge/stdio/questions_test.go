//go:build unix

package stdio_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/stdio"
)

var answers = map[string]string{
	"roots/list":             `{"roots":[{"uri":"file:///here","name":"here"}]}`,
	"elicitation/create":     `{"action":"accept","content":{"name":"Ada"}}`,
	"sampling/createMessage": `{"role":"assistant","model":"m","content":{"type":"text","text":"hello"}}`,
}

const canAll = `{"roots":{},"elicitation":{"form":{}},"sampling":{}}`

// TestV35Questions: what a server asks reaches the client whose call it is of, in both
// modes and all cells, and nobody else; the answer comes back to the server.
func TestV35Questions(t *testing.T) {
	each(t, func(t *testing.T, client, server edgetest.Era, b *behind) {
		c, other := b.NewClient().As(client, canAll), b.NewClient().As(edgetest.Legacy, canAll)
		other.CallTool("1", "echo", "{}").Result()
		hears := other.Session.Listen()
		defer hears.Close()
		for method, answer := range answers {
			arguments := fmt.Sprintf(`{"method":%q}`, method)
			var got string
			if client == edgetest.Legacy {
				r := c.CallTool("2", "ask", arguments)
				q := r.NextMessage()
				if q.Method != method {
					t.Fatalf("asked %q: %s", q.Method, q.Params)
				}
				c.Session.Reply(q.ID, answer)
				got = text(t, r)
			} else {
				var need struct {
					ResultType    string
					InputRequests map[string]struct{ Method string }
					RequestState  string
				}
				result := c.CallTool("2", "ask", arguments).Result()
				if json.Unmarshal([]byte(result), &need) != nil || len(need.InputRequests) != 1 {
					t.Fatalf("no question: %s", result)
				}
				for key, q := range need.InputRequests {
					if q.Method != method {
						t.Errorf("asked %q", q.Method)
					}
					params := fmt.Sprintf(`{"name":"ask","arguments":%s,"inputResponses":{%q:%s}`, arguments, key, answer)
					if need.RequestState != "" {
						params += `,"requestState":` + quote(need.RequestState)
					}
					got = text(t, c.Ask("3", "tools/call", params+"}"))
				}
			}
			if got != answer {
				t.Errorf("%s: the server was told %s", method, got)
			}
		}
		if server == edgetest.Modern { // it asks nobody outside of an answer
			return
		}
		other.CallTool("3", "notify", `{"method":"notifications/tools/list_changed"}`).Result()
		if m := hears.NextMessage(); m.Method != "notifications/tools/list_changed" {
			t.Errorf("another client hears %s", m.Method)
		}
	})
}

// TestV35Nobody: a shared process that asks while two clients have calls under way is told
// that nothing says whom, and so is one whose client cannot be asked.
func TestV35Nobody(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy", func(c *stdio.Config) { c.Mode = stdio.Shared })
	one, other := b.NewClient().As(edgetest.Legacy, canAll), b.NewClient().As(edgetest.Legacy, canAll)
	var busy sync.WaitGroup
	busy.Go(func() {
		if r, err := other.TryAsk("1", "tools/call", edgetest.CallParams("wait", `{"ms":1500}`)); err == nil {
			_, _ = r.TryAnswer()
		}
	})
	await(t, "a call is under way", func() bool { return len(b.told("wait ")) == 1 })
	if got := text(t, one.CallTool("1", "ask", `{"method":"elicitation/create"}`)); !strings.Contains(got, "-32601") {
		t.Errorf("told %s", got)
	}
	busy.Wait()
	cannot := b.NewClient().As(edgetest.Legacy, "")
	if got := text(t, cannot.CallTool("1", "ask", `{"method":"elicitation/create"}`)); !strings.Contains(got, "-32601") {
		t.Errorf("told %s", got)
	}
}

// What a shared process must hear once is answered by what it said first: it is introduced
// to one client that can do all, hears the most talkative level, and counts subscriptions.
func TestSharedHearsOnce(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy", func(c *stdio.Config) { c.Mode = stdio.Shared })
	one, other := b.NewClient().As(edgetest.Legacy, canAll), b.NewClient().As(edgetest.Legacy, "")
	pid := text(t, one.CallTool("1", "pid", "{}"))
	if got := text(t, other.CallTool("1", "pid", "{}")); got != pid {
		t.Errorf("processes %s and %s", pid, got)
	}
	if got := b.told("initialize"); len(got) != 1 || !strings.Contains(got[0], `"sampling"`) {
		t.Errorf("introduced by %q", got)
	}
	for _, level := range []struct {
		c    edgetest.Caller
		says string
	}{{one, "warning"}, {other, "debug"}, {one, "error"}} {
		level.c.Ask("2", "logging/setLevel", fmt.Sprintf(`{"level":%q}`, level.says)).Result()
	}
	if got := b.told("level"); len(got) != 2 || !strings.HasSuffix(got[1], "debug") {
		t.Errorf("levels %q", got)
	}
	for _, c := range []edgetest.Caller{one, other} {
		c.Ask("3", "resources/subscribe", `{"uri":"x:1"}`).Result()
	}
	one.Ask("4", "resources/unsubscribe", `{"uri":"x:1"}`).Result()
	if got := b.told("resources/"); len(got) != 1 {
		t.Errorf("%q", got)
	}
	hears := other.Session.Listen()
	defer hears.Close()
	one.CallTool("5", "notify", `{"method":"notifications/resources/updated","uri":"x:1"}`).Result()
	if m := hears.NextMessage(); m.Method != "notifications/resources/updated" {
		t.Errorf("heard %s", m.Method)
	}
	other.Session.Delete()
	await(t, "the last subscription ends", func() bool { return len(b.told("resources/unsubscribe")) == 1 })
}

// A shared process's subscriptions are each client's own: what one is refused another is
// refused as well, and nobody ends what another has.
func TestSharedSubscriptionsAreApart(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy", func(c *stdio.Config) { c.Mode = stdio.Shared })
	one, other := b.NewClient().As(edgetest.Legacy, ""), b.NewClient().As(edgetest.Legacy, "")
	for _, c := range []edgetest.Caller{one, other, one} {
		if m := c.Ask("1", "resources/subscribe", `{"uri":"refused:1"}`).Message(); !strings.Contains(fault(m), "-32002") {
			t.Errorf("subscribed to what the server refuses: %q", fault(m))
		}
	}
	one.Ask("2", "resources/subscribe", `{"uri":"x:1"}`).Result()
	other.Ask("2", "resources/unsubscribe", `{"uri":"x:1"}`).Result() // which it has not subscribed to
	if got := b.told("resources/unsubscribe"); len(got) != 0 {
		t.Errorf("another client's subscription was ended: %q", got)
	}
	one.Ask("3", "resources/unsubscribe", `{"uri":"x:1"}`).Result()
	if got := b.told("resources/unsubscribe"); len(got) != 1 {
		t.Errorf("the last subscription was ended so: %q", got)
	}
}

// The introduction of a shared process that one client began is every client's: who waits for
// it is told, though the first one leaves meanwhile.
func TestSharedIntroductionOutlivesItsClient(t *testing.T) {
	t.Parallel()
	bridge, err := stdio.New(stdio.Config{Name: "back", Mode: stdio.Shared, Timeout: time.Second, Starter: program(t, "legacy slow", "")})
	if err != nil {
		t.Fatal(err)
	}
	defer bridge.Close()
	heard := make(chan string, 10)
	open := func() edge.Stream {
		t.Helper()
		s, err := bridge.Open(t.Context(), &edge.Owner{
			Hear:   func(m *mcp.Message) { heard <- string(m.IDText()) },
			Failed: func(id []byte, why error) { heard <- why.Error() },
			Ended:  func(error) {},
			Use:    func() edge.Use { return edge.Use{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, other := open(), open()
	for i, s := range []edge.Stream{one, other} {
		if err := s.Send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, 100_000_000_000_001+i), nil); err != nil {
			t.Fatal(err)
		}
	}
	one.Close()
	if got := edgetest.Receive(t, heard, "the introduction"); got != "100000000000002" {
		t.Errorf("heard %s", got)
	}
}

// TestSharedQuestionsAreBounded: what a shared process asks without end, of a client that does not
// take it, waits up to a bound, and is refused beyond it; others are served as before. What is
// larger than that bound reaches a client that waits for nothing else.
func TestSharedQuestionsAreBounded(t *testing.T) { // not beside others, whose memory would count
	bridge, err := stdio.New(stdio.Config{Name: "back", Mode: stdio.Shared, Timeout: time.Second, Starter: program(t, "legacy", "")})
	if err != nil {
		t.Fatal(err)
	}
	defer bridge.Close()
	open := func(hear func(*mcp.Message)) edge.Stream {
		t.Helper()
		s, err := bridge.Open(t.Context(), &edge.Owner{Hear: hear, Failed: func([]byte, error) {}, Ended: func(error) {}, Use: func() edge.Use { return edge.Use{} }})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	call := func(s edge.Stream, id, name, arguments string) {
		t.Helper()
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":%s}`, id, edgetest.CallParams(name, arguments))
		if err := s.Send([]byte(body), nil); err != nil {
			t.Fatal(err)
		}
	}
	heard, goOn := make(chan *mcp.Message, 10), make(chan struct{})
	defer close(goOn)
	slow := open(func(*mcp.Message) { <-goOn })
	quick := open(func(m *mcp.Message) { heard <- m })

	const large = 5 << 20
	line := `{"jsonrpc":"2.0","method":"notifications/x","params":{"x":"` + strings.Repeat("x", large) + `"}}`
	call(quick, "100000000000001", "raw", fmt.Sprintf(`{"lines":%s}`, quote(line+"\n"+right)))
	if m := edgetest.Receive(t, heard, "the notification"); m.Method != "notifications/x" || len(m.Raw) < large {
		t.Errorf("heard %s of %d bytes", m.Method, len(m.Raw))
	}
	edgetest.Receive(t, heard, "the answer")

	before, dropped := heap(), bridge.Status().Dropped
	call(slow, "100000000000002", "flood", `{"n":200000,"method":"sampling/createMessage","question":true}`)
	await(t, "questions are refused", func() bool { return bridge.Status().Dropped > dropped+100_000 })
	if more := heap() - before; more > 32<<20 {
		t.Errorf("%d MiB more are in use", more>>20)
	}
	await(t, "the server reads again", func() bool {
		return quick.Send([]byte(`{"jsonrpc":"2.0","id":100000000000003,"method":"tools/call","params":{"name":"echo","arguments":{}}}`), nil) == nil
	})
	if m := edgetest.Receive(t, heard, "an answer meanwhile"); string(m.IDText()) != "100000000000003" {
		t.Errorf("heard %s", m.Raw)
	}
}

// The cancellation of a question goes to the client that was asked last under its id: a server may
// use one again.
func TestCancellationOfAnIDUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bridge(t, "", func(c *stdio.Config) { c.Starter, c.Mode = inside("legacy"), stdio.Shared })
		const question, cancelled = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`
		var all []*opened
		for i, lines := range []string{question, question + "\n" + cancelled} {
			o, err := open(t, b, "ada")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, o)
			call := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"raw","arguments":{"lines":%s}}}`, 10_000_000_000_000+i, quote(lines+"\n"+right))
			if err := o.Send([]byte(call), nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for i, want := range []int{2, 3} { // the question, and the answer of the call
			if got := len(all[i].heard); got != want {
				t.Errorf("client %d heard %d messages, and not %d", i, got, want)
			}
		}
	})
}
