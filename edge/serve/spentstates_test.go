//go:build unix

package serve_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// huge is nearly as much as a body may have.
const huge = 3_900_000

// carried is how many bytes the Redis of a pair was sent while something was done.
func (p *pair) carried(t *testing.T, do func()) int {
	t.Helper()
	was := info(t, p.redis, "stats", "total_net_input_bytes")
	do()
	return info(t, p.redis, "stats", "total_net_input_bytes") - was
}

// TestZ41UsedStateAtTheOtherReplica: a requestState that was used costs the edges
// a question, once, and not what comes with it, however often and at however many
// edges it is repeated; others go on beside.
func TestZ41UsedStateAtTheOtherReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	p.back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask(`"q"`, "roots/list", "")
		c.Result(`{"content":[]}`)
	})
	here := p.a.callerOf(t, edgetest.Modern, "")
	first := p.a.begin(t, here, `{}`)
	answer := `{"` + first.key(t) + `":{"roots":[]}}`
	if r := retry(here.at(p.b), "1", `{}`, answer, first.RequestState); r.Status != 200 || r.Message().Error != nil {
		t.Fatalf("status %d: %s", r.Status, r.Answer())
	}
	filler := `{"` + first.key(t) + `":{"roots":[],"filler":"` + strings.Repeat("-", huge) + `"}}`
	var others sync.WaitGroup
	n := p.carried(t, func() {
		for range 4 {
			others.Go(func() {
				for range 10 {
					c := p.a.callerOf(t, edgetest.Modern, "")
					good := p.a.begin(t, c, `{}`)
					if r := retry(c.at(p.b), "1", `{}`, `{"`+good.key(t)+`":{"roots":[]}}`, good.RequestState); r.Status != 200 || r.Message().Error != nil {
						t.Errorf("another client: status %d: %s", r.Status, r.Answer())
					}
				}
			})
		}
		for range 15 {
			fails(t, retry(here.at(p.b), "2", `{}`, filler, first.RequestState), 400, -32602, "2")
			fails(t, retry(here, "3", `{}`, filler, first.RequestState), 400, -32602, "3")
		}
		others.Wait()
	})
	if n > huge/4 {
		t.Errorf("%d bytes went through the store for a state that was used", n)
	}
	if n := p.back.Count("tools/call"); n != 41 {
		t.Errorf("%d calls", n)
	}
}

// TestZ41OneOfManyRetries: of any number of retries with one state that is good,
// at whichever edges, one goes on with the call, and of what they carry no more
// than that one's goes between edges; who comes while it is on its way may come
// again.
func TestZ41OneOfManyRetries(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	p.back.Always("tools/call", func(c *edgetest.Call) {
		m := c.Ask(`"q"`, "roots/list", "")
		c.Result(fmt.Sprintf(`{"content":[],"size":%d}`, len(m.Result)))
	})
	here := p.a.callerOf(t, edgetest.Modern, "")
	for range 3 {
		first := p.a.begin(t, here, `{}`)
		filler := `{"` + first.key(t) + `":{"roots":[],"filler":"` + strings.Repeat("-", huge) + `"}}`
		var all sync.WaitGroup
		var mu sync.Mutex
		good := 0
		n := p.carried(t, func() {
			for i := range 20 {
				all.Go(func() {
					c := here.at(p.b)
					if i%10 == 9 {
						c = here.at(p.a)
					}
					r := retry(c, "1", `{}`, filler, first.RequestState)
					mu.Lock()
					defer mu.Unlock()
					if m := r.Message(); m.Error == nil {
						good++
						if size := edgetest.Member(string(m.Result), "size"); len(size) != 7 {
							t.Errorf("the backend was told %s bytes", size)
						}
					} else if again := r.Status == 503 && r.Header.Get("Retry-After") != ""; m.Error.Code != -32602 && !again {
						t.Errorf("status %d: %s", r.Status, r.Body)
					}
				})
			}
			all.Wait()
		})
		if good != 1 {
			t.Errorf("%d of 20 went on with one call", good)
		}
		if n > huge+huge/4 {
			t.Errorf("%d bytes went through the store", n)
		}
	}
}

// TestZ41RefusedStatesAreCharged: whoever comes again with a state that was
// refused pays for it like for a call, at the edge that had the call and at the
// others.
func TestZ41RefusedStatesAreCharged(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{false, true} {
		t.Run(fmt.Sprintf("another edge %v", there), func(t *testing.T) {
			t.Parallel()
			p := newPairOf(t, edgetest.Legacy, "rateLimiting: {shared: "+bucket(4)+"}")
			p.back.Always("tools/call", func(c *edgetest.Call) {
				c.Ask(`"q"`, "roots/list", "")
				c.Result(`{"content":[]}`)
			})
			here := p.a.callerOf(t, edgetest.Modern, "")
			first := p.a.begin(t, here, `{}`)
			c := here
			if there {
				c = here.at(p.b)
			}
			again := func() *edgetest.Response {
				return retry(c, "1", `{}`, `{"`+first.key(t)+`":{"roots":[]}}`, first.RequestState)
			}
			if r := again(); r.Status != 200 {
				t.Fatalf("status %d: %s", r.Status, r.Body)
			}
			fails(t, again(), 400, -32602, "1") // its client may not have known
			for range 3 {
				fails(t, again(), 400, -32602, "1")
			}
			for range 3 {
				limited(t, again(), "1")
			}
			limited(t, here.call(t, "1", "{}"), "1")
			if n := p.back.Count("tools/call"); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// TestZ41AnswersThatNobodyWaitsFor: what a legacy client says to another edge than
// the one that asked, or has the call, goes there only when it is wanted, and of a
// cancellation no more than what it is about.
func TestZ41AnswersThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	sizes := make(chan int, 1)
	p.back.Always("tools/call", func(c *edgetest.Call) {
		m := c.Ask(`"q"`, "elicitation/create", `{"message":"Who?","requestedSchema":{"type":"object"}}`)
		sizes <- len(m.Result)
		c.Result(`{"content":[]}`)
	})
	here := p.a.callerOf(t, edgetest.Legacy, asks)
	there := here.at(p.b)
	stream := here.call(t, "1", "{}")
	q := stream.NextMessage()
	filler := `{"action":"accept","content":{"x":"` + strings.Repeat("-", huge) + `"}}`
	n := p.carried(t, func() {
		unknown := strings.Replace(string(q.ID), `.`, `.9`, 1)
		for range 5 {
			there.session.Reply([]byte(unknown), filler)
			there.session.Notify("notifications/cancelled", `{"requestId":99,"reason":"`+strings.Repeat("-", huge)+`"}`)
			there.session.Notify("notifications/cancelled", `{"requestId":"`+strings.Repeat("-", huge)+`"}`)
		}
	})
	if n > huge/4 {
		t.Errorf("%d bytes went through the store for what nobody wants", n)
	}
	there.session.Reply(q.ID, filler)
	if got := edgetest.Receive(t, sizes, "the answer"); got != len(filler) {
		t.Errorf("the backend was answered with %d bytes of %d", got, len(filler))
	}
	if m := stream.NextMessage(); m.Error != nil {
		t.Errorf("%+v", m)
	}
}

// newPairOf is newPair with more in the manifest.
func newPairOf(t *testing.T, era edgetest.Era, more string) *pair {
	t.Helper()
	p := newPair(t, era)
	yaml := edgetest.Manifest(p.back, in(p.redis), more)
	for _, f := range []*front{p.a, p.b} {
		if err := f.Serve.Reload(edgetest.Plan(t, yaml)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}
