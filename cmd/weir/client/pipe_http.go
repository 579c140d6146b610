package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// A server that nobody serves at the moment, since it is being started again, is tried for
// so long and so often.
const (
	maxAway  = 15 * time.Second
	tryAgain = 200 * time.Millisecond
	maxPause = 5 * time.Second // between two attempts to open a stream
	maxLists = 100             // pages of the list of tools
)

// exchange sends a request and returns its answer. sent is called when the request has been
// sent, if it ever is.
func (p *Pipe) exchange(ctx context.Context, q *asked, sent func()) (*mcp.Message, error) {
	if q.Method == "initialize" && !q.modern {
		return p.initialize(ctx, q.Message)
	}
	for again := true; ; again = false {
		s := p.current()
		if q.modern {
			s = nil
		}
		header, err := p.headers(ctx, q, s)
		if err != nil {
			return nil, err
		}
		r, err := p.do(ctx, http.MethodPost, q.Raw, header, sent)
		if err != nil {
			return nil, err
		}
		if again && lostSession(r, s) {
			_ = r.Body.Close()
			if err := p.renew(ctx, s); err != nil {
				return nil, err
			}
			continue
		}
		answer, err := p.read(ctx, r, q.IDText(), s)
		if again && err == nil && q.modern && answer.Code() == mcp.CodeHeaderMismatch && q.Method == "tools/call" {
			p.mu.Lock()
			p.mirrors = nil // the tool has changed
			p.mu.Unlock()
			continue
		}
		return answer, err
	}
}

// tell sends what gets no answer.
func (p *Pipe) tell(ctx context.Context, m *mcp.Message) error {
	s := p.current()
	err := p.post(ctx, m, s)
	if refused := new(ConnectionError); errors.As(err, &refused) && refused.Status == http.StatusNotFound && s != nil && s.id != "" {
		if err = p.renew(ctx, s); err == nil && m.Kind == mcp.Notification {
			err = p.post(ctx, m, p.current())
		}
	}
	if err == nil && m.Method == "notifications/initialized" && s != nil {
		p.listen(s)
	}
	return err
}

// post sends a message that gets no answer in a session; nil for none.
func (p *Pipe) post(ctx context.Context, m *mcp.Message, s *pipeSession) error {
	r, err := p.do(ctx, http.MethodPost, m.Raw, s.headers(), nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode/100 != 2 {
		return p.refused(r, start(r.Body))
	}
	return nil
}

// headers are those of a request: in the modern era what the revision wants to be repeated.
func (p *Pipe) headers(ctx context.Context, q *asked, s *pipeSession) (http.Header, error) {
	if !q.modern {
		return s.headers(), nil
	}
	h := http.Header{}
	if q.Method == "tools/call" {
		mirrors, err := p.mirrorsOf(ctx, q)
		if err != nil {
			return nil, err
		}
		h = repeated(mirrors, q.Get("arguments").Of(q.Raw))
	}
	h.Set(mcp.HeaderVersion, q.MetaText(mcp.MetaVersion))
	h.Set(mcp.HeaderMethod, q.Method)
	if target := mcp.MethodOf(q.Method).Target; target != "" {
		h.Set(mcp.HeaderName, mcp.EncodeHeader(q.Text(target)))
	}
	return h, nil
}

// mirrorsOf are the arguments of the tool of a call that are repeated in headers. Only the
// tool's definition says which, so the tools are listed before the first call.
func (p *Pipe) mirrorsOf(ctx context.Context, q *asked) ([]mirror, error) {
	name := q.Text("name")
	p.mu.Lock()
	known := p.mirrors
	p.mu.Unlock()
	if known != nil {
		return known[name], nil
	}
	known = map[string][]mirror{}
	cursor := []byte(nil)
	for n := 0; n == 0 || cursor != nil && n < maxLists; n++ {
		page, err := p.listTools(ctx, q, cursor)
		if err != nil {
			return nil, err
		}
		for _, tool := range mcp.Elements(mcp.Lookup(page, "tools")) {
			// A definition that is not valid has no headers: the server says so.
			if all, err := mirrored(mcp.Lookup(tool, "inputSchema")); err == nil && len(all) > 0 {
				known[mcp.String(mcp.Lookup(tool, "name"))] = all
			}
		}
		if cursor = mcp.Lookup(page, "nextCursor"); string(cursor) == "null" {
			cursor = nil
		}
	}
	p.mu.Lock()
	p.mirrors = known
	p.mu.Unlock()
	return known[name], nil
}

// listTools returns a page of the list of tools, asked for as the client of a call would; nil
// when the server has none.
func (p *Pipe) listTools(ctx context.Context, call *asked, cursor []byte) ([]byte, error) {
	id := []byte(`"weir-stdio"`)
	set := []mcp.Member{}
	for _, name := range []string{mcp.MetaVersion, mcp.MetaClientInfo, mcp.MetaCapabilities} {
		if value := call.Meta(name).Of(call.Raw); value != nil {
			set = append(set, mcp.Raw(name, value))
		}
	}
	params := mcp.Change(nil, nil, mcp.Raw("_meta", object(set)))
	if cursor != nil {
		params = mcp.Change(params, nil, mcp.Raw("cursor", cursor))
	}
	m, err := mcp.Decode(mcp.AppendRequest(nil, id, "tools/list", params))
	if err != nil {
		return nil, fmt.Errorf("tools/list: %w", err)
	}
	answer, err := p.exchange(ctx, &asked{Message: m, modern: true}, nil)
	if err != nil {
		return nil, err
	}
	return answer.Result.Of(answer.Raw), nil
}

// do sends an HTTP request, also again while nobody listens: then it was not received.
func (p *Pipe) do(ctx context.Context, method string, body []byte, header http.Header, sent func()) (*http.Response, error) {
	for end := time.Now().Add(maxAway); ; {
		r, err := p.once(ctx, method, body, header, sent)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(end) {
			return nil, p.unreachable(ctx, err)
		}
		if err := pause(ctx, tryAgain); err != nil {
			return nil, err
		}
	}
}

func (p *Pipe) once(ctx context.Context, method string, body []byte, header http.Header, sent func()) (*http.Response, error) {
	if sent != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent() }})
	}
	r, err := http.NewRequestWithContext(ctx, method, p.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for _, more := range []http.Header{p.Header, header} {
		for name, values := range more {
			r.Header[name] = values
		}
	}
	r.Host = p.Header.Get("Host")
	accept := "text/event-stream"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		accept = "application/json, text/event-stream"
	}
	r.Header.Set("Accept", accept)
	return p.HTTP.Do(r)
}

// read reads what answers a request, and passes on what comes before it.
func (p *Pipe) read(ctx context.Context, r *http.Response, id []byte, s *pipeSession) (*mcp.Message, error) {
	defer func() { _ = r.Body.Close() }()
	if !eventful(r) {
		return p.readJSON(ctx, r, id)
	}
	events := eventStream{EventReader: mcp.NewEventReader(r.Body, maxMessage), retry: time.Second}
	for tries := 0; ; {
		before := events.last
		answer, err := p.events(ctx, &events, id)
		if err != nil || answer != nil {
			return answer, err
		}
		// A server of 2025-11-25 may end a stream before the answer, which is fetched then.
		if events.last != before {
			tries = 0
		}
		if tries++; events.last == "" || s == nil || tries > maxResumes {
			return nil, &ConnectionError{URL: shown(p.URL), What: "the stream ended before the answer came", Next: "the log of the server says why"}
		}
		if err := pause(ctx, events.retry); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
		if r, err = p.do(ctx, http.MethodGet, nil, s.resuming(events.last), nil); err != nil {
			return nil, err
		}
		if !eventful(r) {
			return nil, p.refused(r, start(r.Body))
		}
		events.EventReader = mcp.NewEventReader(r.Body, maxMessage)
	}
}

// eventful reports whether an answer is a stream of events.
func eventful(r *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == "text/event-stream" && r.StatusCode == http.StatusOK
}

// readJSON reads an answer that is one message, of whatever HTTP status.
func (p *Pipe) readJSON(ctx context.Context, r *http.Response, id []byte) (*mcp.Message, error) {
	if r.StatusCode == http.StatusUnauthorized {
		return nil, p.refused(r, start(r.Body))
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxMessage+1))
	switch {
	case err != nil:
		return nil, p.unreachable(ctx, err)
	case len(body) > maxMessage:
		return nil, tooLarge(p.URL)
	}
	m, err := mcp.Decode(body)
	switch {
	case err == nil && (m.Kind == mcp.Result || m.Kind == mcp.Failure) && mcp.SameID(m.IDText(), id):
		return m, nil
	case err == nil && m.Kind == mcp.Failure && m.IDText() == nil: // it is about this request, whose id it did not read
		return mcp.Decode(mcp.AppendError(nil, id, m.Code(), m.Text("message"), m.Get("data").Of(m.Raw)))
	}
	return nil, p.refused(r, body[:min(len(body), maxShown)])
}

// refused is refused, with what can be done about it here.
func (p *Pipe) refused(r *http.Response, body []byte) error {
	e := refused(p.URL, r, body)
	if r.StatusCode == http.StatusUnauthorized {
		e.Next = "give a token with --bearer-token-file, or a header with --header"
	}
	return e
}

// unreachable is unreachable, with what can be done about it here.
func (p *Pipe) unreachable(ctx context.Context, err error) error {
	err = unreachable(ctx, p.URL, 0, err)
	if lost := new(ConnectionError); errors.As(err, &lost) {
		lost.Next = p.Next
	}
	return err
}

func tooLarge(target string) error {
	return &ConnectionError{URL: shown(target), What: fmt.Sprintf("sent a message larger than %d MiB", maxMessage>>20), Next: "ask the server for less"}
}

// events reads events until the answer to a request, which is nil when the stream ends before
// it. What else is in them is for the client.
func (p *Pipe) events(ctx context.Context, events *eventStream, id []byte) (*mcp.Message, error) {
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, mcp.ErrEventTooLarge):
			return nil, tooLarge(p.URL)
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, nil
		}
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
		switch {
		case err != nil:
			return nil, garbled(p.URL, err)
		case m.Kind == mcp.Request || m.Kind == mcp.Notification:
			p.heard(m)
		case id != nil && mcp.SameID(m.IDText(), id):
			return m, nil
		default:
			p.Log("the server answers what nobody asked")
		}
	}
}
