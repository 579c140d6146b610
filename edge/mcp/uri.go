package mcp

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// MaxURI is how long a URI may be to be judged, in bytes, and maxReadings how many
// readings it may have besides its canonical form.
const (
	MaxURI      = 8 << 10
	maxReadings = 64
)

// Readings are what a URI is to those who may come to read it.
type Readings struct {
	// Canonical is its normal form (RFC 3986 §6.2.2 and §5.2.4): scheme and host
	// in lower case, no port that the scheme implies, escapes only where they are
	// needed and in upper case, no dot segments. file:/x and file://localhost/x
	// are file:///x. What has no scheme, as the names that some servers give,
	// stays as it is.
	Canonical string

	// Others are what some reader takes it for besides: without a fragment, with
	// its escapes undone, and so on. What is forbidden under one of these names is
	// forbidden under them all.
	Others []string
}

// ReadURI returns the readings of a URI. It returns false for one that leads to
// different places by RFC 3986, the path functions of Go and Python, the URL
// standard of WHATWG or a file system, and so cannot be judged:
//
//   - text that is not UTF-8, escaped or not; control, formatting and other
//     invisible characters; backslashes; what becomes a dot, a slash, a backslash
//     or a percent sign when it is normalised (NFKC); white space at the ends
//   - escapes that are none; in paths escaped slashes, and escapes of escapes
//   - dot segments with escapes or parameters (%2e%2e, "..;"), names made of dots
//     and spaces, dot segments in queries, fragments, hosts and what has no path
//   - empty segments in paths, but for the last
//   - hosts that are written in more than one way: with escapes, numbers that are
//     no plain address, a dot at the end; more than one @; http, https, ws, wss and
//     ftp without // and a host
//   - of files: no path from the root, a port, names that end in a dot or a space,
//     streams such as ::$DATA, a drive anywhere but in front, with a bar, or left by
//     a dot segment
//   - what is another URI once its escapes are undone, or that has more readings
//     than anybody can judge
func ReadURI(s string) (r Readings, ok bool) {
	if len(s) > MaxURI || strings.TrimSpace(s) != s || !plainText(s) || strings.IndexByte(s, '\\') >= 0 {
		return r, false
	}
	if at := splitURI(s).authority; strings.Contains(at[strings.LastIndexByte(at, '@')+1:], "%") {
		return r, false
	}
	if raw := splitURI(s); raw.scheme == "file" && raw.escapedDrive() {
		return r, false
	}
	s, ok = unescapeUnreserved(s)
	decoded := unescapeAll(s)
	if !ok || decoded != s && !plainText(decoded) {
		return r, false
	}
	u, v := splitURI(s), splitURI(decoded)
	if !u.sound() || decoded != s && !u.stays(&v) {
		return r, false
	}
	if folded := norm.NFKC.String(decoded); folded != decoded {
		// A few characters become eleven times as long.
		if w := splitURI(folded); len(folded) > 2*len(decoded) || w.scheme != u.scheme || !w.sound() {
			return r, false
		}
	}
	// What is sound has no dot segments with escapes: other dots need none.
	r.Canonical = strings.ReplaceAll(u.canonical(), "%2E", ".")
	add := func(one string) {
		if one != s && one != r.Canonical && !slices.Contains(r.Others, one) {
			r.Others = append(r.Others, one)
		}
	}
	// In each form some undo escapes, some escape what needs it, some normalise.
	written := func(one string) {
		add(one)
		if isPlain(one) {
			return
		}
		decoded := unescapeAll(one)
		add(decoded)
		add(escapeAll(one))
		for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC} {
			if !form.IsNormalString(decoded) {
				add(form.String(decoded))
			}
		}
	}
	written(s)
	for _, form := range []uri{splitURI(r.Canonical), splitURI(v.canonical())} { // some undo escapes before they look for a query
		for _, bare := range form.bare() {
			if written(strings.ReplaceAll(bare.canonical(), "%2E", ".")); len(r.Others) > maxReadings {
				return r, false
			}
		}
	}
	return r, true
}

// stays reports whether a URI whose escapes have been undone is sound, too, and
// leads to the same place: where another path begins or ends in it, there are no
// dot segments that it could leave or enter by.
func (u *uri) stays(decoded *uri) bool {
	switch {
	case decoded.scheme != u.scheme || !decoded.sound():
		return false
	case decoded.path == unescapeAll(u.path) && decoded.authority == unescapeAll(u.authority):
		return true
	}
	return !dotted(strings.NewReplacer("?", "/", "#", "/").Replace(decoded.rest))
}

// uri is a URI taken apart. Its parts have their delimiters.
type uri struct {
	scheme          string // in lower case; "" for what has none
	authority       string // with the slashes
	path            string
	query, fragment string
	rest            string // behind the scheme
}

func splitURI(s string) (u uri) {
	scheme, rest, found := strings.Cut(s, ":")
	if !found || !isScheme(scheme) {
		return uri{path: s, rest: s}
	}
	u = uri{scheme: lowerASCII(scheme), rest: rest}
	rest, u.fragment = cutBefore(rest, "#")
	rest, u.query = cutBefore(rest, "?")
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		host, below := cutBefore(after, "/")
		u.authority, u.path = "//"+host, below
	} else {
		u.path = rest
	}
	return u
}

// special reports whether a scheme is one whose URIs the URL standard mends in
// ways of their own.
func special(scheme string) bool {
	switch scheme {
	case "http", "https", "ws", "wss", "ftp":
		return true
	}
	return false
}

// sound reports whether all readers take the URI for the same place.
func (u *uri) sound() bool {
	rooted := strings.HasPrefix(u.path, "/") || u.path == "" && u.authority != "" && u.scheme != "file"
	switch {
	case u.scheme == "":
		return !strings.Contains(u.path, "//") && !dotted(u.rest)
	case special(u.scheme) && (u.authority == "" || u.authority == "//"), u.scheme == "file" && !rooted:
		return false
	case u.authority != "" && !u.soundHost():
		return false
	case !rooted:
		return !dotted(strings.ReplaceAll(u.rest, ":", "/"))
	}
	return u.soundPath() && !dotted(u.query+u.fragment)
}

// soundPath judges a path from the root.
func (u *uri) soundPath() bool {
	if u.path == "" {
		return true
	}
	segments, depth, drive := strings.Split(u.path[1:], "/"), 0, false
	for i, s := range segments {
		d := unescapeAll(s)
		name, _, _ := strings.Cut(d, ";")
		switch {
		case s == ".":
			continue
		case s == "..":
			if drive && depth == 1 {
				return false // some stay on it
			}
			depth = max(0, depth-1)
			continue
		case s == "" && i < len(segments)-1:
			return false
		case strings.ContainsAny(d, `/\`), d != unescapeAll(d):
			return false
		case d != "" && strings.Trim(name, ". ") == "":
			return false
		}
		if u.scheme == "file" {
			if strings.HasSuffix(d, ".") || strings.HasSuffix(d, " ") || strings.Contains(d, ":$") {
				return false
			}
			if depth == 0 {
				drive = isDrive(s)
			}
			if (namesDrive(d) || namesDrive(s)) && (i > 0 || !drive) { // the last digit of an escape is a letter, too
				return false
			}
		}
		depth++
	}
	return true
}

// isDrive reports whether the name of a file is that of a drive of Windows.
func isDrive(name string) bool { return len(name) == 2 && isLetter(name[0]) && name[1] == ':' }

// namesDrive reports whether the name of a file has the name of a drive in it,
// before which some readers leave everything away.
func namesDrive(name string) bool {
	for i := 1; i < len(name); i++ {
		if (name[i] == ':' || name[i] == '|') && isLetter(name[i-1]) {
			return true
		}
	}
	return false
}

// escapedDrive reports whether a path that is read before its escapes are undone
// has the name of a drive in it that is no more than the last digit of an escape,
// as in %2D:.
func (u *uri) escapedDrive() bool {
	for at := strings.IndexByte(u.path, '%'); at >= 0 && at+3 < len(u.path); {
		if namesDrive(u.path[at+2 : at+4]) {
			return true
		}
		next := strings.IndexByte(u.path[at+1:], '%')
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return false
}

// soundHost judges an authority.
func (u *uri) soundHost() bool {
	user, host, at := strings.Cut(u.authority[2:], "@")
	if !at {
		user, host = "", u.authority[2:]
	}
	switch {
	case strings.ContainsAny(unescapeAll(user), `/\?#@%`):
		return false
	case strings.ContainsAny(host, "{}"):
		return !strings.ContainsAny(host, "@%") // of a template: what it stands for is judged when it is asked for
	case strings.ContainsAny(host, "@% "):
		return false
	case host == "" && !at:
		return true
	}
	name, port, hasPort := host, "", false
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return false
		}
		a, err := netip.ParseAddr(host[1:end])
		if err != nil || !a.Is6() || a.Zone() != "" || a.String() != lowerASCII(host[1:end]) {
			return false
		}
		if name = ""; end+1 < len(host) {
			if host[end+1] != ':' {
				return false
			}
			port, hasPort = host[end+2:], true
		}
	} else {
		name, port, hasPort = strings.Cut(host, ":")
		if strings.ContainsAny(name, "[]") || name == "." || name == ".." {
			return false
		}
	}
	if hasPort && (u.scheme == "file" || strings.Trim(port, "0123456789") != "" || len(port) > 5 || len(port) > 1 && port[0] == '0' || len(port) == 5 && port > "65535") {
		return false
	}
	if u.scheme != "file" && !special(u.scheme) || name == "" {
		return name != "" || strings.HasPrefix(host, "[") || !special(u.scheme) && u.scheme != "file"
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.ContainsFunc(label, func(c rune) bool {
			return !(c < 0x80 && (word(byte(c)) || c == '-'))
		}) {
			return false
		}
	}
	last := lowerASCII(name[strings.LastIndexByte(name, '.')+1:])
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "" {
		a, err := netip.ParseAddr(name)
		return err == nil && a.Is4()
	}
	return true
}

// canonical is the normal form.
func (u *uri) canonical() string {
	if u.scheme == "" {
		return u.path
	}
	authority, path := u.authority, u.path
	if authority != "" {
		user, host := "", authority[2:]
		if at := strings.IndexByte(host, '@'); at >= 0 {
			user, host = host[:at+1], host[at+1:]
		}
		host = lowerASCII(host)
		if port := impliedPort(u.scheme); port != "" {
			host = strings.TrimSuffix(host, port)
		}
		authority = "//" + user + strings.TrimSuffix(host, ":")
	}
	if u.scheme == "file" && (authority == "" || authority == "//localhost") {
		authority = "//"
	}
	if strings.HasPrefix(path, "/") {
		path = withoutDots(path)
	}
	return u.scheme + ":" + authority + path + u.query + u.fragment
}

// bare returns the URI, and the URI without whatever some readers leave away: each
// of it and all that it can be together.
func (u *uri) bare() []uri {
	all := []uri{*u}
	less := func(leave func(*uri)) {
		for _, one := range all {
			before := one
			if leave(&one); one != before && len(all) <= maxReadings {
				all = append(all, one)
			}
		}
	}
	if u.scheme == "file" {
		whole := len(all)
		for _, one := range all[:whole] {
			if host := one.authority; len(host) > 2 { // the host for the first name of the path
				one.authority, one.path = "//", host[1:]+one.path
				all = append(all, one)
			}
		}
		less(func(u *uri) { u.authority = "//" })
	}
	less(func(u *uri) { u.fragment = "" })
	if u.scheme == "file" {
		less(func(u *uri) { u.query, u.fragment = "", "" })
	}
	if special(u.scheme) {
		less(func(u *uri) {
			if at := strings.IndexByte(u.authority, '@'); at >= 0 {
				u.authority = "//" + u.authority[at+1:]
			}
		})
	}
	if strings.HasPrefix(u.path, "/") {
		less(func(u *uri) { u.path = withoutParameters(u.path) })
		less(func(u *uri) {
			if len(u.path) > 1 {
				u.path = strings.TrimSuffix(u.path, "/")
			}
		})
	}
	return all
}

// withoutParameters leaves away what stands behind semicolons in each segment.
func withoutParameters(path string) string {
	if !strings.Contains(path, ";") {
		return path
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// dotted reports whether a reader that takes text for a path, be it only after
// it has undone its escapes once or twice, finds a dot segment in it, or whether
// there are escapes left even then.
func dotted(text string) bool {
	for range 3 {
		for s := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '/' || r == '\\' }) {
			name, _, _ := strings.Cut(s, ";")
			if name != "" && strings.Trim(name, ". ") == "" && strings.Contains(name, ".") {
				return true
			}
		}
		decoded := unescapeAll(text)
		if decoded == text {
			return false
		}
		text = decoded
	}
	return true
}

func cutBefore(s, mark string) (before, after string) {
	if i := strings.Index(s, mark); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

func isScheme(s string) bool {
	for i := range len(s) {
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
	case "ftp":
		return ":21"
	}
	return ""
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

// Composed returns a text in Unicode's normal form C.
func Composed(text string) string { return norm.NFC.String(text) }
