package registry

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge/mcp"
)

// seeds are the texts of testdata, and some that went wrong once.
func seeds(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		`{"servers":[{"server":{"name":"a.b/c","description":"d","version":"1","packages":[{"registryType":"npm","identifier":"x","transport":{"type":"sse","url":"http://localhost:{PORT}/sse"},"environmentVariables":[{"name":"PORT","default":"1"}]}]},"_meta":{}}],"metadata":{"nextCursor":"n"}}`,
		`{"name":"a.b/c","version":"1","remotes":[{"type":"sse","url":"https://{h}/x","variables":{"h":{"default":"127.0.0.1"}},"headers":[{"name":"A","value":"{t}","variables":{"t":{"isSecret":true,"isRequired":true}}}]}]}`,
		`{"remote_servers":{"a":{"url":"https://a.example","transport":"sse"}}}`, `{"servers":{"a/b":null}}`, `{"data":{"servers":[null,1,"x"]}}`,
	} {
		f.Add([]byte(text))
	}
}

// FuzzRead: whatever a registry says, reading it ends, is bounded, and what is made of it can
// be read again and says the same.
func FuzzRead(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := read(text)
		if err != nil {
			clean(t, err.Error())
			return
		}
		if len(d.servers) > MaxEntries {
			t.Fatal("too many entries")
		}
		made, n, _, err := Convert(text, time.Unix(0, 0))
		if err != nil {
			return
		}
		again, m, _, err := Convert(made, time.Unix(0, 0))
		if err != nil || n != m || !bytes.Equal(made, again) {
			t.Fatalf("converted again: %d and %d entries, %v\n%s\n%s", n, m, err, made, again)
		}
	})
}

// FuzzEntry: whatever a server.json says, what is started is one of a few commands with the
// words of the entry behind them, or a URL that may be dialled; and nothing that is shown
// steers a terminal.
func FuzzEntry(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if mcp.Valid(text) != nil {
			return
		}
		for _, one := range append([]json.RawMessage{text}, servers(text)...) {
			e, err := parse(one)
			if err != nil {
				clean(t, err.Error())
				continue
			}
			clean(t, e.Name+e.Title+e.Description+e.Version+e.Repository+e.Website)
			for _, form := range e.Forms(rules) {
				clean(t, form.Field+form.Type+form.Text)
				if form.Err != nil {
					clean(t, form.Err.Error())
					continue
				}
				for _, in := range form.Inputs() {
					clean(t, in.Name+in.Description+in.Default)
				}
				asked := map[string]string{}
				s, missing, err := form.Fill(e, Given{}, nil, rules)
				for _, m := range missing {
					clean(t, m.Label+m.Description)
					asked[m.ID] = "7"
				}
				if len(missing) > 0 {
					s, missing, err = form.Fill(e, Given{}, asked, rules)
				}
				if err != nil {
					clean(t, err.Error())
					continue
				}
				if len(missing) > 0 || s == nil {
					t.Fatalf("asked for all, and missing are %+v", missing)
				}
				holds(t, s)
			}
		}
	})
}

// servers are the entries in a text, if it is a registry.
func servers(text []byte) []json.RawMessage {
	d, err := read(text)
	if err != nil {
		return nil
	}
	return d.servers
}

// clean fails where a text could steer a terminal.
func clean(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x202e }) {
		t.Fatalf("shown: %q", text)
	}
}

// holds fails where what is started is something that no entry may have started.
func holds(t *testing.T, s *Start) {
	t.Helper()
	switch {
	case s.Image != "":
		if s.URL != "" || !imagePattern.MatchString(s.Image) {
			t.Fatalf("%+v", s)
		}
	case s.URL != "":
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "https" || u.User != nil || notPublic(u.Hostname()) || s.Private || len(s.Command) > 0 {
			t.Fatalf("%+v", s)
		}
	case len(s.Command) >= 3 && s.Command[0] == "npx" && s.Command[1] == "-y" && !strings.HasPrefix(s.Command[2], "-"):
	case len(s.Command) >= 2 && s.Command[0] == "uvx" && !strings.HasPrefix(s.Command[1], "-"):
	default:
		t.Fatalf("%+v", s)
	}
	for _, v := range append(s.Env, s.Headers...) {
		if strings.ContainsAny(v.Name+v.Value, "\x00\r\n") || risky(v.Name) || strings.Contains(strings.ToLower(v.Name), "https_proxy") {
			t.Fatalf("%+v", v)
		}
	}
	for _, word := range s.Command {
		if strings.ContainsRune(word, 0) {
			t.Fatalf("%q", word)
		}
	}
}
