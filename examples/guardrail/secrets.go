package main

import "strings"

// hide puts marks into the place of all secrets of a text.
func hide(s string) (string, bool) {
	var out strings.Builder
	done := 0
	for i := 0; i < len(s); {
		switch s[i] { // what secrets begin with
		case 'A', 'g', 's', 'x', 'e', '-':
		default:
			i++
			continue
		}
		name, end := secretAt(s, i)
		if name == "" {
			i = max(end, i+1)
			continue
		}
		out.WriteString(s[done:i])
		out.WriteString("[redacted: " + name + "]")
		i, done = end, end
	}
	if done == 0 {
		return s, false
	}
	out.WriteString(s[done:])
	return out.String(), true
}

// token is how a secret looks that begins with letters of its own: what follows
// them, of which there is at least so much.
type token struct {
	prefix, name string
	least, most  int
	has          func(byte) bool
}

// endless is the length of a secret that goes on as far as its alphabet does.
const endless = 1 << 30

var tokens = map[byte][]token{
	'A': {{"AKIA", "AWS access key", 16, 16, upper}, {"ASIA", "AWS access key", 16, 16, upper}, {"AIza", "Google API key", 35, 35, dashed}},
	'g': {
		{"ghp_", "GitHub token", 36, endless, alnum}, {"gho_", "GitHub token", 36, endless, alnum}, {"ghu_", "GitHub token", 36, endless, alnum},
		{"ghs_", "GitHub token", 36, endless, alnum}, {"ghr_", "GitHub token", 36, endless, alnum},
		{"github_pat_", "GitHub token", 40, endless, dashed}, {"glpat-", "GitLab token", 20, endless, dashed},
	},
	's': {{"sk_live_", "Stripe key", 24, endless, alnum}, {"sk-ant-", "Anthropic key", 40, endless, dashed}},
	'x': {{"xoxb-", "Slack token", 24, endless, dashed}, {"xoxp-", "Slack token", 24, endless, dashed}, {"xoxa-", "Slack token", 24, endless, dashed}},
}

// secretAt says what secret begins at i and where it ends. Without one it says
// how far nothing begins, so that no byte is looked at more than a few times.
func secretAt(s string, i int) (name string, end int) {
	c := s[i]
	if c == '-' {
		return keyAt(s, i)
	}
	if i > 0 && alnum(s[i-1]) {
		return "", i + 1 // within a word
	}
	if c == 'e' && strings.HasPrefix(s[i:], "eyJ") && (i == 0 || !dashed(s[i-1])) {
		return jwtAt(s, i)
	}
	for _, t := range tokens[c] {
		if !strings.HasPrefix(s[i:], t.prefix) {
			continue
		}
		start := i + len(t.prefix)
		end := start
		for end < len(s) && end-start <= t.most && t.has(s[end]) {
			end++
		}
		if end-start >= t.least && end-start <= t.most && (end == len(s) || !alnum(s[end])) {
			return t.name, end
		}
	}
	return "", i + 1
}

// keyAt finds a private key in PEM (RFC 7468), to its end or that of the text.
func keyAt(s string, i int) (string, int) {
	const begin, last = "-----BEGIN ", "PRIVATE KEY-----"
	if !strings.HasPrefix(s[i:], begin) {
		return "", i + 1
	}
	label := s[i+len(begin) : min(len(s), i+len(begin)+48)]
	at := strings.Index(label, "PRIVATE KEY")
	if at < 0 || strings.ContainsAny(label[:at], "-\r\n") {
		return "", i + len(begin)
	}
	from := i + len(begin) + at
	if close := strings.Index(s[from:], "-----END "); close >= 0 {
		from += close
		if n := strings.Index(s[from:min(len(s), from+72)], last); n >= 0 {
			return "private key", from + n + len(last)
		}
	}
	return "private key", len(s)
}

// jwtAt finds a signed JSON Web Token (RFC 7515, compact): three parts, the
// first two of them JSON objects.
func jwtAt(s string, i int) (string, int) {
	end := i
	for part := range 3 {
		start := end
		for end < len(s) && dashed(s[end]) {
			end++
		}
		if part < 2 && (end-start < 10 || !strings.HasPrefix(s[start:end], "eyJ") || end == len(s) || s[end] != '.') {
			return "", end
		}
		if part == 2 {
			return "JSON Web Token", end
		}
		end++
	}
	return "", end
}

func upper(c byte) bool { return c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
func alnum(c byte) bool { return upper(c) || c >= 'a' && c <= 'z' }

// dashed is the alphabet of base64url.
func dashed(c byte) bool { return alnum(c) || c == '-' || c == '_' }
