package backend

import (
	"context"
	"errors"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// The server's own stream of a legacy session (GET), and what is heard on it.

// ownStream hears the stream of a session that the edge itself holds, for the
// questions that a server asks beside a call (its roots, say). The streams take
// a quarter of the backend's connections at most: a session beyond those serves
// all but such questions. What is returned ends the stream.
func (b *Backend) ownStream(s *session) context.CancelFunc {
	if b.ownStreams.Add(1) > int64(max(1, b.most()/4)) {
		b.ownStreams.Add(-1)
		return func() {}
	}
	ctx, cancel := context.WithCancel(b.life)
	begun := b.spawn("own stream", func() {
		defer b.ownStreams.Add(-1)
		_ = s.readOwn(ctx, nil)
	})
	if !begun {
		b.ownStreams.Add(-1)
	}
	return cancel
}

// hearOwn makes the session read its own stream from its opening to its end:
// what comes on it belongs to the one call that the session carries.
func (s *session) hearOwn() { s.own = !s.sse && s.b.lined == nil }

// hear passes on to out what belongs to no call. out must be comparable.
func (s *session) hear(out edge.Client) {
	s.mu.Lock()
	s.notice = out
	s.mu.Unlock()
}

// stopHearing ends hear, unless another has taken its place.
func (s *session) stopHearing(out edge.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notice == out {
		s.notice = nil
	}
}

// listen passes on to out what belongs to no call, until ctx ends. It is an error when the one
// stream of a server ends on which everything comes. opened is as readOwn's, and is called for
// that stream, too.
func (s *session) listen(ctx context.Context, out edge.Client, opened func(resumes bool)) error {
	s.hear(out)
	defer s.stopHearing(out)
	err := s.readOwn(ctx, opened)
	if !errors.Is(err, errMute) {
		return err
	}
	if s.sse && opened != nil {
		opened(false)
	}
	var ended <-chan struct{}
	if l := s.live.Load(); l != nil {
		ended = l.ended()
	} else if s.sse || s.b.lined != nil {
		return errListenedTo
	}
	select {
	case <-ctx.Done():
		return nil
	case <-ended:
		return errListenedTo
	}
}

// errListenedTo says that what was listened to is no more: nothing that comes later is heard.
var errListenedTo = edge.Errorf(edge.Unavailable, "listen", "ended its stream: listen again")

// attend is listen that returns, and goes on without a goroutine, where no
// stream is to be read.
func (s *session) attend(ctx context.Context, out edge.Client, opened func(resumes bool)) error {
	s.hear(out)
	err := s.readOwn(ctx, opened)
	if errors.Is(err, errMute) {
		context.AfterFunc(ctx, func() { s.stopHearing(out) })
		return nil
	}
	s.stopHearing(out)
	return err
}

// errMute says that a server has no stream of its own: either it does not have
// such, or everything comes on one stream, which is read already.
var errMute = errors.New("the server has no stream of its own")

// readOwn reads the server's own stream (GET), until ctx ends. Each time that the
// stream is open it calls opened, unless that is nil: resumes says that it goes on
// from the last event that was heard.
func (s *session) readOwn(ctx context.Context, opened func(resumes bool)) error {
	wait := 100 * time.Millisecond
	var was *link          // whose stream has been open
	var told time.Duration // how long the server wants to be left alone between streams; 0 for unknown
	for {
		l, r, err := s.openStream(ctx)
		switch {
		case l == nil:
			return lost(err)
		case l.sse != nil, l.lines != nil:
			return errMute
		case ctx.Err() != nil:
			if err == nil {
				r.close()
			}
			return nil
		case err != nil:
		case r.status == 401 && s.b.peer.credentials.of(s.chosen.Load()) != nil:
			r.close() // it may take another one
		case r.status == 409:
			r.close() // it has not noticed yet that the last one ended
		case r.status == 429, r.status >= 500 && r.status != 501:
			r.close() // it fails, or what is before it does, which says nothing of its streams
		case s.deafTo(r):
			r.close() // it does not know the event any longer
			continue
		case r.status == 404:
			r.close()
			if gone, said := s.gone(ctx, l); gone {
				s.drop(l)
			} else if said && was != l {
				return errMute // it has no route for GET
			}
		case r.status == 400 && l.id != "" && (was == l || !l.met.Load()):
			if !(&refusal{status: 400, text: string(r.beginning())}).lostSession() && was != l {
				return errMute // it has no streams for the session that was handed over
			}
			s.drop(l) // the first TypeScript SDK says so of a session that is no more
		case r.status != 200 || !r.sse:
			r.close()
			return errMute
		default:
			was = l
			began, last, tells := time.Now(), wait, false
			wait = 100 * time.Millisecond
			if opened != nil {
				opened(s.lastHeard() != "")
			}
			events := mcp.NewEventReader(r.stream(), s.b.MaxMessage)
			for {
				e, err := events.Next()
				if err != nil {
					_ = r.failed(ctx, err)
					break
				}
				if e.Retry > 0 {
					told, tells = time.Duration(min(e.Retry, ownRetryMost))*time.Millisecond, true
				}
				var gone error
				for _, m := range s.messagesOf(context.WithoutCancel(ctx), l, e.Data, func([]byte) {}) {
					if m.Kind == mcp.Request || m.Kind == mcp.Notification {
						// A question lives as long as the session, and not as long as somebody listens.
						gone = errors.Join(gone, s.before(context.WithoutCancel(ctx), l, nil, m))
					} else if s.foreign(m.IDText()) {
						s.b.stray()
					}
				}
				if gone != nil {
					pause(ctx)
					continue // nobody has heard it
				}
				if e.HasID {
					s.hasHeard(e.ID)
				}
			}
			if told > 0 {
				wait = told
			}
			if !tells && time.Since(began) < time.Second {
				wait = max(wait, last) // it may end each stream at once
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = max(told, min(2*wait, 30*time.Second))
	}
}

// ownRetryMost is how long a server may want to be left alone before its own stream is asked for
// again, in milliseconds: what it tells meanwhile nobody hears.
const ownRetryMost = 5 * 60 * 1000

// gone asks a server that answers GET with 404 whether it has lost the session, as that status says
// (2025-11-25, basic/transports), or has no such route. said is false where it says neither.
func (s *session) gone(ctx context.Context, l *link) (gone, said bool) {
	if l.id == "" {
		return false, true // there is no session that could be lost
	}
	_, _, err := s.roundTrip(ctx, l, "ping", nil)
	var r *refusal
	if err == nil || errors.As(err, &r) && r.code == mcp.CodeMethodNotFound {
		return false, true
	}
	lost := r != nil && r.lostSession()
	return lost, lost
}

// messagesOf returns the messages of an event: one, or those of a batch (2025-03-26). What may be an
// answer and cannot be read goes to unreadable.
func (s *session) messagesOf(ctx context.Context, l *link, text []byte, unreadable func([]byte)) (all []*mcp.Message) {
	take := func(text []byte) (err error) {
		m := new(mcp.Message)
		switch err = mcp.Understand(m, text); {
		case err == nil:
			all = append(all, m)
		case errors.Is(err, mcp.ErrBatch):
		case !s.b.peer.passesOver(text, err, func(answer *mcp.Message) { _ = s.before(ctx, l, nil, answer) }):
			unreadable(text)
		}
		return err
	}
	if errors.Is(take(text), mcp.ErrBatch) {
		parts, _ := mcp.Split(text, maxBatch)
		for _, part := range parts {
			_ = take(part.Of(text)) // a batch within a batch is none
		}
	}
	return all
}

// hasHeard notes the last event of the session's own stream. Where that is read
// anew, it goes on from there (2025-11-25, basic/transports, resumability).
func (s *session) hasHeard(id string) {
	if !wire.Visible(id, maxHandedID) {
		id = ""
	}
	s.mu.Lock()
	s.heard = id
	s.mu.Unlock()
}

// lastHeard returns the id of the last event, from which a stream goes on.
func (s *session) lastHeard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// deafTo reports whether a server refused the stream where it was to go on from
// an event; it is asked for the stream alone then.
func (s *session) deafTo(r *reply) bool {
	if r.status == 200 && r.sse {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.heard
	s.heard = ""
	return was != ""
}

// pause waits for the end of a listening whose client is gone, but not for long:
// another may take its place. What has come for it is not read only to be thrown
// away, by thousands of streams at a time.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
}

// openStream asks for the server's own stream. The link is nil when there is no
// session. It does so on a goroutine that ends: the caller may wait for months,
// one of thousands, and should not hold the stack that this takes.
func (s *session) openStream(ctx context.Context) (l *link, r *reply, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer edge.Contain(s.b.Log, "own stream")
		if l, err = s.link(ctx); err != nil || l.sse != nil || l.lines != nil {
			return
		}
		o := s.outgoing(l, nil)
		o.method, o.silence, o.until = "GET", 0, time.Time{}
		o.last = s.lastHeard()
		r, _, err = s.b.peer.send(ctx, &o)
	}()
	<-done
	return l, r, err
}
