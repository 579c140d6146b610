package progress

import (
	"encoding/json"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// metaTrace asks for a trace in the _meta of a request, and carries it in that of a
// notification.
const metaTrace = "weir.dev/trace"

// Bounds of what a client is told while its call runs.
const (
	pause     = 100 * time.Millisecond // between two notifications of progress
	maxTraced = 1000                   // inner calls of one call
	maxSaid   = 1 << 10                // bytes of a message
	maxName   = 128                    // bytes of the name of a tool or step
)

// reporter tells a client of its running call: how far it is, and the calls that are made
// for it where the client asks for them. A nil reporter tells nothing.
type reporter struct {
	to    edge.Client
	token []byte // JSON text
	trace bool

	sending sync.Mutex // held while something is sent; taken before mu

	mu     sync.Mutex // never held while a client is waited for
	ended  bool
	last   float64 // what the last notification said
	sent   time.Time
	held   *said       // waits for the pause to pass; nil for nothing
	timer  *time.Timer // of held
	traced int
	calls  []Call // of a trace, that wait for the client to read
}

// said is how far a call is.
type said struct {
	done, total float64
	message     string
}

// newReporter returns the reporter of an exchange; nil if its client wants to hear nothing.
func newReporter(x *edge.Exchange) *reporter {
	token := x.Request.Meta("progressToken").Of(x.Request.Raw)
	if x.Client == nil || len(token) == 0 || token[0] == 'n' {
		return nil
	}
	return &reporter{to: x.Client, token: token, trace: string(x.Request.Meta(metaTrace).Of(x.Request.Raw)) == "true", last: math.Inf(-1)}
}

// progress tells how far the call is. What does not rise is not told, and
// of what comes too fast the last.
func (r *reporter) progress(done, total float64, message string) {
	if r == nil || math.IsNaN(done) || math.IsInf(done, 0) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || done <= r.last || r.held != nil && done <= r.held.done {
		return
	}
	if r.held = (&said{done, total, message}); r.timer == nil {
		r.timer = time.AfterFunc(max(0, pause-time.Since(r.sent)), func() { r.release(false) })
	}
}

// release tells what is held, and at the end is told whether that is all. It runs beside the
// call, which waits for no client.
func (r *reporter) release(end bool) {
	r.sending.Lock()
	defer r.sending.Unlock()
	r.drain()
	r.mu.Lock()
	s := r.held
	if r.held, r.timer = nil, nil; s == nil || r.ended || s.done <= r.last { // a trace may have come in between
		r.ended = r.ended || end
		r.mu.Unlock()
		return
	}
	r.last, r.sent, r.ended = s.done, time.Now(), end
	params := r.params()
	r.mu.Unlock()
	if s.total > 0 && !math.IsInf(s.total, 0) {
		params = append(append(params, `,"total":`...), number(s.total)...)
	}
	if s.message != "" {
		params = mcp.AppendString(append(params, `,"message":`...), edge.Clean(edge.Cut(s.message, maxSaid)))
	}
	r.send(append(params, '}'))
}

// end tells what waits and what is held. Nothing is told from here on.
func (r *reporter) end() {
	if r == nil {
		return
	}
	r.release(true)
}

// params begins the params of a notification; mu is held.
func (r *reporter) params() []byte {
	params := append(append([]byte(`{"progressToken":`), r.token...), `,"progress":`...)
	return append(params, number(r.last)...)
}

// send sends a notification; sending is held. A client that is gone misses it.
func (r *reporter) send(params []byte) {
	if m, err := mcp.Decode(mcp.AppendRequest(nil, nil, "notifications/progress", params)); err == nil {
		_ = r.to.Send(m)
	}
}

// called tells of a call that has ended, if the client traces its own. It waits for no client:
// whoever runs the call has a place that others wait for.
func (r *reporter) called(c *Call) {
	if r == nil || !r.trace {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.traced == maxTraced {
		return
	}
	r.traced++
	told := *c
	told.Tool, told.Step = edge.Cut(c.Tool, maxName), edge.Cut(c.Step, maxName)
	if r.calls = append(r.calls, told); len(r.calls) == 1 { // else somebody is about to take what waits
		go func() {
			r.sending.Lock()
			defer r.sending.Unlock()
			r.drain()
		}()
	}
}

// drain tells of the calls that wait; sending is held.
func (r *reporter) drain() {
	for {
		r.mu.Lock()
		if r.ended || len(r.calls) == 0 {
			r.mu.Unlock()
			return
		}
		c := r.calls[0]
		r.calls = r.calls[1:]
		r.last = next(r.last)
		params := r.params()
		r.mu.Unlock()
		told, err := json.Marshal(struct {
			ID      int64   `json:"id"`
			Parent  int64   `json:"parent"` // 0: the client's own call
			Tool    string  `json:"tool,omitempty"`
			Step    string  `json:"step,omitempty"`
			Attempt int     `json:"attempt"`
			Outcome Outcome `json:"outcome"`
			MS      float64 `json:"ms"`
		}{c.ID, c.Parent, c.Tool, c.Step, c.Attempt, c.Outcome, float64(c.Took.Microseconds()) / 1000})
		if err != nil {
			continue
		}
		params = append(append(params, `,"_meta":{"`+metaTrace+`":`...), told...)
		r.send(append(params, "}}"...))
	}
}

// next is a number above n that leaves room for what is said next.
func next(n float64) float64 {
	if math.IsInf(n, -1) {
		return 0
	}
	return max(n+1e-6, math.Nextafter(n, math.Inf(1)))
}

// number writes a number as JSON.
func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
