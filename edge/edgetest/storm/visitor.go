package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/mcp"
)

// visitor is a client that goes on at whichever process answers: it opens
// another connection whenever it needs one. It is used by one goroutine at a
// time.
type visitor struct {
	addr, name, session string
	era                 kit.Era
	c                   *kit.Client // nil for none
}

// another is the same client, for another goroutine.
func (v *visitor) another() *visitor {
	return &visitor{addr: v.addr, name: v.name, session: v.session, era: v.era}
}

// connect returns a new connection, which ends with ctx at the latest.
func (v *visitor) connect(ctx context.Context) (*kit.Client, error) {
	c, err := kit.Dial(ctx, v.addr, v.era, kit.DialOptions{})
	if err == nil {
		context.AfterFunc(ctx, c.Close)
		c.Session = v.session
	}
	return c, err
}

// begin begins a session.
func (v *visitor) begin(ctx context.Context) (err error) {
	if v.c, err = v.connect(ctx); err != nil {
		return err
	}
	err = v.c.BeginWith(v.name, `{"elicitation":{}}`)
	v.session = v.c.Session
	return err
}

// do sends a request and reads the whole answer. What met a connection that was
// closing is sent again as long as ran says that nobody ran it.
func (v *visitor) do(ctx context.Context, request func(*kit.Client) []byte, ran func() bool, again *atomic.Int64) (a *kit.Answer, err error) {
	for try := 0; ; try++ {
		a, err = v.once(ctx, request)
		if err == nil || ctx.Err() != nil || try == 20 || ran() {
			return a, err
		}
		again.Add(1)
		kit.Sleep(ctx, 20*time.Millisecond)
	}
}

func (v *visitor) once(ctx context.Context, request func(*kit.Client) []byte) (a *kit.Answer, err error) {
	if v.c != nil && v.c.Closed() {
		v.c.Close()
		v.c = nil
	}
	if v.c == nil {
		if v.c, err = v.connect(ctx); err != nil {
			v.c = nil
			return &kit.Answer{}, err
		}
	}
	v.c.Wait(kit.Patience)
	a, err = v.c.Do(request(v.c))
	if err != nil || a.Closes {
		v.c.Close()
		v.c = nil
	}
	return a, err
}

// post is a legacy request.
func post(body string) func(*kit.Client) []byte {
	return func(c *kit.Client) []byte { return c.Request("POST", body) }
}

func never() bool { return false }

// textOf is the text of a result.
func textOf(message []byte) string {
	var m struct {
		Result struct{ Content []struct{ Text string } }
	}
	if json.Unmarshal(message, &m) != nil || len(m.Result.Content) != 1 {
		return ""
	}
	return m.Result.Content[0].Text
}

// count calls a tool that says how many calls there have been in the session.
func (v *visitor) count(ctx context.Context, b *keeper, seen *handOverSeen) {
	was := 0
	for n := 1; kit.Sleep(ctx, 50*time.Millisecond); n++ {
		number := fmt.Sprintf("%s-%d", v.name, n)
		call := func(c *kit.Client) []byte {
			return c.CallText(strconv.Itoa(n), kit.Work{Text: number, How: "count"}, "")
		}
		a, err := v.do(ctx, call, func() bool { return b.times(number) > 0 }, &seen.again)
		if ctx.Err() != nil {
			return
		}
		seen.calls.Add(1)
		said, _ := strconv.Atoi(textOf(a.Text())) // what says nothing is less than before
		switch {
		case err != nil:
			seen.bad(&seen.anew, "%s: %v", number, err)
		case a.Status == 404:
			seen.bad(&seen.lost, "%s: %.200s", number, a.Body)
			return
		case said <= was:
			seen.bad(&seen.anew, "%s: %d calls in the session, after %d: HTTP %d: %.200s", number, said, was, a.Status, a.Body)
		}
		was = max(was, said)
	}
}

// subscribe subscribes to what hear hears.
func (v *visitor) subscribe(ctx context.Context) error {
	var again atomic.Int64
	a, err := v.do(ctx, post(`{"jsonrpc":"2.0","id":"s","method":"resources/subscribe","params":{"uri":"x:"}}`), never, &again)
	if err == nil && a.Status != 200 {
		err = fmt.Errorf("resources/subscribe: HTTP %d: %.200s", a.Status, a.Body)
	}
	return err
}

// hear reads the stream of the session, and opens it again whenever it ends.
func (v *visitor) hear(ctx context.Context, seen *handOverSeen) {
	for last := 0; ctx.Err() == nil; {
		c, err := v.connect(ctx)
		if err != nil {
			kit.Sleep(ctx, 20*time.Millisecond)
			continue
		}
		in, err := c.Listen("", "")
		if status := c.Answer.Status; err != nil && status != 0 && status != 200 && ctx.Err() == nil {
			seen.bad(&seen.lost, "GET: HTTP %d", status)
			c.Close()
			return
		}
		for err == nil {
			var data []byte
			if data, err = in.Next(); err == nil {
				last = v.updated(string(data), last, seen)
			}
		}
		c.Close()
	}
}

// updated takes an event of the stream of the session, and returns the number of
// the last update.
func (v *visitor) updated(event string, last int, seen *handOverSeen) int {
	_, uri, ok := strings.Cut(event, `"uri":"x:`)
	if !ok {
		return last
	}
	n, _ := strconv.Atoi(strings.TrimRight(uri, `"}`)) // what is no number came before
	seen.events.Add(1)
	switch {
	case n <= last:
		seen.doubled.Add(1)
	case last > 0 && n > last+1:
		seen.bad(&seen.gaps, "%s: update %d after %d", v.name, n, last)
	}
	return max(last, n)
}

// resume makes calls with progress, leaves in the middle of their streams, and
// reads on by the id of the last event.
func (v *visitor) resume(ctx context.Context, b *keeper, seen *handOverSeen) {
	for n := 1; kit.Sleep(ctx, 20*time.Millisecond); n++ {
		r := &resumed{visitor: v, seen: seen, number: fmt.Sprintf("%s-steps-%d", v.name, n), id: strconv.Itoa(1_000_000 + n)}
		for try := 0; !r.done && try < 60; try++ {
			if r.last == "" && b.times(r.number) > 0 {
				break // it left before the first event: nothing to resume by
			}
			if !r.read(ctx) || ctx.Err() != nil {
				break
			}
		}
		if !r.done && r.last != "" && ctx.Err() == nil {
			seen.bad(&seen.gaps, "%s: no answer after step %d", r.number, r.step)
		}
	}
}

// resumed is one call whose stream is read in parts.
type resumed struct {
	*visitor
	seen       *handOverSeen
	number, id string
	step       int
	last       string // id of the last event; empty for none
	done       bool
}

// read reads a part of the stream, over a connection of its own; false when
// there is nothing more to try.
func (r *resumed) read(ctx context.Context) bool {
	c, err := r.connect(ctx)
	if err != nil {
		kit.Sleep(ctx, 20*time.Millisecond)
		return true
	}
	defer c.Close()
	c.Wait(kit.Patience)
	var in *kit.Events
	if r.last == "" {
		in, err = c.Stream(c.CallText(r.id, kit.Work{Text: r.number, How: "steps"}, r.id))
	} else {
		in, err = c.Listen("", r.last)
		r.seen.resumed.Add(1)
	}
	switch status := c.Answer.Status; {
	case err == nil, ctx.Err() != nil:
	case status == 0, status == 200, status == 503:
		kit.Sleep(ctx, 50*time.Millisecond)
		return true
	default:
		r.seen.bad(&r.seen.gaps, "%s from %s: HTTP %d: %.200s", r.number, r.last, status, c.Answer.Body)
		return false
	}
	for read := 0; err == nil && !r.done && (read < 3 || r.step >= 9); read++ {
		var data []byte
		data, err = in.Next()
		if in.ID != "" {
			r.last = in.ID
		}
		if err == nil {
			r.take(data)
		}
	}
	return true
}

// take takes one event of the stream.
func (r *resumed) take(data []byte) {
	var m struct {
		ID     json.RawMessage
		Params struct{ Progress int }
	}
	_ = json.Unmarshal(data, &m) // what is none has neither
	switch {
	case m.ID != nil:
		r.done = true
		if textOf(data) == "" || r.step != 10 {
			r.seen.bad(&r.seen.gaps, "%s: after step %d: %.300s", r.number, r.step, data)
		}
	case m.Params.Progress != r.step+1:
		r.seen.bad(&r.seen.gaps, "%s: step %d after %d", r.number, m.Params.Progress, r.step)
		r.step = m.Params.Progress
	default:
		r.step++
	}
}

// ask makes a call of a legacy client whose tool asks, and returns what answers
// it and reads the end of the call.
func (v *visitor) ask(ctx context.Context, number string) (func() error, error) {
	c, err := v.connect(ctx)
	if err != nil {
		return nil, err
	}
	in, err := c.Stream(c.CallText("1", kit.Work{Text: number, How: "ask"}, ""))
	var question []byte
	if err == nil {
		question, err = in.Next()
	}
	var q struct{ ID json.RawMessage }
	if err = errors.Join(err, json.Unmarshal(question, &q)); err != nil || q.ID == nil {
		return nil, fmt.Errorf("ask: %w: %.200s", err, question)
	}
	return func() error {
		defer c.Close()
		var again atomic.Int64
		a, err := v.do(ctx, post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"n":%q}}}`, q.ID, number)), never, &again)
		if err != nil || a.Status != 202 {
			return fmt.Errorf("HTTP %d: %.200s: %w", a.Status, a.Body, err)
		}
		result, err := in.Next()
		if err == nil && !strings.Contains(textOf(result), number) {
			err = fmt.Errorf("%.300s", result)
		}
		return err
	}, nil
}

// park makes a call of a modern client that is parked, and returns what comes back
// with the answer.
func (v *visitor) park(ctx context.Context, number string) (func() error, error) {
	call := func(id, more string) func(*kit.Client) []byte {
		return func(c *kit.Client) []byte {
			params := fmt.Sprintf(`"name":"work","arguments":{"text":%q,"how":"ask"}%s`, number, more)
			return c.Modern(id, "tools/call", "work", params, `"`+mcp.MetaCapabilities+`":{"elicitation":{}}`)
		}
	}
	var again atomic.Int64
	a, err := v.do(ctx, call("1", ""), never, &again)
	var m struct {
		Result struct {
			InputRequests map[string]json.RawMessage
			RequestState  string
		}
	}
	if err = errors.Join(err, json.Unmarshal(a.Text(), &m)); err != nil || len(m.Result.InputRequests) != 1 {
		return nil, fmt.Errorf("park: HTTP %d: %.300s: %w", a.Status, a.Body, err)
	}
	key := ""
	for k := range m.Result.InputRequests {
		key = k
	}
	return func() error {
		answer := fmt.Sprintf(`,"requestState":%q,"inputResponses":{%q:{"action":"accept","content":{"n":%q}}}`, m.Result.RequestState, key, number)
		a, err := v.do(ctx, call("2", answer), never, &again)
		if err == nil && !strings.Contains(textOf(a.Text()), number) {
			err = fmt.Errorf("HTTP %d: %.300s", a.Status, a.Body)
		}
		return err
	}, nil
}
