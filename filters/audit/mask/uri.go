package mask

import (
	"net/url"
	"strings"
)

// links reports whether a string has a URI in it, as far as there is room to
// show it. Its slashes may be escaped.
func links(text []byte, room int) bool {
	text = text[:min(len(text), 8*room+256)]
	for i, c := range text {
		switch {
		case c == '"' && (i == 0 || text[i-1] != '\\'):
			return false
		case c == ':' && i+1 < len(text) && (text[i+1] == '/' || text[i+1] == '\\'):
			return true
		}
	}
	return false
}

// maxNested is how many URIs inside of each other are looked into.
const maxNested = 4

// URI takes the secrets out of the URIs of a text: the userinfo of each, and
// the values of query members with the names of secrets.
func URI(s string) string { return uris(s, 0) }

func uris(s string, level int) string {
	before, after, found := strings.Cut(s, "://")
	switch {
	case !found:
		return s
	case level > maxNested:
		return Redacted
	}
	var out strings.Builder
	for found {
		out.WriteString(before + "://")
		end := strings.IndexAny(after, " \t\r\n\"'<>`")
		if end < 0 {
			end = len(after)
		}
		out.WriteString(link(after[:end], level))
		before, after, found = strings.Cut(after[end:], "://")
	}
	out.WriteString(before)
	return out.String()
}

// link is what stands behind :// of a URI, without secrets.
func link(s string, level int) string {
	end := strings.IndexAny(s, "/?#")
	if end < 0 {
		end = len(s)
	}
	host, rest := s[:end], s[end:]
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = Redacted + host[at:]
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	path, query, hasQuery := strings.Cut(rest, "?")
	s = host + uris(path, level+1)
	if hasQuery {
		s += "?" + members(query, level)
	}
	if hasFragment {
		s += "#" + members(fragment, level)
	}
	return s
}

// members is a query, or a fragment that is written like one, without secrets.
func members(query string, level int) string {
	parts := strings.Split(query, "&")
	for i, p := range parts {
		name, value, is := strings.Cut(p, "=")
		if said, err := url.QueryUnescape(name); is && (err != nil || Name(said)) {
			parts[i] = name + "=" + Redacted
		} else if is {
			parts[i] = name + "=" + uris(value, level+1)
		} else {
			parts[i] = uris(p, level+1)
		}
	}
	return strings.Join(parts, "&")
}
