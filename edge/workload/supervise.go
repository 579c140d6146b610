package workload

import (
	"cmp"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-edge/weir/edge/workload/logs"
)

// How often a workload is looked at, and when it is tried again.
const (
	lookEvery   = time.Second
	againAfter  = time.Minute
	refusedFor  = 24 * time.Hour
	refusedRest = 10 * time.Minute
)

// supervise looks after the workloads until the keeper ends.
func (k *Keeper) supervise() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for looks := 0; ; looks++ {
		select {
		case <-k.life.Done():
			return
		case now := <-tick.C:
			if k.robbed() {
				close(k.lost)
				return
			}
			for _, w := range k.sorted() {
				if w.try() && !w.tend(now) {
					w.release()
				}
			}
		}
		if looks%auditLooks == 0 && k.Rotated != nil {
			k.rotateAudits()
		}
	}
}

// auditLooks is after how many looks the size of audit logs is looked at.
const auditLooks = 60

// rotateAudits begins audit logs anew that are full. Who writes them opens them again.
func (k *Keeper) rotateAudits() {
	full := false
	for _, w := range k.sorted() {
		path := filepath.Join(k.Paths.Workloads(), w.name, logs.Audit)
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > logs.MaxSize {
			logs.Rotate(path)
			full = true
		}
	}
	if full {
		k.Rotated()
	}
}

// tend follows what became of a workload, and has it started again where that is due; then
// it reports true and the turn goes with it.
func (w *one) tend(now time.Time) bool {
	if !w.wanted() {
		return false
	}
	w.mu.Lock()
	state, due, hopeless, open, remote := w.now.State, !now.Before(w.next), w.hopeless, w.open, w.facts.Remote
	w.mu.Unlock()
	if !open {
		if state != Failed || hopeless || !due {
			return false
		}
		w.begin(false)
		return true
	}
	look, ok := w.k.Edge.Look(w.name)
	if !ok {
		return false
	}
	w.mu.Lock()
	w.now.Restarts = look.Restarts
	w.mu.Unlock()
	if state == PolicyStopped && look.State != Running { // a rule does not change by itself
		return false
	}
	switch look.State {
	case Running:
		w.to(Running, look.Reason)
	case Unhealthy:
		if state == Running || state == Unhealthy || state == AuthRetrying {
			w.to(Unhealthy, look.Reason)
		}
		if remote { // the edge itself asks it again
			return false
		}
		w.begin(false)
		return true
	case AuthRetrying:
		return w.retryLogin(now, look)
	case Failed:
		if state != Failed {
			w.mu.Lock()
			w.next, w.now.Stderr, w.now.Failure, w.now.Next = now.Add(againAfter), look.Stderr, look.Reason, cmp.Or(look.Next, "weir logs "+w.name)
			w.mu.Unlock()
			w.to(Failed, look.Reason)
		} else if due && !hopeless && !look.Over {
			w.begin(false)
			return true
		}
	}
	return false
}

// retryLogin tries a remote server again that refuses its credential, now and then for a
// day.
func (w *one) retryLogin(now time.Time, look Look) bool {
	w.mu.Lock()
	state := w.now.State
	if w.refused.IsZero() {
		w.refused, w.next = now, now.Add(refusedRest)
	}
	over, due := now.Sub(w.refused) >= refusedFor, !now.Before(w.next)
	if due {
		w.next = now.Add(refusedRest)
	}
	w.mu.Unlock()
	switch {
	case state == Unauthenticated:
	case over:
		w.to(Unauthenticated, look.Reason)
	default:
		w.to(AuthRetrying, look.Reason)
		if due {
			w.begin(false)
			return true
		}
	}
	return false
}
