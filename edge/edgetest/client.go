package edgetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Client sends raw HTTP requests to an edge, over connections of its own.
type Client struct {
	Base   string      // URL without a path
	Header http.Header // added to every request

	t    testing.TB
	http *http.Client
	ctx  context.Context // ends with the test
}

// NewClient returns a client of the edge.
func (e *Edge) NewClient() *Client { return NewClient(e.t, e.Base()) }

// NewClient returns a client of whatever listens at base, a URL without a path.
func NewClient(t testing.TB, base string) *Client {
	t.Helper()
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		transport.CloseIdleConnections()
	})
	return &Client{Base: base, Header: http.Header{}, t: t, ctx: ctx, http: &http.Client{Transport: transport}}
}

// Response is an HTTP answer: a body, or a stream whose events are read one by
// one.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // of what is no stream

	t      testing.TB
	stream bool
	events chan Event
	Primed string // the id of the priming event, once it has come
	err    error  // why the stream ended; set before events is closed
	cancel context.CancelFunc

	once   sync.Once // for the answer of a stream
	answer []byte
	failed error
}

// Event is one event of a stream. A comment is an event of type ":".
type Event struct {
	Type string
	ID   string
	Data []byte
}

// primes reports whether the event only gives the client an id to come back
// with (2025-11-25, basic/transports).
func (e Event) primes() bool { return e.Type == "message" && e.ID != "" && len(e.Data) == 0 }

// Try sends a request. Headers come in pairs; "" as a value takes one out of
// those that are always there (Content-Type and Accept of a POST). It may be
// called from any goroutine.
func (c *Client) Try(method, path, body string, header ...string) (*Response, error) {
	ctx, cancel := context.WithCancel(c.ctx)
	r, err := http.NewRequestWithContext(ctx, method, c.Base+path, strings.NewReader(body))
	if err != nil {
		cancel()
		return nil, err
	}
	r.Header = c.Header.Clone()
	if method == "POST" {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
	}
	for i := 0; i+1 < len(header); i += 2 {
		switch name, value := header[i], header[i+1]; {
		case name == "Host":
			r.Host = value
		case value == "":
			r.Header.Del(name)
		default:
			r.Header[http.CanonicalHeaderKey(name)] = []string{value}
		}
	}
	patience := time.AfterFunc(Patience, cancel)
	h, err := c.http.Do(r)
	if err != nil {
		cancel()
		return nil, err
	}
	out := &Response{Status: h.StatusCode, Header: h.Header, t: c.t, cancel: cancel}
	if kind, _, _ := strings.Cut(h.Header.Get("Content-Type"), ";"); kind == "text/event-stream" {
		patience.Stop()
		out.stream = true
		out.events = make(chan Event, 64)
		go func() {
			defer h.Body.Close()
			defer close(out.events)
			out.err = readEvents(ctx, h.Body, out.events)
		}()
		return out, nil
	}
	defer cancel()
	defer h.Body.Close()
	out.Body, err = io.ReadAll(h.Body)
	patience.Stop()
	return out, err
}

// Do is Try that fails the test. It belongs on the goroutine of the test.
func (c *Client) Do(method, path, body string, header ...string) *Response {
	c.t.Helper()
	r, err := c.Try(method, path, body, header...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// Post sends a body to /mcp.
func (c *Client) Post(body string, header ...string) *Response {
	c.t.Helper()
	return c.Do("POST", "/mcp", body, header...)
}

// readEvents reads server-sent events as an edge writes them: lines end in LF.
func readEvents(ctx context.Context, body io.Reader, events chan<- Event) error {
	r := bufio.NewReader(body)
	emit := func(e Event) {
		select {
		case events <- e:
		case <-ctx.Done(): // nobody reads on
		}
	}
	e := Event{Type: "message"}
	lines := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && lines > 0:
			emit(e)
			e, lines = Event{Type: "message"}, 0
			continue
		case line == "":
			continue
		case name == "" && lines == 0:
			emit(Event{Type: ":", Data: []byte(value)})
			continue
		case name == "event":
			e.Type = value
		case name == "id":
			e.ID = value
		case name == "data":
			if e.Data != nil {
				e.Data = append(e.Data, '\n')
			}
			e.Data = append(e.Data, value...)
		}
		lines++
	}
}

// Stream reports whether the answer is a stream of events.
func (r *Response) Stream() bool { return r.stream }

// TryNext returns the next event that has data; io.EOF at the end of the
// stream. It may be called from any goroutine.
func (r *Response) TryNext() (Event, error) {
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	for {
		select {
		case e, ok := <-r.events:
			switch {
			case !ok:
				return Event{}, r.err
			case e.primes():
				r.Primed = e.ID
			case e.Type != ":" && len(e.Data) > 0:
				return e, nil
			}
		case <-patience.C:
			return Event{}, fmt.Errorf("no event within %s", Patience)
		}
	}
}

// Next is TryNext that fails the test when there is no further event.
func (r *Response) Next() Event {
	r.t.Helper()
	if !r.stream {
		r.t.Fatalf("not a stream but status %d, %s: %s", r.Status, r.Header.Get("Content-Type"), r.Body)
	}
	e, err := r.TryNext()
	if err != nil {
		r.t.Fatalf("next event: %v", err)
	}
	return e
}

// NextMessage is the data of the next event, taken apart.
func (r *Response) NextMessage() Message {
	r.t.Helper()
	return Parse(r.t, r.Next().Data)
}

// Comment waits for a comment, which must come next.
func (r *Response) Comment() {
	r.t.Helper()
	select {
	case e, ok := <-r.events:
		if ok && e.primes() {
			r.Primed = e.ID
			r.Comment()
			return
		}
		if !ok || e.Type != ":" {
			r.t.Fatalf("%+v in place of a comment", e)
		}
	case <-time.After(Patience):
		r.t.Fatalf("no comment within %s", Patience)
	}
}

// TryRest returns the events up to the end of the stream.
func (r *Response) TryRest() ([]Event, error) {
	var out []Event
	for {
		e, err := r.TryNext()
		switch {
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return out, nil
		case err != nil:
			return out, err
		}
		out = append(out, e)
	}
}

// Rest is TryRest that fails the test when the stream does not end in order.
func (r *Response) Rest() []Event {
	r.t.Helper()
	if !r.stream {
		r.t.Fatalf("not a stream but status %d: %s", r.Status, r.Body)
	}
	out, err := r.TryRest()
	if err != nil {
		r.t.Fatalf("the stream did not end in order: %v", err)
	}
	return out
}

// TryAnswer returns the bytes of the message that answers: the body, or the
// data of the last event. Who asks again is told the same.
func (r *Response) TryAnswer() ([]byte, error) {
	if !r.stream {
		return r.Body, nil
	}
	r.once.Do(func() {
		all, err := r.TryRest()
		switch {
		case err != nil:
			r.failed = err
		case len(all) == 0:
			r.failed = errors.New("a stream without an answer")
		default:
			r.answer = all[len(all)-1].Data
		}
	})
	return r.answer, r.failed
}

// Answer is TryAnswer that fails the test.
func (r *Response) Answer() []byte {
	r.t.Helper()
	text, err := r.TryAnswer()
	if err != nil {
		r.t.Fatalf("answer: %v", err)
	}
	return text
}

// Message is the answer taken apart.
func (r *Response) Message() Message {
	r.t.Helper()
	return Parse(r.t, r.Answer())
}

// Result returns the answer's result, which it must be.
func (r *Response) Result() string {
	r.t.Helper()
	m := r.Message()
	if m.Error != nil {
		r.t.Fatalf("an error in place of a result: status %d, %+v", r.Status, *m.Error)
	}
	return string(m.Result)
}

// Over reports whether the stream has ended; events that have come and that
// nobody has read are passed over.
func (r *Response) Over() bool {
	for {
		select {
		case _, ok := <-r.events:
			if !ok {
				return true
			}
		default:
			return false
		}
	}
}

// Close leaves the stream.
func (r *Response) Close() { r.cancel() }
