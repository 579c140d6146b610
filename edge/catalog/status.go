package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
)

// BackendStatus is the state of the lists of one backend.
type BackendStatus struct {
	Backend                              string
	Personal                             bool      // its lists are kept per principal, and the rest is zero
	Tools, Prompts, Resources, Templates int       // counts of its offer
	Missing                              bool      // one of its lists was never fetched or is too old
	Failing                              bool      // and the last fetch of it has failed
	Listed                               time.Time // when the oldest of its lists was fetched; zero while one is not there
	Message                              string    // error of a fetch that failed and has not succeeded since; "" for none
}

// Look says whether a backend listed all that it declares within timeout; url is
// the one to show.
func (s BackendStatus) Look(url string, timeout time.Duration) edge.Finding {
	if s.Personal {
		return edge.Fine("each user has lists of their own")
	}
	if !s.Missing {
		return edge.Fine(fmt.Sprintf("%s, %s, %s, %s", edge.Count(s.Tools, "tool"), edge.Count(s.Prompts, "prompt"), edge.Count(s.Resources, "resource"), edge.Count(s.Templates, "template")))
	}
	switch {
	case s.Message == "":
		return edge.Problem(edge.ClassTimeout, "look into the backend's log, or give it more time with --timeout", "not all of its lists are there within %s", timeout)
	case strings.Contains(s.Message, "refused the edge with HTTP 403") && !strings.Contains(s.Message, "credential"):
		return edge.Problem(edge.ClassRefused, "look into the backend's log for the reason", "%s", edge.Brief(s.Message))
	case strings.Contains(s.Message, "wants a credential"):
		return edge.Problem(edge.ClassCredential, "give the edge a credential for it: outgoingAuth of the server, externalAuthConfigRef or headerForward of the backend's own object", "%s", edge.Brief(s.Message))
	}
	return edge.Problem(edge.ClassLists, "look into the backend's log; `weir tools "+url+"` asks it without an edge", "%s", edge.Brief(s.Message))
}

// Status returns the state of each backend, in the order of Sources.
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
			missing := e.list == nil || now.Sub(e.got) > b.maxAge(b.common) && e.tries > 0
			s.Missing, s.Failing = s.Missing || missing, s.Failing || missing && e.failed != nil
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

// Fault returns why there is no list of a kind of a backend for an identity, after it was asked
// for: as a client may be told it. It is nil while there is one, or nobody has asked. That a
// user's own list cannot be had says what is to become of the user's calls: the kind is that of
// the failure to get the credential, where that is the reason.
func (b *Book) Fault(id *edge.Identity, backend string, thing edge.Thing) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, source := range b.Sources {
		if source.Name() != backend || thing == edge.NoThing || source.Personal() && id == nil {
			continue
		}
		e := b.common.entries[i][thing-1]
		if source.Personal() {
			e = b.setOf(id).entries[i][thing-1]
		}
		if e.list != nil || !e.tried {
			return nil
		}
		var unattached interface{ Unattached() bool }
		switch {
		case errors.As(e.failed, &unattached) && unattached.Unattached():
			return e.failed
		case source.Personal() && (e.failed == nil || edge.KindOf(e.failed) == edge.Timeout):
			return edge.Errorf(edge.Timeout, "list", "backend %q timed out", backend)
		}
		return edge.Errorf(edge.Unavailable, "list", "backend %q unavailable", backend)
	}
	return nil
}

// ownWait is how long, from its start, a fetch of a principal's list is waited for where nothing
// but that list can tell what is asked for: as long as a credential may take, and the list.
const ownWait = 7 * time.Second

// Await waits for the fetch of a principal's list of a backend, if one is under way that takes
// longer than others wait for it. It reports whether it has ended.
func (b *Book) Await(ctx context.Context, id *edge.Identity, backend string, thing edge.Thing) bool {
	var f *fetch
	b.mu.Lock()
	for i, source := range b.Sources {
		if source.Name() == backend && source.Personal() && id != nil && thing != edge.NoThing {
			if e := b.setOf(id).entries[i][thing-1]; e.list == nil {
				f = e.fetch
			}
		}
	}
	b.mu.Unlock()
	if f == nil {
		return false
	}
	t := time.NewTimer(time.Until(f.began.Add(ownWait)))
	defer t.Stop()
	select {
	case <-f.done:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// Listed waits for the lists that are the same for everybody and are fetched for the first
// time, as long as that takes, within the time that a principal's own may take.
func (b *Book) Listed(ctx context.Context, thing edge.Thing) {
	within, cancel := context.WithTimeout(ctx, ownWait)
	defer cancel()
	for i := range b.Sources {
		b.mu.Lock()
		var f *fetch
		if e := b.common.entries[i][thing-1]; e != nil && e.list == nil {
			if f = e.fetch; f == nil {
				f = b.tend(e, time.Now(), false)
			}
		}
		b.mu.Unlock()
		if f != nil {
			select {
			case <-f.done:
			case <-within.Done():
				return
			}
		}
	}
}

// Tools returns the findings about tools that clients do not see though they are not hidden, and
// about rules that name none.
func (r Report) Tools() (all []Finding) {
	for _, f := range r.Findings {
		if f.Thing == edge.Tool && (f.Reason.Withheld() || f.Reason == Unused) {
			all = append(all, f)
		}
	}
	return all
}

// Report returns the findings about the catalog that is the same for everybody.
func (b *Book) Report() Report {
	c := b.current(b.common)
	if b.Overrides != nil && !b.Overrides.Varies() {
		if v, err := b.variant(c, b.common, nil); err == nil {
			c = v
		}
	}
	return c.Report()
}
