package registry

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := file(t, name); string(want) != string(got) {
		t.Errorf("%s is not what it was; got\n%s", name, got)
	}
}

// The older flat format becomes the reference's, which says the same of each server.
func TestConvert(t *testing.T) {
	made, n, left, err := Convert(file(t, "flat.json"), time.Now())
	if err != nil || n != 3 || len(left) > 0 {
		t.Fatal(n, left, err)
	}
	golden(t, "upstream.json", made)

	// The same once more changes nothing, and no entry is another one.
	again, _, _, err := Convert(made, time.Now())
	if err != nil || string(again) != string(made) {
		t.Errorf("converted twice: %v\n%s", err, again)
	}
	before, after := entries(t, string(file(t, "flat.json"))), entries(t, string(made))
	for name, e := range before {
		if after[name] == nil || after[name].Digest() != e.Digest() {
			t.Errorf("%s: another digest", name)
		}
	}

	// What stands for nothing there is kept below the publisher.
	e := after["io.github.stacklok/tickets"]
	if !strings.Contains(string(e.Text), `"custom_metadata":{"owner":"desk"}`) && !strings.Contains(strings.ReplaceAll(strings.ReplaceAll(string(e.Text), " ", ""), "\n", ""), `"custom_metadata":{"owner":"desk"}`) {
		t.Errorf("custom_metadata is lost: %s", e.Text)
	}
	made, _, _, err = Convert([]byte(`{"servers":{"a":{"name":"a","image":"x","transport":"stdio","target_port":9090,"headers":[{"name":"X-A"}]},"b":{"name":"other","image":"y","transport":"sse","target_port":9091}},`+
		`"remote_servers":{"c":{"url":"https://c.example/mcp","transport":"sse","image":"ghcr.io/example/z","target_port":9092,"headers":[{"name":"X-B"}]}}}`), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	compact := strings.NewReplacer(" ", "", "\n", "").Replace(string(made))
	for _, once := range []string{`"target_port":9090`, `"headers":[{"name":"X-A"}]`, `"name":"other"`, `"image":"ghcr.io/example/z"`, `"target_port":9092`, `"http://localhost:9091"`, `"name":"X-B"`} {
		if strings.Count(compact, once) != 1 {
			t.Errorf("%s is there %d times: %s", once, strings.Count(compact, once), made)
		}
	}
	if strings.Contains(compact, `"target_port":9091`) || strings.Contains(compact, `"name":"a"`) || strings.Contains(compact, `"image":"x"`) {
		t.Errorf("something is there twice: %s", made)
	}

	for text, want := range map[string]string{
		`{"servers":{},"groups":[{"name":"g"}]}`:            "[groups]",
		`{"data":{"servers":[],"skills":[{"name":"s"}]}}`:   "[data.skills]",
		`{"data":{"servers":null,"groups":null}}`:           "[]",
		`{"servers":null,"metadata":{"count":0}}`:           "[]",
		`{"servers":null,"remote_servers":{},"groups":[1]}`: "[groups]",
	} {
		if _, _, left, err := Convert([]byte(text), time.Now()); err != nil || fmt.Sprint(left) != want {
			t.Errorf("%s: %s, %v", text, left, err)
		}
	}
	for text, want := range map[string]string{
		`{"servers":[{"server":{"name":"a.b/c","description":"d","version":"1"},"_meta":{}}],"metadata":{"nextCursor":"more"}}`: "1 it is one page of several",
		`{"name":"bad name","description":"d","version":"1"}`:                                                                   "0 entry 1: name: \"bad name\" is not NAMESPACE/NAME",
		`{"a":1}`: "0 neither a registry nor a server.json: it has \"a\"",
		`[1]`:     "0 no JSON that can be read: not an object",
		``:        "0 no JSON that can be read",
	} {
		if _, _, _, err := Convert([]byte(text), time.Now()); err == nil || !strings.HasPrefix(said(err), want) {
			t.Errorf("%s: %s", text, said(err))
		}
	}
}

// What an entry says of images, signers and permissions is kept, for whoever starts them.
func TestEntryKeepsWhatItSays(t *testing.T) {
	e := entries(t, string(file(t, "flat.json")))["io.github.stacklok/tickets"]
	p := e.Packages[0]
	if p.Image() != "ghcr.io/example/tickets:1.4.2" || p.Extra.Provenance == nil || p.Extra.Provenance.SignerIdentity != "/.github/workflows/release.yml" || p.Extra.Provenance.CertIssuer != "https://token.actions.githubusercontent.com" {
		t.Errorf("%s, %+v", p.Image(), p.Extra.Provenance)
	}
	if f := e.Forms(rules)[0]; !strings.Contains(string(f.profile), `".desk.example.com"`) {
		t.Errorf("permissions: %s", f.profile)
	}
	if tags, tools := e.Tags(), e.Tools(); !slices.Equal(tags, []string{"support", "tickets"}) || !slices.Equal(tools, []string{"find_ticket", "answer"}) {
		t.Error(tags, tools)
	}
	digest := entryOf(t, `"packages":[{"registryType":"oci","identifier":"a.example/b@sha256:`+strings.Repeat("a", 64)+`","version":"1","transport":{"type":"stdio"}}]`)
	if got := digest.Packages[0].Image(); got != "a.example/b@sha256:"+strings.Repeat("a", 64) {
		t.Errorf("the digest of an image: %s", got)
	}
}

// The digest of an entry is the same wherever it was read, and another for another entry.
func TestDigest(t *testing.T) {
	one := `{"name":"a.b/c","description":"d","version":"1","_meta":{"x":{"y":1}}}`
	e := entries(t, one)["a.b/c"]
	for name, text := range map[string]string{
		"blanks and order": `{ "version": "1", "_meta": {"x": {"y": 1}}, "description": "d", "name": "a.b/c" }`,
		"by the API":       `{"servers":[{"server":` + one + `,"_meta":{"io.modelcontextprotocol.registry/official":{"status":"active","isLatest":true}}}],"metadata":{}}`,
		"by the reference": `{"data":{"servers":[` + one + `]}}`,
	} {
		if got := entries(t, text)["a.b/c"].Digest(); got != e.Digest() || !strings.HasPrefix(got, "sha256:") || len(got) != 71 {
			t.Errorf("%s: %s, and not %s", name, got, e.Digest())
		}
	}
	if other := entries(t, strings.Replace(one, `"y":1`, `"y":2`, 1))["a.b/c"].Digest(); other == e.Digest() {
		t.Error("another entry has the same digest")
	}
}

// A hostile text is refused as a whole, or the entry that is wrong by itself (K22).
func TestK22Bounds(t *testing.T) {
	million := `{"data":{"servers":[` + strings.Repeat(`{},`, 1_000_000-1) + `{}]}}`
	var flat strings.Builder
	flat.WriteString(`{"servers":{"s":{}`)
	for i := range MaxEntries {
		fmt.Fprintf(&flat, `,"s%d":{}`, i)
	}
	flat.WriteString(`}}`)
	for name, c := range map[string]struct{ text, want string }{
		"10⁶ entries":                 {million, "more than 100000 entries"},
		"10⁶ entries of a page":       {`{"servers":[` + strings.Repeat(`{},`, 1_000_000-1) + `{}]}`, "more than 100000 entries"},
		"entries of the older format": {flat.String(), "more than 100000 entries"},
		"more than 64 MiB":            {`{"data":{"servers":[]},"x":"` + strings.Repeat("x", MaxBytes) + `"}`, "more than 64 MiB"},
		"nested too deep":             {`{"data":{"servers":[` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `]}}`, "nested too deep"},
		"a name twice":                {`{"data":{"servers":[]},"data":{"servers":[]}}`, "no JSON that can be read"},
		"a cursor without end":        {`{"servers":[],"metadata":{"nextCursor":"` + strings.Repeat("x", 5000) + `"}}`, "no cursor"},
		"no UTF-8":                    {"{\"data\":{\"servers\":[]},\"x\":\"\xff\"}", "no JSON that can be read"},
	} {
		began := time.Now()
		if _, err := read([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s: it took %s", name, took)
		}
	}

	many := func(one string, n int) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	for name, c := range map[string]struct{ entry, want string }{
		"no object":             {`[1]`, "an entry is no object"},
		"no name":               {`{"description":"x"}`, `name: "" is not NAMESPACE/NAME`},
		"a name with escapes":   {"{\"name\":\"a.b/c\\u001b[2J\"}", "is not NAMESPACE/NAME"},
		"a name like an option": {`{"name":"--help"}`, "is not NAMESPACE/NAME"},
		"a name of a path":      {`{"name":"../../etc/passwd"}`, "is not NAMESPACE/NAME"},
		"a long name":           {`{"name":"a/` + strings.Repeat("b", 300) + `"}`, "is not NAMESPACE/NAME"},
		"another type":          {`{"name":"a.b/c","packages":[{"identifier":7}]}`, "packages.identifier: a value of another type belongs here"},
		"a long entry":          {`{"name":"a.b/c","description":"` + strings.Repeat("x", maxEntry) + `"}`, "more than 256 KiB"},
		"many packages":         {`{"name":"a.b/c","packages":[` + many(`{}`, 257) + `]}`, "more than 256 packages or remotes"},
		"many variables":        {`{"name":"a.b/c","packages":[{"environmentVariables":[` + many(`{"name":"A"}`, 257) + `]}]}`, "environmentVariables: more than 256"},
		"a long value":          {`{"name":"a.b/c","packages":[{"environmentVariables":[{"name":"A","value":"` + strings.Repeat("x", 5000) + `"}]}]}`, "more than 4096 bytes"},
		"variables in them":     {`{"name":"a.b/c","remotes":[{"type":"sse","url":"https://a.example","variables":{"v":{"variables":{"w":{}}}}}]}`, "a variable has none of its own"},
		"a NUL byte":            {`{"name":"a.b/c","packages":[{"packageArguments":[{"value":"a\u0000b"}]}]}`, "a value with a NUL byte"},
	} {
		if _, err := parse([]byte(c.entry)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		} else if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
			t.Errorf("%s: control characters in %q", name, err)
		}
	}
}

// One entry that cannot be right costs that entry, and is counted; where none is right the
// registry is not.
func TestBrokenEntriesAreLeftOut(t *testing.T) {
	good := json.RawMessage(`{"name":"a.b/good","description":"d","version":"1"}`)
	r, err := Source{At: "/x"}.build(&kept{Pages: []page{{Servers: []json.RawMessage{[]byte(`{"name":7}`), good, []byte(`{"name":"no"}`)}}}})
	if err != nil || len(r.Entries) != 1 || r.LeftOut != 2 || len(r.Reasons) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	// Who asks for one that was left out is told why: it is not taken for something else.
	r, err = Source{At: "/x"}.build(&kept{Pages: []page{{Servers: []json.RawMessage{good, []byte(`{"name":"a.b/bad","packages":7}`), []byte(`{"name":7}`)}}}})
	if err != nil {
		t.Fatal(err)
	}
	for word, kind := range map[string]Kind{"a.b/bad": Invalid, "bad": Invalid, "b/bad": NotFound, "7": NotFound, "": NotFound} {
		var known *Error
		if _, err := r.Find(word); !errors.As(err, &known) || known.Kind != kind || kind == Invalid && (!strings.Contains(known.Message, `"a.b/bad" of the registry cannot be right: `) || !strings.Contains(known.Message, "packages")) {
			t.Errorf("%q: %v", word, err)
		}
	}
	if _, err := (Source{At: "/x"}).build(&kept{Pages: []page{{Servers: []json.RawMessage{[]byte(`{"name":"no"}`)}}}}); err == nil || !strings.Contains(err.Error(), "none of the servers of /x can be right (1)") {
		t.Error(err)
	}
}

// Of several versions of a name the newest counts; what was deleted is not there.
func TestVersions(t *testing.T) {
	of := func(version, meta string) json.RawMessage {
		return json.RawMessage(`{"name":"a.b/c","description":"d","version":"` + version + `","_meta":{"` + officialMeta + `":{` + meta + `}}}`)
	}
	for name, c := range map[string]struct {
		servers []json.RawMessage
		want    string
	}{
		"the registry says so": {[]json.RawMessage{of("1", `"isLatest":true,"publishedAt":"2025-01-01T00:00:00Z"`), of("2", `"publishedAt":"2026-01-01T00:00:00Z"`)}, "1"},
		"published last":       {[]json.RawMessage{of("1", `"publishedAt":"2026-01-01T00:00:00Z"`), of("2", `"publishedAt":"2025-01-01T00:00:00Z"`)}, "1"},
		"no moment":            {[]json.RawMessage{of("1", ``), of("2", `"publishedAt":"yesterday"`)}, "2"},
		"no moment, 1.10":      {[]json.RawMessage{of("1.10.0", ``), of("1.9.0", ``)}, "1.10.0"},
		"no moment, 1.9":       {[]json.RawMessage{of("1.9.0", ``), of("1.10.0", ``)}, "1.10.0"},
		"one moment":           {[]json.RawMessage{of("2.0.0", `"publishedAt":"2026-01-01T00:00:00Z"`), of("1.0.0", `"publishedAt":"2026-01-01T00:00:00Z"`)}, "2.0.0"},
		"before a release":     {[]json.RawMessage{of("1.0.0", ``), of("1.0.0-rc.1", ``)}, "1.0.0"},
		"no semantic version":  {[]json.RawMessage{of("2026-02", ``), of("2026-01", ``)}, "2026-01"},
		"deleted":              {[]json.RawMessage{of("1", ``), of("2", `"status":"deleted"`)}, "1"},
	} {
		r, err := Source{}.build(&kept{Pages: []page{{Servers: c.servers}}})
		if err != nil || len(r.Entries) != 1 || r.Entries[0].Version != c.want {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// TestVersionsInOrder has the order of Semantic Versioning 2.0.0, §11.
func TestVersionsInOrder(t *testing.T) {
	all := []string{"0.9.0", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "v1.2.0", "1.10.0+build", "1.10.1", "99999999999999999999.0.0"}
	for i, a := range all {
		for j, b := range all {
			if got := compareVersions(a, b); got != cmp.Compare(i, j) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
	for _, other := range []string{"", "1", "1.0", "01.0.0", "latest", "1.0.0 ", "1.0.0-"} {
		if compareVersions("1.0.0", other) != 0 || compareVersions(other, "1.0.0") != 0 {
			t.Errorf("%q is compared", other)
		}
	}
}

// What an entry says is shown without what could steer a terminal.
func TestV41TextIsCleaned(t *testing.T) {
	e := entryOf(t, `"title":"a\u001b[31mred\u202egnp.exe\u200b","packages":[{"registryType":"np\u001b]0;m","identifier":"x\u0007","transport":{"type":"stdio"}}]`)
	f := e.Forms(rules)[0]
	for _, text := range []string{e.Title, f.Type, f.Text, f.Err.Error()} {
		if strings.ContainsAny(text, "\x1b\x07\u202e\u200b") {
			t.Errorf("%q", text)
		}
	}
	if e.Title != "a[31mredgnp.exe" {
		t.Errorf("%q", e.Title)
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{"a\nb\tc  d\r\n": "a b c d", "é – 漢字": "é – 漢字", "\x00\x1b\u009b\u2066x\ufeff": "x", "": ""} {
		if got := Plain(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
