package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// refusal is an HTTP answer without a JSON-RPC message that belongs to the
// request: the backend did not run it.
type refusal struct {
	status     int
	sent       bool          // the request carried a credential
	challenge  bool          // it asks for a credential
	after      time.Duration // when to ask again; 0 for unknown
	scopes     []string      // that it says are missing; nil for another refusal
	introduced bool          // it came after the answer to initialize
	plain      bool          // it is an error in answer to initialize, and no status says so
	body       []byte        // its beginning; nil for none
	secrets    []string      // that must not be told of it
	code       int           // of a JSON-RPC error without an id, else 0
	text       string        // of that error; never shown to clients
	data       []byte
}

func (e *refusal) Error() string {
	text := fmt.Sprintf("answered with HTTP %d", e.status)
	switch {
	case e.plain:
		text = fmt.Sprintf("refuses initialize (error %d)", e.code)
	case e.redirects():
		text = fmt.Sprintf("answered with HTTP %d, a redirection, which is not followed: name the URL that it leads to", e.status)
	case e.status == 403 && !e.challenge:
		text = "refused the edge with HTTP 403"
	case e.sent && (e.status == 401 || e.status == 403):
		text = fmt.Sprintf("refused the edge with HTTP %d: it does not take the credential that it is sent", e.status)
	case e.status == 401, e.status == 403:
		text = fmt.Sprintf("refused the edge with HTTP %d: it wants a credential", e.status)
	}
	if words := e.Words(); words != "" {
		text += fmt.Sprintf(", and says %q", words)
	}
	return text
}

func (e *refusal) redirects() bool { return e.status >= 300 && e.status < 400 }

// Words is what the backend says to it; "" for nothing.
func (e *refusal) Words() string { return wire.Words(e.body, e.secrets...) }

// Challenged reports whether it asks for a credential.
func (e *refusal) Challenged() bool { return e.status == 401 || e.challenge }

// HTTPStatus tells those who judge a backend's health what it answered.
func (e *refusal) HTTPStatus() int { return e.status }

// modern reports whether only a server of the modern era refuses like this.
func (e *refusal) modern() bool {
	switch e.code {
	case mcp.CodeHeaderMismatch, mcp.CodeMissingCapability, mcp.CodeVersion:
		return true
	}
	return e.lacksMethod()
}

// lacksMethod reports whether a server refuses like this what it does not know.
// For server/discover that says nothing of its era: see Backend.legacyFirst.
func (e *refusal) lacksMethod() bool { return e.status == 404 && e.code == mcp.CodeMethodNotFound }

// notImplemented reports whether a server that fails like this says no more than
// that it does not know the method (RFC 9110 §15.6.2): there are legacy servers
// that say so of server/discover.
func (e *refusal) notImplemented() bool {
	return e.status == 501 || e.status >= 500 && e.code == mcp.CodeMethodNotFound
}

// unmet reports whether a server that has no initialize refuses it like this,
// as opposed to one that cannot answer now, or not this edge.
func (e *refusal) unmet() bool {
	return !e.introduced && !e.redirects() && e.status < 500 && e.status != 401 && e.status != 403 && e.status != 429 && e.code != mcp.CodeInternal
}

// says reports whether an answer to a request of the edge's own, a JSON-RPC error
// under its id, is a refusal all the same because of its status.
func (e *refusal) says(method string) bool {
	switch method {
	case "initialize":
		return true
	case "ping": // every legacy server has it
		return e.modern() || e.lostSession() || e.status == 401 || e.status == 403
	}
	return e.status == 401 || e.status == 403
}

// legacyAccent reports whether no server of the modern era refuses
// server/discover like this: it is one of its duties.
func (e *refusal) legacyAccent() bool {
	switch e.status {
	case 200, 400, 404, 405:
		return mcp.AccentOf(e.code, e.text) != mcp.ModernAccent
	}
	return false
}

// lostSession reports whether a legacy server refuses like this because it no
// longer has the session: 404 says so (2025-11-25, basic/transports), and the
// first TypeScript SDK says it with 400.
func (e *refusal) lostSession() bool {
	return e.status == 404 || e.status == 400 && strings.Contains(strings.ToLower(e.text), "session")
}

// limits reports whether it says that the backend can be asked again later.
func (e *refusal) limits() bool { return e.status == 429 || e.status == 503 && e.after > 0 }

// apart reports whether its status says more than an error in its body: it is of the edge's own
// credential, or says when to ask again.
func (e *refusal) apart() bool {
	return e != nil && (e.status == 401 || e.scopes != nil || e.after != 0 && e.limits())
}

// later is what a client is told of a backend that limits the rate, or says when it is there
// again: it can wait.
func (e *refusal) later(backend string, err error) error {
	out := &edge.Error{Kind: edge.Limited, Op: err.Error(), After: e.after, Err: fmt.Errorf("backend %q limits the rate", backend)}
	if e.status == 503 {
		out.Kind, out.Err = edge.Overload, fmt.Errorf("backend %q unavailable for now", backend)
	}
	if words := e.Words(); e.code != 0 && words != "" { // of an error for the client
		out.Err = fmt.Errorf("%w: %s", out.Err, words)
	}
	if e.after > 0 {
		out.Data = fmt.Appendf(nil, `{"retryAfterSeconds":%d}`, int64((e.after+time.Second-1)/time.Second))
	}
	return out
}

// named gives an error the name of the backend, and a client no more of it
// than that: addresses and causes are for the log, which has a call that failed elsewhere as a warning
// once a minute.
func (b *Backend) named(err error, call bool) error {
	if err == nil {
		return nil
	}
	kind := edge.KindOf(err)
	var over *edge.Ended
	var refused *refusal
	switch {
	case kind == edge.Unavailable && errors.As(err, &over):
		return &edge.Error{Kind: kind, Op: err.Error(), Err: fmt.Errorf("backend %q %w", b.Name, over)}
	case errors.Is(err, edge.ErrSeveralLines):
		return &edge.Error{Kind: kind, Op: err.Error(), Err: fmt.Errorf("backend %q %w", b.Name, edge.ErrSeveralLines)}
	case kind == edge.Unavailable && (errors.As(err, new(*mcp.SyntaxError)) || errors.As(err, new(*mcp.EnvelopeError))):
		if due(&b.misread, time.Minute) { // nothing else says why, since the backend is well
			b.Log.Warn("an answer cannot be read", "backend", b.Name, "error", err)
		}
		return &edge.Error{Kind: kind, Op: err.Error(), Err: fmt.Errorf("backend %q %w", b.Name, edge.ErrUnreadable)}
	case kind == edge.Unavailable && errors.As(err, &refused) && refused.limits():
		return refused.later(b.Name, err)
	}
	if (kind == edge.Unavailable || kind == edge.Timeout) && errors.As(err, new(*noCredential)) && due(&b.lacked, time.Minute) {
		b.Log.Warn("calls fail for want of a credential", "backend", b.Name, "error", err)
	}
	say := b.Log.Debug
	if call && b.Local == nil && (kind == edge.Unavailable || kind == edge.Internal || kind == edge.Timeout) && due(&b.fails, time.Minute) {
		say = b.Log.Warn // checks tell of it later, if they do
	}
	switch kind {
	case edge.Unavailable, edge.Internal:
		say("backend unavailable", "backend", b.Name, "error", err)
		return &edge.Error{Kind: edge.Unavailable, Op: err.Error(), Err: fmt.Errorf("backend %q unavailable", b.Name)}
	case edge.Timeout:
		say("backend timed out", "backend", b.Name, "error", err)
		return &edge.Error{Kind: edge.Timeout, Op: err.Error(), Err: fmt.Errorf("backend %q timed out", b.Name)}
	}
	return err
}

// verdict is what a refusal means for the client.
func (e *refusal) verdict() error {
	if e.scopes != nil {
		return &edge.Error{Kind: edge.Denied, Op: "call: " + e.Error(), Err: &edge.ScopeError{Scopes: e.scopes, Elsewhere: true}}
	}
	return &edge.Error{Kind: edge.Unavailable, Op: "call", Err: e}
}

// converse sends a request, reads the message that answers the id into m, and
// returns the HTTP status that it came under; 0 for an event of a stream. What comes before the answer
// goes to before, together with the reply, whose clock may be paused. A
// notification, which has no id, leaves m alone.
//
// Errors are *refusal, when the backend did not take the request, or an
// *edge.Error.
func (p *peer) converse(ctx context.Context, o *outgoing, id []byte, m *mcp.Message, before func(*mcp.Message, *reply)) (int, error) {
	r, _, err := p.send(ctx, o)
	if err != nil {
		return 0, err
	}
	return r.answer(ctx, id, m, before)
}

// answer is converse from the head of the HTTP answer on.
func (r *reply) answer(ctx context.Context, id []byte, m *mcp.Message, before func(*mcp.Message, *reply)) (int, error) {
	status := r.status
	if r.sse && status == 200 {
		if id == nil { // it was told something, and there is nothing to say to that
			r.finish(r.stream())
			return status, nil
		}
		return 0, r.events(ctx, id, m, before)
	}
	if r.coded {
		r.close()
		if status >= 300 {
			return status, r.refuses()
		}
		return 0, nonsense(errors.New("a body that is compressed, which it was not asked for"))
	}
	var e *refusal
	if status >= 300 {
		e = r.refuses()
	}
	body, err := r.read(ctx) // from here on the connection may be another call's
	if err != nil {
		return 0, err
	}
	if id == nil {
		if status < 300 {
			return status, nil
		}
		m = new(mcp.Message)
	}
	err = mcp.Understand(m, bytes.TrimPrefix(body, byteOrderMark))
	switch {
	case err == nil && (m.Kind == mcp.Result || m.Kind == mcp.Failure && !e.apart()) && mcp.SameID(m.IDText(), id) && id != nil:
		return status, nil
	case status >= 300:
		e.body = bytes.Clone(body[:min(len(body), wire.MaxLook)])
		if err == nil && m.Kind == mcp.Failure {
			e.code, e.text, e.data = m.Code(), m.Text("message"), m.Get("data").Of(m.Raw)
		} else if status == 400 {
			e.text = string(body[:min(len(body), 512)])
		}
		return status, e
	case errors.Is(err, mcp.ErrBatch):
		found, err := inBatch(body, id, m, nil, r.peer, before)
		if err == nil && !found {
			err = nonsense(nil)
		}
		return status, err
	case err == nil && m.Kind == mcp.Failure && !m.ID.OK():
		// The one message of this answer: whose request it was is plain.
		return status, withID(m, id)
	case err == nil && (m.Kind == mcp.Result || m.Kind == mcp.Failure):
		r.peer.stray()
	}
	return 0, nonsense(err)
}

// byteOrderMark begins the texts of some servers; a reader may pass over it
// (RFC 8259 §8.1).
var byteOrderMark = []byte("\xef\xbb\xbf")

func nonsense(err error) error {
	if err == nil {
		err = &mcp.EnvelopeError{What: "a message that does not answer the request"}
	}
	return edge.Errorf(edge.Unavailable, "call", "answered with %w", err)
}

// withID gives an error answer the id that its sender left out.
func withID(m *mcp.Message, id []byte) error {
	out := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	out = append(append(out, `,"error":`...), m.Error.Of(m.Raw)...)
	if err := m.Decode(append(out, '}')); err != nil {
		return nonsense(err)
	}
	return nil
}

// maxBatch is how many messages a batch may have.
const maxBatch = 1000

// inBatch looks for the answer in a batch (2025-03-26), which may be one of notifications and
// questions alone.
func inBatch(body, id []byte, m *mcp.Message, r *reply, p *peer, before func(*mcp.Message, *reply)) (found bool, err error) {
	parts, err := mcp.Split(body, maxBatch)
	if err != nil {
		return false, nonsense(err)
	}
	for _, part := range parts {
		one := new(mcp.Message)
		err := mcp.Understand(one, part.Of(body))
		switch {
		case err != nil && p.passesOver(part.Of(body), err, func(answer *mcp.Message) { before(answer, r) }):
		case err != nil:
			return false, nonsense(err)
		case one.Kind == mcp.Request || one.Kind == mcp.Notification:
			before(one, r)
		case id != nil && mcp.SameID(one.IDText(), id):
			*m, found = *one, true
		default:
			p.stray()
		}
	}
	return found, nil
}

// passesOver passes over a notification or a question that cannot be read, for a reason, and has a
// question answered with an error where its id can be read. It reports false for what may be an
// answer.
func (p *peer) passesOver(text []byte, reason error, answer func(*mcp.Message)) bool {
	if !mcp.Tells(text) {
		return false
	}
	p.missed(reason)
	if m := mcp.AnswerUnread(text, reason); m != nil {
		answer(m)
	}
	return true
}

// errCut says that a stream ended before the answer, in order or because its
// connection broke.
var errCut = errors.New("ended its stream before the answer")

// events reads a stream of events up to the answer.
func (r *reply) events(ctx context.Context, id []byte, m *mcp.Message, before func(*mcp.Message, *reply)) error {
	body := r.stream()
	u := usedOn(r.c)
	events := u.events
	if events == nil {
		events = mcp.NewEventReader(body, r.peer.limit)
		u.events = events
	} else {
		events.Reset(body, r.peer.limit)
	}
	for {
		e, err := events.Next()
		if err != nil {
			switch {
			case errors.Is(err, io.EOF):
				err = errCut
			case !wire.TimedOut(err) && wire.Closed(err):
				err = fmt.Errorf("%w: %w", errCut, err)
			}
			return r.failed(ctx, err)
		}
		if at := r.ask.place; at != nil {
			if e.HasID {
				if at.id = ""; wire.Visible(e.ID, maxHandedID) { // else it could not be asked for in a header
					at.id = e.ID
				}
			}
			if e.Retry >= 0 {
				at.retry = time.Duration(min(e.Retry, math.MaxInt32)) * time.Millisecond
			}
		}
		if e.Type != "message" || len(e.Data) == 0 {
			continue
		}
		err = mcp.Understand(m, e.Data)
		switch {
		case errors.Is(err, mcp.ErrBatch):
			if at := r.ask.place; at != nil && !at.news(&e) {
				continue
			}
			found, err := inBatch(e.Data, id, m, r, r.peer, before)
			switch {
			case err != nil:
				r.close()
				return err
			case found:
				r.finish(body)
				return nil
			}
		case err != nil && r.peer.passesOver(e.Data, err, func(answer *mcp.Message) { before(answer, r) }): // the answer is still to come
		case err != nil:
			r.close()
			return nonsense(err)
		case m.Kind == mcp.Request || m.Kind == mcp.Notification:
			if at := r.ask.place; at != nil && !at.news(&e) {
				continue
			}
			one := *m // m is for the answer, which may be long in coming
			before(&one, r)
		case id != nil && mcp.SameID(m.IDText(), id):
			r.finish(body)
			return nil
		case id != nil && m.Kind == mcp.Failure && !m.ID.OK():
			r.finish(body)
			return withID(m, id)
		default:
			r.peer.stray()
		}
	}
}

// endWait is how long the end of a stream is waited for after its answer, for
// the sake of the connection.
const endWait = 5 * time.Millisecond

// finish looks for the end of a stream whose answer has come. A backend that
// ends it at once, as it should, gets its connection back into the pool.
func (r *reply) finish(body io.Reader) {
	r.quiet()
	if r.c.Reader.Buffered() == 0 {
		now := time.Now()
		r.c.ReadBy(now.Add(endWait), now)
	}
	var b [1]byte
	if n, err := body.Read(b[:]); n == 0 && err == io.EOF {
		r.release()
		return
	}
	r.close()
}
