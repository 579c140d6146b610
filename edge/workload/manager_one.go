package workload

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/workload/logs"
)

// one is a workload that a keeper keeps. What changes it takes its turn first, so that one
// change happens at a time, in order.
type one struct {
	k    *Keeper
	name string
	turn chan struct{} // has room for whoever changes it

	mu       sync.Mutex
	folder   *folder // nil for one whose directory cannot be used
	manifest []byte
	wished   State  // what the manifest says that the user wants
	facts    *Facts // nil where the manifests are not sound
	now      record
	open     bool // its door is
	hopeless bool // waiting does not cure why it failed
	heir     bool // it takes the place of another one, and has what that one has kept
	gone     bool
	abort    context.CancelCauseFunc // ends the start under way; nil for none
	feed     chan Event              // of that start
	next     time.Time               // of the next attempt
	refused  time.Time               // since when its credential is; zero for not

	server, edge *logs.File
}

func newOne(k *Keeper, name string) *one {
	return &one{k: k, name: name, turn: make(chan struct{}, 1), now: record{State: Unknown, Since: time.Now()}}
}

// try takes the turn where nobody has it.
func (w *one) try() bool {
	select {
	case w.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// describe notes the manifests of the workload; w.mu is held.
func (w *one) describe(manifest []byte) { w.manifest, w.wished = manifest, wishOf(manifest) }

func (w *one) release() { <-w.turn }

func (w *one) isGone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

func (w *one) state() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now.State
}

// wanted reports whether the user wants it to run, and it can.
func (w *one) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.folder != nil && w.facts != nil && !w.gone && w.wished == Running
}

// adopt takes up what the directory of a workload says.
func (w *one) adopt(f *folder) {
	sweep(f.path)
	_ = os.RemoveAll(filepath.Join(f.path, "sock")) // of starts that a kill has cut: nobody listens there
	w.mu.Lock()
	w.folder = f
	w.mu.Unlock()
	w.openLogs()
	manifest, now, err := f.read()
	var facts *Facts
	if err == nil {
		if facts, err = w.judge(manifest); err != nil {
			err = fmt.Errorf("%s: %w", f.manifest(), err)
		}
	}
	w.mu.Lock()
	w.describe(manifest)
	w.now = now
	if w.now.Created.IsZero() {
		if info, err := os.Lstat(f.path); err == nil {
			w.now.Created = info.ModTime()
		}
	}
	w.now.Reason, w.now.Started, w.now.State = "", nil, Unknown
	if err == nil {
		w.facts = facts
		if w.wished == Stopped {
			w.now.State = Stopped
		}
	}
	w.mu.Unlock()
	if err != nil {
		w.broken(err)
	}
}

// judge reads the manifests that were kept; those of another workload are none.
func (w *one) judge(manifest []byte) (*Facts, error) {
	facts, err := w.k.Edge.Read(manifest)
	if err == nil && facts.Name != w.name {
		return nil, fmt.Errorf("it describes the workload %s", facts.Name)
	}
	return facts, err
}

// broken notes why a workload cannot be kept as its directory says.
func (w *one) broken(err error) {
	w.k.Log.Error("a workload is broken", "workload", w.name, "error", err)
	w.mu.Lock()
	w.hopeless = true
	w.mu.Unlock()
	w.to(Failed, err.Error())
}

func (w *one) openLogs() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server = logs.Server(w.folder.path)
	w.edge = logs.Own(w.folder.path)
}

// to brings the workload to a state. Each transition is a line of edge.log, and counted.
func (w *one) to(state State, reason string) {
	look, _ := w.k.Edge.Look(w.name)
	w.mu.Lock()
	from := w.now.State
	if from == state && w.now.Reason == reason {
		w.mu.Unlock()
		return
	}
	w.now.Reason = reason
	if w.k.Foreground {
		w.now.Sandbox, w.now.Open = look.Sandbox, look.Open
	}
	if from != state {
		w.now.State, w.now.Since = state, time.Now()
	}
	switch state {
	case Running:
		w.now.Failure, w.now.Next, w.now.Stderr, w.hopeless, w.refused = "", "", nil, false, time.Time{}
		if w.now.Started == nil {
			now := time.Now()
			w.now.Started = &now
		}
	case Stopped, Failed, Unauthenticated, PolicyStopped:
		w.now.Started = nil
	}
	log := w.edge
	w.mu.Unlock()
	if from != state {
		text := string(from) + " → " + string(state)
		if reason != "" {
			text += ": " + reason
		}
		if log != nil {
			log.Add(Line{Time: time.Now(), Source: logs.Event, Text: text})
		}
		w.k.mu.Lock()
		w.k.transitions[Transition{w.name, state}]++
		w.k.mu.Unlock()
	}
	w.keep()
}

// keep writes status.json. What cannot be written is lost without harm.
func (w *one) keep() {
	var err error
	w.mu.Lock()
	if w.folder != nil && !w.gone {
		w.now.Boot, w.now.PID = w.k.Boot, os.Getpid()
		err = w.folder.keep(&w.now)
	}
	w.mu.Unlock()
	if err != nil { // without w.mu, which Note takes for what is logged
		w.k.Log.Warn("the state of a workload is not written", "workload", w.name, "error", err)
	}
}

// say tells whoever waits for the start under way of a step. Its text names the workload: the name
// stands before what others say, who may have it in their words by chance.
func (w *one) say(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.feed <- Event{Time: time.Now(), Text: text}:
	default: // nobody waits, or does not listen
	}
}

// line takes what the server prints, and what happens to its processes.
func (w *one) line(l Line) {
	w.mu.Lock()
	log := w.server
	w.mu.Unlock()
	if log != nil {
		log.Add(l)
	}
	if l.Source == "stderr" {
		w.say(w.name + ": stderr: " + l.Text)
	}
}

// again takes up a directory that could not be used: somebody may have mended it.
func (w *one) again() {
	if !w.unusable() {
		return
	}
	f, err := openFolder(filepath.Join(w.k.Paths.Workloads(), w.name))
	if err != nil {
		w.broken(err)
		return
	}
	w.adopt(f)
}

// wish keeps what the user wants. That a workload is to stop counts also where it cannot be kept,
// as with a full disk, until the manager ends.
func (w *one) wish(state State) error {
	w.again()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.folder == nil:
		return &Error{Code: CodeFault, Message: w.now.Reason, Next: "mend it, or `weir rm --force " + w.name + "`"}
	case w.facts == nil: // somebody may have mended it
		manifest, _, err := w.folder.read()
		if err == nil {
			w.facts, err = w.judge(manifest)
		}
		if err != nil {
			return &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s: %v", w.folder.manifest(), err), Next: "mend it, or `weir rm --force " + w.name + "`"}
		}
		w.describe(manifest)
	}
	manifest, err := withWish(w.manifest, state)
	if err == nil {
		err = writeOwn(w.folder.manifest(), manifest)
	}
	if err != nil && state == Stopped && manifest != nil {
		w.describe(manifest)
		return &Error{Code: CodeFault, Message: fmt.Sprintf("%s is stopped, and that is not kept: %v", w.name, err), Next: "make room, and stop it again: the next manager starts it else"}
	}
	if err != nil {
		return fmt.Errorf("what is kept of %s: %w", w.name, err)
	}
	w.describe(manifest)
	return nil
}

// status is what the manager says of a workload.
func (w *one) status() Status { return w.detail().Status }

// detail is everything that the manager knows of it.
func (w *one) detail() Detail {
	look, _ := w.k.Edge.Look(w.name)
	w.mu.Lock()
	defer w.mu.Unlock()
	d := Detail{
		Status: Status{
			Name: w.name, URL: w.now.URL, Status: w.now.State, StatusContext: w.now.Reason, Reason: w.now.Reason,
			CreatedAt: w.now.Created, StartedAt: w.now.Started, Group: defaultGroup,
			Sandbox: look.Sandbox, Processes: look.Processes, Restarts: max(look.Restarts, w.now.Restarts), RSSBytes: look.RSSBytes,
		},
		Wish: w.wished, Manifest: string(w.manifest), RunAs: look.RunAs, Notes: slices.Clone(look.Notes), Withheld: slices.Clone(look.Tools), Image: look.Image, Verified: look.Verified,
		Failure: w.now.Failure, Next: w.now.Next, Stderr: slices.Clone(w.now.Stderr),
	}
	if d.Failure == "" && d.Status.Status == Failed {
		d.Failure = w.now.Reason
	}
	if d.Failure == "" && (look.Next != "" || d.Status.Status == Starting && look.Ended != "") { // it ends as before where nobody does anything
		d.Failure, d.Next = "a process of it ended: "+look.Ended, cmp.Or(look.Next, "weir logs "+w.name)
	}
	if f := w.facts; f != nil {
		d.Package, d.Command, d.Port, d.TransportType, d.ProxyMode, d.Group = f.Package, f.Command, f.Port, f.Transport, f.ProxyMode, cmp.Or(f.Group, defaultGroup)
		d.Labels, d.Tools, d.Remote, d.Isolation = f.Labels, f.Tools, f.Remote, f.Isolation && !look.Open
	}
	return d
}

// unusable reports whether the workload's directory cannot be used.
func (w *one) unusable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.folder == nil
}
