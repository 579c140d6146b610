package door

import (
	"bytes"
	"strconv"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge/mcp"
)

// The HTTP server accepts header blocks that another one, before or behind it,
// may read differently: folded lines, lines that end in LF alone, spaces in
// names, duplicates of what must be there once. The lint looks at the bytes as
// they came, before anything acts on them, and lets only that pass which has
// one reading (RFC 9112 §2.2, §5.1, §5.2, §6; RFC 9110 §5.5, §7.2).

const (
	// maxLines is how many lines a header may have, and maxName how many bytes
	// the name of one.
	maxLines = 100
	maxName  = 256

	// RefusedMethod marks a request that the lint refused. It is no token, so
	// that no client can send it.
	RefusedMethod = "(refused)"
)

// Fault is what is wrong with a header: the status to answer with and why.
type Fault struct {
	Status int // to answer with; 0 for none
	Why    string
}

// Mark has a request be served without a body, as one that the lint refused.
func (f Fault) Mark(h *fasthttp.RequestHeader) {
	h.SetContentLength(0)
	h.Del("Expect")
	h.SetHost("refused")
	h.SetMethod(RefusedMethod)
	h.SetRequestURI("/" + strconv.Itoa(f.Status) + "/" + f.Why)
	h.SetConnectionClose()
}

// Refusal returns what the lint said of a request; false when it let it pass.
func Refusal(h *fasthttp.RequestHeader) (Fault, bool) {
	if string(h.Method()) != RefusedMethod {
		return Fault{}, false
	}
	code, why, _ := bytes.Cut(bytes.TrimPrefix(h.RequestURI(), []byte{'/'}), []byte{'/'})
	status, _ := strconv.Atoi(string(code))
	return Fault{status, string(why)}, true
}

// Lint says what is wrong with a header, or else what body it announces.
func Lint(h *fasthttp.RequestHeader, maxBody int) (Fault, Awaited) {
	if f := lintLine(h); f.Status != 0 {
		return f, Awaited{}
	}
	var s seen
	raw := h.RawHeaders()
	for n := 0; len(raw) > 0; n++ {
		i := bytes.IndexByte(raw, '\n')
		if i < 1 || raw[i-1] != '\r' {
			return Fault{400, "a header line does not end in CRLF"}, Awaited{}
		}
		line := raw[:i-1]
		raw = raw[i+1:]
		if len(line) == 0 {
			if len(raw) > 0 {
				return Fault{400, "the header goes on after its end"}, Awaited{}
			}
			break
		}
		if n == maxLines {
			return Fault{431, "the header has too many lines"}, Awaited{}
		}
		if len(line) > maxName && bytes.IndexByte(line[:maxName+1], ':') < 0 {
			return Fault{431, "the name of a header is too long"}, Awaited{}
		}
		if why := s.line(line); why != "" {
			return Fault{400, why}, Awaited{}
		}
	}
	f := s.judge(h, maxBody)
	if f.Status != 0 {
		return f, Awaited{}
	}
	body := Awaited{Size: s.bytes, Expects: s.expect && h.IsHTTP11()}
	if s.encoding {
		body.Size = InChunks
	}
	return f, body
}

// Harmless reports whether a line of a trailer has one reading, and is none
// that frames, routes, or says who the client is.
func Harmless(line []byte) bool {
	var s seen
	if s.line(line) != "" || s != (seen{}) {
		return false
	}
	name, _, _ := bytes.Cut(line, []byte{':'})
	switch name = bytes.ToLower(name); string(name) {
	case "expect", "connection", "te", "trailer", "keep-alive", "cookie", "set-cookie", "forwarded", "x-real-ip", "location", "max-forwards", "range", "www-authenticate", "last-event-id":
		return false
	}
	for _, prefix := range []string{"content-", "proxy-", "mcp-", "x-forwarded"} {
		if bytes.HasPrefix(name, []byte(prefix)) {
			return false
		}
	}
	return true
}

// lintLine looks at the request line.
func lintLine(h *fasthttp.RequestHeader) Fault {
	if p := h.Protocol(); string(p) != "HTTP/1.1" && string(p) != "HTTP/1.0" {
		return Fault{505, "only HTTP/1.0 and HTTP/1.1 are supported"}
	}
	switch string(h.Method()) {
	case "GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH":
	default:
		return Fault{405, "this HTTP method is not supported"}
	}
	target := h.RequestURI()
	path, _, _ := bytes.Cut(target, []byte{'?'})
	if len(path) == 0 || path[0] != '/' {
		return Fault{400, "the request target is not a path"}
	}
	// No path of the edge needs an escape, so that there is nothing to decode
	// and each has one spelling.
	for i, c := range path {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '~':
		case c == '.':
			if path[i-1] == '/' && dots(path[i:]) {
				return Fault{400, "the path has dot segments"}
			}
		case c == '/':
			if i > 0 && path[i-1] == '/' {
				return Fault{400, "the path has an empty segment"}
			}
		default:
			return Fault{400, "the path has a byte that no path here has"}
		}
	}
	for _, c := range target[len(path):] {
		if c <= ' ' || c >= 0x7f || c == '#' || c == '\\' {
			return Fault{400, "the query has a byte that is not allowed in it"}
		}
	}
	return Fault{}
}

// dots reports whether a segment is . or .. and nothing else.
func dots(rest []byte) bool {
	segment, _, _ := bytes.Cut(rest, []byte{'/'})
	return string(segment) == "." || string(segment) == ".."
}

// seen is what has been seen of the headers that may be there once.
type seen struct {
	host, length, encoding, kind, origin, credential bool
	expect                                           bool
	session, version, method, name                   bool
	hostBad, lengthBad, encodingBad, expectBad       bool
	bytes                                            int // of the body, by Content-Length
}

// line looks at one header line and says what is wrong with it.
func (s *seen) line(line []byte) string {
	colon, kinds := len(line), byte(0)
	for i, c := range line {
		if c == ':' {
			colon = i
			break
		}
		kinds |= tokens[c]
	}
	switch {
	case line[0] == ' ' || line[0] == '\t':
		return "a header line is folded"
	case colon == 0 || colon == len(line):
		return "a header line has no name"
	}
	name, value := line[:colon], line[colon+1:]
	if kinds&barred != 0 {
		return "the name of a header has a byte that is not allowed in it"
	}
	if mcp.HasControl(value) {
		return "the value of a header has a control character"
	}
	if kinds&underscore != 0 && s.disguised(name) {
		return "a header pretends to be another"
	}
	return s.count(name, value)
}

// disguised reports whether a name with underscores would be one that frames,
// routes or carries a credential for a reader that takes _ for -.
func (s *seen) disguised(name []byte) bool {
	switch lower := bytes.ToLower(bytes.ReplaceAll(name, []byte{'_'}, []byte{'-'})); string(lower) {
	case "content-length", "transfer-encoding", "content-type", "content-encoding", "host", "connection", "proxy-authorization",
		"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-prefix", "x-real-ip", "last-event-id":
		return true
	default:
		return bytes.HasPrefix(lower, []byte("mcp-"))
	}
}

// trim takes the white space around a value away.
func trim(v []byte) []byte { return bytes.Trim(v, " \t") }

// count notes the headers that may be there once.
func (s *seen) count(name, value []byte) string {
	var before *bool
	switch fieldOf(name) {
	case hostField:
		before = &s.host
		s.hostBad = badHost(trim(value))
	case originField:
		before = &s.origin
	case expectField:
		s.expect = true
		s.expectBad = s.expectBad || !mcp.SameName(trim(value), "100-continue")
	case nameField:
		before = &s.name
	case methodField:
		before = &s.method
	case connectionField:
		if bytes.Contains(bytes.ToLower(value), []byte("authorization")) {
			return "Connection names a credential"
		}
	case kindField:
		before = &s.kind
	case credentialField:
		before = &s.credential
	case lengthField:
		before = &s.length
		value = trim(value)
		n, err := strconv.ParseUint(string(value), 10, 62)
		s.lengthBad = err != nil || len(value) > 1 && value[0] == '0' || value[0] == '+'
		s.bytes = int(min(n, 1<<31-1))
	case sessionField:
		before = &s.session
	case encodingField:
		before = &s.encoding
		s.encodingBad = !mcp.SameName(trim(value), "chunked")
	case versionField:
		before = &s.version
	}
	if before == nil {
		return ""
	}
	if *before {
		return "header " + string(name) + " is there twice"
	}
	*before = true
	return ""
}

// field is a header that the lint looks at, whatever the case of its name.
type field uint8

const (
	noField    field = iota // none that is known
	otherField              // one that may say anything
	hostField
	originField
	expectField
	nameField
	methodField
	connectionField
	kindField
	credentialField
	lengthField
	sessionField
	encodingField
	versionField
)

// longestField is the length of the longest name of a field.
const longestField = len("Mcp-Protocol-Version")

// fieldOf finds the field of a name. Most names come in the case that the
// standards write them in, or in lower case.
func fieldOf(name []byte) field {
	f := fieldNamed(name)
	if f != noField || len(name) > longestField {
		return f
	}
	var lower [longestField]byte
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return fieldNamed(lower[:len(name)])
}

func fieldNamed(name []byte) field {
	switch string(name) {
	case "Host", "host":
		return hostField
	case "Accept", "accept", "User-Agent", "user-agent", "Accept-Encoding", "accept-encoding", "Accept-Language", "accept-language":
		return otherField
	case "Origin", "origin":
		return originField
	case "Expect", "expect":
		return expectField
	case "Mcp-Name", "mcp-name":
		return nameField
	case "Mcp-Method", "mcp-method":
		return methodField
	case "Connection", "connection":
		return connectionField
	case "Content-Type", "content-type":
		return kindField
	case "Authorization", "authorization":
		return credentialField
	case "Content-Length", "content-length":
		return lengthField
	case "Mcp-Session-Id", "mcp-session-id":
		return sessionField
	case "Transfer-Encoding", "transfer-encoding":
		return encodingField
	case "Mcp-Protocol-Version", "mcp-protocol-version":
		return versionField
	}
	return noField
}

// judge says what the headers mean together.
func (s *seen) judge(h *fasthttp.RequestHeader, maxBody int) Fault {
	body := s.encoding || s.length && s.bytes > 0
	switch {
	case !s.host && string(h.Protocol()) == "HTTP/1.1", s.hostBad:
		return Fault{400, "Host is missing or malformed"}
	case s.lengthBad:
		return Fault{400, "Content-Length is malformed"}
	case s.encoding && (s.encodingBad || s.length || string(h.Protocol()) != "HTTP/1.1"):
		return Fault{400, "Transfer-Encoding is malformed, or there with Content-Length or under HTTP/1.0"}
	case s.expectBad:
		return Fault{417, "Expect can only be 100-continue"}
	case body && !h.IsPost():
		return Fault{400, "only a POST may have a body"}
	case s.bytes > maxBody:
		return Fault{413, "the body is larger than " + strconv.Itoa(maxBody) + " bytes"}
	}
	return Fault{}
}

// badHost reports whether a Host is not host or host:port (RFC 3986 §3.2.2):
// no user information, no path, no list.
func badHost(v []byte) bool {
	host, port, hasPort := v, []byte(nil), false
	if len(v) > 0 && v[0] == '[' {
		end := bytes.IndexByte(v, ']')
		if end < 0 {
			return true
		}
		host, port = v[1:end], v[end+1:]
		if hasPort = len(port) > 0; hasPort {
			if port[0] != ':' {
				return true
			}
			port = port[1:]
		}
		for _, c := range host {
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' || c == ':' || c == '.') {
				return true
			}
		}
	} else {
		if host, port, hasPort = bytes.Cut(v, []byte{':'}); len(host) == 0 {
			return true
		}
		for _, c := range host {
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '.' || c == '-' || c == '_') {
				return true
			}
		}
	}
	if !hasPort {
		return false
	}
	n, err := strconv.ParseUint(string(port), 10, 16)
	return err != nil || n == 0 || port[0] == '+'
}

// What a byte of a name is: allowed when it is not barred (RFC 9110 §5.6.2).
const (
	barred     = 1
	underscore = 2
)

// tokens tells of each byte what it is in a name. It never changes.
var tokens = func() (t [256]byte) {
	for c, ok := range mcp.NameBytes {
		if !ok {
			t[c] = barred
		}
	}
	t['_'] = underscore
	return t
}()
