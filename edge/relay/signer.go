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

// Any client of the store can write messages. If the edges share a key, which also
// seals states, each message is signed with it: box, sender, time, number and a digest
// of the rest. A message that is unsigned, late or repeated is dropped before it is
// decoded. Without a key only repeated ones are dropped, which a sender posts when it
// could not know that the first had arrived.

const (
	// maxAge is how far the time of a message may differ from now: the time it
	// lies in its box, and the difference of clocks.
	maxAge = waitFor + time.Minute

	// maxSenders bounds the senders that are remembered, each for twice maxAge;
	// window is the number of the latest messages of a sender whose arrival is
	// recorded. maxBoxes bounds the boxes with a numbering of their own.
	maxSenders = 1024
	maxBoxes   = 1024
	window     = 4096

	// signature begins the first line of a message.
	signature = "weir2"
)

// Signer signs the messages of an edge and verifies those of others.
type Signer struct {
	node string
	keys [][]byte // the first signs, all of them verify; none for unsigned messages
	now  func() time.Time

	Dropped atomic.Uint64 // messages that were dropped
	in      atomic.Uint32 // dropped in a row
	said    atomic.Int64  // when drops were last logged, Unix seconds

	mu      sync.Mutex
	senders map[string]*sender
	boxes   map[string]*numbered
	from    uint64 // the number after which a box that is not in boxes starts
}

// numbered counts the messages to one box, so that messages to other boxes do not
// move the window of its reader past one that still lies there.
type numbered struct {
	last uint64 // number of the last one
	at   time.Time
}

// sender records which messages of an edge have arrived.
type sender struct {
	most  uint64              // the highest number that arrived
	come  [window / 64]uint64 // a bit for each of the last ones
	until time.Time
}

// NewSigner returns a signer whose keys are derived from those of states.
func NewSigner(node string, states [][]byte) *Signer {
	s := &Signer{node: node, now: time.Now, senders: make(map[string]*sender), boxes: make(map[string]*numbered)}
	for _, key := range states {
		h := hmac.New(sha256.New, key)
		h.Write([]byte("weir letters"))
		s.keys = append(s.keys, h.Sum(nil))
	}
	return s
}

// Sign returns a message in the form in which it is posted: a line with the signature,
// then the message.
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
			s.from = max(s.from, s.boxes[oldest].last) // a later message to that box must have a higher number
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

// Open verifies a text from a box and returns its message. It is false for one that no
// edge with the key has lately written to this box, and for one that arrived before,
// with a key or without.
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
	number, err := strconv.ParseUint(string(words[2]), 10, 63) // none follows the last of 64 bits
	if err != nil {
		return nil, false
	}
	if len(s.keys) == 0 { // a sender may still post it twice
		return message, len(words) == 5 && s.first(string(words[1]), number, s.now())
	}
	if len(words) != 6 {
		return nil, false
	}
	// 1. The signature of the line: cheap, however large the message is.
	mac := decoded(words[5])
	signed := false
	for _, key := range s.keys {
		signed = signed || hmac.Equal(mac, macOf(key, box, line[:bytes.LastIndexByte(line, ' ')]))
	}
	if !signed {
		return nil, false
	}
	// 2. The digest of the rest.
	digest := sha256.Sum256(message)
	if !bytes.Equal(decoded(words[4]), digest[:]) {
		return nil, false
	}
	// 3. The time, and whether it arrives for the first time.
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

// first reports whether a message of an edge arrives for the first time, and records
// it.
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
				return len(s.keys) == 0 // more senders than there are edges: without a key their names can be forged
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

// drop counts a dropped message, and reports whether to log it. After many in a row it
// sleeps, which slows down their sender, since messages are read one after the other.
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

// After fetchAtOnce dropped messages in a row reading pauses for dropPause.
const (
	fetchAtOnce = 64
	dropPause   = 5 * time.Millisecond
)
