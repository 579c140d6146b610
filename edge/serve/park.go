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
	"github.com/weir-edge/weir/filters/ratelimit"
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
	claims  claims       // what other edges may come with

	room int // bytes of the requests of all calls
	part int // of them, for one holder

	mu    sync.Mutex
	calls map[string]*parked // those whose client has been told that input is required
	count map[string]held    // what each holder has of them
	all   int                // bytes of their requests
	work  sync.WaitGroup
}

// held is how many calls wait for a holder, and how many bytes their requests have.
type held struct{ calls, bytes int }

// maxParkedBytes is how many bytes the requests of parked calls may have together,
// where the bodies of large requests may have as many. A holder has a quarter of
// them.
const maxParkedBytes = 64 << 20

func newLot(s Settings, seal *sealer, node string) *lot {
	room := max(int(min(maxParkedBytes, mostForBodies())), s.MaxBody)
	return &lot{
		most: s.MaxParked, ttl: s.ParkTTL, cap: s.CallCap, seal: seal, node: node,
		room: room, part: max(room/4, s.MaxBody),
		calls: make(map[string]*parked), count: make(map[string]held),
	}
}

// parked is a call that may ask. It runs on a goroutine and under a context of
// its own, with copies of all that it needs.
type parked struct {
	lot     *lot
	id      string
	server  string
	backend string
	owner   string // principal
	holder  string // whom it is counted for: see Edge.holder
	size    int    // bytes of its request
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
	over    bool // nobody may wait for the call any more: it has been answered, or given up
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
		return l.resume(ctx, x, "")
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
		holder:  holderOf(x.Identity, x.Head.Remote),
		size:    len(m.Raw),
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
// and waits for its end or its next question. by names the exchange of another
// edge that comes with it, for which the place was kept; "" for a client of this
// one.
func (l *lot) resume(ctx context.Context, x *edge.Exchange, by string) (*edge.Response, error) {
	m := x.Request
	s, ok := l.verify(x, m)
	if !ok {
		return nil, errState()
	}
	wrong := errSpent()
	if !l.claims.use(time.Now(), s.round(), by) {
		if by == "" {
			return nil, errClaimed()
		}
		return nil, errState() // its place was not kept any longer
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
	if p.round != s.Round || p.now != nil || p.over {
		p.mu.Unlock()
		return nil, wrong // used before
	}
	p.now = x
	p.expiry.Stop()
	left := p.waiting[:0:0]
	given := make(map[string][]byte, len(p.waiting))
	for _, a := range p.waiting {
		given[a.key] = nil
	}
	mcp.Each(m.Get("inputResponses").Of(m.Raw), func(name, value []byte) bool {
		if _, asked := given[string(mcp.Unquote(name))]; asked {
			given[string(mcp.Unquote(name))] = bytes.Clone(value)
		}
		return true
	})
	for _, a := range p.waiting {
		if v := given[a.key]; v != nil {
			a.answer <- edge.Answer{Result: v}
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

// holds reports whether the call of a state is here and waits for this round.
func (l *lot) holds(s state) bool {
	l.mu.Lock()
	var p *parked
	if s.Node == l.node {
		p = l.calls[s.Call]
	}
	l.mu.Unlock()
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.round == s.Round && p.now == nil
}

// round names the round of a parked call that a state is of.
func (s state) round() string { return "call " + s.Call + " " + strconv.Itoa(s.Round) }

// errSpent refuses a state that was sealed here and will not be good again.
func errSpent() error {
	return &edge.Error{Kind: edge.Params, Op: "resume", Err: &spentState{}}
}

// spentState is the cause. One that was refused before is charged like a new call:
// the first time its client may not have known.
type spentState struct{ before bool }

func (*spentState) Error() string { return stateIsNoGood }

func (s *spentState) Is(target error) bool { return s.before && target == ratelimit.ErrUnpaid }

const stateIsNoGood = "requestState is not valid for this request, or its call is gone"

func errState() error {
	return edge.Errorf(edge.Params, "resume", stateIsNoGood)
}

// checkRetry holds what a request says of an earlier round to what the modern era
// has (2026-07-28, basic, multi round-trip requests): a text and an object, on the
// methods that may want input. Nowhere else do they mean anything, and a request
// that says it goes on with a call must not begin one.
func checkRetry(x *edge.Exchange) error {
	m := x.Request
	state, said := m.Get("requestState"), m.Get("inputResponses")
	if !state.OK() && !said.OK() {
		return nil
	}
	info := mcp.MethodOf(m.Method)
	switch {
	case !info.Known: // a method of client and server, with params of their own
	case m.Method == "tasks/update" && !state.OK(): // answers to the questions of a task
	case x.Era == mcp.Legacy:
		return edge.Errorf(edge.Params, "retry", "params.requestState and params.inputResponses belong to protocol revision %s", mcp.V2607)
	case !info.Interactive:
		return edge.Errorf(edge.Params, "retry", "%s takes no params.requestState and no params.inputResponses", m.Method)
	case state.OK() && m.Raw[state.Start] != '"':
		return edge.Errorf(edge.Params, "retry", "params.requestState is not a string")
	case said.OK() && m.Raw[said.Start] != '{':
		return edge.Errorf(edge.Params, "retry", "params.inputResponses is not an object")
	}
	return nil
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
		mine := l.count[p.holder]
		if each := l.each(); mine.calls >= each {
			l.mu.Unlock()
			p.cancel()
			return nil, edge.Errorf(edge.Overload, "park", "%d calls wait for this client, which is the limit: answer some", each)
		}
		if mine.bytes+p.size > l.part || l.all+p.size > l.room {
			l.mu.Unlock()
			p.cancel()
			return nil, edge.Errorf(edge.Overload, "park", "the calls that wait for their clients may have %d bytes, %d of them for this one, which is the limit", l.room, l.part)
		}
		var raw [16]byte
		if _, err := rand.Read(raw[:]); err != nil {
			l.mu.Unlock()
			p.cancel()
			return nil, edge.Errorf(edge.Internal, "park", "%w", err)
		}
		p.id = base64.RawURLEncoding.EncodeToString(raw[:])
		l.calls[p.id] = p
		l.count[p.holder] = held{mine.calls + 1, mine.bytes + p.size}
		l.all += p.size
	}
	l.mu.Unlock()
	p.round++
	p.now = nil
	round := p.round
	p.expiry = time.AfterFunc(l.ttl, func() { p.expire(round) })
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

// leave takes a call off the lot. A retry that found it there before comes too
// late: what the call ends with is one exchange's.
func (p *parked) leave() {
	p.mu.Lock()
	id := p.id
	p.now, p.over = nil, true
	p.mu.Unlock()
	p.lot.mu.Lock()
	p.lot.remove(p, id)
	p.lot.mu.Unlock()
}

// expire gives a call up whose client has not come back, unless it has just now.
func (p *parked) expire(round int) {
	p.mu.Lock()
	back := p.round != round || p.now != nil
	p.over = p.over || !back
	p.mu.Unlock()
	if !back {
		p.leave()
		p.cancel()
	}
}

// remove takes a call off; l.mu is held.
func (l *lot) remove(p *parked, id string) {
	if l.calls[id] != p {
		return
	}
	delete(l.calls, id)
	l.all -= p.size
	left := held{l.count[p.holder].calls - 1, l.count[p.holder].bytes - p.size}
	if l.count[p.holder] = left; left.calls == 0 {
		delete(l.count, p.holder)
	}
}

// fewParked is how many calls may wait for one client however few may for all.
const fewParked = 16

// each is how many calls may wait for one client: a quarter of all, so that
// nobody's questions take the places of everybody's.
func (l *lot) each() int { return max(l.most/4, min(l.most, fewParked)) }

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
	mine, own := make(map[string]*ask, len(questions)), make(map[*ask]bool, len(questions))
	p.mu.Lock()
	for key, q := range questions {
		if mcp.OpensPage(q.Method, q.Params) { // the modern era does not number them
			q.Params = mcp.Change(q.Params, []string{"elicitationId"})
		}
		p.keys++
		a := &ask{key: "input_" + strconv.Itoa(p.keys), question: q, answer: make(chan edge.Answer, 1)}
		mine[key], own[a] = a, true
		p.waiting = append(p.waiting, a)
	}
	p.mu.Unlock()
	p.rouse()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiting = slices.DeleteFunc(p.waiting, func(a *ask) bool { return own[a] })
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
	l.calls, l.count, l.all = make(map[string]*parked), make(map[string]held), 0
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
