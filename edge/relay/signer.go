package relay

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Whoever may write to the store may write messages. Where the edges have a key
// in common, the one that seals states, each message is signed with it: its box,
// who sent it, when, as which of its messages, and a digest of the rest. What is
// not signed, comes late or comes again is dropped, before it is decoded. Without
// a key what comes again is, too: it was posted again by one who could not know
// that it had come.

const (
	// maxAge is how much older or younger than now a message may be: for how
	// long it lies in its box, and what clocks differ by.
	maxAge = waitFor + time.Minute

	// maxSenders is how many edges are remembered by what they sent, each for
	// twice maxAge; window is of how many of the last messages of one it
	// is known which have come. maxBoxes is to how many boxes messages are numbered
	// by themselves.
	maxSenders = 1024
	maxBoxes   = 1024
	window     = 4096

	// signature begins the first line of a message.
	signature = "weir2"
)

// Signer signs the messages of an edge and looks at those of others.
type Signer struct {
	node string
	keys [][]byte // the first signs, all of them are taken; none for messages without a signature
	now  func() time.Time

	Dropped atomic.Uint64 // messages that were not taken
	in      atomic.Uint32 // a row that were dropped
	said    atomic.Int64  // when that was last told, Unix seconds

	mu      sync.Mutex
	senders map[string]*sender
	boxes   map[string]*numbered
	from    uint64 // what the messages to a box that is not among them are numbered after
}

// numbered are the messages to a box: what is written to others does not push one
// that waits out of the window of whoever reads that box.
type numbered struct {
	last uint64 // number of the last one
	at   time.Time
}

// sender is what is known of the messages of an edge.
type sender struct {
	most  uint64              // the highest number that came
	come  [window / 64]uint64 // a bit for each of the last ones
	until time.Time
}

// NewSigner makes the keys of messages from those of states.
func NewSigner(node string, states [][]byte) *Signer {
	s := &Signer{node: node, now: time.Now, senders: make(map[string]*sender), boxes: make(map[string]*numbered)}
	for _, key := range states {
		h := hmac.New(sha256.New, key)
		h.Write([]byte("weir letters"))
		s.keys = append(s.keys, h.Sum(nil))
	}
	return s
}

// Sign returns a message to a box as it is posted: a line about it, then itself.
func (s *Signer) Sign(box string, text []byte) []byte {
	digest := sha256.Sum256(text)
	head := make([]byte, 0, 192+len(text))
	head = append(head, signature+" "+s.node+" "...)
	head = strconv.AppendUint(head, s.number(box), 10)
	head = strconv.AppendInt(append(head, ' '), s.now().UnixMilli(), 10)
	head = base64.RawURLEncoding.AppendEncode(append(head, ' '), digest[:])
	if len(s.keys) > 0 {
		mac := macOf(s.keys[0], box, head)
		head = base64.RawURLEncoding.AppendEncode(append(head, ' '), mac)
	}
	return append(append(head, '\n'), text...)
}

// number returns the number of the next message to a box, which is higher than that
// of any before it.
func (s *Signer) number(box string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.boxes[box]
	if one == nil {
		if len(s.boxes) >= maxBoxes {
			oldest := ""
			for name, other := range s.boxes {
				if oldest == "" || other.at.Before(s.boxes[oldest].at) {
					oldest = name
				}
			}
			s.from = max(s.from, s.boxes[oldest].last) // it may be written to again
			delete(s.boxes, oldest)
		}
		one = &numbered{last: s.from}
		s.boxes[box] = one
	}
	one.at = s.now()
	one.last++
	return one.last
}

func macOf(key []byte, box string, head []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(strconv.Itoa(len(box)) + ":" + box + "\n"))
	h.Write(head)
	return h.Sum(nil)
}

// Open returns the message in what came in a box. It is false for one that none
// of the edges that have the key has written to this box lately, and for one
// that came before, with a key or without.
func (s *Signer) Open(box string, text []byte) (message []byte, ok bool) {
	const longest = 256
	end := bytes.IndexByte(text[:min(len(text), longest)], '\n')
	if end < 0 {
		return nil, false
	}
	line, message := text[:end], text[end+1:]
	words := bytes.Split(line, []byte{' '})
	if len(words) < 5 || string(words[0]) != signature || !IsNode(string(words[1])) {
		return nil, false
	}
	number, err := strconv.ParseUint(string(words[2]), 10, 64)
	if err != nil {
		return nil, false
	}
	if len(s.keys) == 0 { // one may still come twice, from whoever posts it again
		return message, len(words) == 5 && s.first(string(words[1]), number, s.now())
	}
	if len(words) != 6 {
		return nil, false
	}
	// 1. It is signed. That is cheap, however large the message is.
	mac := decoded(words[5])
	signed := false
	for _, key := range s.keys {
		signed = signed || hmac.Equal(mac, macOf(key, box, line[:bytes.LastIndexByte(line, ' ')]))
	}
	if !signed {
		return nil, false
	}
	// 2. The rest is what was signed.
	digest := sha256.Sum256(message)
	if !bytes.Equal(decoded(words[4]), digest[:]) {
		return nil, false
	}
	// 3. It is of now, and comes for the first time.
	at, err := strconv.ParseInt(string(words[3]), 10, 64)
	now := s.now()
	if age := now.Sub(time.UnixMilli(at)); err != nil || age > maxAge || age < -maxAge {
		return nil, false
	}
	return message, s.first(string(words[1]), number, now)
}

func decoded(text []byte) []byte {
	out, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if err != nil {
		return nil
	}
	return out
}

// first reports whether a message of an edge comes for the first time, and notes
// that it came.
func (s *Signer) first(node string, number uint64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.senders[node]
	if one == nil {
		if len(s.senders) >= maxSenders {
			for name, other := range s.senders {
				if now.After(other.until) {
					delete(s.senders, name)
				}
			}
			if len(s.senders) >= maxSenders {
				return len(s.keys) == 0 // more edges than there are: without a key anybody may make them up
			}
		}
		one = &sender{}
		s.senders[node] = one
	}
	one.until = now.Add(2 * maxAge)
	if number > one.most {
		for n := max(one.most+1, number-min(number, window-1)); n <= number; n++ {
			one.come[n/64%(window/64)] &^= 1 << (n % 64)
		}
		one.most = number
	} else if one.most-number >= window {
		return false
	}
	word, bit := &one.come[number/64%(window/64)], uint64(1)<<(number%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

// drop counts a message that is dropped, and reports whether that is to be told.
// Who sends many is slowed down: they come one after the other.
func (s *Signer) drop() (tell bool) {
	s.Dropped.Add(1)
	if s.in.Add(1)%fetchAtOnce == 0 {
		time.Sleep(dropPause)
	}
	now := s.now().Unix()
	last := s.said.Load()
	return now-last >= 60 && s.said.CompareAndSwap(last, now)
}

// taken notes a message that was not dropped.
func (s *Signer) taken() { s.in.Store(0) }

// After so many messages in a row that were dropped nothing is read for so long.
const (
	fetchAtOnce = 64
	dropPause   = 5 * time.Millisecond
)
