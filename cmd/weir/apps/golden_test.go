package apps

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the golden files")

// place is a system with a home directory, for tests.
func place(t testing.TB, system string) Place {
	home := t.TempDir()
	return Place{System: system, Program: "/opt/weir/bin/weir", Lookup: func(name string) (string, bool) {
		value, ok := map[string]string{"HOME": home}[name]
		return value, ok
	}}
}

// keeperOf is a keeper of clients for which there is a program.
func keeperOf(t testing.TB, name string) (k *Keeper, app App, file string) {
	t.Helper()
	system := runtime.GOOS
	if name == "claude-desktop" {
		system = "darwin"
	}
	k = &Keeper{Dir: t.TempDir(), Place: place(t, system)}
	app, ok := Named(name)
	if !ok {
		t.Fatal(name)
	}
	file, err := app.File(k.Place)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	k.pause = func() { _ = os.Chtimes(file, time.Time{}, time.Now().Add(-settled)) } // nobody writes it
	return k, app, file
}

func on(name, port string) Server {
	return Server{Name: name, URL: "http://127.0.0.1:" + port + "/mcp", Group: "default", Wish: On}
}

// two are servers of which the second one sorts before the first.
var two = []Server{on("search", "20002"), on("files", "20001")}

// must fails the test where a client was not changed.
func must(t testing.TB, reports []Report, err error) []Report {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return reports
}

func read(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// forms are ways in which the same text may lie in a file.
var forms = map[string]func(string) string{
	"as it is":    func(s string) string { return s },
	"CRLF":        func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
	"a mark":      func(s string) string { return "\ufeff" + s },
	"tabs":        tabbed,
	"no last end": func(s string) string { return strings.TrimSuffix(s, "\n") },
}

// tabbed has a tab for every two spaces at the beginning of a line.
func tabbed(s string) string {
	var out strings.Builder
	for line := range strings.Lines(s) {
		rest := strings.TrimLeft(line, " ")
		out.WriteString(strings.Repeat("\t", (len(line)-len(rest))/2) + strings.Repeat(" ", (len(line)-len(rest))%2) + rest)
	}
	return out.String()
}

// TestGolden holds what setup makes of the configuration of each client, in all forms, that
// remove gives back every byte of it, and that another parser reads it.
func TestGolden(t *testing.T) {
	for _, app := range All() {
		golden := filepath.Join("testdata", app.Name+".txtar")
		archive, err := txtar.ParseFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			k, _, file := keeperOf(t, app.Name)
			before := string(archive.Files[0].Data)
			write(t, file, before)
			reports, err := k.Setup([]string{app.Name}, Scope{}, known(two...))
			must(t, reports, err)
			archive.Files = []txtar.File{archive.Files[0], {Name: "after", Data: []byte(read(t, file))}}
			if err := os.WriteFile(golden, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		before, after := string(archive.Files[0].Data), string(archive.Files[1].Data)
		for form, formed := range forms {
			t.Run(app.Name+"/"+form, func(t *testing.T) {
				k, app, file := keeperOf(t, app.Name)
				write(t, file, formed(before))
				reports, err := k.Setup([]string{app.Name}, Scope{}, known(two...))
				must(t, reports, err)
				want := formed(after)
				if form == "no last end" && app.Syntax == "toml" {
					want = after // a table can only be added on a line of its own
				}
				if got := read(t, file); got != want {
					t.Fatalf("got\n%q\nwant\n%q", got, want)
				}
				if app.Syntax == "toml" {
					readByAnother(t, file)
				}
				if got := read(t, file+".weir.bak"); got != formed(before) {
					t.Errorf("the backup is %q", got)
				}
				reports, err = k.Remove([]string{app.Name})
				must(t, reports, err)
				got, want := read(t, file), formed(before)
				switch {
				case app.Name == "zed": // what was made for servers stays
					want = strings.Replace(formed(before), `} }`, `} },`+newline([]byte(want))+indentOf(form)+`"context_servers": {}`, 1)
				case app.Syntax == "toml" && form == "no last end":
					want = before
				}
				if got != want {
					t.Errorf("after remove\n%q\nwant\n%q", got, want)
				}
			})
		}
	}
}

func indentOf(form string) string {
	if form == "tabs" {
		return "\t"
	}
	return "  "
}

// readByAnother reads TOML by a parser that is not the one that wrote it.
func readByAnother(t *testing.T, file string) {
	t.Helper()
	var all struct {
		Servers map[string]struct{ URL string } `toml:"mcp_servers"`
	}
	if _, err := toml.Decode(strings.TrimPrefix(read(t, file), "\ufeff"), &all); err != nil {
		t.Fatal(err)
	}
	for _, s := range two {
		if got := all.Servers[s.Name].URL; got != s.URL {
			t.Errorf("%s is %q", s.Name, got)
		}
	}
	if all.Servers["docs"].URL == "" {
		t.Error("the server that was there is lost")
	}
}

// TestFiles holds where the configuration of each client lies on each system.
func TestFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("absolute paths are others there")
	}
	var got bytes.Buffer
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, set := range []string{"", "CLAUDE_CONFIG_DIR CODEX_HOME XDG_CONFIG_HOME APPDATA"} {
			p := Place{System: system, Lookup: func(name string) (string, bool) {
				switch {
				case name == "HOME" || name == "USERPROFILE" && system == "windows":
					return "/home/u", true
				case strings.Contains(set, name):
					return "/" + name, true
				}
				return "", false
			}}
			for _, app := range All() {
				file, err := app.File(p)
				if err != nil {
					file = err.Error()
				}
				got.WriteString(strings.TrimSpace(system+" "+set) + ": " + app.Name + ": " + filepath.ToSlash(file) + "\n")
			}
		}
	}
	golden := filepath.Join("testdata", "files.txt")
	if *update {
		write(t, golden, got.String())
	}
	if want := read(t, golden); got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
	for name, p := range map[string]Place{"none": {System: "linux"}, "relative": {System: "linux"}} {
		p.Lookup = func(string) (string, bool) { return map[string]string{"relative": "x"}[name], true }
		app, _ := Named("cursor")
		if file, err := app.File(p); err == nil || !strings.Contains(err.Error(), "HOME") {
			t.Errorf("with HOME %s it is %q, %v", name, file, err)
		}
	}
}
