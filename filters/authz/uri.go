package authz

import (
	"strings"

	"github.com/weir-edge/weir/edge"
)

// bothWays judges what is asked as it is written, and the URI of a resource
// once more in its canonical form where that is another. What a message says is
// what a backend gets, so neither form may be forbidden, and a URI that the edge
// and a backend could read in different ways is denied.
func bothWays(a *ask, judge func(*ask) *Explanation) *Explanation {
	if a.thing.Thing != edge.Resource && a.thing.Thing != edge.Template {
		return judge(a)
	}
	canonical, ok := canonicalURI(a.thing.Name)
	if !ok {
		return deny(ReasonURI)
	}
	e := judge(a)
	if !e.Allowed || canonical == a.thing.Name {
		return e
	}
	other := *a
	other.thing.Name = canonical
	if again := judge(&other); !again.Allowed {
		return again
	}
	return e
}

// canonicalURI returns the normal form of a URI (RFC 3986 §6.2.2 and §5.2.4):
// scheme and host in lower case, no port that the scheme implies, escapes only
// where they are needed and in upper case, no dot segments. What is no URI at all, as the
// names that some servers give, stays as it is. It returns false for what is
// read differently by different readers: control characters, backslashes,
// escapes that are none, and dot segments made of escaped slashes.
func canonicalURI(s string) (string, bool) {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f || s[i] == '\\' {
			return "", false
		}
	}
	s, ok := unescapeUnreserved(s)
	if !ok {
		return "", false
	}
	scheme, rest, found := strings.Cut(s, ":")
	if !found || !isScheme(scheme) {
		return s, !hiddenDots(s)
	}
	scheme = lowerASCII(scheme)
	rest, fragment, _ := cutBefore(rest, "#")
	rest, query, _ := cutBefore(rest, "?")
	authority, path := "", rest
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		host, below, _ := cutBefore(after, "/")
		user, at := "", strings.LastIndexByte(host, '@')
		if at >= 0 {
			user, host = host[:at+1], host[at+1:]
		}
		host = lowerASCII(host)
		if port := impliedPort(scheme); port != "" {
			host = strings.TrimSuffix(host, port)
		}
		authority, path = "//"+user+strings.TrimSuffix(host, ":"), below
	}
	if strings.HasPrefix(path, "/") {
		path = withoutDots(path)
	}
	if hiddenDots(path) {
		return "", false
	}
	return scheme + ":" + authority + path + query + fragment, true
}

func cutBefore(s, mark string) (before, after string, found bool) {
	if i := strings.Index(s, mark); i >= 0 {
		return s[:i], s[i:], true
	}
	return s, "", false
}

func isScheme(s string) bool {
	for i := 0; i < len(s); i++ {
		letter := 'a' <= s[i]|0x20 && s[i]|0x20 <= 'z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789+-.", rune(s[i]))) {
			return false
		}
	}
	return s != ""
}

func impliedPort(scheme string) string {
	switch scheme {
	case "http", "ws":
		return ":80"
	case "https", "wss":
		return ":443"
	}
	return ""
}

func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}

// unescapeUnreserved decodes the escapes of what needs none, and writes the
// others in upper case.
func unescapeUnreserved(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) || hexDigit(s[i+1]) < 0 || hexDigit(s[i+2]) < 0 {
			return "", false
		}
		c := byte(hexDigit(s[i+1])<<4 | hexDigit(s[i+2]))
		switch {
		case c < ' ' || c == 0x7f:
			return "", false
		case word(c) || c == '-' || c == '.' || c == '~':
			b.WriteByte(c)
		default:
			b.WriteString(strings.ToUpper(s[i : i+3]))
		}
		i += 2
	}
	return b.String(), true
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// withoutDots removes dot segments from an absolute path (RFC 3986 §5.2.4).
func withoutDots(path string) string {
	if !strings.Contains(path, "/.") {
		return path
	}
	var out []string
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case s == ".." && len(out) > 0:
			out = out[:len(out)-1]
			fallthrough
		case s == "." || s == "..":
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return "/" + strings.Join(out, "/")
}

// hiddenDots reports whether a reader that decodes a path before it splits it,
// or decodes it twice, would find dot segments in it.
func hiddenDots(path string) bool {
	if !strings.Contains(path, "..") && !strings.Contains(path, "%") {
		return false
	}
	for range 3 {
		for _, s := range strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '\\' }) {
			if s == ".." || s == "." {
				return true
			}
		}
		decoded := unescapeAll(path)
		if decoded == path {
			return false
		}
		path = decoded
	}
	return false
}

func unescapeAll(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && hexDigit(s[i+1]) >= 0 && hexDigit(s[i+2]) >= 0 {
			b.WriteByte(byte(hexDigit(s[i+1])<<4 | hexDigit(s[i+2])))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
