// Package mcp is the wire of the Model Context Protocol: a strict scanner over
// JSON text, JSON-RPC messages, server-sent events, the protocol's revisions
// and the translation between its two eras.
//
// A message stays the bytes that it came as. Decode reads them once, checks
// all of them and remembers where the few things are that an edge needs;
// changes are made by splicing, so that whatever the edge does not own reaches
// the other side byte for byte.
package mcp

import (
	"bytes"
	"errors"
	"math"
)

// Span is a half-open range of bytes in a text; the zero Span stands for what
// is not there.
type Span struct{ Start, End uint32 }

// Of returns the bytes of the span in text; nil for the zero Span.
func (s Span) Of(text []byte) []byte {
	if s.End == 0 {
		return nil
	}
	return text[s.Start:s.End:s.End]
}

// OK reports whether there is something.
func (s Span) OK() bool { return s.End != 0 }

// Kind is what a message is (JSON-RPC 2.0 §4 and §5).
type Kind uint8

// The kinds of message.
const (
	Invalid      Kind = iota
	Request           // has a method and an id
	Notification      // has a method and no id
	Result            // answers a request
	Failure           // answers a request with an error
)

// Message is one JSON-RPC message: its bytes, and where the things in it are
// that an edge looks at. It is immutable and shares the bytes it was decoded
// from.
type Message struct {
	Raw    []byte
	Kind   Kind
	Method string // of a request or notification
	ID     Span   // a string or an integer, as written
	Params Span   // an object
	Result Span   // any value
	Error  Span   // an object

	members [14]member // of params, result or error, and of the _meta in it
	n       int
	more    []member // what does not fit into members
}

// member is a member of params, result or error, or of the _meta in it.
type member struct {
	start uint32 // of the name's opening quote
	value Span
	long  uint16 // bytes of the name, or 65535 for more: no name that the edge knows
	meta  bool   // member of the _meta object
	odd   bool   // the name has escapes
}

// may reports whether the member may have the name: most have none that is as long.
func (f *member) may(name string) bool { return int(f.long) == len(name) || f.odd }

// is reports whether the member of the text has the name, escaped or not.
func (f *member) is(name string, text []byte) bool {
	written := text[f.start+1:][:f.long]
	if f.odd {
		return string(Unquote(written)) == name
	}
	return string(written) == name
}

// MaxMembers is how many members params, a result, an error and the _meta in it
// may have, all together: far above what any message has, and few enough to look
// for one among them. What is below them is not counted.
const MaxMembers = 10_000

// MaxID is how many bytes the id of a message may have, so that nobody makes
// the edge's tables large by his choice of ids.
const MaxID = 1024

// EnvelopeError says why a text is JSON and yet no JSON-RPC message of MCP.
type EnvelopeError struct{ What string }

func (e *EnvelopeError) Error() string { return e.What }

// ErrBatch is what Decode returns for an array: a batch of messages, which
// Split takes apart (protocol revision 2025-03-26 only).
var ErrBatch = errors.New("a batch of messages")

// Decode reads one message. The error is a *SyntaxError for what is not JSON,
// ErrBatch for an array, and an *EnvelopeError for JSON that is not a message;
// with the last the returned message has its ID when that could be read.
//
// Case matters in names. A name of the envelope, of params, of what params say
// of a reference, a completion or a subscription, or of the protocol's own keys
// in _meta that is spelt in another case or with escapes is refused: a peer that folds case
// would read another message than the one that was judged.
func Decode(text []byte) (*Message, error) {
	m := new(Message)
	return m, m.Decode(text)
}

// Decode is the function Decode into a message at hand.
func (m *Message) Decode(text []byte) error {
	// What members holds beyond n is never looked at, and need not be cleared.
	m.Raw, m.Kind, m.Method = text, Invalid, ""
	m.ID, m.Params, m.Result, m.Error = Span{}, Span{}, Span{}, Span{}
	m.n, m.more = 0, nil
	s := newScanner(text)
	defer s.release()
	s.space()
	if s.i >= len(text) {
		return s.fail("an empty text")
	}
	if text[s.i] == '[' {
		if err := s.array(nil); err != nil {
			return err
		}
		if err := s.end(); err != nil {
			return err
		}
		return ErrBatch
	}
	if text[s.i] != '{' {
		if err := s.value(); err != nil {
			return err
		}
		if err := s.end(); err != nil {
			return err
		}
		return &EnvelopeError{"a message is an object"}
	}
	s.note.m = m
	err := s.object(inMessage)
	if err == nil {
		err = s.end()
	}
	if err != nil {
		*m = Message{Raw: text} // nothing in it can be relied on
		return err
	}
	return s.note.judge()
}

// mostOdd is how many members a message may have that is looked at twice.
const mostOdd = 32

// Understand is Decode of what a server says. Of method, params, error and result what is null is
// not there, but for a result that nothing else stands beside: some servers write every field that
// they know.
func Understand(m *Message, text []byte) error {
	err := m.Decode(text)
	if err == nil || !errors.As(err, new(*EnvelopeError)) {
		return err
	}
	given := make(map[string]string, 4)
	count, twice := 0, false
	Each(text, func(name, value []byte) bool {
		count++
		switch string(name) {
		case "method", "params", "error", "result":
			_, twice = given[string(name)]
			given[string(name)] = string(value[:min(len(value), len("null"))])
		}
		return !twice && count <= mostOdd
	})
	if twice || count > mostOdd {
		return err
	}
	there := func(name string) bool { return given[name] != "" && given[name] != "null" }
	var drop []string
	for _, name := range []string{"method", "params", "error", "result"} {
		if given[name] == "null" && (name != "result" || there("method") || there("error")) {
			drop = append(drop, name)
		}
	}
	if drop == nil {
		return err
	}
	return m.Decode(Change(text, drop))
}

// decoder takes a message down while the scanner walks its text. What is wrong
// with the envelope is kept until the whole text is known to be JSON.
type decoder struct {
	m       *Message
	version bool
	method  bool
	null    bool // the id is null, as in an error for a message whose id could not be read
	wrong   string
}

func (d *decoder) refuse(what string) {
	if d.wrong == "" {
		d.wrong = what
	}
}

// member reads the value of a member at a level that matters.
func (d *decoder) member(s *scanner, at level, k key) error {
	name := s.b[k.start:k.end]
	from := uint32(s.i)
	inside := elsewhere // what the value is when it is an object
	switch at {
	case inMessage:
		switch string(name) {
		case "params":
			inside = inParams
		case "result", "error":
			inside = inOutcome
		}
	case inParams, inOutcome:
		switch {
		case string(name) == "_meta", k.escaped && reads(name, "_meta"):
			inside = at + (inParamsMeta - inParams)
		case at == inParams && string(name) == "ref":
			inside = inReference
		case at == inParams && string(name) == "notifications":
			inside = inWanted
		case at == inParams && string(name) == "argument":
			inside = inCompleted
		case at == inParams && string(name) == "context":
			inside = inContext
		}
	}
	var err error
	if inside != elsewhere && s.i < len(s.b) && s.b[s.i] == '{' {
		err = s.object(inside)
	} else {
		err = s.value()
	}
	if err != nil {
		return err
	}
	value := Span{from, uint32(s.i)}
	switch at {
	case inMessage:
		d.envelope(s, k, name, value)
		return nil
	case inParams:
		if misspelt(k, name) {
			d.refuse("a member of params is misspelt: names are case-sensitive and have no escapes")
		}
	case inParamsMeta:
		if folds(k, name, MetaVersion, MetaClientInfo, MetaCapabilities, MetaLogLevel, "progressToken") {
			d.refuse("a member of _meta is misspelt: names are case-sensitive and have no escapes")
		}
	case inReference:
		if folds(k, name, "type", "name", "uri") {
			d.refuse("a member of ref is misspelt: names are case-sensitive and have no escapes")
		}
		return nil
	case inWanted:
		if folds(k, name, "toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds") {
			d.refuse("a member of notifications is misspelt: names are case-sensitive and have no escapes")
		}
		return nil
	case inCompleted:
		if folds(k, name, "name", "value") {
			d.refuse("a member of argument is misspelt: names are case-sensitive and have no escapes")
		}
		return nil
	case inContext:
		if folds(k, name, "arguments") {
			d.refuse("a member of context is misspelt: names are case-sensitive and have no escapes")
		}
		return nil
	}
	d.keep(member{start: k.start - 1, long: uint16(min(len(name), math.MaxUint16)), value: value,
		meta: at == inParamsMeta || at == inOutcomeMeta, odd: k.escaped})
	return nil
}

func (d *decoder) envelope(s *scanner, k key, name []byte, value Span) {
	raw := value.Of(s.b)
	switch string(name) {
	case "jsonrpc":
		d.version = string(raw) == `"2.0"`
	case "id":
		if string(raw) == "null" {
			d.null = true
		} else if why := badID(raw); why != "" {
			d.refuse(why)
		} else {
			d.m.ID = value
		}
	case "method":
		if raw[0] != '"' {
			d.refuse("method is not a string")
			return
		}
		d.method = true
		d.m.Method = intern(Unquote(raw[1 : len(raw)-1]))
	case "params":
		d.m.Params = value
	case "result":
		d.m.Result = value
	case "error":
		d.m.Error = value
	default:
		if folds(k, name, "jsonrpc", "id", "method", "params", "result", "error") {
			d.refuse("a member of the message is misspelt: names are case-sensitive and have no escapes")
		}
	}
}

func (d *decoder) keep(m member) {
	if d.m.n < len(d.m.members) {
		d.m.members[d.m.n] = m
		d.m.n++
		return
	}
	if len(d.m.more) == MaxMembers-len(d.m.members) {
		d.refuse("params, a result or an error with too many members")
		return
	}
	d.m.more = append(d.m.more, m)
}

// judge says what kind of message it is, or why it is none.
func (d *decoder) judge() error {
	m := d.m
	answer := m.Result.OK() || m.Error.OK()
	switch {
	case d.wrong != "":
		return &EnvelopeError{d.wrong}
	case d.null && !m.Error.OK():
		return &EnvelopeError{"the id is neither a string nor an integer"}
	case !d.version:
		return &EnvelopeError{`jsonrpc is not "2.0"`}
	case d.method && answer, m.Result.OK() && m.Error.OK():
		return &EnvelopeError{"a message has either a method, a result or an error"}
	case answer && m.Params.OK():
		return &EnvelopeError{"an answer has no params"}
	case d.method && m.Method == "":
		return &EnvelopeError{"method is empty"}
	case d.method:
		if m.Params.OK() && m.Raw[m.Params.Start] != '{' {
			return &EnvelopeError{"params is not an object"}
		}
		m.Kind = Notification
		if m.ID.OK() {
			m.Kind = Request
		}
	case m.Result.OK() && m.ID.OK():
		m.Kind = Result
	case m.Error.OK():
		if m.Raw[m.Error.Start] != '{' {
			return &EnvelopeError{"error is not an object"}
		}
		m.Kind = Failure // an error may lack its id: the sender could not read one
	case m.Result.OK():
		return &EnvelopeError{"a result without an id"}
	default:
		return &EnvelopeError{"a message has either a method, a result or an error"}
	}
	return nil
}

// badID says why a value can't be an id: MCP allows strings and integers
// (schema, RequestId).
func badID(v []byte) string {
	if len(v) > MaxID {
		return "the id is too long"
	}
	if v[0] == '"' {
		return ""
	}
	if v[0] != '-' && (v[0] < '0' || '9' < v[0]) || bytes.ContainsAny(v, ".eE") {
		return "the id is neither a string nor an integer"
	}
	return ""
}

// folds reports whether a name is not one of the wanted, but would be for a
// reader that ignores case or sees through escapes.
func folds(k key, name []byte, wanted ...string) bool {
	text := name
	if k.escaped {
		text = Unquote(name)
	}
	for _, w := range wanted {
		if string(name) == w {
			return false
		}
	}
	for _, w := range wanted {
		if bytes.EqualFold(text, []byte(w)) {
			return true
		}
	}
	return false
}

// misspelt is folds for the members of params that the edge reads.
func misspelt(k key, name []byte) bool {
	switch string(name) {
	case "name", "arguments", "uri", "_meta", "cursor", "level", "requestId", "progressToken", "requestState",
		"inputResponses", "protocolVersion", "capabilities", "clientInfo", "ref", "argument", "context", "notifications", "task", "taskId":
		return false
	}
	return folds(k, name, "name", "arguments", "uri", "_meta", "cursor", "level", "requestId", "progressToken", "requestState",
		"inputResponses", "protocolVersion", "capabilities", "clientInfo", "ref", "argument", "context", "notifications", "task", "taskId")
}

// Forget lets go of the bytes that the message shares, so that it can be kept
// for another.
func (m *Message) Forget() {
	m.Raw, m.Kind, m.Method = nil, Invalid, ""
	m.ID, m.Params, m.Result, m.Error = Span{}, Span{}, Span{}, Span{}
	m.n, m.more = 0, nil
}

// Get returns the value of a member of params, result or error.
func (m *Message) Get(name string) Span { return m.find(name, false) }

// Meta returns the value of a member of the _meta in params or result.
func (m *Message) Meta(name string) Span { return m.find(name, true) }

func (m *Message) find(name string, meta bool) Span {
	for i := range m.n {
		if f := &m.members[i]; f.meta == meta && f.may(name) && f.is(name, m.Raw) {
			return f.value
		}
	}
	for i := range m.more {
		if f := &m.more[i]; f.meta == meta && f.may(name) && f.is(name, m.Raw) {
			return f.value
		}
	}
	return Span{}
}

// Says reports whether a string member of params, result or error says text.
func (m *Message) Says(name, text string) bool { return says(m.Get(name).Of(m.Raw), text) }

// MetaSays is Says for the _meta in params or result.
func (m *Message) MetaSays(name, text string) bool { return says(m.Meta(name).Of(m.Raw), text) }

func says(value []byte, text string) bool {
	return len(value) >= 2 && value[0] == '"' && string(Unquote(value[1:len(value)-1])) == text
}

// Text returns what a string member of params, result or error says; "" when
// it is not there or not a string.
func (m *Message) Text(name string) string { return String(m.Get(name).Of(m.Raw)) }

// MetaText is Text for the _meta in params or result.
func (m *Message) MetaText(name string) string { return String(m.Meta(name).Of(m.Raw)) }

// IDText returns the id as written; nil when there is none.
func (m *Message) IDText() []byte { return m.ID.Of(m.Raw) }

// String returns what a valid JSON string says, and "" for any other value.
func String(value []byte) string {
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	return string(Unquote(value[1 : len(value)-1]))
}

// Clone returns the message with bytes of its own.
func (m *Message) Clone() *Message {
	c := *m
	c.Raw = bytes.Clone(m.Raw)
	return &c
}

// Split returns the messages of a batch, of at most limit messages. The error
// is a *SyntaxError or an *EnvelopeError.
func Split(text []byte, limit int) ([]Span, error) {
	s := newScanner(text)
	defer s.release()
	s.space()
	if s.i >= len(text) || text[s.i] != '[' {
		return nil, s.fail("no batch")
	}
	var spans []Span
	err := s.array(func() error {
		from := s.i
		if err := s.value(); err != nil {
			return err
		}
		if len(spans) == limit {
			return &EnvelopeError{"a batch with too many messages"}
		}
		spans = append(spans, Span{uint32(from), uint32(s.i)})
		return nil
	})
	if err == nil {
		err = s.end()
	}
	if err == nil && len(spans) == 0 {
		err = &EnvelopeError{"an empty batch"}
	}
	return spans, err
}

// intern spares the allocation of the names of methods that every client uses.
func intern(method []byte) string {
	switch string(method) {
	case "tools/call":
		return "tools/call"
	case "tools/list":
		return "tools/list"
	case "ping":
		return "ping"
	case "resources/read":
		return "resources/read"
	case "prompts/get":
		return "prompts/get"
	case "notifications/progress":
		return "notifications/progress"
	case "notifications/message":
		return "notifications/message"
	}
	return string(method)
}

// AnswerUnread returns the answer to a question that cannot be read for err, but for its id and
// its method: an error, since its server may wait. It is nil for what is no question.
func AnswerUnread(text []byte, err error) *Message {
	method, id := Begins(text)
	first := method
	if first == nil {
		first = id
	}
	if first == nil {
		return nil
	}
	// What was found is a part of text: what comes behind it is looked through for the other.
	second, other := Begins(append([]byte{'{'}, text[cap(text)-cap(first)+len(first):]...))
	if method == nil {
		method = second
	} else {
		id = other
	}
	code := CodeInvalidParams
	if errors.As(err, new(*SyntaxError)) {
		code = CodeParse
	}
	answer, err := Decode(AppendError(nil, id, code, "the question cannot be read: "+err.Error(), nil))
	if method == nil || id == nil || err != nil {
		return nil
	}
	return answer
}
