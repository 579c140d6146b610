package secret

import (
	"net/url"
	"slices"
	"strings"
)

// What is no secret by its place may be one by its name.

// secretWords are the words by which the name of a variable reads like that of a secret.
var secretWords = []string{"token", "key", "secret", "password", "passwd", "credential"}

// ReadsLike reports whether the name of a variable reads like that of a secret.
func ReadsLike(name string) bool {
	lower := strings.ToLower(name)
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(lower, word) })
}

// HeaderReadsLike is ReadsLike of a header.
func HeaderReadsLike(name string) bool {
	return ReadsLike(name) || strings.EqualFold(name, "authorization") || strings.EqualFold(name, "cookie")
}

// InQuery calls f with each parameter of a URL's query whose name reads like that of a
// secret, and returns the URL with what f returns in place of its value, as it is written there.
func InQuery(text string, f func(name, value string) string) string {
	text, fragment, hash := strings.Cut(text, "#")
	if hash {
		fragment = "#" + fragment
	}
	before, query, ok := strings.Cut(text, "?")
	if !ok {
		return text + fragment
	}
	all := strings.Split(query, "&")
	for i, one := range all {
		written, value, _ := strings.Cut(one, "=")
		name, err := url.QueryUnescape(written)
		if err != nil {
			name = written
		}
		if ReadsLike(name) {
			all[i] = written + "=" + f(name, value)
		}
	}
	return before + "?" + strings.Join(all, "&") + fragment
}
