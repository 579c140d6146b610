package relay

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/weir-edge/weir/edge"
)

const (
	// waitFor is how long a message waits to be read: about as long as a replica
	// may be silent until it counts as gone.
	waitFor = 10 * time.Second

	// MaxHead bounds the bytes of a message without its body.
	MaxHead = 1 << 20

	// maxSigned bounds the bytes of the signature, which is part of the head.
	maxSigned = 256

	// maxAfter is the longest wait that an error may ask for: a bucket may take
	// a year to fill.
	maxAfter = 400 * 24 * time.Hour
)

// The kinds of messages.
const (
	KindEnd    = "end"    // a session has ended
	KindLook   = "look"   // the state of a session in the store has changed
	KindAnswer = "answer" // a client's answer to a question; the body is the message
	KindCancel = "cancel" // a client's cancellation; the body is the message
	KindRoots  = "roots"  // a client's roots have changed
	KindAsk    = "ask"    // whether something is wanted; the body is the state of a parked call, or with a session the id of a question in it
	KindRetry  = "retry"  // a round of a parked call that was asked about; the body is the request
	KindFollow = "follow" // a client is back for a stream
	KindOpen   = "open"   // a stream of the older transport has its session; the body is what its client is told first
	KindSay    = "say"    // something for the client of such a stream; the body is the message
	KindLeave  = "leave"  // the waiter for a reply has left

	KindNote   = "note"   // a notification for the client; the body is the message
	KindResult = "result" // the answer; the body is the message
	KindError  = "error"  // an error in place of the answer
	KindTaken  = "taken"  // yes to KindAsk; or: the request has come; or: the stream exists, and its events follow
	KindEvent  = "event"  // an event of a stream; the body is its data
	KindDone   = "done"   // the stream has ended
)

// Message is the head of what replicas post to each other; its body follows it.
type Message struct {
	Kind    string `json:"k"`
	From    string `json:"f,omitempty"` // the edge that waits for the reply
	Stream  string `json:"t,omitempty"` // the reply stream on which it waits
	Session string `json:"s,omitempty"` // key of a session
	Event   string `json:"e,omitempty"` // id of an event
	Status  int    `json:"h,omitempty"` // of an answer
	Error   *Fault `json:"w,omitempty"`
}

// Fault is an edge.Error as it goes to another replica.
type Fault struct {
	Kind  edge.Kind       `json:"k"`
	Text  string          `json:"t"`
	After time.Duration   `json:"a,omitempty"`
	Data  json.RawMessage `json:"d,omitempty"`
	Spent bool            `json:"s,omitempty"` // a requestState that is refused for good
}

// Pack returns the text of a message: its head in one line, then the body unchanged.
func (m Message) Pack(body []byte) []byte {
	head, err := json.Marshal(m)
	if err != nil {
		panic(err) // Data is JSON text, and the rest always has a JSON form
	}
	return append(append(append(make([]byte, 0, len(head)+1+len(body)), head...), '\n'), body...)
}

// Unpack reverses Pack; false for a text that no replica writes.
func Unpack(text []byte) (m Message, body []byte, ok bool) {
	head, body, ok := bytes.Cut(text, []byte{'\n'})
	if !ok || len(head) > MaxHead || json.Unmarshal(head, &m) != nil || !m.valid() {
		return Message{}, nil, false
	}
	return m, body, true
}

// valid reports whether a replica may have written a message.
func (m *Message) valid() bool {
	switch m.Kind {
	case KindAsk, KindRetry, KindFollow, KindOpen:
		if !IsNode(m.From) || m.Stream == "" {
			return false
		}
	case KindError:
		if m.Error == nil {
			return false
		}
	}
	const longest = 256 // a name, a key or an id of an edge's
	if len(m.From) > longest || len(m.Stream) > longest || len(m.Session) > longest || len(m.Event) > longest {
		return false
	}
	if m.Status != 0 && (m.Status < 200 || m.Status > 599) {
		return false
	}
	w := m.Error
	return w == nil || w.Kind.Known() && w.After >= 0 && w.After <= maxAfter && (w.Data == nil || json.Valid(w.Data))
}

// FaultOf returns an error in the form sent to another replica.
func FaultOf(err error) *Fault {
	w := &Fault{Kind: edge.KindOf(err), Text: "internal error"}
	var e *edge.Error
	if errors.As(err, &e) && w.Kind != edge.Internal {
		w.Text, w.After, w.Data = e.Err.Error(), e.After, e.Data
		_, w.Spent = e.Err.(*SpentState)
	}
	return w
}

// Err returns the error from which FaultOf made f.
func (w *Fault) Err() error {
	if w == nil {
		return edge.Errorf(edge.Internal, "relay", "an error without a cause")
	}
	if w.Spent {
		return ErrSpent()
	}
	return &edge.Error{Kind: w.Kind, Op: "relay", After: w.After, Data: w.Data, Err: errors.New(w.Text)}
}

// ErrSpent returns the error for a state that was sealed here and is refused for good.
func ErrSpent() error {
	return &edge.Error{Kind: edge.Params, Op: "resume", Err: &SpentState{}}
}

// SpentState is the cause of ErrSpent. One that was refused before is charged
// like a new call: the first time its client may not have known.
type SpentState struct{ Before bool }

func (*SpentState) Error() string { return StateIsNoGood }

// Is makes a state that was refused before count against the rate limits.
func (s *SpentState) Is(target error) bool { return s.Before && target == edge.ErrUnpaid }

// StateIsNoGood is the error text for a requestState that is not valid.
const StateIsNoGood = "requestState is not valid for this request, or its call is gone"

// Box returns the name of the box of a replica.
func Box(node string) string { return "node:" + node }

// AliveKey returns the key under which a replica writes that it is alive.
func AliveKey(node string) string { return "alive:" + node }

// LastAlive is the key under which each replica that is not draining writes its name
// when it writes that it is alive. A draining replica reads there whether it is alone.
const LastAlive = "alive"

// NewName returns a random name.
func NewName() string {
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // never fails
	return hex.EncodeToString(raw[:])
}

// IsNode reports whether a name may be that of a replica.
func IsNode(name string) bool {
	raw, err := hex.DecodeString(name)
	return err == nil && len(raw) == 8
}
