package catalog

import (
	"time"

	"github.com/weir-edge/weir/edge"
)

// BackendStatus is what a Book knows of a backend.
type BackendStatus struct {
	Backend                              string
	Personal                             bool      // the rest is known for each principal alone
	Tools, Prompts, Resources, Templates int       // that it offers
	Missing                              bool      // some list of it does not count or was never there
	Listed                               time.Time // when the oldest of its lists was fetched; zero while one is not there
	Message                              string    // why the last fetch that failed did; "" when none has since
}

// Status returns what is known of each backend, in the order of Sources.
func (b *Book) Status() []BackendStatus {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]BackendStatus, len(b.Sources))
	for i, source := range b.Sources {
		s := &out[i]
		s.Backend, s.Personal = source.Name(), source.Personal()
		for k, e := range b.common.entries[i] {
			if e == nil {
				continue
			}
			if k == 0 || e.got.Before(s.Listed) {
				s.Listed = e.got
			}
			s.Missing = s.Missing || e.list == nil || now.Sub(e.got) > b.maxAge() && e.tries > 0
			if e.failed != nil {
				s.Message = e.failed.Error()
			}
			if e.list == nil {
				continue
			}
			n := len(e.list.Items)
			switch e.thing {
			case edge.Tool:
				s.Tools = n
			case edge.Prompt:
				s.Prompts = n
			case edge.Resource:
				s.Resources = n
			case edge.Template:
				s.Templates = n
			}
		}
	}
	return out
}

// Lacks reports whether a backend was asked for a list that is the same for
// everybody, and has never given one.
func (b *Book) Lacks(backend string, thing edge.Thing) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, source := range b.Sources {
		if source.Name() == backend && thing != edge.NoThing {
			e := b.common.entries[i][thing-1]
			return e != nil && e.list == nil && e.tried
		}
	}
	return false
}

// Report returns what was found while the catalog that is the same for
// everybody was built.
func (b *Book) Report() Report {
	c := b.current(b.common)
	if b.Overrides != nil && !b.Overrides.Varies() {
		if v, err := b.variant(c, b.common, nil); err == nil {
			c = v
		}
	}
	return c.Report()
}
