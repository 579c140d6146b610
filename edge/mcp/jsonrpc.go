package mcp

import (
	"bytes"
	"slices"
	"strconv"
)

// Codes of errors: JSON-RPC 2.0 §5.1, and those of MCP.
const (
	CodeParse             = -32700
	CodeInvalidRequest    = -32600
	CodeMethodNotFound    = -32601
	CodeInvalidParams     = -32602
	CodeInternal          = -32603
	CodeSessionNotFound   = -32001 // legacy
	CodeResourceNotFound  = -32002 // legacy; CodeInvalidParams in the modern era
	CodeHeaderMismatch    = -32020
	CodeMissingCapability = -32021
	CodeVersion           = -32022
	CodeURLElicitation    = -32042 // legacy, 2025-11-25
)

// Status returns the HTTP status under which a modern server answers the method with
// an error of the code (2026-07-28, basic/transports/streamable-http); 200 for a
// code that the revision leaves open. 404 says that the method is unknown: servers say
// of a tool, a prompt and a resource, too, that it is not found.
func Status(method string, code int) int {
	switch code {
	case CodeMethodNotFound:
		if MethodOf(method).Interactive {
			return 200
		}
		return 404
	case CodeParse, CodeInvalidRequest, CodeInvalidParams, CodeHeaderMismatch, CodeMissingCapability, CodeVersion:
		return 400
	}
	return 200
}

// Code returns the code of an error message; 0 for any other message.
func (m *Message) Code() int {
	if m.Kind != Failure {
		return 0
	}
	n, _ := strconv.Atoi(string(m.Get("code").Of(m.Raw)))
	return n
}

// AppendResult appends an answer; result is JSON text.
func AppendResult(dst, id, result []byte) []byte {
	dst = slices.Grow(dst, len(id)+len(result)+40)
	dst = append(append(dst, `{"jsonrpc":"2.0","id":`...), id...)
	dst = append(append(dst, `,"result":`...), result...)
	return append(dst, '}')
}

// AppendError appends an error answer. Without an id the answer has no id
// member; data is JSON text or nil.
func AppendError(dst, id []byte, code int, message string, data []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id != nil {
		dst = append(append(append(dst, `"id":`...), id...), ',')
	}
	dst = strconv.AppendInt(append(dst, `"error":{"code":`...), int64(code), 10)
	dst = AppendString(append(dst, `,"message":`...), message)
	if data != nil {
		dst = append(append(dst, `,"data":`...), data...)
	}
	return append(dst, '}', '}')
}

// AppendRequest appends a request, or a notification when id is nil; params is
// JSON text or nil.
func AppendRequest(dst, id []byte, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id != nil {
		dst = append(append(append(dst, `"id":`...), id...), ',')
	}
	dst = AppendString(append(dst, `"method":`...), method)
	if params != nil {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

// SameID reports whether two ids, as written, are one. Strings are compared
// by what they say.
func SameID(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	return len(a) > 1 && len(b) > 1 && a[0] == '"' && b[0] == '"' &&
		bytes.Equal(Unquote(a[1:len(a)-1]), Unquote(b[1:len(b)-1]))
}

// Kept reports whether every reader of JSON keeps an id or a token as it is written: a text,
// or an integer of no more digits than any of them has (see RFC 8259 §6).
func Kept(id []byte) bool {
	if len(id) == 0 || id[0] == '"' {
		return true
	}
	return len(id) <= 14 && string(id) != "-0" && !bytes.ContainsAny(id, ".eE")
}

// WithID returns the edit that gives the message another id; one that changes
// nothing when the message has none.
func (m *Message) WithID(id []byte) Edit {
	if !m.ID.OK() {
		return Edit{}
	}
	return Edit{m.ID, id}
}

// WithMeta returns the edit that changes _meta in params: names in drop go,
// members in set come or are replaced.
func (m *Message) WithMeta(drop []string, set ...Member) Edit {
	if meta := m.Get("_meta"); meta.OK() {
		return Edit{meta, Change(meta.Of(m.Raw), drop, set...)}
	}
	if len(set) == 0 {
		return Edit{Span: Span{m.Params.End, m.Params.End}}
	}
	meta := Change(nil, nil, set...)
	if !m.Params.OK() {
		end := uint32(bytes.LastIndexByte(m.Raw, '}'))
		text := append([]byte(`,"params":{"_meta":`), meta...)
		return Edit{Span{end, end}, append(text, '}')}
	}
	at := m.Params.Start + 1
	text := append([]byte(`"_meta":`), meta...)
	if m.n > 0 {
		text = append(text, ',')
	}
	return Edit{Span{at, at}, text}
}

// without returns the edits that take the members named in drop out of params,
// result or error, with the commas that go with them.
func (m *Message) without(drop ...string) []Edit {
	var edits []Edit
	var kept *member // the last that stays
	var run *member  // the first of the present run of members that go
	var last *member
	closeRun := func(next *member) {
		switch {
		case run == nil:
		case kept != nil:
			edits = append(edits, Edit{Span: Span{kept.value.End, last.value.End}})
		case next != nil:
			edits = append(edits, Edit{Span: Span{run.start, next.start}})
		default:
			edits = append(edits, Edit{Span: Span{run.start, last.value.End}})
		}
		run = nil
	}
	visit := func(f *member) {
		if f.meta {
			return
		}
		for _, name := range drop {
			if f.is(name, m.Raw) {
				if run == nil {
					run = f
				}
				last = f
				return
			}
		}
		closeRun(f)
		kept = f
	}
	for i := range m.n {
		visit(&m.members[i])
	}
	for i := range m.more {
		visit(&m.more[i])
	}
	closeRun(nil)
	return edits
}

// SetResult makes m the answer to id with result, JSON text at hand that is
// known to be valid. It is not scanned: Get and Meta find nothing in it.
func (m *Message) SetResult(id, result []byte) {
	m.Forget()
	const head, middle = `{"jsonrpc":"2.0","id":`, `,"result":`
	m.Raw = make([]byte, 0, len(head)+len(id)+len(middle)+len(result)+1)
	m.Raw = append(append(append(append(append(m.Raw, head...), id...), middle...), result...), '}')
	at := uint32(len(head))
	m.ID = Span{at, at + uint32(len(id))}
	at += uint32(len(id) + len(middle))
	m.Result = Span{at, at + uint32(len(result))}
	m.Kind = Result
}

// Begins finds in the beginning of what may be no message at all what it would be: its
// method, or the id of an answer, as written, whichever comes first; nil for both where it
// does not say.
func Begins(head []byte) (method, id []byte) {
	depth, name := 0, []byte(nil)
	for i := 0; i < len(head); i++ {
		switch head[i] {
		case '{', '[':
			depth++
			name = nil
		case '}', ']':
			depth--
			name = nil
		case ',':
			name = nil
		case '"':
			from := i
			for i++; i < len(head) && head[i] != '"'; i++ {
				if head[i] == '\\' {
					i++
				}
			}
			if i >= len(head) || depth != 1 {
				continue
			}
			text := head[from : i+1]
			switch {
			case name == nil:
				name = text
			case string(name) == `"id"`:
				return nil, text
			case string(name) == `"method"`:
				return text, nil
			}
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			from := i
			for i < len(head) && bytes.IndexByte([]byte("+-.eE0123456789"), head[i]) >= 0 {
				i++
			}
			if depth == 1 && i < len(head) && string(name) == `"id"` {
				return nil, head[from:i]
			}
			i--
		}
	}
	return nil, nil
}

// Tells reports whether what is no message would be a notification or a question, and no answer.
func Tells(text []byte) bool {
	method, id := Begins(text)
	if id != nil { // of a question, some say it first
		rest := text[cap(text)-cap(id)+len(id):]
		method, _ = Begins(append([]byte{'{'}, rest...))
	}
	return method != nil
}
