package route

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// MayAsk returns the capabilities that a client declares with this request and that
// have questions. It is nil for a call that never has to be parked.
func MayAsk(m *mcp.Message) []byte {
	if !mcp.MethodOf(m.Method).Interactive {
		return nil
	}
	return mcp.Askable(m.Meta(mcp.MetaCapabilities).Of(m.Raw))
}

// CheckRetry checks requestState and inputResponses of a request (2026-07-28, basic,
// multi round-trip requests): a string and an object, on methods that may require
// input. Elsewhere they are refused, since a request that claims to continue a call
// must not begin one.
func CheckRetry(x *edge.Exchange) error {
	m := x.Request
	state, said := m.Get("requestState"), m.Get("inputResponses")
	if !state.OK() && !said.OK() {
		return nil
	}
	info := mcp.MethodOf(m.Method)
	switch {
	case !info.Known: // a method of client and server, with params of their own
	case m.Method == "tasks/update" && !state.OK(): // answers to the questions of a task
	case x.Era == mcp.Legacy:
		return edge.Errorf(edge.Params, "retry", "params.requestState and params.inputResponses belong to protocol revision %s", mcp.V2607)
	case !info.Interactive:
		return edge.Errorf(edge.Params, "retry", "%s takes no params.requestState and no params.inputResponses", m.Method)
	case state.OK() && m.Raw[state.Start] != '"':
		return edge.Errorf(edge.Params, "retry", "params.requestState is not a string")
	case said.OK() && m.Raw[said.Start] != '{':
		return edge.Errorf(edge.Params, "retry", "params.inputResponses is not an object")
	}
	return nil
}

// Digest returns a digest of the parts of a request that a retry must repeat: method
// and params, without _meta, which may change, and the members that a retry adds. It is of
// values: another order of members, space, and another spelling of a text change nothing.
func Digest(m *mcp.Message) []byte { return digest(m, true) }

// Repeats reports whether a request is the one that a digest is of. That of a process of before
// a hand-over may be of the bytes of values.
func Repeats(m *mcp.Message, of []byte) bool {
	return bytes.Equal(of, digest(m, true)) || bytes.Equal(of, digest(m, false))
}

// askedFor returns the digest of what the client of an exchange asked for: filters may make something
// else of it each time. m is what they made of it.
func askedFor(x *edge.Exchange, m *mcp.Message) []byte {
	if x.Asked != nil {
		m = x.Asked
	}
	return Digest(m)
}

// repeats reports whether a digest is of what the client of an exchange asks for, or of what
// filters made of that.
func repeats(x *edge.Exchange, m *mcp.Message, of []byte) bool {
	return Repeats(m, of) || x.Asked != nil && Repeats(x.Asked, of)
}

// maxSpelt is how many values a member of params may have whose digest is of values: the outline of
// more takes many times the memory of its text.
const maxSpelt = 1 << 16

func digest(m *mcp.Message, values bool) []byte {
	h := sha256.New()
	part := func(b []byte) {
		h.Write(strconv.AppendInt(nil, int64(len(b)), 10))
		h.Write([]byte{':'})
		h.Write(b)
	}
	part([]byte(m.Method))
	members := mcp.Members(m.Params.Of(m.Raw))
	slices.SortFunc(members, func(a, b mcp.Member) int { return bytes.Compare(a.Name, b.Name) })
	for _, p := range members {
		switch string(p.Name) {
		case "_meta", "inputResponses", "requestState":
			continue
		}
		var all mcp.Outline
		if part(p.Name); values && all.Read(p.Value, mcp.Bounds{Values: maxSpelt}) == nil { // else by its bytes
			p.Value = spelt(make([]byte, 0, len(p.Value)), &all, 0)
		}
		part(p.Value)
	}
	return h.Sum(nil)
}

// spelt appends a value in the one spelling that all have that are equal but for how numbers
// are written: without space, members by their names.
func spelt(to []byte, all *mcp.Outline, n int) []byte {
	v, i, end := all.Value(n), all.First(n), all.End(n)
	switch v[0] {
	case '"':
		return mcp.AppendString(to, mcp.String(v))
	case '[':
		for to = append(to, '['); i < end; i = all.After(i) {
			to = append(spelt(to, all, i), ',')
		}
		return append(to, ']')
	case '{':
		var names []string
		nodes := map[string]int{}
		for ; i < end; i = all.After(i) {
			name := string(mcp.Unquote(all.Name(i)))
			names, nodes[name] = append(names, name), i
		}
		slices.Sort(names)
		to = append(to, '{')
		for _, name := range names {
			to = append(mcp.AppendString(to, name), ':')
			to = append(spelt(to, all, nodes[name]), ',')
		}
		return append(to, '}')
	}
	return append(to, v...)
}

// ErrState returns the error for a state that is not valid for its request.
func ErrState() error {
	return edge.Errorf(edge.Params, "resume", relay.StateIsNoGood)
}

// Spent remembers states that the edge with their calls has refused for good, so that it
// is not asked about them again.
type Spent struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]int64 // expiry of the state by its digest, Unix seconds
}

// maxSpent bounds the remembered states.
const maxSpent = 10_000

// Add remembers a state until it expires, in Unix seconds.
func (s *Spent) Add(now time.Time, state string, until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[[sha256.Size]byte]int64)
	}
	if len(s.all) >= maxSpent {
		for one, until := range s.all {
			if until < now.Unix() {
				delete(s.all, one)
			}
		}
		for one := range s.all { // a map's order is random
			if len(s.all) < maxSpent {
				break
			}
			delete(s.all, one)
		}
	}
	s.all[sha256.Sum256([]byte(state))] = until
}

// Has reports whether a state is remembered.
func (s *Spent) Has(state string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.all[sha256.Sum256([]byte(state))]
	return there
}
