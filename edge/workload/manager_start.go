package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/workload/logs"
)

// attempt is a start under way.
type attempt struct {
	done chan struct{}
	feed chan Event
	err  error       // once done is closed
	left atomic.Bool // whoever waited for it waits no longer
}

// begin starts the workload, or has it introduce itself anew where its door is open. The
// caller has the turn, and has it no longer. A fresh one that was refused is gone at the end;
// it stays where only its start failed, or somebody has to log in or to unlock its secrets.
func (w *one) begin(fresh bool) *attempt {
	ctx, abort := context.WithCancelCause(w.k.life)
	a := &attempt{done: make(chan struct{}), feed: make(chan Event, 256)}
	w.mu.Lock()
	w.abort, w.feed = abort, a.feed
	w.mu.Unlock()
	end := func() {
		w.mu.Lock()
		w.abort, w.feed = nil, nil
		w.mu.Unlock()
		abort(nil)
		w.release()
		close(a.done)
	}
	if !w.k.spawn(func() {
		defer end()
		a.err = w.bring(ctx)
		var e *Error
		stays := errors.As(a.err, &e) && (e.Code == CodeStart || e.Code == CodeLogin || e.Code == CodeLocked)
		if fresh && a.err != nil && !stays && !a.left.Load() && ctx.Err() == nil {
			kept := func(name string) { w.k.removed(name, func(Event) {}) }
			if w.heir {
				kept = nil
			}
			if err := w.discard(kept); err != nil {
				w.k.Log.Warn("what was refused is not removed", "workload", w.name, "error", err)
			}
			if e != nil && e.Next == "weir logs "+w.name { // which is gone with it
				e.Next = ""
			}
		}
	}) {
		a.err = errEnding
		end()
	}
	return a
}

// interrupt ends the start under way.
func (w *one) interrupt(reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.abort != nil {
		w.abort(reason)
	}
}

// bring brings the workload to run, and its state to what becomes of that. Somebody who
// interrupts it decides on the state.
func (w *one) bring(ctx context.Context) error {
	w.mu.Lock()
	open, was := w.open, w.now.State
	w.mu.Unlock()
	var err error
	if look, ok := w.k.Edge.Look(w.name); open && ok && look.Over { // nothing but a new door starts it again
		if err := w.shut(usually); err != nil {
			return w.failed(err, look)
		}
		w.mu.Lock()
		w.open = false
		w.mu.Unlock()
		open = false
	}
	if !open || was == Failed || was == Unauthenticated {
		w.to(Starting, "")
		w.say("starting " + w.name)
	}
	select {
	case w.k.starts <- struct{}{}:
		leave := sync.OnceFunc(func() { <-w.k.starts })
		late := time.AfterFunc(startsFor, leave)
		defer leave()
		defer late.Stop()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !open {
		if err = w.k.Edge.Open(w.opening()); err == nil {
			w.mu.Lock()
			w.open = true
			w.mu.Unlock()
			w.say("waiting until " + w.name + " has introduced itself")
		}
	}
	if err == nil {
		err = w.k.Edge.Meet(ctx, w.name)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	look, _ := w.k.Edge.Look(w.name)
	w.mu.Lock()
	if w.now.URL = look.URL; look.URL == "" && err == nil {
		err = errors.New("its door has no address")
	}
	w.now.Stderr = look.Stderr
	if was != AuthRetrying { // which is tried less often
		w.next = time.Now().Add(againAfter)
	}
	w.mu.Unlock()
	if err == nil {
		w.to(Running, "")
		return nil
	}
	return w.failed(err, look)
}

func (w *one) opening() Opening {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Opening{
		Name: w.name, Manifest: w.manifest, Folder: w.folder.path, Lines: w.line, Say: func(text string) { w.say(w.name + ": " + text) },
		Remembered: func(digest string) (modern, known bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if s := w.now.Speaks; s != nil && s.Digest == digest {
				return s.Modern, true
			}
			return false, false
		},
		Remember: func(digest string, modern bool) {
			w.mu.Lock()
			w.now.Speaks = &speaks{digest, modern} // which is written with the next state
			w.mu.Unlock()
		},
	}
}

// failed notes why a workload does not run, and returns it as an error for the user.
func (w *one) failed(err error, look Look) error {
	said := *asError(err)
	if said.Next == "" {
		said.Next = "weir logs " + w.name
	}
	state, reason := cmp.Or(map[Code]State{CodeLogin: Unauthenticated, CodeRefused: PolicyStopped}[said.Code], Failed), said.Message
	switch was := w.state(); {
	case look.State == Unhealthy && was == Unhealthy: // it rests, and is tried again
		state, reason = Unhealthy, look.Reason
	case said.Code == CodeLogin && was == AuthRetrying: // likewise
		state, reason = AuthRetrying, look.Reason
	}
	w.mu.Lock()
	w.now.Failure, w.now.Next = said.Message, said.Next
	w.hopeless = said.Code != CodeStart && said.Code != CodeFault && !said.Passing
	w.mu.Unlock()
	w.to(state, reason)
	if said.Code == CodeStart && len(look.Stderr) > 0 {
		said.Message += "\n  " + strings.Join(look.Stderr, "\n  ")
	}
	return &said
}

// await tells of a start until it has ended, wait is over, or ctx has ended. Without a time
// to wait it does not.
func (w *one) await(ctx context.Context, a *attempt, wait time.Duration, told func(Event)) error {
	if told == nil {
		told = func(Event) {}
	}
	over := make(<-chan time.Time)
	if wait > 0 {
		over = time.After(wait)
	} else {
		select {
		case <-a.done:
		default:
			a.left.Store(true)
			told(Event{Time: time.Now(), Text: "starting " + w.name, State: Starting})
			return nil
		}
	}
	for {
		select {
		case e := <-a.feed:
			told(e)
			continue
		case <-a.done:
		case <-over:
			a.left.Store(true)
			late := &Error{Code: CodeStart, Message: fmt.Sprintf("%s has not introduced itself within %s; its start goes on", w.name, wait), Next: "weir status " + w.name}
			if look, _ := w.k.Edge.Look(w.name); look.Ended != "" {
				late.Message += strings.Join(append([]string{"; its last process ended: " + look.Ended}, look.Stderr...), "\n  ")
			}
			return w.last(late, told)
		case <-ctx.Done():
			a.left.Store(true)
			return context.Cause(ctx)
		}
		for len(a.feed) > 0 {
			told(<-a.feed)
		}
		return w.last(a.err, told)
	}
}

// last tells the last event of something, and returns its error.
func (w *one) last(err error, told func(Event)) error {
	e := asError(err)
	if told != nil {
		w.mu.Lock()
		event := Event{Time: time.Now(), State: w.now.State, URL: w.now.URL, Error: e}
		w.mu.Unlock()
		if event.Text = w.name + " is " + string(event.State); e != nil {
			event.Text = ""
		}
		told(event)
	}
	return err
}

// usually is how long processes have to end where nobody says.
const usually, longest = 10 * time.Second, 10 * time.Minute

// stop ends a workload. The caller has the turn.
func (w *one) stop(within time.Duration, told func(Event)) error {
	if within <= 0 || within > longest {
		within = min(max(within, usually), longest)
	}
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	if open {
		w.to(Stopping, "")
		told(Event{Time: time.Now(), Text: "stopping " + w.name})
		err := w.shut(within)
		w.mu.Lock()
		w.open = err != nil
		w.mu.Unlock()
		if err != nil {
			w.to(Failed, err.Error())
			return err
		}
	}
	if w.state() != Stopped {
		w.to(Stopped, "")
	}
	return nil
}

// shut closes the door of a workload, and ends all its processes.
func (w *one) shut(within time.Duration) error {
	err := w.k.Edge.Close(w.name, within)
	if err == nil {
		w.k.endOrphans([]string{w.name})
	}
	return err
}

// discard removes a workload. The caller has the turn. before is called while no other one of the
// manager can take its name yet, unless it is nil.
func (w *one) discard(before func(name string)) error {
	w.mu.Lock()
	open, f := w.open, w.folder
	w.mu.Unlock()
	if open {
		if err := w.shut(usually); err != nil {
			return err
		}
	}
	var err error
	if f != nil {
		err = w.k.bury(f, w.name)
	} else {
		err = removeAll(filepath.Join(w.k.Paths.Workloads(), w.name)) // of a link the link alone
	}
	w.mu.Lock()
	w.open = false
	w.mu.Unlock()
	if err == nil {
		if before != nil {
			before(w.name)
		}
		w.forget()
	}
	return err
}

// forget takes a workload out of those that are kept.
func (w *one) forget() {
	w.k.mu.Lock()
	delete(w.k.all, w.name)
	for t := range w.k.transitions {
		if t.Workload == w.name {
			delete(w.k.transitions, t)
		}
	}
	w.k.mu.Unlock()
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	w.closeLogs()
}

func (w *one) closeLogs() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range []*logs.File{w.server, w.edge} {
		if l != nil {
			l.Close()
		}
	}
}

// leave gives the workload's directory back at the end of the process.
func (w *one) leave() {
	w.mu.Lock()
	f := w.folder
	w.mu.Unlock()
	if f == nil {
		return
	}
	if s := w.state(); s != Stopped && s != Failed {
		w.to(Unknown, "the manager has ended")
	}
	w.closeLogs()
	f.close()
}
