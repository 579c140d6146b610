package wasm

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/sdk/abi"
)

// MaxSubscriptions is how many a program may have.
const MaxSubscriptions = 256

// Bounds on what a guest may ask for.
const (
	maxSubscriptions = MaxSubscriptions
	maxPatterns      = 64   // in each list of a subscription
	maxPattern       = 1024 // bytes of a glob, a header name or a JSON pointer

	maxCache = time.Hour // of one answer
)

// Subscription is what a guest wants to be asked about. Globs know * for any
// characters; an empty list of globs matches everything.
type Subscription struct {
	Hook        abi.Hook
	Methods     []string // globs
	Tools       []string // globs of names that clients see
	Backends    []string // globs
	Fields      uint64   // a bit for each field of the record that the guest reads; 0 for all
	Headers     []string // names, in lower case
	Pointers    []string // JSON pointers (RFC 6901)
	VariesBy    uint8    // abi.VariesBy…
	InlineLimit uint64   // bytes of arguments above which they are left out; 0 for the host's limit

	Cache    time.Duration // for which an answer of outgoing_auth holds; 0 for asking each time
	Blocking bool          // it calls http_call or call_tool there
	Hold     bool          // what precedes an answer waits for what it says of that

	Claims []string // JSON pointers into the verified claims, of on_call_request and outgoing_auth
}

// Subscriptions returns what the guest asked for when it was initialized. The
// caller does not change it.
func (g *Guest) Subscriptions() []Subscription { return g.asked }

// initRecord is the record that weir_init receives.
func (g *Guest) initRecord() []byte {
	var b []byte
	if g.binding.Config != nil {
		b = abi.AppendBytes(b, abi.InitConfig, g.binding.Config)
	}
	for _, grant := range g.binding.Grants {
		b = abi.AppendString(b, abi.InitGrant, grant)
	}
	b = abi.AppendString(b, abi.InitName, g.binding.Name)
	return abi.AppendUint(b, abi.InitVersion, abi.Version)
}

// subscribe reads the record that weir_init returned.
func (g *Guest) subscribe(record []byte) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("guest %q: %s: %s", g.binding.Name, abi.ExportInit, fmt.Sprintf(format, args...))
	}
	r := abi.Reader{B: record}
	for r.Next() {
		switch r.Num {
		case abi.InitError:
			return fail("%s", strings.ToValidUTF8(string(r.Data[:min(len(r.Data), maxPattern)]), "\ufffd"))
		case abi.InitSubscription:
			s, err := subscription(r.Data)
			if err != nil {
				return fail("subscription %d: %v", len(g.asked)+1, err)
			}
			if !g.has[s.Hook] {
				return fail("subscription %d: there is no function %s", len(g.asked)+1, s.Hook.Export())
			}
			g.blocks(&s)
			if g.asked = append(g.asked, s); len(g.asked) > maxSubscriptions {
				return fail("more than %d subscriptions", maxSubscriptions)
			}
		}
	}
	if r.Bad {
		return fail("a malformed record")
	}
	return nil
}

// ReadSubscription reads a record of what a program wants to be asked about
// (ABI.md, Subscription), and returns what is wrong with it.
func ReadSubscription(record []byte) (Subscription, error) { return subscription(record) }

func subscription(record []byte) (Subscription, error) {
	s := Subscription{Hook: abi.Hooks}
	r := abi.Reader{B: record}
	for r.Next() {
		if len(r.Data) > maxPattern {
			return s, fmt.Errorf("field %d has more than %d bytes", r.Num, maxPattern)
		}
		var list *[]string
		switch r.Num {
		case abi.SubHook:
			h, ok := abi.HookNamed(string(r.Data))
			if !ok {
				return s, fmt.Errorf("there is no hook %q", r.Data)
			}
			s.Hook = h
		case abi.SubMethod:
			list = &s.Methods
		case abi.SubTool:
			list = &s.Tools
		case abi.SubBackend:
			list = &s.Backends
		case abi.SubHeader:
			list = &s.Headers
		case abi.SubPointer:
			list = &s.Pointers
		case abi.SubClaim:
			list = &s.Claims
		case abi.SubField:
			if r.Uint > 0 && r.Uint < 64 {
				s.Fields |= 1 << r.Uint
			}
		case abi.SubVariesBy:
			if r.Uint > abi.VariesBySubject {
				return s, fmt.Errorf("varies_by %d is unknown", r.Uint)
			}
			s.VariesBy = uint8(r.Uint)
		case abi.SubInlineLimit:
			s.InlineLimit = r.Uint
		case abi.SubCache:
			s.Cache = time.Duration(min(r.Uint, uint64(maxCache/time.Millisecond))) * time.Millisecond
		case abi.SubBlocking:
			s.Blocking = r.Uint != 0
		case abi.SubHold:
			s.Hold = r.Uint != 0
		}
		if list != nil {
			text := string(r.Data)
			switch {
			case r.Num == abi.SubHeader:
				text = strings.ToLower(text)
			case (r.Num == abi.SubPointer || r.Num == abi.SubClaim) && text != "" && text[0] != '/':
				return s, fmt.Errorf("%q is no JSON pointer", text)
			}
			if *list = append(*list, text); len(*list) > maxPatterns {
				return s, fmt.Errorf("more than %d values of field %d", maxPatterns, r.Num)
			}
		}
	}
	if r.Bad {
		return s, fmt.Errorf("a malformed record")
	}
	switch {
	case s.Hook == abi.Hooks:
		return s, fmt.Errorf("it names no hook")
	case s.Blocking && !s.Hook.MayBlock():
		return s, fmt.Errorf("%v is no hook at which anything may be waited for", s.Hook)
	case s.Hold && s.Hook != abi.OnCallResponse && s.Hook != abi.OnMessage:
		return s, fmt.Errorf("%v is not asked about answers: hold in on_call_response or on_message", s.Hook)
	case len(s.Claims) > 0 && s.Hook != abi.OnCallRequest && s.Hook != abi.OutgoingAuth:
		return s, fmt.Errorf("%v is told no claims: ask for them in on_call_request or outgoing_auth", s.Hook)
	case s.Cache > 0 && s.Hook != abi.OutgoingAuth:
		return s, fmt.Errorf("answers of %v are not kept", s.Hook)
	}
	return s, nil
}
