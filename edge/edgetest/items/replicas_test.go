//go:build unix

package items_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// TestItem01KilledReplica: two edges share a Redis, and one of them is killed
// with no chance to say anything. Its sessions go on at the other; a call that
// was under way has failed there, in words that say so, whichever era its client
// is of; what was answered is answered; and nothing runs twice.
func TestItem01KilledReplica(t *testing.T) {
	t.Parallel() // it waits for the end of a heartbeat
	weir, redis := program(t), kvtest.Redis(t)
	back := edgetest.NewServer(t, edgetest.Legacy)
	back.Always("tools/call", func(c *edgetest.Call) {
		switch arguments := string(c.Message.Params); {
		case strings.Contains(arguments, `"ask"`):
			c.Ask(`"q"`, "roots/list", "")
		case strings.Contains(arguments, `"hang"`):
			c.Progress(1)
			c.Wait(nil)
			return
		case strings.Contains(arguments, `"slow"`):
			c.Progress(1)
		}
		c.Result(`{"content":[]}`)
	})
	key := filepath.Join(t.TempDir(), "state.key")
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(raw)), 0o600); err != nil {
		t.Fatal(err)
	}
	yaml := edgetest.Manifest(back, fmt.Sprintf("sessionStorage: {provider: kvstore, address: %q}", redis.Addr))
	a := run(t, weir, yaml, "", nil, "--state-key-file", key, "--store-timeout", "10s")
	b := run(t, weir, yaml, "", nil, "--state-key-file", key, "--store-timeout", "10s")
	here, there := edgetest.NewClient(t, a.base), edgetest.NewClient(t, b.base)

	// 1. Sessions at the first edge: one with a call under way, one with a call
	// that was answered while its client was away, ten with nothing.
	type client struct {
		s    *edgetest.Session
		last string // id of the last event that it saw
	}
	begin := func(arguments string) client {
		t.Helper()
		s := here.Initialize("")
		if arguments == "" {
			return client{s: s}
		}
		stream := s.Request("1", "tools/call", `{"name":"echo","arguments":`+arguments+`,"_meta":{"progressToken":1}}`)
		seen := stream.Next()
		if strings.Contains(arguments, "slow") {
			stream.Rest()
		}
		stream.Close()
		return client{s, seen.ID}
	}
	hanging, answered := begin(`{"hang":1}`), begin(`{"slow":1}`)
	var idle []client
	for range 10 {
		idle = append(idle, begin(""))
	}
	parked := here.Modern("1", "tools/call", `{"name":"echo","arguments":{"ask":1}}`, edgetest.Capabilities(`{"roots":{}}`)).Result()
	state := edgetest.Member(parked, "requestState")
	if state == "" {
		t.Fatalf("not parked: %s", parked)
	}
	edgetest.Until(t, "both logs in the store, one with an answer", func() bool {
		keys, answers := strings.Fields(redis.Do("--raw", "keys", "weir:log:*")), 0
		for _, key := range keys {
			answers += strings.Count(redis.Do("--raw", "get", key), `"content"`)
		}
		return len(keys) == 2 && answers == 1
	})
	ran := back.Count("tools/call")

	// 2. It is killed.
	if err := a.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-a.ended
	edgetest.Until(t, "the end of its heartbeat", func() bool {
		return len(strings.Fields(redis.Do("--raw", "keys", "weir:alive:*"))) == 1
	})

	// 3. Its clients go to the other.
	at := func(c client) *edgetest.Session {
		return &edgetest.Session{Client: there, ID: c.s.ID, Version: c.s.Version}
	}
	resume := func(c client) []edgetest.Event {
		t.Helper()
		return there.Do("GET", "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", c.s.ID, "Last-Event-ID", c.last).Rest()
	}
	const gone = `"the edge that held this call is gone"`
	if events := resume(hanging); len(events) != 1 || edgetest.Member(string(events[0].Data), "error", "message") != gone || edgetest.Member(string(events[0].Data), "id") != "1" {
		t.Errorf("the call under way: %q", events)
	}
	if events := resume(answered); len(events) != 1 || edgetest.Member(string(events[0].Data), "result") == "" {
		t.Errorf("the call that was answered: %q", events)
	}
	r := there.Modern("2", "tools/call", `{"name":"echo","arguments":{"ask":1},"inputResponses":{},"requestState":`+state+`}`, edgetest.Capabilities(`{"roots":{}}`))
	if m := r.Message(); r.Status != 500 || m.Error == nil || m.Error.Code != -32603 || fmt.Sprintf("%q", m.Error.Message) != gone {
		t.Errorf("the parked call: status %d: %s", r.Status, r.Body)
	}
	if n := back.Count("tools/call"); n != ran {
		t.Errorf("%d calls ran again", n-ran)
	}
	for i, c := range append(idle, hanging, answered) {
		if r := at(c).Call("5", "echo", "{}"); r.Status != 200 || r.Message().Error != nil {
			t.Errorf("client %d: status %d: %s", i, r.Status, r.Body)
		}
	}
}
