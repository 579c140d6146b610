package weir

import (
	"bytes"
	"iter"
	"strconv"
	"unicode/utf8"
)

// Value is JSON text of the input, read in place: nothing is decoded before it
// is asked for. It is valid until the function of the hook returns. One that
// does not exist answers every question with nothing.
//
// The host only sends well-formed JSON without duplicate names. Text that is
// not answers with nothing, too.
type Value struct{ b []byte }

// Parse reads JSON text that does not come from the input, such as a value of
// the store. The value is valid as long as the text is.
func Parse(text []byte) Value { return Value{text} }

// Exists says whether there is a value; null is one.
func (v Value) Exists() bool { return len(space(v.b)) > 0 }

// JSON returns a copy of the text.
func (v Value) JSON() JSON { return JSON(v.b) }

// View returns the text itself.
func (v Value) View() View { return View(v) }

func (v Value) first() byte {
	if b := space(v.b); len(b) > 0 {
		return b[0]
	}
	return 0
}

// IsNull says whether it is null.
func (v Value) IsNull() bool { return v.first() == 'n' }

// IsTrue says whether it is true.
func (v Value) IsTrue() bool { return v.first() == 't' }

// IsText says whether it is a string.
func (v Value) IsText() bool { return v.first() == '"' }

// IsArray says whether it is an array.
func (v Value) IsArray() bool { return v.first() == '[' }

// IsObject says whether it is an object.
func (v Value) IsObject() bool { return v.first() == '{' }

// Is says whether it is the string s.
func (v Value) Is(s string) bool {
	body, plain, ok := v.body()
	if plain || !ok {
		return ok && string(body) == s
	}
	return v.Text() == s
}

// Text returns a string's text, "" for anything else.
func (v Value) Text() string {
	body, plain, ok := v.body()
	if plain || !ok {
		return string(body)
	}
	return string(unescape(make([]byte, 0, len(body)), body))
}

// Number returns a number's value.
func (v Value) Number() (n float64, ok bool) {
	b := space(v.b)
	if len(b) == 0 || b[0] != '-' && (b[0] < '0' || b[0] > '9') {
		return 0, false
	}
	n, err := strconv.ParseFloat(string(b[:len(b)-len(skip(b))]), 64)
	return n, err == nil
}

// Int returns the value of a number without fraction and exponent.
func (v Value) Int() (n int64, ok bool) {
	b := space(v.b)
	if len(b) == 0 || b[0] != '-' && (b[0] < '0' || b[0] > '9') {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b[:len(b)-len(skip(b))]), 10, 64)
	return n, err == nil
}

// Array goes over the elements of an array.
func (v Value) Array() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		b := space(v.b)
		if len(b) == 0 || b[0] != '[' {
			return
		}
		for b = space(b[1:]); len(b) > 0 && b[0] != ']'; {
			rest := skip(b)
			if len(rest) == len(b) || !yield(Value{b[:len(b)-len(rest)]}) {
				return
			}
			if b = space(rest); len(b) > 0 && b[0] == ',' {
				b = space(b[1:])
			}
		}
	}
}

// Object goes over the members of an object: their names, as strings, and
// their values.
func (v Value) Object() iter.Seq2[Value, Value] {
	return func(yield func(Value, Value) bool) {
		b := space(v.b)
		if len(b) == 0 || b[0] != '{' {
			return
		}
		for b = space(b[1:]); len(b) > 0 && b[0] == '"'; {
			rest := skip(b)
			name := Value{b[:len(b)-len(rest)]}
			if rest = space(rest); len(rest) == 0 || rest[0] != ':' {
				return
			}
			b = space(rest[1:])
			rest = skip(b)
			if len(rest) == len(b) || !yield(name, Value{b[:len(b)-len(rest)]}) {
				return
			}
			if b = space(rest); len(b) > 0 && b[0] == ',' {
				b = space(b[1:])
			}
		}
	}
}

// Get returns the member of an object with a name, or a value that does not
// exist.
func (v Value) Get(name string) Value {
	for n, member := range v.Object() {
		if n.Is(name) {
			return member
		}
	}
	return Value{}
}

// At returns the value behind a JSON pointer (RFC 6901), or one that does not
// exist.
func (v Value) At(pointer string) Value {
	for pointer != "" {
		if pointer[0] != '/' {
			return Value{}
		}
		end := 1
		for end < len(pointer) && pointer[end] != '/' {
			end++
		}
		v = v.step(pointer[1:end])
		pointer = pointer[end:]
	}
	return v
}

func (v Value) step(token string) Value {
	if v.IsArray() {
		index, err := strconv.Atoi(token)
		if err != nil || index < 0 || len(token) > 1 && (token[0] == '0' || token[0] == '+') {
			return Value{}
		}
		for element := range v.Array() {
			if index--; index < 0 {
				return element
			}
		}
		return Value{}
	}
	return v.Get(plainToken(token))
}

// plainToken undoes what JSON pointers escape: ~1 is / and ~0 is ~.
func plainToken(token string) string {
	for i := range len(token) {
		if token[i] == '~' {
			b := make([]byte, 0, len(token))
			for i := 0; i < len(token); i++ {
				c := token[i]
				if c == '~' && i+1 < len(token) {
					i++
					if c = '~'; token[i] == '1' {
						c = '/'
					}
				}
				b = append(b, c)
			}
			return string(b)
		}
	}
	return token
}

// Token escapes a name for use in a JSON pointer.
func Token(name string) string {
	for i := range len(name) {
		if name[i] == '~' || name[i] == '/' {
			b := make([]byte, 0, len(name)+4)
			for _, c := range []byte(name) {
				switch c {
				case '~':
					b = append(b, '~', '0')
				case '/':
					b = append(b, '~', '1')
				default:
					b = append(b, c)
				}
			}
			return string(b)
		}
	}
	return name
}

// body returns what stands between the quotes of a string, and whether it is
// without escapes.
func (v Value) body() (body []byte, plain, ok bool) {
	b := space(v.b)
	if len(b) == 0 || b[0] != '"' {
		return nil, false, false
	}
	n := len(b) - len(skip(b))
	if n < 2 || b[n-1] != '"' {
		return nil, false, false
	}
	body = b[1 : n-1]
	return body, bytes.IndexByte(body, '\\') < 0, true
}

func space(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\n' || b[0] == '\t' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// skip returns what follows a value that b begins with.
func skip(b []byte) []byte {
	for i, depth := 0, 0; i < len(b); {
		switch c := b[i]; c {
		case '"':
			i = closing(b, i+1)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth--; depth < 0 {
				return b[i:]
			}
			i++
		default:
			start := i
			for i < len(b) && !delimiter(b[i]) {
				i++
			}
			if i == start {
				if depth == 0 {
					return b[i:]
				}
				i++
				continue
			}
		}
		if depth == 0 {
			return b[i:]
		}
	}
	return nil
}

// closing returns what follows the string whose text begins at i: the length of b
// when it does not end. It leaves the search to one instruction of many bytes a
// turn, where the toolchain has one.
func closing(b []byte, i int) int {
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		quote, slashes := i+n, 0
		for slashes < n && b[quote-1-slashes] == '\\' {
			slashes++
		}
		if i = quote + 1; slashes%2 == 0 {
			return i
		}
	}
}

// delimiter says whether a number, true, false or null ends before c.
func delimiter(c byte) bool {
	switch c {
	case ' ', '\n', '\t', '\r', ',', ':', '"', '{', '}', '[', ']':
		return true
	}
	return false
}

// unescape appends the text of a string's body.
func unescape(to, body []byte) []byte {
	for i := 0; i < len(body); i++ {
		c := body[i]
		if c != '\\' || i+1 == len(body) {
			to = append(to, c)
			continue
		}
		i++
		switch c = body[i]; c {
		case 'b':
			to = append(to, '\b')
		case 'f':
			to = append(to, '\f')
		case 'n':
			to = append(to, '\n')
		case 'r':
			to = append(to, '\r')
		case 't':
			to = append(to, '\t')
		case 'u':
			r := hex4(body[i+1:])
			i += min(4, len(body)-i-1)
			if r >= 0xd800 && r < 0xdc00 && i+2 < len(body) && body[i+1] == '\\' && body[i+2] == 'u' {
				if low := hex4(body[i+3:]); low >= 0xdc00 && low < 0xe000 {
					r = 0x10000 + (r-0xd800)<<10 + low - 0xdc00
					i += 6
				}
			}
			to = utf8.AppendRune(to, r) // what is half a pair becomes U+FFFD
		default:
			to = append(to, c)
		}
	}
	return to
}

func hex4(b []byte) (r rune) {
	if len(b) < 4 {
		return utf8.RuneError
	}
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return utf8.RuneError
		}
	}
	return r
}

// JSON is JSON text of an operation. The host refuses what is not well-formed:
// a failure of the guest.
type JSON string

// JSON values that need no making.
const (
	Null  JSON = "null"
	True  JSON = "true"
	False JSON = "false"
)

// Text returns the JSON text of a string. Bytes that are no UTF-8 become
// U+FFFD.
func Text(s string) JSON { return JSON(AppendText(make([]byte, 0, len(s)+2), s)) }

// Int returns the JSON text of a number.
func Int(n int64) JSON { return JSON(strconv.FormatInt(n, 10)) }

// TextResult is the result of a tool that says text.
func TextResult(s string) JSON {
	return JSON(append(AppendText([]byte(`{"content":[{"type":"text","text":`), s), `}]}`...))
}

// ErrorResult is the result of a tool that failed, and says why.
func ErrorResult(s string) JSON {
	return JSON(append(AppendText([]byte(`{"content":[{"type":"text","text":`), s), `}],"isError":true}`...))
}

// AppendText appends the JSON text of a string.
func AppendText(to []byte, s string) []byte {
	const hex = "0123456789abcdef"
	to = append(to, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			to = append(to, '\\', c)
		case c < ' ':
			to = append(to, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			to = append(to, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			to = utf8.AppendRune(to, r)
			i += n
			continue
		}
		i++
	}
	return append(to, '"')
}
