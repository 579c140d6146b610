package main

import (
	"net/netip"
	"strconv"
	"strings"
)

// harmful says whether a text is a URL that no icon and no metadata has reason
// to name: one that runs code, or one that leads to where only the reader of it
// gets.
func harmful(s string) bool {
	s = plain(s)
	for _, scheme := range []string{"javascript:", "vbscript:", "data:text/", "data:application/", "file:"} {
		if hasFold(s, scheme) {
			return true
		}
	}
	return inward(s)
}

// plain takes away what readers of URLs do not see.
func plain(s string) string {
	if len(s) > 8<<10 {
		s = s[:8<<10] // longer ones begin no differently
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || unseen(r) {
			return -1
		}
		return r
	}, s)
}

// inward says whether a URL leads to this host or into a private network.
func inward(s string) bool {
	host, ok := hostOf(s)
	if !ok {
		return false
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" {
		return true
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return private(a)
	}
	if a, ok := legacyIPv4(host); ok {
		return private(a)
	}
	if !strings.Contains(host, ".") {
		return true // a name that only some network knows, such as localhost
	}
	for _, end := range []string{".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa", ".corp"} {
		if strings.HasSuffix(host, end) {
			return true
		}
	}
	return false
}

// hostOf is the host of a URL of HTTP or WebSocket, in lower case.
func hostOf(s string) (string, bool) {
	at := strings.IndexByte(s, ':')
	if at < 0 || at > 5 {
		return "", false
	}
	switch strings.ToLower(s[:at]) {
	case "http", "https", "ws", "wss":
	default:
		return "", false
	}
	rest := strings.TrimLeft(s[at+1:], `/\`) // browsers take any number of either
	if end := strings.IndexAny(rest, `/\?#`); end >= 0 {
		rest = rest[:end]
	}
	if user := strings.LastIndexByte(rest, '@'); user >= 0 {
		rest = rest[user+1:]
	}
	if strings.HasPrefix(rest, "[") {
		inner, _, _ := strings.Cut(rest[1:], "]")
		return strings.ToLower(inner), true
	}
	rest, _, _ = strings.Cut(rest, ":")
	return strings.ToLower(rest), true
}

func private(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	shared := netip.MustParsePrefix("100.64.0.0/10") // RFC 6598
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() ||
		shared.Contains(a) || a.Is4() && a.As4()[0] == 0
}

// legacyIPv4 reads the addresses that inet_aton reads: fewer parts than four,
// and parts in octal or hexadecimal.
func legacyIPv4(host string) (netip.Addr, bool) {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var n uint64
	for i, p := range parts {
		v, err := strconv.ParseUint(octal(p), 0, 32)
		last := i == len(parts)-1
		if err != nil || strings.ContainsRune(p, '_') || !last && v > 255 {
			return netip.Addr{}, false
		}
		if last {
			n |= v
		} else {
			n |= v << (24 - 8*i)
		}
	}
	if n > 1<<32-1 {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), true
}

// octal writes a part with a leading zero as strconv reads it in base 8.
func octal(p string) string {
	if len(p) > 1 && p[0] == '0' && p[1] >= '0' && p[1] <= '9' {
		return "0o" + p[1:]
	}
	return p
}

// pictures puts a mark into the place of URLs of images, in Markdown and HTML,
// that carry data away or lead inwards: whoever shows the text would fetch them.
func pictures(s string) (string, bool) {
	var out strings.Builder
	done, searched := 0, 0
	for i := 0; i < len(s); i++ {
		var from int
		switch {
		case s[i] == '!' && i+1 < len(s) && s[i+1] == '[':
			start, until := max(i, searched), min(len(s), i+512)
			at := strings.Index(s[start:max(start, until)], "](")
			if at < 0 {
				searched = max(searched, until-1) // nobody looks there again
				continue
			}
			from = start + at + 2
		case s[i] == '<' && hasFold(s[i:], "<img"):
			window := s[i:min(len(s), i+256)]
			if end := strings.IndexByte(window, '>'); end >= 0 {
				window = window[:end]
			}
			at := strings.Index(strings.ToLower(window), "src=")
			if at < 0 {
				continue
			}
			from = i + at + 4
		default:
			continue
		}
		for from < len(s) && (s[from] == '<' || s[from] == '"' || s[from] == '\'' || s[from] == ' ') {
			from++
		}
		if !fetched(s[from:min(len(s), from+24)]) {
			continue
		}
		end := ofURL(s, from, min(len(s), from+256))
		if carries(s[from:end]) {
			end = ofURL(s, end, len(s))
			out.WriteString(s[done:from])
			out.WriteString("redacted:")
			done = end
			i = end - 1
		}
	}
	if done == 0 {
		return s, false
	}
	out.WriteString(s[done:])
	return out.String(), true
}

// fetched says whether the beginning of a URL makes it one to look at: others
// are paths, or nothing.
func fetched(head string) bool {
	head = plain(head)
	for _, scheme := range []string{"http", "//", `\\`, "ws", "javascript:", "vbscript:", "data:text/", "data:applicat", "file:"} {
		if hasFold(head, scheme) {
			return true
		}
	}
	return false
}

// ofURL is where a URL ends, at most.
func ofURL(s string, from, most int) int {
	for from < most {
		switch s[from] {
		case ' ', '\t', '\r', '\n', ')', '>', '"', '\'':
			return from
		}
		from++
	}
	return from
}

// carries says whether a URL of an image leads inwards, or has room for data
// that is carried away, to a host that is not among those of the configuration.
func carries(url string) bool {
	if p := plain(url); strings.HasPrefix(p, "//") || strings.HasPrefix(p, `\\`) {
		url = "https:" + p // the scheme of the page that shows it
	}
	host, ok := hostOf(plain(url))
	if !ok {
		return harmful(url)
	}
	for _, h := range hosts {
		if host == h || strings.HasSuffix(host, "."+h) {
			return false
		}
	}
	return inward(plain(url)) || strings.ContainsAny(url, "?#") || len(url) > 200
}
