package stdio

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

const (
	// maxPast is how many subscriptions that another has taken the place of a process may have
	// before they are ended.
	maxPast = 8

	// maxWished is how many resources may be listened to at one process, each counted as often as
	// somebody does.
	maxWished = 20_000

	// untilEnded is how long the answer to a subscription that was cancelled is awaited: not all
	// servers send one.
	untilEnded = 250 * time.Millisecond
)

// ownListen begins the ids, JSON text, of the subscriptions that a process is asked for.
const ownListen = `"weir-listen-`

// listeners are those who listen to one process, which has one subscription for all of them: a
// server made with the Go SDK (1.8) keeps no more of a connection, and forgets it when any other
// ends. So who wants more than it is of has it replaced by another, and the one before is not
// ended but no longer heard: nothing is missed in between, of whatever server.
type listeners struct {
	send func(raw []byte) error

	mu     sync.Mutex
	all    map[listenerKey]*listener
	wished int             // resources of all of them
	waits  []*listener     // that are not acknowledged
	alone  bool            // each of them is asked for by itself: the server has refused several together
	now    *subscription   // that the server has acknowledged; nil for none
	next   *subscription   // that it was asked for and has not acknowledged; nil for none
	past   map[string]bool // ids of those before now
	ending map[string]bool // of those that were cancelled and not answered; nothing else is asked for meanwhile
	number uint64          // of the last
	meta   []byte          // JSON text: _meta of the last
	adding *listener       // whose Listen has not returned
	due    []func()        // what they are told once mu is free
}

// listenerKey is the one who listens, where several share the process, and the id of the request.
type listenerKey struct {
	of *member
	id string
}

// listener is one subscriptions/listen.
type listener struct {
	key  listenerKey
	wish wish
	meta []byte // JSON text: _meta of the request; nil once it was sent
	hear func(m *mcp.Message, must bool)
	fail func(error)
	open bool       // it was acknowledged
	err  error      // why it could not be asked for
	told sync.Mutex // one thing after the other, the acknowledgement first
}

// subscription is one subscriptions/listen that the process was sent.
type subscription struct {
	id       string
	asked    wish
	honoured wish
	of       []*listener // who waits for it
}

// kinds are bits of the lists whose changes are told of.
type kinds uint8

var kindsOf = map[string]kinds{"toolsListChanged": 1, "promptsListChanged": 2, "resourcesListChanged": 4}

// wish is the notifications member of subscriptions/listen.
type wish struct {
	kinds kinds
	uris  map[string]bool
}

// wishOf reads a wish, and reports false for one that is empty or has what this edge does not know.
func wishOf(notifications []byte) (w wish, known bool) {
	w.uris, known = make(map[string]bool), true
	for _, f := range mcp.Members(notifications) {
		kind, list := kindsOf[string(f.Name)]
		switch {
		case list && string(f.Value) == "true":
			w.kinds |= kind
		case list && string(f.Value) == "false":
		case string(f.Name) == "resourceSubscriptions" && f.Value[0] == '[':
			for _, u := range mcp.Elements(f.Value) {
				known = known && len(u) > 0 && u[0] == '"'
				w.uris[mcp.String(u)] = true
			}
		default:
			known = false
		}
	}
	return w, known && (w.kinds != 0 || len(w.uris) > 0)
}

// text is the wish as JSON.
func (w wish) text() []byte {
	var set []mcp.Member
	for _, name := range []string{"toolsListChanged", "promptsListChanged", "resourcesListChanged"} {
		if w.kinds&kindsOf[name] != 0 {
			set = append(set, mcp.With(name, "true"))
		}
	}
	if len(w.uris) > 0 {
		var uris []byte
		for _, u := range slices.Sorted(maps.Keys(w.uris)) {
			uris = mcp.AppendString(append(uris, ','), u)
		}
		uris[0] = '['
		set = append(set, mcp.Raw("resourceSubscriptions", append(uris, ']')))
	}
	return mcp.Change(nil, nil, set...)
}

// and returns what is in both.
func (w wish) and(other wish) wish {
	both := wish{w.kinds & other.kinds, make(map[string]bool)}
	for uri := range w.uris {
		if other.uris[uri] {
			both.uris[uri] = true
		}
	}
	return both
}

// covers reports whether a notification is one that was wished for.
func (w wish) covers(n *mcp.Message) bool {
	switch n.Method {
	case "notifications/tools/list_changed":
		return w.kinds&1 != 0
	case "notifications/prompts/list_changed":
		return w.kinds&2 != 0
	case "notifications/resources/list_changed":
		return w.kinds&4 != 0
	}
	return w.uris[n.Text("uri")]
}

// has reports whether who wishes for w needs no other subscription. A resource that was refused
// may be there meanwhile; lists that the server does not tell of stay so.
func (s *subscription) has(w wish) bool {
	if s == nil || w.kinds&^s.asked.kinds != 0 {
		return false
	}
	for uri := range w.uris {
		if !s.honoured.uris[uri] {
			return false
		}
	}
	return true
}

// is reports whether an id, JSON text, is that of the subscription.
func (s *subscription) is(id string) bool { return s != nil && s.id == id }

// add has one more listen. It reports false where the wish has something in it that only the
// server knows, so that it has to be sent the request itself. Errors are as of edge.Stream.Send.
func (l *listeners) add(of *member, n *mcp.Message, hear func(*mcp.Message, bool), fail func(error)) (bool, error) {
	w, known := wishOf(n.Get("notifications").Of(n.Raw))
	if !known {
		return false, nil
	}
	e := &listener{key: listenerKey{of, string(n.IDText())}, wish: w, meta: bytes.Clone(n.Get("_meta").Of(n.Raw)), hear: hear, fail: fail}
	l.mu.Lock()
	defer l.unlock()
	if l.wished+len(w.uris) > maxWished {
		return true, edge.Errorf(edge.Overload, "listen", "%d resources are listened to at the process of the server, and more cannot be", maxWished)
	}
	if l.all == nil {
		l.all = make(map[listenerKey]*listener)
	}
	if before := l.all[e.key]; before != nil {
		l.drop(before)
	}
	l.all[e.key] = e
	l.wished += len(w.uris)
	l.waits = append(l.waits, e)
	l.adding = e
	l.step()
	l.adding = nil
	return true, e.err
}

// remove takes one who listens out, and reports false where it is not there.
func (l *listeners) remove(of *member, id []byte) bool {
	l.mu.Lock()
	defer l.unlock()
	e := l.all[listenerKey{of, string(id)}]
	if e == nil {
		return false
	}
	l.drop(e)
	l.rest()
	return true
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
	l.rest()
}

// any reports whether somebody listens but the edge itself.
func (l *listeners) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.all {
		if k.id != edge.NewsID {
			return true
		}
	}
	return false
}

// unlock frees mu, and tells what is due.
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
		delete(l.all, e.key)
		l.wished -= len(e.wish.uris)
	}
	l.waits = slices.DeleteFunc(l.waits, func(one *listener) bool { return one == e })
}

// rest ends what the process has where nobody listens any more.
func (l *listeners) rest() {
	if len(l.all) == 0 && l.next == nil && l.now != nil {
		l.cancel()
	}
}

// cancel ends all subscriptions.
func (l *listeners) cancel() {
	l.ending = l.past
	if l.ending == nil {
		l.ending = make(map[string]bool)
	}
	l.ending[l.now.id] = true
	l.now, l.past = nil, nil
	for id := range l.ending {
		_ = l.send(cancelled([]byte(id), "nobody listens to it any more")) // a process that has ended needs no word
	}
	all := l.ending
	time.AfterFunc(untilEnded, func() {
		l.mu.Lock()
		defer l.unlock()
		clear(all) // those that are not answered never will be
		l.step()
	})
}

// step asks for what is waited for, unless something else is under way.
func (l *listeners) step() {
	if l.next != nil || len(l.ending) > 0 {
		return
	}
	l.waits = slices.DeleteFunc(l.waits, func(e *listener) bool {
		there := l.now.has(e.wish)
		if there {
			l.admit(e)
		}
		return there
	})
	switch {
	case len(l.waits) == 0:
		l.alone = false
	case l.now != nil && len(l.past) >= maxPast:
		l.cancel()
	case l.alone:
		l.ask(l.waits[:1])
	default:
		l.ask(l.waits)
	}
}

// ask asks for a subscription for those who have been acknowledged and some others.
func (l *listeners) ask(of []*listener) {
	all := wish{uris: make(map[string]bool)}
	for _, e := range l.all {
		if e.open || slices.Contains(of, e) {
			all.kinds |= e.wish.kinds
			maps.Copy(all.uris, e.wish.uris)
		}
	}
	for _, e := range of {
		l.meta, e.meta = e.meta, nil
	}
	l.number++
	l.next = &subscription{id: ownListen + strconv.FormatUint(l.number, 10) + `"`, asked: all, of: slices.Clone(of)}
	var params []byte
	if l.meta != nil {
		params = mcp.Change(nil, nil, mcp.Raw("_meta", l.meta))
	}
	params = mcp.Change(params, nil, mcp.Raw("notifications", all.text()))
	err := l.send(mcp.AppendRequest(nil, []byte(l.next.id), "subscriptions/listen", params))
	if err == nil {
		return
	}
	l.next = nil
	for _, e := range of {
		l.drop(e)
		if e.err = err; e != l.adding {
			l.due = append(l.due, func() { e.fail(err) })
		}
	}
}

// admit tells a listener that it is heard, and with what of its wish.
func (l *listeners) admit(e *listener) {
	n, err := mcp.Decode(mcp.AppendRequest(nil, nil, "notifications/subscriptions/acknowledged",
		mcp.Change(nil, nil, mcp.Raw("_meta", mcp.Change(nil, nil, mcp.Raw(mcp.MetaSubscription, []byte(e.key.id)))),
			mcp.Raw("notifications", e.wish.and(l.now.honoured).text()))))
	if err != nil {
		return
	}
	e.open, e.meta = true, nil
	e.told.Lock() // nobody else has it before it is open
	l.due = append(l.due, func() {
		defer e.told.Unlock()
		e.hear(n, true)
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

// hear takes a message of the process, and reports whether it was of its subscription.
func (l *listeners) hear(n *mcp.Message) bool {
	id := n.IDText()
	if n.Kind == mcp.Notification {
		switch n.Method {
		case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
			"notifications/resources/updated", "notifications/subscriptions/acknowledged":
			id = n.Meta(mcp.MetaSubscription).Of(n.Raw)
		case "notifications/cancelled":
			id = n.Get("requestId").Of(n.Raw)
		}
	}
	if !bytes.HasPrefix(id, []byte(ownListen)) || n.Kind == mcp.Request {
		return false
	}
	l.mu.Lock()
	defer l.unlock()
	switch own := string(id); {
	case n.Kind != mcp.Notification:
		l.over(own, func(e *listener) {
			if one, err := mcp.Decode(mcp.Splice(nil, n.Raw, n.WithID([]byte(e.key.id)))); err == nil {
				e.hear(one, true)
			}
		})
	case n.Method == "notifications/cancelled":
		l.over(own, func(e *listener) {
			params := mcp.Change(n.Params.Of(n.Raw), nil, mcp.Raw("requestId", []byte(e.key.id)))
			if one, err := mcp.Decode(mcp.AppendRequest(nil, nil, n.Method, params)); err == nil {
				e.hear(one, true)
			}
		})
	case n.Method == "notifications/subscriptions/acknowledged":
		l.acknowledged(own, n)
	case l.now.is(own), l.next.is(own):
		l.changed(n)
	}
	return true
}

// failed is edge.Owner.Failed, and reports whether it is of the subscription.
func (l *listeners) failed(id []byte, why error) bool {
	if !bytes.HasPrefix(id, []byte(ownListen)) {
		return false
	}
	l.mu.Lock()
	defer l.unlock()
	l.over(string(id), func(e *listener) { e.fail(why) })
	return true
}

// What follows has mu held.

// acknowledged has a subscription take the place of the one before.
func (l *listeners) acknowledged(id string, n *mcp.Message) {
	if !l.next.is(id) {
		return
	}
	s := l.next
	s.honoured = s.asked
	if said := n.Get("notifications"); said.OK() {
		some, _ := wishOf(said.Of(n.Raw))
		s.honoured = s.asked.and(some)
	}
	if l.now != nil {
		if l.past == nil {
			l.past = make(map[string]bool)
		}
		l.past[l.now.id] = true
	}
	l.now, l.next = s, nil
	for _, e := range s.of {
		if l.all[e.key] == e {
			l.waits = slices.DeleteFunc(l.waits, func(one *listener) bool { return one == e })
			l.admit(e)
		}
	}
	l.step()
	l.rest()
}

// changed tells all of a change who wish for it; of the edge's own, one.
func (l *listeners) changed(n *mcp.Message) {
	news := false
	for _, e := range l.all {
		own := e.key.id == edge.NewsID
		if !e.open || !e.wish.covers(n) || own && news {
			continue
		}
		news = news || own
		l.say(e, func() {
			if one, err := mcp.Decode(mcp.Splice(nil, n.Raw, n.WithMeta(nil, mcp.Raw(mcp.MetaSubscription, []byte(e.key.id))))); err == nil {
				e.hear(one, false)
			}
		})
	}
}

// over notes that the server has ended a subscription, or refused it. tell has a listener told so.
func (l *listeners) over(id string, tell func(*listener)) {
	var ended []*listener
	switch {
	case l.next.is(id):
		of := slices.DeleteFunc(l.next.of, func(e *listener) bool { return l.all[e.key] != e })
		asked := len(l.next.of) > 0
		l.next = nil
		switch {
		case len(of) > 1:
			l.alone = true // one may be refused what others are not
		case len(of) == 1:
			ended = of
		case !asked: // nor has who listened anything now
			ended = slices.Collect(maps.Values(l.all))
		}
		if asked && l.now != nil && len(of) <= 1 {
			// What was acknowledged may have ended with the one that was refused.
			l.ask(nil)
		}
	case l.now.is(id):
		l.now = nil
		for _, e := range l.all {
			if e.open {
				ended = append(ended, e)
			}
		}
	default:
		delete(l.past, id)
		delete(l.ending, id)
	}
	for _, e := range ended {
		l.drop(e)
		l.say(e, func() { tell(e) })
	}
	l.step()
	l.rest()
}
