package authz

import (
	"encoding/json"
	"net/url"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/need"
)

// Readers of URIs, as programs have them. Each returns the path that it would
// open; false for a URI that it does not take.

// rfcReader is RFC 3986: appendix B to take it apart, §5.2.4 for dot segments,
// and then the escapes.
func rfcReader(uri string) (string, bool) {
	_, rest, ok := strings.Cut(uri, ":")
	if !ok {
		return "", false
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, _, _ = strings.Cut(rest, "?")
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		rest = ""
		if i := strings.IndexByte(after, '/'); i >= 0 {
			rest = after[i:]
		}
	}
	return opened(undone(removeDotSegments(rest))), true
}

// removeDotSegments is RFC 3986 §5.2.4, letter by letter.
func removeDotSegments(in string) string {
	out := ""
	up := func() {
		out = out[:max(0, strings.LastIndexByte(out, '/'))]
	}
	for in != "" {
		switch {
		case strings.HasPrefix(in, "../"):
			in = in[3:]
		case strings.HasPrefix(in, "./"):
			in = in[2:]
		case strings.HasPrefix(in, "/./"):
			in = in[2:]
		case in == "/.":
			in = "/"
		case strings.HasPrefix(in, "/../"):
			in = in[3:]
			up()
		case in == "/..":
			in = "/"
			up()
		case in == "." || in == "..":
			in = ""
		default:
			end := strings.IndexByte(in[1:], '/') + 1
			if end == 0 {
				end = len(in)
			}
			out, in = out+in[:end], in[end:]
		}
	}
	return out
}

// goReader is net/url and path.Clean.
func goReader(uri string) (string, bool) {
	u, err := url.Parse(uri)
	if err != nil {
		return "", false
	}
	return path.Clean("/" + u.Path), true
}

// twiceReader undoes escapes once more than it should.
func twiceReader(uri string) (string, bool) {
	u, err := url.Parse(uri)
	if err != nil {
		return "", false
	}
	return path.Clean("/" + undone(u.Path)), true
}

// whatwgReader is the path state of the URL standard for the scheme file.
func whatwgReader(uri string) (string, bool) {
	uri = strings.TrimFunc(uri, func(r rune) bool { return r <= ' ' })
	uri = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(uri)
	_, rest, ok := strings.Cut(uri, ":")
	if !ok {
		return "", false
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, _, _ = strings.Cut(rest, "?")
	rest = strings.ReplaceAll(rest, `\`, "/")
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		rest = ""
		if i := strings.IndexByte(after, '/'); i >= 0 {
			rest = after[i:]
		}
	}
	var out []string
	segments := strings.Split(strings.TrimPrefix(rest, "/"), "/")
	for i, s := range segments {
		last := i == len(segments)-1
		if len(out) == 0 && len(s) == 2 && strings.ContainsAny(s[1:], ":|") && letter(s[0]) {
			s = s[:1] + ":"
		}
		switch strings.ReplaceAll(strings.ToLower(s), "%2e", ".") {
		case "..":
			if len(out) > 1 || len(out) == 1 && !(len(out[0]) == 2 && out[0][1] == ':' && letter(out[0][0])) {
				out = out[:len(out)-1] // a drive is never left
			}
			if last {
				out = append(out, "")
			}
		case ".":
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return opened(undone("/" + strings.Join(out, "/"))), true
}

// pythonReader is urllib.parse.urlparse, unquote and posixpath.normpath.
func pythonReader(uri string) (string, bool) {
	p, ok := rfcPath(uri)
	return normpath(undone(p)), ok
}

func rfcPath(uri string) (string, bool) {
	_, rest, ok := strings.Cut(uri, ":")
	if after, is := strings.CutPrefix(rest, "//"); is {
		i := strings.IndexAny(after, "/?#")
		if i < 0 {
			i = len(after)
		}
		rest = after[i:]
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, _, _ = strings.Cut(rest, "?")
	return rest, ok
}

// normpath is that of Python's posixpath.
func normpath(p string) string {
	slashes := ""
	if strings.HasPrefix(p, "/") {
		slashes = "/"
		if strings.HasPrefix(p, "//") && !strings.HasPrefix(p, "///") {
			slashes = "//"
		}
	}
	var out []string
	for s := range strings.SplitSeq(p, "/") {
		switch {
		case s == "" || s == ".":
		case s != ".." || slashes == "" && len(out) == 0 || len(out) > 0 && out[len(out)-1] == "..":
			out = append(out, s)
		case len(out) > 0:
			out = out[:len(out)-1]
		}
	}
	return slashes + strings.Join(out, "/")
}

// plainReader cuts off file:// and opens what is left; cuttingReader does it with
// escapes undone, and servletReader leaves away parameters.
func plainReader(uri string) (string, bool) {
	rest, ok := strings.CutPrefix(uri, "file://")
	return opened(rest), ok
}

func cuttingReader(uri string) (string, bool) {
	rest, ok := strings.CutPrefix(uri, "file://")
	return opened(undone(rest)), ok
}

func servletReader(uri string) (string, bool) {
	p, ok := rfcPath(uri)
	segments := strings.Split(undone(p), "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return opened(strings.Join(segments, "/")), ok
}

// foldingReader normalises before it does anything else, and takes backslashes
// for slashes; windowsReader leaves away dots and spaces at the ends of names.
func foldingReader(uri string) (string, bool) {
	p, ok := rfcPath(norm.NFKC.String(undone(uri)))
	return opened(strings.ReplaceAll(p, `\`, "/")), ok
}

func windowsReader(uri string) (string, bool) {
	p, ok := rfcPath(uri)
	var out []string
	for s := range strings.SplitSeq(strings.ReplaceAll(undone(p), `\`, "/"), "/") {
		if name := strings.TrimRight(s, ". "); name != "" || s == ".." || s == "" || s == "." {
			if name == "" {
				name = s
			}
			s, _, _ = strings.Cut(name, ":$")
		} else {
			s = ".." // nobody knows
		}
		out = append(out, s)
	}
	return opened(strings.Join(out, "/")), ok
}

// driveReader is what Python does on Windows (nturl2path): whatever stands before
// the name of a drive goes. drivenReader undoes escapes first, and does not leave
// the drive by dot segments, as ntpath.normpath does not.
func driveReader(uri string) (string, bool) {
	p, ok := rfcPath(uri)
	return onDrive(p), ok
}

func drivenReader(uri string) (string, bool) {
	p, ok := rfcPath(undone(uri))
	return onDrive(p), ok
}

func onDrive(p string) string {
	p = strings.ReplaceAll(p, "|", ":")
	at := strings.IndexByte(p, ':')
	for at > 0 && !letter(p[at-1]) {
		next := strings.IndexByte(p[at+1:], ':')
		if next < 0 {
			at = -1
			break
		}
		at += 1 + next
	}
	if at < 1 {
		return opened(strings.ReplaceAll(undone(p), `\`, "/"))
	}
	return "/" + p[at-1:at+1] + opened(strings.ReplaceAll(undone(p[at+1:]), `\`, "/"))
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// opened is the file that a system opens for a path.
func opened(p string) string { return path.Clean("/" + p) }

func undone(s string) string {
	for i := 0; i+2 < len(s); i++ {
		if s[i] == '%' {
			if c, err := url.PathUnescape(s[i : i+3]); err == nil {
				s = s[:i] + c + s[i+3:]
			}
		}
	}
	return s
}

var readers = map[string]func(string) (string, bool){
	"RFC 3986": rfcReader, "Go": goReader, "Go, twice": twiceReader, "WHATWG": whatwgReader, "Python": pythonReader,
	"plain": plainReader, "cutting": cuttingReader, "servlet": servletReader, "folding": foldingReader, "Windows": windowsReader,
	"Python on Windows": driveReader, "Python on Windows, undone": drivenReader,
}

// below reports whether a path leads into a directory, or to it.
func below(p, directory string) bool {
	return p == directory || strings.HasPrefix(p, directory+"/")
}

// uriPolicies permit one directory, and forbid another.
const (
	permitPublic = `permit(principal, action, resource is Resource) when { resource.uri like "file:///public/*" };`
	forbidSecret = `permit(principal, action, resource); forbid(principal, action, resource is Resource) when { resource.uri == "file:///secret" || resource.uri like "file:///secret/*" };`
)

// odd are URIs that lead out of /public for some reader.
func oddURIs() []string {
	all := []string{
		"file:///public//../secret", "file:///public/?/../secret", "file:///public/?/../../secret", "file:///public/#/../../secret", "file:///public/..;/secret",
		"file:///public/..;x=y/secret", "file:///public/.;/../secret", "file:///public/../secret", "file:///public/./../secret", "file:///public/a/../../secret",
		"file:///public/..", "file:///public/%2e%2e", `file:///public/..\secret`, `file:///public\..\secret`, "file:///public/..%5csecret", "file:///public/..%5Csecret",
		"file:///public/%c0%ae%c0%ae/secret", "file:///public/%C0%AE./secret", "file:///public/%e0%80%ae%e0%80%ae/secret", "file:///public/..%c0%afsecret", "file:///public/%f0%80%80%ae./secret",
		"file:///public/．．/secret", "file:///public/%EF%BC%8E%EF%BC%8E/secret", "file:///public/‥/secret", "file:///public/․․/secret", "file:///public/﹒﹒/secret",
		"file:///public/..／secret", "file:///public/..＼secret", "file:///public/..∕secret", "file:///public/..⁄secret", "file:///public/％2e％2e/secret", "file:///public/%EF%BC%852e%EF%BC%852e/secret",
		"file:///public/..；/secret", "file:///public/.\u200d./secret", "file:///public/.\u200c.%2fsecret", "file:///public/%E2%80%8D../secret", "file:///public/.\u00ad./secret", "file:///public/.\ufe0f./secret",
		"file:///public/.. /secret", "file:///public/..%20/secret", "file:///public/... /secret", "file:///public/.../secret", "file:///public/. ./secret", "file:///public/..\u00a0/secret",
		"file:///public/%00/../secret", "file:///public/..%00/secret", "file:///public/.%0a./secret", "file:///public/.%09./secret", "file:///public/.\t./secret", "file:///public/.\n./secret",
		"file:///public/%u002e%u002e/secret", "file:///public/%2/../secret", "file:///public/%zz/../secret", "file:///public/%", "file:///public/%f", "file:///public/%ff", "file:///public/%ed%a0%80",
		"file:///public/%uff0e%uff0e/secret", "file:///public/\u202e/x", "file:///public/%E2%80%AE", "file:///public/x\ufeff", "file:///public/\u2028", " file:///public/x", "file:///public/x ", "\tfile:///public/x",
		"file:///public/x\u0085", "file:///public/a%2fb", "file:///public/a%2Fb", "file:///public//a", "file:////public/a", "file:///public/a//", "file:///C|/../secret",
		"file:///public/secret.txt.", "file:///public/secret.txt%20", "file:///public/secret.txt::$DATA", "file:///public/x:$I30:$INDEX_ALLOCATION/y",
	}
	for _, mark := range []string{"%3F", "%3f", "%23"} {
		all = append(all, "file:///public/../secret"+mark+"/../public/x", "file:///public/.."+mark, "file:///public/.."+mark+"/x", "file:///public/a/../../secret"+mark+"/../../public/a",
			"file:///public/x"+mark+"/../../secret", "file:///secret"+mark+"/../public/x", "file:///public/./../secret"+mark+"/../../public")
	}
	for _, drive := range []string{"C:", "C|", "c%3A", "C%7C", "abc:", "x:", "%2A:", "%2a|", "%2d:", "0%2D:", "0%5f|", "%7E:"} {
		all = append(all, "file:///public/"+drive+"/secret", "file:///public/a/"+drive+"/secret", "file:///public/"+drive+"secret")
	}
	for _, dots := range []string{"%2e%2e", "%2E%2E", ".%2e", "%2e.", "%252e%252e", "%25252e%25252e", "%%32%65%%32%65", "..%2f", "..%252f", "..%5c"} {
		for _, before := range []string{"", "a/", "?/", "?x=/", "#/", ";/"} {
			all = append(all, "file:///public/"+before+dots+"/secret", "file:///public/"+before+dots+"/../secret")
		}
	}
	return all
}

// twisted are URIs that need no policy about files to be read in two ways.
func twistedURIs() []string {
	return []string{
		"file:///C:/../secret/x", "file:///x/../C:/../secret/x", "file:///C:/a/../../secret", "file:///C:secret/x", "file:///C|/x", "file://C:/secret/x", "file://C:/../secret", "file://?/C:/secret/x", "file://host", "file://",
		"file://host:80/x", "file:///a/C:/x", "file:///%43%3A/../x", "file%3A/secret/x", "file%3a///secret/x", "https%3A//h/x", "file:///ﷺﷺﷺﷺ", "https://h/" + strings.Repeat("x", 8<<10),
		"file:public/x", "file:c:..", "file:..", "file:./x", "file:x/../y", "file://../x", "file://./x", "file://%2e%2e/x", "file://ho%73t/x",
		"http:/h/x", "http:h/x", "https:///h/x", "https://", "https:x", "http:///x", "ws:x", "ftp:/x",
		"https://h/a/%2e%2e/b", "https://h/a/..;/b", "https://h//b", "https://h/a%2fb", `https://h\@evil/x`, "https://a@b@c/x", "https://h%2f@evil/x", "https://h%40evil/x", "https://%68/x",
		"https://ｅxample.com/x", "https://例え.jp/x", "https://h./x", "https://a..b/x", "https://h:0443/x", "https://h:99999/x", "https://h:x/y", "https://h:443:443/x", "https://h :80/x",
		"http://127.1/x", "http://0x7f.1/x", "http://2130706433/x", "http://0177.0.0.1/x", "http://127.0.0.1./x", "http://1.2.3.4.5/x", "http://0x7f000001/x",
		"http://[::1%25eth0]/x", "http://[0:0:0:0:0:0:0:1]/x", "http://[::1/x", "http://::1/x", "http://[::FFFF:7f00:1/x", "http://[]/x", "http://[::1]x/y",
		"test://static/../x/%2e%2e", "test://static/a//b", "test://static/..;/x", "x:/a/%2e./b", "urn:x:..", "urn:..:x", "urn:x/../y", "mailto:../x", "x:a/%2e%2e/b", "x:a/..%5cb", "data:,/../x",
		"..", ".", "../x", "a/../b", "a/./b", "/etc//passwd", "a/%2e%2e/b", "a%00b", `a\b`, "//h/x", "a/..;/b", "C:/x/%2e%2e/y", "https://h/x?u=/../y", "https://h/x?u=%2f..%2fy", "https://h/x#/../y", "https://h/x?a=%252f%252e%252e%252f",
	}
}

// plainURIs are read alike by everybody.
func plainURIs() []string {
	return []string{
		"file:///a/b%20c.txt", "file:///a/b c.txt", "file:///a", "file:///", "file:///a/", "file:///a.b/.c/..d/e..f/g...h", "file:///C:/Users/x.txt", "file://host/share/x", "file://localhost/x", "file:/a/b",
		"file:///caf%C3%A9.txt", "file:///café.txt", "file:///日本語/文書。txt", "file:///Привет/мир", "file:///a;v=1/b", "file:///50%25.txt", "file:///a+b,c=d&e!f'(g)*h", "file:///12:30.log", "file:///100%25/x",
		"https://h/p?q=a/b", "https://h", "https://h/", "https://h:8443/a/b", "https://example.com/a?u=https://x.com/y&v=a%2Fb", "https://user@example.com/x", "http://127.0.0.1:80/x", "http://[::1]:8080/x", "http://localhost/x#top",
		"https://en.wikipedia.org/wiki/St._Louis", "https://h/a.", "https://h/x?a=1#b?c", "https://xn--r8jz45g.jp/x", "https://h/a_b-c~d", "https://h/?q=..", "https://h/x?r=../y", "https://h/x#../y",
		"test://template/123/data", "test://static-text", "test://watched-resource", "demo://resource/static/document/a.md", "postgres://u:p@h:5432/db/t", "note:///x", "memo://insights", "x://h/a/b?c/d",
		"urn:isbn:0451450523", "urn:a:b:c//d", "mailto:a@b.c", "data:text/plain;base64,SGVsbG8//8=", "tag:h,2026:x", "weather", "a/b", "readme.md", "config", "C:/x/y.txt",
		"test://template/{id}/data", "file:///{path}", "file:///{+path}", "https://{host}/x{?q,r}", "x://{a}{/b,c}{#d}", "https://{host}:{port}/x", "ui://widget/app.html", "git+ssh://git@h/x.git",
	}
}

func read(t testing.TB, h *hall, method, uri string) bool {
	t.Helper()
	name := "uri"
	params, err := json.Marshal(map[string]string{name: uri})
	if err != nil {
		t.Fatal(err)
	}
	return h.passes(message(t, person("alice", nil), method, string(params)))
}

// TestZ05: a URI that readers take for different places is denied wherever a
// policy judges it, and what everybody reads alike is not.
func TestZ05(t *testing.T) {
	h := open(t, policies(t, permitAll), Options{}, edge.Env{})
	public := open(t, policies(t, permitPublic), Options{}, edge.Env{})
	secret := open(t, policies(t, forbidSecret), Options{}, edge.Env{})
	for _, uri := range oddURIs() {
		if strings.IndexByte(uri, 0xff) < 0 && read(t, public, "resources/read", uri) {
			t.Errorf("%q is permitted as something below /public", uri)
		}
	}
	for _, uri := range twistedURIs() {
		if read(t, h, "resources/read", uri) || h.why.Reason != ReasonURI {
			t.Errorf("%q is judged: %s", uri, h.why)
		}
	}
	for _, uri := range plainURIs() {
		for _, method := range []string{"resources/read", "resources/subscribe", "resources/unsubscribe"} {
			if !read(t, h, method, uri) {
				t.Errorf("%s %q is denied: %s", method, uri, h.why)
			}
		}
	}
	// What is forbidden is forbidden by its other names.
	for _, uri := range []string{
		"file:///secret", "file:///secret/x", "FILE:///secret/x", "file:/secret/x", "file://localhost/secret/x", "file://LOCALHOST/secret/x", "file:///secret/", "file:///secret?", "file:///secret?x", "file:///secret#",
		"file:///secret#x", "file:///secret?x#y", "file:///s%65cret/x", "file:///%73%65%63ret", "file:///secret;x/y", "file:///secret;x", "file:///ｓecret/x", "file:///%EF%BD%93ecret", "file:///public/../secret",
		"file:///secret%3Fx", "file:///secret%23x", "file:///secret%3Bx/y", "file://host/secret/x", "file:///./secret/x", "file:///secret/.",
	} {
		if read(t, secret, "resources/read", uri) {
			t.Errorf("%q is not forbidden", uri)
		}
	}
	// And by those that come of several at a time.
	for _, c := range []struct{ forbidden, asked string }{
		{`like "file:///my secret/*"`, "file:/my%20secret/x"}, {`like "file:///my secret/*"`, "FILE:///my%20secret/x"}, {`like "file:///my secret/*"`, "file:///a/../my%20secret/x"},
		{`like "file:///my%20secret/*"`, "file:///a/../my secret/x"}, {`like "file:///my%20secret/*"`, "file://localhost/my secret/x"}, {`like "file:///@private/*"`, "file:///a/../%40private/x"},
		{`like "file:///sécret/*"`, "file:///a/../s%C3%A9cret/x"}, {`like "file:///s%C3%A9cret/*"`, "file:///a/../sécret/x"}, {`like "file:///sécret/*"`, "file:///a/../se\u0301cret/x"}, {`like "file:///sécret/*"`, "file:///a/../se%CC%81cret/x"},
		{`like "file:///secret/*"`, "file:/ｓecret/x"}, {`like "file:///secret/*"`, "FILE:/a/../%EF%BD%93ecret/x"}, {`like "file:///{x}/*"`, "file:///a/../%7Bx%7D/y"}, {`like "file:///%7Bx%7D/*"`, "file:///{x}/y"},
		{`like "*.env"`, "file:///app/.env/."}, {`like "*.env"`, "file:///app/.env/x/.."}, {`like "*.env"`, "file:///app/.env/.?x"}, {`like "*.env"`, "https://h/app/.env/."}, {`like "*.env"`, "file:///app/.env/;x/?y#z"},
		{`== "file:///app/.env"`, "file:///app/./.env/."}, {`== "file:///app/.env"`, "file://localhost/app/.env;x?y"}, {`== "https://h/x"`, "https://u@H:443/a/../x/#y"}, {`== "https://h/x?q"`, "https://u@H:443/a/../x;y/?q#z"},
		{`like "file:///C:/secret/*"`, "file:///C:/a/../secret/x"}, {`like "file:///C:/secret/*"`, "file:///%43:/secret/x"},
	} {
		h := open(t, policies(t, permitAll, `forbid(principal, action, resource is Resource) when { resource.uri `+c.forbidden+` };`), Options{}, edge.Env{})
		if read(t, h, "resources/read", c.asked) {
			t.Errorf("%q is not forbidden by %s", c.asked, c.forbidden)
		}
	}
	for _, uri := range plainURIs() {
		if !read(t, secret, "resources/read", uri) {
			t.Errorf("%q is forbidden: %s", uri, secret.why)
		}
	}
}

// TestZ05Everywhere: the rule holds wherever a message, a list or a question of
// the operator names a URI, and for what a decision point is asked, too.
func TestZ05Everywhere(t *testing.T) {
	const twisted, plain = "file:///public//../secret", "file:///public/a"
	lookup := func(_ *edge.Exchange, thing edge.Thing, name string) *edge.Target {
		return &edge.Target{Thing: thing, Name: name, Original: name, Backend: "b"}
	}
	h := open(t, policies(t, permitAll), Options{Lookup: lookup}, edge.Env{})
	for _, c := range []struct{ method, params string }{
		{"resources/read", `{"uri":"$"}`}, {"resources/subscribe", `{"uri":"$"}`}, {"resources/unsubscribe", `{"uri":"$"}`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"$"},"argument":{"name":"a","value":"b"}}`},
		{"subscriptions/listen", `{"notifications":{"resourceSubscriptions":["file:///public/b","$"]}}`},
		{"subscriptions/listen", `{"notifications":{"resourceSubscriptions":["$","file:///public/b"]}}`},
	} {
		for uri, want := range map[string]bool{plain: true, twisted: false} {
			x := message(t, person("alice", nil), c.method, strings.ReplaceAll(c.params, "$", uri))
			if got := h.passes(x); got != want {
				t.Errorf("%s %s: %v", c.method, uri, got)
			}
		}
	}
	view := newCedarJudge(policies(t, permitAll)).view(t.Context(), "main", client{id: person("alice", nil)})
	for _, thing := range []edge.Thing{edge.Resource, edge.Template} {
		if !view.Allows(&edge.Item{Thing: thing, Name: plain}) || view.Allows(&edge.Item{Thing: thing, Name: twisted}) {
			t.Errorf("a list does not show what can be read: %v", thing)
		}
	}
	if !view.Allows(&edge.Item{Thing: edge.Tool, Name: twisted}) {
		t.Error("a tool is held to the rule of URIs")
	}
	for uri, want := range map[string]bool{plain: true, twisted: false} {
		if e, err := policies(t, permitAll).Explain(&Question{Subject: "a", Resource: uri}); err != nil || e.Allowed != want {
			t.Errorf("explain %s: %s %v", uri, e, err)
		}
	}
}

// TestZ05WHATWG holds the reader of the URL standard above against a real one,
// and what is judged against what that makes of it.
func TestZ05WHATWG(t *testing.T) {
	node, err := exec.LookPath("node")
	need.Of(t, err == nil, "node is not there")
	public := open(t, policies(t, permitPublic), Options{}, edge.Env{})
	all := slices.Concat(oddURIs(), plainURIs(), twistedURIs())
	asked, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "-e", `
		const all = JSON.parse(require('fs').readFileSync(0, 'utf8'));
		console.log(JSON.stringify(all.map(u => { try { return decodeURIComponent(new URL(u).pathname) } catch (e) { return "" } })));`)
	cmd.Stdin = strings.NewReader(string(asked))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	if err := json.Unmarshal(out, &said); err != nil || len(said) != len(all) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, uri := range all {
		if said[i] != "" && read(t, public, "resources/read", uri) && !below(path.Clean(said[i]), "/public") {
			t.Errorf("%q is permitted and is %q", uri, said[i])
		}
		if ours, ok := whatwgReader(uri); ok && said[i] != "" && strings.HasPrefix(uri, "file:///public") && ours != opened(said[i]) {
			t.Errorf("%q: the reader of these tests says %q, node %q", uri, ours, said[i])
		}
	}
}

// FuzzURIReaders: what a policy permits is below what it permits for every
// reader, and what it forbids is forbidden by whatever name a reader knows it.
func FuzzURIReaders(f *testing.F) {
	for _, uri := range slices.Concat(oddURIs(), plainURIs(), twistedURIs()) {
		f.Add(uri)
	}
	f.Add("file:///secret;/x")
	f.Add("file:///public/../secret%3F/../public/x")
	f.Add("file:///a/../s%65cret/;x/.?y#z")
	f.Add("file:///x/../C:/../secret/x")
	f.Add("0%2d:")
	public, secret := newCedarJudge(policies(f, permitPublic)), newCedarJudge(policies(f, forbidSecret))
	allows := func(t *testing.T, j *cedarJudge, uri string) bool {
		a := ask{server: "m", thing: edge.Target{Thing: edge.Resource, Name: uri, Original: uri}}
		return bothWays(&a, func(a *ask) *Explanation { return j.decide(t.Context(), client{id: person("alice", nil)}, a) }).Allowed
	}
	f.Fuzz(func(t *testing.T, uri string) {
		for _, uri := range []string{uri, "file:///public/" + uri, "file:///" + uri} {
			permitted, spared := allows(t, public, uri), allows(t, secret, uri)
			for name, reader := range readers {
				p, ok := reader(uri)
				if !ok {
					continue
				}
				if permitted && !below(p, "/public") {
					t.Errorf("%q is permitted, and is %q for %s", uri, p, name)
				}
				if spared && strings.HasPrefix(strings.ToLower(uri), "file:") && below(p, "/secret") {
					t.Errorf("%q is not forbidden, and is %q for %s", uri, p, name)
				}
			}
		}
	})
}
