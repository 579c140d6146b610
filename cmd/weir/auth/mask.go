package auth

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// What of a request and of an answer may be shown. Everything else is hidden, since a
// token or a secret may be in it.
func shownFields() []string {
	return []string{
		"grant_type", "audience", "scope", "resource", "requested_token_type", "subject_token_type", "requested_token_use", "client_id", "client_assertion_type",
		"Action", "Version", "RoleArn", "RoleSessionName", "DurationSeconds",
		"token_type", "expires_in", "issued_token_type", "error",
	}
}

// schemes are those of Authorization that are shown.
func schemes() []string { return []string{"Bearer", "Basic", "AWS4-HMAC-SHA256"} }

// maxShown bounds a value that is shown, in bytes.
const maxShown = 200

// mask knows values that must not be shown.
type mask struct{ values []string }

// add has a value hidden, in each form that it may come back in. That of a header may have a
// scheme before it.
func (m *mask) add(value string) {
	if scheme, token, ok := strings.Cut(value, " "); ok && slices.Contains(schemes(), scheme) {
		m.add(token)
	}
	if len(value) < 4 { // it would hide parts of words
		return
	}
	m.values = append(m.values, value, url.QueryEscape(value), url.PathEscape(value), base64.StdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)))
}

// fetched has what a request and its answer hide hidden wherever it is.
func (m *mask) fetched(f edge.Fetched) {
	if form, err := url.ParseQuery(string(f.Body)); err == nil {
		for name, values := range form {
			for _, v := range values {
				if !slices.Contains(shownFields(), name) {
					m.add(v)
				}
			}
		}
	}
	if user, secret, ok := basicOf(f.Header.Get("Authorization")); ok {
		m.add(secret)
		m.add(user + ":" + secret)
	}
	if o, err := oauth.ParseObject(f.Said, 16); err == nil {
		for name := range o {
			// What is shorter is no token, and hidden in its own place alone.
			if text, ok := o.Text(name); ok && len(text) >= 8 && !slices.Contains(shownFields(), name) {
				m.add(text)
			}
		}
	}
	slices.SortFunc(m.values, func(a, b string) int { return len(b) - len(a) })
}

// basicOf reads a line of HTTP Basic, whose parts are encoded (RFC 6749 §2.3.1).
func basicOf(line string) (user, secret string, ok bool) {
	text, ok := strings.CutPrefix(line, "Basic ")
	if !ok {
		return "", "", false
	}
	plain, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", "", false
	}
	user, secret, ok = strings.Cut(string(plain), ":")
	if raw, err := url.QueryUnescape(secret); err == nil {
		secret = raw
	}
	return user, secret, ok
}

// text is a text without what is hidden.
func (m *mask) text(s string) string {
	for _, v := range m.values {
		s = strings.ReplaceAll(s, v, "(hidden)")
	}
	if len(s) > maxShown {
		s = s[:maxShown] + "…"
	}
	return edge.Clean(strings.ToValidUTF8(s, "?"))
}

func hidden(value string) string { return fmt.Sprintf("(hidden, %d bytes)", len(value)) }

// value is a named value as it may be shown.
func (m *mask) value(name, value string) string {
	if slices.Contains(shownFields(), name) {
		return m.text(value)
	}
	return hidden(value)
}

// step is a request and its answer as they may be shown.
func (m *mask) step(f edge.Fetched) Step {
	s := Step{Method: f.Method, URL: m.text(placeOf(f.URL)), Sent: []Line{}, Answered: []Line{}, Status: f.Status, Took: f.Took.Round(time.Millisecond).String()}
	if v := f.Header.Get("Authorization"); v != "" {
		s.Sent = append(s.Sent, Line{"Authorization", shownValue("Authorization", v)})
	}
	if form, err := url.ParseQuery(string(f.Body)); err == nil {
		s.Sent = append(s.Sent, m.lines(form)...)
	}
	if f.Err != nil {
		s.Error = m.text(f.Err.Error())
		return s
	}
	if o, err := oauth.ParseObject(f.Said, 16); err == nil {
		all := url.Values{}
		for name, raw := range o {
			value := string(raw)
			if text, ok := o.Text(name); ok {
				value = text
			}
			all.Set(name, value)
		}
		s.Answered = m.lines(all)
	} else if len(f.Said) > 0 {
		s.Answered = append(s.Answered, Line{"body", hidden(string(f.Said))})
	}
	return s
}

// lines are named values, sorted, as they may be shown.
func (m *mask) lines(all url.Values) (out []Line) {
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	out = []Line{}
	for _, name := range names {
		for _, v := range all[name] {
			out = append(out, Line{m.text(name), m.value(name, v)})
		}
	}
	return out
}

// shownValue is a header's value with its scheme alone.
func shownValue(name, value string) string {
	if strings.EqualFold(name, "Authorization") {
		if scheme, rest, ok := strings.Cut(value, " "); ok && slices.Contains(schemes(), scheme) {
			return scheme + " " + hidden(rest)
		}
	}
	return hidden(value)
}

// placeOf is a URL without what may be a secret in it.
func placeOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a malformed URL"
	}
	place := u.Scheme + "://" + u.Host + u.EscapedPath()
	if u.RawQuery != "" {
		place += "?(hidden)"
	}
	return place
}
