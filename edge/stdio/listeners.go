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
	maxParked = 32

	// maxCompared is how many resources of a subscription are compared with those of others.
	maxCompared = 10_000

	// unheard is how long after the last who listens has left the process is told so: clients that
	// come back find the subscription as it was.
	unheard = time.Second
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

	now    *subscription   // of all, that the server has acknowledged; nil for none
	next   *subscription   // that it was asked for and has not acknowledged; nil for none
	past   map[string]bool // ids of those before now
	ending map[string]bool // of those that were cancelled and are not answered
	stale  bool            // the server may have forgotten now
	number uint64          // of the last
	meta   []byte          // JSON text: _meta of the last

	alone  map[string]*listener // subscriptions by themselves, by id
	parked []*listener          // of alone, those to which nobody listens any longer
	left   map[string]bool      // ids of those that were cancelled and are not answered
	uris   map[uint64]int       // how many of alone are of a resource, by its hash
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
	hear  func(m *mcp.Message, must bool)
	pass  func(raw []byte) error // sends to the process what is answered to the listener itself
	fail  func(error)
	uris  []uint64   // hashes of the resources that it listens to by itself
	why   string     // why it has ended
	open  bool       // it was acknowledged
	told  sync.Mutex // one thing after the other, the acknowledgement first
}

// subscription is one subscriptions/listen for all.
type subscription struct {
	id              string
	asked, honoured lists
	of              []*listener // who waits for it
}

// is reports whether an id, JSON text, is that of the subscription.
func (s *subscription) is(id string) bool { return s != nil && s.id == id }

// lists are bits of the kinds of lists whose changes are told of.
type lists uint8

var listsByName = map[string]lists{"toolsListChanged": 1, "promptsListChanged": 2, "resourcesListChanged": 4}

// listsOf splits the notifications member of subscriptions/listen: the lists that it wishes for,
// and the JSON text of the others.
func listsOf(notifications []byte) (w lists, rest []byte) {
	var drop []string
	for _, f := range mcp.Members(notifications) {
		kind, list := listsByName[string(f.Name)]
		if value := string(f.Value); !list || value != "true" && value != "false" {
			continue
		} else if drop = append(drop, string(f.Name)); value == "true" {
			w |= kind
		}
	}
	return w, mcp.Change(notifications, drop)
}

// members are the lists in the notifications member.
func (w lists) members() (set []mcp.Member) {
	for _, name := range []string{"toolsListChanged", "promptsListChanged", "resourcesListChanged"} {
		if w&listsByName[name] != 0 {
			set = append(set, mcp.With(name, "true"))
		}
	}
	return set
}

// listOf is the list of whose change a notification tells; 0 for others.
func listOf(method string) lists {
	switch method {
	case "notifications/tools/list_changed":
		return 1
	case "notifications/prompts/list_changed":
		return 2
	case "notifications/resources/list_changed":
		return 4
	}
	return 0
}

// add has one more listen. Errors are as of edge.Stream.Send.
func (l *listeners) add(of *member, n *mcp.Message, hear func(*mcp.Message, bool), pass func([]byte) error, fail func(error)) error {
	e := &listener{key: listenerKey{of, string(n.IDText())}, whole: n, hear: hear, pass: pass, fail: fail}
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
	if e.lists == 0 {
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
	if e := l.alone[string(plain(id))]; e != nil && !slices.Contains(l.parked, e) {
		e.why = why
		l.parked = append(l.parked, e)
		l.unpark()
	}
	l.rest()
}

// leave takes out all with which a member listens.
func (l *listeners) leave(of *member) {
	l.mu.Lock()
	defer l.unlock()
	for k, e := range l.all {
		if k.of == of {
			l.drop(e)
		}
	}
	for _, e := range l.alone {
		if e.key.of == of && !slices.Contains(l.parked, e) {
			e.why = "its client has left"
			l.parked = append(l.parked, e)
		}
	}
	l.unpark()
	l.rest()
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
}

// byItself has the process asked for a subscription, and its answers passed on.
func (l *listeners) byItself(e *listener, n *mcp.Message) {
	if l.alone == nil {
		l.alone, l.left, l.uris = make(map[string]*listener), make(map[string]bool), make(map[uint64]int)
	}
	id := plain(e.key.id)
	if before := l.alone[id]; before != nil {
		l.forget(before)
	}
	l.alone[id] = e
	e.whole, e.rest = nil, nil
	if all := mcp.Elements(mcp.Lookup(n.Get("notifications").Of(n.Raw), "resourceSubscriptions")); len(all) <= maxCompared {
		for _, uri := range all {
			e.uris = append(e.uris, maphash.String(seed, mcp.String(uri)))
		}
	}
	slices.Sort(e.uris)
	e.uris = slices.Compact(e.uris)
	for _, uri := range e.uris {
		l.uris[uri]++
	}
	l.count()
	l.due = append(l.due, func() {
		if err := e.pass(n.Raw); err != nil {
			l.mu.Lock()
			l.forget(e)
			l.drop(e)
			l.unlock()
			e.fail(err)
		}
	})
}

// forget takes out a subscription by itself.
func (l *listeners) forget(e *listener) {
	if id := plain(e.key.id); l.alone[id] == e {
		delete(l.alone, id)
		for _, uri := range e.uris {
			if l.uris[uri]--; l.uris[uri] == 0 {
				delete(l.uris, uri)
			}
		}
	}
	l.parked = slices.DeleteFunc(l.parked, func(one *listener) bool { return one == e })
	l.count()
}

func (l *listeners) count() { l.own.Store(int32(len(l.alone) + len(l.left))) }

// unpark cancels what is parked, but for subscriptions with a resource to which somebody listens.
func (l *listeners) unpark() {
	shared := make(map[uint64]int) // how many of the parked are of a resource
	for _, e := range l.parked {
		for _, uri := range e.uris {
			shared[uri]++
		}
	}
	over := len(l.parked) - maxParked
	for _, e := range slices.Clone(l.parked) {
		if over--; over < 0 && slices.ContainsFunc(e.uris, func(uri uint64) bool { return l.uris[uri] > shared[uri] }) {
			continue
		}
		l.forget(e)
		for _, uri := range e.uris {
			shared[uri]--
		}
		if len(l.left) >= maxParked { // not all servers answer
			clear(l.left)
		}
		l.left[plain(e.key.id)] = true
		l.count()
		l.due = append(l.due, func() {
			word := cancelled([]byte(e.key.id), e.why)
			if e.pass(word) != nil { // whose it was is no longer there
				_ = l.send(word)
			}
		})
	}
}

// rest has the process told in a while that nobody listens, unless somebody does then.
func (l *listeners) rest() {
	s := l.now
	if len(l.all) > 0 || s == nil {
		return
	}
	time.AfterFunc(unheard, func() {
		defer edge.Contain(l.log, "listeners")
		l.mu.Lock()
		defer l.unlock()
		if len(l.all) == 0 && l.next == nil && l.now == s {
			l.cancel(s.id)
			l.now = nil
		}
	})
}

// cancel ends the subscriptions of the past, and another; "" for none.
func (l *listeners) cancel(other string) {
	l.ending, l.past = l.past, nil
	if l.ending == nil {
		l.ending = make(map[string]bool)
	}
	if other != "" {
		l.ending[other] = true
	}
	for id := range l.ending {
		_ = l.send(cancelled([]byte(id), "nobody listens to it any more")) // a process that has ended needs no word
	}
}

// step asks for what is waited for, unless something is under way.
func (l *listeners) step() {
	if l.next != nil {
		return
	}
	l.waits = slices.DeleteFunc(l.waits, func(e *listener) bool {
		there := l.now != nil && e.lists&^l.now.asked == 0
		if there {
			l.admit(e)
		}
		return there
	})
	if len(l.waits) > 0 || l.stale && l.now != nil && len(l.all) > 0 {
		l.ask()
	}
}

// ask asks for a subscription for all.
func (l *listeners) ask() {
	l.stale = false
	l.number++
	s := &subscription{id: ownListen + strconv.FormatUint(l.number, 10) + `"`, of: slices.Clone(l.waits)}
	for _, e := range l.all {
		s.asked |= e.lists
	}
	for _, e := range s.of { // of its _meta what the revision requires, and nothing that is of the one request
		var required []mcp.Member
		for _, m := range mcp.Members(e.whole.Get("_meta").Of(e.whole.Raw)) {
			switch string(m.Name) {
			case mcp.MetaVersion, mcp.MetaClientInfo, mcp.MetaCapabilities:
				required = append(required, m)
			}
		}
		l.meta = mcp.Change(nil, nil, required...)
	}
	params := mcp.Change(nil, nil, mcp.Raw("_meta", l.meta), mcp.Raw("notifications", mcp.Change(nil, nil, s.asked.members()...)))
	if err := l.send(mcp.AppendRequest(nil, []byte(s.id), "subscriptions/listen", params)); err != nil {
		l.stale = l.now != nil // and is asked for again with what comes next
		for _, e := range s.of {
			l.drop(e)
			l.due = append(l.due, func() { e.fail(err) })
		}
		return
	}
	l.next = s
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
	e.told.Lock() // nobody else has it before it is open
	l.due = append(l.due, func() {
		defer e.told.Unlock()
		e.hear(acknowledgement, true)
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
		if l.now != nil {
			lists = e.lists & l.now.honoured
		}
		one := n.Clone()
		if said.OK() {
			changed, err := mcp.Decode(mcp.Splice(nil, n.Raw, mcp.Edit{Span: said, With: mcp.Change(said.Of(n.Raw), nil, lists.members()...)}))
			if err == nil {
				one = changed
			}
		}
		l.opens(e, one)
		return true
	}
	if !l.next.is(string(id)) {
		return true
	}
	s := l.next
	if s.honoured = s.asked; said.OK() {
		some, _ := listsOf(said.Of(n.Raw))
		s.honoured &= some
	}
	if l.now != nil {
		if l.past == nil {
			l.past = make(map[string]bool)
		}
		if l.past[l.now.id] = true; len(l.past) > maxPast {
			l.cancel("")
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
		if !slices.Contains(l.parked, e) {
			return false
		}
		uri := maphash.String(seed, n.Text("uri"))
		for _, other := range l.alone {
			if _, of := slices.BinarySearch(other.uris, uri); of && other.open && !slices.Contains(l.parked, other) {
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
		if !e.open || e.lists&list == 0 || own && news {
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
		if left {
			delete(l.left, string(plain(id)))
			l.count()
		} else {
			l.forget(e)
			l.drop(e)
			l.unpark()
		}
		l.stale = true
		l.step()
		l.rest()
		return false
	}
	var ended []*listener
	switch own := string(id); {
	case l.next.is(own):
		ended = l.next.of
		l.stale = l.stale || len(ended) > 0 // but what was asked for again, and is refused, is so another time
		l.next = nil
	case l.now.is(own):
		l.now = nil
		for _, e := range l.all {
			if e.open {
				ended = append(ended, e)
			}
		}
	case l.past[own]:
		delete(l.past, own)
		l.stale = true
	case l.ending[own]:
		delete(l.ending, own)
		l.stale = l.stale || len(l.ending) == 0
	}
	for _, e := range ended {
		if l.all[e.key] != e {
			continue // it has left
		}
		if l.drop(e); l.alone[plain(e.key.id)] != e { // else what else it listens to goes on
			l.say(e, func() { e.over(n, why) })
		}
	}
	l.step()
	l.rest()
	return true
}

// over tells the listener of the end.
func (e *listener) over(n *mcp.Message, why error) {
	if n == nil {
		e.fail(why)
		return
	}
	raw := mcp.Splice(nil, n.Raw, n.WithID([]byte(e.key.id)))
	if n.Kind == mcp.Notification {
		raw = mcp.AppendRequest(nil, nil, n.Method, mcp.Change(n.Params.Of(n.Raw), nil, mcp.Raw("requestId", []byte(e.key.id))))
	}
	if one, err := mcp.Decode(raw); err == nil {
		e.hear(one, true)
	}
}
