package apps

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// cursor is a keeper with one client, whose file begins as text.
func cursor(t *testing.T, text string) (*Keeper, string) {
	t.Helper()
	k, _, file := keeperOf(t, "cursor")
	if text != "" {
		write(t, file, text)
	}
	return k, file
}

// done is what became of the entries of the one client, as NAME:DONE.
func done(t *testing.T, reports []Report, err error) string {
	t.Helper()
	var all []string
	for _, r := range must(t, reports, err) {
		for _, e := range r.Entries {
			all = append(all, e.Server+":"+string(e.Done))
		}
	}
	return strings.Join(all, " ")
}

func off(s Server) Server  { s.Wish = Off; return s }
func gone(s Server) Server { s.Wish = Gone; return s }

// TestFollow: entries follow start, stop and rm, and a URL that changes.
func TestFollow(t *testing.T) {
	const empty = "{\n  \"mcpServers\": {}\n}\n"
	k, file := cursor(t, empty)
	files, search := on("files", "1"), on("search", "2")
	step := func(want string, f func() ([]Report, error)) {
		t.Helper()
		reports, err := f()
		if got := done(t, reports, err); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	holds := func(want string) {
		t.Helper()
		if got := strings.Join(strings.Fields(read(t, file)), ""); got != `{"mcpServers":{`+want+`}}` {
			t.Errorf("the file has %s, want %s", got, want)
		}
	}
	follow := func(whole bool, servers ...Server) func() ([]Report, error) {
		return func() ([]Report, error) { return k.Follow(known(servers...), whole) }
	}
	step("", follow(true, files)) // nothing is set up
	holds("")
	step("", func() ([]Report, error) { return k.Setup([]string{"cursor"}, Scope{}, known()) })
	step("files:added search:added", follow(true, files, search))
	holds(`"files":{"url":"http://127.0.0.1:1/mcp"},"search":{"url":"http://127.0.0.1:2/mcp"}`)
	step("files:unchanged search:unchanged", follow(true, files, search))
	step("files:removed search:unchanged", follow(true, off(files), search))
	holds(`"search":{"url":"http://127.0.0.1:2/mcp"}`)
	step("files:changed search:unchanged", func() ([]Report, error) {
		if _, err := k.Follow(known(files, search), true); err != nil {
			return nil, err
		}
		return k.Follow(known(on("files", "3"), Server{Name: "search"}), false)
	})
	holds(`"search":{"url":"http://127.0.0.1:2/mcp"},"files":{"url":"http://127.0.0.1:3/mcp"}`)
	step("files:removed search:removed", follow(true)) // both are gone
	if got := read(t, file); got != empty {
		t.Errorf("the file is %q", got)
	}
}

// TestScope: a client has the workloads of its scope, and what an earlier scope gave it goes.
func TestScope(t *testing.T) {
	k, _ := cursor(t, "")
	a, b, c := on("a", "1"), on("b", "2"), on("c", "3")
	b.Group = "work"
	all := []Server{a, b, c}
	for _, step := range []struct {
		scope Scope
		want  string
	}{
		{Scope{Groups: []string{"work"}}, "b:added"},
		{Scope{Groups: []string{"work"}, Workloads: []string{"c"}}, "b:unchanged c:added"},
		{Scope{Workloads: []string{"a"}}, "a:added b:removed c:removed"},
		{Scope{}, "a:unchanged b:added c:added"},
	} {
		reports, err := k.Setup([]string{"cursor"}, step.scope, known(all...))
		if got := done(t, reports, err); got != step.want {
			t.Errorf("%v: %q, want %q", step.scope, got, step.want)
		}
	}
}

// TestHands: what somebody has changed by hand is theirs, in each way in which they can.
func TestHands(t *testing.T) {
	files := on("files", "1")
	const ours = `"files": {
      "url": "http://127.0.0.1:1/mcp"
    }`
	for name, c := range map[string]struct {
		hand  string // in place of ours
		start string // what follows from a start
		stop  string // and from a stop after it
		rm    string // and from a removal after that
	}{
		"nothing":            {ours, "files:unchanged", "files:removed", ""},
		"another layout":     {`"files":{"url":"http://127.0.0.1:1/mcp"}`, "files:unchanged", "files:removed", ""},
		"another spelling":   {`"f\u0069les": {"url": "http:\/\/127.0.0.1:1/mcp"}`, "files:unchanged", "files:removed", ""},
		"another URL":        {`"files": {"url": "http://127.0.0.1:9/mcp"}`, "files:edited", "files:edited", "files:edited"},
		"a header more":      {`"files": {"url": "http://127.0.0.1:1/mcp", "headers": {}}`, "files:edited", "files:edited", "files:edited"},
		"a comment in it":    {`"files": {"url": /* mine */ "http://127.0.0.1:1/mcp"}`, "files:edited", "files:edited", "files:edited"},
		"another type":       {`"files": null`, "files:edited", "files:edited", "files:edited"},
		"it is taken out":    {`"x": 1`, "files:missing", "", ""},
		"a comment above it": {"// mine\n    " + ours, "files:unchanged", "files:removed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			k, file := cursor(t, "")
			reports, err := k.Setup([]string{"cursor"}, Scope{}, known(files))
			must(t, reports, err)
			text := strings.Replace(read(t, file), ours, c.hand, 1)
			write(t, file, text)
			for _, step := range []struct {
				s    Server
				want string
			}{{files, c.start}, {off(files), c.stop}, {gone(files), c.rm}} {
				reports, err := k.Follow(known(step.s), true)
				if got := done(t, reports, err); got != step.want {
					t.Errorf("%v: %q, want %q", step.s.Wish, got, step.want)
				}
			}
			got := read(t, file)
			switch {
			case c.stop != "files:removed" && got != text:
				t.Errorf("what was edited has become %q", got)
			case strings.Contains(c.hand, "// mine") && !strings.Contains(got, "// mine\n"):
				t.Errorf("the comment is lost: %q", got)
			}
		})
	}
}

// TestTakenOutStaysOut: an entry that somebody took out does not come back by a start, and
// does when they ask for it.
func TestTakenOutStaysOut(t *testing.T) {
	k, file := cursor(t, "{}")
	files := on("files", "1")
	setup := func() ([]Report, error) { return k.Setup([]string{"cursor"}, Scope{}, known(files)) }
	reports, err := setup()
	must(t, reports, err)
	write(t, file, "{}")
	for _, s := range []Server{files, off(files), files} {
		reports, err := k.Follow(known(s), true)
		must(t, reports, err)
	}
	if got := read(t, file); got != "{}" {
		t.Errorf("it came back: %q", got)
	}
	reports, err = setup()
	if got := done(t, reports, err); got != "files:added" {
		t.Errorf("asked for it says %q", got)
	}
}

// TestOthers: an entry of the name that we did not write is never changed.
func TestOthers(t *testing.T) {
	files := on("files", "1")
	for text, want := range map[string]string{
		"{\n  // mine\n  \"mcpServers\": {\"files\": {\"url\": \"http://127.0.0.1:9/mcp\"}}\n}": "files:taken search:added",
		"{\n  \"mcpServers\": {\"files\": {\"url\": \"http://127.0.0.1:1/mcp\"}}\n}":            "files:unchanged search:added",
	} {
		k, file := cursor(t, text)
		reports, err := k.Setup([]string{"cursor"}, Scope{}, known(files, on("search", "2")))
		if got := done(t, reports, err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if reports[0].Entries[0].Line != strings.Count(text[:strings.Index(text, "files")], "\n")+1 {
			t.Errorf("the line is %d", reports[0].Entries[0].Line)
		}
		reports, err = k.Follow(known(), true)
		if got := done(t, reports, err); got != "search:removed" {
			t.Errorf("%q", got)
		}
		if got := read(t, file); got != text {
			t.Errorf("it has become %q", got)
		}
	}
}

// TestOtherForms: entries in forms that are not ours are left, and the error of what cannot be
// added to says so.
func TestOtherForms(t *testing.T) {
	for name, c := range map[string]struct{ client, text, want, err string }{
		"TOML, an inline table":      {"codex", "mcp_servers = {docs = {url = \"x\"}}\n", "", "config.toml: an entry cannot be added to the form in which mcp_servers is written there"},
		"TOML, dotted keys":          {"codex", "[mcp_servers]\nfiles.url = \"x\"\n", "files:taken", ""},
		"TOML, no table":             {"codex", "mcp_servers = 1\n", "", "mcp_servers is no table"},
		"TOML, an array of tables":   {"codex", "[[mcp_servers]]\nurl = \"x\"\n", "", "mcp_servers is no table"},
		"TOML, broken":               {"codex", "model = \"o\"\nkey = sk-secret\n", "", "config.toml:2: it is no TOML"},
		"TOML, a table twice":        {"codex", "[a]\n[a]\n", "", "config.toml:2: it is no TOML"},
		"JSON, an array":             {"cursor", "[]", "", "mcp.json:1: it is no JSON object"},
		"JSON, servers are an array": {"cursor", "{\n\"mcpServers\": []}", "", `mcp.json:2: "mcpServers" is no object`},
		"JSON, servers are null":     {"cursor", "{\n\"mcpServers\": null}", "", `mcp.json:2: "mcpServers" is no object`},
		"JSON, servers twice":        {"cursor", "{\n\"mcpServers\": {},\n\n\"mcpServers\": {}}", "", `mcp.json:4: "mcpServers" is there twice`},
		"JSON, ours twice":           {"cursor", "{\"mcpServers\": {\n\"files\": {},\n\"files\": {}}}", "", `mcp.json:3: "files" is there twice`},
		"JSON, broken":               {"cursor", "{\n\n\"a\": sk-secret}", "", "mcp.json:3: it is no JSON"},
		"JSON, half of it":           {"cursor", "{\"mcpServers\": {", "", "mcp.json:1: it is no JSON"},
		"JSON, two values":           {"cursor", "{}\n{}", "", "mcp.json:2: it is no JSON"},
		"JSON, no UTF-8":             {"cursor", "{\n\"a\": \"\xff\"}", "", "mcp.json:2: it is not UTF-8"},
		"JSON, UTF-16":               {"cursor", "\xff\xfe{\x00}\x00", "", "mcp.json:1: it is not UTF-8"},
		"JSON, deep":                 {"cursor", "{\"a\":\n" + strings.Repeat("[", 1<<20) + "}", "", "mcp.json:2: its values lie more than 500 deep"},
		"TOML, deep":                 {"codex", "a = " + strings.Repeat("[", 1<<20) + "\n", "", "config.toml:1: it is no TOML"},
		"TOML, deep tables":          {"codex", "\n[" + strings.Repeat("a.", 1<<17) + "a]\n", "", "config.toml:2: its tables lie more than 500 deep"},
		"JSON, nothing":              {"cursor", "", "files:added", ""},
		"JSON, spaces":               {"cursor", " \r\n\t", "files:added", ""},
		"JSON, a comment alone":      {"cursor", "// nothing yet", "files:added", ""},
		"JSON, a mark alone":         {"cursor", "\ufeff", "files:added", ""},
		"TOML, nothing":              {"codex", "", "files:added", ""},
		"TOML, nan":                  {"codex", "a = nan\n", "files:added", ""},
	} {
		t.Run(name, func(t *testing.T) {
			k, app, file := keeperOf(t, c.client)
			write(t, file, c.text)
			reports, err := k.Setup([]string{c.client}, Scope{}, known(on("files", "1")))
			if err != nil {
				t.Fatal(err)
			}
			r := reports[0]
			if c.err == "" {
				if got := done(t, reports, nil); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
				if now, err := syntaxOf(app.Syntax).read([]byte(read(t, file))); err != nil || now.all[app.Key] == nil {
					t.Errorf("%q: %v", read(t, file), err)
				}
				return
			}
			if r.Err == nil || !strings.Contains(r.Err.Error(), c.err) || strings.Contains(r.Err.Error(), "secret") {
				t.Errorf("%v, want %s", r.Err, c.err)
			}
			if e := new(Error); !errors.As(r.Err, &e) || e.Next == "" || e.File != file {
				t.Errorf("%#v", r.Err)
			}
			if got := read(t, file); got != c.text {
				t.Errorf("it was written: %q", got)
			}
			if exists(file + ".weir.bak") {
				t.Error("there is a backup of what was not changed")
			}
			if o, err := remembered(k.Dir); err != nil || o.Clients[c.client] != nil {
				t.Errorf("it counts as set up: %v", err)
			}
		})
	}
}

// TestPlacesThatAreNone: a directory, a link to nothing, what is too large, and what is no file.
func TestPlacesThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		make func(file string) error
		want string
	}{
		"a directory":     {func(f string) error { return os.Mkdir(f, 0o700) }, "it is a directory"},
		"a link to none":  {func(f string) error { return os.Symlink("nothing", f) }, "symbolic link to nothing"},
		"a link to a dir": {func(f string) error { return os.Symlink(".", f) }, "it is a directory"},
		"a link to it":    {func(f string) error { return os.Symlink(f, f) }, "too many links"},
		"a device":        {func(f string) error { return os.Symlink("/dev/zero", f) }, "it is no regular file"},
		"too large":       {func(f string) error { return os.WriteFile(f, make([]byte, maxFile+1), 0o600) }, "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(name, "a ") {
				t.Skip("the system has other links")
			}
			k, file := cursor(t, "")
			if err := c.make(file); err != nil {
				t.Fatal(err)
			}
			reports, err := k.Setup([]string{"cursor"}, Scope{}, known(two...))
			if err != nil || reports[0].Err == nil || !strings.Contains(reports[0].Err.Error(), c.want) || !strings.Contains(reports[0].Err.Error(), file) {
				t.Errorf("%v, %v", err, reports[0].Err)
			}
		})
	}
	// So large a file is changed, in a time that nobody minds.
	comment := "{\n  // " + strings.Repeat("x", maxFile-2000) + "\n}"
	k, file := cursor(t, comment)
	reports, err := k.Setup([]string{"cursor"}, Scope{}, known(two...))
	must(t, reports, err)
	if got := read(t, file); len(got) < len(comment) || !strings.HasPrefix(got, comment[:len(comment)-2]) {
		t.Error("a large file was not changed as it should")
	}
	write(t, file, strings.Repeat(" ", maxFile-2)+"{}")
	reports, err = k.Setup([]string{"cursor"}, Scope{}, known(two...))
	if err != nil || reports[0].Err == nil || !strings.Contains(reports[0].Err.Error(), "it would have more than 5 MiB") {
		t.Errorf("%v, %v", err, reports)
	}
}

// TestLinkAndMode: what is written is the file that a link leads to, with the mode that it had.
func TestLinkAndMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the system has no such modes")
	}
	k, file := cursor(t, "")
	dots := filepath.Join(t.TempDir(), "dots")
	if err := os.Mkdir(dots, 0o700); err != nil {
		t.Fatal(err)
	}
	real := filepath.Join(dots, "mcp.json")
	write(t, real, "{}")
	if err := errors.Join(os.Chmod(real, 0o640), os.Symlink(real, file)); err != nil {
		t.Fatal(err)
	}
	reports, err := k.Setup([]string{"cursor"}, Scope{}, known(two...))
	must(t, reports, err)
	link, err := os.Readlink(file)
	if err != nil || link != real {
		t.Errorf("the link is %q, %v", link, err)
	}
	for _, path := range []string{real, real + ".weir.bak"} {
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if !strings.Contains(read(t, real), "20001") || read(t, real+".weir.bak") != "{}" {
		t.Error("the file of the link was not written")
	}
	// The backup is that of the first change.
	reports, err = k.Follow(known(), true)
	must(t, reports, err)
	if read(t, real+".weir.bak") != "{}" || exists(filepath.Join(dots, ".mcp.json.weir.tmp")) {
		t.Error("the backup was written again, or something was left")
	}
	// A file that was not there is nobody else's to read.
	other, fresh := cursor(t, "")
	reports, err = other.Setup([]string{"cursor"}, Scope{}, known(two...))
	must(t, reports, err)
	if info, err := os.Stat(fresh); err != nil || info.Mode() != 0o600 || exists(fresh+".weir.bak") {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestChangedMeanwhile: what another program writes between the read and the write is not
// lost: the change is made anew. One that never rests is an error.
func TestChangedMeanwhile(t *testing.T) {
	for _, times := range []int{1, 3, tries} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			k, file := cursor(t, `{"n": 0}`)
			n := 0
			k.between = func() {
				if n < times {
					n++
					write(t, file, fmt.Sprintf(`{"n": %d}`, n))
				}
			}
			reports, err := k.Setup([]string{"cursor"}, Scope{}, known(on("files", "1")))
			if err != nil {
				t.Fatal(err)
			}
			if times < tries {
				must(t, reports, nil)
				if got, want := read(t, file), fmt.Sprintf(`{"n": %d, "mcpServers": {"files": {"url": "http://127.0.0.1:1/mcp"}}}`, n); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				return
			}
			if reports[0].Err == nil || !strings.Contains(reports[0].Err.Error(), "another program changes it") {
				t.Errorf("%v", reports[0].Err)
			}
			if got := read(t, file); got != fmt.Sprintf(`{"n": %d}`, n) {
				t.Errorf("it was written over: %s", got)
			}
		})
	}
	// Who writes the very entry meanwhile keeps it.
	k, file := cursor(t, `{}`)
	theirs := `{"mcpServers": {"files": {"url": "http://theirs/"}}}`
	k.between = func() { write(t, file, theirs) }
	reports, err := k.Setup([]string{"cursor"}, Scope{}, known(on("files", "1")))
	if got := done(t, reports, err); got != "files:taken" || read(t, file) != theirs {
		t.Errorf("%s: %s", got, read(t, file))
	}
	// One that is made meanwhile, where there was none, too.
	k, file = cursor(t, "")
	k.between = func() {
		if !exists(file) {
			write(t, file, `{"a": 1}`)
		}
	}
	reports, err = k.Setup([]string{"cursor"}, Scope{}, known(on("files", "1")))
	must(t, reports, err)
	if got := read(t, file); !strings.HasPrefix(got, `{"a": 1, `) {
		t.Errorf("%s", got)
	}
}

// TestEmptiedMeanwhile: a program that empties the file, waits and writes it loses nothing; a
// file that stays empty is one without servers, and no copy of it is kept.
func TestEmptiedMeanwhile(t *testing.T) {
	for name, theirs := range map[string]string{"cursor": `{"n": 1}`, "codex": "n = 1\n"} {
		for _, blank := range []string{"", "\xef\xbb\xbf \n"} {
			k, _, file := keeperOf(t, name)
			write(t, file, theirs)
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteString(blank); err != nil {
				t.Fatal(err)
			}
			pauses := 0
			k.pause = func() {
				if pauses++; pauses == 3 {
					if _, err := f.WriteAt([]byte(theirs), 0); err != nil {
						t.Error(err)
					}
				}
			}
			reports, err := k.Setup([]string{name}, Scope{}, known(on("files", "1")))
			must(t, reports, err)
			if got := read(t, file); pauses != 3 || !strings.Contains(got, strings.TrimRight(theirs, "}\n")) || !strings.Contains(got, "http://127.0.0.1:1/mcp") {
				t.Errorf("%s, blank %q: after %d pauses it has %q", name, blank, pauses, got)
			}
		}
		// 2. One that is always being written is left.
		k, _, file := keeperOf(t, name)
		write(t, file, "")
		pauses := 0
		k.pause = func() { pauses++; write(t, file, "") }
		reports, err := k.Setup([]string{name}, Scope{}, known(on("files", "1")))
		if err != nil || reports[0].Err == nil || !strings.Contains(reports[0].Err.Error(), "another program changes it") || pauses != tries || read(t, file) != "" {
			t.Errorf("%s: %v, %+v after %d pauses, with %q", name, err, reports, pauses, read(t, file))
		}
		// 3. One that rests is empty.
		k.pause = func() {
			if err := os.Chtimes(file, time.Time{}, time.Now().Add(-settled)); err != nil {
				t.Error(err)
			}
		}
		reports, err = k.Setup([]string{name}, Scope{}, known(on("files", "1")))
		if got := done(t, reports, err); got != "files:added" || exists(file+".weir.bak") {
			t.Errorf("%s: %s; a copy: %v", name, got, exists(file+".weir.bak"))
		}
	}
	if (tries-1)*rest <= 2*settled {
		t.Error("a file that was emptied right now would not settle in time, with a clock that is a little ahead")
	}
}

// known lists servers that stay as they are.
func known(servers ...Server) func() ([]Server, error) {
	return func() ([]Server, error) { return servers, nil }
}

// TestListedUnderLock: of two commands at the same time the one that writes last has seen what
// the other did, and takes nothing back.
func TestListedUnderLock(t *testing.T) {
	k, file := cursor(t, "{}")
	var mu sync.Mutex
	var there []Server
	run := func(s Server) {
		mu.Lock()
		there = append(there, s)
		mu.Unlock()
	}
	list := func() ([]Server, error) {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(there), nil
	}
	var second sync.WaitGroup
	reports, err := k.Setup([]string{"cursor"}, Scope{}, func() ([]Server, error) {
		servers, err := list()
		second.Go(func() { // it comes in between, and has to wait
			run(on("files", "1"))
			reports, err := (&Keeper{Dir: k.Dir, Place: k.Place}).Follow(list, true)
			must(t, reports, err)
		})
		time.Sleep(50 * time.Millisecond)
		return servers, err
	})
	must(t, reports, err)
	second.Wait()
	reports, err = k.Follow(func() ([]Server, error) {
		servers, err := list()
		second.Go(func() {
			run(on("search", "2"))
			reports, err := (&Keeper{Dir: k.Dir, Place: k.Place}).Follow(list, true)
			must(t, reports, err)
		})
		time.Sleep(50 * time.Millisecond)
		return servers, err
	}, true)
	must(t, reports, err)
	second.Wait()
	for _, name := range []string{"files", "search"} {
		if !strings.Contains(read(t, file), `"`+name+`"`) {
			t.Errorf("%s runs, and is not in %s", name, read(t, file))
		}
	}
}

// TestManyAtATime: commands that run at the same time lose nothing of each other.
func TestManyAtATime(t *testing.T) {
	k, file := cursor(t, "{}")
	reports, err := k.Setup([]string{"cursor"}, Scope{}, known())
	must(t, reports, err)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			other := &Keeper{Dir: k.Dir, Place: k.Place}
			reports, err := other.Follow(known(on(fmt.Sprintf("n%d", i), "1")), false)
			if err != nil || reports[0].Err != nil {
				t.Errorf("%v, %v", err, reports)
			}
		})
	}
	all.Wait()
	var got struct{ MCPServers map[string]any }
	if err := json.Unmarshal([]byte(read(t, file)), &got); err != nil || len(got.MCPServers) != 16 {
		t.Errorf("%d entries, %v", len(got.MCPServers), err)
	}
}

// TestNoTokens: a URL that could hold one is never written.
func TestNoTokens(t *testing.T) {
	for _, url := range []string{"http://user:secret@127.0.0.1:1/mcp", "http://127.0.0.1:1/mcp?token=secret", "http://secret@h/mcp", "secret", "http://[secret"} {
		k, file := cursor(t, "{}")
		reports, err := k.Setup([]string{"cursor"}, Scope{}, known(Server{Name: "files", URL: url, Wish: On}))
		if err != nil || reports[0].Err == nil || strings.Contains(reports[0].Err.Error(), "secret") {
			t.Errorf("%s: %v, %v", url, err, reports)
		}
		kept := ""
		if exists(ownedFile(k.Dir)) {
			kept = read(t, ownedFile(k.Dir))
		}
		if strings.Contains(read(t, file)+kept, "secret") {
			t.Errorf("%s was written", url)
		}
		if _, err := Document([]Server{{Name: "files", URL: url}}); err == nil {
			t.Errorf("%s is listed", url)
		}
	}
}

// TestFileThatMoves: where a variable says that the file lies elsewhere, entries go there.
func TestFileThatMoves(t *testing.T) {
	k, _, file := keeperOf(t, "codex")
	reports, err := k.Setup([]string{"codex"}, Scope{}, known(two...))
	must(t, reports, err)
	dir, lookup := t.TempDir(), k.Lookup
	k.Lookup = func(name string) (string, bool) {
		if name == "CODEX_HOME" {
			return dir, true
		}
		return lookup(name)
	}
	// To follow goes on where it is.
	reports, err = k.Follow(known(two[0]), true)
	if got := done(t, reports, err); got != "files:removed search:unchanged" {
		t.Error(got)
	}
	reports, err = k.Setup([]string{"codex"}, Scope{}, known(two...))
	must(t, reports, err)
	if got := strings.TrimSpace(read(t, file)); got != "" {
		t.Errorf("the old file has %q", got)
	}
	if got := read(t, filepath.Join(dir, "config.toml")); strings.Count(got, "[mcp_servers.") != 2 {
		t.Errorf("the new one has %q", got)
	}
}

// TestForgotten: what is remembered and cannot be read is an error that names it, and nothing is
// written.
func TestForgotten(t *testing.T) {
	for _, text := range []string{"", "{", `{"version": 2, "clients": {}}`, `{"version": 1, "clients": {"emacs": {"file": "/x"}}}`, `{"version": 1, "clients": {"cursor": {"file": "x"}}}`, `{"version": 1, "clients": {"cursor": null}}`, `{"version": 1, "more": 1}`} {
		k, file := cursor(t, "{}")
		write(t, ownedFile(k.Dir), text)
		for name, f := range map[string]func() ([]Report, error){
			"setup":  func() ([]Report, error) { return k.Setup([]string{"cursor"}, Scope{}, known(two...)) },
			"remove": func() ([]Report, error) { return k.Remove([]string{"cursor"}) },
			"follow": func() ([]Report, error) { return k.Follow(known(two...), true) },
			"status": func() ([]Report, error) { return k.Status(two, true) },
		} {
			if _, err := f(); err == nil || !strings.Contains(err.Error(), "clients.json") {
				t.Errorf("%s with %q: %v", name, text, err)
			}
		}
		if read(t, file) != "{}" || read(t, ownedFile(k.Dir)) != text {
			t.Errorf("with %q something was written", text)
		}
	}
}

// TestStatus says how entries are, and changes nothing.
func TestStatus(t *testing.T) {
	k, file := cursor(t, `{"mcpServers": {"mine": {"url": "x"}}}`)
	all := []Server{on("a", "1"), on("b", "2"), on("c", "3"), on("d", "4")}
	reports, err := k.Setup([]string{"cursor"}, Scope{}, known(all...))
	must(t, reports, err)
	text := strings.NewReplacer(`"http://127.0.0.1:2/mcp"`, `"http://127.0.0.1:9/mcp"`, `"c": {"url": "http://127.0.0.1:3/mcp"}, `, "").Replace(read(t, file))
	write(t, file, text)
	now := append([]Server{on("a", "7"), on("mine", "8"), on("new", "9")}, all[1:]...)
	reports, err = k.Status(now, true)
	if got := done(t, reports, err); got != "a:outdated b:edited c:missing d:unchanged mine:taken new:outdated" {
		t.Error(got)
	}
	reports, err = k.Status(nil, false)
	if got := done(t, reports, err); got != "a:unchanged b:edited c:missing d:unchanged" {
		t.Error(got)
	}
	if read(t, file) != text {
		t.Error("to look has changed something")
	}
}

// TestDesktopEnvironment: a program of a desktop starts weir with what weir needs to find its
// workloads.
func TestDesktopEnvironment(t *testing.T) {
	k, _, file := keeperOf(t, "claude-desktop")
	k.Env = map[string]string{"XDG_STATE_HOME": "/s", "WEIR_HOME": `/a "b"`}
	reports, err := k.Setup([]string{"claude-desktop"}, Scope{}, known(on("files", "1")))
	must(t, reports, err)
	if want := `"env": {"WEIR_HOME": "/a \"b\"", "XDG_STATE_HOME": "/s"}`; !strings.Contains(read(t, file), want) {
		t.Errorf("%s has no %s", read(t, file), want)
	}
	if _, err := (&Keeper{Dir: t.TempDir(), Place: place(t, "linux")}).Setup([]string{"claude-desktop"}, Scope{}, known()); err == nil || !strings.Contains(err.Error(), "there is no Claude Desktop for this system, but for macOS and Windows") {
		t.Errorf("on Linux: %v", err)
	}
}

// TestProven: an edit that changed anything else would not be written, whatever made it.
func TestProven(t *testing.T) {
	const before = `{"a": 1, "mcpServers": {"b": {}, "files": {}}}`
	for _, out := range []string{
		`{"a": 2, "mcpServers": {"b": {}, "files": {"url": "x"}}}`,
		`{"a": 1, "mcpServers": {"files": {"url": "x"}}}`,
		`{"a": 1, "mcpServers": {"b": {"c": 1}, "files": {"url": "x"}}}`,
		`{"a": 1, "mcpServers": {"b": {}, "files": {"url": "y"}}}`,
		`{"a": 1, "mcpServers": {"b": {}}}`,
		`{"a": 1, "mcpServers": {"b": {}, "files": {"url": "x"}}`,
	} {
		s := syntaxOf("json")
		s.put = func([]byte, string, string, entry) ([]byte, error) { return []byte(out), nil }
		if _, err := edited(s, []byte(before), "mcpServers", map[string]entry{"files": {{"url", "x"}}}); err == nil {
			t.Errorf("%s goes through", out)
		}
	}
}

// TestOldFileThatIsBroken: a client whose file is another one now, and whose old one cannot be
// changed, stays known, also when what became of another client is written down after it.
func TestOldFileThatIsBroken(t *testing.T) {
	k, _, old := keeperOf(t, "codex")
	cursor, _ := Named("cursor")
	file, err := cursor.File(k.Place)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	files := on("files", "1")
	reports, err := k.Setup([]string{"codex"}, Scope{}, known(files))
	must(t, reports, err)
	text := read(t, old)
	write(t, old, "= broken")
	before, elsewhere := k.Lookup, t.TempDir()
	k.Lookup = func(name string) (string, bool) {
		if name == "CODEX_HOME" {
			return elsewhere, true
		}
		return before(name)
	}
	reports, err = k.Setup([]string{"codex", "cursor"}, Scope{}, known(files))
	if err != nil || len(reports) != 2 || reports[0].Err == nil || reports[1].Err != nil {
		t.Fatalf("%+v, %v", reports, err)
	}
	write(t, old, text)
	reports, err = k.Remove([]string{"codex"})
	if got := done(t, reports, err); got != "files:removed" || strings.Contains(read(t, old), "127.0.0.1") {
		t.Errorf("%q, and the file has %s", got, read(t, old))
	}
}
