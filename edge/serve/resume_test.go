package serve_test

import (
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// A legacy client whose stream breaks in the middle of a call opens it again
// by the id of the last event that it saw, and gets what it missed, the answer
// included, and nothing of another stream.
func TestResumedStream(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	goOn := make(chan struct{})
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		if edgetest.Member(string(c.Message.Params), "arguments", "slow") != "" {
			<-goOn
			c.Progress(2)
		}
		c.Result(`{"id":` + c.ID() + `}`)
	})
	s := f.client.Initialize("")
	call := func(id, arguments string) *edgetest.Response {
		return s.Request(id, "tools/call", `{"name":"echo","arguments":`+arguments+`,"_meta":{"progressToken":`+id+`}}`)
	}
	slow := call("1", `{"slow":1}`)
	seen := slow.Next()
	if seen.ID == "" || slow.Primed == "" {
		t.Fatalf("the stream has no ids: %+v after %q", seen, slow.Primed)
	}
	slow.Close()
	call("2", `{}`).Rest() // a stream of its own, which ends in order
	close(goOn)

	resume := func(id string) *edgetest.Response {
		return f.client.Do("GET", "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", s.ID, "Last-Event-ID", id)
	}
	events := resume(seen.ID).Rest()
	if len(events) != 2 || edgetest.Member(string(events[0].Data), "params", "progress") != "2" ||
		edgetest.Member(string(events[1].Data), "result", "id") != "1" {
		t.Errorf("resumed: %q", events)
	}
	// From the beginning, as often as wanted.
	if events := resume(slow.Primed).Rest(); len(events) != 3 {
		t.Errorf("from the beginning: %q", events)
	}
	// Ids that lead nowhere, and those of another client's streams.
	other := f.client.Initialize("")
	for session, id := range map[string]string{s.ID: "99-1", other.ID: seen.ID} {
		r := f.client.Do("GET", "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", session, "Last-Event-ID", id)
		if r.Status != 400 {
			t.Errorf("%s: status %d: %s", id, r.Status, r.Body)
		}
	}
	if r := resume("../../1"); r.Status != 400 {
		t.Errorf("status %d", r.Status)
	}
}
