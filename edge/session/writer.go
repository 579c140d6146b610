package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// What a stream of a common session has carried lies in the store, too, so that
// a client whose edge is gone can read the rest of it at another one. A log is
// written there when it has changed, and not more often than keepEvery.

const keepEvery = 50 * time.Millisecond

// logWriter writes logs of streams into a store.
type logWriter struct {
	writing sync.Mutex // one writes at a time, so that the newest text of a log stays

	wake chan struct{} // holds one while there is something to write

	fresh chan struct{} // holds one while there is a log among it that the store does not have

	mu      sync.Mutex
	changed map[*Log]struct{}
	gone    []string // keys of logs that are forgotten
}

func newLogWriter() *logWriter {
	return &logWriter{wake: make(chan struct{}, 1), fresh: make(chan struct{}, 1), changed: make(map[*Log]struct{})}
}

// note notes that a log has changed. One that the store does not have is written
// at once: by it another edge knows what the stream was of.
func (k *logWriter) note(l *Log, fresh bool) {
	k.mu.Lock()
	k.changed[l] = struct{}{}
	k.mu.Unlock()
	k.rouse()
	if fresh {
		select {
		case k.fresh <- struct{}{}:
		default:
		}
	}
}

func (k *logWriter) forget(l *Log, key string) {
	k.mu.Lock()
	delete(k.changed, l)
	k.gone = append(k.gone, key)
	k.mu.Unlock()
	k.rouse()
}

func (k *logWriter) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and then what is left.
func (k *logWriter) run(ctx context.Context, t *Store) {
	pause := time.NewTimer(keepEvery)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			k.write(t)
			return
		case <-k.wake:
		}
		k.write(t)
		pause.Reset(keepEvery)
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-k.fresh:
		}
	}
}

// write writes what has changed. What the store does not take is lost to it: the
// edge that has the stream still has the log.
func (k *logWriter) write(t *Store) {
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	changed, gone := k.changed, k.gone
	k.changed, k.gone = make(map[*Log]struct{}), nil
	k.mu.Unlock()
	for l := range changed {
		if key, text, ttl := l.stored(t.Cap); text != nil {
			_ = t.Put(context.Background(), key, text, ttl)
		}
	}
	for _, key := range gone {
		_ = t.Delete(context.Background(), key)
	}
}

// logHead is the first line of a log in the store.
type logHead struct {
	Request  []byte `json:"r"` // id of the request, JSON text
	Answered bool   `json:"a,omitempty"`
	First    uint64 `json:"f"` // number of the oldest event
}

// logKey is where a store has the log of a stream.
func logKey(session, stream string) string { return "log:" + edge.Digest("log", session, stream) }

// stored is the log as the store has it; nil when it has been forgotten.
func (l *Log) stored(callCap time.Duration) (key string, text []byte, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forgotten {
		return "", nil, 0
	}
	if ttl = logFor; !l.answered {
		ttl += callCap
	}
	return l.key, l.encode(), ttl
}

// text is the log as another process is handed it.
func (l *Log) text() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.encode()
}

// encode is the text of the log; l.mu is held.
func (l *Log) encode() []byte {
	head, err := json.Marshal(logHead{Request: l.request, Answered: l.answered, First: l.first})
	if err != nil {
		panic(err) // bytes and numbers always have a JSON form
	}
	text := append(head, '\n')
	for _, e := range l.events {
		text = binary.AppendUvarint(text, uint64(len(e.raw)))
		text = append(text, e.raw...)
	}
	return text
}

// pastOf reads a log that the store has: the events after one. ok is false for
// what is no log; whole is false when events between are missing, or when the
// event itself is, because the log does not reach back, or not on, so far.
func pastOf(text []byte, after uint64) (head logHead, events []logged, whole, ok bool) {
	at := bytes.IndexByte(text, '\n')
	if at < 0 || json.Unmarshal(text[:at], &head) != nil || head.First == 0 || len(head.Request) > 0 && !json.Valid(head.Request) {
		return head, nil, false, false
	}
	number := head.First
	for rest := text[at+1:]; len(rest) > 0; number++ {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) {
			return head, nil, false, false
		}
		if n > 0 && !json.Valid(rest[size:size+int(n)]) {
			return head, nil, false, false // nothing else may stand in a stream
		}
		if number > after {
			events = append(events, logged{number, rest[size : size+int(n)]})
		}
		rest = rest[size+int(n):]
	}
	return head, events, head.First <= after+1 && after < number, true
}
