package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// Default is the registry that is asked where the user has set none.
const Default = "https://registry.modelcontextprotocol.io"

// Bounds of what is fetched.
const (
	pageSize     = 100
	maxPages     = 2 * MaxEntries / pageSize // some may be short
	maxPage      = 8 << 20                   // bytes of one page of an API
	fetchTimeout = 5 * time.Minute           // of all pages together
	pageTimeout  = time.Minute
	tries        = 3 // of a page that the registry is too busy for
	maxRedirects = 3
	longestWait  = 10 * time.Second
	maxDirFiles  = 10_000 // of a directory of server.json files
)

// Source is where a registry is.
type Source struct {
	At           string `json:"source"`                 // an absolute path, or a URL
	AllowPrivate bool   `json:"allowPrivate,omitempty"` // its entries may lead to private addresses, and there by http
}

// ParseSource reads what a user names as a registry: a URL, or a path below dir. A URL is of
// https, or of this machine.
func ParseSource(text, dir string) (Source, error) {
	if scheme, _, is := strings.Cut(text, "://"); is {
		u, err := oauth.ParseURL(text, true)
		switch {
		case scheme != "http" && scheme != "https":
			return Source{}, &Error{Kind: Invalid, Message: shown(text) + " is no registry: its scheme is neither https nor http", Next: "give an https URL, a file or a directory"}
		case err != nil:
			return Source{}, &Error{Kind: Invalid, Message: "the URL of the registry cannot be right: " + err.Error()}
		case u.Scheme == "http" && !oauth.IsLoopback(u.Hostname()):
			return Source{}, &Error{Kind: Invalid, Message: "whoever is on the way could change what http://" + u.Host + " says, and with it what is run", Next: "give an https URL"}
		}
		return Source{At: strings.TrimSuffix(text, "/")}, nil
	}
	if text == "" || strings.ContainsRune(text, 0) {
		return Source{}, &Error{Kind: Invalid, Message: "no registry is named", Next: "give an https URL, a file or a directory"}
	}
	if !filepath.IsAbs(text) {
		text = filepath.Join(dir, text)
	}
	return Source{At: filepath.Clean(text)}, nil
}

// URL reports whether the registry is somewhere else than in files of this machine.
func (s Source) URL() bool { return strings.Contains(s.At, "://") }

// String is the source for people: a URL without its query, which may hold a credential.
func (s Source) String() string {
	if u, err := url.Parse(s.At); s.URL() && err == nil {
		u.RawQuery, u.User = "", nil
		return u.String()
	}
	return s.At
}

// page is one text of a registry, as it is kept.
type page struct {
	Cursor  string            `json:"cursor,omitempty"` // by which it was asked for
	ETag    string            `json:"etag,omitempty"`
	Next    string            `json:"next,omitempty"`
	Format  string            `json:"format"`
	Servers []json.RawMessage `json:"servers"`
}

// fetcher fetches the pages of one registry.
type fetcher struct {
	source Source
	do     func(context.Context, oauth.Request) (*oauth.Response, error)
	had    []page            // of the time before: a page that has not changed is taken from there
	told   func(entries int) // of how many have come
	wait   func(time.Duration) <-chan time.Time

	entries int
	bytes   int
}

// fetch fetches all of the registry.
func (f *fetcher) fetch(ctx context.Context) ([]page, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	u, err := url.Parse(f.source.At)
	if err != nil {
		return nil, &Error{Kind: Broken, Message: "the URL of the registry is malformed"}
	}
	if strings.HasSuffix(u.Path, ".json") {
		one, err := f.page(ctx, f.source.At, "", MaxBytes)
		return []page{one}, err
	}
	all, err := f.pages(ctx, apiOf(u))
	var status *statusError
	if errors.As(err, &status) && status.code == http.StatusNotFound && len(all) == 0 {
		// No API: it may be a document all the same.
		if one, other := f.page(ctx, f.source.At, "", MaxBytes); other == nil {
			return []page{one}, nil
		}
	}
	return all, err
}

// apiOf is the list of servers of the registry API below a URL.
func apiOf(u *url.URL) *url.URL {
	at := *u
	at.RawPath = ""
	at.Path = strings.TrimSuffix(at.Path, "/")
	switch {
	case strings.HasSuffix(at.Path, "/v0.1/servers"):
	case strings.HasSuffix(at.Path, "/v0.1"):
		at.Path += "/servers"
	default:
		at.Path += "/v0.1/servers"
	}
	return &at
}

// pages walks the pages of an API.
func (f *fetcher) pages(ctx context.Context, at *url.URL) (all []page, err error) {
	seen := map[string]bool{}
	for cursor := ""; ; {
		query := at.Query()
		query.Set("limit", strconv.Itoa(pageSize))
		query.Set("version", "latest")
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		to := *at
		to.RawQuery = query.Encode()
		one, err := f.page(ctx, to.String(), cursor, maxPage)
		if err != nil {
			return all, err
		}
		all = append(all, one)
		if cursor = one.Next; cursor == "" {
			return all, nil
		}
		if seen[cursor] {
			return all, &Error{Kind: Broken, Message: "the registry has no last page: a cursor comes again"}
		}
		if seen[cursor] = true; len(all) >= maxPages {
			return all, &Error{Kind: Broken, Message: fmt.Sprintf("the registry has more than %d pages", maxPages)}
		}
	}
}

// statusError is an answer that is none.
type statusError struct{ code int }

func (e *statusError) Error() string {
	return fmt.Sprintf("the registry answered %d %s", e.code, http.StatusText(e.code))
}

// page fetches one text. A registry that is too busy is asked again, a few times.
func (f *fetcher) page(ctx context.Context, at, cursor string, most int64) (page, error) {
	r := oauth.Request{URL: at, Trust: oauth.Named, AllowHTTP: true, Redirects: maxRedirects, MaxBody: most, Header: http.Header{"Accept": {"application/json"}}}
	known := slices.IndexFunc(f.had, func(p page) bool { return p.Cursor == cursor && p.ETag != "" })
	if known >= 0 {
		r.Header.Set("If-None-Match", f.had[known].ETag)
	}
	for try := 1; ; try++ {
		answer, err := f.do(ctx, r)
		switch {
		case errors.Is(err, oauth.ErrTooLarge):
			return page{}, &Error{Kind: Broken, Message: fmt.Sprintf("a page of the registry has more than %d MiB", most>>20)}
		case err != nil:
			return page{}, err
		case answer.Status == http.StatusOK:
			return f.took(answer, cursor)
		case answer.Status == http.StatusNotModified && known >= 0:
			one := f.had[known]
			return one, f.count(len(one.Servers))
		case answer.Status != http.StatusTooManyRequests && answer.Status < 500 || try == tries:
			return page{}, &statusError{answer.Status}
		}
		pause := time.Second / 2 << try
		if s, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && s >= 0 {
			pause = min(time.Duration(s)*time.Second, longestWait)
		}
		select {
		case <-f.wait(pause):
		case <-ctx.Done():
			return page{}, ctx.Err()
		}
	}
}

// took reads an answer.
func (f *fetcher) took(answer *oauth.Response, cursor string) (page, error) {
	if f.bytes += len(answer.Body); f.bytes > MaxBytes {
		return page{}, errTooLarge
	}
	d, err := read(answer.Body)
	if err != nil {
		return page{}, err
	}
	etag := answer.Header.Get("ETag")
	if len(etag) > maxValue || strings.ContainsFunc(etag, func(r rune) bool { return r < ' ' || r > '~' }) {
		etag = ""
	}
	return page{Cursor: cursor, ETag: etag, Next: d.next, Format: d.format, Servers: d.servers}, f.count(len(d.servers))
}

// count counts the entries that have come.
func (f *fetcher) count(more int) error {
	if f.entries += more; f.entries > MaxEntries {
		return errTooMany
	}
	if f.told != nil {
		f.told(f.entries)
	}
	return nil
}

// files reads a registry of this machine: a file, or all files *.json of a directory and of
// the directories in it.
func (s Source) files() ([]page, error) {
	info, err := os.Stat(s.At)
	if err != nil {
		return nil, unread(err)
	}
	if !info.IsDir() {
		one, _, err := readFile(s.At, MaxBytes)
		return []page{one}, err
	}
	names, err := jsonFiles(s.At, true)
	if err != nil {
		return nil, unread(err)
	}
	if len(names) == 0 {
		return nil, &Error{Kind: Broken, Message: edge.Brief(s.At) + ": there is no *.json file in it"}
	}
	var all []page
	left, entries := int64(MaxBytes), 0
	for _, name := range names {
		one, n, err := readFile(name, left)
		if err != nil {
			return nil, err
		}
		if left -= n; left < 0 {
			return nil, errTooLarge
		}
		if entries += len(one.Servers); entries > MaxEntries {
			return nil, errTooMany
		}
		all = append(all, one)
	}
	return all, nil
}

// jsonFiles are the *.json files of a directory, and of the directories in it where deep
// says so.
func jsonFiles(dir string, deep bool) (names []string, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	entries, err := d.ReadDir(maxDirFiles + 1)
	d.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxDirFiles {
		return nil, fmt.Errorf("%s: more than %d files", dir, maxDirFiles)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, one := range entries {
		path := filepath.Join(dir, one.Name())
		switch {
		case strings.HasPrefix(one.Name(), "."):
		case one.IsDir() && deep:
			below, err := jsonFiles(path, false)
			if err != nil {
				return nil, err
			}
			names = append(names, below...)
		case !one.IsDir() && strings.HasSuffix(one.Name(), ".json"):
			names = append(names, path)
		}
		if len(names) > maxDirFiles {
			return nil, fmt.Errorf("%s: more than %d files", dir, maxDirFiles)
		}
	}
	return names, nil
}

// readFile reads a file of a registry.
func readFile(path string, most int64) (page, int64, error) {
	if info, err := os.Stat(path); err != nil {
		return page{}, 0, unread(err)
	} else if !info.Mode().IsRegular() { // one that nobody writes to would never end
		return page{}, 0, &Error{Kind: Broken, Message: edge.Brief(path) + ": it is no file"}
	}
	f, err := os.Open(path)
	if err != nil {
		return page{}, 0, unread(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return page{}, 0, unread(err)
	case int64(len(text)) > most:
		return page{}, 0, errTooLarge
	}
	d, err := read(text)
	if err != nil {
		return page{}, 0, fmt.Errorf("%s: %w", edge.Brief(path), err)
	}
	return page{Format: d.format, Servers: d.servers}, int64(len(text)), nil
}

// unread is the error of a file that cannot be read.
func unread(err error) error { return &Error{Kind: Broken, Message: edge.Brief(err.Error())} }
