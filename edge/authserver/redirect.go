package authserver

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxRedirect is how many bytes a redirect URI has at most.
const maxRedirect = 512

// editors are private-use schemes without a period that programs are known to register.
var editors = []string{"cursor", "vscode", "vscode-insiders", "windsurf", "zed"}

// loopbacks are the hosts of a program on the user's own computer (RFC 8252 §7.3, and
// localhost, which many programs write).
var loopbacks = []string{"127.0.0.1", "[::1]", "localhost"}

// redirectURI is a redirect URI that may be registered.
type redirectURI struct {
	text     string
	loopback string // the host, where it is one of loopbacks
	before   string // of a loopback one: what comes before the port
	after    string // and behind it
	host     string // that users are shown; "" for a program on their computer
}

// parseRedirect reads a redirect URI; false for one that may not be registered (RFC 9700 §4.1,
// RFC 8252 §7).
func parseRedirect(text string) (redirectURI, bool) {
	r := redirectURI{text: text}
	// 1. Nothing that two parsers read in two ways.
	if text == "" || len(text) > maxRedirect || strings.ContainsAny(text, "\\#*\"'<>`{}|^") {
		return r, false
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return r, false
		}
	}
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok || !isScheme(scheme) {
		return r, false
	}
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Scheme != scheme {
		return r, false
	}

	// 2. A private-use scheme, whose programs are the user's own.
	if scheme != "https" && scheme != "http" {
		if !strings.Contains(scheme, ".") && !slices.Contains(editors, scheme) {
			return r, false
		}
		authority, _, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
		return r, rest != "" && !strings.Contains(authority, "@")
	}

	// 3. A web server, or this computer's.
	after, ok := strings.CutPrefix(rest, "//")
	end := strings.IndexAny(after, "/?")
	if end < 0 {
		end = len(after)
	}
	authority := after[:end]
	if !ok || authority == "" || u.Opaque != "" || strings.ContainsAny(authority, "@%") || authority != strings.ToLower(authority) || dotted(u.EscapedPath()) {
		return r, false
	}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if host == "" || strings.HasPrefix(host, ".") || strings.HasSuffix(authority, ":") {
		return r, false
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return r, false
		}
	}
	if slices.Contains(loopbacks, host) {
		r.loopback, r.before, r.after = host, scheme+"://"+host, after[end:]
		return r, true
	}
	r.host = host
	return r, scheme == "https"
}

// isScheme reports whether text is a scheme in lower case (RFC 3986 §3.1).
func isScheme(text string) bool {
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z'
		if !letter && (i == 0 || !('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return false
		}
	}
	return text != ""
}

// dotted reports whether a path has a segment that stands for another place, plain or encoded.
func dotted(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		switch strings.ReplaceAll(strings.ToLower(segment), "%2e", ".") {
		case ".", "..":
			return true
		}
	}
	lower := strings.ToLower(path)
	return strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c")
}

// matches reports whether a redirect URI that came with a request is one of those that are
// registered: byte for byte, but for the port of a program on the user's computer (RFC 8252
// §7.3).
func matches(registered []string, asked string) (redirectURI, bool) {
	a, ok := parseRedirect(asked)
	if !ok {
		return a, false
	}
	for _, text := range registered {
		if text == asked {
			return a, true
		}
		if a.loopback == "" {
			continue
		}
		if r, ok := parseRedirect(text); ok && r.before == a.before && r.after == a.after {
			return a, true
		}
	}
	return a, false
}

// with adds parameters to a redirect URI, which keeps every byte it has (RFC 6749 §4.1.2).
func (r redirectURI) with(query url.Values) string {
	switch {
	case !strings.Contains(r.text, "?"):
		return r.text + "?" + query.Encode()
	case strings.HasSuffix(r.text, "?"), strings.HasSuffix(r.text, "&"):
		return r.text + query.Encode()
	}
	return r.text + "&" + query.Encode()
}
