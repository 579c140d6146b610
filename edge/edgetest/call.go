package edgetest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Call is a request under way at a fake server: what a script answers with.
type Call struct {
	*Request

	server  *Server
	w       http.ResponseWriter
	r       *http.Request
	session *ServerSession  // over HTTP with SSE: where everything goes
	gone    <-chan struct{} // closed when nobody waits for the answer any longer

	mu    sync.Mutex
	begun bool // the answer's header is out
}

// Header returns the header of the answer, which may be changed until the
// first byte of it is written.
func (c *Call) Header() http.Header { return c.w.Header() }

// ID returns the id of the request as it was written.
func (c *Call) ID() string { return string(c.Message.ID) }

// Gone returns a channel that is closed when the client has given the request
// up.
func (c *Call) Gone() <-chan struct{} { return c.gone }

// Wait waits for a channel to be closed or to give something. It reports false
// when the client has left, or the server ends, before that.
func (c *Call) Wait(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-c.gone:
	case <-c.server.closing:
	case <-time.After(Patience):
		c.server.t.Errorf("%s: a script waited longer than %s", c.Kind, Patience)
	}
	return false
}

// Accept answers 202 without a body.
func (c *Call) Accept() { c.Text(202, "", "") }

// Text answers with any body. An empty type sets none.
func (c *Call) Text(status int, contentType, body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun {
		return
	}
	c.begun = true
	if contentType != "" {
		c.w.Header().Set("Content-Type", contentType)
	}
	c.w.WriteHeader(status)
	_, _ = c.w.Write([]byte(body)) // a client that left is none of the server's concern
	if c.session != nil {
		_ = http.NewResponseController(c.w).Flush()
	}
}

// JSON answers with exactly these bytes as application/json.
func (c *Call) JSON(status int, body string) { c.Text(status, "application/json", body) }

// Result answers with a result, which is JSON text: on the stream when there
// is one, else as JSON.
func (c *Call) Result(result string) {
	c.reply(200, `{"jsonrpc":"2.0","id":`+c.ID()+`,"result":`+result+`}`)
}

// Error answers with an error under the request's id. The status counts only
// where there is no stream.
func (c *Call) Error(status, code int, message string) { c.fault(status, code, message, "") }

func (c *Call) fault(status, code int, message, data string) {
	if data != "" {
		data = `,"data":` + data
	}
	id := ""
	if c.Message.ID != nil {
		id = `"id":` + c.ID() + `,`
	}
	c.reply(status, fmt.Sprintf(`{"jsonrpc":"2.0",%s"error":{"code":%d,"message":%q%s}}`, id, code, message, data))
}

func (c *Call) reply(status int, text string) {
	c.mu.Lock()
	stream := c.begun
	c.mu.Unlock()
	if stream || c.session != nil {
		c.Event(text)
		return
	}
	c.JSON(status, text)
}

// Event puts a message on the stream of the answer, which begins with it.
func (c *Call) Event(data string) {
	if c.session != nil {
		select {
		case c.session.out <- data:
		case <-c.session.cut:
		case <-c.server.closing:
		}
		return
	}
	c.Raw("event: message\ndata: " + data + "\n\n")
}

// Raw puts bytes on the stream of the answer as they are.
func (c *Call) Raw(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream()
	_, _ = c.w.Write([]byte(text))
	_ = http.NewResponseController(c.w).Flush()
}

// stream writes the header of a stream; c.mu is held.
func (c *Call) stream() {
	if c.begun {
		return
	}
	c.begun = true
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.Header().Set("Cache-Control", "no-cache")
	c.w.Header().Set("Transfer-Encoding", "chunked")
	c.w.WriteHeader(200)
}

// Whole answers with a stream that is written at once, its end included.
func (c *Call) Whole(events ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream()
	for _, e := range events {
		_, _ = c.w.Write([]byte("event: message\ndata: " + e + "\n\n"))
	}
}

// Notify puts a notification on the stream.
func (c *Call) Notify(method, params string) { c.Event(request("", method, params)) }

// Progress puts a progress notification on the stream, under the token that
// the request came with.
func (c *Call) Progress(n int) {
	c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, c.Token(), n))
}

// Token returns the request's progress token as it was written; "" for none.
func (c *Call) Token() string { return Member(string(c.Message.Params), "_meta", "progressToken") }

// Ask puts a request to the client on the stream, under an id that is JSON
// text, and returns the message that answers it.
func (c *Call) Ask(id, method, params string) Message {
	c.server.t.Helper()
	c.server.mu.Lock()
	one := c.server.sessions[c.Request.Session]
	if one == nil {
		c.server.mu.Unlock()
		c.server.t.Errorf("%s: a question in a session that is gone", c.Kind)
		c.Abort()
	}
	ch := make(chan Message, 1)
	one.asked[id] = ch
	c.server.mu.Unlock()
	c.Event(request(id, method, params))
	select {
	case m := <-ch:
		return m
	case <-c.gone:
		c.Abort()
	case <-c.server.closing:
		c.Abort()
	case <-time.After(Patience):
		c.server.t.Errorf("%s: no answer to question %s within %s", c.Kind, id, Patience)
		c.Abort()
	}
	panic("unreachable")
}

// Abort closes the connection without a further byte and ends the script.
func (c *Call) Abort() { panic(http.ErrAbortHandler) }

// Bytes answers with a whole HTTP answer as it is, and closes the connection.
func (c *Call) Bytes(text string) {
	conn, _, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		c.server.t.Errorf("hijack: %v", err)
		return
	}
	_, _ = conn.Write([]byte(text))
	_ = conn.Close()
}

// hear is the session's own stream, until the client leaves or the session
// ends.
func (c *Call) hear(one *ServerSession) {
	if one == nil {
		c.Text(405, "text/plain", "Method Not Allowed")
		return
	}
	c.mu.Lock()
	c.stream()
	_ = http.NewResponseController(c.w).Flush()
	c.mu.Unlock()
	s := c.server
	count := func(n int) {
		s.mu.Lock()
		one.streams += n
		s.change()
		s.mu.Unlock()
	}
	count(1)
	defer count(-1)
	for {
		select {
		case data := <-one.out:
			if !strings.Contains(data, "\n") {
				data = "event: message\ndata: " + data + "\n\n"
			}
			c.Raw(data)
		case <-one.cut:
			return
		case <-c.r.Context().Done():
			return
		case <-s.closing:
			return
		}
	}
}
