package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// Bounds of a Pipe.
const (
	maxLine   = 16 << 20         // bytes of a message of the client
	maxAsked  = 256              // requests of the client under way
	maxBatch  = 100              // messages of a batch (2025-03-26)
	maxBehind = 30 * time.Second // for a message that gets no answer
)

// Pipe carries messages between a client that speaks over its standard streams and a server
// over HTTP. Each message goes in the era that it is of, and as it is: only line ends between
// its tokens become spaces. In the legacy era the Pipe has a session with the server, which it
// makes anew when the server has lost it; the client does not notice.
//
// pipe.go is the side of the client, pipe_http.go that of the server.
type Pipe struct {
	URL    string
	HTTP   *http.Client
	Header http.Header       // sent with every request
	Out    io.Writer         // where the client reads
	Log    func(text string) // told what is nobody's answer
	Next   string            // what to do when the server cannot be reached

	life    context.Context         // of the Pipe: the stream of a session outlives the message that begins it
	lost    context.CancelCauseFunc // ends that, since the client is gone
	running sync.WaitGroup
	writing sync.Mutex // of Out
	renewal sync.Mutex // held while a session is made anew

	mu      sync.Mutex // of what follows
	asked   map[string]*asked
	session *pipeSession        // of the legacy era; nil before initialize was answered
	mirrors map[string][]mirror // of tools, by their names; nil before they were listed
}

// asked is a request of the client under way.
type asked struct {
	*mcp.Message
	modern  bool
	cancel  context.CancelFunc
	dropped bool // the client wants no answer any more
}

// Run carries messages until the client ends its stream, or ctx ends. Requests that are under
// way at the end of the stream may be answered for a moment.
func (p *Pipe) Run(ctx context.Context, in io.Reader) error {
	ctx, p.lost = context.WithCancelCause(ctx)
	defer p.lost(nil)
	p.life = ctx
	p.asked = map[string]*asked{}
	lines := make(chan []byte)
	ended := make(chan error, 1)
	go func() { // ends with the client's stream, or with the process
		ended <- p.lines(ctx, bufio.NewReaderSize(in, 64<<10), lines)
		time.AfterFunc(farewell, func() { p.lost(io.EOF) })
	}()
	for {
		select {
		case line := <-lines:
			p.take(ctx, line)
		case err := <-ended:
			p.leave(ctx)
			return err
		case <-ctx.Done():
			p.leave(ctx)
			return ending(context.Cause(ctx))
		}
	}
}

// ending is the error of a Pipe that ended for a cause; a client that is gone is no failure.
func ending(cause error) error {
	for _, gone := range []error{io.EOF, io.ErrClosedPipe, syscall.EPIPE, os.ErrClosed} {
		if errors.Is(cause, gone) {
			return nil
		}
	}
	return cause
}

// lines reads the lines of the client. One that is too long is refused and passed over.
func (p *Pipe) lines(ctx context.Context, in *bufio.Reader, lines chan<- []byte) error {
	var line []byte
	for long := false; ; {
		part, err := in.ReadSlice('\n')
		if !long {
			line = append(line, part...)
		}
		if len(line) > maxLine+len("\r\n") {
			long, line = true, nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("standard input: %w", err)
		case long:
			p.refuse(nil, mcp.CodeInvalidRequest, fmt.Sprintf("a message larger than %d MiB", maxLine>>20))
		case len(bytes.TrimSpace(line)) > 0:
			select {
			case lines <- bytes.TrimSpace(line):
			case <-ctx.Done():
				return nil
			}
		}
		if err != nil {
			return nil
		}
		line, long = nil, false
	}
}

// leave waits for what is under way, for a moment, and ends the rest.
func (p *Pipe) leave(ctx context.Context) {
	for p.busy() && pause(ctx, 10*time.Millisecond) == nil {
		continue
	}
	p.lost(nil)
	p.running.Wait()
	if s := p.current(); s != nil {
		p.bye(s)
	}
}

func (p *Pipe) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.asked) > 0
}

// take takes a line of the client: a message, or a batch of them.
func (p *Pipe) take(ctx context.Context, line []byte) {
	m, err := mcp.Decode(line)
	if errors.Is(err, mcp.ErrBatch) {
		parts, err := mcp.Split(line, maxBatch)
		if err != nil {
			p.refuse(nil, mcp.CodeInvalidRequest, err.Error())
		}
		for _, part := range parts {
			if text := part.Of(line); len(text) > 0 && text[0] != '[' {
				p.take(ctx, text)
			}
		}
		return
	}
	envelope := new(mcp.EnvelopeError)
	switch {
	case errors.As(err, &envelope):
		p.refuse(m.IDText(), mcp.CodeInvalidRequest, err.Error())
	case err != nil:
		p.refuse(nil, mcp.CodeParse, err.Error())
	case m.Kind == mcp.Request:
		p.request(ctx, m)
	case m.Kind == mcp.Notification && m.Method == "notifications/cancelled":
		p.cancel(ctx, m)
	default:
		p.pass(ctx, m)
	}
}

// request sends a request of the client. It returns when the request is sent, so that what
// the client says next arrives after it; initialize is answered by then.
func (p *Pipe) request(ctx context.Context, m *mcp.Message) {
	id := string(m.IDText())
	ctx, cancel := context.WithCancel(ctx)
	q := &asked{Message: m, modern: m.Meta(mcp.MetaVersion).OK(), cancel: cancel}
	p.mu.Lock()
	twice, full := p.asked[id] != nil, len(p.asked) >= maxAsked
	if !twice && !full {
		p.asked[id] = q
	}
	p.mu.Unlock()
	if twice || full {
		cancel()
		what := "there is a request with this id under way"
		if full {
			what = fmt.Sprintf("%d requests are under way, which is the most: try again when one has ended", maxAsked)
		}
		p.refuse(m.IDText(), mcp.CodeInvalidRequest, what)
		return
	}
	sent := make(chan struct{})
	isSent := sync.OnceFunc(func() { close(sent) })
	if q.modern {
		isSent() // in that era nothing depends on what came before
	}
	p.running.Go(func() {
		defer isSent()
		defer cancel()
		answer, err := p.exchange(ctx, q, isSent)
		p.mu.Lock()
		delete(p.asked, id)
		dropped := q.dropped
		p.mu.Unlock()
		switch {
		case dropped && err != nil, ctx.Err() != nil:
		case err != nil:
			p.refuse(m.IDText(), mcp.CodeInternal, err.Error())
		default:
			p.say(answer.Raw)
		}
	})
	<-sent
}

// cancel is told that the client does not want an answer any more. A modern server learns that
// by the end of its stream, a legacy one by a message.
func (p *Pipe) cancel(ctx context.Context, m *mcp.Message) {
	id := m.Get("requestId").Of(m.Raw)
	var modern bool
	p.mu.Lock()
	for _, q := range p.asked {
		if id != nil && mcp.SameID(q.IDText(), id) {
			if q.dropped, modern = true, q.modern; modern {
				q.cancel()
			}
		}
	}
	p.mu.Unlock()
	if !modern {
		p.pass(ctx, m)
	}
}

// pass sends what gets no answer: a notification, or an answer to the server.
func (p *Pipe) pass(ctx context.Context, m *mcp.Message) {
	within, done := context.WithTimeoutCause(ctx, maxBehind, errors.New("the server did not take it in time"))
	defer done()
	if err := p.tell(within, m); err != nil && ctx.Err() == nil {
		p.Log("a message of the client is lost: " + err.Error())
	}
}

// refuse answers the client with an error. Without an id it is that of no request.
func (p *Pipe) refuse(id []byte, code int, what string) {
	if id == nil {
		id = []byte("null")
	}
	p.say(mcp.AppendError(nil, id, code, what, nil))
}

// say writes a message to the client, on one line. It changes the message.
func (p *Pipe) say(message []byte) {
	for i, c := range message {
		if c == '\n' || c == '\r' { // JSON has none of them inside of strings
			message[i] = ' '
		}
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := p.Out.Write(message)
	if err == nil {
		_, err = p.Out.Write([]byte{'\n'})
	}
	if err != nil {
		p.lost(fmt.Errorf("standard output: %w", err))
	}
}

// heard takes a message of the server that answers nothing: it is the client's.
func (p *Pipe) heard(m *mcp.Message) {
	if m.Method == "notifications/tools/list_changed" {
		p.mu.Lock()
		p.mirrors = nil
		p.mu.Unlock()
	}
	p.say(m.Raw)
}
