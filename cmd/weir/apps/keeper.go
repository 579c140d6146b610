package apps

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"
)

// Server is a workload, for clients.
type Server struct {
	Name  string
	URL   string // of its door, without anything secret
	Type  string // streamable-http or sse; for Document alone
	Group string
	Wish  Wish
}

// Wish is what the user wants of a workload.
type Wish int

// Wishes.
const (
	Unknown Wish = iota // nobody has said: its entries stay as they are
	On                  // it runs, or is to run: clients have it
	Off                 // it is stopped: they have not
	Gone                // it was removed, and so are they
)

// Done is what became of an entry.
type Done string

// What becomes of an entry. The last three were left as they were.
const (
	Added     Done = "added"
	Changed   Done = "changed"
	Removed   Done = "removed"
	Unchanged Done = "unchanged"
	Edited    Done = "edited"   // somebody has changed what we wrote
	Missing   Done = "missing"  // somebody has removed what we wrote
	Taken     Done = "taken"    // somebody else wrote an entry of this name
	Outdated  Done = "outdated" // it is ours, and not as it has to be (Status alone)
)

// Left reports whether an entry is not as the workload wants it.
func (d Done) Left() bool { return d == Edited || d == Missing || d == Taken }

// Entry is what became of the entry of a server.
type Entry struct {
	Server string `json:"server"`
	Done   Done   `json:"done"`
	Line   int    `json:"line,omitempty"` // in the file as it was, from 1
}

// Report is what became of a client.
type Report struct {
	Client  string  `json:"client"`
	File    string  `json:"file"`
	Scope   Scope   `json:"scope"`
	Entries []Entry `json:"entries"`
	Err     error   `json:"-"`
}

// Keeper keeps the entries of workloads in the configurations of clients. It is safe for
// several processes at a time.
type Keeper struct {
	Dir string // of clients.json
	Place

	between func() // of tests: called between the write of a file and its renaming
	pause   func() // of tests: what is done in place of waiting for a file that is being written
}

// holding runs f with what is remembered, under the lock.
func (k *Keeper) holding(f func(*owned) error) error {
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return fmt.Errorf("the state directory: %w", err)
	}
	unlock, err := lock(filepath.Join(k.Dir, "clients.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	o, err := remembered(k.Dir)
	if err != nil {
		return err
	}
	return f(o)
}

// Setup gives clients the servers of a scope that are on, from now on: Follow keeps them so.
// What an earlier scope gave them goes. Every client is tried. list says which servers there are:
// it is asked while nobody else writes, since who writes last must not have looked first.
func (k *Keeper) Setup(names []string, scope Scope, list func() ([]Server, error)) (reports []Report, err error) {
	for _, name := range names { // a mistake in one is told before anything is written
		if _, err := k.app(name); err != nil {
			return nil, err
		}
	}
	err = k.holding(func(o *owned) error {
		servers, err := list()
		if err != nil {
			return err
		}
		for _, name := range names {
			app, err := k.app(name)
			if err != nil {
				return err
			}
			file, _ := app.File(k.Place) // it has one, by k.app
			if old := o.Clients[name]; old != nil && old.File != file {
				r := k.sync(o, app, nil, change{whole: true, last: true})
				if r.Err != nil { // what is in the old file stays known
					reports = append(reports, r)
					continue
				}
				delete(o.Clients, name)
			}
			c := o.Clients[name]
			made := c == nil
			if made {
				c = &client{File: file, Entries: map[string]*written{}}
				o.Clients[name] = c
			}
			was := c.Scope
			c.Scope = scope
			r := k.sync(o, app, servers, change{whole: true, asked: true})
			if r.Err != nil {
				if c.Scope = was; made {
					delete(o.Clients, name)
				}
			}
			if err := o.save(k.Dir); err != nil {
				return err
			}
			reports = append(reports, r)
		}
		return nil
	})
	return reports, err
}

// Include has a client get one more server, beside what it gets already: the next Follow writes
// its entry. A client that was not set up gets this one alone.
func (k *Keeper) Include(name string, s Server) error {
	app, err := k.app(name)
	if err != nil {
		return err
	}
	return k.holding(func(o *owned) error {
		c := o.Clients[name]
		switch {
		case c == nil:
			file, _ := app.File(k.Place) // it has one, by k.app
			o.Clients[name] = &client{File: file, Scope: Scope{Workloads: []string{s.Name}}, Entries: map[string]*written{}}
		case c.Scope.has(s):
			return nil
		default:
			c.Scope.Workloads = append(c.Scope.Workloads, s.Name)
		}
		return o.save(k.Dir)
	})
}

// app finds a client that there is on this system.
func (k *Keeper) app(name string) (App, error) {
	app, ok := Named(name)
	if !ok {
		return app, &Error{Kind: Absent, Text: fmt.Sprintf("there is no client %q", name), Next: "`weir client apps` lists those that there are"}
	}
	_, err := app.File(k.Place)
	return app, err
}

// Remove takes all entries that are ours out of the configurations of clients, and forgets
// the clients. One that was not set up has no report.
func (k *Keeper) Remove(names []string) (reports []Report, err error) {
	err = k.holding(func(o *owned) error {
		for _, name := range names {
			app, _ := Named(name)
			if o.Clients[name] == nil {
				continue
			}
			r := k.sync(o, app, nil, change{whole: true, last: true})
			if r.Err == nil {
				delete(o.Clients, name)
				if err := o.save(k.Dir); err != nil {
					return err
				}
			}
			reports = append(reports, r)
		}
		return nil
	})
	return reports, err
}

// Any reports whether a client was set up.
func (k *Keeper) Any() bool { return exists(ownedFile(k.Dir)) }

// Follow has all clients that were set up follow some workloads, which list lists as that of
// Setup does. whole says that there are no others.
func (k *Keeper) Follow(list func() ([]Server, error), whole bool) (reports []Report, err error) {
	if !k.Any() {
		return nil, nil
	}
	err = k.holding(func(o *owned) error {
		servers, err := list()
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(o.Clients)) {
			app, _ := Named(name) // what is remembered has known names alone
			reports = append(reports, k.sync(o, app, servers, change{whole: whole}))
		}
		return nil
	})
	return reports, err
}

// Status says how the entries of all clients that were set up are, and changes nothing. known
// says that the servers are known; else entries are compared with what was written alone.
func (k *Keeper) Status(servers []Server, known bool) ([]Report, error) {
	o, err := remembered(k.Dir)
	if err != nil {
		return nil, err
	}
	var reports []Report
	for _, name := range slices.Sorted(maps.Keys(o.Clients)) {
		app, _ := Named(name)
		c := o.Clients[name]
		r := Report{Client: name, File: c.File, Scope: c.Scope}
		s, err := load(c.File)
		if err == nil {
			var p plan
			if p, err = k.plan(app, c, s.data, servers, change{whole: known}); err == nil {
				r.Entries = p.entries
			}
		}
		for i, e := range r.Entries {
			if e.Done == Added || e.Done == Changed || e.Done == Removed {
				r.Entries[i].Done = Outdated
			}
		}
		r.Err = placed(err, c.File)
		reports = append(reports, r)
	}
	return reports, nil
}

// change says what kind of change is made.
type change struct {
	whole bool // servers that are not named are gone
	asked bool // the user asked for it: what somebody removed comes back
	last  bool // the client is forgotten after it
}

// plan is what has to be done to a configuration.
type plan struct {
	changes map[string]entry
	entries []Entry
	during  map[string]*written // what is remembered while it is done
	after   map[string]*written // and then
}

// plan decides what becomes of every entry of a client.
func (k *Keeper) plan(app App, c *client, data []byte, servers []Server, how change) (plan, error) {
	p := plan{changes: map[string]entry{}, during: map[string]*written{}, after: map[string]*written{}}
	byName := map[string]Server{}
	for _, s := range servers {
		byName[s.Name] = s
	}
	names := slices.Collect(maps.Keys(byName))
	for name := range c.Entries {
		if _, named := byName[name]; !named {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	read, err := syntaxOf(app.Syntax).read(data)
	if err != nil {
		return p, err
	}
	for _, name := range names {
		s, named := byName[name]
		if !named {
			s = Server{Name: name, Wish: Unknown}
			if how.whole {
				s.Wish = Gone
			}
		}
		w := c.Entries[name]
		if s.Wish == On && !c.Scope.has(s) {
			s.Wish = Gone
		}
		if s.Wish != On && w == nil {
			continue
		}
		at, err := read.find(app.Key, name)
		if err != nil {
			return p, err
		}
		if err := k.decide(&p, app, s, w, at, how); err != nil {
			return p, err
		}
	}
	return p, nil
}

// decide says what becomes of one entry: s is what is wanted of it, w what we wrote, and at
// what is there.
func (k *Keeper) decide(p *plan, app App, s Server, w *written, at found, how change) error {
	mine := at.there && at.plain && w.mine(at.value)
	if at.there && !mine && w != nil && w.Pending {
		w = nil // it was never written: what is there is somebody else's
	}
	told := func(d Done) { p.entries = append(p.entries, Entry{s.Name, d, at.line}) }
	keep := func(w *written) {
		if w != nil {
			p.during[s.Name], p.after[s.Name] = w, w
		}
	}
	if s.Wish == Unknown {
		keep(w)
		switch {
		case mine:
			told(Unchanged)
		case at.there:
			told(Edited)
		default:
			told(Missing)
		}
		return nil
	}
	if s.Wish != On {
		switch {
		case mine:
			told(Removed)
			p.changes[s.Name] = nil
			p.during[s.Name] = w
		case at.there:
			if told(Edited); s.Wish == Off {
				keep(w)
			}
		case s.Wish == Off && !w.Pending: // who removed it does not want it back at the next start
			keep(w)
		}
		return nil
	}
	e, err := app.entryOf(k.Place, s)
	if err != nil {
		return err
	}
	want := &written{Values: []map[string]any{e.plain()}}
	put := func(d Done, during *written) {
		told(d)
		p.changes[s.Name], p.during[s.Name], p.after[s.Name] = e, during, want
	}
	switch {
	case mine && same(at.value, e.plain()):
		told(Unchanged)
		keep(want)
	case mine:
		values := append(slices.Clone(w.Values), e.plain())
		put(Changed, &written{Values: values[max(0, len(values)-3):]})
	case at.there && w != nil:
		told(Edited)
		keep(w)
	case at.there && same(at.value, e.plain()): // somebody wrote the same by hand: it is theirs
		told(Unchanged)
	case at.there:
		told(Taken)
	case w == nil || w.Pending || how.asked:
		put(Added, &written{Values: want.Values, Pending: true})
	default:
		told(Missing)
		keep(w)
	}
	return nil
}

// tries is how often a change is made anew, when other programs change the file meanwhile, and
// rest how long one that is being written is left alone before the next: all together more than
// settled.
const (
	tries = 10
	rest  = 500 * time.Millisecond
)

// sync makes the configuration of a client what its workloads want.
func (k *Keeper) sync(o *owned, app App, servers []Server, how change) Report {
	c := o.Clients[app.Name]
	r := Report{Client: app.Name, File: c.File, Scope: c.Scope}
	for range tries {
		entries, err := k.once(o, app, c, servers, how)
		if errors.Is(err, errChanged) {
			continue
		}
		r.Entries, r.Err = entries, placed(err, c.File)
		return r
	}
	r.Err = &Error{File: c.File, Text: "another program changes it again and again", Next: "end the program, and try again"}
	return r
}

// once makes the change with the file as it is now; the error is errChanged where it is not
// so any longer.
func (k *Keeper) once(o *owned, app App, c *client, servers []Server, how change) ([]Entry, error) {
	// 1. Read the file, and decide.
	s, err := load(c.File)
	if err != nil {
		return nil, err
	}
	if s.unsettled() {
		if k.pause != nil {
			k.pause()
		} else {
			time.Sleep(rest)
		}
		return nil, errChanged
	}
	p, err := k.plan(app, c, s.data, servers, how)
	if err != nil {
		return nil, err
	}
	if len(p.changes) == 0 {
		return p.entries, k.remember(o, c, p.after)
	}
	// 2. Make the new content.
	out, err := edited(syntaxOf(app.Syntax), s.data, app.Key, p.changes)
	if err != nil {
		return nil, err
	}
	if len(out) > maxFile {
		return nil, &Error{File: c.File, Text: fmt.Sprintf("it would have more than %d MiB", maxFile>>20), Next: "make it smaller"}
	}
	// 3. Remember what is ours before it is there: who is killed here leaves nothing that is
	// taken for somebody else's.
	if err := k.remember(o, c, p.during); err != nil {
		return nil, err
	}
	// 4. Write it.
	if err := s.replace(out, k.between); err != nil {
		if errors.Is(err, errChanged) {
			return nil, err
		}
		return nil, &Error{File: c.File, Text: "it cannot be written: " + reason(err), Next: "see that you may write it and its directory"}
	}
	return p.entries, k.remember(o, c, p.after)
}

// remember keeps what is ours of a client.
func (k *Keeper) remember(o *owned, c *client, entries map[string]*written) error {
	if reflect.DeepEqual(c.Entries, entries) {
		return nil
	}
	c.Entries = entries
	return o.save(k.Dir)
}

// placed puts the file into an error of a text.
func placed(err error, file string) error {
	if m := new(mistake); errors.As(err, &m) {
		return &Error{File: file, Line: m.line, Text: m.text, Next: "correct it there; nothing was written"}
	}
	return err
}
