// Package apps writes workloads into the configurations of MCP clients, and takes them out
// again. It changes its own entries alone: every other byte of a file stays.
//
// apps.json says which clients there are, where their files lie and how an entry looks;
// apps.go reads it. keeper.go decides what becomes of each entry, and remembers which are
// ours (owned.go). json.go and toml.go put entries into a text and take them out, edit.go
// proves that nothing else has changed, and file.go replaces a file so that it is whole at
// any time.
package apps

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
)

//go:embed apps.json
var appsJSON []byte

// App is an MCP client whose configuration is known: a row of apps.json.
type App struct {
	Name   string              `json:"name"`
	Title  string              `json:"title"`  // for people
	Syntax string              `json:"syntax"` // of its file: json (comments and trailing commas allowed) or toml
	Key    string              `json:"key"`    // the member of the top that has the servers
	Files  map[string][]string `json:"files"`  // by system (GOOS), or any: the first counts whose variable is set
	Entry  [][2]any            `json:"entry"`  // names and values, in order: text, or an array of texts
}

var table = sync.OnceValue(func() []App {
	var all []App
	d := json.NewDecoder(bytes.NewReader(appsJSON))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		panic("apps.json: " + err.Error()) // it is part of the program, and a test reads it
	}
	return all
})

// All are the clients that are known, in the order in which they are shown.
func All() []App { return table() }

// Named finds a client by its name.
func Named(name string) (App, bool) {
	for _, a := range table() {
		if a.Name == name {
			return a, true
		}
	}
	return App{}, false
}

// Place is what files and entries depend on, beside the workload.
type Place struct {
	System  string                                    // GOOS
	Lookup  func(name string) (value string, ok bool) // finds a variable of the environment
	Program string                                    // the absolute path of weir
	Env     map[string]string                         // what weir needs to find its workloads; none where it needs nothing
}

// home is the user's home directory; "" where it is not known.
func (p Place) home() string {
	home, _ := p.Lookup("HOME")
	if other, _ := p.Lookup("USERPROFILE"); p.System == "windows" && other != "" {
		home = other
	}
	if !filepath.IsAbs(home) {
		return ""
	}
	return home
}

// File is where the configuration of a client lies. The error says that there is no such
// program for the system, or which variable is not set.
func (a App) File(p Place) (string, error) {
	candidates, ok := a.Files[p.System]
	if !ok {
		candidates = a.Files["any"]
	}
	if len(candidates) == 0 {
		var systems []string
		for _, s := range []string{"darwin", "linux", "windows"} {
			if a.Files[s] != nil {
				systems = append(systems, map[string]string{"darwin": "macOS", "linux": "Linux", "windows": "Windows"}[s])
			}
		}
		return "", &Error{Kind: Absent, Text: fmt.Sprintf("there is no %s for this system, but for %s", a.Title, strings.Join(systems, " and ")), Next: "`weir client apps` lists those that there are"}
	}
	for _, c := range candidates {
		root, rest, _ := strings.Cut(c, "/")
		dir := p.home()
		if name, variable := strings.CutPrefix(root, "$"); variable {
			if dir, _ = p.Lookup(name); !filepath.IsAbs(dir) {
				continue
			}
		}
		if dir != "" {
			return filepath.Join(dir, filepath.FromSlash(rest)), nil
		}
	}
	return "", &Error{Text: "HOME is not set, or is no absolute path: where " + a.Title + " keeps its configuration is not known", Next: "set HOME"}
}

// entry is what stands in a configuration for a server: names and values, in order. A value
// is a string, a []string or a map[string]string.
type entry []field

type field struct {
	name  string
	value any
}

// entryOf makes the entry of a server. A URL that could hold a credential is refused: no
// token is ever written.
func (a App) entryOf(p Place, s Server) (entry, error) {
	if u, err := url.Parse(s.URL); err != nil || u.User != nil || u.RawQuery != "" || u.Host == "" {
		return nil, &Error{Text: fmt.Sprintf("%s: its URL is none that is written into files: it has to be without a user, a password and a query", s.Name)}
	}
	fill := strings.NewReplacer("{url}", s.URL, "{name}", s.Name, "{weir}", p.Program, "{type}", s.Type).Replace
	var e entry
	for _, pair := range a.Entry {
		f := field{name: pair[0].(string)}
		switch v := pair[1].(type) {
		case string:
			if v != "{env}" {
				f.value = fill(v)
				break
			}
			if len(p.Env) == 0 {
				continue
			}
			f.value = p.Env
		case []any:
			var words []string
			for _, word := range v {
				words = append(words, fill(word.(string)))
			}
			f.value = words
		}
		e = append(e, f)
	}
	return e, nil
}

// plain is the entry as a parser would read it.
func (e entry) plain() map[string]any {
	all := map[string]any{}
	for _, f := range e {
		switch v := f.value.(type) {
		case string:
			all[f.name] = v
		case []string:
			var words []any
			for _, word := range v {
				words = append(words, word)
			}
			all[f.name] = words
		case map[string]string:
			inner := map[string]any{}
			for name, value := range v {
				inner[name] = value
			}
			all[f.name] = inner
		}
	}
	return all
}

// listed is the row of "weir list --format mcpservers", which is the configuration of no
// client in particular.
var listed = App{Name: "mcpservers", Syntax: "json", Key: "mcpServers", Entry: [][2]any{{"url", "{url}"}, {"type", "{type}"}}}

// Document is a configuration of servers alone, in JSON: what most clients read.
func Document(servers []Server) ([]byte, error) {
	changes := map[string]entry{}
	for _, s := range servers {
		e, err := listed.entryOf(Place{}, s)
		if err != nil {
			return nil, err
		}
		changes[s.Name] = e
	}
	return edited(syntaxOf(listed.Syntax), []byte("{\n  \"mcpServers\": {}\n}\n"), listed.Key, changes)
}

// Kind is what an Error is about.
type Kind int

// Kinds of errors.
const (
	Broken Kind = iota // a file cannot be read or written, or is none of its kind
	Absent             // there is no such program for the system
)

// Error is an error for the user. It holds nothing that stands in a file.
type Error struct {
	Kind Kind
	File string
	Line int // of the file, from 1; 0 where it is about none
	Text string
	Next string // what to do
}

func (e *Error) Error() string {
	text := e.Text
	switch {
	case e.Line > 0:
		text = fmt.Sprintf("%s:%d: %s", e.File, e.Line, text)
	case e.File != "":
		text = e.File + ": " + text
	}
	return text
}
