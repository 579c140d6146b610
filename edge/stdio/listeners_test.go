//go:build unix

package stdio_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/stdio"
)

// TestListenersOfOneProcess: of a server that keeps one subscription of a connection for each list,
// and forgets them when any ends, as the Go SDK does, all hear what they listen to, once, and nothing
// else, whoever comes, goes, or is refused meanwhile; so they do of one that keeps them all.
func TestListenersOfOneProcess(t *testing.T) {
	const tools, prompts, updated = "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/updated"
	for name, mode := range modes {
		for _, how := range []string{"modern", "modern forgets"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				b := start(t, how, func(c *stdio.Config) { c.Mode = mode })
				c := b.NewClient().As(edgetest.Modern, "")
				listen := func(id, notifications string) *edgetest.Response {
					r := c.Ask(id, "subscriptions/listen", `{"notifications":`+notifications+`}`)
					if m := r.NextMessage(); m.Method != "notifications/subscriptions/acknowledged" || edgetest.Member(string(m.Params), "notifications") != notifications ||
						edgetest.Member(string(m.Params), "_meta", "io.modelcontextprotocol/subscriptionId") != id {
						t.Fatalf("instead of the acknowledgement: %s %s", m.Method, m.Params)
					}
					return r
				}
				changed := func(method, uri string) {
					if got := text(t, c.CallTool("0", "notify", `{"method":"`+method+`","uri":"`+uri+`"}`)); got != "told" {
						t.Fatal(got)
					}
				}
				hears := func(id string, r *edgetest.Response, method string) {
					t.Helper()
					if m := r.NextMessage(); m.Method != method || edgetest.Member(string(m.Params), "_meta", "io.modelcontextprotocol/subscriptionId") != id {
						t.Errorf("instead of %s: %s %s", method, m.Method, m.Params)
					}
				}
				one := listen("1", `{"toolsListChanged":true}`)
				two := listen("2", `{"toolsListChanged":true,"promptsListChanged":true}`)
				one.Close()
				three := listen("3", `{"resourceSubscriptions":["a:b"]}`)
				if m := c.Ask("4", "subscriptions/listen", `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["refused:a"]}}`).Message(); m.Error == nil {
					t.Errorf("a resource that the server refuses: %s", m.Result)
				}
				for i := range 20 { // more than are kept
					listen(fmt.Sprint(100+i), fmt.Sprintf(`{"resourceSubscriptions":["a:%d"]}`, i)).Close()
				}
				await(t, "the process is asked again after the last end", func() bool {
					cancelled, last := len(b.told("cancelled ")), ""
					for _, line := range b.told("") {
						last = line
					}
					return cancelled >= 20 && (how == "modern" || strings.Contains(last, "weir-listen-"))
				})
				five := listen("5", `{"toolsListChanged":true}`)
				for range 2 {
					changed(updated, "a:b")
					changed(prompts, "")
					changed(tools, "")
					hears("2", two, prompts)
					hears("2", two, tools)
					hears("3", three, updated)
					hears("5", five, tools)
				}
				for _, r := range []*edgetest.Response{two, three, five} {
					r.Close()
				}
				await(t, "the process is told that nobody listens", func() bool {
					last := ""
					for _, line := range b.told("listen ") {
						last = strings.Fields(line)[2]
					}
					return len(b.told("cancelled "+last)) == 1
				})
				again := listen("6", `{"promptsListChanged":true}`)
				changed(tools, "")
				changed(prompts, "")
				hears("6", again, prompts)
			})
		}
	}
}

// TestListenersOfAnotherEra: a legacy client hears what it is subscribed to, and changes of lists,
// after each subscription that it begins or ends, of a server that forgets others when one ends.
func TestListenersOfAnotherEra(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, "modern forgets", func(c *stdio.Config) { c.Mode = mode })
			c := b.NewClient().As(edgetest.Legacy, "")
			news := hears(t, c)
			for _, step := range []struct{ method, uri, heard string }{
				{"resources/subscribe", "a:c", "a:b"}, {"resources/subscribe", "a:d", "a:c"}, {"resources/unsubscribe", "a:b", "a:d"}, {"resources/unsubscribe", "a:d", "a:c"},
			} {
				c.Ask("1", step.method, `{"uri":"`+step.uri+`"}`).Result()
				for _, method := range []string{"notifications/resources/updated", "notifications/tools/list_changed"} {
					if got := text(t, c.CallTool("2", "notify", `{"uri":"`+step.heard+`","method":"`+method+`"}`)); got != "told" {
						t.Fatal(got)
					}
					if m := news.NextMessage(); m.Method != method {
						t.Errorf("after %s %s: instead of %s %s", step.method, step.uri, method, m.Method)
					}
				}
			}
		})
	}
}

// TestListenersOfOtherServers: who listens to lists and resources hears the lists of a server that
// has no subscriptions to resources, and ends at once what it honours nothing of; and of one that
// ends each subscription when there is another all hear, without being asked again and again.
func TestListenersOfOtherServers(t *testing.T) {
	const tools, prompts = "notifications/tools/list_changed", "notifications/prompts/list_changed"
	for name, mode := range modes {
		for how, second := range map[string]string{
			"modern forgets lists-only": `{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}`,
			"modern one":                `{"toolsListChanged":true,"resourceSubscriptions":[]}`,
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				b := start(t, how, func(c *stdio.Config) { c.Mode = mode })
				c := b.NewClient().As(edgetest.Modern, "")
				var heard []*edgetest.Response
				for i, wish := range []string{`{"promptsListChanged":true}`, second} {
					r := c.Ask(fmt.Sprint(i), "subscriptions/listen", `{"notifications":`+wish+`}`)
					want := []string{`{"promptsListChanged":true}`, `{"toolsListChanged":true}`}[i]
					if m := r.NextMessage(); edgetest.Member(string(m.Params), "notifications") != want {
						t.Fatalf("acknowledged: %s", m.Params)
					}
					heard = append(heard, r)
				}
				if how == "modern forgets lists-only" {
					await(t, "the process is asked again", func() bool { return len(b.told("weir-listen-")) >= 3 })
				}
				for range 3 {
					for i, method := range []string{prompts, tools} {
						if got := text(t, c.CallTool("9", "notify", `{"method":"`+method+`"}`)); got != "told" {
							t.Fatal(got)
						}
						if m := heard[i].NextMessage(); m.Method != method {
							t.Errorf("instead of %s: %s", method, m.Method)
						}
					}
				}
				if n := len(b.told("listen ")); n > 4 {
					t.Errorf("the process was asked %d times", n)
				}
			})
		}
	}
}

// TestListenerWithBadMeta: what one client says of itself, and the server refuses, ends nobody
// else's listening, also when the process is asked again.
func TestListenerWithBadMeta(t *testing.T) {
	t.Parallel()
	const prompts = "notifications/prompts/list_changed"
	b := start(t, "modern forgets", func(c *stdio.Config) { c.Mode = stdio.Shared })
	c := b.NewClient().As(edgetest.Modern, "")
	good := c.Ask("1", "subscriptions/listen", `{"notifications":{"promptsListChanged":true}}`)
	good.NextMessage()
	body, head := c.Message("2", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
	if m := c.Post(strings.Replace(body, `/clientInfo":{"name":"`, `/clientInfo":{"name":"refused:`, 1), head...).NextMessage(); m.Method != "notifications/subscriptions/acknowledged" {
		t.Fatalf("instead of the acknowledgement: %s %s", m.Method, m.Params)
	}
	c.Ask("3", "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["a:b"]}}`).Close()
	await(t, "the process is asked again", func() bool { return len(b.told("weir-listen-")) >= 3 })
	if got := text(t, c.CallTool("9", "notify", `{"method":"`+prompts+`"}`)); got != "told" {
		t.Fatal(got)
	}
	if m := good.NextMessage(); m.Method != prompts {
		t.Errorf("instead of %s: %s", prompts, m.Method)
	}
}
