package stdio

import (
	"bytes"
	"hash/maphash"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

const (
	// maxPast is how many subscriptions to changes of lists a process may have that another has
	// taken the place of, before they are cancelled.
	maxPast = 8

	// maxParked is how many subscriptions to resources a process may have that nobody listens to any
	// longer, because others listen to the same resources.
	maxParked = 128

	// maxCompared is how many resources of a subscription are compared with those of others.
	maxCompared = 1000

	// maxLeft is how many answers to subscriptions that were cancelled are waited for: not all
	// servers send one.
	maxLeft = 4096

	// maxMeta is how long what a client says of itself may be to be said to the process for all.
	maxMeta = 16 << 10

	// unheard is how long after the last who listens has left the process is told so: clients that
	// come back find the subscription as it was.
	unheard = 250 * time.Millisecond

	// unanswered is how long the process may take to acknowledge a subscription of all.
	unanswered = 5 * time.Minute
)

// ownListen begins the ids, JSON text, of the subscriptions of all listeners together.
const ownListen = `"weir-listen-`

// listeners are those who listen at one process. For changes of lists it has one subscription for
// all of them, since a server made with the Go SDK (1.8) keeps no more of a connection, and forgets
// it when any other subscription ends: so it is asked for again after each that does. The one
// before is not cancelled, which would be another end, but no longer heard; of servers that keep
// subscriptions apart nothing is missed in between.
//
// What else somebody listens for is asked for by itself, under the id of the request. When that
// ends, such a server forgets the resources of it for all: so it is parked, and cancelled when
// nobody else listens to one of them.
type listeners struct {
	log  *slog.Logger
	send func(raw []byte) error
	some atomic.Int32 // how many there are besides the edge itself
	own  atomic.Int32 // len(alone) + len(left)

	mu    sync.Mutex
	all   map[listenerKey]*listener // for changes of lists
	waits []*listener               // of all, those that are not acknowledged
	due   []func()                  // what is done once mu is free

	now      *subscription   // of all, that the server has acknowledged; nil for none
	next     *subscription   // that it was asked for and has not acknowledged; nil for none
	past     map[string]bool // ids of those before now
	ending   map[string]bool // of those that were cancelled and are not answered
	stale    bool            // the server may have forgotten now
	timer    *time.Timer     // looks at all of this again; nil for never
	number   uint64          // of the last
	meta     []byte          // JSON text: _meta of the last that was acknowledged; nil before
	patience *time.Timer     // gives next up
	whole    bool            // the server ends it when another is asked for: who listens to more has one by itself, with its lists

	alone  map[string]*listener // subscriptions by themselves, by id
	parked []*listener          // of alone, those to which nobody listens any longer, the oldest first
	left   map[string]bool      // ids of those that were cancelled and are not answered
	uris   map[uint64]int       // how many of alone that are not parked are of a resource, by its hash
}

// seed is that of the hashes of resources.
var seed = maphash.MakeSeed()

// listenerKey is the one who listens, where several share the process, and the id of the request.
type listenerKey struct {
	of *member
	id string
}

// listener is one subscriptions/listen.
type listener struct {
	key   listenerKey
	lists lists
	rest  *mcp.Message // the request without them, to be sent by itself; nil for nothing else
	whole *mcp.Message // the request
	owner
	uris  []uint64   // hashes of the resources that it listens to by itself
	early lists      // that have changed before it was acknowledged
	why   string     // why it is parked; "" while it is not
	bare  bool       // the server honours nothing of what it listens to by itself
	open  bool       // it was acknowledged
	told  sync.Mutex // one thing after the other, the acknowledgement first
}

// owner is how a listener is told, and the process for it.
type owner struct {
	hear func(m *mcp.Message, must bool)
	pass func(raw []byte) error // sends to the process what is answered to the owner itself
	done func()                 // such an answer was kept from it
	fail func(error)
}

// subscription is one subscriptions/listen for all.
type subscription struct {
	id              string
	asked, honoured lists
	meta            []byte
	of              []*listener // who waits for it
}

// is reports whether an id, JSON text, is that of the subscription.
func (s *subscription) is(id string) bool { return s != nil && s.id == id }

// add has one more listen. Errors are as of edge.Stream.Send.
func (l *listeners) add(of *member, n *mcp.Message, o owner) error {
	e := &listener{key: listenerKey{of, string(n.IDText())}, whole: n, owner: o}
	wished := n.Get("notifications")
	var rest []byte
	if wished.OK() {
		e.lists, rest = listsOf(wished.Of(n.Raw))
	}
	if e.lists != 0 && len(mcp.Members(rest)) > 0 {
		var err error
		if e.rest, err = mcp.Decode(mcp.Splice(nil, n.Raw, mcp.Edit{Span: wished, With: rest})); err != nil {
			return edge.Errorf(edge.Invalid, "listen", "%w", err)
		}
	}
	l.mu.Lock()
	defer l.unlock()
	if of != nil {
		if of.mine == nil {
			of.mine = make(map[*listener]bool)
		}
		of.mine[e] = true
	}
	if e.lists == 0 || e.rest != nil && l.whole {
		e.lists = 0
		l.byItself(e, n)
		return nil
	}
	if l.all == nil {
		l.all = make(map[listenerKey]*listener)
	}
	if before := l.all[e.key]; before != nil {
		l.drop(before)
	}
	if l.all[e.key] = e; e.key.id != edge.NewsID {
		l.some.Add(1)
	}
	l.waits = append(l.waits, e)
	l.step()
	return nil
}

// remove takes one who listens out, for a reason that the process is told where it was asked for
// that by itself.
func (l *listeners) remove(of *member, id []byte, why string) {
	l.mu.Lock()
	defer l.unlock()
	if e := l.all[listenerKey{of, string(id)}]; e != nil {
		l.drop(e)
	}
	if e := l.alone[string(plain(id))]; e != nil {
		l.park(e, why)
	}
	l.rest()
}

// leave takes out all with which a member listens.
func (l *listeners) leave(of *member) {
	l.mu.Lock()
	defer l.unlock()
	for e := range of.mine {
		if l.drop(e); l.alone[plain(e.key.id)] == e {
			l.park(e, "its client has left")
		}
	}
	l.rest()
}

// close notes that the process has ended: its clocks keep nothing of it.
func (l *listeners) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, clock := range []*time.Timer{l.timer, l.patience} {
		if clock != nil {
			clock.Stop()
		}
	}
}

// unlock frees mu, and does what is due.
func (l *listeners) unlock() {
	due := l.due
	l.due = nil
	l.mu.Unlock()
	for _, f := range due {
		f()
	}
}

// What follows has mu held.

func (l *listeners) drop(e *listener) {
	if l.all[e.key] == e {
		if delete(l.all, e.key); e.key.id != edge.NewsID {
			l.some.Add(-1)
		}
	}
	l.waits = slices.DeleteFunc(l.waits, func(one *listener) bool { return one == e })
	l.isGone(e)
}

// isGone notes of a listener that nothing has it any longer, if so.
func (l *listeners) isGone(e *listener) {
	if e.key.of != nil && l.all[e.key] != e && l.alone[plain(e.key.id)] != e {
		delete(e.key.of.mine, e)
	}
}

// rest has ended in a while what nobody listens to, unless somebody does then.
func (l *listeners) rest() {
	if len(l.parked) > 0 || len(l.all) == 0 && (l.now != nil || len(l.past) > 0) {
		l.later(unheard)
	}
}

// later looks at everything again.
func (l *listeners) later(in time.Duration) {
	if l.timer != nil {
		return
	}
	l.timer = time.AfterFunc(in, func() {
		defer edge.Contain(l.log, "listeners")
		l.mu.Lock()
		defer l.unlock()
		l.timer = nil
		l.unpark()
		if len(l.all) == 0 && l.next == nil {
			if l.now != nil {
				l.past, l.now = add(l.past, l.now.id), nil
			}
			l.cancel()
		}
		l.step()
	})
}

// cancel ends the subscriptions of the past.
func (l *listeners) cancel() {
	l.ending = nil
	for id := range l.past {
		if l.send(cancelled([]byte(id), "nobody listens to it any more")) == nil {
			l.ending = add(l.ending, id)
			delete(l.past, id)
		}
	}
}

// add puts an id into a set, which may be nil.
func add(set map[string]bool, id string) map[string]bool {
	if set == nil {
		set = make(map[string]bool)
	}
	set[id] = true
	return set
}

// step asks for what is waited for, unless something is under way.
func (l *listeners) step() {
	l.waits = slices.DeleteFunc(l.waits, func(e *listener) bool {
		there := l.now != nil && e.lists&^l.now.asked == 0 && (l.next == nil || e.lists&^l.next.asked == 0)
		if there {
			l.admit(e)
		}
		return there
	})
	if l.next != nil {
		return
	}
	if len(l.waits) > 0 || l.stale && l.now != nil && len(l.all) > 0 {
		l.ask()
	}
}

// ask asks for a subscription for all.
func (l *listeners) ask() {
	l.stale = false
	l.number++
	s := &subscription{id: ownListen + strconv.FormatUint(l.number, 10) + `"`, meta: l.meta, of: slices.Clone(l.waits)}
	if s.meta == nil { // the server may refuse what one says of itself
		s.of = s.of[:1]
		s.meta, s.asked = ofAll(s.of[0].whole), s.of[0].lists
	}
	for _, e := range l.all {
		if l.meta != nil || e.open {
			s.asked |= e.lists
		}
	}
	params := mcp.Change(nil, nil, mcp.Raw("_meta", s.meta), mcp.Raw("notifications", mcp.Change(nil, nil, s.asked.members()...)))
	if err := l.send(mcp.AppendRequest(nil, []byte(s.id), "subscriptions/listen", params)); err != nil {
		for _, e := range slices.Clone(l.waits) { // it says nothing of one
			l.drop(e)
			l.due = append(l.due, func() { e.fail(err) })
		}
		if l.stale = l.now != nil && edge.KindOf(err) == edge.Overload; l.stale {
			l.later(unheard)
		}
		return
	}
	l.next = s
	l.patience = time.AfterFunc(unanswered, func() {
		defer edge.Contain(l.log, "listeners")
		l.mu.Lock()
		defer l.unlock()
		if l.next == s {
			l.past = add(l.past, s.id) // what comes later is not heard
			l.ends(s.id, nil, edge.Errorf(edge.Unavailable, "listen", "the server has not acknowledged the subscription in %s", unanswered))
		}
	})
}

// ofAll is what a subscription of all has for _meta: what the revision requires of a request, and
// nothing that is of the one.
func ofAll(request *mcp.Message) []byte {
	var required []mcp.Member
	for _, m := range mcp.Members(request.Get("_meta").Of(request.Raw)) {
		switch string(m.Name) {
		case mcp.MetaVersion, mcp.MetaClientInfo, mcp.MetaCapabilities:
			required = append(required, m)
		}
	}
	meta := mcp.Change(nil, nil, required...)
	if len(meta) <= maxMeta {
		return meta
	}
	return mcp.Change(nil, nil, mcp.Raw(mcp.MetaVersion, mcp.Lookup(meta, mcp.MetaVersion)), mcp.With(mcp.MetaClientInfo, `{"name":"weir","version":""}`), mcp.With(mcp.MetaCapabilities, "{}"))
}

// admit tells a listener that it is heard, and of what; one that listens to more than lists when
// the server has said so of that.
func (l *listeners) admit(e *listener) {
	if e.rest != nil {
		l.byItself(e, e.rest)
		return
	}
	n, err := mcp.Decode(mcp.AppendRequest(nil, nil, "notifications/subscriptions/acknowledged",
		mcp.Change(nil, nil, mcp.Raw("_meta", mcp.Change(nil, nil, mcp.Raw(mcp.MetaSubscription, []byte(e.key.id)))),
			mcp.Raw("notifications", mcp.Change(nil, nil, (e.lists&l.now.honoured).members()...)))))
	if err != nil {
		l.drop(e)
		l.due = append(l.due, func() { e.fail(err) })
		return
	}
	l.opens(e, n)
}

// opens tells a listener of its acknowledgement, and from then on of changes.
func (l *listeners) opens(e *listener, acknowledgement *mcp.Message) {
	e.open, e.whole, e.rest = true, nil, nil
	early := e.early
	e.told.Lock() // nobody else has it before it is open
	l.due = append(l.due, func() {
		defer e.told.Unlock()
		e.hear(acknowledgement, true)
		for _, method := range listMethods {
			if early&listOf(method) != 0 {
				e.changed(method)
			}
		}
	})
}

// say tells a listener of something in its turn.
func (l *listeners) say(e *listener, f func()) {
	l.due = append(l.due, func() {
		e.told.Lock()
		defer e.told.Unlock()
		f()
	})
}

// hear takes a message of the process, and reports whether it is nobody else's.
func (l *listeners) hear(n *mcp.Message) bool {
	switch n.Kind {
	case mcp.Result, mcp.Failure:
		return l.over(n.IDText(), n, nil)
	case mcp.Notification:
		switch n.Method {
		case "notifications/cancelled":
			return l.over(n.Get("requestId").Of(n.Raw), n, nil)
		case "notifications/subscriptions/acknowledged":
			return l.acknowledged(n.Meta(mcp.MetaSubscription).Of(n.Raw), n)
		case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed", "notifications/resources/updated":
			return l.changed(n.Meta(mcp.MetaSubscription).Of(n.Raw), n)
		}
	}
	return false
}

// ours reports whether an id, JSON text, may be that of a subscription that is known here.
func (l *listeners) ours(id []byte) (ofAll, ok bool) {
	ofAll = bytes.HasPrefix(id, []byte(ownListen))
	return ofAll, ofAll || l.own.Load() > 0
}

// acknowledged has a subscription take the place of the one before; of a subscription by itself
// the lists are said beside what else it is of.
func (l *listeners) acknowledged(id []byte, n *mcp.Message) bool {
	ofAll, ok := l.ours(id)
	if !ok {
		return false
	}
	l.mu.Lock()
	defer l.unlock()
	said := n.Get("notifications")
	if !ofAll {
		e := l.alone[string(plain(id))]
		if e == nil || e.open {
			return false
		}
		if l.all[e.key] != e { // of no lists
			e.open = true
			return false
		}
		var lists lists
		switch {
		case l.now != nil:
			lists = e.lists & l.now.honoured
		case l.next != nil: // which takes the place of one that has ended
			lists = e.lists & l.next.asked
		}
		one := n.Clone()
		if said.OK() {
			_, rest := listsOf(said.Of(n.Raw))
			e.bare = len(mcp.Members(rest)) == 0
			changed, err := mcp.Decode(mcp.Splice(nil, n.Raw, mcp.Edit{Span: said, With: mcp.Change(said.Of(n.Raw), nil, lists.members()...)}))
			if err == nil {
				one = changed
			}
		}
		l.opens(e, one)
		return true
	}
	if !l.next.is(string(id)) {
		if l.past[string(id)] { // it comes late, and the server may tell of lists under it alone
			l.stale = true
			l.step()
		}
		return true
	}
	s := l.next
	l.patience.Stop()
	l.meta = s.meta
	if s.honoured = s.asked; said.OK() {
		some, _ := listsOf(said.Of(n.Raw))
		s.honoured &= some
	}
	if l.now != nil {
		if l.past = add(l.past, l.now.id); len(l.past) > maxPast {
			l.cancel()
		}
	}
	l.now, l.next = s, nil
	l.step()
	l.rest()
	return true
}

// changed tells all of a change of lists who listen for it; of the edge's own, one. What comes for
// a parked subscription is nobody's, unless those who share its resources do not hear yet.
func (l *listeners) changed(id []byte, n *mcp.Message) bool {
	ofAll, ok := l.ours(id)
	if !ok {
		return false
	}
	l.mu.Lock()
	defer l.unlock()
	if !ofAll {
		e := l.alone[string(plain(id))]
		if e == nil || n.Method != "notifications/resources/updated" {
			return e != nil && e.lists != 0 // of its lists it is told under the subscription of all
		}
		if e.why == "" {
			return false
		}
		uri := maphash.String(seed, n.Text("uri"))
		for _, other := range l.alone {
			if _, of := slices.BinarySearch(other.uris, uri); of && other.open && other.why == "" {
				return true
			}
		}
		return false
	}
	if !l.now.is(string(id)) && !l.next.is(string(id)) {
		return true
	}
	list, news := listOf(n.Method), false
	for _, e := range l.all {
		own := e.key.id == edge.NewsID
		if e.lists&list == 0 || own && news {
			continue
		}
		if !e.open {
			e.early |= list
			continue
		}
		news = news || own
		l.say(e, func() {
			if one, err := mcp.Decode(mcp.Splice(nil, n.Raw, n.WithMeta(nil, mcp.Raw(mcp.MetaSubscription, []byte(e.key.id))))); err == nil {
				e.hear(one, false)
			}
		})
	}
	return true
}

// over notes that the server has ended a subscription, or refused it, with which it may have
// forgotten others: by a message, or by none for a reason. It reports whether that was one of all,
// whose listeners are told.
func (l *listeners) over(id []byte, n *mcp.Message, why error) bool {
	ofAll, ok := l.ours(id)
	if !ok {
		return false
	}
	l.mu.Lock()
	defer l.unlock()
	if !ofAll {
		e, left := l.alone[string(plain(id))], l.left[string(plain(id))]
		if e == nil && !left {
			return false
		}
		bare := false
		switch {
		case left:
			delete(l.left, string(plain(id)))
			l.count()
		default:
			// A server ends at once what it honours nothing of; the lists go on.
			bare = e.bare && n != nil && n.Kind == mcp.Result && l.all[e.key] == e && (l.next != nil || l.now != nil && e.lists&l.now.honoured != 0)
			l.forget(e)
			if bare {
				l.due = append(l.due, e.done)
			} else {
				l.drop(e)
			}
		}
		l.stale = true
		l.step()
		l.rest()
		return bare
	}
	l.ends(string(id), n, why)
	return true
}

// ends is over for a subscription of all; mu is held.
func (l *listeners) ends(own string, n *mcp.Message, why error) {
	var ended []*listener
	switch {
	case l.next.is(own):
		s := l.next
		ended = s.of
		l.next = nil
		l.patience.Stop()
		for _, e := range l.all {
			if e.open && l.now == nil { // it was to take the place of one that has ended
				ended = append(ended, e)
			}
		}
		l.stale = l.stale || len(s.of) > 0 // but what was asked for again, and is refused, is so another time
	case l.now.is(own) && l.next != nil:
		l.now = nil
	case l.now.is(own):
		for _, e := range l.all {
			l.whole = l.whole || l.alone[plain(e.key.id)] == e
			if e.open && (l.alone[plain(e.key.id)] != e || e.lists&l.now.honoured != 0) {
				ended = append(ended, e)
			}
		}
		l.now = nil
	case l.past[own]:
		delete(l.past, own)
	case l.ending[own]:
		delete(l.ending, own)
		l.stale = l.stale || len(l.ending) == 0
	}
	for _, e := range ended {
		if l.all[e.key] != e {
			continue // it has left
		}
		l.drop(e)
		if l.alone[plain(e.key.id)] == e {
			l.park(e, "its lists have ended")
		}
		l.say(e, func() { e.over(n, why) })
	}
	l.step()
	l.rest()
}

// changed tells the listener of a change of a list that came before its acknowledgement.
func (e *listener) changed(method string) {
	params := mcp.Change(nil, nil, mcp.Raw("_meta", mcp.Change(nil, nil, mcp.Raw(mcp.MetaSubscription, []byte(e.key.id)))))
	if one, err := mcp.Decode(mcp.AppendRequest(nil, nil, method, params)); err == nil {
		e.hear(one, false)
	}
}

// over tells the listener of the end.
func (e *listener) over(n *mcp.Message, why error) {
	if n == nil {
		e.fail(why)
		return
	}
	raw := mcp.Splice(nil, n.Raw, n.WithID([]byte(e.key.id)))
	if n.Kind == mcp.Notification {
		raw = mcp.AppendRequest(nil, nil, n.Method, mcp.Change(n.Params.Of(n.Raw), []string{"_meta"}, mcp.Raw("requestId", []byte(e.key.id))))
	}
	if one, err := mcp.Decode(raw); err == nil {
		e.hear(one, true)
	}
}
