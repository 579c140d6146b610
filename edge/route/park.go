package route

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// A legacy backend asks in the middle of a call and waits; a modern client
// cannot be asked, only told that input is required, and comes back with a
// request of its own. In between the call is parked: it goes on waiting here,
// and the client holds a sealed requestState that leads back to it.

// Parked holds the calls of an edge that wait for their clients.
type Parked struct {
	ParkOptions
	seal    atomic.Pointer[Sealer]
	dropped atomic.Int64 // notifications that came while no stream was open

	mu    sync.Mutex
	calls map[string]*parkedCall // those whose client has been told that input is required
	count map[string]held        // those of each holder
	all   int                    // bytes of their requests
	over  bool                   // no call is left, and whoever waits for one is told so
	work  sync.WaitGroup
}

// ParkOptions bound parked calls.
type ParkOptions struct {
	Most int           // parked calls at a time; a quarter of them for one holder
	TTL  time.Duration // after which a call whose client has not come back is ended
	Cap  time.Duration // after which a call is ended in any case
	Node string        // name of this edge among the replicas
	Room int           // bytes of the requests of all calls
	Part int           // of them, for one holder

	Claims *relay.Claims // rounds that other edges have announced
}

// held counts the parked calls of a holder, and the bytes of their requests.
type held struct{ calls, bytes int }

// NewParked returns a place to park calls, whose states seal seals.
func NewParked(o ParkOptions, seal *Sealer) *Parked {
	ps := &Parked{ParkOptions: o, calls: make(map[string]*parkedCall), count: make(map[string]held)}
	ps.Reseal(seal)
	return ps
}

// Reseal replaces the sealer of the states.
func (ps *Parked) Reseal(seal *Sealer) { ps.seal.Store(seal) }

// Sealer returns the sealer of the states.
func (ps *Parked) Sealer() *Sealer { return ps.seal.Load() }

// parkedCall is a call whose backend may ask questions. It runs on its own goroutine and
// under its own context, with copies of everything that it needs.
type parkedCall struct {
	parked  *Parked
	id      string
	server  string
	backend string
	owner   string // principal
	holder  string // see edge.Holder
	size    int    // bytes of its request, of what its backend asks, and of an answer that waits; parked.mu guards it
	digest  []byte
	token   []byte // the progress token of the first request
	cancel  context.CancelFunc
	wake    chan struct{} // holds one token while there are new questions
	done    chan struct{} // closed when the call has ended; answer and err are set before
	answer  *edge.Response
	err     error
	open    atomic.Int64 // the round whose state may be used now; 0 for none

	mu      sync.Mutex     // held while a notification is written, which may take as long as the client likes
	now     *edge.Exchange // the exchange that waits for the call; nil while the client is away
	waiting []*ask
	keys    int
	round   int
	expiry  *time.Timer
	over    bool // the call has been answered or given up, and no exchange may wait for it
}

// ask is a question that waits for its answer.
type ask struct {
	key      string
	question edge.Question
	answer   chan edge.Answer
}

// Serve begins a call whose backend may ask, or continues the one that a retry's
// requestState leads to.
func (ps *Parked) Serve(ctx context.Context, x *edge.Exchange, caps []byte, next edge.Handler) (*edge.Response, error) {
	if x.Request.Get("requestState").OK() {
		return ps.Resume(ctx, x, "")
	}
	return ps.Begin(ctx, x, caps, next)
}

// Begin starts a call whose backend may ask, and waits for its end or its first
// question.
func (ps *Parked) Begin(ctx context.Context, x *edge.Exchange, caps []byte, next edge.Handler) (*edge.Response, error) {
	m := x.Request.Clone()
	p := &parkedCall{
		parked:  ps,
		server:  x.Server,
		backend: x.Target.Backend,
		owner:   x.Identity.Principal(),
		holder:  edge.Holder(x.Identity, x.Head.Remote),
		size:    len(m.Raw),
		digest:  askedFor(x, m),
		token:   m.Meta("progressToken").Of(m.Raw),
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it stays in its trace
	if x.Target.Backend != "" {                                    // a tool of the edge's own has a time of its own
		life, cancel = context.WithTimeout(life, ps.Cap)
	}
	p.cancel = cancel
	inner := &edge.Exchange{
		Parent: x.Parent, Passed: x.Passed, Server: x.Server, Era: x.Era, Request: m, Head: x.Head, Target: x.Target, Name: x.Name,
		Identity: x.Identity, View: x.View, Forward: x.Forward, Heard: x.Heard, Chosen: x.Chosen, Attributes: x.Attributes,
		Capabilities: caps, Client: p, Record: x.Record,
	}
	p.now = x
	ps.work.Go(func() {
		defer cancel()
		defer close(p.done)
		defer func() {
			if r := recover(); r != nil {
				p.err = edge.Errorf(edge.Internal, "parked call", "%v", r)
			}
		}()
		p.answer, p.err = next.Handle(life, inner)
		p.mu.Lock()
		away := p.now == nil
		p.mu.Unlock()
		if p.answer != nil && away && !ps.grow(p, len(p.answer.Raw)) { // it would lie here until the client comes
			p.answer, p.err = nil, errRoom()
		}
	})
	return p.await(ctx, x)
}

// grow counts more bytes for a call, or fewer: what a backend asks and answers stays here while
// its client is away, as the request does. It reports false where a parked call has no room for
// them; they are not counted then.
func (ps *Parked) grow(p *parkedCall, bytes int) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.calls[p.id] != p { // it is not parked yet: inputRequired looks whether there is room
		p.size += bytes
		return true
	}
	mine := ps.count[p.holder]
	if bytes > 0 && (mine.bytes+bytes > ps.Part || ps.all+bytes > ps.Room) {
		return false
	}
	p.size += bytes
	ps.all += bytes
	ps.count[p.holder] = held{mine.calls, mine.bytes + bytes}
	return true
}

func errRoom() error {
	return edge.Errorf(edge.Overload, "park", "the calls that wait for their clients have no room for more")
}

// Resume hands a retry's answers to the call that its requestState leads to,
// and waits for its end or its next question. by names the exchange of another
// edge that sends the retry, for which the place was reserved; "" for a client of
// this one.
func (ps *Parked) Resume(ctx context.Context, x *edge.Exchange, by string) (*edge.Response, error) {
	m := x.Request
	s, ok := ps.Verify(x, m)
	if by != "" { // the edge that sends it has verified it, and alone knows what its client asked for
		s, ok = ps.Sealer().Open(m.Text("requestState"))
		ok = ok && s.Call != ""
	}
	if !ok {
		return nil, ErrState()
	}
	for _, a := range mcp.Members(m.Get("inputResponses").Of(m.Raw)) {
		if a.Value[0] != '{' { // every result is one
			return nil, edge.Errorf(edge.Params, "retry", "params.inputResponses.%s is not an object", edge.Printable(string(mcp.Unquote(a.Name))))
		}
	}
	wrong := relay.ErrSpent()
	if !ps.Claims.Use(time.Now(), s.Key(), by) {
		if by == "" {
			return nil, relay.ErrClaimed()
		}
		return nil, ErrState() // its reservation has ended
	}
	ps.mu.Lock()
	var p *parkedCall
	if s.Node == ps.Node {
		p = ps.calls[s.Call]
	}
	ps.mu.Unlock()
	if p == nil {
		return nil, wrong
	}
	p.mu.Lock()
	if p.round != s.Round || p.now != nil || p.over {
		p.mu.Unlock()
		return nil, wrong // used before
	}
	p.now = x
	p.open.Store(0)
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
			left = append(left, a) // asked again with the next round
		}
	}
	p.waiting = left
	p.mu.Unlock()
	if len(left) > 0 {
		p.rouse()
	}
	return p.await(ctx, x)
}

// Held returns what reports whether a call of a server that is parked now still is.
func (ps *Parked) Held(server string) func() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var ids []string
	for id, p := range ps.calls {
		if p.server == server {
			ids = append(ids, id)
		}
	}
	return func() bool {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		return slices.ContainsFunc(ids, func(id string) bool { return ps.calls[id] != nil })
	}
}

// Holds reports whether the call of a state is here and waits for this round. It waits for no
// client: messages of other edges are read one after the other, and it is asked in between.
func (ps *Parked) Holds(s State) bool {
	ps.mu.Lock()
	var p *parkedCall
	if s.Node == ps.Node {
		p = ps.calls[s.Call]
	}
	ps.mu.Unlock()
	return p != nil && s.Round > 0 && p.open.Load() == int64(s.Round)
}

// Verify opens the requestState of an exchange. It must be of a parked call, of this
// client and of this request in the words of its backend.
func (ps *Parked) Verify(x *edge.Exchange, m *mcp.Message) (State, bool) {
	s, ok := ps.Sealer().Open(m.Text("requestState"))
	ok = ok && s.Call != "" && x.Target != nil && s.Server == x.Server && s.Backend == x.Target.Backend &&
		s.Principal == x.Identity.Principal() && repeats(x, m, s.Digest)
	return s, ok
}

// await waits until the call has ended or has questions, or until its client
// has left, which ends it.
func (p *parkedCall) await(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		p.leave()
		p.cancel()
		return nil, edge.Errorf(edge.Gone, "parked call", "%w", ctx.Err())
	case <-p.wake:
		p.gather()
		r, err := p.inputRequired(x)
		switch {
		case err != nil: // its client hears of it no longer
			p.leave()
			p.cancel()
			return nil, err
		case r != nil:
			x.Parked = func() { p.leave(); p.cancel() }
			return r, nil
		}
		return p.await(ctx, x)
	}
	p.leave()
	if p.err != nil && p.parked.closed() {
		return nil, relay.ErrHolderGone()
	}
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

// togetherHere is that for a tool of the edge's own, whose questions begin on goroutines of
// their own: nobody who reads them sees the difference.
const togetherHere = 25 * time.Millisecond

func (p *parkedCall) gather() {
	wait := together
	if p.backend == "" {
		wait = togetherHere
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.done:
	}
}

// inputRequired ends a round: the client gets every question that waits.
func (p *parkedCall) inputRequired(x *edge.Exchange) (*edge.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		return nil, nil // the call was answered or given up meanwhile
	}
	ps := p.parked
	ps.mu.Lock()
	if p.id == "" {
		if len(ps.calls) >= ps.Most {
			ps.mu.Unlock()
			p.cancel()
			return nil, edge.Errorf(edge.Overload, "park", "%d calls wait for their clients, which is the limit", ps.Most)
		}
		mine := ps.count[p.holder]
		if each := ps.each(); mine.calls >= each {
			ps.mu.Unlock()
			p.cancel()
			return nil, edge.Errorf(edge.Overload, "park", "%d calls wait for this client, which is the limit: answer some", each)
		}
		if mine.bytes+p.size > ps.Part || ps.all+p.size > ps.Room {
			ps.mu.Unlock()
			p.cancel()
			return nil, edge.Errorf(edge.Overload, "park", "the calls that wait for their clients may have %d bytes, %d of them for this one, which is the limit", ps.Room, ps.Part)
		}
		var raw [16]byte
		if _, err := rand.Read(raw[:]); err != nil {
			ps.mu.Unlock()
			p.cancel()
			return nil, edge.Errorf(edge.Internal, "park", "%w", err)
		}
		p.id = base64.RawURLEncoding.EncodeToString(raw[:])
		ps.calls[p.id] = p
		ps.count[p.holder] = held{mine.calls + 1, mine.bytes + p.size}
		ps.all += p.size
	}
	ps.mu.Unlock()
	p.round++
	p.now = nil
	p.open.Store(int64(p.round))
	round := p.round
	p.expiry = time.AfterFunc(ps.TTL, func() { p.expire(round) })
	requests := []byte{'{'}
	for i, a := range p.waiting {
		if i > 0 {
			requests = append(requests, ',')
		}
		requests = append(mcp.AppendString(requests, a.key), `:{"method":`...)
		requests = mcp.AppendString(requests, a.question.Method)
		// Requests without params get an empty object, which some clients require.
		params := a.question.Params
		if params == nil {
			params = []byte("{}")
		}
		requests = append(append(requests, `,"params":`...), params...)
		requests = append(requests, '}')
	}
	state := ps.Sealer().Seal(State{Call: p.id, Node: ps.Node, Round: p.round, Server: p.server, Backend: p.backend, Principal: p.owner, Digest: p.digest, Expires: time.Now().Add(ps.TTL).Unix()})
	result := append([]byte(`{"resultType":"input_required","inputRequests":`), requests...)
	result = mcp.AppendString(append(result, `},"requestState":`...), state)
	return edge.Reply(x.Request, append(result, '}'))
}

// leave removes a call that has ended. A retry that found it before is too late, since
// only one exchange gets the answer.
func (p *parkedCall) leave() {
	p.mu.Lock()
	id := p.id
	p.now, p.over = nil, true
	p.open.Store(0)
	p.mu.Unlock()
	p.parked.mu.Lock()
	p.parked.remove(p, id)
	p.parked.mu.Unlock()
}

// expire gives up a call whose client has not come back by now.
func (p *parkedCall) expire(round int) {
	p.mu.Lock()
	back := p.round != round || p.now != nil
	p.over = p.over || !back
	p.mu.Unlock()
	if !back {
		p.leave()
		if p.backend != "" { // a tool of the edge's own goes on without the answer
			p.cancel()
		}
	}
}

// Late says that the call was ended by its time, so that an answer that comes later is
// refused.
func (p *parkedCall) Late() {
	p.mu.Lock()
	away := p.now == nil
	p.over = p.over || away
	p.mu.Unlock()
	if away {
		p.leave()
	}
}

// remove removes a call and its counts; ps.mu is held.
func (ps *Parked) remove(p *parkedCall, id string) {
	if ps.calls[id] != p {
		return
	}
	delete(ps.calls, id)
	ps.all -= p.size
	left := held{ps.count[p.holder].calls - 1, ps.count[p.holder].bytes - p.size}
	if ps.count[p.holder] = left; left.calls == 0 {
		delete(ps.count, p.holder)
	}
}

// fewParked is the least bound of parked calls for one holder.
const fewParked = 16

// each returns how many calls of one holder may be parked: a quarter of all, so that
// one holder cannot take every place.
func (ps *Parked) each() int { return max(ps.Most/4, min(ps.Most, fewParked)) }

// Send passes a notification on to the exchange that waits for the call, with the
// progress token of that exchange.
func (p *parkedCall) Send(n *mcp.Message) error {
	p.mu.Lock()
	x := p.now
	if x == nil {
		p.parked.dropped.Add(1)
		p.mu.Unlock()
		return nil
	}
	defer p.mu.Unlock() // the exchange must not end meanwhile
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
func (p *parkedCall) Ask(ctx context.Context, questions map[string]edge.Question) (map[string]edge.Answer, error) {
	mine, own := make(map[string]*ask, len(questions)), make(map[*ask]bool, len(questions))
	size := 0
	for _, q := range questions {
		size += len(q.Params)
	}
	if !p.parked.grow(p, size) {
		return nil, errRoom()
	}
	defer p.parked.grow(p, -size)
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return nil, edge.Errorf(edge.Gone, "ask", "the client did not come back with an answer")
	}
	for _, key := range slices.Sorted(maps.Keys(questions)) {
		q := questions[key]
		if mcp.OpensPage(q.Method, q.Params) { // the modern era does not number them
			q.Params = mcp.Change(q.Params, []string{"elicitationId"})
		}
		a := &ask{key: p.keyOf(q), question: q, answer: make(chan edge.Answer, 1)}
		mine[key], own[a] = a, true
		if p.waiting = append(p.waiting, a); q.Sent != nil {
			q.Sent()
		}
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

// keyOf returns the key of a question, which no other that waits has; p.mu is held.
func (p *parkedCall) keyOf(q edge.Question) string {
	key := q.Key
	for key == "" || slices.ContainsFunc(p.waiting, func(a *ask) bool { return a.key == key }) {
		p.keys++
		key = "input_" + strconv.Itoa(p.keys)
	}
	return key
}

// rouse wakes the exchange that waits for the call.
func (p *parkedCall) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Close ends every parked call.
func (ps *Parked) Close() {
	ps.mu.Lock()
	all := ps.calls
	ps.calls, ps.count, ps.all, ps.over = make(map[string]*parkedCall), make(map[string]held), 0, true
	ps.mu.Unlock()
	for _, p := range all {
		p.cancel()
	}
	ps.work.Wait()
}

func (ps *Parked) closed() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.over
}

// Len returns how many calls wait for their clients.
func (ps *Parked) Len() int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.calls)
}

// Dropped returns the number of notifications that arrived while no exchange waited
// for their call.
func (ps *Parked) Dropped() int64 { return ps.dropped.Load() }
