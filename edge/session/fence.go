package session

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// A call whose edge is gone has failed, and whoever tells its client so writes
// that down in the store first, once and for all. An edge that was only held up
// long enough for that, and lives (lease), writes down that it answers before it
// does. Whichever of the two comes first holds: a call has one answer, whichever
// edge its client asks.

// fenceKey is where a store has how the call of a stream ended, where that was in
// doubt: the number of the event by which it was declared failed, or answers.
func fenceKey(session, stream string) string { return "fence:" + edge.Digest("fence", session, stream) }

const answers = "answers"

// errAnswers says that a call has not failed: its edge lives, and answers it.
var errAnswers = errors.New("the call is answered by its edge")

// fail declares the call of a stream failed, by the event of a number. It returns
// the number by which that was done already, if it was.
func (t *Store) fail(ctx context.Context, session, stream string, number uint64) (uint64, error) {
	err := t.Update(ctx, fenceKey(session, stream), logFor+t.Cap, func(old []byte) ([]byte, error) {
		if string(old) == answers {
			return nil, errAnswers
		}
		if was := failedBy(old); was > 0 {
			number = was
		}
		return strconv.AppendUint(nil, number, 10), nil
	})
	return number, err
}

// failed returns by which event the call of a stream was declared failed; 0 for
// none.
func (t *Store) failed(ctx context.Context, session, stream string) (uint64, error) {
	text, err := t.Get(ctx, fenceKey(session, stream))
	return failedBy(text), err
}

// answer has a call answered by its edge, unless it was declared failed, by the
// event of the number that is returned.
func (t *Store) answer(ctx context.Context, session, stream string) (number uint64, err error) {
	err = t.Update(ctx, fenceKey(session, stream), logFor+t.Cap, func(old []byte) ([]byte, error) {
		if number = failedBy(old); number > 0 {
			return old, nil
		}
		return []byte(answers), nil
	})
	return number, err
}

func failedBy(text []byte) uint64 {
	number, err := strconv.ParseUint(string(text), 10, 63)
	if err != nil {
		return 0
	}
	return number
}

// goneAnswer is what a client is told of a call whose edge is gone. request is the
// id of the call.
func goneAnswer(request []byte) []byte {
	return mcp.AppendError(nil, request, mcp.CodeInternal, relay.ErrGone.Error(), nil)
}

// Settled reports whether the call of a stream of this edge was declared failed by
// another one, which had heard nothing of this one. The log then says so, too, and
// the call has no other answer. answering says that it is to have its own now, if
// it was not. A store that cannot be asked has told nobody else either.
func (l *Log) Settled(answering bool) bool {
	store := l.s.stored.store.Load()
	l.mu.Lock()
	failed, sure, was := l.failed, l.sure, l.lapses
	l.mu.Unlock()
	if failed || sure || l.key == "" || store == nil || !store.Lease.Lapsed(was, time.Now()) {
		return failed
	}
	ask := store.failed
	if answering {
		ask = store.answer
	}
	number, err := ask(context.Background(), l.s.stored.key, l.stream)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if number == 0 {
		l.sure = answering
		return false
	}
	for len(l.events) > 0 && l.events[len(l.events)-1].number >= number {
		l.events = l.events[:len(l.events)-1] // what they take of the session's room is given back with the log
	}
	l.events = append(l.events, logged{number, goneAnswer(l.request)})
	l.next, l.first = number+1, l.events[0].number
	l.failed, l.answered = true, true
	l.write()
	return true
}
