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
	"github.com/weir-edge/weir/filters/guest/starlark"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// program is an open filter of a server. It is safe for concurrent use.
type program struct {
	spec   *Spec
	server string
	digest string // of the program
	guest  Engine
	log    *slog.Logger
	uses   int    // servers that hold it; the cache guards it
	done   func() // gives up the module
	keys   string // digest of its secrets; "" for none

	wants  [abi.Hooks]*want // its subscriptions; nil for none
	stable bool             // one instance sees every message of a session
	lone   atomic.Uint64    // numbers messages without a session

	down    [abi.Hooks]atomic.Uint32 // a bit for each wasm.Reason of failures since the last call that succeeded
	denied  [abi.Hooks]atomic.Uint64
	skipped [abi.Hooks]atomic.Uint64
	lines   rate
	events  rate

	fetcher *fetcher // nil for a program that may call no host
	out     [outside]outcome
	acts    bool // it may call tools or emit events, and so needs an inside

	mu      sync.Mutex
	metrics map[string]metric // its own metrics
}

// Engine runs a program: *wasm.Guest or *starlark.Guest. It is safe for
// concurrent use.
type Engine interface {
	// Call asks the program at a hook and appends its answer to out
	// (wasm.Guest.Call).
	Call(ctx context.Context, h abi.Hook, session string, from wasm.Sender, in, out []byte) ([]byte, error)

	// Reject notes an answer that turns out to be none (wasm.Front.Reject).
	Reject(h abi.Hook, from wasm.Sender, detail string) error

	Subscriptions() []wasm.Subscription
	Version() uint32 // of the ABI that the program is made for
	Stats() wasm.Stats
	EndSession(key string)
	Close()
}

// want combines a program's subscriptions to one hook: the program is asked
// if one of them matches. Its input has the fields that any of them asks for
// and the values of all their pointers, in order.
type want struct {
	on       []wasm.Subscription
	fields   uint64 // 0 for all
	headers  []string
	pointers [][]string
	claims   []claim
	limit    uint64 // bytes of arguments above which they are left out; 0 for no limit
	varies   uint8
	keep     time.Duration // how long an answer is valid; 0 to ask each time
	blocking bool          // it may wait for others
	hold     bool          // what precedes an answer waits for what it says of that
}

func newProgram(s *Spec, digest string, log *slog.Logger) *program {
	return &program{spec: s, digest: digest, log: log, stable: s.Isolation == v1beta1.IsolationPerSession, acts: s.granted(abi.GrantTools) || s.granted(abi.GrantEvents)}
}

func (p *program) close() {
	if p.guest != nil {
		p.guest.Close()
	}
	p.fetcher.close()
	p.done()
}

// subscribe combines the subscriptions of each hook.
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
		w.blocking, w.hold = w.blocking || s.Blocking, w.hold || s.Hold
		if len(w.on) == 1 || s.InlineLimit == 0 || w.limit != 0 && s.InlineLimit > w.limit {
			w.limit = s.InlineLimit // 0 is the host's limit, and the largest
		}
		w.varies = max(w.varies, s.VariesBy)
		for _, name := range s.Headers {
			if secret(name) && !p.spec.granted(abi.GrantIdentity) {
				return fmt.Errorf("it wants the header %s, which holds a credential: grant identity, or use another %s", name, p.spec.instead("script", "module"))
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
		var err error
		if w.claims, err = p.grantedClaims(h, w.claims, s.Claims); err != nil {
			return err
		}
	}
	if script, ok := p.guest.(*starlark.Guest); ok {
		for h, w := range p.wants {
			if w != nil && w.fields == 0 {
				w.fields = script.Reads(abi.Hook(h))
			}
		}
	}
	if w := p.wants[abi.OutgoingAuth]; w != nil && w.keep > 0 && len(w.claims) > 0 {
		return errKeepsClaims
	}
	for _, h := range [...]abi.Hook{abi.OnCallResponse, abi.OnMessage} {
		if w := p.wants[h]; w != nil && w.hold && p.wants[abi.OnQuestion] == nil {
			return fmt.Errorf("hook %v: it holds what precedes an answer, and a question cannot wait for that: subscribe to on_question too", h)
		}
	}
	return nil
}

// secret reports whether a request header holds a credential of the client.
func secret(name string) bool {
	return outgoing.Credential(name) || strings.EqualFold(name, "mcp-session-id")
}

// has reports whether the input includes a field.
func (w *want) has(field int) bool { return abi.Has(w.fields, field) }

// matches reports whether both a program and its operator want it to be asked
// about a message. A name too long for any tool matches every glob, so that a
// made-up name evades nothing. A URI matches the globs that another spelling
// of it matches. Something other than a message has no method and matches
// every glob of methods.
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

// uriFits is fits for the other names of a resource. A URI that leads to
// several places matches every glob.
func uriFits(patterns []string, uri string) bool {
	r, ok := mcp.ReadURI(uri)
	return !ok || anyGlob(patterns, r.Canonical) || slices.ContainsFunc(r.Others, func(name string) bool { return anyGlob(patterns, name) })
}

// told is the name that a program hears of. The functions of an SDK look at their globs once more,
// and know one spelling of a URI: they get the one that is matched, and for a URI that can be
// anything none, which fits all of their globs.
func (p *program) told(w *want, s *subject) []byte {
	globs := func(one wasm.Subscription) bool { return len(one.Tools) > 0 }
	if !s.uri || bytes.IndexByte(s.tool, ':') < 0 || !slices.ContainsFunc(w.on, globs) {
		return s.tool
	}
	r, ok := mcp.ReadURI(string(s.tool))
	if !ok {
		return nil
	}
	for _, name := range append([]string{r.Canonical, string(s.tool)}, r.Others...) {
		if slices.ContainsFunc(w.on, func(one wasm.Subscription) bool { return globs(one) && anyGlob(one.Tools, name) }) {
			return []byte(name)
		}
	}
	return s.tool
}

// observes reports that the program's operations are not applied.
func (p *program) observes() bool { return p.spec.Mode == v1beta1.FilterObserve }

// passes reports whether a message continues if the program fails on it.
func (p *program) passes(h abi.Hook) bool {
	return p.observes() || p.spec.OnError == v1beta1.FilterContinue && !h.Identity()
}

// ask asks the program and returns its operations, which share out's memory;
// none if nothing changes. The message is refused with the error.
func (p *program) ask(ctx context.Context, h abi.Hook, session string, from wasm.Sender, in, out []byte, allowed verbs, most int) ([]op, []byte, error) {
	if session == "" && p.stable {
		// Messages without a session share memory with nothing else.
		session = fmt.Sprintf("\x00%d", p.lone.Add(1))
		defer p.guest.EndSession(session)
	}
	got, err := p.guest.Call(ctx, h, session, from, in, out)
	if err != nil {
		return nil, out, p.fell(h, err)
	}
	if len(got) == 0 {
		p.healed(h)
		return nil, got, nil
	}
	ops, err := opsOf(got, allowed, most)
	if err != nil {
		return nil, got, p.broke(h, from, err)
	}
	p.healed(h)
	if p.observes() {
		p.observed(h, ops)
		return nil, got, nil
	}
	return ops, got, nil
}

// broke notes an invalid answer.
func (p *program) broke(h abi.Hook, from wasm.Sender, why error) error {
	return p.fell(h, p.guest.Reject(h, from, why.Error()))
}

// senderOf is the client whose message an exchange is.
func senderOf(x *edge.Exchange) wasm.Sender {
	return wasm.Sender{Identity: x.Identity, Address: x.Head.Remote}
}

// nobody is the sender of what no client's message caused.
var nobody = wasm.Sender{}

// fell notes a failure and returns the error for the message; nil if the
// message passes all the same.
func (p *program) fell(h abi.Hook, err error) error {
	var f *wasm.Failure
	if errors.As(err, &f) && f.Reason == wasm.Canceled {
		return edge.Errorf(edge.Gone, "guest", "%w", context.Canceled)
	}
	level := slog.LevelDebug
	kind := uint32(1)
	if f != nil {
		kind <<= f.Reason
	}
	if p.down[h].Or(kind)&kind == 0 {
		level = slog.LevelWarn // once for each kind, until it works again
	}
	p.log.Log(context.Background(), level, "a filter fails", "server", p.server, "filter", p.spec.Name, "hook", h.String(), "passes", p.passes(h), "error", err)
	if p.passes(h) {
		p.skipped[h].Add(1)
		return nil
	}
	return err
}

func (p *program) healed(h abi.Hook) {
	if p.down[h].Load() != 0 && p.down[h].Swap(0) != 0 {
		p.log.Info("a filter works again", "server", p.server, "filter", p.spec.Name, "hook", h.String())
	}
}

// observed logs what a program that is only observed would have changed.
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

// tell writes a program's notes on a message into the record of x, nil for a message that
// has none of its own, and into the log at DEBUG: a line for each message and hook.
func (p *program) tell(x *edge.Exchange, h abi.Hook, ops []op) {
	logs := p.log.Enabled(context.Background(), slog.LevelDebug)
	if x == nil && !logs {
		return
	}
	var fields []any
	for i, n := 0, 0; i < len(ops) && n < maxFields; i++ {
		o := &ops[i]
		text := o.text
		switch {
		case o.kind == abi.OpLogField:
		case o.kind == abi.OpSetAttr && !sets(p.guest.Version(), h):
			text = string(o.raw[:min(len(o.raw), maxText)])
		default:
			continue
		}
		n++
		if x != nil {
			x.Note(p.spec.Name, o.name, text)
		}
		if logs {
			fields = append(fields, slog.String(o.name, text))
		}
	}
	if len(fields) > 0 && p.lines.allow() {
		p.log.Debug("a filter notes", "server", p.server, "filter", p.spec.Name, "hook", h.String(), slog.Group("fields", fields...))
	}
}

// mostLines bounds the lines that a program causes per second, apart from its
// own.
const mostLines = 64

// rate limits lines per second.
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
