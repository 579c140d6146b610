package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

const (
	maxMessage = 64 << 20 // bytes of one message of a server
	maxShown   = 4 << 10  // bytes of a body that an error may show
	maxResumes = 5        // of a stream that brings nothing
	maxRetry   = 30 * time.Second
)

// streamable is the transport of 2025-03-26 and later: each message is a POST
// of its own, and the answer is JSON or a stream of events.
type streamable struct {
	client  *Client
	session string // Mcp-Session-Id; empty for none
}

func (l *streamable) send(ctx context.Context, m outgoing) (answer, error) {
	w := l.client.watch(ctx)
	defer w.end()
	defer func() { l.client.giveUp(w, m.id) }()
	r, err := l.client.post(w.ctx, l.client.o.URL, l.session, m)
	if err != nil {
		return answer{}, unreachable(w.ctx, l.client.o.URL, l.client.o.Silence, err)
	}
	if l.session == "" && l.client.era == mcp.Legacy && visible(r.Header.Get(mcp.HeaderSession)) {
		l.session = r.Header.Get(mcp.HeaderSession)
	}
	if m.id == nil {
		defer r.Body.Close()
		if r.StatusCode/100 != 2 {
			return answer{}, refused(l.client.o.URL, r, start(r.Body))
		}
		return answer{}, nil
	}
	return l.read(w, r, m.id)
}

// read reads what answers a request: one message, or events up to it.
func (l *streamable) read(w *watch, r *http.Response, id []byte) (answer, error) {
	defer func() { _ = r.Body.Close() }()
	c := l.client
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "text/event-stream" || r.StatusCode != http.StatusOK {
		return c.readJSON(w, r, id)
	}
	events := eventStream{EventReader: mcp.NewEventReader(r.Body, maxMessage), retry: time.Second}
	for tries := 0; ; {
		before := events.last
		a, err := c.readEvents(w, &events, id)
		if err != nil || a.Message != nil {
			return a, err
		}
		// The stream ended before the answer came. A server of 2025-11-25 may
		// do that on purpose, and the rest is fetched with the last event's id.
		if events.last != before {
			tries = 0
		}
		if tries++; events.last == "" || c.era == mcp.Modern || tries > maxResumes {
			return answer{}, &ConnectionError{URL: shown(c.o.URL), What: "the stream ended before the answer came", Next: "the log of the server says why"}
		}
		if err := pause(w.ctx, events.retry); err != nil {
			return answer{}, unreachable(w.ctx, c.o.URL, c.o.Silence, err)
		}
		_ = r.Body.Close()
		if r, err = c.get(w.ctx, l.session, events.last); err != nil {
			return answer{}, unreachable(w.ctx, c.o.URL, c.o.Silence, err)
		}
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "text/event-stream" || r.StatusCode != http.StatusOK {
			return answer{}, refused(c.o.URL, r, start(r.Body))
		}
		events.EventReader = mcp.NewEventReader(r.Body, maxMessage)
	}
}

// close ends the session; a server need not allow that.
func (l *streamable) close(ctx context.Context) {
	if l.session == "" {
		return
	}
	r, err := l.client.newRequest(ctx, http.MethodDelete, l.client.o.URL, nil)
	if err != nil {
		return
	}
	r.Header.Set(mcp.HeaderSession, l.session)
	if answer, err := l.client.o.HTTP.Do(r); err == nil {
		_ = answer.Body.Close()
	}
}

// sse is the transport of 2024-11-05: one stream of events brings everything,
// and its first event says where messages are posted.
type sse struct {
	client *Client
	events eventStream
	body   io.Closer
	end    context.CancelFunc // of the stream
	post   string             // where messages go
}

// openSSE opens the stream and waits for its first event; ok is false when the
// server has no such stream.
func openSSE(ctx context.Context, c *Client) (_ *sse, ok bool) {
	w := c.watch(ctx)
	defer w.end()
	// The stream outlives this call and every single one after it.
	stream, end := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(w.ctx, end)()
	r, err := c.get(stream, "", "")
	if err != nil {
		end()
		return nil, false
	}
	l := &sse{client: c, events: eventStream{EventReader: mcp.NewEventReader(r.Body, maxMessage)}, body: r.Body, end: end}
	if e, err := l.events.Next(); err == nil && r.StatusCode == http.StatusOK && e.Type == "endpoint" {
		base, err1 := url.Parse(c.o.URL)
		target, err2 := url.Parse(string(e.Data))
		// Another host must not get the headers that were meant for this one.
		if err1 == nil && err2 == nil {
			if u := base.ResolveReference(target); u.Scheme == base.Scheme && u.Host == base.Host {
				l.post = u.String()
				return l, true
			}
		}
	}
	l.close(ctx)
	return nil, false
}

func (l *sse) send(ctx context.Context, m outgoing) (answer, error) {
	w := l.client.watch(ctx)
	defer w.end()
	defer func() { l.client.giveUp(w, m.id) }()
	r, err := l.client.post(w.ctx, l.post, "", m)
	if err != nil {
		return answer{}, unreachable(w.ctx, l.client.o.URL, l.client.o.Silence, err)
	}
	defer r.Body.Close()
	if r.StatusCode/100 != 2 {
		return answer{}, refused(l.post, r, start(r.Body))
	}
	if m.id == nil {
		return answer{}, nil
	}
	defer context.AfterFunc(w.ctx, l.end)()
	a, err := l.client.readEvents(w, &l.events, m.id)
	if err == nil && a.Message == nil {
		err = &ConnectionError{URL: shown(l.client.o.URL), What: "the stream ended before the answer came", Next: "the log of the server says why"}
	}
	return a, err
}

func (l *sse) close(context.Context) {
	l.end()
	_ = l.body.Close()
}

// giveUp tells a server of the legacy era that an answer is not wanted any more,
// when the context of the request has ended. In the modern era the end of the
// connection says so. initialize must not be cancelled (2025-11-25,
// cancellation); no version is known while it runs.
func (c *Client) giveUp(w *watch, id []byte) {
	if id == nil || w.ctx.Err() == nil || c.era == mcp.Modern || c.version == "" {
		return
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(w.ctx), farewell)
	defer done()
	params := mcp.Change(nil, nil, mcp.Raw("requestId", id), text("reason", "the user gave up"))
	_ = c.tell(ctx, mcp.AppendRequest(nil, nil, "notifications/cancelled", params))
}

// eventStream is a stream of events and where it stands.
type eventStream struct {
	*mcp.EventReader
	last  string        // id of the last event
	retry time.Duration // before the stream is opened again
}

// readEvents reads events until the answer to a request; the zero answer when
// the stream ends before it. Meanwhile the user answers what the server asks, one
// after the other, until it withdraws that or answers the request.
func (c *Client) readEvents(w *watch, events *eventStream, id []byte) (answer, error) {
	ctx, end := context.WithCancelCause(w.ctx)
	asked, withdraw := make(chan struct{}), map[string]context.CancelCauseFunc{}
	close(asked) // is anew for each request of the server, and closed when that is answered
	defer func() { end(errWithdrawn); <-asked }()
	for {
		e, err := events.Next()
		if errors.Is(err, mcp.ErrEventTooLarge) {
			return answer{}, &ConnectionError{URL: shown(c.o.URL), What: fmt.Sprintf("sent a message larger than %d MiB", maxMessage>>20), Next: "ask the server for less"}
		}
		if err != nil {
			if w.ctx.Err() != nil {
				return answer{}, unreachable(w.ctx, c.o.URL, c.o.Silence, err)
			}
			<-asked // which may be what the rest waits for
			return answer{}, nil
		}
		w.heard()
		if e.HasID {
			events.last = e.ID
		}
		if e.Retry >= 0 {
			events.retry = min(time.Duration(e.Retry)*time.Millisecond, maxRetry)
		}
		if len(e.Data) == 0 || e.Type != "message" {
			continue
		}
		m, err := mcp.Decode(e.Data)
		if err != nil {
			return answer{}, garbled(c.o.URL, err)
		}
		switch m.Kind {
		case mcp.Notification:
			if end := withdraw[string(m.Get("requestId").Of(m.Raw))]; end != nil && m.Method == "notifications/cancelled" {
				end(errWithdrawn)
			}
			if c.o.Notify != nil {
				c.o.Notify(m)
			}
		case mcp.Request:
			if c.era == mcp.Modern {
				return answer{}, &ProtocolError{Method: m.Method, Message: "the server sent a request, which revision " + mcp.V2607 + " does not allow"}
			}
			before, one := asked, context.Context(nil)
			asked = make(chan struct{})
			one, withdraw[string(m.IDText())] = context.WithCancelCause(ctx)
			w.held.Add(1)
			go c.serve(one, w, m.Clone(), before, asked)
		default:
			if mcp.SameID(m.IDText(), id) || m.Kind == mcp.Failure && m.IDText() == nil {
				return answer{Message: m, status: http.StatusOK}, nil
			}
		}
	}
}

// errWithdrawn ends a question that the server does not ask any more.
var errWithdrawn = errors.New("the server does not ask any more")

// serve answers a request of the server, which only the legacy era has, after the one before. A
// question whose context has ended gets no answer.
func (c *Client) serve(ctx context.Context, w *watch, m *mcp.Message, before <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	<-before
	result, failure := c.reply(ctx, m.Method, m.Params.Of(m.Raw))
	w.held.Add(-1)
	w.heard()
	body := mcp.AppendResult(nil, m.IDText(), result)
	if failure != "" {
		body = mcp.AppendError(nil, m.IDText(), mcp.CodeMethodNotFound, failure, nil)
	}
	if ctx.Err() == nil || m.Method != "elicitation/create" {
		if err := c.tell(w.ctx, body); err != nil {
			w.cancel(err)
		}
	}
}

// readJSON reads an answer that is one message, of whatever HTTP status.
func (c *Client) readJSON(w *watch, r *http.Response, id []byte) (answer, error) {
	if r.StatusCode == http.StatusUnauthorized {
		return answer{}, refused(c.o.URL, r, start(r.Body))
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxMessage+1))
	switch {
	case err != nil:
		return answer{}, unreachable(w.ctx, c.o.URL, c.o.Silence, err)
	case len(body) > maxMessage:
		return answer{}, &ConnectionError{URL: shown(c.o.URL), What: fmt.Sprintf("sent a message larger than %d MiB", maxMessage>>20), Next: "ask the server for less"}
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	m, err := mcp.Decode(body)
	switch {
	case kind != "application/json" || err != nil && r.StatusCode != http.StatusOK:
		return answer{}, refused(c.o.URL, r, body[:min(len(body), maxShown)])
	case err != nil:
		return answer{}, garbled(c.o.URL, err)
	case m.Kind == mcp.Result && mcp.SameID(m.IDText(), id), m.Kind == mcp.Failure:
		return answer{Message: m, status: r.StatusCode, after: r.Header.Get("Retry-After"), challenge: challenge(r)}, nil
	}
	return answer{}, refused(c.o.URL, r, body[:min(len(body), maxShown)])
}

func garbled(target string, err error) error {
	return &ConnectionError{URL: shown(target), What: "sent what is no message of MCP: " + err.Error(), Next: "report this to whoever runs the server", Err: err}
}

func (c *Client) newRequest(ctx context.Context, method, target string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	for name, values := range c.o.Header {
		if name == "Host" {
			r.Host = values[0]
			continue
		}
		r.Header[name] = values
	}
	if c.version != "" {
		r.Header.Set(mcp.HeaderVersion, c.version)
	}
	return r, nil
}

func (c *Client) post(ctx context.Context, target, session string, m outgoing) (*http.Response, error) {
	r, err := c.newRequest(ctx, http.MethodPost, target, bytes.NewReader(m.body))
	if err != nil {
		return nil, err
	}
	for name, values := range m.header {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set(mcp.HeaderSession, session)
	}
	return c.o.HTTP.Do(r)
}

func (c *Client) get(ctx context.Context, session, lastEvent string) (*http.Response, error) {
	r, err := c.newRequest(ctx, http.MethodGet, c.o.URL, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/event-stream")
	if session != "" {
		r.Header.Set(mcp.HeaderSession, session)
	}
	if lastEvent != "" {
		r.Header.Set(mcp.HeaderLastEventID, lastEvent)
	}
	return c.o.HTTP.Do(r)
}

// visible reports whether a session id has the characters that one may have,
// and at least one (2025-11-25, transports, session management).
func visible(id string) bool {
	for i := range len(id) {
		if id[i] < 0x21 || id[i] > 0x7e {
			return false
		}
	}
	return id != ""
}

// start reads as much of a body as an error may show.
func start(r io.Reader) []byte {
	body, _ := io.ReadAll(io.LimitReader(r, maxShown))
	return body
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watch is a context that ends when the server keeps silent for too long.
type watch struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer // nil without a limit
	silence time.Duration
	held    atomic.Int32 // questions: what the user takes to answer is not the server's silence
}

func (c *Client) watch(ctx context.Context) *watch {
	w := &watch{silence: c.o.Silence}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	if w.silence > 0 {
		w.timer = time.AfterFunc(w.silence, func() {
			if w.held.Load() == 0 { // else it begins anew with the answer
				w.cancel(errSilent)
			}
		})
	}
	return w
}

// heard starts the clock anew.
func (w *watch) heard() {
	if w.timer != nil {
		w.timer.Reset(w.silence)
	}
}

func (w *watch) end() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel(nil)
}
