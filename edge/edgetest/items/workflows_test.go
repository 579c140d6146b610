//go:build unix

package items_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// workflow asks between two calls, and makes one that may hang.
const workflow = `compositeTools:
- name: flow
  parameters: {type: object, properties: {who: {type: string}, hang: {type: boolean, default: false}}, required: [who]}
  steps:
  - {id: before, tool: back.echo, arguments: {text: "before {{.params.who}}"}}
  - {id: sure, type: elicitation, dependsOn: [before], condition: "{{not .params.hang}}", message: "Sure?", schema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}}
  - {id: hangs, tool: back.echo, dependsOn: [before], condition: "{{.params.hang}}", arguments: {text: "hang {{.params.who}}"}}
  - {id: after, tool: back.echo, dependsOn: [sure, hangs], arguments: {text: "after {{.params.who}}"}}`

// TestItem01WorkflowsAtTwoReplicas: two edges share a Redis. A question of a workflow that
// began at one of them is answered through the other, in either era. One that is killed takes
// its workflows with it: their clients hear so at the other edge, and no step runs twice.
func TestItem01WorkflowsAtTwoReplicas(t *testing.T) {
	t.Parallel() // it waits for the end of a heartbeat
	weir, redis := program(t), kvtest.Redis(t)
	back := edgetest.NewServer(t, edgetest.Legacy)
	var mu sync.Mutex
	calls := map[string]int{}
	back.Always("tools/call", func(c *edgetest.Call) {
		arguments := edgetest.Member(string(c.Message.Params), "arguments")
		var of struct{ Text string }
		_ = json.Unmarshal([]byte(arguments), &of)
		mu.Lock()
		calls[of.Text]++
		mu.Unlock()
		if strings.HasPrefix(of.Text, "hang") {
			c.Wait(nil)
			return
		}
		c.Result(`{"content":[],"structuredContent":` + arguments + `}`)
	})
	called := func(text string) int {
		mu.Lock()
		defer mu.Unlock()
		return calls[text]
	}
	key := filepath.Join(t.TempDir(), "state.key")
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(raw)), 0o600); err != nil {
		t.Fatal(err)
	}
	yaml := edgetest.Manifest(back, fmt.Sprintf("sessionStorage: {provider: kvstore, address: %q}", redis.Addr), workflow)
	a := run(t, weir, yaml, "", nil, "--state-key-file", key, "--store-timeout", "10s")
	b := run(t, weir, yaml, "", nil, "--state-key-file", key, "--store-timeout", "10s")
	here, there := edgetest.NewClient(t, a.base), edgetest.NewClient(t, b.base)
	const (
		can  = `{"elicitation":{"form":{}}}`
		yes  = `{"action":"accept","content":{"ok":true}}`
		gone = `"the edge that held this call is gone"`
	)
	arguments := func(who string) string { return fmt.Sprintf(`{"name":"flow","arguments":{"who":%q}`, who) }
	modern := func(c *edgetest.Client, id, who, more string) *edgetest.Response {
		return c.Modern(id, "tools/call", arguments(who)+more+"}", edgetest.Capabilities(can))
	}
	answer := func(asked string) string {
		return `,"inputResponses":{"sure":` + yes + `},"requestState":` + edgetest.Member(asked, "requestState")
	}
	done := func(who string) string { return `"structuredContent":{"text":"after ` + who + `"}` }

	// 1. Answers that come to the other edge.
	asked := modern(here, "1", "modern", "").Result()
	if edgetest.Member(asked, "inputRequests", "sure") == "" {
		t.Fatalf("not asked: %s", asked)
	}
	if got := modern(there, "2", "modern", answer(asked)).Result(); !strings.Contains(got, done("modern")) {
		t.Errorf("modern: %s", got)
	}
	s := here.Initialize(can)
	stream := s.Request("1", "tools/call", arguments("legacy")+"}")
	q := stream.NextMessage()
	(&edgetest.Session{Client: there, ID: s.ID, Version: s.Version}).Reply(q.ID, yes)
	if m := stream.NextMessage(); !strings.Contains(string(m.Result), done("legacy")) {
		t.Errorf("legacy: %s %v", m.Result, m.Error)
	}
	for _, who := range []string{"modern", "legacy"} {
		if called("before "+who) != 1 || called("after "+who) != 1 {
			t.Errorf("%s: %v", who, calls)
		}
	}

	// 2. Workflows at the first edge when it is killed: one that waits for a modern client, one
	// for a legacy one, and one whose step is under way.
	parked := modern(here, "3", "parked", "").Result()
	waiting := here.Initialize(can)
	stream = waiting.Request("1", "tools/call", arguments("waiting")+"}")
	question := stream.Next()
	stream.Close()
	running := here.Initialize(can)
	under, err := running.TrySend(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flow","arguments":{"who":"running","hang":true},"_meta":{"progressToken":1}}}`)
	if err != nil {
		t.Fatal(err)
	}
	progress := under.Next()
	under.Close()
	edgetest.Until(t, "the step that hangs", func() bool { return called("hang running") == 1 })
	edgetest.Until(t, "the logs in the store", func() bool { return len(strings.Fields(redis.Do("--raw", "keys", "weir:log:*"))) >= 2 })
	if err := a.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-a.ended
	edgetest.Until(t, "the end of its heartbeat", func() bool {
		return len(strings.Fields(redis.Do("--raw", "keys", "weir:alive:*"))) == 1
	})

	// 3. Their clients at the other edge.
	r := modern(there, "4", "parked", answer(parked))
	if m := r.Message(); r.Status != 500 || m.Error == nil || m.Error.Code != -32603 || fmt.Sprintf("%q", m.Error.Message) != gone {
		t.Errorf("the one that waits for a modern client: status %d: %s", r.Status, r.Body)
	}
	for name, of := range map[string]struct {
		s    *edgetest.Session
		last string
	}{"waits for a legacy client": {waiting, question.ID}, "is under way": {running, progress.ID}} {
		events := there.Do("GET", "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", of.s.ID, "Last-Event-ID", of.last).Rest()
		if n := len(events); n == 0 || edgetest.Member(string(events[n-1].Data), "error", "message") != gone || edgetest.Member(string(events[n-1].Data), "error", "code") != "-32603" {
			t.Errorf("the one that %s: %q", name, events)
		}
	}
	for _, who := range []string{"parked", "waiting", "running"} {
		if called("before "+who) != 1 || called("after "+who) != 0 {
			t.Errorf("%s: %v", who, calls)
		}
	}
	if called("hang running") != 1 {
		t.Errorf("%v", calls)
	}
	again := modern(there, "5", "again", "").Result()
	if got := modern(there, "6", "again", answer(again)).Result(); !strings.Contains(got, done("again")) {
		t.Errorf("afterwards: %s", got)
	}
}
