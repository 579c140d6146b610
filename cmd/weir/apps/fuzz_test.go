package apps

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/tailscale/hujson"
)

// seeds are the texts of the golden pairs, of one syntax.
func seeds(f *testing.F, syntax string) {
	for _, app := range All() {
		if app.Syntax != syntax {
			continue
		}
		data, err := os.ReadFile(filepath.Join("testdata", app.Name+".txtar"))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range txtar.Parse(data).Files {
			for _, formed := range forms {
				f.Add([]byte(formed(string(file.Data))), app.Key)
			}
		}
	}
}

// spaceless is a text without spaces and ends of lines.
func spaceless(text []byte) string { return strings.Join(strings.Fields(string(text)), "") }

// inside reports whether all bytes of a text stand in another one, in their order.
func inside(small, large string) bool {
	for i := 0; i < len(large) && small != ""; i++ {
		if large[i] == small[0] {
			small = small[1:]
		}
	}
	return small == ""
}

// comments are those of a text of JSON, in order.
func comments(text []byte) (all []string) {
	v, err := hujson.Parse(readable(text))
	if err != nil { // there are comments alone
		if v, err = hujson.Parse(append(readable(text), "{}"...)); err != nil {
			return nil
		}
	}
	v.Standardize()
	plain := v.Pack() // has spaces where comments and some commas were
	for i, c := range readable(text) {
		if i >= len(bom) && c != plain[i] && c != ',' {
			all = append(all, string(c))
		}
	}
	return all
}

var fuzzed = map[string]entry{
	"files":   {{"url", "http://127.0.0.1:1/mcp"}, {"args", []string{"a", "\"b\""}}},
	"fi les":  {{"command", "weir"}, {"env", map[string]string{"A": "b\n"}}},
	"files-2": {{"url", "http://127.0.0.1:2/mcp"}},
}

// FuzzJSON: what is valid stays valid, every other value and every comment stays, and what was
// put in comes out again.
func FuzzJSON(f *testing.F) {
	seeds(f, "json")
	for _, text := range []string{`{}`, `{"k":{}}`, `{"k":{"a":1,},}`, "{\"k\": { // x\n}}", "{\"k\":{\"files\":1 /**/ , /* b */ \"z\":2}}", "//", "{\"a\":1 // x\n}", "{\"k\":{\"a\":1, // x\n\"b\":2}}//"} {
		f.Add([]byte(text), "k")
	}
	f.Fuzz(func(t *testing.T, data []byte, key string) { anyText(t, data, key, "json") })
}

// FuzzTOML is FuzzJSON for TOML, of which some forms cannot be added to.
func FuzzTOML(f *testing.F) {
	seeds(f, "toml")
	for _, text := range []string{"", "k = {}", "[k]\nfiles.url = 'x'", "[k.files]\nurl = 1 # x\n", "[[k.files]]", "a = nan\nb = 1979-05-27T07:32:00-08:00", "[k.files]\nurl = '''\nx'''"} {
		f.Add([]byte(text), "k")
	}
	f.Fuzz(func(t *testing.T, data []byte, key string) { anyText(t, data, key, "toml") })
}

func anyText(t *testing.T, data []byte, key, name string) {
	if name == "toml" && !bareKey.MatchString(key) || len(data) > 1<<16 || bytes.ContainsRune([]byte(key), '\ufffd') {
		return
	}
	s := syntaxOf(name)
	before, err := s.read(data)
	if err != nil {
		return
	}
	given := bytes.Clone(data)
	var names []string
	in := map[string]entry{}
	for name, e := range fuzzed {
		names = append(names, name)
		switch at, err := before.find(key, name); {
		case err != nil:
			return // such as servers that are no object
		case at.there && !at.plain: // is somebody else's
		default:
			in[name] = e
		}
	}
	out, err := edited(s, data, key, in)
	if !bytes.Equal(data, given) {
		t.Fatal("the text that was given has changed")
	}
	if err != nil {
		if name == "json" {
			t.Fatalf("%q: %v", data, err)
		}
		return
	}
	after, err := s.read(out)
	if err != nil {
		t.Fatalf("%q has become %q: %v", data, out, err)
	}
	if !same(without(before.all, key, names), without(after.all, key, names)) {
		t.Fatalf("%q has become %q", data, out)
	}
	fresh := true // no entry took the place of another one
	for name, e := range in {
		at, err := after.find(key, name)
		if err != nil || !at.plain || !same(at.value, e.plain()) {
			t.Fatalf("%q has become %q, where %s is %v, %v", data, out, name, at, err)
		}
		was, _ := before.find(key, name)
		fresh = fresh && !was.there
	}
	if fresh && !inside(spaceless(data), spaceless(out)) {
		t.Fatalf("%q has become %q, where something is lost", data, out)
	}
	gone := map[string]entry{}
	for name := range in {
		gone[name] = nil
	}
	last, err := edited(s, out, key, gone)
	if err != nil {
		t.Fatalf("%q has become %q, and nothing comes out of it: %v", data, out, err)
	}
	end, err := s.read(last)
	if err != nil || !same(without(before.all, key, names), without(end.all, key, names)) {
		t.Fatalf("%q has become %q, and then %q: %v", data, out, last, err)
	}
	if got, want := strings.Join(strings.Fields(strings.Join(comments(last), "")), ""), strings.Join(strings.Fields(strings.Join(comments(data), "")), ""); name == "json" && fresh && got != want {
		t.Fatalf("%q has become %q, and then %q: its comments are %q, and were %q", data, out, last, got, want)
	}
}
