// Package weir is the SDK for authors of guests in Go: programs in WebAssembly
// that see the messages of a Weir edge and answer with operations on them.
//
// A guest registers a function for each hook that it has something to say to,
// while it is initialized:
//
//	package main
//
//	import weir "github.com/weir-edge/weir/sdk"
//
//	func init() {
//		weir.OnCall(func(c *weir.Call) {
//			if !c.Principal().InGroup("admin") {
//				c.Deny(weir.Forbidden, "only admins delete")
//			}
//		}, weir.Tools("delete_*"))
//	}
//
//	func main() {}
//
// It is built with the standard toolchain (GOOS=wasip1 GOARCH=wasm go build
// -buildmode=c-shared). The same code runs in ordinary tests, without
// WebAssembly: package weirtest asks it there.
//
// An instance runs one call at a time, and that is why the package keeps what
// is registered and the call under way in variables of its own. What a hook
// receives is valid until the function returns, and is zeroed then: keep
// copies (View.String), or nothing. Of what a hook returns nothing stays
// either, so that a message of one client never reaches the answer to another
// unless the guest's own variables carry it.
package weir

import (
	"strconv"

	"github.com/weir-edge/weir/sdk/abi"
)

// Option narrows what a function is asked about, and says what it reads.
type Option func(*handler)

// handler is a function for a hook, and when it is asked.
type handler struct {
	run                      func()
	tools, backends, methods []string // globs; none for all
	headers, pointers        []string
	claims                   []string
	fields                   []uint64
	base                     int // where its pointers begin among those of the hook
	claimBase                int // where its claims begin, likewise
	variesBy, inline         uint64
	cache                    uint64 // milliseconds
	blocking, hold           bool
}

// Tools asks the function only about tools, by the names that clients see,
// that one of the globs matches. A * stands for any characters.
func Tools(globs ...string) Option {
	return func(h *handler) { h.tools = append(h.tools, globs...) }
}

// Backends asks the function only about backends that one of the globs matches.
func Backends(globs ...string) Option {
	return func(h *handler) { h.backends = append(h.backends, globs...) }
}

// Methods asks the function only about methods that one of the globs matches,
// such as "resources/*". It is for OnMessage, OnNotification and OnQuestion.
func Methods(globs ...string) Option {
	return func(h *handler) { h.methods = append(h.methods, globs...) }
}

// Headers says which headers the function wants to see. There are no others.
func Headers(names ...string) Option {
	return func(h *handler) { h.headers = append(h.headers, names...) }
}

// Pointers says which values of the arguments, or of the result, the function
// wants to see, as JSON pointers (RFC 6901). Selected gives them by their
// place in this list.
func Pointers(pointers ...string) Option {
	return func(h *handler) { h.pointers = append(h.pointers, pointers...) }
}

// Claims says which claims of the client the function wants to see, as JSON
// pointers (RFC 6901) into its token's. Claim gives them by their place in this
// list. It is for OnCall and OnOutgoing, and needs the grant claims of every one.
func Claims(pointers ...string) Option {
	return func(h *handler) { h.claims = append(h.claims, pointers...) }
}

// Fields says which fields of the input the function reads, as constants of
// package abi (abi.CallTool, …). The others are empty, and cost nothing.
// Without the option it gets all of them.
func Fields(fields ...uint64) Option {
	return func(h *handler) { h.fields = append(h.fields, fields...) }
}

// What the answer of a hook that is cached depends on, besides its input.
const (
	ByTenant  = abi.VariesByTenant
	ByGroups  = abi.VariesByGroups
	BySubject = abi.VariesBySubject
)

// VariesBy says that the answer depends on who asks: ByTenant, ByGroups or
// BySubject. It is for hooks whose answers are cached.
func VariesBy(what uint64) Option { return func(h *handler) { h.variesBy = what } }

// InlineLimit leaves arguments of more than n bytes out of the input.
func InlineLimit(n uint64) Option { return func(h *handler) { h.inline = n } }

// CacheFor has the edge keep what OnOutgoing answers for a time, at most an hour,
// for all messages to the same backend from clients that VariesBy puts together.
// The function is told of nothing else then.
func CacheFor(millis uint64) Option { return func(h *handler) { h.cache = millis } }

// Blocking says that the function waits for others, with Fetch or CallTool.
func Blocking() Option { return func(h *handler) { h.blocking = true } }

// Hold keeps what a call tells before its answer, such as progress, until the
// function has judged the answer: of one that is denied the client hears nothing. It
// is for OnResult and OnMessage. A question cannot wait: a guest that holds needs
// OnQuestion, too.
func Hold() Option { return func(h *handler) { h.hold = true } }

// guest is what is registered.
var guest struct {
	init     []func(*Setup) error
	handlers [abi.Hooks][]*handler
}

func on(hook abi.Hook, run func(), options []Option) {
	h := &handler{run: run}
	for _, o := range options {
		o(h)
	}
	guest.handlers[hook] = append(guest.handlers[hook], h)
}

// Setup is what a guest is given when it starts.
type Setup struct {
	Name    string // of the filter
	Config  Value  // the filter's configuration; does not exist where there is none. Valid until the function returns
	Version uint64 // of the host's ABI: the major version in the upper 16 bits, the minor in the lower
	grants  []string
}

// Granted says whether the operator granted something: random, kv, metrics,
// keys, identity, credentials, http, tools, events or claims.
func (s *Setup) Granted(grant string) bool {
	for _, g := range s.grants {
		if g == grant {
			return true
		}
	}
	return false
}

// OnInit registers a function that reads the configuration. It may register
// functions for hooks. The text of its error tells the operator why the
// configuration cannot be used; the filter does not start then.
func OnInit(f func(*Setup) error) { guest.init = append(guest.init, f) }

// initialize is weir_init: it reads an InitRequest and returns an InitResult.
func initialize(record []byte) []byte {
	var s Setup
	r := abi.Reader{B: record}
	for r.Next() {
		switch r.Num {
		case abi.InitConfig:
			s.Config = Value{r.Data}
		case abi.InitGrant:
			s.grants = append(s.grants, string(r.Data))
		case abi.InitName:
			s.Name = string(r.Data)
		case abi.InitVersion:
			s.Version = r.Uint
		}
	}
	for _, f := range guest.init {
		if err := f(&s); err != nil {
			return abi.AppendString(nil, abi.InitError, err.Error())
		}
	}
	var out []byte
	for hook, handlers := range guest.handlers {
		if len(handlers) > 0 {
			sub, wrong := subscription(abi.Hook(hook), handlers)
			if wrong != "" {
				return abi.AppendString(nil, abi.InitError, wrong)
			}
			out = abi.AppendBytes(out, abi.InitSubscription, sub)
		}
	}
	return out
}

// most is how many values a list of a subscription may hold.
const most = 64

// subscription is the one that covers all functions for a hook. With several
// of them it may cover more than each asked for: dispatch looks again.
func subscription(hook abi.Hook, handlers []*handler) (record []byte, wrong string) {
	var tools, backends, methods, headers, pointers, claims []string
	var fields, varies, inline, cache uint64
	blocking, hold := false, false
	allTools, allBackends, allMethods, allFields := false, false, false, false
	for i, h := range handlers {
		allTools = allTools || len(h.tools) == 0
		allBackends = allBackends || len(h.backends) == 0
		allMethods = allMethods || len(h.methods) == 0
		allFields = allFields || len(h.fields) == 0
		tools = union(tools, h.tools)
		backends = union(backends, h.backends)
		methods = union(methods, h.methods)
		headers = union(headers, h.headers)
		h.base = len(pointers)
		pointers = append(pointers, h.pointers...)
		h.claimBase = len(claims)
		claims = append(claims, h.claims...)
		for _, f := range h.fields {
			fields |= 1 << (f & 63)
		}
		varies = max(varies, h.variesBy)
		blocking, hold = blocking || h.blocking, hold || h.hold
		if i == 0 || h.cache < cache {
			cache = h.cache
		}
		if i == 0 || h.inline == 0 || inline != 0 && h.inline > inline {
			inline = h.inline
		}
	}
	if len(headers) > most || len(pointers) > most || len(claims) > most {
		return nil, hook.String() + ": more than " + strconv.Itoa(most) + " headers, pointers or claims"
	}
	record = abi.AppendString(nil, abi.SubHook, hook.String())
	for _, list := range []struct {
		field  int
		values []string
		all    bool
	}{
		{abi.SubMethod, methods, allMethods || len(methods) > most},
		{abi.SubTool, tools, allTools || len(tools) > most},
		{abi.SubBackend, backends, allBackends || len(backends) > most},
		{abi.SubHeader, headers, false},
		{abi.SubPointer, pointers, false},
		{abi.SubClaim, claims, false},
	} {
		for _, v := range list.values {
			if !list.all {
				record = abi.AppendString(record, list.field, v)
			}
		}
	}
	if !allFields {
		// What dispatch itself reads, and what was asked for by name.
		fields |= 1<<abi.CallTool | 1<<abi.CallBackend | 1<<abi.CallMethod
		if len(headers) > 0 {
			fields |= 1 << abi.CallHeader
		}
		if len(pointers) > 0 {
			fields |= 1 << abi.CallSelected
		}
		if len(claims) > 0 {
			fields |= 1 << abi.CallClaim
		}
		for f := uint64(1); f < 64; f++ {
			if fields>>f&1 == 1 {
				record = abi.AppendUint(record, abi.SubField, f)
			}
		}
	}
	if varies != 0 {
		record = abi.AppendUint(record, abi.SubVariesBy, varies)
	}
	if inline != 0 {
		record = abi.AppendUint(record, abi.SubInlineLimit, inline)
	}
	if cache != 0 {
		record = abi.AppendUint(record, abi.SubCache, cache)
	}
	if blocking {
		record = abi.AppendUint(record, abi.SubBlocking, 1)
	}
	if hold {
		record = abi.AppendUint(record, abi.SubHold, 1)
	}
	return record, ""
}

func union(list, more []string) []string {
next:
	for _, s := range more {
		for _, have := range list {
			if have == s {
				continue next
			}
		}
		list = append(list, s)
	}
	return list
}

// span is where something is in the input.
type span struct{ from, to uint32 }

// call is the one under way.
var call struct {
	record   []byte
	has      uint32                  // a bit for each field that is there
	field    [abi.CallEvent + 1]span // by number; the last of those that are repeated
	now      uint64
	status   uint64
	from     uint64
	selected []span
	base     int // where the pointers of the present function begin
	pointers int // how many it has

	claimBase, claims int      // likewise of its claims
	tools             []string // globs of the present function
	out               []byte   // Ops so far
	refused           bool
}

// dispatch asks the functions for a hook that the input is for, and returns
// their Ops, which are valid until the next call. One that denies is the last.
// The record is the host's to zero.
func dispatch(hook abi.Hook, record []byte) []byte {
	c := &call
	c.record, c.now, c.status, c.from, c.refused = record, 0, 0, 0, false
	c.selected, c.out = c.selected[:0], c.out[:0]
	split(record)
	for _, h := range guest.handlers[hook] {
		if !c.refused && h.wants() {
			c.base, c.pointers = h.base, len(h.pointers)
			c.claimBase, c.claims = h.claimBase, len(h.claims)
			c.tools = h.tools
			h.run()
		}
	}
	c.record, c.has = nil, 0
	return c.out
}

// split notes where the fields of the record are.
func split(b []byte) {
	c := &call
	c.has = 0
	for at := 0; at < len(b); {
		// Most keys are one byte, and lengths one or two: those are read here.
		if at+2 < len(b) && b[at]&0x87 == 2 {
			f, n, from := int(b[at]>>3), int(b[at+1]), at+2
			if n >= 0x80 {
				high := int(b[from])
				n, from = n&0x7f|high<<7, from+1
				if high >= 0x80 {
					n = len(b)
				}
			}
			if n <= len(b)-from {
				at = from + n
				if f == abi.CallSelected {
					c.selected = append(c.selected, span{uint32(from), uint32(at)})
				} else if f < len(c.field) {
					c.field[f] = span{uint32(from), uint32(at)}
					c.has |= 1 << f
				}
				continue
			}
		}
		r := reader{b: b, at: at}
		if !r.next() {
			return
		}
		at = r.at
		switch f := r.field; {
		case f == abi.CallNow:
			c.now = r.number
		case f == abi.CallStatus:
			c.status = r.number
		case f == abi.CallFrom:
			c.from = r.number
		case f == abi.CallSelected:
			c.selected = append(c.selected, span{uint32(r.from), uint32(r.to)})
		case f < len(c.field):
			c.field[f] = span{uint32(r.from), uint32(r.to)}
			c.has |= 1 << f
		}
	}
}

// wants says whether the call under way is one that the function is for. An
// input without a tool, backend or method is for every function: the host has
// none in that hook.
func (h *handler) wants() bool {
	return (len(h.tools) == 0 || matches(h.tools, abi.CallTool)) &&
		(len(h.backends) == 0 || matches(h.backends, abi.CallBackend)) &&
		(len(h.methods) == 0 || matches(h.methods, abi.CallMethod))
}

func matches(globs []string, field int) bool {
	name := data(field)
	return len(name) == 0 || anyOf(globs, name)
}

// anyOf says whether one of some patterns matches a name.
func anyOf(globs []string, name []byte) bool {
	for _, g := range globs {
		if glob(g, name) {
			return true
		}
	}
	return false
}

// glob says whether a pattern, in which * stands for any characters, matches
// all of the name.
func glob(pattern string, name []byte) bool {
	// Most have one *, at the end.
	if last := len(pattern) - 1; last >= 0 && pattern[last] == '*' && len(name) >= last && string(name[:last]) == pattern[:last] {
		return true // what comes before may hold a *, and be matched by one
	}
	p, n, star, mark := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && pattern[p] == name[n]:
			p++
			n++
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// Match says whether a pattern, in which * stands for any characters, matches
// all of a name, as subscriptions do.
func Match(pattern, name string) bool { return glob(pattern, []byte(name)) }
