package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/near"
	"github.com/weir-edge/weir/edge/oauth"
)

// Options say which registry is opened, and how.
type Options struct {
	Source  Source
	Cache   string            // the user's directory of what can be had again
	Reach   edge.Reach        // what the settings of the process allow
	Refresh bool              // ask the registry, however new what is kept is
	Told    func(entries int) // of how many have come so far; nil for nobody
}

// Registry is a registry as it was read. It is safe for concurrent use.
type Registry struct {
	Source  Source
	Entries []*Entry  // by their names, one for each: its newest version
	Format  string    // for people
	Fetched time.Time // when the registry was asked last; zero for files
	Stale   error     // why the registry could not be asked now, and what is kept is used; nil where that is not so
	Unkept  error     // why what was fetched is not kept; nil where it is

	LeftOut int               // entries that cannot be right
	Reasons []string          // why, of the first ones
	wrong   map[string]string // why, by the names of those that have one
	Older   int               // entries of versions that are not the newest
	Deleted int               // entries that the registry says were deleted
}

// maxReasons is how many reasons for entries left out are kept.
const maxReasons = 10

// maxWrong is how many entries that cannot be right are known by their names.
const maxWrong = 1000

// Open reads a registry: its files, what is kept of it where that is new enough, or the
// registry itself. Where that cannot be had, what is kept is used, and Stale says why.
func Open(ctx context.Context, o Options) (*Registry, error) {
	if !o.Source.URL() {
		pages, err := o.Source.files()
		if err != nil {
			return nil, err
		}
		return o.Source.build(&kept{Pages: pages})
	}
	now := time.Now()
	had := o.Source.load(o.Cache)
	if had != nil && had.fresh(now) && !o.Refresh {
		return o.Source.build(had)
	}
	client, err := oauth.New(oauth.Options{Timeout: pageTimeout, Reach: o.Reach})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	f := &fetcher{source: o.Source, do: client.Do, told: o.Told, wait: time.After}
	if had != nil {
		f.had = had.Pages
	}
	pages, err := f.fetch(ctx)
	if err == nil {
		made := &kept{Source: o.Source.At, Fetched: now.UTC().Truncate(time.Second), Pages: pages}
		r, broken := o.Source.build(made)
		if broken == nil {
			r.Unkept = o.Source.save(o.Cache, made)
			return r, nil
		}
		err = broken
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case had == nil:
		return nil, away(o.Source, err)
	}
	r, broken := o.Source.build(had)
	if broken != nil {
		return nil, away(o.Source, err)
	}
	r.Stale = err
	return r, nil
}

// away is the error of a registry that cannot be had.
func away(s Source, err error) error {
	return &Error{Kind: Broken, Message: fmt.Sprintf("the registry %s cannot be read, and nothing is kept of it: %s", s, edge.Brief(err.Error())), Next: "try again later, or choose another with `weir registry set`"}
}

// build makes a registry of what was read. Where nothing can be used it says why.
func (s Source) build(k *kept) (*Registry, error) {
	r := &Registry{Source: s, Fetched: k.Fetched, wrong: map[string]string{}}
	var formats []string
	newest := map[string]*Entry{}
	for _, p := range k.Pages {
		if !slices.Contains(formats, p.Format) {
			formats = append(formats, p.Format)
		}
		for _, text := range p.Servers {
			e, err := parse(text)
			if err != nil {
				r.leaveOut(text, err)
				continue
			}
			if e.Status == "deleted" {
				r.Deleted++
				continue
			}
			old := newest[e.Name]
			if old == nil {
				newest[e.Name] = e
				continue
			}
			r.Older++
			if !before(e, old) {
				newest[e.Name] = e
			}
		}
	}
	if len(newest) == 0 && r.LeftOut > 0 {
		return nil, &Error{Kind: Broken, Message: fmt.Sprintf("none of the servers of %s can be right (%d); the first: %s", s, r.LeftOut, r.Reasons[0])}
	}
	for _, e := range newest {
		r.Entries = append(r.Entries, e)
	}
	slices.SortFunc(r.Entries, func(a, b *Entry) int { return strings.Compare(a.Name, b.Name) })
	r.Format = strings.Join(formats, ", ")
	return r, nil
}

// before reports whether of two entries of one name a is the older one: by what the registry
// says, by when they were published, and where neither is said by their versions.
func before(a, b *Entry) bool {
	switch {
	case a.Latest != b.Latest:
		return b.Latest
	case !a.Published.Equal(b.Published):
		return a.Published.Before(b.Published)
	}
	return compareVersions(a.Version, b.Version) < 0
}

// compareVersions compares two versions by Semantic Versioning 2.0.0; 0 where one is none.
func compareVersions(a, b string) int {
	if a, b = semantic(a), semantic(b); a == "" || b == "" {
		return 0
	}
	return semver.Compare(a, b)
}

// semantic is a version as the library has it, with a v and all three numbers; "" for what is
// none.
func semantic(version string) string {
	v := "v" + strings.TrimPrefix(version, "v")
	if semver.Canonical(v)+semver.Build(v) != v {
		return ""
	}
	return v
}

func (r *Registry) leaveOut(text []byte, err error) {
	if r.LeftOut++; len(r.Reasons) < maxReasons {
		r.Reasons = append(r.Reasons, edge.Brief(err.Error()))
	}
	var name string
	if json.Unmarshal(member(text, "name"), &name) == nil && name != "" && len(name) <= 255 && len(r.wrong) < maxWrong {
		r.wrong[name] = edge.Brief(err.Error())
	}
}

// Find finds the entry of a name, or of its last part where only one entry has it. The error
// is an *Error: NotFound names up to three that are near, and Invalid the entries that share
// a last part, or why the one of the name cannot be right.
func (r *Registry) Find(word string) (*Entry, error) {
	if i, ok := slices.BinarySearchFunc(r.Entries, word, func(e *Entry, name string) int { return strings.Compare(e.Name, name) }); ok {
		return r.Entries[i], nil
	}
	var same []*Entry
	if word != "" && !strings.Contains(word, "/") {
		for _, e := range r.Entries {
			if e.Last() == word {
				same = append(same, e)
			}
		}
	}
	switch {
	case len(same) == 1:
		return same[0], nil
	case len(same) > 1:
		var names []string
		for _, e := range same[:min(len(same), 5)] {
			names = append(names, e.Name)
		}
		more := ""
		if len(same) > 5 {
			more = fmt.Sprintf(" and %d more", len(same)-5)
		}
		return nil, &Error{Kind: Invalid, Message: fmt.Sprintf("%s is the name of %d entries of the registry: %s%s", shown(word), len(same), strings.Join(names, ", "), more), Next: "give the whole name"}
	}
	for name, why := range r.wrong {
		if word != "" && (name == word || name[strings.LastIndexByte(name, '/')+1:] == word) {
			return nil, &Error{Kind: Invalid, Message: fmt.Sprintf("the entry %s of the registry cannot be right: %s", shown(name), why), Next: "tell who keeps the registry; an image of this name is run by its tag or digest, and a program behind --"}
		}
	}
	e := &Error{Kind: NotFound, Message: fmt.Sprintf("there is no entry %s in the registry %s", shown(word), r.Source), Next: "weir search " + searchWord(word)}
	if names := r.near(word); len(names) > 0 {
		e.Near, e.Next = true, "did you mean "+strings.Join(names, ", ")+"?"
	}
	return nil, e
}

// searchWord is a word as a command line may show it.
func searchWord(word string) string {
	if namePattern.MatchString(word) || namePattern.MatchString("a/"+word) {
		return edge.Brief(word)
	}
	return "WORD"
}

// near are up to three names that a user may have meant.
func (r *Registry) near(word string) (names []string) {
	by := map[string]string{} // what may have been meant → name
	var words []string
	for _, e := range r.Entries {
		for _, w := range []string{e.Name, e.Last()} {
			if by[w] == "" {
				by[w], words = e.Name, append(words, w)
			}
		}
	}
	for len(names) < 3 {
		w, ok := near.Word(word, words)
		if !ok {
			break
		}
		if !slices.Contains(names, by[w]) {
			names = append(names, by[w])
		}
		words = slices.DeleteFunc(words, func(other string) bool { return other == w })
	}
	return names
}

// Search finds the entries in which all words occur, without regard to case, the best first:
// in the name, then among titles and tags, then in what is said of them and their tools.
func (r *Registry) Search(words ...string) []*Entry {
	type hit struct {
		e     *Entry
		score int
	}
	var hits []hit
	for _, e := range r.Entries {
		total := 0
		for _, w := range words {
			s := e.score(strings.ToLower(w))
			if s == 0 {
				total = 0
				break
			}
			total += s
		}
		if total > 0 {
			hits = append(hits, hit{e, total})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	found := make([]*Entry, len(hits))
	for i, h := range hits {
		found[i] = h.e
	}
	return found
}

// score is how well an entry fits a word in small letters; 0 for not at all.
func (e *Entry) score(word string) int {
	has := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), word) })
	}
	switch last := strings.ToLower(e.Last()); {
	case last == word || strings.ToLower(e.Name) == word:
		return 16
	case strings.Contains(last, word):
		return 8
	case has(e.Name, e.Title), has(e.Tags()...):
		return 4
	case has(e.Description), has(e.Tools()...):
		return 1
	}
	return 0
}

// Kept is a registry as it is at hand: its files, or what is kept of it, however old. No
// registry is asked. What is not kept is an error.
func Kept(source Source, cache string) (*Registry, error) {
	if !source.URL() {
		return Open(context.Background(), Options{Source: source})
	}
	had := source.load(cache)
	if had == nil {
		return nil, &Error{Kind: Broken, Message: fmt.Sprintf("nothing is kept of the registry %s", source), Next: "weir registry update"}
	}
	return source.build(had)
}

// Complete are names that begin with a text, and last parts that do where they are enough, at
// most so many of each.
func (r *Registry) Complete(begun string, most int) (names []string) {
	same := map[string]int{}
	for _, e := range r.Entries {
		same[e.Last()]++
	}
	for _, e := range r.Entries {
		if len(names) < most && strings.HasPrefix(e.Name, begun) {
			names = append(names, e.Name)
		}
	}
	for _, e := range r.Entries {
		if last := e.Last(); len(names) < 2*most && same[last] == 1 && strings.HasPrefix(last, begun) {
			names = append(names, last)
		}
	}
	return names
}
