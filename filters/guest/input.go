package guest

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
)

// work is the memory that the questions about one message are put together in.
// It is used again for another message.
type scratch struct {
	in, out, record, tool []byte
	say                   abi.Input
	session               [2 * sessionBytes]byte
	carry                 []carried
	written               []written
}

// carried is what a program left in a request for its response.
type carried struct {
	by   *program
	text []byte
}

// maxKept is how much memory is kept for another message, in bytes.
const maxKept = 256 << 10

var works = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch { return works.Get().(*scratch) }

func (w *scratch) free() {
	w.carry = nil // it goes its own way
	clear(w.written)
	w.written = w.written[:0]
	w.say.Reset()
	if cap(w.in)+cap(w.out)+cap(w.record)+cap(w.tool) <= maxKept {
		works.Put(w)
	}
}

// left returns what a program left in the request.
func (w *scratch) left(p *program) []byte {
	for _, c := range w.carry {
		if c.by == p {
			return c.text
		}
	}
	return nil
}

// subject is what a program is told of a message, besides its exchange.
type subject struct {
	method    string
	tool      []byte
	uri       bool // tool is the URI of a resource
	backend   string
	arguments []byte // JSON text
	result    []byte // JSON text
	failure   []byte // JSON text of an error object
	values    []byte // JSON text that pointers lead into
	carry     []byte
	event     []byte // JSON text
	path      string // of an HTTP request
	status    int    // of an HTTP answer
	from      uint64 // abi.From…; 0 where it is not told
}

// input writes the record that a program reads at a hook.
func (w *scratch) input(a *want, x *edge.Exchange, s *subject) []byte {
	in := &w.say
	in.Reset()
	in.Tool, in.Backend, in.Method, in.Result, in.Error, in.Carry = s.tool, s.backend, s.method, s.result, s.failure, s.carry
	in.Status, in.Path, in.Event, in.From = uint64(s.status), s.path, s.event, s.from
	if x.Request != nil && x.Request.ID.OK() {
		in.RequestID = x.Request.IDText()
	}
	if a.has(abi.CallSession) && x.Session != nil {
		in.Session = w.sessionKey(x)
	}
	if a.has(abi.CallPrincipal) && x.Identity != nil {
		w.record = appendPrincipal(w.record[:0], x.Identity)
		in.Principal = w.record
	}
	for _, name := range a.headers {
		for i := range x.Heard {
			if h := &x.Heard[i]; h.Name == name {
				in.Headers = append(in.Headers, abi.Header(*h))
			}
		}
	}
	if a.limit == 0 || uint64(len(s.arguments)) <= a.limit {
		in.Arguments = s.arguments
	}
	in.Selected = selected(in.Selected, a.pointers, s.values)
	if a.has(abi.CallAttr) {
		in.Attrs = attribute(in.Attrs, x.PrincipalAttributes())
	}
	in.ClaimValues = claimed(in.ClaimValues, a.claims, x.Identity)
	if a.has(abi.CallNow) {
		in.Now = uint64(time.Now().UnixMilli())
	}
	w.in = in.Append(w.in[:0], a.fields)
	return w.in
}

// fewBytes is how large a value may be so that to walk through it once for each
// pointer is quicker than to take it apart.
const fewBytes = 16 << 10

// selected appends the values that pointers lead to.
func selected(all [][]byte, pointers [][]string, values []byte) [][]byte {
	if len(pointers) < 2 || len(values) <= fewBytes {
		for _, tokens := range pointers {
			all = append(all, at(values, tokens))
		}
		return all
	}
	var outline mcp.Outline
	if outline.Read(values, mcp.Bounds{}) != nil {
		return all
	}
	for _, tokens := range pointers {
		var value []byte
		if n := outline.At(tokens, mcp.ArrayIndex); n >= 0 {
			value = outline.Value(n)
		}
		all = append(all, value)
	}
	return all
}

const sessionBytes = 16

// sessionKey is what programs know a session by. Its id is a credential, which
// they are not told.
func (w *scratch) sessionKey(x *edge.Exchange) []byte {
	sum := sha256.Sum256([]byte(x.Session.ID))
	hex.Encode(w.session[:], sum[:sessionBytes])
	return w.session[:]
}

// sessionOf is the session whose memory a program of isolation per_session is
// asked in; "" for a message without one. The memory goes with the session.
func (p *program) sessionOf(w *scratch, x *edge.Exchange) string {
	if !p.stable || x.Session == nil {
		return ""
	}
	key := string(w.sessionKey(x))
	name := endingKey(p.spec.Name)
	mine := ending{p, key}
	attach := func() io.Closer { return x.Session.Attach(name, func() io.Closer { return mine }) }
	is := attach()
	if is != nil && is != io.Closer(mine) { // of the program that this one stands in for
		x.Session.Detach(name, is)
		is = attach()
	}
	if is == nil {
		return "" // the session has ended meanwhile
	}
	return key
}

// endingKey is a filter by name: a session keeps no program that is gone.
type endingKey string

// ending ends a session for a program.
type ending struct {
	p   *program
	key string
}

func (e ending) Close() error {
	e.p.guest.EndSession(e.key)
	return nil
}

// appendPrincipal writes a Principal.
func appendPrincipal(b []byte, id *edge.Identity) []byte {
	if id.Subject != "" {
		b = abi.AppendString(b, abi.PrincipalSubject, id.Subject)
	}
	if tenant, ok := id.Claims[claimTenant].(string); ok {
		b = abi.AppendString(b, abi.PrincipalTenant, tenant)
	}
	b = appendNames(b, abi.PrincipalGroup, groupsOf(id))
	b = appendNames(b, abi.PrincipalRole, id.Claims[claimRoles])
	for _, s := range id.Scopes {
		b = abi.AppendString(b, abi.PrincipalScope, s)
	}
	if id.Issuer != "" {
		b = abi.AppendString(b, abi.PrincipalIssuer, id.Issuer)
	}
	return b
}

// The claims that say where somebody belongs.
const (
	claimTenant = "tenant"
	claimGroups = "groups"
	claimRoles  = "roles"
)

var groupClaims = [...]string{claimGroups, "cognito:groups"}

// groupsOf is the first claim of groups that there is.
func groupsOf(id *edge.Identity) any {
	for _, claim := range groupClaims {
		if v, ok := id.Claims[claim]; ok {
			return v
		}
	}
	return nil
}

// appendNames writes a claim that is a name or a list of names.
func appendNames(b []byte, field int, claim any) []byte {
	switch v := claim.(type) {
	case string:
		return abi.AppendString(b, field, v)
	case []any:
		for _, one := range v {
			if name, ok := one.(string); ok {
				b = abi.AppendString(b, field, name)
			}
		}
	case []string:
		for _, name := range v {
			b = abi.AppendString(b, field, name)
		}
	}
	return b
}
