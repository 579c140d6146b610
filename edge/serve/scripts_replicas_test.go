//go:build unix

package serve_test

import (
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// TestX08Elsewhere: a script that runs at one edge is cancelled through another that shares
// its sessions: its calls end, and its client is told at the edge where it waits.
func TestX08Elsewhere(t *testing.T) {
	t.Parallel()
	p := &pair{redis: kvtest.Redis(t), back: edgetest.NewServer(t, edgetest.Legacy), more: []string{codeMode()}}
	offersTools(p.back, tool{"slow", "", nil, 0})
	p.a, p.b = p.edge(t, engine()), p.edge(t, engine())
	began := make(chan struct{}, 10)
	p.back.Always("tools/call", func(c *edgetest.Call) {
		began <- struct{}{}
		<-c.Gone()
	})
	here := p.a.callerOf(t, edgetest.Legacy, "")
	body, head := here.message("7", "tools/call", scriptParams("slow()\nslow()\nreturn 1", ""))
	conn := p.a.Dial()
	defer conn.Close()
	conn.Write(post(p.a.Addr(), body, head...))
	await(t, "the call at the backend", began)
	at := time.Now()
	here.at(p.b).session.Notify("notifications/cancelled", `{"requestId":7}`)
	p.back.Await("notifications/cancelled", 1)
	if took := time.Since(at); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
	// A place of the client is free again, and no second call began.
	if out := here.at(p.a).script(t, "return 1", ""); string(out.Result) != "1" {
		t.Error(out.Raw)
	}
	if n := p.back.Count("tools/call"); n != 1 {
		t.Errorf("%d calls", n)
	}
}
