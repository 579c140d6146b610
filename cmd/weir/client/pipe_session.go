package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// pipeSession is a session with a server of the legacy era.
type pipeSession struct {
	id      string             // Mcp-Session-Id; empty for a server that has none
	version string             // the revision that both sides speak
	greeted *mcp.Message       // initialize, as the client sent it
	end     context.CancelFunc // of its stream; nil before there is one
}

func (p *Pipe) current() *pipeSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// headers are those of a message in the session; nil for no session.
func (s *pipeSession) headers() http.Header {
	h := http.Header{}
	if s == nil {
		return h
	}
	if s.id != "" {
		h.Set(mcp.HeaderSession, s.id)
	}
	h.Set(mcp.HeaderVersion, s.version)
	return h
}

// resuming are the headers that ask for a stream after one of its events; "" for a new one.
func (s *pipeSession) resuming(last string) http.Header {
	h := s.headers()
	if last != "" {
		h.Set(mcp.HeaderLastEventID, last)
	}
	return h
}

// lostSession reports whether a server does not know a session any more.
func lostSession(r *http.Response, s *pipeSession) bool {
	return r.StatusCode == http.StatusNotFound && s != nil && s.id != ""
}

// initialize begins a session, and returns the answer for the client.
func (p *Pipe) initialize(ctx context.Context, m *mcp.Message) (*mcp.Message, error) {
	s, answer, err := p.greet(ctx, m)
	if err != nil || s == nil {
		return answer, err
	}
	p.mu.Lock()
	before := p.session
	p.session = s
	p.mu.Unlock()
	if before != nil {
		p.bye(before)
	}
	return answer, nil
}

// greet asks the server for a session; there is none where the answer is an error.
func (p *Pipe) greet(ctx context.Context, m *mcp.Message) (*pipeSession, *mcp.Message, error) {
	r, err := p.do(ctx, http.MethodPost, m.Raw, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	id := r.Header.Get(mcp.HeaderSession)
	answer, err := p.read(ctx, r, m.IDText(), nil)
	if err != nil || answer.Kind == mcp.Failure {
		return nil, answer, err
	}
	if !visible(id) {
		id = ""
	}
	return &pipeSession{id: id, version: answer.Text("protocolVersion"), greeted: m}, answer, nil
}

// renew makes a new session in place of one that the server has lost. The client knows nothing
// of it.
func (p *Pipe) renew(ctx context.Context, lost *pipeSession) error {
	p.renewal.Lock()
	defer p.renewal.Unlock()
	if p.current() != lost {
		return nil // somebody else was faster
	}
	s, _, err := p.greet(ctx, lost.greeted)
	if err == nil && s == nil {
		err = errors.New("the server has lost the session, and gives no other")
	}
	if err != nil {
		return err
	}
	ready, err := mcp.Decode(mcp.AppendRequest(nil, nil, "notifications/initialized", nil))
	if err == nil {
		err = p.post(ctx, ready, s)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.session = s
	p.mu.Unlock()
	p.Log("the server has lost the session, and there is a new one: subscriptions and the level of logs are those of its start")
	p.listen(s)
	p.hush(lost)
	return nil
}

// hush ends the stream of a session.
func (p *Pipe) hush(s *pipeSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.end != nil {
		s.end()
	}
}

// bye ends a session; a server need not allow that.
func (p *Pipe) bye(s *pipeSession) {
	p.hush(s)
	if s.id == "" {
		return
	}
	ctx, done := context.WithTimeout(context.Background(), farewell)
	defer done()
	if r, err := p.once(ctx, http.MethodDelete, nil, s.headers(), nil); err == nil {
		_ = r.Body.Close()
	}
}

// listen begins to pass on what the server says of its own accord in a session.
func (p *Pipe) listen(s *pipeSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.end != nil || p.session != s {
		return
	}
	ctx, end := context.WithCancel(p.life)
	s.end = end
	p.running.Go(func() {
		defer end()
		p.follow(ctx, s)
	})
}

// follow reads the stream of a session, and opens it again when it ends.
func (p *Pipe) follow(ctx context.Context, s *pipeSession) {
	events := eventStream{retry: time.Second}
	for wait := events.retry; ; {
		r, err := p.once(ctx, http.MethodGet, nil, s.resuming(events.last), nil)
		switch {
		case err != nil:
		case eventful(r):
			events.EventReader = mcp.NewEventReader(r.Body, maxMessage)
			if _, err = p.events(ctx, &events, nil); err == nil {
				wait = events.retry
			}
		case lostSession(r, s):
			_ = r.Body.Close()
			err = p.renew(ctx, s)
			if p.current() != s {
				return // the new session has a stream of its own
			}
		case r.StatusCode/100 == 4 && r.StatusCode != http.StatusTooManyRequests:
			_ = r.Body.Close()
			return // it has no such stream
		}
		if r != nil {
			_ = r.Body.Close()
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			wait = min(2*wait, maxPause)
		}
		if pause(ctx, wait) != nil {
			return
		}
	}
}
