//go:build unix

package stdio_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/stdio"
)

// hears has a client listen for the changes of a kind of lists, and for updates of a:b.
func hears(t *testing.T, c edgetest.Caller) *edgetest.Response {
	t.Helper()
	if c.Session != nil {
		news := c.Session.Listen()
		c.Ask("1", "resources/subscribe", `{"uri":"a:b"}`).Result()
		return news
	}
	news := c.Ask("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}}`)
	if m := news.NextMessage(); m.Method != "notifications/subscriptions/acknowledged" || !strings.Contains(string(m.Params), "a:b") {
		t.Fatalf("not acknowledged: %s %s", m.Method, m.Params)
	}
	return news
}

// TestNewsOfOwnCalls: who listens hears once of what a call of its own changes, though that
// may run in another process of the server than the one which it listens to.
func TestNewsOfOwnCalls(t *testing.T) {
	each(t, func(t *testing.T, client, server edgetest.Era, b *behind) {
		c := b.NewClient().As(client, "")
		c.CallTool("1", "echo", `{}`).Result() // a process that is there before anybody listens
		news := hears(t, c)
		if client == edgetest.Legacy && server == edgetest.Modern { // it may have subscribed before its stream was there
			await(t, "the process is asked for the resource", func() bool { return len(b.told("a:b")) > 0 })
		}
		for range 2 {
			for _, method := range []string{"notifications/tools/list_changed", "notifications/resources/updated"} {
				if got := text(t, c.CallTool("2", "notify", `{"uri":"a:b","method":"`+method+`"}`)); got != "told" {
					t.Fatal(got)
				}
				if m := news.NextMessage(); m.Method != method {
					t.Errorf("instead of %s: %s", method, m.Method)
				}
				c.Ask("2", "tools/list", "").Result()
			}
		}
	})
}

// TestNewsAfterAKill: whose process is killed while it listens is not left deaf. What it listens
// to ends, without a call of the client's, and its session is gone; who asks again hears.
func TestNewsAfterAKill(t *testing.T) {
	const updated = "notifications/resources/updated"
	each(t, func(t *testing.T, client, server edgetest.Era, b *behind) {
		c := b.NewClient().As(client, "")
		c.CallTool("1", "echo", `{}`).Result()
		news := hears(t, c)
		for _, line := range b.told("start") {
			pid, err := strconv.Atoi(strings.Fields(line)[0])
			if err != nil {
				t.Fatal(err)
			}
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // it may have ended
			}
		}
		for {
			e, err := news.TryNext()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("what it listens to does not end: %v", err)
			}
			if !strings.Contains(string(e.Data), "list_changed") && !strings.Contains(string(e.Data), `"error"`) {
				t.Errorf("it heard %s", e.Data)
			}
		}
		if client == edgetest.Legacy {
			if r := c.Session.TryListen(); r.Status != 404 {
				t.Errorf("its session can be listened to: %d %s", r.Status, r.Body)
			}
			r, err := c.TryAsk("2", "tools/list", "")
			if err != nil || r.Status != 404 {
				t.Errorf("its session can be used: %v %v", r, err)
			}
		}
		await(t, "another process", func() bool { // which starts a second after the first
			c = b.NewClient().As(client, "")
			r, err := c.TryAsk("3", "tools/list", "")
			return err == nil && r.Status == 200
		})
		anew := hears(t, c)
		c.CallTool("4", "notify", `{"uri":"a:b","method":"`+updated+`"}`).Result()
		for m := anew.NextMessage(); m.Method != updated; m = anew.NextMessage() {
			if m.Method == "" {
				t.Fatalf("it heard %s", m.Params)
			}
		}
	})
}

// TestNewsOverAReload: who listens while a reload puts another server in place of one goes on
// listening, and hears that one: the session is not lost with what the edge itself has ended.
func TestNewsOverAReload(t *testing.T) {
	t.Parallel()
	for _, server := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(server.String(), func(t *testing.T) {
			t.Parallel()
			b := start(t, server.String(), nil)
			c := b.NewClient().As(edgetest.Legacy, "")
			first := text(t, c.CallTool("1", "pid", "{}"))
			news := c.Session.Listen()
			if err := b.Serve.Reload(plannedAs(t, "apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: back}\nspec: {image: \"exec:///unused\", transport: stdio, args: [again]}\n")); err != nil {
				t.Fatal(err)
			}
			await(t, "the first process has ended", func() bool { return !alive(first) })
			if again := text(t, c.CallTool("2", "pid", "{}")); again == first {
				t.Fatal("the process is the one before the reload")
			}
			const changed = "notifications/tools/list_changed"
			c.CallTool("3", "notify", `{"method":"`+changed+`"}`).Result()
			for m := news.NextMessage(); m.Method != changed; m = news.NextMessage() {
				if m.Method == "" {
					t.Fatalf("it heard %s", m.Params)
				}
			}
			if r := c.Session.TryListen(); r.Status != 200 {
				t.Errorf("the session cannot be listened to: %d %s", r.Status, r.Body)
			}
		})
	}
}

// several is a server of two backends that the edge starts.
const several = `apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: one}
spec: {image: "exec:///unused", transport: stdio, groupRef: {name: both}}
---
apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: two}
spec: {image: "exec:///unused", transport: stdio, groupRef: {name: both}}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: both}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: both}
spec: {groupRef: {name: both}, incomingAuth: {type: anonymous}}
`

// TestNewsBehindSeveral: clients of a server of two backends hear of what calls change in the
// processes of one; a modern process is asked for that once, however many streams it has.
func TestNewsBehindSeveral(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			edgetest.Eras(t, func(t *testing.T, client, server edgetest.Era) {
				b := &behind{t: t, file: t.TempDir() + "/told"}
				b.Edge = edgetest.StartPlan(t, plannedAs(t, several), edgetest.With(serve.WithWorkloads(func(s serve.Starting) (backend.Local, error) {
					return stdio.New(stdio.Config{Name: s.Workload.Name, Digest: s.Digest, Mode: mode, Timeout: 3 * time.Second, Starter: program(t, server.String(), b.file)})
				})))
				c := b.NewClient().As(client, "")
				listed := func() { c.Ask("1", "tools/list", "").Result() }
				await(t, "both backends are there", func() bool {
					for method, last := range map[string]string{"tools/list": "two_notify", "resources/list": "a:b"} {
						r, err := c.TryAsk("1", method, "")
						if err != nil {
							return false
						}
						if text, err := r.TryAnswer(); err != nil || !strings.Contains(string(text), last) {
							return false
						}
					}
					return true
				})
				news := hears(t, c)
				for i := range 4 {
					method := []string{"notifications/tools/list_changed", "notifications/resources/updated"}[i%2]
					if got := text(t, c.CallTool("2", "one_notify", `{"tool":"`+fmt.Sprint("more", i/2)+`","uri":"a:b","method":"`+method+`"}`)); got != "told" {
						t.Fatal(got)
					}
					m := news.NextMessage()
					for m.Method == "notifications/resources/list_changed" {
						m = news.NextMessage() // those of the second backend came after its tools
					}
					if m.Method != method {
						t.Errorf("instead of %s: %s", method, m.Method)
					}
					listed()
				}
				asked := map[string]int{}                     // processes, with what
				for _, line := range b.told("weir-listen-") { // of lists
					words := strings.Fields(line)
					asked[words[0]+" "+words[3]]++
				}
				for what, times := range asked {
					if times > 1 {
						t.Errorf("process %s is asked for news %d times", what, times)
					}
				}
				if server == edgetest.Modern && len(asked) == 0 {
					t.Error("no process is asked for news")
				}
			})
		})
	}
}

// TestNewsOfTheSlow: a client that listens and reads nothing holds up no process, and is told
// the latest when it reads.
func TestNewsOfTheSlow(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy", nil)
	c := b.NewClient().As(edgetest.Modern, "")
	c.CallTool("1", "echo", `{}`).Result()
	news := hears(t, c)
	const many = 200_000
	if got := text(t, c.CallTool("2", "flood", fmt.Sprintf(`{"method":"notifications/resources/updated","n":%d}`, many))); got != "flooded" {
		t.Fatal(got)
	}
	if got := text(t, c.CallTool("3", "echo", `{"text":"on"}`)); got != "on" {
		t.Fatal(got)
	}
	last := fmt.Sprintf("the number %d of many", many-1)
	for told := 1; ; told++ {
		m := news.NextMessage()
		if m.Method != "notifications/resources/updated" || told > many/10 {
			t.Fatalf("after %d messages: %s", told, m.Method)
		}
		if strings.Contains(string(m.Params), last) {
			return
		}
	}
}

// TestNewsCostLittle: a server that answers no subscription costs calls, of those who listen and
// of others, a little time once in a while, and not each of them.
func TestNewsCostLittle(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy subscribe-mute", nil)
	one, other := b.NewClient().As(edgetest.Modern, ""), b.NewClient().As(edgetest.Modern, "")
	other.CallTool("1", "echo", `{}`).Result()
	go func() {
		if r, err := one.TryAsk("1", "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["a:b"]}}`); err == nil {
			_, _ = r.TryAnswer() // it ends with the edge
		}
	}()
	await(t, "somebody subscribes", func() bool { return len(b.told("resources/subscribe")) > 0 })
	began := time.Now()
	const calls = 40 // of which each would take 250 ms
	for range calls {
		other.CallTool("2", "echo", `{}`).Result()
	}
	if took := time.Since(began); took > calls*250*time.Millisecond/2 {
		t.Errorf("%d calls took %s", calls, took)
	}
	if n := len(b.told("resources/subscribe")); n < 2 {
		t.Errorf("the process that is called was subscribed %d times", n-1)
	}
}

// A modern server may end a subscription, by its answer or by a cancellation: the client
// hears the end in order, under its own id.
func TestNewsThatTheServerEnds(t *testing.T) {
	for name, mode := range modes {
		for how, line := range map[string]string{
			"an answer":      `{"jsonrpc":"2.0","id":%[1]s,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":%[1]s}}}`,
			"a cancellation": `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%[1]s,"reason":"the end"}}`,
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				b := start(t, "modern", func(c *stdio.Config) { c.Mode = mode })
				c := b.NewClient().As(edgetest.Modern, "")
				news := c.Ask(`"mine"`, "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["a:b"]}}`)
				news.NextMessage()
				var lines []string
				for _, told := range b.told("a:b") {
					lines = append(lines, fmt.Sprintf(line, strings.Fields(told)[2]))
				}
				rawCall(c, "2", append(lines, right)...).Result()
				m := news.Message()
				if string(m.ID) != `"mine"` || edgetest.Member(string(m.Result), "_meta", "io.modelcontextprotocol/subscriptionId") != `"mine"` || edgetest.Member(string(m.Result), "resultType") != `"complete"` {
					t.Errorf("the end: %s under %s", m.Result, m.ID)
				}
			})
		}
	}
}
