package route

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// Replicas are the other edges that share the store. A round of a parked call goes to
// the one that holds the call. All servers of an edge share one Replicas.
type Replicas struct {
	Parked *Parked
	Relay  *relay.Relay
	Log    *slog.Logger
	Spent  Spent // states that other edges have refused for good
}

// Retry handles a round that another edge sends over a link.
func (r *Replicas) Retry(t *relay.Link) relay.Handler {
	return func(m relay.Message, body []byte, size int) bool {
		if who, ok := r.Relay.Claims.Of(m.From + m.Stream); ok { // else it was not announced by KindAsk
			t.Serve(m, size, who, func(ctx context.Context) { r.retried(ctx, t, m, who, body) })
		}
		return true
	}
}

// serve sends a round of a parked call to the edge that holds the call. It first asks that
// edge whether the state is still valid, since the request may be large.
func (r *Replicas) serve(ctx context.Context, t *relay.Link, x *edge.Exchange, at State) (*edge.Response, error) {
	text := x.Request.Text("requestState")
	switch {
	case !relay.IsNode(at.Node):
		return nil, ErrState()
	case t.Gone(at.Node):
		return nil, relay.ErrHolderGone()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.Cap, errors.New("the call took too long"))
	defer cancel()
	one, err := r.Relay.Open(relay.NewName(), relay.Who(x))
	if err != nil {
		return nil, err
	}
	defer one.Close()
	if err := t.Want(ctx, one, at.Node, relay.Message{Kind: relay.KindAsk}, []byte(text)); err != nil {
		return nil, err
	}
	give, err := r.Relay.Share(ctx, one.Who, len(x.Request.Raw))
	if err != nil {
		t.Abandon(one, at.Node)
		return nil, err
	}
	defer give()
	if err := t.Send(at.Node, relay.Message{Kind: relay.KindRetry, From: r.Relay.Node, Stream: one.Name}, x.Request.Raw); err != nil {
		t.Abandon(one, at.Node)
		return nil, relay.ErrAway()
	}
	for {
		d, err := t.Next(ctx, one, at.Node, t.Gone)
		if err != nil {
			t.Abandon(one, at.Node)
			return nil, err
		}
		switch d.Kind {
		case relay.KindTaken:
			give()
		case relay.KindNote:
			if n, err := mcp.Decode(d.Body); err == nil {
				_ = x.Client.Send(n) // a client that is gone ends ctx
			}
		case relay.KindResult:
			out := x.Answer()
			if err := out.Decode(d.Body); err != nil {
				return nil, edge.Errorf(edge.Internal, "relay", "%w", err)
			}
			out.Status = d.Status
			return out, nil
		case relay.KindError:
			return nil, d.Error.Err()
		}
	}
}

// Wanted reports whether this edge accepts a round of a parked call from another edge,
// and if so reserves the place for it.
func (r *Replicas) Wanted(l relay.Message, body []byte) error {
	at, ok := r.Parked.Sealer().Open(string(body))
	switch {
	case !ok:
		return ErrState()
	case !r.Parked.Holds(at):
		return relay.ErrSpent()
	case !r.Relay.Claims.Take(time.Now(), at.Key(), l.From+l.Stream, relay.WhoIs(at.Principal, "edge "+l.From)):
		return relay.ErrClaimed()
	}
	return nil
}

// retried serves a round of a parked call for a client at another edge.
func (r *Replicas) retried(ctx context.Context, t *relay.Link, l relay.Message, who string, body []byte) {
	back := relay.Message{From: r.Relay.Node, Stream: l.Stream}
	back.Kind = relay.KindTaken
	_ = t.Send(l.From, back, nil) // the waiting client has the next state then
	answer, err := func() (*edge.Response, error) {
		m, err := mcp.Decode(body)
		if err != nil {
			return nil, edge.Errorf(edge.Invalid, "relay", "%w", err)
		}
		// Request and client are named in the state, and the other edge has compared it
		// with both.
		at, ok := r.Parked.Sealer().Open(m.Text("requestState"))
		if !ok {
			return nil, ErrState()
		}
		x := &edge.Exchange{
			Server: at.Server, Era: mcp.Modern, Request: m, Target: &edge.Target{Backend: at.Backend},
			Client: toOther{t: t, node: l.From, head: back, who: who},
		}
		if issuer, subject, ok := strings.Cut(at.Principal, "\x00"); ok {
			x.Identity = &edge.Identity{Issuer: issuer, Subject: subject}
		}
		return r.Parked.Resume(ctx, x, l.From+l.Stream)
	}()
	if ctx.Err() != nil {
		return // no exchange waits
	}
	if err == nil {
		back.Kind, back.Status = relay.KindResult, answer.Status
		if err = t.Deliver(ctx, l.From, who, back, answer.Whole()); err == nil {
			return
		}
		r.Log.Warn("an answer did not reach the edge that waits for it", "error", err)
		back.Status, err = 0, edge.Errorf(edge.Unavailable, "relay", "the answer could not be handed over")
	}
	back.Kind, back.Error = relay.KindError, relay.FaultOf(err)
	_ = t.Deliver(ctx, l.From, who, back, nil) // the waiting edge times out by itself
}

// toOther is the way back to a client at another edge.
type toOther struct {
	edge.NoClient // a parked call puts its questions into its answer
	t             *relay.Link
	node          string
	head          relay.Message
	who           string
}

// Send passes on a notification.
func (o toOther) Send(m *mcp.Message) error {
	l := o.head
	l.Kind = relay.KindNote
	return o.t.SendFor(o.t.Life, o.node, o.who, l, m.Raw)
}
