package serve

import (
	"context"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/filters/incoming"
)

// A stream that lasts ends when the credential that it was opened with no longer holds.
// Once a second all of them are checked. What takes longer, such as to ask an issuer, runs
// beside that, once for each credential. A call is judged only when it begins.

// stays is the credentials of streams that last.
type stays struct {
	edge *Edge

	mu     sync.Mutex
	all    map[stayer]*staying
	round  uint64
	unsure map[unsureOf]*unsure
	life   context.Context // ends with the edge; nil until something is found out
}

// stayer is a credential at a server.
type stayer struct {
	server string
	who    *edge.Identity
}

type staying struct {
	incoming.Stay
	round uint64 // of the last check
	holds bool   // at the last check
	due   bool   // it is being renewed, or waits for that
}

// unsure is a queue of credentials to renew at one gate in one way, so that an issuer that
// does not answer holds up nobody else's.
type unsure struct {
	queue []stayer // whoever came first is next
	works int      // how many are being renewed
}

// unsureOf is a gate, and whether it asks its issuer.
type unsureOf struct {
	gate *incoming.Gate
	asks bool
}

// renewWithin is how long it may take to renew a credential, and signsAtOnce how many are
// verified at a time without asking an issuer.
const (
	renewWithin = 4 * time.Second
	signsAtOnce = 8
)

// end ends the streams whose credential no longer holds.
func (t *stays) end() {
	e := t.edge
	t.mu.Lock()
	defer t.mu.Unlock()
	live := e.live.Load()
	t.round++
	holds := func(name string, who *edge.Identity) bool {
		s := live.servers[name]
		switch {
		case s == nil:
			return false
		case s.gate == nil:
			return who.Anonymous()
		case who != nil && who.Token == "" && !who.Anonymous() && who.Issuer != incoming.LocalIssuer:
			return s.guest.Authenticate != nil // a program knows who it is
		}
		key := stayer{name, who}
		one := t.all[key]
		if one == nil {
			if one = new(staying); t.all == nil {
				t.all = make(map[stayer]*staying)
			}
			t.all[key] = one
		}
		if one.round != t.round {
			one.round = t.round
			var renew bool
			if one.holds, renew = s.gate.Holds(who, &one.Stay); renew && one.holds && !one.due {
				one.due = true
				t.findOut(s.gate, key)
			}
		}
		return one.holds
	}
	for _, o := range e.sessions.Streams.List() {
		if !holds(o.Server, o.Who) {
			go o.CloseAfterCalls() // a client that does not read must not hold up the others
		}
	}
	e.each(func(x *exchange) {
		if x.Lasts && !holds(x.server.Name, x.Identity) {
			x.Cancel()
		}
	})
	for key, one := range t.all {
		if one.round != t.round {
			delete(t.all, key)
		}
	}
}

// findOut puts a credential into the queue of those to renew; t.mu is held.
func (t *stays) findOut(gate *incoming.Gate, one stayer) {
	e := t.edge
	if t.life == nil {
		var cancel context.CancelFunc
		t.life, cancel = context.WithCancel(context.Background())
		e.work.Go(func() {
			<-e.end
			cancel()
		})
		t.unsure = make(map[unsureOf]*unsure)
	}
	of, most := unsureOf{gate, gate.Asks(one.who)}, signsAtOnce
	if of.asks {
		most = incoming.RenewsAtOnce
	}
	u := t.unsure[of]
	if u == nil {
		u = new(unsure)
		t.unsure[of] = u
	}
	u.queue = append(u.queue, one)
	if u.works < most {
		u.works++
		e.work.Go(func() { t.renew(of, u) })
	}
}

// renew renews the credentials of a queue until it is empty.
func (t *stays) renew(of unsureOf, u *unsure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(u.queue) > 0 && t.life.Err() == nil {
		key := u.queue[0]
		u.queue = u.queue[1:]
		one := t.all[key]
		if one == nil || !one.holds { // its streams have ended meanwhile
			continue
		}
		t.mu.Unlock()
		t.renewOne(t.life, of.gate, key.who, &one.Stay)
		t.mu.Lock()
		one.due = false
	}
	if u.works--; u.works == 0 {
		delete(t.unsure, of)
	}
}

func (t *stays) renewOne(ctx context.Context, gate *incoming.Gate, who *edge.Identity, stay *incoming.Stay) {
	defer edge.Contain(t.edge.log, "stay")
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	gate.Renew(ctx, who, stay)
}
