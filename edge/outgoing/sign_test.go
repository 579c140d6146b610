package outgoing

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
)

// vector is one of testdata/sigv4.json.
type vector struct {
	Name    string
	Context struct {
		Credentials struct {
			ID     string `json:"access_key_id"`
			Secret string `json:"secret_access_key"`
			Token  string `json:"token"`
		}
		Normalize bool
		Region    string
		Service   string
		SignBody  bool `json:"sign_body"`
		Timestamp time.Time
		OmitToken bool `json:"omit_session_token"`
	}
	Request, Canonical, ToSign, Signature, Signed string
}

// wire reads the request of a vector, as it is sent.
func (v *vector) wire(t *testing.T) *wire {
	t.Helper()
	head, body, _ := strings.Cut(strings.ReplaceAll(v.Request, "\r\n", "\n"), "\n\n")
	first, rest, _ := strings.Cut(head, "\n")
	r := &wire{body: []byte(body)}
	var target string
	r.method, target, _ = strings.Cut(first, " ")
	target = target[:strings.LastIndexByte(target, ' ')]
	r.path, r.query, _ = strings.Cut(target, "?")
	for text := range strings.SplitSeq(strings.TrimRight(rest, "\n"), "\n") {
		r.lines = append(append(r.lines, "\r\n"...), text...)
	}
	return r
}

// TestT25 signs what the vectors of aws-c-auth have, byte for byte: the canonical request,
// the string to sign, and the header line.
func TestT25(t *testing.T) {
	text, err := os.ReadFile("testdata/sigv4.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		t.Run(v.Name, func(t *testing.T) {
			c, r := v.Context, v.wire(t)
			k := &keys{id: c.Credentials.ID, secret: edge.Secret(c.Credentials.Secret), token: edge.Secret(c.Credentials.Token)}
			if c.OmitToken {
				k.token = ""
			}
			s, p := &signer{region: c.Region, service: c.Service}, &signPad{}
			at := s.date(c.Timestamp)
			sum := sha256.Sum256(r.body)
			hex.Encode(p.digest[:], sum[:])
			names := p.canonical(r, at, string(k.token), c.Normalize, c.SignBody)
			if string(p.text) != v.Canonical {
				t.Fatalf("canonical request\n%s\nwant\n%s", p.text, v.Canonical)
			}
			p.toSign(s, at)
			if string(p.text) != v.ToSign {
				t.Fatalf("string to sign\n%s\nwant\n%s", p.text, v.ToSign)
			}
			p.authorization(s, k, at, names)
			if !strings.HasSuffix(string(p.out), "Signature="+v.Signature) || !strings.Contains(v.Signed, "\nAuthorization:"+string(p.out)+"\n") {
				t.Errorf("%s\nwant\n%s", p.out, v.Signed)
			}
		})
	}
	if len(all) != 38 {
		t.Errorf("%d vectors, want 38", len(all))
	}
}

// TestT25Paths has what the vectors leave out: paths, queries and lines as backends have
// them, and what AWS documents for each.
func TestT25Paths(t *testing.T) {
	cases := []struct{ path, query, want string }{
		{"", "", "/\n"},
		{"//", "", "/\n"},
		{"/a//b/", "", "/a/b/\n"},
		{"/a/b/..", "", "/a\n"},
		{"/../../a", "", "/a\n"},
		{"/a%2Fb", "", "/a%252Fb\n"},
		{"/a+b c", "", "/a%2Bb%20c\n"},
		{"/%E1%88%B4", "", "/%25E1%2588%25B4\n"},
		{"/*'()!", "", "/%2A%27%28%29%21\n"},
		{"/", "ሴ=é", "/\n%E1%88%B4=%C3%A9"},
		{"/", "b=2&a=2&a=1&b=1", "/\na=1&a=2&b=1&b=2"},
		{"/", "a&b=&c=d=e", "/\na=&b=&c=d%3De"},
		{"/", "a=b+c&a=%2b&d=%7E", "/\na=%2B&a=b%20c&d=~"},
		{"/", "a=%zz&b=%&c=%4", "/\na=%25zz&b=%25&c=%254"},
		{"/", "&&a=1&", "/\na=1"},
		{"/", "a-b=1&a=2", "/\na=2&a-b=1"},
	}
	for _, c := range cases {
		var p signPad
		b := append(canonicalPath(nil, c.path, true), '\n')
		if got := string(p.query(b, c.query)); got != c.want {
			t.Errorf("%s?%s: %q, want %q", c.path, c.query, got, c.want)
		}
	}
	lines := "\r\nHost: h:1\r\nX-B:  two   words \r\nx-a:1\r\nX-A: \t2\r\nUser-Agent: some\r\nConnection: close\r\nAuthorization: Bearer x\r\nEmpty:\r\nFolded: a\r\n\tb\r\nno line"
	var p signPad
	names := p.canonical(&wire{method: "GET", lines: []byte(lines)}, "T", "", true, false)
	_, got, _ := strings.Cut(string(p.text), "\n\n")
	if want := "empty:\nfolded:a b\nhost:h:1\nx-a:1,2\nx-amz-date:T\nx-b:two words\n\nempty;folded;host;x-a;x-amz-date;x-b\n"; !strings.HasPrefix(got, want) || string(names) != "empty;folded;host;x-a;x-amz-date;x-b" {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSignKeepsKeysForADay signs across midnight, and with one region after another.
func TestSignKeepsKeysForADay(t *testing.T) {
	k := &keys{id: "AKID", secret: "secret", token: "token"}
	r := &wire{method: "POST", path: "/mcp", lines: []byte("\r\nHost: h"), body: []byte("{}")}
	midnight := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	sign := func(k *keys, s *signer, now time.Time) (lines []string) {
		s.sign(k, now, r, func(name string, value edge.Secret) { lines = append(lines, name+": "+string(value)) })
		return lines
	}
	one, two := &signer{region: "eu-west-1", service: "a"}, &signer{region: "eu-west-2", service: "a"}
	for _, s := range []*signer{one, two, one} {
		for _, now := range []time.Time{midnight.Add(-time.Second), midnight, midnight.Add(-time.Second)} {
			fresh := &keys{id: k.id, secret: k.secret, token: k.token}
			got, want := sign(k, s, now), sign(fresh, &signer{region: s.region, service: s.service}, now)
			if !slices.Equal(got, want) || len(got) != len(signed) {
				t.Errorf("%s %s: %q, want %q", s.region, now, got, want)
			}
		}
	}
	same := k.day.Load()
	sign(k, one, midnight.Add(-time.Second))
	if k.day.Load() != same {
		t.Error("the key of a day was worked out again")
	}
}

// FuzzCanonical holds the canonical request to one that is written with the libraries, and
// to its form: nothing that a request has can add a line to it.
func FuzzCanonical(f *testing.F) {
	f.Add("/a//../%2F b", "b=+&a=%zz&&c", "\r\nA: 1\r\nb:  2 3\r\nA: 4", []byte("{}"), true)
	f.Add("", "ሴ=\n", "\r\n: \r\n\r\n", []byte(nil), false)
	f.Fuzz(func(t *testing.T, path, query, lines string, body []byte, normalize bool) {
		var p signPad
		sum := sha256.Sum256(body)
		hex.Encode(p.digest[:], sum[:])
		r := &wire{method: "POST", path: path, query: query, lines: []byte(lines), body: body}
		names := string(p.canonical(r, "T", "token", normalize, true))
		part := strings.Split(string(p.text), "\n")
		list := strings.Split(names, ";")
		// Names hold no line break in what is sent, which is the one thing that is assumed.
		if strings.Contains(names, "\n") || strings.Contains(names, ";;") || strings.ContainsAny(lines, ";") {
			return
		}
		if len(part) != 5+len(list)+1 || part[len(part)-1] != hex.EncodeToString(sum[:]) || part[len(part)-2] != names {
			t.Fatalf("%q", p.text)
		}
		if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Errorf("headers %q", list)
		}
		for i, name := range list {
			if value, ok := strings.CutPrefix(part[3+i], name+":"); !ok || strings.Contains(value, "  ") {
				t.Errorf("line %q of header %q", part[3+i], name)
			}
		}
		if want := slowPath(path, normalize); part[1] != want {
			t.Errorf("path %q: %q, want %q", path, part[1], want)
		}
		if want := slowQuery(query); part[2] != want {
			t.Errorf("query %q: %q, want %q", query, part[2], want)
		}
	})
}

func slowPath(path string, normalize bool) string {
	var all []string
	for _, s := range strings.Split(path, "/") {
		switch {
		case !normalize || s != "" && s != "." && s != "..":
			all = append(all, slowEscape(s))
		case s == ".." && len(all) > 0:
			all = all[:len(all)-1]
		}
	}
	text := strings.Join(all, "/")
	if !normalize {
		if text == "" {
			return "/"
		}
		return text
	}
	if text = "/" + text; strings.HasSuffix(path, "/") && text != "/" {
		text += "/"
	}
	return text
}

func slowEscape(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}

func slowQuery(query string) string {
	var all [][2]string
	for _, pair := range strings.Split(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		all = append(all, [2]string{slowRecode(name), slowRecode(value)})
	}
	slices.SortFunc(all, func(a, b [2]string) int { return strings.Compare(a[0]+"\x00"+a[1], b[0]+"\x00"+b[1]) })
	var text []string
	for _, p := range all {
		text = append(text, p[0]+"="+p[1])
	}
	return strings.Join(text, "&")
}

// slowRecode has an escape that is none stand for itself.
func slowRecode(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		return slowEscape(plain)
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if i+3 <= len(s) {
			if plain, err := url.QueryUnescape(s[i : i+3]); s[i] == '%' && err == nil {
				fmt.Fprint(&b, slowEscape(plain))
				i += 2
				continue
			}
		}
		fmt.Fprint(&b, slowEscape(strings.ReplaceAll(s[i:i+1], "+", " ")))
	}
	return b.String()
}

func BenchmarkSign(b *testing.B) {
	s, k, r, set := signing()
	b.ReportAllocs()
	for b.Loop() {
		s.sign(k, time.Now(), r, set)
	}
}

func signing() (*signer, *keys, *wire, func(string, edge.Secret)) {
	lines := "\r\nHost: tools.example.com\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 1024\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: search\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	return &signer{region: "eu-west-1", service: "cloud-mcp"}, &keys{id: "AKIDEXAMPLE", secret: "wJalrXUtnFEMI", token: edge.Secret(strings.Repeat("t", 900))},
		&wire{method: "POST", path: "/mcp", lines: []byte(lines), body: []byte(strings.Repeat("x", 1024))}, func(string, edge.Secret) {}
}
