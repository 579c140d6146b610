package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload/logs"
)

// List is Manager.List.
func (k *Keeper) List(context.Context) ([]Status, error) {
	all := []Status{}
	for _, w := range k.sorted() {
		all = append(all, w.status())
	}
	k.mu.Lock()
	others := k.others()
	k.mu.Unlock()
	for _, name := range others {
		if w := k.foreign(name); w != nil {
			all = append(all, w.Status)
		}
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	resident := k.resident()
	for i := range all {
		all[i].RSSBytes = resident[all[i].Name]
	}
	return all, nil
}

// foreign says what is known of a workload that another process has in its foreground; nil
// for one that nobody has.
func (k *Keeper) foreign(name string) *Detail {
	path := filepath.Join(k.Paths.Workloads(), name)
	f, err := openFolder(path)
	if err == nil {
		f.close()
	}
	if !errors.Is(err, edge.ErrHeld) {
		return nil
	}
	text, err := readOwn(filepath.Join(path, "manifest.yaml"), MaxManifest)
	if err != nil {
		return nil
	}
	facts, err := k.Edge.Read(text)
	if err != nil {
		return nil
	}
	w := newOne(k, name)
	w.describe(text)
	w.facts, w.now = facts, readRecord(path)
	if w.now.Boot != k.Boot {
		w.now.State = Unknown
	}
	d := w.detail()
	d.Sandbox, d.Isolation = w.now.Sandbox, d.Isolation && !w.now.Open
	if d.Reason == "" {
		d.Reason = fmt.Sprintf("runs in the foreground of the process %d", w.now.PID)
		d.StatusContext = d.Reason
	}
	return &d
}

// find returns a workload by its name.
func (k *Keeper) find(name string) (*one, error) {
	if err := checkName("workload", name); err != nil {
		return nil, err
	}
	k.mu.Lock()
	w := k.all[name]
	k.mu.Unlock()
	if w != nil {
		return w, nil
	}
	if d := k.foreign(name); d != nil {
		return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("the workload %s %s: end it there", name, d.Reason)}
	}
	return nil, notFound(name)
}

func notFound(name string) error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("there is no workload %s", name), Next: "weir list -a"}
}

// take returns a workload whose turn the caller has. With a reason a start that is under
// way ends for it.
func (k *Keeper) take(ctx context.Context, name string, reason error) (*one, error) {
	w, err := k.find(name)
	for err == nil {
		if reason != nil {
			w.interrupt(reason)
		}
		select {
		case w.turn <- struct{}{}:
			if w.isGone() {
				w.release()
				return nil, notFound(name)
			}
			return w, nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-k.life.Done():
			err = errEnding
		case <-time.After(100 * time.Millisecond): // another start may have begun before us
		}
	}
	return nil, err
}

var errEnding = &Error{Code: CodeFault, Message: "the manager is ending", Next: "weir up"}

// Inspect is Manager.Inspect.
func (k *Keeper) Inspect(_ context.Context, name string) (*Detail, error) {
	w, err := k.find(name)
	if err != nil {
		if d := k.foreign(name); IsName(name) && d != nil {
			return d, nil
		}
		return nil, err
	}
	d := w.detail()
	d.RSSBytes = k.resident()[d.Name]
	return &d, nil
}

// Start is Manager.Start. One that runs already stays as it is.
func (k *Keeper) Start(ctx context.Context, name string, wait time.Duration, told func(Event)) error {
	w, err := k.take(ctx, name, nil)
	if err == nil {
		err = w.wish(Running)
	}
	switch {
	case w != nil && err != nil:
		w.release()
		fallthrough
	case err != nil:
		return err
	case w.state() == Running || w.state() == Unhealthy:
		w.release()
		return w.last(nil, told)
	}
	return w.await(ctx, w.begin(false), wait, told)
}

// Restart is Manager.Restart.
func (k *Keeper) Restart(ctx context.Context, name string, wait time.Duration, told func(Event)) error {
	w, err := k.take(ctx, name, errors.New("it is restarted"))
	if err == nil {
		err = w.wish(Running)
	}
	if err == nil {
		err = w.stop(0, steps(told))
	}
	if err != nil {
		if w != nil {
			w.release()
		}
		return err
	}
	return w.await(ctx, w.begin(false), wait, told)
}

// Stop is Manager.Stop. A timeout of 0 is the usual one.
func (k *Keeper) Stop(ctx context.Context, name string, timeout time.Duration, told func(Event)) error {
	w, err := k.take(ctx, name, errStopped)
	if err != nil {
		return err
	}
	defer w.release()
	if err = w.wish(Stopped); err == nil || !w.wanted() {
		err = cmp.Or(w.stop(timeout, steps(told)), err)
	}
	return w.last(err, told)
}

var errStopped = &Error{Code: CodeStart, Message: "it was stopped while it started"}

// Remove is Manager.Remove.
func (k *Keeper) Remove(ctx context.Context, name string, o RemoveOptions, told func(Event)) error {
	after := func(name string) { k.removed(name, steps(told)) }
	if o.KeepVolumes {
		after = nil
	}
	manifest, err := k.remove(ctx, name, o.Force, after, told)
	if err == nil && !o.KeepImage {
		// Also where nobody waits any longer: no later command would find it.
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetWithin)
		k.forget(own, name, manifest, steps(told))
		cancel()
	}
	if err == nil && told != nil {
		told(Event{Time: time.Now(), Text: "removed " + name, State: Removing})
	}
	return err
}

// removed tells the edge that a workload is there no longer. What that cannot remove is told.
func (k *Keeper) removed(name string, told func(Event)) {
	if r, ok := k.Edge.(Remover); ok {
		if err := r.Removed(name); err != nil {
			k.Log.Warn("something of a workload that was removed is left", "workload", name, "error", err)
			told(Event{Time: time.Now(), Text: "what it kept may still be there: " + edge.Clean(err.Error())})
		}
	}
}

// forget removes what was kept for a workload that is gone. What cannot be removed stays, and
// harms nobody.
func (k *Keeper) forget(ctx context.Context, name string, manifest []byte, told func(Event)) {
	if k.Forget == nil || len(manifest) == 0 {
		return
	}
	k.mu.Lock()
	all := slices.Collect(maps.Values(k.all))
	k.mu.Unlock()
	var others [][]byte
	for _, w := range all {
		w.mu.Lock()
		others = append(others, w.manifest)
		w.mu.Unlock()
	}
	forgotten, err := k.Forget(ctx, manifest, others)
	for _, what := range forgotten {
		told(Event{Time: time.Now(), Text: "removed " + what})
	}
	if err != nil {
		k.Log.Warn("what was kept for a workload stays", "workload", name, "error", err)
		told(Event{Time: time.Now(), Text: "an image that was built for it may still be there: " + err.Error()})
	}
}

// remove is Remove of the workload alone; it returns its manifests. It calls after before
// another one can take its place, unless that is nil.
func (k *Keeper) remove(ctx context.Context, name string, force bool, after func(name string), told func(Event)) ([]byte, error) {
	w, err := k.take(ctx, name, errStopped)
	if err != nil {
		return nil, err
	}
	defer w.release()
	w.mu.Lock()
	manifest := w.manifest
	w.mu.Unlock()
	if w.unusable() && !force {
		return nil, w.last(&Error{Code: CodeFault, Message: w.status().Reason, Next: "weir rm --force " + name}, told)
	}
	if err := w.stop(0, steps(told)); err != nil && !force {
		return nil, w.last(err, told)
	}
	w.to(Removing, "")
	if err := w.discard(after); err != nil {
		w.to(Failed, err.Error())
		return nil, w.last(err, told)
	}
	return manifest, nil
}

// Logs is Manager.Logs.
func (k *Keeper) Logs(ctx context.Context, name string, o LogOptions, line func(Line)) error {
	if w, err := k.find(name); err != nil && (!IsName(name) || k.foreign(name) == nil) {
		return err
	} else if w != nil && w.unusable() {
		return &Error{Code: CodeFault, Message: w.status().Reason, Next: "weir rm --force " + name}
	}
	done, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(k.life, end)()
	if o.Tail < 0 || o.Tail > logs.MaxTail {
		return &Error{Code: CodeInvalid, Field: "--tail", Message: fmt.Sprintf("%d: give the number of lines, up to %d", o.Tail, logs.MaxTail)}
	}
	logs.Read(filepath.Join(k.Paths.Workloads(), name), o, done.Done(), line)
	return nil
}

// forgetWithin is how long what was kept for a workload may take to be removed.
const forgetWithin = time.Minute
