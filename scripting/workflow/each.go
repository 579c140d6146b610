package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting"
)

// The bounds of a forEach.
const (
	mostItems    = 1000
	mostParallel = 50
)

// loop is one forEach under way.
type loop struct {
	run     *run
	step    *handle
	work    starlark.Callable
	item    string
	when    starlark.Callable
	onError string
	def     starlark.Value
	timeout time.Duration
	attempt int // of the step

	items   []starlark.Value
	results []starlark.Value
	done    map[string]int // status to count
	begun   int
	live    int
	err     error // of the item that ends the loop
	cancel  context.CancelFunc
	parent  *scripting.Task
}

// each calls a function for each item:
// each("a", lambda: items("…"), lambda item, index: …, item="row", max_items=100, parallel=10).
func (r *run) each(t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	l := &loop{run: r, item: "item", onError: "abort", done: map[string]int{}, parent: t, step: aroundOf(t).step, attempt: aroundOf(t).attempt}
	var (
		id                 string
		collection         starlark.Callable
		maxItems, parallel = 100, 10
		when, def          starlark.Value
		timeout            string
	)
	if err := starlark.UnpackArgs("each", args, named, "id", &id, "collection", &collection, "work", &l.work, "item?", &l.item, "max_items?", &maxItems, "parallel?", &parallel,
		"when??", &when, "on_error?", &l.onError, "default??", &def, "timeout?", &timeout); err != nil {
		return nil, err
	}
	switch {
	case l.step == nil:
		return nil, errors.New("each: stands in a step")
	case maxItems < 1 || maxItems > mostItems:
		return nil, fmt.Errorf("each: max_items is %d, and may be 1 to %d", maxItems, mostItems)
	case parallel < 1 || parallel > mostParallel:
		return nil, fmt.Errorf("each: parallel is %d, and may be 1 to %d", parallel, mostParallel)
	case l.item == "index" || l.item == "":
		return nil, errors.New("each: item is the name of the loop variable, and not index")
	case l.onError != "abort" && l.onError != "continue":
		return nil, fmt.Errorf("each: on_error is %s, and must be abort or continue", shown(l.onError))
	case aroundOf(t).forEach != nil:
		return nil, errors.New("each: within each")
	}
	var err error
	if l.when, err = callable("each", "when", when); err != nil {
		return nil, err
	}
	if l.timeout, err = duration("each", timeout, r.w.timeout); err != nil {
		return nil, err
	}
	if def != nil && def != starlark.None {
		l.def = def
	}
	list, err := t.Call(collection)
	if err != nil {
		return nil, err
	}
	sequence, ok := list.(starlark.Sequence)
	if !ok {
		return nil, failed("collection: %s is no array", list.Type())
	}
	if n := sequence.Len(); n > maxItems {
		return nil, failed("collection: %d items, and at most %d are allowed", n, maxItems)
	}
	for v := range starlark.Elements(sequence) {
		if bad := readable(v); bad != nil { // what is not may be within itself, and Freeze has no end then
			return nil, failed("item %d: %s", len(l.items), bad)
		}
		v.Freeze()
		l.items = append(l.items, v)
	}
	l.results = make([]starlark.Value, len(l.items))
	return l.runItems(t, parallel)
}

// runItems runs the items, so many at once.
func (l *loop) runItems(t *scripting.Task, parallel int) (starlark.Value, error) {
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(t.Context())
	defer l.cancel()
	for {
		for l.begun < len(l.items) && l.live < parallel && l.err == nil && t.Ended() == nil && ctx.Err() == nil {
			i := l.begun
			l.begun++
			if l.run.skipping { // nothing more begins
				_ = l.record(i, statusSkipped, l.def, errSkipped.Error())
				continue
			}
			l.live++
			t.Go(ctx, nil, func(c *scripting.Task) error { return l.one(c, ctx, i) }, func(err error) {
				skipped := errors.Is(err, errSkipped)
				if err != nil && (l.err == nil || errors.Is(l.err, errSkipped) && !skipped) {
					l.err = err
					if !skipped { // else what is under way ends by itself
						l.cancel()
					}
				}
				if l.live--; l.live == 0 || l.begun < len(l.items) {
					l.parent.Wake()
				}
			})
		}
		if l.live == 0 {
			break
		}
		t.Park()
	}
	switch {
	case l.run.over(t) != nil:
		return nil, t.Ended()
	case l.err != nil:
		return nil, l.err
	case l.begun < len(l.items), t.Context().Err() != nil:
		return nil, failed("cancelled")
	}
	out := starlark.NewDict(4)
	for _, pair := range []struct {
		name  string
		value starlark.Value
	}{
		{"iterations", starlark.NewList(l.results)},
		{"count", starlark.MakeInt(len(l.items))},
		{"completed", starlark.MakeInt(l.done[statusCompleted])},
		{"failed", starlark.MakeInt(l.done[statusFailed])},
	} {
		if err := out.SetKey(starlark.String(pair.name), pair.value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// one runs one item.
func (l *loop) one(t *scripting.Task, ctx context.Context, i int) error {
	ctx, cancel := l.run.limited(ctx, l.timeout)
	defer cancel()
	data, err := dataOf(l.items[i])
	if err != nil {
		return failed("item %d: %s", i, err)
	}
	a := &around{step: l.step, item: i, attempt: l.attempt, forEach: map[string]any{l.item: data, "index": int64(i)}}
	defer t.With(ctx, a)()
	if l.when != nil {
		yes, err := holds(t, l.when)
		if err != nil {
			return l.failed(t, ctx, i, err)
		}
		if !yes {
			return l.record(i, statusSkipped, l.def, "")
		}
	}
	v, err := t.Call(l.work, l.items[i], starlark.MakeInt(i))
	if err != nil {
		return l.failed(t, ctx, i, err)
	}
	return l.record(i, statusCompleted, v, "")
}

// failed is what comes of an item that failed.
func (l *loop) failed(t *scripting.Task, ctx context.Context, i int, err error) error {
	if f := l.run.over(t); f != nil {
		return f
	}
	if errors.Is(err, errSkipped) {
		return err
	}
	message := l.run.message(err)
	if ctx.Err() == context.DeadlineExceeded {
		message = "timed out after " + scripting.Seconds(l.timeout)
	}
	if l.onError == "continue" && ctx.Err() != context.Canceled {
		return l.record(i, statusFailed, l.def, message)
	}
	out := failed("item %d: %s", i, message)
	out.again = ctx.Err() == context.DeadlineExceeded // a time-out, of which nothing else is to be seen
	if f := l.run.passing(err); f != nil {
		out.again, out.after = true, f.after
	}
	return out
}

// record keeps what came of an item.
func (l *loop) record(i int, status string, output starlark.Value, message string) error {
	l.done[status]++
	if output == nil {
		output = starlark.None
	}
	d := starlark.NewDict(5)
	set := func(name string, v starlark.Value) { _ = d.SetKey(starlark.String(name), v) } // a text hashes
	set("index", starlark.MakeInt(i))
	set("item", l.items[i])
	set("status", starlark.String(status))
	set("output", output)
	if message != "" {
		set("error", starlark.String(message))
	}
	l.results[i] = d
	return nil
}
