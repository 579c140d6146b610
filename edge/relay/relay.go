// Package relay carries messages between replicas through the store that they share,
// and between processes at a hand-over through sockets. A call under way, a parked call
// and an open stream stay at the edge where they began; a client's message about one
// that reaches another edge is posted to the box of that edge, and the reply is posted
// back.
package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Relay is the state of one edge that all its links share.
type Relay struct {
	Node    string       // names this edge among the replicas
	Log     *slog.Logger // of the process
	Leaving func() bool  // reports whether the edge is about to end
	Claims  Claims       // reservations for messages of other edges

	streams streams // exchanges with other edges
	posting shares  // bytes of large messages on their way to them
}

// New returns the relay of the edge named node.
func New(node string, log *slog.Logger, leaving func() bool) *Relay {
	return &Relay{Node: node, Log: log, Leaving: leaving, posting: shares{most: maxPosting, each: maxPostingEach}}
}

// Open opens a reply stream under a name, for a client.
func (r *Relay) Open(name, who string) (*Stream, error) { return r.streams.open(name, who) }

// Busy reports whether this edge serves a request of another edge.
func (r *Relay) Busy() bool { return r.streams.busy() }

// Share waits until so many bytes of a client may be in flight. give returns them; it
// may be called more than once.
func (r *Relay) Share(ctx context.Context, who string, bytes int) (give func(), err error) {
	return r.posting.take(ctx, who, bytes)
}

// Link is a store through which an edge writes to others. Its fields are set
// before it is used.
type Link struct {
	Relay   *Relay
	Store   edge.Store
	Since   func() time.Time // when the store last became available or unavailable
	Address string           // of the store, for the log
	Signer  *Signer
	Largest int             // bytes of a message with its head
	Cap     time.Duration   // of a call
	Life    context.Context // over when the store is closed
	Direct  bool            // the link is a socket: a dead peer is seen at once, and no values are written

	// Handle holds the handlers of messages by kind. A message of another kind
	// goes to the reply stream that it names.
	Handle map[string]Handler

	Work  sync.WaitGroup // requests of other edges
	Lease Lease          // of this edge
	peers peers          // the others
}

// Handler takes a message, of size bytes in all, and reports whether it is one
// that a replica may have written. It does not wait: messages are read one after
// the other.
type Handler func(m Message, body []byte, size int) bool

// Join starts to write that the edge is alive and to read its box, until ctx ends.
func (l *Link) Join(ctx context.Context) {
	l.Work.Go(func() {
		defer edge.Contain(l.Relay.Log, "heartbeat")
		l.beat(ctx)
	})
	l.Work.Go(func() {
		defer edge.Contain(l.Relay.Log, "relay")
		_ = l.Store.Listen(ctx, Box(l.Relay.Node), l.Receive) // it ends with ctx
	})
}

// Send posts a message to another edge.
func (l *Link) Send(node string, m Message, body []byte) error {
	text, err := l.write(node, m, body)
	if err != nil {
		return err
	}
	return l.Store.Post(context.Background(), Box(node), text, waitFor)
}

// write returns the text of a message to another edge.
func (l *Link) write(node string, m Message, body []byte) ([]byte, error) {
	text := m.Pack(body)
	if most := l.Largest - maxSigned; len(text) > most {
		return nil, edge.Errorf(edge.TooLarge, "relay", "%d bytes are more than a message between edges has (%d)", len(text), most)
	}
	return l.Signer.Sign(Box(node), text), nil
}

// SendFor posts a message of a principal. A large one waits for the principal's share.
func (l *Link) SendFor(ctx context.Context, node, who string, m Message, body []byte) error {
	if len(body) > SmallMessage {
		give, err := l.Relay.Share(ctx, who, len(body))
		if err != nil {
			return err
		}
		defer give()
	}
	return l.Send(node, m, body)
}

// Deliver posts a message that an edge waits for, and repeats it if the store fails. A
// message is signed at each attempt, since an old signature would be refused.
func (l *Link) Deliver(ctx context.Context, node, who string, m Message, body []byte) error {
	if len(body) > SmallMessage {
		give, err := l.Relay.Share(ctx, who, len(body))
		if err != nil {
			return err
		}
		defer give()
	}
	text, err := l.write(node, m, body)
	if err != nil {
		return err
	}
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		// The message is the same each time, so that a second copy has no effect.
		err := l.Store.Post(ctx, Box(node), text, waitFor)
		if err == nil || wait > 2*time.Second {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// Receive handles a text from the edge's box, if another edge wrote it.
func (l *Link) Receive(text []byte) {
	text, ok := l.Signer.Open(Box(l.Relay.Node), text)
	if ok {
		ok = l.read(text)
	}
	if ok {
		l.Signer.taken()
		return
	}
	if l.Signer.drop() {
		l.Relay.Log.Warn("a message in the store is of no edge that has the key of this one, is late, or came before: it is dropped", "store", l.Address,
			"dropped", l.Signer.Dropped.Load(), "do", "give all edges that share a store the same --state-key-file, or the secret weir-state with the key key, and keep others from writing to it")
	}
}

// read handles a message, and reports whether it is valid.
func (l *Link) read(text []byte) bool {
	m, body, ok := Unpack(text)
	if !ok {
		return false // no edge wrote it
	}
	if len(text) > l.Largest {
		l.tooLarge(m)
		return true
	}
	if handle := l.Handle[m.Kind]; handle != nil {
		return handle(m, body, len(text))
	}
	if m.Kind == KindLeave {
		l.Relay.Claims.Leave(m.From + m.Stream)
		l.Relay.streams.leave(m.From + m.Stream)
		return true
	}
	l.Relay.streams.give(m.Stream, m, body)
	return true
}

// tooLarge handles a message above the limit of this edge, as an edge with other
// settings may send it: the waiter for it or for its reply gets an error.
func (l *Link) tooLarge(m Message) {
	switch m.Kind {
	case KindAsk, KindRetry, KindFollow, KindOpen:
		if IsNode(m.From) {
			l.Refuse(m, edge.Errorf(edge.TooLarge, "relay", "a message between edges has at most %d bytes", l.Largest))
		}
	default:
		l.Relay.streams.spoil(m.Stream)
	}
}

// Refuse answers a message with an error.
func (l *Link) Refuse(m Message, why error) {
	_ = l.Send(m.From, Message{Kind: KindError, From: l.Relay.Node, Stream: m.Stream, Error: FaultOf(why)}, nil) // the waiting edge times out by itself
}

// Serve runs work for a client at another edge, and counts it for that client. It ends
// when the work is done, the client leaves, or that edge is gone.
func (l *Link) Serve(m Message, bytes int, who string, do func(context.Context)) {
	ctx, cancel := context.WithCancel(l.Life)
	name := m.From + m.Stream
	begins, full := l.Relay.streams.serve(name, who, bytes, cancel)
	if !begins {
		cancel()
		if full {
			l.Refuse(m, errStreams())
		}
		return
	}
	l.Work.Go(func() {
		defer l.Relay.streams.done(name)
		defer cancel()
		defer edge.Contain(l.Relay.Log, "relay")
		stop := l.whileAlive(ctx, m.From, func() {
			cancel()
			l.Refuse(m, ErrForgotten()) // it may live after all
		})
		defer stop()
		do(ctx)
	})
}

// whileAlive calls gone if an edge dies before stop is called.
func (l *Link) whileAlive(ctx context.Context, node string, gone func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	l.Work.Go(func() {
		defer edge.Contain(l.Relay.Log, "relay")
		tick := time.NewTicker(AliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if l.Gone(node) {
					gone()
					return
				}
			}
		}
	})
	return cancel
}

// Next waits for the next message on a reply stream. The error is ErrHolderGone if the
// edge is gone, as gone reports, and ErrForgotten if this one may have been given up since
// the stream was opened, and the word of that may be lost.
func (l *Link) Next(ctx context.Context, one *Stream, node string, gone func(string) bool) (Delivered, error) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		d, there, over := one.Take()
		switch {
		case there:
			return d, nil
		case over:
			return d, edge.Errorf(edge.Overload, "relay", "more has come of this call than its client reads, or than an edge takes")
		}
		select {
		case <-one.Wake:
		case <-ctx.Done():
			return d, edge.Errorf(edge.Gone, "relay", "%w", context.Cause(ctx))
		case <-l.Life.Done():
			return d, edge.Errorf(edge.Gone, "relay", "the edge ends")
		case <-tick.C:
			if gone(node) {
				return d, ErrHolderGone()
			}
			if l.Lease.Forgotten(one.opened) {
				return d, ErrForgotten()
			}
		}
	}
}

// First waits for the first reply of an edge: that it accepts the message, or why not.
// The error is ErrHolderGone if the edge is gone.
func (l *Link) First(ctx context.Context, one *Stream, node string) (Delivered, error) {
	within, cancel := context.WithTimeout(ctx, aliveFor)
	defer cancel()
	d, err := l.Next(within, one, node, l.Silent)
	switch {
	case err == nil && d.Kind != KindTaken:
		err = d.Error.Err()
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		err = &edge.Error{Kind: edge.Overload, Op: "relay", After: time.Second, Err: errors.New("the edge that has this call does not answer")}
	}
	return d, err
}

// Want asks an edge whether a message is wanted there; that edge reserves a place until
// the message comes or Abandon releases it. The error says why it is not wanted:
// ErrHolderGone if the edge is gone.
func (l *Link) Want(ctx context.Context, one *Stream, node string, m Message, body []byte) error {
	m.From, m.Stream = l.Relay.Node, one.Name
	if err := l.Send(node, m, body); err != nil {
		l.Abandon(one, node) // the question may have arrived all the same
		return ErrAway()
	}
	d, err := l.First(ctx, one, node)
	if err != nil && d.Kind != KindError {
		l.Abandon(one, node)
	}
	return err
}

// Abandon tells an edge that the waiter for its replies has left, and that no further
// message follows.
func (l *Link) Abandon(one *Stream, node string) {
	_ = l.Send(node, Message{Kind: KindLeave, From: l.Relay.Node, Stream: one.Name}, nil) // without the message it notices later
}

// ErrAway returns the error for a request that needs the store while it is unavailable.
func ErrAway() error {
	return &edge.Error{Kind: edge.Overload, Op: "session", After: time.Second, Err: errors.New("session store unavailable")}
}
