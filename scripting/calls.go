package scripting

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"go.starlark.net/starlark"
)

// encodeCall is what a program gives a tool: a byte that is 1 for the whole result, the
// values without names and the values with names, in the wire form.
func encodeCall(args starlark.Tuple, named []starlark.Tuple, whole bool) ([]byte, error) {
	e := encoder{out: make([]byte, 0, 128), left: MaxNodes, most: MaxOut}
	e.out = append(e.out, 0)
	if whole {
		e.out[0] = 1
	}
	e.out = binary.LittleEndian.AppendUint32(e.out, uint32(len(args)))
	for i, v := range args {
		if err := e.value(v, 0); err != nil {
			return nil, within("arguments"+indexStep(i), err)
		}
	}
	e.out = binary.LittleEndian.AppendUint32(append(e.out, tagDict), uint32(len(named)))
	if err := e.grow(2 + len(named)); err != nil {
		return nil, within("arguments", err)
	}
	for i, pair := range named {
		name, _ := starlark.AsString(pair[0])
		if twice(named[:i], name) {
			return nil, fmt.Errorf("arguments: two values for %q", clip(name, 64))
		}
		if err := e.text(name); err != nil {
			return nil, within("arguments"+keyStep(name), err)
		}
		if err := e.value(pair[1], 0); err != nil {
			return nil, within("arguments"+keyStep(name), err)
		}
	}
	return e.out, nil
}

// twice reports whether a name is among those before it. A call has at most 255 names in
// its text; more come from a dict, whose keys differ.
func twice(before []starlark.Tuple, name string) bool {
	for _, pair := range before[:min(len(before), 255)] {
		if s, _ := starlark.AsString(pair[0]); s == name {
			return true
		}
	}
	return false
}

// DecodeCall reads what Submit was given. The bytes may come from a hostile guest: what is
// no call, or has no JSON form of at most MaxOut bytes, is an error.
func DecodeCall(kind Kind, tool string, args []byte) (*Call, error) {
	if len(tool) > maxToolName || !utf8.ValidString(tool) {
		return nil, errors.New("no name of a tool")
	}
	c := &Call{Kind: kind, Tool: tool}
	switch kind {
	case KindList:
		c.Tool = ""
		return c, nil
	case KindDescribe:
		return c, nil
	case KindCall:
	default:
		return nil, fmt.Errorf("no kind of call: %d", kind)
	}
	if len(args) == 0 {
		return nil, errCut
	}
	c.Whole = args[0] == 1
	w := writer{reader: reader{rest: args[1:], left: MaxNodes}}
	n, err := w.count(1)
	if err != nil {
		return nil, err
	}
	total := 0
	for range n {
		w.out = nil
		if err := w.value(0); err != nil {
			return nil, err
		}
		if total += len(w.out); total > MaxOut {
			return nil, errLarge(MaxOut)
		}
		c.Positional = append(c.Positional, w.out)
	}
	if len(w.rest) == 0 || w.rest[0] != tagDict {
		return nil, errCut
	}
	w.out = nil
	if err := w.value(0); err != nil {
		return nil, err
	}
	if len(w.rest) > 0 {
		return nil, errors.New("there are bytes after the arguments")
	}
	if total+len(w.out) > MaxOut {
		return nil, errLarge(MaxOut)
	}
	c.Arguments = w.out
	return c, nil
}

// The kinds of answers in their encoded form.
const (
	answerValue byte = iota
	answerFault
	answerFinal
)

// EncodeAnswer writes an answer for the interpreter. A value beyond the bounds of FromJSON
// becomes an error, and an error's message is cleaned.
func EncodeAnswer(tool string, a Answer) []byte {
	if a.Error == nil {
		value := a.Value
		if value == nil {
			value = []byte("null")
		}
		wire, err := FromJSON(value)
		if err == nil {
			return append([]byte{answerValue}, wire...)
		}
		a.Error = &Fault{Message: fmt.Sprintf("tool %q: result: %s", tool, err)}
	}
	b := []byte{answerFault}
	if a.Error.Final {
		b = []byte{answerFinal, byte(a.Error.Cause)}
	}
	b = appendInt(b, int64(a.Error.Code))
	b = appendBytes(b, Clean(a.Error.Message))
	if len(a.Error.Data) > 0 {
		if wire, err := FromJSON(a.Error.Data); err == nil {
			return append(b, wire...)
		}
	}
	return b
}

// told is the fault of an answer, and whether it ends the run.
type told struct {
	Fault
}

// decodeAnswer reads what EncodeAnswer wrote. Value is the error's data when there is an
// error; nil for none.
func decodeAnswer(b []byte, m *meter) (value starlark.Value, fault *told, err error) {
	if len(b) == 0 {
		return nil, nil, errCut
	}
	if b[0] == answerValue {
		value, err = decode(b[1:], m)
		return value, nil, err
	}
	final, cause := b[0] == answerFinal, Mistake
	if b = b[1:]; final && len(b) > 0 {
		cause, b = Cause(b[0]), b[1:]
	}
	r := reader{rest: b, left: 1}
	if _, err = r.tag(); err != nil {
		return nil, nil, err
	}
	code, err := r.uint64()
	if err != nil {
		return nil, nil, err
	}
	message, err := r.bytes()
	if err != nil {
		return nil, nil, err
	}
	if len(r.rest) > 0 {
		if value, err = decode(r.rest, m); err != nil {
			return nil, nil, err
		}
	}
	return value, &told{Fault{Message: string(message), Code: int(int64(code)), Final: final, Cause: cause}}, nil
}

// Calls are the calls of one run on the side of the host, for both engines: it holds the
// limits of the run, whatever the interpreter does.
type Calls struct {
	run    *Run
	limits Limits
	ctx    context.Context
	cancel context.CancelFunc
	places chan struct{}
	news   chan struct{} // there is something in ended
	group  sync.WaitGroup

	mu      sync.Mutex
	last    uint32
	made    int
	ended   []uint32 // ids of calls that have ended
	answers map[uint32][]byte
	spent   *Fault
}

// NewCalls makes ready for the calls of a run. They end with ctx, and with Close.
func NewCalls(ctx context.Context, r *Run) *Calls {
	l := r.Limits.Full()
	c := &Calls{run: r, limits: l, news: make(chan struct{}, 1), places: make(chan struct{}, l.Parallel)}
	if c.ctx, c.cancel = ctx, r.Cancel; c.cancel == nil {
		c.ctx, c.cancel = context.WithCancel(ctx)
	}
	return c
}

// Submit begins a call and returns its id, from 1. It never blocks: a call beyond
// Limits.Parallel waits for its turn. A call beyond Limits.Calls is not made: its answer ends
// the run, and so does Spent.
func (c *Calls) Submit(kind Kind, tool string, args []byte) (id uint32) {
	return c.submit(c.ctx, kind, tool, args)
}

// submit is Submit for a call that ends with a context within that of the calls; nil for
// that one.
func (c *Calls) submit(ctx context.Context, kind Kind, tool string, args []byte) (id uint32) {
	if ctx == nil {
		ctx = c.ctx
	}
	c.mu.Lock()
	if c.made >= c.limits.Calls {
		c.spent = &Fault{Message: fmt.Sprintf("more than %d tool calls", c.limits.Calls), Final: true, Cause: Budget}
		c.mu.Unlock()
		return 0
	}
	c.made++
	c.last++
	id = c.last
	c.mu.Unlock()
	call, err := DecodeCall(kind, tool, args)
	if err != nil {
		c.finish(id, EncodeAnswer(tool, Answer{Error: &Fault{Message: fmt.Sprintf("tool %q: arguments: %s", clip(tool, maxToolName), err)}}))
		return id
	}
	c.group.Go(func() { c.finish(id, EncodeAnswer(call.Tool, c.make(ctx, call))) })
	return id
}

// Spent says that the run asked for more calls than it may make, or nil.
func (c *Calls) Spent() *Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spent
}

// Made returns how many calls the run made.
func (c *Calls) Made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// make makes one call, within its time.
func (c *Calls) make(within context.Context, call *Call) Answer {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-c.ctx.Done():
		return Answer{Error: &Fault{Message: "cancelled", Final: true, Cause: Cancelled}}
	case <-within.Done():
		return Answer{Error: &Fault{Message: fmt.Sprintf("tool %q: cancelled", call.Tool)}}
	}
	ctx, cancel := context.WithTimeout(within, c.limits.PerCall)
	defer cancel()
	a := c.run.Call(ctx, call)
	if a.Error != nil && !a.Error.Final && within.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Answer{Error: &Fault{Message: fmt.Sprintf("tool %q: timed out after %s", call.Tool, Seconds(c.limits.PerCall)), Code: a.Error.Code}}
	}
	return a
}

func (c *Calls) finish(id uint32, answer []byte) {
	c.mu.Lock()
	if answer != nil {
		if c.answers == nil {
			c.answers = map[uint32][]byte{}
		}
		c.answers[id] = answer
	}
	c.ended = append(c.ended, id)
	c.mu.Unlock()
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// next takes one of the calls that have ended; 0 for none.
func (c *Calls) next() (id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ended) == 0 {
		return 0
	}
	id = c.ended[0]
	c.ended = c.ended[1:]
	return id
}

// do begins work that is no call, and returns an id for Wait.
func (c *Calls) do(work func()) (id uint32) {
	c.mu.Lock()
	c.last++
	id = c.last
	c.mu.Unlock()
	c.group.Go(func() {
		work()
		c.finish(id, nil)
	})
	return id
}

// Wait waits for a call that has ended, and returns its id: each id once. It ends with ctx.
func (c *Calls) Wait(ctx context.Context) (id uint32, err error) {
	for {
		if c.ctx.Err() != nil { // an answer would be that of a call that was cancelled
			return 0, c.ctx.Err()
		}
		if id := c.next(); id != 0 {
			return id, nil
		}
		select {
		case <-c.news:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-c.ctx.Done():
			return 0, c.ctx.Err()
		}
	}
}

// Answer returns the answer of a call that has ended, once, and nil of any other.
func (c *Calls) Answer(id uint32) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.answers[id]
	delete(c.answers, id)
	return a
}

// Close cancels the calls that are under way, and waits until they have ended.
func (c *Calls) Close() {
	c.cancel()
	c.group.Wait()
}

// Logs keeps what a run prints, up to MaxLogs bytes and MaxLogLines lines.
type Logs struct {
	Lines   []string
	Dropped int // bytes
	size    int
}

// Add keeps a text, line by line.
func (l *Logs) Add(text string) {
	for {
		line, rest, more := strings.Cut(text, "\n")
		room := MaxLogs - l.size - 1
		if l.Dropped > 0 || len(l.Lines) >= MaxLogLines || room < 0 {
			l.Dropped += len(text)
			return
		}
		if kept := fitting(line, room); kept < len(line) {
			l.Dropped += len(text) - kept
			line, more = line[:kept], false
		}
		line = strings.ToValidUTF8(line, "\ufffd")
		l.Lines = append(l.Lines, line)
		l.size += len(line) + 1
		if !more {
			return
		}
		text = rest
	}
}

// fitting is how many bytes of a line there is room for. What is no character takes as much as
// what stands in its place.
func fitting(line string, room int) int {
	for i, r := range line {
		if room -= utf8.RuneLen(r); room < 0 {
			return i
		}
	}
	return len(line)
}
