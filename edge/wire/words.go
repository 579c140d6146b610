package wire

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"html"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge/mcp"
)

const (
	maxWords = 200     // characters that are told of what a backend says when it refuses
	MaxLook  = 4 << 10 // bytes of a body that are looked at for them
)

// Words returns what a backend says when it refuses, for people: the first line
// of its text that says something, the message of a JSON-RPC error, or the title
// of a web page, at most 200 characters without any that would not be seen. What
// of it is part of one of the secrets is masked.
func Words(body []byte, secrets ...string) string {
	body = body[:min(len(body), MaxLook)]
	text := ""
	if m, err := mcp.Decode(body); err == nil && m.Kind == mcp.Failure {
		text = m.Text("message")
	} else {
		text = title(body)
	}
	for line := range strings.Lines(text) {
		if line = seen(line); line != "" {
			return cut(masked(line, secrets))
		}
	}
	return ""
}

// title is the text of a body; of a web page no more than its title.
func title(body []byte) string {
	text := strings.ToValidUTF8(string(body), "")
	lower := strings.Map(func(r rune) rune { // of a tag's letters alone: what stands where must not move
		if 'A' <= r && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, text)
	if !strings.Contains(lower, "<html") && !strings.HasPrefix(strings.TrimSpace(lower), "<!doctype") {
		return text
	}
	from, to := strings.Index(lower, "<title>"), strings.Index(lower, "</title>")
	if from < 0 || to < from {
		return ""
	}
	return html.UnescapeString(strings.TrimSpace(text[from+len("<title>") : to]))
}

// seen is a line without the characters that nobody sees, or that change how
// others are shown.
func seen(line string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\u2028', r == '\u2029', unicode.Is(unicode.Zs, r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, line))
}

func cut(line string) string {
	if utf8.RuneCountInString(line) <= maxWords {
		return line
	}
	return string([]rune(line)[:maxWords-1]) + "…"
}

// together is how many characters in a row a text may share with a secret.
const together = 6

// mask stands where a part of a secret was.
const mask = "REDACTED"

// masked takes out what a text has in common with secrets, whichever case it is
// in: any longer part of them, and short ones as a whole.
func masked(text string, secrets []string) string {
	flat := make([]byte, 0, len(text)) // text in one case
	from := make([]int, 0, len(text))  // where the character of each byte of that begins in text
	for i, r := range text {
		for flat = utf8.AppendRune(flat, fold(r)); len(from) < len(flat); {
			from = append(from, i)
		}
	}
	hide := make([]bool, len(text)) // at the beginning of each character
	// A secret may be long, and what is said is not.
	var places [together + 1]map[string][]int
	for _, secret := range secrets {
		secret = strings.Map(fold, seen(strings.ToValidUTF8(secret, ""))) // as text is
		n := min(len(secret), together)
		if n < 2 {
			continue
		}
		if places[n] == nil {
			places[n] = placesOf(flat, n)
		}
		for i := 0; i+n <= len(secret); i++ {
			part := secret[i : i+n]
			for _, place := range places[n][part] {
				for _, at := range from[place : place+n] {
					hide[at] = true
				}
			}
			delete(places[n], part) // once is enough
		}
	}
	var out strings.Builder
	hidden := false
	for i, r := range text {
		switch {
		case !hide[i]:
			out.WriteRune(r)
		case !hidden:
			out.WriteString(mask)
		}
		hidden = hide[i]
	}
	return out.String()
}

// placesOf returns where each n bytes of a text are.
func placesOf(text []byte, n int) map[string][]int {
	all := make(map[string][]int, len(text))
	for i := 0; i+n <= len(text); i++ {
		part := string(text[i : i+n])
		all[part] = append(all[part], i)
	}
	return all
}

// fold returns one character for all that are the same but for their case. What
// it returns may be longer or shorter than r.
func fold(r rune) rune {
	r = unicode.ToLower(unicode.ToUpper(r))
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	return least
}

// SecretsOf returns what of a header's value must not be told: the value, what
// comes after its scheme, the parts of what that stands for in base64, and each
// of these as others may spell it.
func SecretsOf(value string) []string {
	all := []string{value}
	if scheme, rest, ok := strings.Cut(value, " "); ok && !strings.ContainsAny(scheme, "=;,:") {
		all = []string{strings.TrimSpace(rest)}
		for _, one := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding} {
			if plain, err := one.DecodeString(all[0]); err == nil && strings.EqualFold(scheme, "basic") {
				_, password, _ := strings.Cut(string(plain), ":")
				all = append(all, password)
			}
		}
	}
	for _, one := range all {
		if escaped := url.QueryEscape(one); escaped != one {
			all = append(all, escaped)
		}
		all = append(all, encoded(one)...)
	}
	return all
}

// encoded is a secret in hex, and in base64 wherever it begins in what was encoded; nothing of
// one that is too short to be known by a part.
func encoded(secret string) []string {
	if len(secret) < together {
		return nil
	}
	all := []string{hex.EncodeToString([]byte(secret))}
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			// Six bits are a character: those that hold bits of others are left out.
			text := alphabet.EncodeToString(append(make([]byte, before, before+len(secret)), secret...))
			all = append(all, text[(8*before+5)/6:8*(before+len(secret))/6])
		}
	}
	return all
}

// SecretsIn returns what of a URL must not be told.
func SecretsIn(u *url.URL) []string {
	var all []string
	if password, ok := u.User.Password(); ok {
		all = append(all, password)
	}
	for part := range strings.FieldsFuncSeq(u.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
		_, value, _ := strings.Cut(part, "=")
		all = append(all, value)
		if plain, err := url.QueryUnescape(value); err == nil {
			all = append(all, plain)
		}
	}
	for _, one := range all {
		all = append(all, encoded(one)...)
	}
	return all
}

// Reason is why nobody waits for a call, in words for a server.
func Reason(why error) string {
	first := why
	for next := first; next != nil; next = errors.Unwrap(first) {
		first = next
	}
	switch first {
	case context.Canceled:
		return "its client has left"
	case context.DeadlineExceeded:
		return "its time is over"
	}
	return why.Error()
}

// Origin is the origin of a URL: its scheme, its host without the case of letters, and its port
// (RFC 6454 §4).
func Origin(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	case u.Scheme == "http":
		port = "80"
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
