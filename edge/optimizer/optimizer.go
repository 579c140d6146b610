// Package optimizer lets clients search for tools in place of listing them: find_tool finds
// the tools for a task by their words and, where an embedding service is given, by the
// meaning of what they say of themselves; call_tool calls one that was found.
//
// A server has an Optimizer. What is read of tools, and their vectors, lie in the Library of
// the process, so that neither a session nor a reload causes any work.
package optimizer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Names of the two tools.
const (
	Find = "find_tool"
	Call = "call_tool"
)

// Spec is how the tools of one server are searched: spec.config.optimizer, with its defaults
// filled in.
type Spec struct {
	Ratio float64 // of the score that is for vectors, from 0 to 1
	Most  int     // tools of one answer
	Far   float64 // cosine distance beyond which a tool is not found by its vector, from 0 to 2
}

// Options are what an optimizer works with.
type Options struct {
	Spec
	Library *Library
	Service *Service // nil for keywords alone

	// Catalog returns the catalog for an identity, and waits for lists that nobody has asked
	// for yet.
	Catalog func(context.Context, *edge.Identity) (Catalog, error)

	// Settled returns the catalog of everybody if all of its lists are there, else nil. It
	// does not block.
	Settled func() Catalog

	// Whose returns whose catalog an identity has: "" for that of everybody.
	Whose func(*edge.Identity) string

	Counters *Counters
	Log      *slog.Logger
}

// How often the catalog is looked at, which bounds how often an index is made; and for how
// many owners of catalogs one is kept.
const (
	pace      = 250 * time.Millisecond
	maxOwners = 64
	everybody = ""
)

// Optimizer is the two tools of one server. It is safe for concurrent use.
type Optimizer struct {
	Options
	end  chan struct{}
	work sync.WaitGroup

	mu     sync.Mutex
	owners *recent[string, *owner]
}

// owner is somebody with a catalog: everybody, or one principal.
type owner struct {
	making sync.Mutex // held while an edition is made

	mu    sync.Mutex
	now   *edition // nil before the first
	began time.Time
	busy  bool // one is made in the background
	gone  bool // no longer among the owners: nobody drops what is made for it from now on
}

// Open returns an optimizer that follows the catalog of everybody.
func Open(o Options) *Optimizer {
	s := &Optimizer{Options: o, end: make(chan struct{}), owners: newRecent[string, *owner](maxOwners, 0)}
	s.owners.gone = s.drop
	s.work.Go(s.follow)
	return s
}

// Close ends what goes on in the background, and waits for it.
func (o *Optimizer) Close() {
	close(o.end)
	o.work.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.owners.all(o.drop)
}

func (o *Optimizer) closed() bool {
	select {
	case <-o.end:
		return true
	default:
		return false
	}
}

// drop makes the service forget the edition of an owner.
func (o *Optimizer) drop(one *owner) {
	one.mu.Lock()
	one.gone = true
	e := one.now
	one.mu.Unlock()
	if e != nil && o.Service != nil {
		o.Service.leave(e)
	}
}

// follow makes an edition of each new catalog of everybody.
func (o *Optimizer) follow() {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		if c := o.Settled(); c != nil {
			o.renew(o.owner(everybody), c)
		}
		select {
		case <-o.end:
			return
		case <-tick.C:
		}
	}
}

func (o *Optimizer) owner(of string) *owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	one, ok := o.owners.get(of)
	if !ok {
		one = &owner{}
		o.owners.put(of, one, 0)
	}
	return one
}

func (w *owner) edition() *edition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// renew makes the edition of a catalog, unless it is there, and puts it in place of the one
// before.
func (o *Optimizer) renew(w *owner, c Catalog) *edition {
	defer edge.Contain(o.Log, "optimizer")
	w.making.Lock()
	defer w.making.Unlock()
	before := w.edition()
	if before != nil && before.of == c {
		return before
	}
	began := time.Now()
	e := newEdition(c, o.Library, before)
	if o.Service != nil {
		o.Service.serve(e)
	}
	w.mu.Lock()
	w.now, w.began = e, began
	gone := w.gone || o.closed()
	w.mu.Unlock()
	if o.Service != nil {
		if before != nil {
			o.Service.leave(before)
		}
		if gone { // it was dropped while this was made
			o.Service.leave(e)
		}
	}
	o.Counters.indexed(e, time.Since(began))
	return e
}

// editionOf returns an edition for a catalog of an owner. It waits for one only where there
// is none yet: while the index of a changed catalog is made, the one before is searched.
func (o *Optimizer) editionOf(of string, c Catalog) *edition {
	w := o.owner(of)
	w.mu.Lock()
	now := w.now
	late := now != nil && now.of != c && of != everybody && !w.busy && time.Since(w.began) > pace && !o.closed()
	w.busy = w.busy || late
	w.mu.Unlock()
	switch {
	case now == nil:
		return o.renew(w, c)
	case late:
		o.work.Go(func() {
			o.renew(w, c)
			w.mu.Lock()
			w.busy = false
			w.mu.Unlock()
		})
	}
	return now
}

// found is a tool that was found, with its definition as its client is shown it.
type found struct {
	hit
	name       string
	definition []byte
	words      []string // of the question, that it has
}

// answered is what a search brings.
type answered struct {
	tools    []found // the best first
	hybrid   bool    // vectors were compared
	baseline int     // bytes of the list that the client would have been shown
}

// search searches for a client.
func (o *Optimizer) search(ctx context.Context, x *edge.Exchange, q *asked) (*answered, error) {
	c, err := o.Catalog(ctx, x.Identity)
	if err != nil {
		return nil, err
	}
	e := o.editionOf(o.Whose(x.Identity), c)
	in := e.seenBy(x.View)
	a := &answered{baseline: in.bytes[x.Era]}
	how := search{ratio: o.Ratio, most: o.Most, far: o.Far}
	if e.of != c {
		how.most *= 2 // some may be gone
	}
	var vector []float32
	vectors, v := o.vectors(ctx, e, in, q)
	if a.hybrid = v != nil; a.hybrid {
		vector = v.of
	}
	words := ask(q.text())
	hits := e.index.find(words, how, &in.seen, vector, func(n uint32) []float32 {
		if v := vectors.of[n].Load(); v != nil {
			return v.of
		}
		return nil
	}, e.name)
	for _, h := range hits {
		if definition := e.definition(h.tool, in, c, x); definition != nil && len(a.tools) < o.Most {
			a.tools = append(a.tools, found{h, e.name(h.tool), definition, e.index.hits(words, h.tool)})
		}
	}
	return a, nil
}

// vectors returns those of the tools of an edition, and that of a question to compare them
// with; nil where either is not there.
func (o *Optimizer) vectors(ctx context.Context, e *edition, in *view, q *asked) (*vectors, *vector) {
	if o.Service == nil || o.Ratio == 0 {
		return nil, nil
	}
	all := e.vectors.Load()
	if all == nil || !all.any(in.allowed) {
		return nil, nil
	}
	v, m := o.Service.question(ctx, q.text())
	if v == nil || m != all.model {
		return nil, nil
	}
	return all, v
}
