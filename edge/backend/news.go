package backend

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// A local server with a process for each session tells of a change on the process in which
// it came about. A client without a session, or the edge itself, listens on a process of its
// own, and its calls run in those of its principal's pool. So what these say is passed on to
// those who listen for the same principal; a legacy process is subscribed to what they have
// subscribed to before it runs their next call, and a modern one is asked for changes of its
// lists.

// news are those who listen to a local server on other processes than their calls run in.
type news struct {
	some    atomic.Bool   // there are any: without, a call costs this look alone
	version atomic.Uint64 // changes with what they have subscribed to

	mu sync.Mutex
	of map[principal][]*listener
}

// listener is one of them. What it is told waits until it takes it, so that one who is slow
// holds up no process: of each list, and of each resource, the latest.
type listener struct {
	out  edge.Client
	on   *session                // which it hears itself; nil for none
	uris func() map[string]bool  // what it has subscribed to
	has  func(uri string) bool   // whether it has
	own  bool                    // it is the edge, which hears of lists in another way
	wake chan struct{}           // holds a value while something waits
	mu   sync.Mutex              // guards due
	due  map[string]*mcp.Message // by method and URI
}

// maxNews bounds the bytes of an update that is kept whole for a listener; of a longer one only
// the URI is kept.
const maxNews = 4 << 10

// listens passes on to l what processes of a principal say, until the function that it
// returns is called.
func (w *news) listens(log *slog.Logger, who principal, l *listener) (end func()) {
	l.wake, l.due = make(chan struct{}, 1), make(map[string]*mcp.Message)
	w.mu.Lock()
	if w.of == nil {
		w.of = make(map[principal][]*listener)
	}
	w.of[who] = append(w.of[who], l)
	w.some.Store(true)
	w.mu.Unlock()
	w.version.Add(1)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer edge.Contain(log, "news")
		l.run(over)
	}()
	return func() {
		w.mu.Lock()
		all := slices.DeleteFunc(w.of[who], func(one *listener) bool { return one == l })
		if w.of[who] = all; len(all) == 0 {
			delete(w.of, who)
		}
		w.some.Store(len(w.of) > 0)
		w.mu.Unlock()
		w.version.Add(1)
		close(over)
		<-done // out is not used any longer
	}
}

// run tells the listener what waits for it.
func (l *listener) run(over <-chan struct{}) {
	for {
		select {
		case <-l.wake:
		case <-over:
			return
		}
		l.mu.Lock()
		due := l.due
		l.due = make(map[string]*mcp.Message)
		l.mu.Unlock()
		for _, n := range due {
			_ = l.out.Send(n) // one who is gone ends its listening
		}
	}
}

// put has a notification wait for the listener.
func (l *listener) put(key string, n *mcp.Message) {
	l.mu.Lock()
	l.due[key] = n
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
}

// tell passes a notification of a process on to those who listen for its principal, but for
// who hears the process itself.
func (w *news) tell(who principal, from *session, n *mcp.Message) {
	if !w.some.Load() || n.Kind != mcp.Notification {
		return
	}
	uri, list := "", true
	switch n.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
	case "notifications/resources/updated":
		uri, list = n.Text("uri"), false
	default:
		return
	}
	key := n.Method + " " + uri
	if len(n.Raw) > maxNews {
		var params []byte
		if !list {
			params = append(mcp.AppendString([]byte(`{"uri":`), uri), '}')
		}
		short, err := mcp.Decode(mcp.AppendRequest(nil, nil, n.Method, params))
		if err != nil {
			return
		}
		n = short
	} else {
		n = n.Clone() // it waits for those who listen
	}
	w.mu.Lock()
	all := slices.Clone(w.of[who])
	w.mu.Unlock()
	for _, l := range all {
		if (l.on == nil || l.on != from) && (list && !l.own || !list && l.has(uri)) {
			l.put(key, n)
		}
	}
}

// wished returns the resources that are listened to for a principal.
func (w *news) wished(who principal) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	wished := make(map[string]bool)
	for _, l := range w.of[who] {
		maps.Copy(wished, l.uris())
	}
	return wished
}

// followWithin is how much longer a call may take for what others listen to; the next one goes
// on with what is left.
const followWithin = 250 * time.Millisecond

// pace keeps a process from being subscribed anew all the time, at the cost of the calls of
// others: after what took long it rests for ten times as long. Who changes what it listens to
// meanwhile hears of later calls alone.
type pace struct{ until atomic.Int64 } // Unix nanoseconds

func (p *pace) rests(now time.Time) bool {
	left := p.until.Load() - now.UnixNano()
	return 0 < left && left <= int64(time.Minute) // more is of a clock that was set back
}

// took notes what it took since then.
func (p *pace) took(since time.Time) {
	if took := time.Since(since); took > 5*time.Millisecond {
		p.until.Store(since.Add(11 * took).UnixNano())
	}
}

// follow subscribes a pooled session to what is listened to for its principal, and ends its
// other subscriptions, before a call of which those who listen are to hear.
func (s *session) follow(ctx context.Context, l *link) {
	w := &s.b.news
	version := w.version.Load()
	if s.followed.Load() == version {
		return
	}
	s.following.Lock()
	defer s.following.Unlock()
	now := time.Now()
	if s.followed.Load() == version || s.pace.rests(now) {
		return
	}
	defer s.pace.took(now)
	wished := w.wished(s.who)
	had := s.subscribed()
	ctx, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	say := func(method, uri string) bool {
		_, _, err := s.roundTrip(ctx, l, method, append(mcp.AppendString([]byte(`{"uri":`), uri), '}'))
		return err == nil // one that the server refuses it need not be asked for again
	}
	for uri := range had {
		if !wished[uri] {
			if !say("resources/unsubscribe", uri) {
				return
			}
			s.mu.Lock()
			s.subs.drop(uri)
			s.mu.Unlock()
		}
	}
	for _, uri := range slices.Sorted(maps.Keys(wished)) {
		if had[uri] {
			continue
		}
		s.mu.Lock()
		_, err := s.subs.add(nil, uri)
		s.mu.Unlock()
		if err != nil {
			break // it has as many as it may
		}
		if !say("resources/subscribe", uri) {
			s.mu.Lock()
			s.subs.drop(uri)
			s.mu.Unlock()
			return
		}
	}
	s.followed.Store(version)
}

// subscribed returns what the session is subscribed to.
func (s *session) subscribed() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.subs.uris)
}

// follows reports whether the session is subscribed to a resource.
func (s *session) follows(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subs.uris[uri]
}

// listenForNews asks a modern process for the changes of lists, once, and one of the edge's own
// for those of the resources that are listened to. What it answers, at the end or where it
// tells of none, is nobody's.
func (l *lane) listenForNews(at *lines) {
	in := l.b.Known()
	if in == nil || in.Era != mcp.Modern {
		return
	}
	ask := func(id string, wish Wish) {
		params := mcp.Change(nil, nil,
			mcp.Raw("_meta", mcp.Change(nil, nil, mcp.Caller{Info: l.b.Info}.Members()...)),
			mcp.Raw("notifications", wish.text()))
		_ = at.stream.Listen(mcp.AppendRequest(nil, []byte(id), "subscriptions/listen", params), nil) // a stream that has ended tells of nothing
	}
	if !at.news.Load() && !at.news.Swap(true) {
		can := func(kind string) bool { return string(mcp.Lookup(in.Capabilities, kind, "listChanged")) == "true" }
		wish := Wish{Tools: can("tools"), Prompts: can("prompts"), Resources: can("resources")}
		if wish.Tools || wish.Prompts || wish.Resources {
			ask(edge.NewsID, wish)
		}
	}
	version := l.b.news.version.Load()
	if l.client != nil || l.who != "" || !l.b.apart() || at.followed.Load() == version {
		return
	}
	at.following.Lock()
	defer at.following.Unlock()
	now := time.Now()
	if at.followed.Load() == version || at.pace.rests(now) {
		return
	}
	defer at.pace.took(now)
	uris := slices.Sorted(maps.Keys(l.b.news.wished(principal{})))
	if before := at.wishes; before != "" || len(uris) > 0 {
		if at.wishes = ""; len(uris) > 0 {
			at.wishes = `"weir-news-` + strconv.FormatUint(version, 10) + `"`
			ask(at.wishes, Wish{URIs: uris})
		}
		if before != "" {
			at.stream.Unlisten([]byte(before), "another has taken its place")
		}
	}
	at.followed.Store(version)
}

// heardNews passes on what a process of the edge's own was asked for by listenForNews.
func (l *lane) heardNews(tag []byte, m *mcp.Message) {
	if l.client != nil || l.who != "" || !bytes.HasPrefix(tag, []byte(`"weir-news-`)) {
		return
	}
	if n, err := mcp.Decode(mcp.Splice(nil, m.Raw, m.WithMeta([]string{mcp.MetaSubscription}))); err == nil {
		l.b.news.tell(principal{}, nil, n)
	}
}

// apart reports whether streams to the local server are processes of their own.
func (b *Backend) apart() bool { return b.lined != nil && !b.lined.Shared() }
