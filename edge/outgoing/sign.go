package outgoing

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
)

// AWS Signature Version 4, as its documentation describes it ("Create a signed AWS API
// request", IAM User Guide). It stands on the path of every call, and its text is made from
// the bytes that go on the wire.
const (
	signAlgorithm = "AWS4-HMAC-SHA256"
	signTime      = "20060102T150405Z"
	signDay       = len("20060102")
	headerDate    = "X-Amz-Date"
	headerDigest  = "X-Amz-Content-Sha256"
	headerToken   = "X-Amz-Security-Token"
)

// signed are the headers that a signature consists of.
var signed = [...]string{"Authorization", headerDate, headerDigest, headerToken}

// unsigned reports whether a line of a name, in small letters, is left out of a signature,
// since whoever passes a request on may change it.
func unsigned(name string) bool {
	switch name {
	case "authorization", "connection", "expect", "keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "x-amzn-trace-id":
		return true
	}
	return false
}

// signer signs requests to one service. It is safe for concurrent use.
type signer struct {
	region, service string
	verbatim        bool // the path is signed as it is, and not as RFC 3986 §5.2.4 reads it

	now  atomic.Pointer[moment]
	pads sync.Pool // of *signPad
}

// moment is a second in text, which the requests of that second share.
type moment struct {
	unix int64
	text string // as X-Amz-Date
}

// keys are credentials to sign with. They are safe for concurrent use.
type keys struct {
	id     string
	secret edge.Secret
	token  edge.Secret // of a session; "" for none

	day atomic.Pointer[dayKey]
}

// dayKey is what keys sign with on one day, in one region, for one service.
type dayKey struct {
	day, region, service string
	key                  [sha256.Size]byte
}

// wire is a request as it is sent.
type wire struct {
	method, path, query string // path and query as in the request line
	lines               []byte // the header lines, Host among them, each "\r\nName: value"
	body                []byte
}

// signPad is where one signature is worked out.
type signPad struct {
	text   []byte   // the canonical request, or the string to sign
	names  []byte   // of the headers, in small letters
	fields []line   // of the headers
	params []param  // of the query
	parts  []byte   // the query, encoded
	blocks []byte   // what is hashed for a message authentication code
	out    []byte   // the value of Authorization, and the digest of the body
	digest [64]byte // of the body, in hexadecimal digits
}

// line is a header line: where its name stands in names, and its value.
type line struct {
	from, to int
	value    []byte
	text     string // the value, without needless blanks, where value is nil
}

// param is a parameter of a query: where its name and value stand in parts.
type param struct{ from, is, to int }

// sign gives set the lines that sign r at a time. It allocates once, and once more in the
// first request of a second.
func (s *signer) sign(k *keys, now time.Time, r *wire, set func(string, edge.Secret)) {
	p, ok := s.pads.Get().(*signPad)
	if !ok {
		p = new(signPad)
	}
	at := s.date(now)
	sum := sha256.Sum256(r.body)
	hex.Encode(p.digest[:], sum[:])
	names := p.canonical(r, at, string(k.token), !s.verbatim, true)
	p.toSign(s, at)
	p.authorization(s, k, at, names)
	end := len(p.out)
	text := string(append(p.out, p.digest[:]...))
	s.pads.Put(p)
	set(headerDate, edge.Secret(at))
	set(headerDigest, edge.Secret(text[end:]))
	set(headerToken, k.token)
	set("Authorization", edge.Secret(text[:end]))
}

// date returns a time as X-Amz-Date has it.
func (s *signer) date(now time.Time) string {
	m := s.now.Load()
	if unix := now.Unix(); m == nil || m.unix != unix {
		m = &moment{unix, now.UTC().Format(signTime)}
		s.now.Store(m)
	}
	return m.text
}

// canonical writes the canonical request, and returns the list of headers in it. token is
// that of a session, "" for none; digest says that the line with the digest of the body is
// signed, too.
func (p *signPad) canonical(r *wire, at, token string, normalize, digest bool) (names []byte) {
	b := append(append(p.text[:0], r.method...), '\n')
	b = append(canonicalPath(b, r.path, normalize), '\n')
	b = append(p.query(b, r.query), '\n')

	p.names, p.fields = p.names[:0], p.fields[:0]
	p.field("x-amz-date", nil, at)
	if digest {
		p.field("x-amz-content-sha256", p.digest[:], "")
	}
	if token != "" {
		p.field("x-amz-security-token", nil, token)
	}
	p.lines(r.lines)
	slices.SortStableFunc(p.fields, func(a, b line) int { return bytes.Compare(p.names[a.from:a.to], p.names[b.from:b.to]) })
	list := len(p.names)
	for i, f := range p.fields {
		name := p.names[f.from:f.to]
		if i > 0 && bytes.Equal(name, p.names[p.fields[i-1].from:p.fields[i-1].to]) {
			b[len(b)-1] = ',' // one line for all values of a name
		} else {
			b = append(append(b, name...), ':')
			if len(p.names) > list {
				p.names = append(p.names, ';')
			}
			p.names = append(p.names, name...)
		}
		if f.value != nil {
			b = trimmed(b, f.value)
		} else {
			b = append(b, f.text...)
		}
		b = append(b, '\n')
	}
	names = p.names[list:]
	b = append(append(append(b, '\n'), names...), '\n')
	p.text = append(b, p.digest[:]...)
	return names
}

// toSign replaces the canonical request by what is signed of it.
func (p *signPad) toSign(s *signer, at string) {
	sum := sha256.Sum256(p.text)
	b := append(append(append(p.text[:0], signAlgorithm+"\n"...), at...), '\n')
	b = append(s.scope(b, at), '\n')
	p.text = hex.AppendEncode(b, sum[:])
}

// authorization writes the value of the line Authorization.
func (p *signPad) authorization(s *signer, k *keys, at string, names []byte) {
	b := append(append(append(p.out[:0], signAlgorithm+" Credential="...), k.id...), '/')
	b = append(append(s.scope(b, at), ", SignedHeaders="...), names...)
	sum := p.mac(k.key(s, at[:signDay]), p.text)
	p.out = hex.AppendEncode(append(b, ", Signature="...), sum[:])
}

// scope appends what a signature holds for.
func (s *signer) scope(b []byte, at string) []byte {
	b = append(append(append(b, at[:signDay]...), '/'), s.region...)
	return append(append(append(b, '/'), s.service...), "/aws4_request"...)
}

// key returns what is signed with on a day.
func (k *keys) key(s *signer, day string) *[sha256.Size]byte {
	d := k.day.Load()
	if d == nil || d.day != day || d.region != s.region || d.service != s.service {
		d = &dayKey{day: strings.Clone(day), region: s.region, service: s.service}
		sum := []byte("AWS4" + string(k.secret))
		for _, part := range []string{day, s.region, s.service, "aws4_request"} {
			h := hmac.New(sha256.New, sum)
			h.Write([]byte(part))
			sum = h.Sum(nil)
		}
		copy(d.key[:], sum)
		k.day.Store(d)
	}
	return &d.key
}

// mac is HMAC-SHA256 (RFC 2104) of a key that is shorter than a block. That of crypto/hmac
// allocates five times.
func (p *signPad) mac(key *[sha256.Size]byte, message []byte) [sha256.Size]byte {
	block := func(pad byte) []byte {
		b := p.blocks[:0]
		for i := range sha256.BlockSize {
			c := pad
			if i < len(key) {
				c ^= key[i]
			}
			b = append(b, c)
		}
		return b
	}
	p.blocks = append(block(0x36), message...)
	inner := sha256.Sum256(p.blocks)
	p.blocks = append(block(0x5c), inner[:]...)
	return sha256.Sum256(p.blocks)
}

// field notes a header line by its name in small letters. Its value is value, or text where
// that is nil.
func (p *signPad) field(name string, value []byte, text string) {
	p.names = append(p.names, name...)
	p.fields = append(p.fields, line{len(p.names) - len(name), len(p.names), value, text})
}

// lines notes the header lines of a request. A line that starts with a blank goes on with
// the value of the one before (RFC 9112 §5.2).
func (p *signPad) lines(b []byte) {
	for len(b) > 0 {
		b = bytes.TrimPrefix(b, []byte("\r\n"))
		end := 0
		for {
			i := bytes.Index(b[end:], []byte("\r\n"))
			if i < 0 {
				end = len(b)
				break
			}
			if end += i; end+2 >= len(b) || b[end+2] != ' ' && b[end+2] != '\t' {
				break
			}
			end += 2
		}
		name, value, ok := bytes.Cut(b[:end], []byte{':'})
		b = b[end:]
		if !ok || len(name) == 0 {
			continue // it is no header line
		}
		from := len(p.names)
		for _, c := range name {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			p.names = append(p.names, c)
		}
		if unsigned(string(p.names[from:])) {
			p.names = p.names[:from]
			continue
		}
		p.fields = append(p.fields, line{from: from, to: len(p.names), value: value})
	}
}

// trimmed appends a value without blanks at its ends, and with one for each run of them.
func trimmed(b, value []byte) []byte {
	from, to := 0, len(value)
	for from < to && space(value[from]) {
		from++
	}
	for to > from && space(value[to-1]) {
		to--
	}
	start := from // of what is not appended yet
	for i := from; i < to; i++ {
		if !space(value[i]) {
			continue
		}
		b = append(append(b, value[start:i]...), ' ')
		for space(value[i+1]) {
			i++
		}
		start = i + 1
	}
	return append(b, value[start:to]...)
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// canonicalPath appends a path, encoded as it stands on the wire: an escape that it has is
// escaped again. normalize takes empty segments and those of dots out of it.
func canonicalPath(b []byte, path string, normalize bool) []byte {
	start := len(b)
	if !normalize {
		if path == "" {
			return append(b, '/')
		}
		return escape(b, path, true)
	}
	for segment := range strings.SplitSeq(path, "/") {
		switch segment {
		case "", ".":
		case "..":
			b = b[:max(bytes.LastIndexByte(b[start:], '/'), 0)+start]
		default:
			b = escape(append(b, '/'), segment, false)
		}
	}
	if len(b) == start || strings.HasSuffix(path, "/") {
		b = append(b, '/')
	}
	return b
}

// query appends the parameters of a query, encoded, in order of their names and values.
// They are read as those who answer read them: a plus is a blank.
func (p *signPad) query(b []byte, query string) []byte {
	p.parts, p.params = p.parts[:0], p.params[:0]
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		from := len(p.parts)
		p.parts = recode(p.parts, name)
		is := len(p.parts)
		p.parts = recode(p.parts, value)
		p.params = append(p.params, param{from, is, len(p.parts)})
	}
	slices.SortStableFunc(p.params, func(a, b param) int {
		if c := bytes.Compare(p.parts[a.from:a.is], p.parts[b.from:b.is]); c != 0 {
			return c
		}
		return bytes.Compare(p.parts[a.is:a.to], p.parts[b.is:b.to])
	})
	for i, q := range p.params {
		if i > 0 {
			b = append(b, '&')
		}
		b = append(append(append(b, p.parts[q.from:q.is]...), '='), p.parts[q.is:q.to]...)
	}
	return b
}

// recode appends a part of a query, decoded and encoded again.
func recode(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '+' {
			c = ' '
		} else if c == '%' && i+2 < len(s) {
			if high, low := digit(s[i+1]), digit(s[i+2]); high >= 0 && low >= 0 {
				c = byte(high<<4 | low)
				i += 2
			}
		}
		b = escapeByte(b, c)
	}
	return b
}

func digit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// escape appends s with all but unreserved characters in percent encoding (RFC 3986 §2.3).
func escape(b []byte, s string, slash bool) []byte {
	for i := range len(s) {
		if slash && s[i] == '/' {
			b = append(b, '/')
		} else {
			b = escapeByte(b, s[i])
		}
	}
	return b
}

func escapeByte(b []byte, c byte) []byte {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~':
		return append(b, c)
	}
	const digits = "0123456789ABCDEF"
	return append(b, '%', digits[c>>4], digits[c&15])
}
