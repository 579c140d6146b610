package session

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// What a client says of itself goes with its session: into the memory of every
// edge that has it, into the store, and to backends with every session, or with
// every call, there. What it subscribes to goes with a common session.
const (
	// MaxSaid is how many bytes clientInfo and capabilities have together.
	MaxSaid = 16 << 10

	// maxSubscribed is how many bytes the URIs have that a common session is
	// subscribed to.
	maxSubscribed = 16 << 10

	// headBytes is more than the head of a record ever has.
	headBytes = 4 << 10

	// packFrom is from how many bytes on what a client said is compressed.
	packFrom = 1 << 10
)

// ErrSaidMuch refuses a client that says too much of itself; nil for one that
// does not.
func ErrSaidMuch(what string, info, capabilities int) error {
	if info+capabilities <= MaxSaid {
		return nil
	}
	return edge.Errorf(edge.Params, "client", "%s have %d bytes together: at most %d are kept of what a client says of itself", what, info+capabilities, MaxSaid)
}

// storedSession is a session in the store. Its head is small and lies before the rest,
// so that nobody has to read what a client made large to see whether the session
// is still there.
type storedSession struct {
	Server  string   `json:"s"`
	Owner   string   `json:"o"` // digest of id and principal: nobody reads there who it is
	Version string   `json:"v"`
	Level   string   `json:"l,omitempty"`
	Nodes   []string `json:"n"`           // the edges that have it
	Set     uint64   `json:"u,omitempty"` // how often its level, or what it is subscribed to, has changed
	Moved   bool     `json:"m,omitempty"` // it came from another store
	Ended   bool     `json:"x,omitempty"` // the session has ended, which a store is to remember

	said said
}

// said is the rest of a record: what its client said, and what programs said of
// the client.
type said struct {
	set          uint64 // of the record when this was read
	Info         []byte // JSON text; nil for none
	Capabilities []byte // JSON text
	Attributes   []byte // as attributesOf writes them; nil for none
	Subscribed   []string
}

// text is a record as the store has it.
func (r *storedSession) text() []byte {
	head, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	return r.said.append(append(head, '\n'))
}

// readHead returns the head of a session that a store has, of the first
// headBytes of it or more; nil for none, for one that has ended, and for what is
// no session.
func readHead(text []byte) *storedSession {
	head, _, ok := bytes.Cut(text, []byte{'\n'})
	var r storedSession
	if !ok || len(head) > headBytes || json.Unmarshal(head, &r) != nil || r.Ended || !mcp.LegacyVersion(r.Version) || len(r.Nodes) > maxNodes ||
		slices.ContainsFunc(r.Nodes, func(n string) bool { return !relay.IsNode(n) }) {
		return nil
	}
	return &r
}

// readRecord returns the session that a store has; nil as readHead.
func readRecord(text []byte) *storedSession {
	r := readHead(text)
	if r == nil {
		return nil
	}
	_, rest, _ := bytes.Cut(text, []byte{'\n'})
	if !r.said.read(rest) || !json.Valid(r.said.Capabilities) || len(r.said.Info) > 0 && !json.Valid(r.said.Info) || len(r.said.Subscribed) > backend.MaxWished ||
		len(r.said.Attributes) > maxAttributes || !soundAttributes(r.said.Attributes) {
		return nil
	}
	r.said.set = r.Set
	return r
}

// ended reports whether a store remembers of a session that it has ended.
func ended(text []byte) bool {
	head, _, _ := bytes.Cut(text, []byte{'\n'})
	var r storedSession
	return json.Unmarshal(head, &r) == nil && r.Ended
}

// subscribe changes what a session is subscribed to. It reports false when there
// is no room for more.
func (r *storedSession) subscribe(uri string, yes bool) bool {
	s := &r.said
	at := slices.Index(s.Subscribed, uri)
	switch {
	case yes == (at >= 0):
		return true
	case !yes:
		s.Subscribed = slices.Delete(slices.Clone(s.Subscribed), at, at+1)
	case !s.room(uri):
		return false
	default:
		s.Subscribed = append(slices.Clone(s.Subscribed), uri)
	}
	r.Set++
	s.set = r.Set
	return true
}

// room reports whether there is room for one more URI.
func (s *said) room(uri string) bool {
	bytes := len(uri)
	for _, u := range s.Subscribed {
		bytes += len(u)
	}
	return len(s.Subscribed) < backend.MaxWished && bytes <= maxSubscribed
}

// The rest of a record is a byte that says how it is written, and then its parts,
// each behind its length: attributes, where the byte says that there are some,
// clientInfo, capabilities, and what the session is subscribed to.
const (
	packed     = 1 << iota // the parts are compressed
	attributed             // there are attributes
)

// append writes what a client said behind the head of a record. Much of it is
// compressed: what clients say is alike, and a store is small.
func (s *said) append(dst []byte) []byte {
	how, raw := byte(0), []byte(nil)
	if len(s.Attributes) > 0 {
		how, raw = attributed, appendPart(raw, s.Attributes)
	}
	raw = appendPart(appendPart(raw, s.Info), s.Capabilities)
	for _, uri := range s.Subscribed {
		raw = appendPart(raw, []byte(uri))
	}
	if len(raw) < packFrom {
		return append(append(dst, how), raw...)
	}
	out := bytes.NewBuffer(append(dst, how|packed))
	w := packers.Get().(*flate.Writer)
	w.Reset(out)
	_, err := w.Write(raw)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // a buffer takes everything
	}
	packers.Put(w)
	return out.Bytes()
}

// packers are compressors, each of which is larger than what it compresses.
var packers = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is one of flate's
	}
	return w
}}

// read reads what append wrote.
func (s *said) read(text []byte) bool {
	if len(text) == 0 {
		return false
	}
	raw, how := text[1:], text[0]
	if how&^(packed|attributed) != 0 {
		return false
	}
	if how&packed != 0 {
		// More than a client may have said no edge wrote.
		const most = MaxSaid + maxSubscribed + maxAttributes + (backend.MaxWished+3)*binary.MaxVarintLen64
		var err error
		if raw, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(raw)), most)); err != nil {
			return false
		}
	}
	var ok bool
	if how&attributed != 0 {
		if s.Attributes, raw, ok = cutPart(raw); !ok {
			return false
		}
	}
	if s.Info, raw, ok = cutPart(raw); !ok {
		return false
	}
	if s.Capabilities, raw, ok = cutPart(raw); !ok {
		return false
	}
	for len(raw) > 0 {
		var uri []byte
		if uri, raw, ok = cutPart(raw); !ok {
			return false
		}
		s.Subscribed = append(s.Subscribed, string(uri))
	}
	return true
}

func appendPart(dst, part []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(part))), part...)
}

// cutPart takes the first part off; nil for one of no length.
func cutPart(raw []byte) (part, rest []byte, ok bool) {
	n, size := binary.Uvarint(raw)
	if size <= 0 || n > uint64(len(raw)-size) {
		return nil, nil, false
	}
	if n > 0 {
		part = bytes.Clone(raw[size : size+int(n)])
	}
	return part, raw[size+int(n):], true
}
