package egress

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Bounds of names and their addresses.
const (
	maxNames    = 4096
	keptFor     = time.Hour // after its last answer an address is no other name's
	answersFor  = 30        // seconds that an answer may be kept
	maxQuery    = 1232      // bytes
	typeA       = 1
	classIN     = 1
	codeFormat  = 1
	codeServer  = 2
	codeNoName  = 3
	codeNotImpl = 4
)

// names gives names of a sandbox addresses of its loopback, 127.84.0.0/16.
type names struct {
	mu    sync.Mutex
	now   func() time.Time
	by    map[string]int // name → place
	all   []named        // its place is its address
	begin int            // where one to be taken over is looked for
}

type named struct {
	host     Host
	answered time.Time
	used     int // connections
}

func newNames(now func() time.Time) *names { return &names{now: now, by: map[string]int{}} }

// give returns the address of a name; false when all are taken.
func (n *names) give(h Host) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	i, ok := n.by[h.name]
	if !ok {
		if i, ok = n.place(now); !ok {
			return netip.Addr{}, false
		}
		n.all[i] = named{host: h}
		n.by[h.name] = i
	}
	n.all[i].answered = now
	return netip.AddrFrom4([4]byte{127, 84, byte((i + 1) >> 8), byte(i + 1)}), true
}

// place finds a place for a new name: a free one, or that of a name which nobody can use any
// more.
func (n *names) place(now time.Time) (int, bool) {
	if len(n.all) < maxNames {
		n.all = append(n.all, named{})
		return len(n.all) - 1, true
	}
	for range n.all {
		i := n.begin
		n.begin = (n.begin + 1) % len(n.all)
		if one := &n.all[i]; one.used == 0 && now.Sub(one.answered) >= keptFor {
			delete(n.by, one.host.name)
			return i, true
		}
	}
	return 0, false
}

// use returns the name of an address, which stays its name until done has been called.
func (n *names) use(a netip.Addr) (h Host, done func(), ok bool) {
	if !a.Is4() {
		return Host{}, nil, false
	}
	b := a.As4()
	n.mu.Lock()
	defer n.mu.Unlock()
	i := int(b[2])<<8 | int(b[3]) - 1
	if b[0] != 127 || b[1] != 84 || i < 0 || i >= len(n.all) {
		return Host{}, nil, false
	}
	n.all[i].used++
	return n.all[i].host, sync.OnceFunc(func() {
		n.mu.Lock()
		n.all[i].used--
		n.mu.Unlock()
	}), true
}

// question is that of a query.
type question struct {
	end  int // where it ends
	name string
	kind uint16
}

// readQuestion reads the header and the one question of a query (RFC 1035 §4.1). code is why
// it is not answered; answer is false for what is not even refused.
func readQuestion(q []byte) (one question, code byte, answer bool) {
	if len(q) < 12 || len(q) > maxQuery || q[2]&0x80 != 0 {
		return one, 0, false
	}
	switch {
	case q[2]&0x78 != 0:
		return one, codeNotImpl, true
	case binary.BigEndian.Uint16(q[4:]) != 1 || binary.BigEndian.Uint16(q[6:]) != 0 || binary.BigEndian.Uint16(q[8:]) != 0:
		return one, codeFormat, true
	}
	var name [maxHost + 2]byte
	n, at := 0, 12
	for {
		if at >= len(q) {
			return one, codeFormat, true
		}
		size := int(q[at])
		at++
		if size == 0 {
			break
		}
		if size > 63 || at+size > len(q) || n+size+1 > len(name) {
			return one, codeFormat, true
		}
		for _, c := range q[at : at+size] {
			if c == '.' { // a dot in a label is no dot between labels
				return one, codeFormat, true
			}
			name[n] = c
			n++
		}
		name[n] = '.'
		n++
		at += size
	}
	if at+4 > len(q) {
		return one, codeFormat, true
	}
	one.kind = binary.BigEndian.Uint16(q[at:])
	if binary.BigEndian.Uint16(q[at+2:]) != classIN {
		return one, codeNotImpl, true
	}
	one.end, one.name = at+4, string(name[:n])
	return one, 0, true
}

// answer answers a query by the rules: an address of the sandbox's own for a name that they
// allow, no data of another type for it, and that there is no such name for every other. It
// asks nobody. full is told when all addresses are taken.
func (n *names) answer(r *Rules, q []byte, full func()) []byte {
	one, code, ok := readQuestion(q)
	if !ok {
		return nil
	}
	if code != 0 {
		return reply(q, 12, 0, code)
	}
	h, err := Canonical(one.name)
	if err != nil || h.IsAddr() || !r.ByName(h).OK() {
		return reply(q, one.end, 1, codeNoName)
	}
	if one.kind != typeA {
		return reply(q, one.end, 1, 0)
	}
	addr, ok := n.give(h)
	if !ok {
		full()
		return reply(q, one.end, 1, codeServer)
	}
	b := reply(q, one.end, 1, 0)
	b[7] = 1                                                                 // one answer
	b = append(b, 0xc0, 12, 0, typeA, 0, classIN, 0, 0, 0, answersFor, 0, 4) // of the name at 12
	ip := addr.As4()
	return append(b, ip[:]...)
}

// unnamed says why the rules know no such name as the one that a query asks for.
func unnamed(r *Rules, q []byte) *Refusal {
	one, _, _ := readQuestion(q) // it was answered, and so it can be read
	h, err := Canonical(one.name)
	if err != nil { // also for an address: the dot at its end is there always
		return &Refusal{Host: edge.Brief(one.name), Reason: BadTarget, What: "asked of DNS: " + err.Error()}
	}
	return &Refusal{Host: h.String(), Reason: r.ByName(h).Reason, What: "asked of DNS"}
}

// reply begins an answer: the header, and the question up to end.
func reply(q []byte, end, questions int, code byte) []byte {
	b := append(make([]byte, 0, end+16), q[:end]...)
	b[2] = 0x80 | q[2]&0x79 // an answer, to the same operation, recursion as desired
	b[3] = 0x80 | code      // recursion is available: nobody has to ask elsewhere
	clear(b[4:12])
	b[5] = byte(questions)
	return b
}
