package build

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// tail keeps the last lines of what a command prints.
type tail struct {
	mu   sync.Mutex
	most int
	all  []string
}

func newTail(most int) *tail { return &tail{most: most} }

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if line = printable(line); strings.TrimSpace(line) == "" {
		return
	}
	if t.all = append(t.all, line); len(t.all) > t.most {
		t.all = slices.Delete(t.all, 0, 1)
	}
}

func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.all)
}

// lastLines are the last lines of two tails, of which the second one says more of a failure.
func lastLines(first, second []string, most int) []string {
	room := max(0, most-len(second))
	return append(first[max(0, len(first)-room):], second...)
}

// colours are the sequences by which programs colour what they print.
var colours = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// printable is a line of a stranger's as a terminal may have it.
func printable(line string) string {
	line = colours.ReplaceAllString(line, "")
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, line)
}

// The words of files with credentials that are none themselves, and how long a word is that
// could be one.
var ordinary = []string{"machine", "login", "password", "default", "account", "always-auth", "registry", "true", "false", "index-url", "extra-index-url", "global"}

const leastSecret = 8

// masked takes out of lines what the secrets of a build hold: each line of theirs, and each
// word of it that is long enough to be a credential, also as it is written in a URL and in
// base64, and where a line ends in the midst of it.
func masked(lines []string, secrets map[string][]byte) []string {
	var hide []string
	for _, data := range secrets {
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			words := append([]string{line}, strings.FieldsFunc(line, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`="'`, r) })...)
			for _, word := range words {
				if word = printable(word); len(word) < leastSecret || slices.Contains(ordinary, strings.ToLower(word)) {
					continue
				}
				for _, form := range forms(word) {
					if !slices.Contains(hide, form) {
						hide = append(hide, form)
					}
				}
			}
		}
	}
	slices.SortFunc(hide, func(a, b string) int { return len(b) - len(a) })
	for i := range lines {
		for _, word := range hide {
			lines[i] = strings.ReplaceAll(lines[i], word, "REDACTED")
		}
		for _, word := range hide { // long lines are cut
			for n := len(word) - 1; n >= leastSecret; n-- {
				if line, ok := strings.CutSuffix(lines[i], word[:n]); ok {
					lines[i] = line + "REDACTED"
					break
				}
			}
		}
	}
	return lines
}

// forms are a word as it is, as URLs have it, and in base64.
func forms(word string) []string {
	return []string{word, url.PathEscape(word), url.QueryEscape(word), base64.RawStdEncoding.EncodeToString([]byte(word))}
}

// credentialForms are a credential behind its name in a file of settings, and one within a URL,
// with the user's name before it or alone. Few processes need them.
var credentialForms = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`(?i)(?:(?:token|auth|passw(?:or)?d|secret|key)["']?\s*[=:]\s*|passw(?:or)?d\s+)["']?([^\s"']+)`),
		regexp.MustCompile(`://(?:[^\s/@:]*:)?([^\s/@:]+)@`),
	}
})

// leastLine is how long a line of one word is that is taken for a part of a key.
const leastLine = 32

// credentials are the words of a build's secret that are to be nowhere in what is built: not
// those of its settings, such as where an index is, which many a package has, too.
func credentials(secret []byte) (all []string) {
	var words []string
	alone := len(strings.Fields(string(secret))) == 1
	for line := range strings.Lines(string(secret)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if alone || len(line) >= leastLine && !strings.ContainsFunc(line, unicode.IsSpace) && !strings.Contains(line, "://") {
			words = append(words, line)
		}
		for _, pattern := range credentialForms() {
			for _, found := range pattern.FindAllStringSubmatch(line, -1) {
				words = append(words, found[1])
			}
		}
	}
	for _, word := range words {
		if plain, err := url.PathUnescape(word); err == nil {
			all = append(all, forms(plain)...)
		}
		all = append(all, word)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(word string) bool {
		return len(word) < leastSecret || strings.HasPrefix(word, "${") || slices.Contains(ordinary, strings.ToLower(word))
	})
}

// advice is what to do about a failure, by what was printed; "" where nothing is known.
func advice(said []string) string {
	text := strings.ToLower(strings.Join(said, "\n"))
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
	}
	switch {
	case has("self-signed", "self signed", "unable to get local issuer", "unable to verify the first certificate", "unknown authority", "certificate verify failed", "invalid peer certificate"):
		return "name the file with the certificate of your authority: --ca-cert FILE"
	case has("e401", "e403", "401 unauthorized", "403 forbidden", "authentication required"):
		return "the index wants a login: give its file to the build alone, --build-secret npmrc=FILE, or netrc=FILE"
	case has("enotfound", "eai_again", "econnrefused", "etimedout", "no such host", "connection refused", "i/o timeout", "dns error", "network is unreachable"):
		return "a build reaches its index by the container engine's network: an index on this machine's own loopback is not reached, and a proxy is named by HTTPS_PROXY"
	case has("e404", "404 not found", "etarget", "unknown revision", "no matching version", "not found in registry", "module lookup disabled", "no solution found"):
		return "correct the package's name or its version"
	case has("eacces", "permission denied"):
		return "a build is not root: name what the system lacks with --runtime-add-package"
	case has("node-gyp", "gyp err", "gcc: not found", "command 'gcc'", "make: not found"):
		return "it wants a compiler: name one that has it, --runtime-add-package"
	case has("enospc", "no space left"):
		return "make room where the container engine keeps its images"
	}
	return ""
}
