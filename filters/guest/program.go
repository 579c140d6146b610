package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// program is an open filter of a server. It is safe for concurrent use.
type program struct {
	spec   *Spec
	server string
	module *wasm.Module
	guest  *wasm.Guest
	log    *slog.Logger
	uses   int    // servers that hold it; the keeper guards it
	done   func() // gives up the module

	wants  [abi.Hooks]*want // what it subscribed to; nil for nothing
	stable bool             // it sees every message of a session in one memory
	lone   atomic.Uint64    // numbers messages without a session

	down    [abi.Hooks]atomic.Bool // the last call failed
	denied  [abi.Hooks]atomic.Uint64
	skipped [abi.Hooks]atomic.Uint64
	lines   rate
	events  rate

	fetcher *fetcher // nil for a program that may call nobody
	out     [outside]outcome
	acts    bool // it may call tools or tell of events, and so is asked within

	mu      sync.Mutex
	metrics map[string]metric // that it counts itself
}

// want is what a program's subscriptions to one hook say together: it is asked
// when one of them fits. Its input has what any of them asks for, and the values
// behind all of their pointers, in their order.
type want struct {
	on       []wasm.Subscription
	fields   uint64 // 0 for all
	headers  []string
	pointers [][]string
	limit    uint64 // bytes of arguments above which they are left out; 0 for none
	varies   uint8
	keep     time.Duration // for which an answer holds; 0 for asking each time
	blocking bool          // it may wait for others
}

func newProgram(s *Spec, m *wasm.Module, log *slog.Logger) *program {
	return &program{spec: s, module: m, log: log, stable: s.Isolation == v1beta1.IsolationPerSession, acts: s.granted(abi.GrantTools) || s.granted(abi.GrantEvents)}
}

func (p *program) close() {
	if p.guest != nil {
		p.guest.Close()
	}
	p.fetcher.close()
	p.done()
}

// subscribe puts the subscriptions of each hook together.
func (p *program) subscribe() error {
	for _, s := range p.guest.Subscriptions() {
		h := s.Hook
		w := p.wants[h]
		if w == nil {
			w = &want{}
			p.wants[h] = w
			w.fields = s.Fields
		}
		w.on = append(w.on, s)
		if w.fields == 0 || s.Fields == 0 {
			w.fields = 0
		} else {
			w.fields |= s.Fields
		}
		if len(w.on) == 1 || s.Cache < w.keep {
			w.keep = s.Cache
		}
		w.blocking = w.blocking || s.Blocking
		w.limit, w.varies = max(w.limit, s.InlineLimit), max(w.varies, s.VariesBy)
		for _, name := range s.Headers {
			if secret(name) && !p.spec.granted(abi.GrantIdentity) {
				return fmt.Errorf("it wants the header %s, which holds a credential: grant identity, or take another module", name)
			}
			if !slices.Contains(w.headers, name) {
				w.headers = append(w.headers, name)
			}
		}
		for _, pointer := range s.Pointers {
			tokens, err := tokensOf(pointer)
			if err != nil {
				return fmt.Errorf("hook %v: %w", h, err)
			}
			w.pointers = append(w.pointers, tokens)
		}
	}
	return nil
}

// secret reports whether a header of a client is one in which it sends what
// others could pass for it with.
func secret(name string) bool {
	return outgoing.Credential(name) || strings.EqualFold(name, "mcp-session-id")
}

// has says whether an input is to have a field.
func (w *want) has(field int) bool { return w.fields == 0 || w.fields&(1<<field) != 0 }

// matches says whether a program wants to be asked about a message, and its
// operator wants it to be. A name so long that no tool has it fits every glob:
// whoever makes one up does not get by. A URI fits the globs that another reading
// of it does. What is no message has no method, and fits every glob of methods.
func (p *program) matches(w *want, method string, tool []byte, backend string) bool {
	m := &p.spec.Match
	if !called(m.Methods, method) || !fits(m.Tools, tool) || !anyGlob(m.Backends, backend) {
		return false
	}
	for i := range w.on {
		s := &w.on[i]
		if called(s.Methods, method) && fits(s.Tools, tool) && anyGlob(s.Backends, backend) {
			return true
		}
	}
	return false
}

func called(patterns []string, method string) bool {
	return method == "" || anyGlob(patterns, method)
}

func fits(patterns []string, tool []byte) bool {
	if len(tool) > maxName || anyGlob(patterns, tool) {
		return true
	}
	return bytes.IndexByte(tool, ':') >= 0 && uriFits(patterns, string(tool))
}

// uriFits is fits for the other names of a resource. A URI that leads to several
// places fits every glob.
func uriFits(patterns []string, uri string) bool {
	r, ok := mcp.ReadURI(uri)
	return !ok || anyGlob(patterns, r.Canonical) || slices.ContainsFunc(r.Others, func(name string) bool { return anyGlob(patterns, name) })
}

// observes says that nothing of what the program says is done.
func (p *program) observes() bool { return p.spec.Mode == v1beta1.FilterObserve }

// passes says whether a message goes on when the program fails on it.
func (p *program) passes(h abi.Hook) bool {
	return p.observes() || p.spec.OnError == v1beta1.FilterContinue && !h.Identity()
}

// ask asks the program and returns its operations, which share out's memory;
// none where nothing is to change. An error is what the message is refused with.
func (p *program) ask(ctx context.Context, h abi.Hook, session string, in, out []byte, allowed verbs, most int) ([]op, []byte, error) {
	if session == "" && p.stable {
		// What belongs to no session shares memory with nothing else.
		session = fmt.Sprintf("\x00%d", p.lone.Add(1))
		defer p.guest.EndSession(session)
	}
	got, err := p.guest.Call(ctx, h, session, in, out)
	if err != nil {
		return nil, out, p.fell(h, err)
	}
	if len(got) == 0 {
		p.healed(h)
		return nil, got, nil
	}
	ops, err := opsOf(got, allowed, most)
	if err != nil {
		return nil, got, p.broke(h, err)
	}
	p.healed(h)
	if p.observes() {
		p.observed(h, ops)
		return nil, got, nil
	}
	return ops, got, nil
}

// broke takes note of an answer that is none.
func (p *program) broke(h abi.Hook, why error) error {
	return p.fell(h, p.guest.Reject(h, why.Error()))
}

// fell takes note of a failure, and returns the error for the message; nil when
// it passes in spite of it.
func (p *program) fell(h abi.Hook, err error) error {
	var f *wasm.Failure
	if errors.As(err, &f) && f.Reason == wasm.Canceled {
		return edge.Errorf(edge.Gone, "guest", "%w", context.Canceled)
	}
	level := slog.LevelDebug
	if !p.down[h].Swap(true) {
		level = slog.LevelWarn // once, until it works again
	}
	p.log.Log(context.Background(), level, "a filter fails", "server", p.server, "filter", p.spec.Name, "hook", h.String(), "passes", p.passes(h), "error", err)
	if p.passes(h) {
		p.skipped[h].Add(1)
		return nil
	}
	return err
}

func (p *program) healed(h abi.Hook) {
	if p.down[h].Load() && p.down[h].Swap(false) {
		p.log.Info("a filter works again", "server", p.server, "filter", p.spec.Name, "hook", h.String())
	}
}

// observed logs what would have been done.
func (p *program) observed(h abi.Hook, ops []op) {
	for i := range ops {
		if ops[i].kind == abi.OpDeny {
			p.denied[h].Add(1)
		}
	}
	if len(ops) == 0 || !p.lines.allow() {
		return
	}
	var would []string
	for i := range min(len(ops), maxFields) {
		would = append(would, opNames[ops[i].kind])
	}
	p.log.Info("a filter that is observed would change a message", "server", p.server, "filter", p.spec.Name, "hook", h.String(), "operations", strings.Join(would, " "))
}

// tell logs what a program notes of a message.
func (p *program) tell(h abi.Hook, ops []op) {
	var fields []any
	for i := range ops {
		switch o := &ops[i]; o.kind {
		case abi.OpLogField:
			fields = append(fields, slog.String(o.name, o.text))
		case abi.OpSetAttr:
			fields = append(fields, slog.String(o.name, string(o.raw[:min(len(o.raw), maxText)])))
		}
		if len(fields) == maxFields {
			break
		}
	}
	if len(fields) > 0 && p.lines.allow() {
		p.log.Info("a filter notes", "server", p.server, "filter", p.spec.Name, "hook", h.String(), slog.Group("fields", fields...))
	}
}

// most is how many lines a program causes in a second, besides its own.
const mostLines = 64

// rate counts lines by the second.
type rate struct {
	second, lines atomic.Int64
}

func (r *rate) allow() bool {
	now := time.Now().Unix()
	if s := r.second.Load(); s != now && r.second.CompareAndSwap(s, now) {
		r.lines.Store(0)
	}
	return r.lines.Add(1) <= mostLines
}
