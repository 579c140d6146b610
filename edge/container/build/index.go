package build

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/runner"
)

// index is where a build gets packages from: what the user's own settings say, without any
// credential.
type index struct {
	env    []string // NAME=VALUE
	npmrc  string   // of npm's global configuration: registries alone
	notes  []string
	chosen []string // the settings that decide what comes, sorted
}

// decides are the settings that decide what comes of a build, and not only whether it works.
func (i *index) decides() []string { return i.chosen }

// proxies are variables of proxies, which say how an index is reached.
var proxies = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"}

// indexes are variables that say which index packages come from, by scheme.
var indexes = map[string][]string{
	runner.SchemeUVX: {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX_STRATEGY", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"},
	runner.SchemeGo:  {"GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOINSECURE"},
}

// maxSettings bounds a file of settings, in bytes.
const maxSettings = 256 << 10

// readIndex reads the user's settings of the index of a scheme.
func (b *Builds) readIndex(scheme string) (i index) {
	lookup := b.Lookup
	if lookup == nil {
		lookup = func(string) (string, bool) { return "", false }
	}
	take := func(name, value string, decides bool) {
		if value == "" || strings.ContainsAny(value, "\x00\r\n") || len(value) > 4096 {
			return
		}
		if hasCredential(value) {
			i.notes = append(i.notes, name+" holds a password, which a build is not given: it is left out; give the build a file of it, --build-secret npmrc=FILE or netrc=FILE")
			return
		}
		if onLoopback(value) {
			i.notes = append(i.notes, name+" is on this machine's own loopback, which a build does not reach: it is left out")
			return
		}
		i.env = append(i.env, name+"="+value)
		if decides {
			i.chosen = append(i.chosen, name+"="+value)
		}
	}
	for _, name := range proxies {
		value, _ := lookup(name)
		take(name, value, false)
	}
	switch scheme {
	case runner.SchemeNPX:
		b.readNPM(&i, lookup)
	case runner.SchemeGo:
		own := b.goSettings(lookup)
		for _, name := range indexes[scheme] {
			value, given := lookup(name)
			if !given {
				value = own[name]
			}
			take(name, value, true)
		}
	default:
		for _, name := range indexes[scheme] {
			value, _ := lookup(name)
			take(name, value, true)
		}
	}
	slices.Sort(i.chosen)
	return i
}

// readNPM reads the registries of npm's settings: the usual one, and those of scopes. They go
// into npm's global configuration, so that the file of a build's secret wins.
func (b *Builds) readNPM(i *index, lookup func(string) (string, bool)) {
	registries := map[string]string{}
	file, ok := lookup("NPM_CONFIG_USERCONFIG")
	if !ok && b.Home != "" {
		file = filepath.Join(b.Home, ".npmrc")
	}
	for line := range strings.Lines(readSettings(file)) {
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"'`)
		scope, scoped := strings.CutSuffix(name, ":registry")
		if ok && (name == "registry" || scoped && runner.IsNodePackage(scope+"/a")) && !strings.Contains(value, "${") {
			registries[name] = value
		}
	}
	for _, name := range []string{"npm_config_registry", "NPM_CONFIG_REGISTRY"} {
		if value, ok := lookup(name); ok {
			registries["registry"] = value
		}
	}
	var lines []string
	for name, value := range registries {
		u, err := url.Parse(value)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.ContainsAny(value, " \t\x00\r\n"):
			i.notes = append(i.notes, fmt.Sprintf("npm's setting %s is no URL: it is left out", name))
		case u.User != nil:
			i.notes = append(i.notes, fmt.Sprintf("npm's setting %s holds a password, which a build is not given: it is left out; give the build a file of it, --build-secret npmrc=FILE", name))
		case onLoopback(value):
			i.notes = append(i.notes, fmt.Sprintf("npm's setting %s is on this machine's own loopback, which a build does not reach: it is left out", name))
		default:
			lines = append(lines, name+"="+value)
		}
	}
	slices.Sort(lines)
	slices.Sort(i.notes)
	i.chosen = append(i.chosen, lines...)
	for _, line := range lines {
		i.npmrc += line + "\n"
	}
}

// goSettings are those that `go env -w` has written.
func (b *Builds) goSettings(lookup func(string) (string, bool)) map[string]string {
	file, ok := lookup("GOENV")
	if !ok {
		root, ok := lookup("XDG_CONFIG_HOME")
		if !ok || !filepath.IsAbs(root) {
			if b.Home == "" {
				return nil
			}
			root = filepath.Join(b.Home, ".config")
		}
		file = filepath.Join(root, "go", "env")
	}
	all := map[string]string{}
	for line := range strings.Lines(readSettings(file)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			all[name] = value
		}
	}
	return all
}

// readSettings reads a file of the user's settings; what is none says nothing.
func readSettings(file string) string {
	if file == "" || file == "off" {
		return ""
	}
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxSettings))
	return string(text)
}

// hasCredential reports whether a URL in a value, or in a list of some, has a user.
func hasCredential(value string) bool {
	for _, one := range urls(value) {
		if u, err := url.Parse(one); err != nil && strings.Contains(one, "@") || err == nil && u.User != nil {
			return true
		}
	}
	return false
}

// onLoopback reports whether a value is a URL on this machine's loopback alone.
func onLoopback(value string) bool {
	all := urls(value)
	for _, one := range all {
		u, err := url.Parse(one)
		if err != nil {
			return false
		}
		ip := net.ParseIP(u.Hostname())
		if u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return len(all) > 0
}

// urls are the URLs in a value: those of Go's are divided by commas and bars, of uv's by
// spaces, and may have a name before them.
func urls(value string) (all []string) {
	for _, one := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(", |", r) }) {
		if at := strings.Index(one, "://"); at >= 0 {
			if eq := strings.LastIndexByte(one[:at], '='); eq >= 0 {
				one = one[eq+1:]
			}
			all = append(all, one)
		} else if strings.Contains(one, "@") {
			all = append(all, "http://"+one)
		}
	}
	return all
}
