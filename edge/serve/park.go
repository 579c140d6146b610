package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// A legacy backend asks in the middle of a call and waits; a modern client
// cannot be asked, only told that input is required, and comes back with a
// request of its own. In between the call is parked: it goes on waiting here,
// and the client holds a sealed requestState that leads back to it.

// lot is where calls are parked.
type lot struct {
	most int
	ttl  time.Duration
	cap  time.Duration
	seal *sealer
	node string // names this edge to those that share a store with it

	dropped atomic.Int64 // notifications that came while no stream was open

	mu    sync.Mutex
	calls map[string]*parked // those whose client has been told that input is required
	work  sync.WaitGroup
}

func newLot(s Settings, seal *sealer, node string) *lot {
	return &lot{most: s.MaxParked, ttl: s.ParkTTL, cap: s.CallCap, seal: seal, node: node, calls: make(map[string]*parked)}
}

// parked is a call that may ask. It runs on a goroutine and under a context of
// its own, with copies of all that it needs.
type parked struct {
	lot     *lot
	id      string
	server  string
	backend string
	owner   string // principal
	digest  []byte
	token   []byte // the progress token of the first request
	cancel  context.CancelFunc
	wake    chan struct{} // holds one token while there are new questions
	done    chan struct{} // closed when the call has ended; then answer and err are there
	answer  *edge.Response
	err     error

	mu      sync.Mutex
	now     *edge.Exchange // the exchange that waits for the call; nil while the client is away
	waiting []*ask
	keys    int
	round   int
	expiry  *time.Timer
}

// ask is a question that waits for its answer.
type ask struct {
	key      string
	question edge.Question
	answer   chan edge.Answer
}

// mayAsk returns what the client of a call can be asked: of the capabilities
// that it declares with this request, those that have questions. It is nil for
// a call that needs no place to park.
func mayAsk(m *mcp.Message) []byte {
	if !mcp.MethodOf(m.Method).Interactive {
		return nil
	}
	return mcp.Askable(m.Meta(mcp.MetaCapabilities).Of(m.Raw))
}

// serve begins a call that may ask, or goes on with the one that a retry's
// requestState leads to.
func (l *lot) serve(ctx context.Context, x *edge.Exchange, caps []byte, next edge.Handler) (*edge.Response, error) {
	if x.Request.Get("requestState").OK() {
		return l.resume(ctx, x)
	}
	return l.begin(ctx, x, caps, next)
}

// begin starts a call that may ask, and waits for its end or its first
// question.
func (l *lot) begin(ctx context.Context, x *edge.Exchange, caps []byte, next edge.Handler) (*edge.Response, error) {
	m := x.Request.Clone()
	p := &parked{
		lot:     l,
		server:  x.Server,
		backend: x.Target.Backend,
		owner:   x.Identity.Principal(),
		digest:  digest(m),
		token:   m.Meta("progressToken").Of(m.Raw),
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	life, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cap) // it stays in its trace
	p.cancel = cancel
	inner := &edge.Exchange{
		Parent: x.Parent, Server: x.Server, Era: x.Era, Request: m, Head: x.Head, Target: x.Target, Name: x.Name,
		Identity: x.Identity, Forward: x.Forward, Chosen: x.Chosen,
		Capabilities: caps, Client: p,
	}
	p.now = x
	l.work.Go(func() {
		defer cancel()
		defer close(p.done)
		defer func() {
			if r := recover(); r != nil {
				p.err = edge.Errorf(edge.Internal, "parked call", "%v", r)
			}
		}()
		p.answer, p.err = next.Handle(life, inner)
	})
	return p.await(ctx, x)
}

// resume hands a retry's answers to the call that its requestState leads to,
// and waits for its end or its next question.
func (l *lot) resume(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	m := x.Request
	wrong := errState()
	s, ok := l.verify(x, m)
	if !ok {
		return nil, wrong
	}
	l.mu.Lock()
	var p *parked
	if s.Node == l.node {
		p = l.calls[s.Call]
	}
	l.mu.Unlock()
	if p == nil {
		return nil, wrong
	}
	p.mu.Lock()
	if p.round != s.Round || p.now != nil {
		p.mu.Unlock()
		return nil, wrong // used before
	}
	p.now = x
	p.expiry.Stop()
	left := p.waiting[:0:0]
	responses := m.Get("inputResponses").Of(m.Raw)
	for _, a := range p.waiting {
		if v := mcp.Lookup(responses, a.key); v != nil {
			a.answer <- edge.Answer{Result: bytes.Clone(v)}
		} else {
			left = append(left, a) // asked again
		}
	}
	p.waiting = left
	p.mu.Unlock()
	if len(left) > 0 {
		p.rouse()
	}
	return p.await(ctx, x)
}

func errState() error {
	return edge.Errorf(edge.Params, "resume", "requestState is not valid for this request, or its call is gone")
}

// verify returns what the requestState of an exchange says, if it is of a parked
// call and for this request, in its backend's words, of this client.
func (l *lot) verify(x *edge.Exchange, m *mcp.Message) (state, bool) {
	s, ok := l.seal.open(m.Text("requestState"))
	ok = ok && s.Call != "" && x.Target != nil && s.Server == x.Server && s.Backend == x.Target.Backend &&
		s.Principal == x.Identity.Principal() && bytes.Equal(s.Digest, digest(m))
	return s, ok
}

// await waits until the call has ended or has questions, or until its client
// has left, which ends it.
func (p *parked) await(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		p.leave()
		p.cancel()
		return nil, edge.Errorf(edge.Gone, "parked call", "%w", ctx.Err())
	case <-p.wake:
		p.gather()
		if r, err := p.inputRequired(x); r != nil || err != nil {
			return r, err
		}
		return p.await(ctx, x)
	}
	p.leave()
	if p.err != nil {
		return nil, p.err
	}
	out := x.Answer()
	if err := out.Decode(mcp.Splice(nil, p.answer.Raw, p.answer.WithID(x.Request.IDText()))); err != nil {
		return nil, edge.Errorf(edge.Internal, "parked call", "%w", err)
	}
	out.Status = p.answer.Status
	return out, nil
}

// together is how long a round waits for further questions after its first: a
// backend that asks several at once sends them one after the other.
const together = 5 * time.Millisecond

func (p *parked) gather() {
	t := time.NewTimer(together)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.done:
	}
}

// inputRequired ends a round: the client gets every question that waits.
func (p *parked) inputRequired(x *edge.Exchange) (*edge.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		return nil, nil // answered or given up meanwhile
	}
	l := p.lot
	l.mu.Lock()
	if p.id == "" {
		if len(l.calls) >= l.most {
			l.mu.Unlock()
			p.cancel()
			return nil, edge.Errorf(edge.Overload, "park", "%d calls wait for their clients, which is the limit", l.most)
		}
		var raw [16]byte
		if _, err := rand.Read(raw[:]); err != nil {
			l.mu.Unlock()
			p.cancel()
			return nil, edge.Errorf(edge.Internal, "park", "%w", err)
		}
		p.id = base64.RawURLEncoding.EncodeToString(raw[:])
		l.calls[p.id] = p
	}
	l.mu.Unlock()
	p.round++
	p.now = nil
	p.expiry = time.AfterFunc(l.ttl, func() {
		p.leave()
		p.cancel()
	})
	requests := []byte{'{'}
	for i, a := range p.waiting {
		if i > 0 {
			requests = append(requests, ',')
		}
		requests = append(mcp.AppendString(requests, a.key), `:{"method":`...)
		requests = mcp.AppendString(requests, a.question.Method)
		// Requests without params are given some: there are clients that want them.
		params := a.question.Params
		if params == nil {
			params = []byte("{}")
		}
		requests = append(append(requests, `,"params":`...), params...)
		requests = append(requests, '}')
	}
	state := l.seal.seal(state{Call: p.id, Node: l.node, Round: p.round, Server: p.server, Backend: p.backend, Principal: p.owner, Digest: p.digest, Expires: time.Now().Add(l.ttl).Unix()})
	result := append([]byte(`{"resultType":"input_required","inputRequests":`), requests...)
	result = mcp.AppendString(append(result, `},"requestState":`...), state)
	return reply(x.Request, append(result, '}'))
}

// leave takes a call off the lot.
func (p *parked) leave() {
	p.lot.mu.Lock()
	delete(p.lot.calls, p.id)
	p.lot.mu.Unlock()
	p.mu.Lock()
	p.now = nil
	p.mu.Unlock()
}

// Send passes a notification on to whoever waits for the call, in the words of
// its own request.
func (p *parked) Send(n *mcp.Message) error {
	p.mu.Lock()
	x := p.now
	if x == nil {
		p.lot.dropped.Add(1)
		p.mu.Unlock()
		return nil
	}
	defer p.mu.Unlock() // so that the exchange cannot end meanwhile
	m := x.Request
	switch n.Method {
	case "notifications/progress":
		token := m.Meta("progressToken")
		if !token.OK() {
			return nil
		}
		if !bytes.Equal(token.Of(m.Raw), p.token) {
			again, err := mcp.Decode(mcp.Retokened(nil, n, token.Of(m.Raw)))
			if err != nil {
				return err
			}
			n = again
		}
	case "notifications/message":
		if !m.Meta(mcp.MetaLogLevel).OK() {
			return nil
		}
	}
	return x.Client.Send(n)
}

// Ask puts questions to the client with the next round.
func (p *parked) Ask(ctx context.Context, questions map[string]edge.Question) (map[string]edge.Answer, error) {
	mine := make(map[string]*ask, len(questions))
	p.mu.Lock()
	for key, q := range questions {
		if mcp.OpensPage(q.Method, q.Params) { // the modern era does not number them
			q.Params = mcp.Change(q.Params, []string{"elicitationId"})
		}
		p.keys++
		a := &ask{key: "input_" + strconv.Itoa(p.keys), question: q, answer: make(chan edge.Answer, 1)}
		mine[key] = a
		p.waiting = append(p.waiting, a)
	}
	p.mu.Unlock()
	p.rouse()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiting = slices.DeleteFunc(p.waiting, func(a *ask) bool {
			for _, m := range mine {
				if a == m {
					return true
				}
			}
			return false
		})
	}()
	answers := make(map[string]edge.Answer, len(mine))
	for key, a := range mine {
		select {
		case answers[key] = <-a.answer:
		case <-ctx.Done():
			return nil, edge.Errorf(edge.Gone, "ask", "the client did not come back with an answer")
		}
	}
	return answers, nil
}

// rouse wakes whoever waits for the call.
func (p *parked) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// close ends every parked call.
func (l *lot) close() {
	l.mu.Lock()
	all := l.calls
	l.calls = make(map[string]*parked)
	l.mu.Unlock()
	for _, p := range all {
		p.cancel()
	}
	l.work.Wait()
}

func (l *lot) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls)
}

// digest is of what makes a retry the same request: method and params, but for
// _meta, which may change, and what a retry adds.
func digest(m *mcp.Message) []byte {
	h := sha256.New()
	part := func(b []byte) {
		h.Write(strconv.AppendInt(nil, int64(len(b)), 10))
		h.Write([]byte{':'})
		h.Write(b)
	}
	part([]byte(m.Method))
	members := mcp.Members(m.Params.Of(m.Raw))
	slices.SortFunc(members, func(a, b mcp.Member) int { return bytes.Compare(a.Name, b.Name) })
	for _, p := range members {
		switch string(p.Name) {
		case "_meta", "inputResponses", "requestState":
		default:
			part(p.Name)
			part(p.Value)
		}
	}
	return h.Sum(nil)
}
