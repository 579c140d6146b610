package serve_test

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestReloadTakesTheServer: a call in a session whose server a reload takes is answered with an
// error that says so, in its stream or as its body; the next request in the session is 404.
func TestReloadTakesTheServer(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Legacy)
	entered, leave := slow(&front{back: back})
	defer close(leave)
	plan := reloaded(back, nil, "", "")
	e := edgetest.Start(t, plan)
	f := &front{Edge: e, back: back, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Legacy, "")
	got := make(chan string, 1)
	go func() {
		r, err := c.try("1", "tools/call", edgetest.CallParams("echo", "{}"))
		if err != nil {
			t.Error(err)
		}
		text, _ := r.TryAnswer()
		got <- string(text)
	}()
	edgetest.Receive(t, entered, "the call")
	if err := e.Serve.Reload(edgetest.Plan(t, strings.Replace(plan, "name: edgetest\n", "name: another\n", 1))); err != nil {
		t.Fatal(err)
	}
	if said := edgetest.Receive(t, got, "the answer"); !strings.Contains(said, `"code":-32603`) || !strings.Contains(said, "the server of this session was removed") {
		t.Error(said)
	}
	if r, err := c.try("2", "tools/call", edgetest.CallParams("echo", "{}")); err != nil || r.Status != 404 {
		t.Errorf("the session goes on: %v, %v", r, err)
	}
}

// TestReloadTakesTheServerOfOlder: the stream of the older transport ends after the calls that are
// cut have had their answer, and takes no further one.
func TestReloadTakesTheServerOfOlder(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Legacy)
	entered, leave := slow(&front{back: back})
	defer close(leave)
	plan := reloaded(back, nil, "", "")
	e := edgetest.Start(t, plan)
	old := e.NewClient().OpenSSE()
	old.Initialize("")
	for _, id := range []string{"1", "2", "3"} {
		old.Request(id, "tools/call", edgetest.CallParams("echo", "{}"))
		edgetest.Receive(t, entered, "the call")
	}
	if err := e.Serve.Reload(edgetest.Plan(t, strings.Replace(plan, "name: edgetest\n", "name: another\n", 1))); err != nil {
		t.Fatal(err)
	}
	answered := map[string]bool{}
	for range 3 {
		m := old.Stream.NextMessage()
		if m.Error == nil || m.Error.Code != -32603 || m.Error.Message != "the server of this session was removed, or is started again" {
			t.Errorf("%+v", m)
		}
		answered[string(m.ID)] = true
	}
	if len(answered) != 3 {
		t.Errorf("answered: %v", answered)
	}
	if err := old.Ended(); err != nil {
		t.Errorf("the stream: %v", err)
	}
}

// TestOlderStreamThatEnds: while the stream of the older transport waits for the call that it owes an
// answer, its client begins no other, and can still tell, cancel and answer.
func TestOlderStreamThatEnds(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	entered, leave := slow(f)
	old := f.NewClient().OpenSSE()
	old.Initialize("")
	old.Request("1", "tools/call", edgetest.CallParams("echo", "{}"))
	edgetest.Receive(t, entered, "the call")
	f.Serve.LoseUpstreams("edgetest")
	edgetest.Until(t, "no further call", func() bool {
		return old.Do("POST", old.Path, `{"jsonrpc":"2.0","id":2,"method":"ping"}`).Status == 404
	})
	old.Accepted(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
	old.Accepted(`{"jsonrpc":"2.0","id":"nobody-asked","result":{}}`)
	close(leave)
	var last edgetest.Message
	for last.Result == nil || string(last.ID) != "1" { // pings before may have had their answer
		last = old.Stream.NextMessage()
	}
	if err := old.Ended(); err != nil {
		t.Errorf("the stream: %v", err)
	}
}
