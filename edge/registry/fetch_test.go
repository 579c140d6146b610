package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/oauth"
)

// api is a registry with the API: pages of servers by cursors, with entity tags.
type api struct {
	*httptest.Server
	mu     sync.Mutex
	pages  [][]string                                                       // names of servers
	asked  []string                                                         // cursor, and whether the page had changed
	before func(w http.ResponseWriter, r *http.Request, cursor string) bool // answers in place of the API
}

func newAPI(t *testing.T, pages ...[]string) *api {
	t.Helper()
	a := &api{pages: pages}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.Close)
	return a
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	cursor := r.URL.Query().Get("cursor")
	if a.before != nil && a.before(w, r, cursor) {
		return
	}
	if r.URL.Path != "/v0.1/servers" || r.URL.Query().Get("version") != "latest" || r.URL.Query().Get("limit") != "100" {
		http.NotFound(w, r)
		return
	}
	n := 0
	if cursor != "" {
		n, _ = strconv.Atoi(strings.TrimPrefix(cursor, "page "))
	}
	var servers []string
	for _, name := range a.pages[n] {
		servers = append(servers, fmt.Sprintf(`{"server":{"name":%q,"description":"of page %d","version":"1.0.0","remotes":[{"type":"sse","url":"https://mcp.example.com/sse"}]},"_meta":{"io.modelcontextprotocol.registry/official":{"status":"active","isLatest":true}}}`, name, n))
	}
	next := ""
	if n+1 < len(a.pages) {
		next = fmt.Sprintf(`,"nextCursor":"page %d"`, n+1)
	}
	text := `{"servers":[` + strings.Join(servers, ",") + `],"metadata":{"count":` + strconv.Itoa(len(servers)) + next + `}}`
	tag := fmt.Sprintf(`"%x"`, len(text)*31+n)
	if r.Header.Get("If-None-Match") == tag {
		a.asked = append(a.asked, cursor+" same")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	a.asked = append(a.asked, cursor+" new")
	w.Header().Set("ETag", tag)
	_, _ = w.Write([]byte(text))
}

// took are the pages that were asked for since the last call.
func (a *api) took() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := strings.Join(a.asked, ", ")
	a.asked = nil
	return asked
}

func (a *api) source(t *testing.T) Source {
	t.Helper()
	s, err := ParseSource(a.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func names(r *Registry) string {
	var all []string
	for _, e := range r.Entries {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

// aged makes what is kept older.
func aged(t *testing.T, s Source, cache string, by time.Duration) {
	t.Helper()
	k := s.load(cache)
	if k == nil {
		t.Fatal("nothing is kept")
	}
	k.Fetched = k.Fetched.Add(-by)
	if err := s.save(cache, k); err != nil {
		t.Fatal(err)
	}
}

// A registry with three pages is read once a day; a page that has not changed is not sent
// again; and while it is away, what is kept is used and said to be old.
func TestAPIPagesAndCache(t *testing.T) {
	a, cache := newAPI(t, []string{"a.b/one", "a.b/two"}, []string{"a.b/three"}, []string{"a.b/four"}), t.TempDir()
	o := Options{Source: a.source(t), Cache: cache}
	open := func(what, wantNames, wantAsked string) *Registry {
		t.Helper()
		r, err := Open(context.Background(), o)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := names(r); got != wantNames {
			t.Errorf("%s: %s", what, got)
		}
		if got := a.took(); got != wantAsked {
			t.Errorf("%s: asked for %q, want %q", what, got, wantAsked)
		}
		return r
	}
	all := "a.b/four a.b/one a.b/three a.b/two"
	var counts []int
	o.Told = func(n int) { counts = append(counts, n) }
	r := open("at first", all, " new, page 1 new, page 2 new")
	if r.Stale != nil || r.Unkept != nil || r.Fetched.IsZero() || fmt.Sprint(counts) != "[2 3 4]" {
		t.Errorf("%+v, told %v", r, counts)
	}
	open("at once again", all, "")
	aged(t, o.Source, cache, 25*time.Hour)
	open("the next day", all, " same, page 1 same, page 2 same")
	open("after that", all, "")
	a.pages[1] = []string{"a.b/three", "a.b/five"}
	o.Refresh = true
	open("when a page changed", "a.b/five "+all, " same, page 1 new, page 2 same")

	// Away.
	aged(t, o.Source, cache, 72*time.Hour)
	a.Close()
	o.Refresh = false
	r = open("away", "a.b/five "+all, "")
	if r.Stale == nil || time.Since(r.Fetched) < 71*time.Hour {
		t.Errorf("%v, %s", r.Stale, r.Fetched)
	}
	if k, err := Kept(o.Source, cache); err != nil || len(k.Entries) != 5 {
		t.Errorf("kept: %+v, %v", k, err)
	}
	// Of another source nothing is kept.
	o.Source.At += "/other"
	if _, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), "cannot be read, and nothing is kept of it") {
		t.Error(err)
	}
	if _, err := Kept(o.Source, cache); err == nil || !strings.Contains(err.Error(), "nothing is kept") {
		t.Error(err)
	}
}

// What is kept is bounded: in the number of sources, and what is damaged, foreign or too large
// is not used.
func TestCacheBounds(t *testing.T) {
	cache := t.TempDir()
	source := func(i int) Source { return Source{At: fmt.Sprintf("https://r%d.example.com", i)} }
	for i := range 9 {
		if err := source(i).save(cache, &kept{Source: source(i).At, Fetched: time.Now()}); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(time.Duration(i-20) * time.Minute)
		if err := os.Chtimes(source(i).cacheFile(cache), old, old); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(cacheDir(cache), "*.json"))
	if err != nil || len(files) != maxKept {
		t.Errorf("%d files are kept, %v", len(files), err)
	}
	if info, err := os.Stat(source(8).cacheFile(cache)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	s := source(8)
	for name, text := range map[string]string{
		"damaged": `{"source":"` + s.At, "of another": `{"source":"https://other.example.com","fetched":"2026-01-01T00:00:00Z"}`, "no moment": `{"source":"` + s.At + `"}`, "empty": "",
	} {
		if err := os.WriteFile(s.cacheFile(cache), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if k := s.load(cache); k != nil {
			t.Errorf("%s: %+v", name, k)
		}
	}
	if err := os.Truncate(s.cacheFile(cache), maxFile+1); err != nil {
		t.Fatal(err)
	}
	if k := s.load(cache); k != nil {
		t.Error("a file that is too large is used")
	}
	now := time.Now()
	for by, fresh := range map[time.Duration]bool{0: true, -23 * time.Hour: true, -25 * time.Hour: false, time.Hour: false} {
		if got := (&kept{Fetched: now.Add(by)}).fresh(now); got != fresh {
			t.Errorf("fetched %s from now: fresh is %t", by, got)
		}
	}
	if half := filepath.Join(cacheDir(cache), ".new-1"); os.WriteFile(half, nil, 0o600) == nil && os.Chtimes(half, now.Add(-2*time.Hour), now.Add(-2*time.Hour)) == nil {
		s.tidy(cacheDir(cache), now)
		if _, err := os.Stat(half); err == nil {
			t.Error("what an interrupted command left is still there")
		}
	}
}

// What goes wrong on the way costs an error that says what, and what is kept stays.
func TestAPIFailures(t *testing.T) {
	endless := func(next func(n int) string) func(http.ResponseWriter, *http.Request, string) bool {
		n := 0
		return func(w http.ResponseWriter, _ *http.Request, _ string) bool {
			n++
			fmt.Fprintf(w, `{"servers":[],"metadata":{"nextCursor":%q}}`, next(n))
			return true
		}
	}
	answer := func(status int, header, text string) func(http.ResponseWriter, *http.Request, string) bool {
		return func(w http.ResponseWriter, r *http.Request, cursor string) bool {
			if cursor != "page 1" {
				return false
			}
			if name, value, ok := strings.Cut(header, ": "); ok {
				w.Header().Set(name, value)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
			return true
		}
	}
	for name, c := range map[string]struct {
		before func(http.ResponseWriter, *http.Request, string) bool
		want   string
	}{
		"it fails":                  {answer(500, "Retry-After: 0", "x"), "answered 500 Internal Server Error"},
		"it is too busy":            {answer(503, "Retry-After: 0", ""), "answered 503 Service Unavailable"},
		"a limit":                   {answer(429, "Retry-After: 0", ""), "answered 429 Too Many Requests"},
		"a login":                   {answer(401, "", ""), "answered 401 Unauthorized"},
		"a page that is gone":       {answer(404, "", ""), "answered 404 Not Found"},
		"no JSON":                   {answer(200, "", "<html>"), "no JSON that can be read"},
		"half of it":                {answer(200, "", `{"servers":[`), "no JSON that can be read"},
		"a body that is cut":        {answer(200, "Content-Length: 1000", `{"servers":[`), "unexpected EOF"},
		"compressed":                {answer(200, "Content-Encoding: gzip", "x"), "compressed"},
		"a large page":              {answer(200, "", `{"servers":[],"x":"`+strings.Repeat("x", maxPage)+`"}`), "a page of the registry has more than 8 MiB"},
		"to metadata":               {answer(302, "Location: http://169.254.169.254/latest", ""), "redirect"},
		"to this machine":           {answer(302, "Location: https://localhost/x", ""), "redirect"},
		"304 that nobody asked for": {answer(304, "", ""), "answered 304"},
		"a cursor again":            {endless(func(n int) string { return fmt.Sprint(n % 3) }), "a cursor comes again"},
		"pages without end":         {endless(func(n int) string { return fmt.Sprint(n) }), "more than 2000 pages"},
	} {
		t.Run(name, func(t *testing.T) {
			a, cache := newAPI(t, []string{"a.b/one"}, []string{"a.b/two"}, []string{"a.b/three"}), t.TempDir()
			o := Options{Source: a.source(t), Cache: cache}
			a.before = c.before
			if r, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v", r, err)
			}
			if _, err := os.Stat(o.Source.cacheFile(cache)); err == nil {
				t.Error("half of a registry is kept")
			}
			a.before = nil
			if _, err := Open(context.Background(), o); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "304") {
				return // it is an answer to who has the page
			}
			a.before, o.Refresh = c.before, true
			r, err := Open(context.Background(), o)
			if err != nil || r.Stale == nil || !strings.Contains(r.Stale.Error(), c.want) || len(r.Entries) != 3 {
				t.Errorf("with what is kept: %+v, %v", r, err)
			}
		})
	}
}

// A registry that is busy for a moment is asked again, as late as it says, and a command that
// is interrupted ends.
func TestAPIRetries(t *testing.T) {
	a := newAPI(t, []string{"a.b/one"}, []string{"a.b/two"})
	refusals := map[string]int{"": 2, "page 1": 1}
	a.before = func(w http.ResponseWriter, _ *http.Request, cursor string) bool {
		if refusals[cursor] == 0 {
			return false
		}
		refusals[cursor]--
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	client, err := oauth.New(oauth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var waited []time.Duration
	f := &fetcher{source: a.source(t), do: client.Do, wait: func(d time.Duration) <-chan time.Time {
		waited = append(waited, d)
		done := make(chan time.Time, 1)
		done <- time.Time{}
		return done
	}}
	if pages, err := f.fetch(context.Background()); err != nil || len(pages) != 2 || fmt.Sprint(waited) != "[7s 7s 7s]" {
		t.Errorf("%d pages after %v, %v", len(pages), waited, err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	refusals[""] = 9
	f.wait = func(time.Duration) <-chan time.Time { cancel(); return nil }
	if _, err := f.fetch(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Open(ctx, Options{Source: a.source(t), Cache: t.TempDir()}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A registry of 10⁶ entries ends at the bound, and not at the end of memory (K22).
func TestK22EntriesOfAnAPI(t *testing.T) {
	page := `{"servers":[` + strings.TrimSuffix(strings.Repeat(`{"server":{"name":"a.b/c"}},`, 10_000), ",") + `],"metadata":{"nextCursor":"%d"}}`
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		fmt.Fprintf(w, page, n)
	}))
	defer server.Close()
	_, err := Open(context.Background(), Options{Source: Source{At: server.URL}, Cache: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "more than 100000 entries") || n != 11 {
		t.Errorf("%d pages, %v", n, err)
	}
}

// A document behind a URL, with and without a name that says so.
func TestDocumentsOfURLs(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/flat.json" && r.URL.Path != "/catalogue" {
			http.NotFound(w, r)
			return
		}
		asked++
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"1"`)
		_, _ = w.Write(file(t, "flat.json"))
	}))
	defer server.Close()
	for _, path := range []string{"/flat.json", "/catalogue"} {
		o := Options{Source: Source{At: server.URL + path}, Cache: t.TempDir()}
		for range 2 {
			r, err := Open(context.Background(), o)
			if err != nil || len(r.Entries) != 3 || r.Format != "the older flat format" {
				t.Fatalf("%s: %+v, %v", path, r, err)
			}
			o.Refresh = true
		}
	}
	if asked != 4 {
		t.Errorf("asked %d times", asked)
	}
}

// Files, and directories of them.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("all/flat.json", file(t, "flat.json"))
	write("all/files/server.json", file(t, "server.json"))
	write("all/files/deeper/not.json", []byte("not read"))
	write("all/README.md", []byte("not read"))
	write("all/.hidden.json", []byte("not read"))
	write("broken/a.json", []byte(`{"name":`))
	write("none/a.txt", nil)
	if err := os.Mkdir(filepath.Join(dir, "all", "folder.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		entries int
		want    string // of the error
	}{
		"all": {4, ""}, "all/flat.json": {3, ""}, "all/files/server.json": {1, ""},
		"broken": {0, "a.json: no JSON that can be read"}, "none": {0, "there is no *.json file in it"}, "nowhere": {0, "no such file"},
	} {
		s, err := ParseSource(name, dir)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Open(context.Background(), Options{Source: s})
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", name, err)
		case c.want == "" && (err != nil || len(r.Entries) != c.entries || !r.Fetched.IsZero()):
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if err := os.Truncate(filepath.Join(dir, "all/flat.json"), MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), Options{Source: Source{At: filepath.Join(dir, "all")}}); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Error(err)
	}
	if _, err := Open(context.Background(), Options{Source: Source{At: "/dev/zero"}}); err == nil || !strings.Contains(err.Error(), "it is no file") {
		t.Error(err)
	}
}

func TestParseSource(t *testing.T) {
	for text, want := range map[string]string{
		"https://registry.example.com/": "https://registry.example.com", "http://127.0.0.1:80": "http://127.0.0.1:80", "http://localhost/x": "http://localhost/x",
		"servers": "/home/ada/servers", "./a/../b.json": "/home/ada/b.json", "/srv/r": "/srv/r",
	} {
		if s, err := ParseSource(text, "/home/ada"); err != nil || s.At != want || s.URL() != strings.Contains(want, "://") {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
	for text, want := range map[string]string{
		"http://registry.example.com": "1 whoever is on the way", "ftp://x.example": "1 \"ftp://x.example\" is no registry", "https://u:secret@x.example": "1 the URL of the registry cannot be right: it holds user information",
		"https://": "1 the URL of the registry", "https://x.example/#a": "1 the URL of the registry", "": "1 no registry is named",
	} {
		_, err := ParseSource(text, "/home/ada")
		if err == nil || !strings.HasPrefix(said(err), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %s", text, said(err))
		}
	}
	if s := (Source{At: "https://x.example/r?token=secret"}).String(); s != "https://x.example/r" {
		t.Error(s)
	}
}
